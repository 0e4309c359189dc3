//! n 1000
//! x float[n], y out float[n]

//! clean coalesced
//@ launch coalesced grid=cdiv(n, 128) block=128
__global__ void coalesced(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 3 * x[i] + 2;
}
