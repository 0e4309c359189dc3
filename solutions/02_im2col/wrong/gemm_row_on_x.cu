//! task: gemm_coalesced
//! fails: gemm_coalesced.counters.loads, gemm_coalesced.target
//! why: the row is on threadIdx.x
/* gemm_coalesced: matrix product, one thread an element.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 */
//@ launch gemm_coalesced grid=(cdiv(GM, 16), cdiv(GN, 16), GB) block=(16, 16)

__global__ void gemm_coalesced(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    int i = blockIdx.y * 16 + threadIdx.y;              // the column changes from lane to lane
    int m = blockIdx.x * 16 + threadIdx.x;
    if (m >= GM || i >= GN) return;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[l * GN + i];
    c[m * GN + i] = sum;
}
