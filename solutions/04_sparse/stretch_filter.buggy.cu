/* stretch_filter: the columns of CSR filters moved from the filter to the input, one thread a filter.
 * rowptr     device, K+1 int
 * col        device, nnz int, ch counted over all C channels
 * stretched  device, nnz int, every element stored once
 */
//@ launch stretch_filter grid=cdiv(K, 128) block=128 args=(rowptr, col, stretched, K, R, S, H, W, dilh, dilw)

__global__ void stretch_filter(const int* rowptr, const int* col, int* stretched, int K, int R, int S,
                               int H, int W, int dilh, int dilw)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    int end = rowptr[k + 1];
    for (int j = rowptr[k]; j < end; j++) {
        int s = col[j] % S;
        int r = col[j] / S % R;
        int ch = col[j] / (R * S);
        stretched[j] = (ch * H + r * dilh) * W + s * dilw;
    }
}
