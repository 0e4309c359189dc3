/* csr_tiled: sparse convolution, stretched CSR, tiles of (val, col) in shared memory.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 * launch       grid (cdiv(P*Q, TILE), K, N), block TILE
 * needs        K and N < 65536;  N*C*Hp*Wp and N*K*P*Q < 2^31
 * H100         AlexNet's conv2, conv3, 128 images: 1.50, 0.75 ms; lowered, cuBLAS: 1.84, 1.14
 * over csr: a block reads (val, col) once from global memory, not once a warp; loses where rows are shorter than
 * TILE, and two barriers a tile keep the warps of a block together.
 * Source: sparse paper, section 3.3 (tile as long as the block; the guard of the last tile added).
 */
//@ const TILE = 128
//@ needs K < 65536 and N < 65536
//@ needs N*K*P*Q < 2**31
//@ launch csr_tiled grid=(cdiv(P*Q, TILE), K, N) block=TILE

__global__ void csr_tiled(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                          int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int col_tile[TILE];
    __shared__ float val_tile[TILE];
    int pq = blockIdx.x * TILE + threadIdx.x;           // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    bool live = pq < P * Q;                             // surplus threads help to load, and must reach the barriers
    const float* input = xp + n * C * Hp * Wp + (live ? pq / Q * Uh * Wp + pq % Q * Uw : 0);

    // BEGIN SOLUTION: about 12 lines: for each tile of row k: load it, wait, add its products, wait
    int end = rowptr[k + 1];
    float sum = 0.0f;
    for (int j0 = rowptr[k]; j0 < end; j0 += TILE) {
        int length = min(TILE, end - j0);
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
    // END SOLUTION
}
