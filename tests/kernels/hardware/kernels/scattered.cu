//! n 1024
//! x float[n], y out float[n]

//! clean scattered
//@ launch scattered grid=n//64 block=64 args=(x, y, n, 37)
//@ launch scattered grid=n//64 block=64 args=(x, y, n, 333)
__global__ void scattered(const float* x, float* y, int n, int odd)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i * odd % n] = x[(i * i + i) / 2 % n];
}
