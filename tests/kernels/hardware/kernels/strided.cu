//! n 512
//! x float[32*n], y out float[n]

//! clean strided
//@ launch strided grid=n//128 block=128 args=(x, y, 2)
//@ launch strided grid=n//128 block=128 args=(x, y, 5)
//@ launch strided grid=n//128 block=128 args=(x, y, 32)
__global__ void strided(const float* x, float* y, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i * stride];
}
