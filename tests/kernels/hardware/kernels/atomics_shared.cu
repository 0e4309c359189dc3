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
//! unlike shared_atomic_wavefronts lanes that update one place take turns; the engine counts them in global memory only
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
//! unlike shared_load_wavefronts floats are added by a loop of a load and a compare-and-swap
//! unlike shared_atomic_wavefronts the same loop, which repeats where lanes meet
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
