//! n 256
//! x float[n], y out float[n]

//! clean trips
//@ launch trips grid=n//64 block=64
__global__ void trips(const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    #pragma unroll 1
    for (int j = 0; j < i % 7; j++) sum += x[(i + 8 * j) % 256];
    y[i] = sum;
}

//! clean leaves_early
//@ launch leaves_early grid=n//64 block=64
__global__ void leaves_early(const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    #pragma unroll 1
    for (int j = 0; j < 64; j++) {
        sum += x[(i + 32 * j) % 256];
        if (sum > 600 + 10 * (i % 5)) break;
    }
    y[i] = sum;
}

//! clean collatz
//@ launch collatz grid=n//64 block=64
__global__ void collatz(const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = i + 1;
    float sum = 0;
    while (v != 1) {
        sum += x[v % 256];
        v = v % 2 ? 3 * v + 1 : v / 2;
    }
    y[i] = sum;
}
