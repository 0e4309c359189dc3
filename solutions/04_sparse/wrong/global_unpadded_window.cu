//! task: csr_global
//! fails: csr_global.correct
//! why: counts the rows of the window with the unpadded W
//@ launch csr_global grid=(cdiv(P*Q, 128), K, N) block=128 args=(xp, rowptr, col, val, y, C, Hp, Wp, K, P, Q, Uh, Uw, W)

__global__ void csr_global(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                           int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw, int W)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (pq >= P * Q) return;
    const float* input = xp + n * C * Hp * Wp + pq / Q * Uh * W + pq % Q * Uw;
    float* output = y + (n * K + k) * P * Q + pq;

    *output = 0.0f;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++)
        *output += val[j] * input[col[j]];
}
