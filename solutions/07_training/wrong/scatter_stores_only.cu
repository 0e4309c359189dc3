//! task: data_gradient_scatter
//! fails: data_gradient_scatter.runs
//! why: stores the product instead of adding it
//@ const TILE = 128
//@ launch zero grid=cdiv(N*C*H*W, TILE) block=TILE args=(dx, N*C*H*W)
//@ launch data_gradient_scatter grid=(cdiv(P*Q, TILE), K, N) block=TILE

__global__ void zero(float* dx, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) dx[i] = 0.0f;
}

__global__ void data_gradient_scatter(const float* dy, const float* w, float* dx,
                                      int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (i >= P * Q) return;
    float gradient = dy[(n * K + k) * P * Q + i];
    int top = i / Q * U - pad;
    int left = i % Q * U - pad;

    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++)
            for (int s = 0; s < S; s++) {
                int row = top + r;
                int col = left + s;
                if (row < 0 || row >= H || col < 0 || col >= W) continue;
                // neighbouring windows overlap, and all filters read the same input: many threads add to one element
                dx[((n * C + c) * H + row) * W + col] = gradient * w[((k * C + c) * R + r) * S + s];
            }
}
