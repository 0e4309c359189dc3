//! n 128
//! x float[n*n], y out float[n*n]

template <int PITCH>
__device__ void turn(const float* x, float* y, int n)
{
    __shared__ float tile[32][PITCH];
    for (int j = threadIdx.y; j < 32; j += 8)
        tile[j][threadIdx.x] = x[(blockIdx.y * 32 + j) * n + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8)
        y[(blockIdx.x * 32 + j) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][j];
}

//! clean transpose_plain
//@ launch transpose_plain grid=(n//32, n//8) block=(32, 8)
__global__ void transpose_plain(const float* x, float* y, int n)
{
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    y[column * n + row] = x[row * n + column];
}

//! clean transpose_tile
//@ launch transpose_tile grid=(n//32, n//32) block=(32, 8)
__global__ void transpose_tile(const float* x, float* y, int n) { turn<32>(x, y, n); }

//! clean transpose_padded
//@ launch transpose_padded grid=(n//32, n//32) block=(32, 8)
__global__ void transpose_padded(const float* x, float* y, int n) { turn<33>(x, y, n); }
