//! n 512
//! x float[n], y out float[n]

//! clean pairs
//@ launch pairs grid=2 block=128 args=(x, y, 1)
//@ launch pairs grid=2 block=128 args=(x, y, 3)
//@ launch pairs grid=2 block=128 args=(x, y, 4)
__global__ void pairs(const float2* x, float2* y, int stride)
{
    __shared__ float2 cells[128 * 4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cells[threadIdx.x * stride] = x[i];
    __syncthreads();
    y[i] = cells[(127 - threadIdx.x) * stride];
}

//! clean quads
//@ launch quads grid=2 block=64 args=(x, y, 1)
//@ launch quads grid=2 block=64 args=(x, y, 2)
//@ launch quads grid=2 block=64 args=(x, y, 9)
__global__ void quads(const float4* x, float4* y, int stride)
{
    __shared__ float4 cells[64 * 9];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cells[threadIdx.x * stride] = x[i];
    __syncthreads();
    y[i] = cells[(63 - threadIdx.x) * stride];
}
