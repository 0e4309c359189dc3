//! task: gemv_rows
//! fails: gemv_rows.correct
//! why: reads b as if its rows were the taps
/* gemv_rows: matrix times vector, one thread a row of the matrix.
 *   c[m,i] = sum_l a[m,l] * b[i,l]     for each vector m; a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, GM*GK float: GM vectors (the filters)
 * b       device, GB matrices of GN*GK float (the rows of im2col_rows)
 * c       device, GB*GM*GN float, every element stored once
 */
//@ launch gemv_rows grid=(cdiv(GN, 128), GM, GB) block=128

__global__ void gemv_rows(const float* a, const float* b, float* c, int GM, int GN, int GK)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int m = blockIdx.y;
    if (i >= GN) return;
    b += (size_t)blockIdx.z * GN * GK;                  // one product an image
    c += (size_t)blockIdx.z * GM * GN;

    float sum = 0.0f;
    for (int l = 0; l < GK; l++) sum += b[l * GN + i] * a[m * GK + l];
    c[m * GN + i] = sum;
}
