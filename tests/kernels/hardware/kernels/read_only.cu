//! n 512
//! x float[n], w float[16], y out float[n]

//! clean read_only
//@ launch read_only grid=n//64 block=64
__global__ void read_only(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += w[k] * x[(i + k) & (n - 1)];
    y[i] = sum;
}
