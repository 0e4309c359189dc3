//! task: csr
//! fails: csr.correct
//! why: starts the windows one element apart, whatever the stride
//@ launch csr grid=(cdiv(P*Q, 128), K, N) block=128

__global__ void csr(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                    int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (pq >= P * Q) return;
    const float* input = xp + n * C * Hp * Wp + pq / Q * Wp + pq % Q;

    float sum = 0.0f;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++)
        sum += val[j] * input[col[j]];
    y[(n * K + k) * P * Q + pq] = sum;
}
