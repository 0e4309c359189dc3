//! C 2, H 6, W 7, R 3, S 3, P 6, Q 7, pad 1
//! x float[C*H*W], w float[C*R*S], col out float[C*R*S*P*Q], y out float[P*Q]

__device__ bool inside(int row, int column, int H, int W) { return row >= 0 && row < H && column >= 0 && column < W; }

__global__ void gemv(const float* w, const float* col, float* y, int n, int columns)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += w[i] * col[i * columns + j];
    y[j] = sum;
}

//! bug columns_of_the_image out-of-bounds
//@ launch columns_of_the_image grid=C*R*S block=64
__global__ void columns_of_the_image(const float* x, float* col, int H, int W, int R, int S, int P, int Q, int pad)
{
    int row = blockIdx.x, i = threadIdx.x;
    if (i >= P * Q) return;
    int h = i / Q - pad + row / S % R, v = i % Q - pad + row % S;
    float value = inside(h, v, H, W) ? x[(row / (R * S) * H + h) * W + v] : 0;
    col[row * H * W + (P + 2 * pad) * (i % Q) + i / Q] = value;     // <- the stride of another layout
}

//! bug one_row_of_blocks_too_many out-of-bounds
//@ launch one_row_of_blocks_too_many grid=C*R*S+1 block=64
__global__ void one_row_of_blocks_too_many(const float* x, float* col, int H, int W, int R, int S, int P, int Q, int pad)
{
    int row = blockIdx.x, i = threadIdx.x;
    if (i >= P * Q) return;
    col[row * P * Q + i] = 0;                           // <- row C*R*S
}

//! clean im2col
//@ launch im2col grid=C*R*S block=64
//@ launch gemv grid=1 block=64 args=(w, col, y, C*R*S, P*Q)
__global__ void im2col(const float* x, float* col, int H, int W, int R, int S, int P, int Q, int pad)
{
    int row = blockIdx.x, i = threadIdx.x;
    if (i >= P * Q) return;
    int h = i / Q - pad + row / S % R, v = i % Q - pad + row % S;
    col[row * P * Q + i] = inside(h, v, H, W) ? x[(row / (R * S) * H + h) * W + v] : 0;
}
