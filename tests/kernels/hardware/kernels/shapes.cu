//! n 30
//! x float[n*n*n], y out float[n*n*n]

//! clean partial_warp
//@ launch partial_warp grid=7 block=45
__global__ void partial_warp(const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * 2;
}

//! clean plane
//@ launch plane grid=(3, 10) block=(10, 3)
__global__ void plane(const float* x, float* y, int n)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    y[row * n + column] = x[column * n + row];
}

//! clean space
//@ launch space grid=(5, 10, 15) block=(6, 3, 2)
__global__ void space(const float* x, float* y, int n)
{
    int a = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y * blockDim.y + threadIdx.y;
    int c = blockIdx.z * blockDim.z + threadIdx.z;
    y[(c * n + b) * n + a] = x[(a * n + b) * n + c];
}

//! clean one_thread
//@ launch one_thread grid=2 block=1
__global__ void one_thread(const float* x, float* y, int n)
{
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < n; i++) sum += x[i] * x[i + n];
    y[blockIdx.x] = sum;
}
