//! n 512, bins 24
//! i int[n] mod bins, x float[n], counts out int[n], sums out float[n]

//! clean histogram
//@ launch histogram grid=n//128 block=128
__global__ void histogram(const int* i, int* counts)
{
    __shared__ int own[32];
    int t = threadIdx.x;
    if (t < 32) own[t] = 0;
    __syncthreads();
    atomicAdd(&own[i[blockIdx.x * 128 + t]], 1);
    __syncthreads();
    if (t < 32) counts[blockIdx.x * 32 + t] = own[t];
}

//! clean distinct_cells
//@ launch distinct_cells grid=n//128 block=128 args=(x, counts, 1)
//@ launch distinct_cells grid=n//128 block=128 args=(x, counts, 4)
__global__ void distinct_cells(const float* x, int* counts, int stride)
{
    __shared__ int own[512];
    int t = threadIdx.x;
    for (int k = t; k < 512; k += 128) own[k] = 0;
    __syncthreads();
    atomicAdd(&own[t * stride], (int)x[t]);
    __syncthreads();
    counts[blockIdx.x * 128 + t] = own[t];
}

//! clean ranks
//@ launch ranks grid=n//128 block=128
__global__ void ranks(const int* i, int* counts)
{
    __shared__ int own[32];
    int t = threadIdx.x;
    if (t < 32) own[t] = 0;
    __syncthreads();
    counts[blockIdx.x * 128 + t] = atomicAdd(&own[i[blockIdx.x * 128 + t]], t);
}

//! clean float_sums
//! unlike shared_load_wavefronts floats are added by a loop, whose loads the engine does not count
//! unlike shared_atomic_wavefronts the loop repeats where the warps of a block meet, too
//@ launch float_sums grid=n//128 block=128
__global__ void float_sums(const int* i, const float* x, float* sums)
{
    __shared__ float own[32];
    int t = threadIdx.x;
    if (t < 32) own[t] = 0;
    __syncthreads();
    atomicAdd(&own[i[blockIdx.x * 128 + t]], x[t]);
    __syncthreads();
    if (t < 32) sums[blockIdx.x * 32 + t] = own[t];
}

//! clean one_cell
//@ launch one_cell grid=n//128 block=128
__global__ void one_cell(const int* i, int* counts)
{
    __shared__ int own[4];
    int t = threadIdx.x;
    if (t < 4) own[t] = 0;
    __syncthreads();
    atomicAdd(&own[0], i[blockIdx.x * 128 + t]);
    atomicMax(&own[1], t);
    atomicAdd(&own[2], 1);
    atomicAdd(&own[3], 5);
    __syncthreads();
    if (t < 4) counts[blockIdx.x * 4 + t] = own[t];
}

//! clean one_cell_answered
//@ launch one_cell_answered grid=n//128 block=128 args=(counts, 1)
//@ launch one_cell_answered grid=n//128 block=128 args=(counts, 3)
__global__ void one_cell_answered(int* counts, int every)
{
    __shared__ int own[3];
    int t = threadIdx.x;
    if (t < 3) own[t] = 0;
    __syncthreads();
    if (t % every == 0) counts[blockIdx.x * 128 + t] = atomicAdd(&own[0], t) + atomicAdd(&own[1], 1);
    if (t % every) counts[blockIdx.x * 128 + t] = atomicMin(&own[2], t);
}

//! clean swaps
//@ launch swaps grid=n//128 block=128
__global__ void swaps(const int* i, int* counts)
{
    __shared__ int own[64];
    int t = threadIdx.x, k = i[blockIdx.x * 128 + t];
    if (t < 64) own[t] = 0;
    __syncthreads();
    counts[blockIdx.x * 128 + t] = atomicExch(&own[k], t) + atomicCAS(&own[32 + k], 0, t);
}

//! clean float_sums_by_warps
//! unlike shared_load_wavefronts floats are added by a loop, whose loads the engine does not count
//@ launch float_sums_by_warps grid=n//32 block=32
__global__ void float_sums_by_warps(const int* i, const float* x, float* sums)
{
    __shared__ float own[32];
    int t = threadIdx.x;
    own[t] = 0;
    __syncthreads();
    atomicAdd(&own[i[blockIdx.x * 32 + t]], x[blockIdx.x * 32 + t]);
    __syncthreads();
    if (t < 32) sums[blockIdx.x * 32 + t] = own[t];
}

//! clean long_sums_by_warps
//! unlike shared_load_wavefronts long integers are added by a loop, whose loads the engine does not count
//@ launch long_sums_by_warps grid=n//32 block=32
__global__ void long_sums_by_warps(const int* i, int* counts)
{
    __shared__ unsigned long long own[32];
    int t = threadIdx.x, k = i[blockIdx.x * 32 + t];
    own[t] = 0;
    __syncthreads();
    atomicAdd(&own[k], (unsigned long long)t);
    __syncthreads();
    counts[blockIdx.x * 32 + t] = (int)own[t];
}
