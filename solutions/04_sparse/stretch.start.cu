/* stretch: the columns of CSR filters moved from the filter to the padded input, one thread a non-zero.
 * col        device, nnz int, ch counted over all C channels
 * stretched  device, nnz int, every element stored once
 */
//@ launch stretch grid=cdiv(nnz, 256) block=256

__global__ void stretch(const int* col, int* stretched, int R, int S, int Hp, int Wp, int dilh, int dilw, int nnz)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= nnz) return;
    // YOUR CODE HERE: about 4 lines: s, r and the channel, then the new column
}
