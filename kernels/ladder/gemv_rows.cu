/* gemv_rows: matrix times vector, one thread a row of the matrix.
 *   c[m,i] = sum_l a[m,l] * b[i,l]     for each vector m; a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, GM*GK float: GM vectors (the filters)
 * b       device, GB matrices of GN*GK float (the rows of im2col_rows)
 * c       device, GB*GM*GN float, every element stored once
 * launch  grid (cdiv(GN, 128), GM, GB), block 128
 * needs   GM and GB < 65536;  GM*GK, GN*GK and GM*GN < 2^31
 * H100    3 x 31^2, 511^2, 4095^2, a 3 x 3 filter: 9.3, 173.1, 10505 us; cuDNN: 4.7, 12.2, 649
 * a base rung: neighbouring lanes read GK floats apart, so a request of 128 bytes moves 1024.
 * Source: lab report, section 2.2.2 (one filter, one image there).
 */
//@ needs GM < 65536 and GB < 65536
//@ needs GM*GK < 2**31 and GN*GK < 2**31 and GM*GN < 2**31
//@ launch gemv_rows grid=(cdiv(GN, 128), GM, GB) block=128

__global__ void gemv_rows(const float* a, const float* b, float* c, int GM, int GN, int GK)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int m = blockIdx.y;
    if (i >= GN) return;
    b += (size_t)blockIdx.z * GN * GK;                  // one product an image
    c += (size_t)blockIdx.z * GM * GN;

    // BEGIN SOLUTION: about 3 lines: the sum along a row of b
    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += b[i * GK + l] * a[m * GK + l];
    c[m * GN + i] = sum;
    // END SOLUTION
}
