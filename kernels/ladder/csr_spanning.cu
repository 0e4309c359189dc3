/* csr_spanning: sparse convolution, stretched CSR, tiled, a block spans the images of one filter.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 * launch       grid (cdiv(N*P*Q, TILE), K), block TILE
 * needs        K < 65536;  N*C*Hp*Wp and N*K*P*Q < 2^31
 * H100         AlexNet's conv2, conv3, 128 images: 1.44, 0.71 ms; lowered, cuBLAS: 1.84, 1.14
 * over csr_fitted: output points are counted through the batch, so no warp is part empty where P*Q is small (7 x 7
 * fills 49 of 64 threads there), and blocks may be large; loses where a block's images leave the cache.
 */
//@ const TILE = 256
//@ needs K < 65536
//@ needs N*K*P*Q < 2**31
//@ launch csr_spanning grid=(cdiv(N*P*Q, TILE), K) block=TILE

__global__ void csr_spanning(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                             int N, int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int2 tile[TILE];                         // (col, the bits of val): one load brings both
    int point = blockIdx.x * TILE + threadIdx.x;        // of all images
    int k = blockIdx.y;
    // BEGIN SOLUTION: about 18 lines: the point's image and place, then the tiles of row k, then one store
    bool live = point < N * P * Q;
    int n = live ? point / (P * Q) : 0;
    int pq = live ? point % (P * Q) : 0;
    const float* input = xp + n * C * Hp * Wp + pq / Q * Uh * Wp + pq % Q * Uw;

    int end = rowptr[k + 1];
    float sum = 0.0f;
    for (int j0 = rowptr[k]; j0 < end; j0 += TILE) {
        int length = min(TILE, end - j0);
        if (threadIdx.x < length)
            tile[threadIdx.x] = make_int2(col[j0 + threadIdx.x], __float_as_int(val[j0 + threadIdx.x]));
        __syncthreads();
        #pragma unroll 4
        for (int j = 0; j < length; j++)
            sum += __int_as_float(tile[j].y) * input[tile[j].x];
        __syncthreads();
    }
    if (live) y[(n * K + k) * P * Q + pq] = sum;
    // END SOLUTION
}
