/* csr_tiled: sparse convolution, stretched CSR, tiles of (val, col) in shared memory.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float, every element stored once
 */
//@ const TILE = 128
//@ launch csr_tiled grid=(cdiv(P*Q, TILE), K, N) block=TILE

__global__ void csr_tiled(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                          int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int col_tile[TILE];
    __shared__ float val_tile[TILE];
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    bool live = pq < P * Q;                             // surplus threads help to load, and must reach the barriers
    const float* input = xp + n * C * Hp * Wp + (live ? pq / Q * Uh * Wp + pq % Q * Uw : 0);

    // YOUR CODE HERE: about 12 lines: for each tile of row k: load it, wait, add its products, wait
}
