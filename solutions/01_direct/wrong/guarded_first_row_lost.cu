//! task: direct_guarded
//! fails: direct_guarded.correct
//! why: off by one at the border: row 0 and column 0 are taken for padding
//@ const TILE = 128
//@ launch direct_guarded grid=(cdiv(P*Q, TILE), K, N) block=TILE

__global__ void direct_guarded(const float* x, const float* w, float* y,
                               int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;      // the last block reaches beyond P*Q
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (i >= P * Q) return;
    int p = i / Q;
    int q = i % Q;

    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++)
            for (int s = 0; s < S; s++) {
                int row = p * U - pad + r;              // -pad .. H-1+pad
                int col = q * U - pad + s;              // -pad .. W-1+pad
                if (row > 0 && row < H && col > 0 && col < W)
                    sum += x[((n * C + c) * H + row) * W + col] * w[((k * C + c) * R + r) * S + s];
            }
    y[((n * K + k) * P + p) * Q + q] = sum;
}
