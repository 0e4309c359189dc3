//! task: csr_paper
//! fails: csr_paper.runs
//! why: numbers the threads by blockDim.y, which is right for square blocks only
//@ const BX = 32
//@ const BY = 4
//@ launch csr_paper grid=(cdiv(Q, BX), cdiv(P, BY), N*K) block=(BX, BY)

__global__ void csr_paper(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                          int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    const int tile_size = BX * BY;
    __shared__ int col_shared[tile_size];
    __shared__ float value_shared[tile_size];
    int q = blockIdx.x * BX + threadIdx.x;
    int p = blockIdx.y * BY + threadIdx.y;
    int k = blockIdx.z % K;
    int n = blockIdx.z / K;
    bool live = p < P && q < Q;                         // the others help to load
    const float* input = xp + n * C * Hp * Wp + (live ? p * Uh * Wp + q * Uw : 0);

    int row_start = rowptr[k];
    int row_end = rowptr[k + 1];
    float sum = 0.0f;
    // from the paper
    int t = threadIdx.y * blockDim.y + threadIdx.x;
    for (int i = 0; row_start + i * tile_size < row_end; i++) {
        int tile_start = row_start + i * tile_size;
        if (tile_start + t < row_end) {
            col_shared[t] = col[tile_start + t];
            value_shared[t] = val[tile_start + t];
        }
        __syncthreads();
        for (int j = tile_start; j < min(tile_start + tile_size, row_end); j++)
            sum += value_shared[j - tile_start] * input[col_shared[j - tile_start]];
        __syncthreads();
    }
    // until here
    if (live) y[((n * K + k) * P + p) * Q + q] = sum;
}
