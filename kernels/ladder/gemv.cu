/* gemv: transposed matrix times vector, one thread a column of the matrix.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     for each vector m; a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float: GM vectors (the filters of a group)
 * b       device, GB matrices of GK*GN float (the columns of im2col)
 * c       device, GB*GM*GN float, every element stored once
 * launch  grid (cdiv(GN, 128), GM, GB), block 128
 * needs   GM and GB < 65536;  groups*GM*GK, GN*GK and GM*GN < 2^31
 * H100    3 x 31^2, 511^2, 4095^2, a 3 x 3 filter: 8.7, 25.0, 1748 us; cuDNN: 4.7, 12.2, 649
 * over gemv_rows: neighbouring lanes read neighbouring floats, an eighth of the traffic. Every element of b is still
 * read once for each of the GM vectors.
 */
//@ needs GM < 65536 and GB < 65536
//@ needs groups*GM*GK < 2**31 and GN*GK < 2**31 and GM*GN < 2**31
//@ launch gemv grid=(cdiv(GN, 128), GM, GB) block=128

__global__ void gemv(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int m = blockIdx.y;
    if (i >= GN) return;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    // BEGIN SOLUTION: about 3 lines: the sum along a column of b
    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[l * GN + i];
    c[m * GN + i] = sum;
    // END SOLUTION
}
