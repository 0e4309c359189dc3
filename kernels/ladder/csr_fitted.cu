/* csr_fitted: sparse convolution, stretched CSR, tiles of (val, col) in shared memory, blocks cut to the output.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 * launch       grid (cdiv(P*Q, block), K, N), block: whole warps, at most TILE threads, all blocks alike
 * needs        K and N < 65536;  N*C*Hp*Wp and N*K*P*Q < 2^31
 * H100         AlexNet's conv2, conv3, 128 images: 1.47, 0.61 ms; lowered, cuBLAS: 1.84, 1.14
 * over csr_tiled: of its two blocks for a plane of 13 x 13 outputs the second one works for 41; here one of six warps
 * has them all, and no warp walks through a row for nothing. A tile is as long as the block.
 */
//@ const TILE = 256
//@ let block = 32*cdiv(P*Q, 32*cdiv(P*Q, TILE))
//@ needs K < 65536 and N < 65536
//@ needs N*K*P*Q < 2**31
//@ launch csr_fitted grid=(cdiv(P*Q, block), K, N) block=block

__global__ void csr_fitted(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                           int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int col_tile[TILE];
    __shared__ float val_tile[TILE];
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    bool live = pq < P * Q;                             // surplus threads help to load, and must reach the barriers
    const float* input = xp + n * C * Hp * Wp + (live ? pq / Q * Uh * Wp + pq % Q * Uw : 0);

    int end = rowptr[k + 1];
    float sum = 0.0f;
    for (int j0 = rowptr[k]; j0 < end; j0 += blockDim.x) {
        int length = min((int)blockDim.x, end - j0);
        if (threadIdx.x < length) {
            col_tile[threadIdx.x] = col[j0 + threadIdx.x];
            val_tile[threadIdx.x] = val[j0 + threadIdx.x];
        }
        __syncthreads();                                // the tile is complete
        for (int j = 0; j < length; j++)
            sum += val_tile[j] * input[col_tile[j]];
        __syncthreads();                                // nobody reads it any more
    }
    if (live) y[(n * K + k) * P * Q + pq] = sum;
}
