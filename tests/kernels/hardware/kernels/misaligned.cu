//! n 1024
//! x float[n+9], y out float[n+9]

//! clean misaligned
//@ launch misaligned grid=n//256 block=256 args=(x, y, 1)
//@ launch misaligned grid=n//256 block=256 args=(x, y, 8)
//@ launch misaligned grid=n//256 block=256 args=(x, y, 9)
__global__ void misaligned(const float* x, float* y, int shift)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x + shift;
    y[i] = x[i];
}
