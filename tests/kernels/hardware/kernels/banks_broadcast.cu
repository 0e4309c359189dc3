//! n 128
//! x float[n], y out float[n]

//! clean banks_broadcast
//@ launch banks_broadcast grid=1 block=n
__global__ void banks_broadcast(const float* x, float* y)
{
    __shared__ float cells[128];
    int i = threadIdx.x;
    cells[i] = x[i];
    __syncthreads();
    y[i] = cells[5] + cells[i / 16] * cells[i % 8] + cells[i / 32 * 32];
}
