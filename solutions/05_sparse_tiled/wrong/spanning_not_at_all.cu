//! task: csr_spanning
//! fails: csr_spanning.counters.surplus, csr_spanning.target
//! why: right, but a block still ends where its image ends
//@ const TILE = 256
//@ let block = 32*cdiv(P*Q, 32*cdiv(P*Q, TILE))
//@ launch csr_spanning grid=(cdiv(P*Q, block), K, N) block=block args=(xp, rowptr, col, val, y, C, Hp, Wp, K, P, Q, Uh, Uw)

__global__ void csr_spanning(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
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
