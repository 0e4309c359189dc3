/* gemm_float4: matrix product, one thread four neighbouring elements, everything moved as float4.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float, 16-byte aligned
 * b       device, GB matrices of GK*GN float, 16-byte aligned
 * c       device, GB matrices of GM*GN float, 16-byte aligned, every element stored once
 * launch  grid (cdiv(GN, 32), cdiv(GM, 32), GB), block (8, 32)
 * needs   GN % 4 == 0, GK % 4 == 0;  GM < 2^20, GB < 65536;  groups*GM*GK, GK*GN and GM*GN < 2^31
 * H100    0.24 of cuBLAS at 4096 x 4096 x 4096
 * over gemm_shared: a quarter of the load instructions, and one load of a serves four products.
 * Source: mobile-GPU paper, section 3.2, where vectors of four were the best width.
 */
//@ needs GN % 4 == 0 and GK % 4 == 0
//@ needs GM < 2**20 and GB < 65536
//@ needs groups*GM*GK < 2**31 and GK*GN < 2**31 and GM*GN < 2**31
//@ launch gemm_float4 grid=(cdiv(GN, 32), cdiv(GM, 32), GB) block=(8, 32)

__global__ void gemm_float4(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    __shared__ float4 a_tile[32][8];                    // 32 x 32 floats
    __shared__ float4 b_tile[32][8];
    int i = blockIdx.x * 32 + threadIdx.x * 4;          // the first of this thread's four columns
    int m = blockIdx.y * 32 + threadIdx.y;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 sum = zero;
    for (int l0 = 0; l0 < GK; l0 += 32) {
        int al = l0 + threadIdx.x * 4;                  // four are inside together, as GN and GK are multiples of 4
        int bl = l0 + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = m < GM && al < GK ? *(const float4*)&a[m * GK + al] : zero;
        b_tile[threadIdx.y][threadIdx.x] = bl < GK && i < GN ? *(const float4*)&b[bl * GN + i] : zero;
        __syncthreads();
        for (int l = 0; l < 32; l++) {
            float left = ((const float*)a_tile[threadIdx.y])[l];
            float4 right = b_tile[l][threadIdx.x];
            sum.x += left * right.x;
            sum.y += left * right.y;
            sum.z += left * right.z;
            sum.w += left * right.w;
        }
        __syncthreads();
    }
    if (m < GM && i < GN) *(float4*)&c[m * GN + i] = sum;
}
