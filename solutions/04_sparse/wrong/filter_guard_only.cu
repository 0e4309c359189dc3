//! task: stretch_filter
//! fails: stretch_filter.correct
//! why: sends surplus threads home and keeps the paper's unpadded H and W
//@ launch stretch_filter grid=cdiv(K, 128) block=128 args=(rowptr, col, stretched, K, R, S, H, W, dilh, dilw)

__global__ void stretch_filter(const int* rowptr, const int* col, int* stretched, int K, int R, int S,
                               int H, int W, int dilh, int dilw)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= K) return;
    int end = rowptr[k + 1];
    for (int j = rowptr[k]; j < end; j++) {
        int s = col[j] % S;
        int r = col[j] / S % R;
        int ch = col[j] / (R * S);
        stretched[j] = (ch * H + r * dilh) * W + s * dilw;
    }
}
