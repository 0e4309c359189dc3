//! task: gemm_coalesced
//! fails: gemm_coalesced.runs
//! why: guards the row and not the column
/* gemm_coalesced: matrix product, one thread an element.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 */
//@ launch gemm_coalesced grid=(cdiv(GN, 32), cdiv(GM, 8), GB) block=(32, 8)

__global__ void gemm_coalesced(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    int i = blockIdx.x * 32 + threadIdx.x;              // the column changes from lane to lane
    int m = blockIdx.y * 8 + threadIdx.y;
    if (m >= GM) return;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[l * GN + i];
    c[m * GN + i] = sum;
}
