/* gemm_coalesced: matrix product, one thread an element, the column on threadIdx.x.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 * launch  grid (cdiv(GN, 32), cdiv(GM, 8), GB), block (32, 8)
 * needs   GM < 2^19, GB < 65536;  groups*GM*GK, GK*GN and GM*GN < 2^31
 * H100    0.07 of cuBLAS at 4096 x 4096 x 4096
 * over gemm_naive: a warp reads one word of a and 128 neighbouring bytes of b. Two loads a multiply-add remain.
 */
//@ needs GM < 2**19 and GB < 65536
//@ needs groups*GM*GK < 2**31 and GK*GN < 2**31 and GM*GN < 2**31
//@ launch gemm_coalesced grid=(cdiv(GN, 32), cdiv(GM, 8), GB) block=(32, 8)

__global__ void gemm_coalesced(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;      // the column changes from lane to lane
    int m = blockIdx.y * blockDim.y + threadIdx.y;
    if (m >= GM || i >= GN) return;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[l * GN + i];
    c[m * GN + i] = sum;
}
