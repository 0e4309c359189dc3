//! task: data_gradient
//! fails: data_gradient.correct
//! why: does not ask whether the stride divides
//@ const BX = 32
//@ const BY = 4
//@ launch data_gradient grid=(cdiv(W, BX), cdiv(H, BY), N*C) block=(BX, BY)

__global__ void data_gradient(const float* dy, const float* w, float* dx,
                              int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int n = blockIdx.z / C;
    int c = blockIdx.z % C;
    if (row >= H || col >= W) return;

    float sum = 0.0f;
    for (int r = 0; r < R; r++) {
        int down = row + pad - r;                       // p*U where an output p reads this row through tap r
        if (down < 0 || down / U >= P) continue;
        for (int s = 0; s < S; s++) {
            int right = col + pad - s;
            if (right < 0 || right / U >= Q) continue;
            for (int k = 0; k < K; k++)
                sum += dy[((n * K + k) * P + down / U) * Q + right / U] * w[((k * C + c) * R + r) * S + s];
        }
    }
    dx[((n * C + c) * H + row) * W + col] = sum;
}
