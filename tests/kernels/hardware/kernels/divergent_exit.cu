//! n 300
//! x float[n], y out float[n]

//! clean divergent_exit
//! unlike load_sectors the assembler does two turns at once, then one: lanes of 1 and of 3 turns load together, apart
//@ launch divergent_exit grid=cdiv(n, 64) block=64
__global__ void divergent_exit(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || i % 3 == 0) return;
    float sum = x[i];
    if (sum > 200) return;
    for (int j = 0; j < i % 4; j++) sum += x[j * 40];
    y[i] = sum;
}

//! clean divergent_exit_rolled
//@ launch divergent_exit_rolled grid=cdiv(n, 64) block=64
__global__ void divergent_exit_rolled(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || i % 3 == 0) return;
    float sum = x[i];
    if (sum > 200) return;
#pragma unroll 1
    for (int j = 0; j < i % 4; j++) sum += x[j * 40];
    y[i] = sum;
}
