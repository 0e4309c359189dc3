/* turn: the rows of the unrolled input become its columns, a tile at a time, through shared memory.
 * It has one mistake.
 *   col[n,l,i] = rows[n,i,l]
 * rows    device, GB matrices of GN*GK float
 * col     device, GB matrices of GK*GN float
 */
//@ launch turn grid=(cdiv(GK, 32), cdiv(GN, 32), GB) block=(32, 32)

__global__ void turn(const float* rows, float* col, int GN, int GK)
{
    __shared__ float tile[32][32];
    rows += (size_t)blockIdx.z * GN * GK;
    col += (size_t)blockIdx.z * GK * GN;

    int l = blockIdx.x * 32 + threadIdx.x;              // along a row of rows
    int i = blockIdx.y * 32 + threadIdx.y;
    if (i < GN && l < GK) tile[threadIdx.y][threadIdx.x] = rows[i * GK + l];

    l = blockIdx.x * 32 + threadIdx.y;
    i = blockIdx.y * 32 + threadIdx.x;                  // along a row of col
    if (l < GK && i < GN) col[l * GN + i] = tile[threadIdx.x][threadIdx.y];
}
