//! n 128, bins 16, rows 8, per_row 4
//! x float[n], sum float[1], sums out float[4], i int[n] mod bins, counts int[bins] mod 1, val float[rows*per_row]
//! col int[rows*per_row] mod n, y out float[rows]

//! bug tree_without_barriers shared-race
//@ launch tree_without_barriers grid=1 block=n
__global__ void tree_without_barriers(const float* x, float* sums, int n)
{
    __shared__ float part[128];
    int k = threadIdx.x;
    part[k] = x[k];
    for (int step = 64; step; step /= 2)
        if (k < step) part[k] += part[k + step];                // <- not stored yet by the other warp
    if (k == 0) sums[0] = part[0];
}

//! bug tree_barrier_inside_the_branch divergent-barrier
//@ launch tree_barrier_inside_the_branch grid=1 block=n
__global__ void tree_barrier_inside_the_branch(const float* x, float* sums, int n)
{
    __shared__ float part[128];
    int k = threadIdx.x;
    part[k] = x[k];
    __syncthreads();
    for (int step = 16; step; step /= 2)
        if (k < step) {
            part[k] += part[k + step];
            __syncthreads();                                    // <- the others never come
        }
    if (k == 0) sums[0] = part[0];
}

//! bug tree_last_warp_unsynchronised shared-race
//@ launch tree_last_warp_unsynchronised grid=1 block=32
__global__ void tree_last_warp_unsynchronised(const float* x, float* sums)
{
    __shared__ float part[64];
    int k = threadIdx.x;
    part[k] = x[k];
    part[k + 32] = x[k + 32];
    part[k] += part[(k + 33) % 64];                             // <- lanes of a warp need __syncwarp() too
    if (k == 0) sums[0] = part[0];
}

//! bug tree_reads_beyond out-of-bounds
//@ launch tree_reads_beyond grid=1 block=n
__global__ void tree_reads_beyond(const float* x, float* sum, int n)
{
    __shared__ float part[128];
    int k = threadIdx.x;
    part[k] = x[k];
    __syncthreads();
    atomicAdd(sum, part[k] + part[k + 64]);                     // <- part[128] and on
}

//! bug histogram_shared_plain shared-race
//@ launch histogram_shared_plain grid=1 block=n
__global__ void histogram_shared_plain(const int* i, int* counts, int bins)
{
    __shared__ int own[16];
    int k = threadIdx.x;
    if (k < bins) own[k] = 0;
    __syncthreads();
    own[i[k]]++;                                                // <- not atomic
    __syncthreads();
    if (k < bins) counts[k] = own[k];
}

//! bug histogram_shared_not_cleared uninitialised
//@ launch histogram_shared_not_cleared grid=1 block=n
__global__ void histogram_shared_not_cleared(const int* i, int* counts, int bins)
{
    __shared__ int own[16];
    int k = threadIdx.x;
    atomicAdd(&own[i[k]], 1);                                   // <- shared memory begins with anything
    __syncthreads();
    if (k < bins) counts[k] = own[k];
}

//! bug histogram_read_at_once shared-race
//@ launch histogram_read_at_once grid=1 block=n
__global__ void histogram_read_at_once(const int* i, int* counts, int bins)
{
    __shared__ int own[16];
    int k = threadIdx.x;
    if (k < bins) own[k] = 0;
    __syncthreads();
    atomicAdd(&own[i[k]], 1);
    if (k < bins) counts[k] = own[k];                           // <- others still add
}

//! bug csr_tile_read_early shared-race
//@ launch csr_tile_read_early grid=1 block=rows*per_row
__global__ void csr_tile_read_early(const int* col, const float* val, const float* x, float* y, int rows, int per_row)
{
    __shared__ float value[32];
    __shared__ int column[32];
    int j = threadIdx.x;
    value[j] = val[j];
    column[j] = col[j];
    if (j >= rows) return;
    float sum = 0;
    for (int k = j * per_row; k < (j + 1) * per_row; k++)
        sum += value[k] * x[column[k]];                         // <- before the tile is there
    y[j] = sum;
}

//! clean tree
//@ launch tree grid=1 block=n
__global__ void tree(const float* x, float* sums, int n)
{
    __shared__ float part[128];
    int k = threadIdx.x;
    part[k] = x[k];
    for (int step = 64; step; step /= 2) {
        __syncthreads();
        if (k < step) part[k] += part[k + step];
    }
    if (k == 0) sums[0] = part[0];
}

//! clean tree_with_warp_tail
//@ launch tree_with_warp_tail grid=1 block=64
__global__ void tree_with_warp_tail(const float* x, float* sums)
{
    __shared__ float part[64];
    int k = threadIdx.x;
    part[k] = x[k];
    __syncthreads();
    if (k < 32) {
        float own = part[k] + part[k + 32];
        for (int step = 16; step; step /= 2) own += __shfl_down_sync(0xffffffff, own, step);
        if (k == 0) sums[0] = own;
    }
}

//! clean histogram_shared
//@ launch histogram_shared grid=1 block=n
__global__ void histogram_shared(const int* i, int* counts, int bins)
{
    __shared__ int own[16];
    int k = threadIdx.x;
    if (k < bins) own[k] = 0;
    __syncthreads();
    atomicAdd(&own[i[k]], 1);
    __syncthreads();
    if (k < bins) counts[k] = own[k];
}
