//! n 512
//! x float[n], y out float[n]

//! clean broadcast
//@ launch broadcast grid=n//128 block=128
__global__ void broadcast(const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[blockIdx.x] + x[i / 32] * x[i / 8];
}
