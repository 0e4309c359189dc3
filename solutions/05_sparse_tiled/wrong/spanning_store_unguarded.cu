//! task: csr_spanning
//! fails: csr_spanning.runs
//! why: threads behind the last output store as well
//@ const TILE = 256
//@ launch csr_spanning grid=(cdiv(N*P*Q, TILE), K) block=TILE

__global__ void csr_spanning(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                             int N, int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    __shared__ int2 tile[TILE];                         // (col, the bits of val): one load brings both
    int point = blockIdx.x * TILE + threadIdx.x;        // of all images
    int k = blockIdx.y;
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
    n = point / (P * Q);
    y[(n * K + k) * P * Q + point % (P * Q)] = sum;
}
