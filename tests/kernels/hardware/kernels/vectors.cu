//! n 1024
//! x float[n], y out float[n]

//! clean two
//@ launch two grid=n//256 block=128
__global__ void two(const float2* x, float2* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 v = x[i];
    y[i] = make_float2(v.y, v.x);
}

//! clean four
//@ launch four grid=n//512 block=128
__global__ void four(const float4* x, float4* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = x[i];
    y[i] = make_float4(v.w, v.z, v.y, v.x);
}

//! clean four_apart
//@ launch four_apart grid=1 block=64
__global__ void four_apart(const float4* x, float4* y)
{
    int i = threadIdx.x;
    y[i] = x[i * 4];
}

//! clean four_crosswise
//@ launch four_crosswise grid=1 block=(8, 8)
__global__ void four_crosswise(const float4* x, float4* y)
{
    y[threadIdx.x * 8 + threadIdx.y] = x[threadIdx.y * 8 + threadIdx.x];
}
