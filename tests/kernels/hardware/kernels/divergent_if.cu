//! n 1000
//! x float[n], y out float[n], z out float[n]

//! clean by_parity
//@ launch by_parity grid=cdiv(n, 128) block=128
__global__ void by_parity(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    if (i % 2)
        for (int j = 0; j < n; j += 100) sum += x[j] * x[i];
    else
        for (int j = n - 1; j >= 0; j -= 200) sum -= x[j];
    y[i] = sum;
}

//! clean by_warp
//@ launch by_warp grid=cdiv(n, 128) block=128
__global__ void by_warp(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    if (i / 32 % 2)
        for (int j = 0; j < n; j += 100) sum += x[j] * x[i];
    else
        for (int j = n - 1; j >= 0; j -= 200) sum -= x[j];
    y[i] = sum;
}

//! clean nested
//@ launch nested grid=cdiv(n, 128) block=128
__global__ void nested(const float* x, float* y, float* z, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    if (i % 4 < 3) {
        for (int j = 0; j < n; j += 125) sum += x[j];
        if (i % 4 == 1)
            for (int j = i % 3; j < n; j += 250) sum += x[j] * x[n - 1 - j];
        z[i] = sum;
    }
    y[i] = sum;
}
