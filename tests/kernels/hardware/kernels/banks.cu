//! n 256
//! x float[n], y out float[n]

//! clean banks
//@ launch banks grid=4 block=64 args=(x, y, 1)
//@ launch banks grid=4 block=64 args=(x, y, 2)
//@ launch banks grid=4 block=64 args=(x, y, 8)
//@ launch banks grid=4 block=64 args=(x, y, 32)
//@ launch banks grid=4 block=64 args=(x, y, 33)
__global__ void banks(const float* x, float* y, int stride)
{
    __shared__ float cells[64 * 33];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cells[threadIdx.x * stride] = x[i];
    __syncthreads();
    y[i] = cells[(63 - threadIdx.x) * stride];
}
