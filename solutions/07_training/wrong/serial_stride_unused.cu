//! task: weight_gradient_serial
//! fails: weight_gradient_serial.correct
//! why: steps by 1 through the input
//@ const TILE = 128
//@ launch weight_gradient_serial grid=cdiv(K*C*R*S, TILE) block=TILE

__global__ void weight_gradient_serial(const float* x, const float* dy, float* dw,
                                       int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= K * C * R * S) return;
    int s = i % S;
    int r = i / S % R;
    int c = i / (S * R) % C;
    int k = i / (S * R * C);

    float sum = 0.0f;
    for (int n = 0; n < N; n++)
        for (int p = 0; p < P; p++)
            for (int q = 0; q < Q; q++) {
                int row = p - pad + r;
                int col = q - pad + s;
                if (row >= 0 && row < H && col >= 0 && col < W)
                    sum += dy[((n * K + k) * P + p) * Q + q] * x[((n * C + c) * H + row) * W + col];
            }
    dw[i] = sum;
}
