//! task: stretch
//! fails: stretch.counters.balance
//! why: right, but a thread still walks along a filter
//@ launch stretch grid=cdiv(K, 128) block=128 args=(rowptr, col, stretched, K, R, S, Hp, Wp, dilh, dilw)

__global__ void stretch(const int* rowptr, const int* col, int* stretched, int K, int R, int S,
                        int Hp, int Wp, int dilh, int dilw)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= K) return;
    int end = rowptr[k + 1];
    for (int j = rowptr[k]; j < end; j++) {
        int s = col[j] % S;
        int r = col[j] / S % R;
        int ch = col[j] / (R * S);
        stretched[j] = (ch * Hp + r * dilh) * Wp + s * dilw;
    }
}
