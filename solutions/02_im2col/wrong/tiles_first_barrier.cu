//! task: gemm_shared
//! fails: gemm_shared.runs
//! why: no barrier before the products
/* gemm_shared: matrix product, one thread an element, tiles of a and b in shared memory.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 */
//@ const TILE = 32
//@ launch gemm_shared grid=(cdiv(GN, TILE), cdiv(GM, TILE), GB) block=(TILE, TILE)

__global__ void gemm_shared(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int i = blockIdx.x * TILE + threadIdx.x;
    int m = blockIdx.y * TILE + threadIdx.y;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l0 = 0; l0 < GK; l0 += TILE) {
        int al = l0 + threadIdx.x;
        int bl = l0 + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = m < GM && al < GK ? a[m * GK + al] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = bl < GK && i < GN ? b[bl * GN + i] : 0.0f;
        for (int l = 0; l < TILE; l++) sum += a_tile[threadIdx.y][l] * b_tile[l][threadIdx.x];
        __syncthreads();                                // nobody reads them any more
    }
    if (m < GM && i < GN) c[m * GN + i] = sum;          // only now may surplus threads drop out
}
