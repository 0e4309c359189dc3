//@ launch saxpy grid=cdiv(n, 256) block=256

__global__ void saxpy(const float* x, const float* y, float* z, int n, float a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    z[i] = a * x[i] + y[i];
}
