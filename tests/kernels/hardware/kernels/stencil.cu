//! H 40, W 70
//! x float[H*W], y out float[H*W]

//! clean stencil
//@ launch stencil grid=(cdiv(W, 32), cdiv(H, 8)) block=(32, 8)
__global__ void stencil(const float* x, float* y, int H, int W)
{
    __shared__ float tile[10][34];
    int row = blockIdx.y * 8 - 1, column = blockIdx.x * 32 - 1;
    for (int i = threadIdx.y * 32 + threadIdx.x; i < 340; i += 256) {
        int h = row + i / 34, w = column + i % 34;
        tile[i / 34][i % 34] = h >= 0 && h < H && w >= 0 && w < W ? x[h * W + w] : 0;
    }
    __syncthreads();
    int p = threadIdx.y + 1, q = threadIdx.x + 1;
    if (row + p < H && column + q < W)
        y[(row + p) * W + column + q] =
            tile[p][q] - 0.25f * (tile[p - 1][q] + tile[p + 1][q] + tile[p][q - 1] + tile[p][q + 1]);
}
