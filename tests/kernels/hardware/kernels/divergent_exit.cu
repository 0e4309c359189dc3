//! n 300
//! x float[n], y out float[n]

//! clean divergent_exit
//! unlike load_sectors the loop is unrolled, and lanes meet in other turns of it
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
