/* stretch_filter: the columns of CSR filters moved from the filter to the padded input, one thread a filter.
 *   stretched[j] = (ch*Hp + r*dilh)*Wp + s*dilw     where col[j] = (ch*R + r)*S + s
 * rowptr     device, K+1 int
 * col        device, nnz int, ch counted over all C channels
 * stretched  device, nnz int, every element stored once
 * launch     grid cdiv(K, 128), block 128
 * needs      C*Hp*Wp < 2^31
 * a base rung: the longest row decides, lanes with short rows wait, and lanes lie a row's length apart.
 * Source: sparse paper, section 3.2, process one (padding and dilation added).
 */
//@ needs C*Hp*Wp < 2**31
//@ launch stretch_filter grid=cdiv(K, 128) block=128

__global__ void stretch_filter(const int* rowptr, const int* col, int* stretched, int K, int R, int S,
                               int Hp, int Wp, int dilh, int dilw)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= K) return;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++) {
        int s = col[j] % S;
        int r = col[j] / S % R;
        int ch = col[j] / (R * S);
        stretched[j] = (ch * Hp + r * dilh) * Wp + s * dilw;
    }
}
