/* stretch: the columns of CSR filters moved from the filter to the padded input, one thread a non-zero.
 *   stretched[j] = (ch*Hp + r*dilh)*Wp + s*dilw     where col[j] = (ch*R + r)*S + s
 * col        device, nnz int, ch counted over all C channels
 * stretched  device, nnz int, every element stored once
 * launch     grid cdiv(nnz, 256), block 256
 * needs      nnz >= 1;  C*Hp*Wp < 2^31
 * over stretch_filter: no row is longer than another, lanes are neighbours, and rowptr is not read at all.
 */
//@ needs nnz >= 1
//@ needs C*Hp*Wp < 2**31
//@ launch stretch grid=cdiv(nnz, 256) block=256

__global__ void stretch(const int* col, int* stretched, int R, int S, int Hp, int Wp, int dilh, int dilw, int nnz)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= nnz) return;
    // BEGIN SOLUTION: about 4 lines: s, r and the channel, then the new column
    int s = col[j] % S;
    int r = col[j] / S % R;
    int ch = col[j] / (R * S);
    stretched[j] = (ch * Hp + r * dilh) * Wp + s * dilw;
    // END SOLUTION
}
