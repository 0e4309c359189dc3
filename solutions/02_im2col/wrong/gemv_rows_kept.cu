//! task: gemv
//! fails: gemv.correct
//! why: keeps the index of the report's layout
/* gemv: transposed matrix times vector, one thread a column of the matrix.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     for each vector m; a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float: GM vectors (the filters of a group)
 * b       device, GB matrices of GK*GN float (the columns of im2col)
 * c       device, GB*GM*GN float, every element stored once
 */
//@ launch gemv grid=(cdiv(GN, 128), GM, GB) block=128

__global__ void gemv(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int m = blockIdx.y;
    if (i >= GN) return;
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += a[m * GK + l] * b[i * GK + l];
    c[m * GN + i] = sum;
}
