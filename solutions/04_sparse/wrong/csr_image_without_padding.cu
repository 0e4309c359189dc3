//! task: csr
//! fails: csr.correct
//! why: begins image n after n images without padding
//@ launch csr grid=(cdiv(P*Q, 128), K, N) block=128 args=(xp, rowptr, col, val, y, C, Hp, Wp, K, P, Q, Uh, Uw, H, W)

__global__ void csr(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                    int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw, int H, int W)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread an output point
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (pq >= P * Q) return;
    const float* input = xp + n * C * H * W + pq / Q * Uh * Wp + pq % Q * Uw;

    float sum = 0.0f;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++)
        sum += val[j] * input[col[j]];
    y[(n * K + k) * P * Q + pq] = sum;
}
