//! C 3, H 19, W 23, R 3, S 3, P 10, Q 12
//! x float[C*H*W], col out float[C*R*S*P*Q]

//! clean im2col
//@ launch im2col grid=(cdiv(P*Q, 64), C*R*S) block=64
__global__ void im2col(const float* x, float* col, int H, int W, int R, int S, int P, int Q)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (i >= P * Q) return;
    int h = i / Q * 2 - 1 + row / S % R, w = i % Q * 2 - 1 + row % S;
    col[row * P * Q + i] = h >= 0 && h < H && w >= 0 && w < W ? x[(row / (R * S) * H + h) * W + w] : 0;
}
