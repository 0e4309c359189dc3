//! task: csr
//! fails: csr.counters.stores, csr.target
//! why: right, but the sum is still in global memory
//@ launch csr grid=(cdiv(P*Q, 128), K, N) block=128

__global__ void csr(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                    int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (pq >= P * Q) return;
    const float* input = xp + n * C * Hp * Wp + pq / Q * Uh * Wp + pq % Q * Uw;

    float* sum = y + (n * K + k) * P * Q + pq;
    *sum = 0.0f;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++)
        *sum += val[j] * input[col[j]];
}
