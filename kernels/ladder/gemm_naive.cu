/* gemm_naive: matrix product, one thread an element, the row on threadIdx.x.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 * launch  grid (cdiv(GM, 16), cdiv(GN, 16), GB), block (16, 16)
 * needs   GN < 2^20, GB < 65536;  groups*GM*GK, GK*GN and GM*GN < 2^31
 * H100    0.02 of cuBLAS at 4096 x 4096 x 4096
 * a base rung: lanes of a warp lie in 16 rows, so that stores to c and loads from a touch a sector for each lane.
 */
//@ needs GN < 2**20 and GB < 65536
//@ needs groups*GM*GK < 2**31 and GK*GN < 2**31 and GM*GN < 2**31
//@ launch gemm_naive grid=(cdiv(GM, 16), cdiv(GN, 16), GB) block=(16, 16)

__global__ void gemm_naive(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    int m = blockIdx.x * blockDim.x + threadIdx.x;      // the row changes from lane to lane
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (m >= GM || i >= GN) return;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[l * GN + i];
    c[m * GN + i] = sum;
}
