//! n 1000
//! x float[n], sums out float[8]

//! clean by_shuffles
//! unlike shared_load_wavefronts the four loads of a sum are joined into one
//@ launch by_shuffles grid=8 block=128
__global__ void by_shuffles(const float* x, float* sums, int n)
{
    __shared__ float part[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float own = i < n ? x[i] : 0;
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(0xffffffff, own, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
}

//! clean by_halves
//@ launch by_halves grid=8 block=128
__global__ void by_halves(const float* x, float* sums, int n)
{
    __shared__ float part[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? x[i] : 0;
    #pragma unroll 1
    for (int step = 64; step; step /= 2) {
        __syncthreads();
        if (t < step) part[t] += part[t + step];
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}
