/* csr_images: sparse convolution, stretched CSR, tiled, one thread an output point of IMAGES images.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 * launch       grid (cdiv(P*Q, block), K, cdiv(N, IMAGES)), block: whole warps, at most TILE threads, all alike
 * needs        K and N < 65536;  N*C*Hp*Wp and N*K*P*Q < 2^31
 * H100         AlexNet's conv2, conv3, 128 images: 1.23, 0.72 ms; lowered, cuBLAS: 1.84, 1.14
 * over csr_spanning: one load of (val, col) serves IMAGES multiply-adds, whose loads of xp are under way together.
 * One load of xp a multiply-add remains, from a cache that many blocks share.
 */
//@ const TILE = 256
//@ const IMAGES = 8
//@ let block = 32*cdiv(P*Q, 32*cdiv(P*Q, TILE))
//@ needs K < 65536 and N < 65536
//@ needs N*K*P*Q < 2**31
//@ launch csr_images grid=(cdiv(P*Q, block), K, cdiv(N, IMAGES)) block=block

__global__ void csr_images(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                           int N, int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int2 tile[TILE];                         // (col, the bits of val)
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y;
    int n0 = blockIdx.z * IMAGES;
    bool live = pq < P * Q;
    const float* input = xp + (live ? pq / Q * Uh * Wp + pq % Q * Uw : 0);
    int image[IMAGES];                                  // where each image begins; behind the last, the last again
    #pragma unroll
    for (int i = 0; i < IMAGES; i++) image[i] = min(n0 + i, N - 1) * C * Hp * Wp;

    int end = rowptr[k + 1];
    float sum[IMAGES] = {};
    for (int j0 = rowptr[k]; j0 < end; j0 += blockDim.x) {
        int length = min((int)blockDim.x, end - j0);
        if (threadIdx.x < length)
            tile[threadIdx.x] = make_int2(col[j0 + threadIdx.x], __float_as_int(val[j0 + threadIdx.x]));
        __syncthreads();
        #pragma unroll 2
        for (int j = 0; j < length; j++) {
            float weight = __int_as_float(tile[j].y);
            const float* tap = input + tile[j].x;
            #pragma unroll
            for (int i = 0; i < IMAGES; i++) sum[i] += weight * tap[image[i]];
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i = 0; i < IMAGES; i++)
        if (live && n0 + i < N) y[((n0 + i) * K + k) * P * Q + pq] = sum[i];
}
