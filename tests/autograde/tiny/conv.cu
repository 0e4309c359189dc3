//@ launch conv grid=(N*K) block=32
__global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int K,
                     int R, int S, int P, int Q, int U, int pad)
{
    int n = blockIdx.x / K, k = blockIdx.x % K;
    for (int i = threadIdx.x; i < P * Q; i += 32) {
        int p = i / Q, q = i % Q;
        float sum = 0.0f;
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R; r++)
                for (int s = 0; s < S; s++) {
                    int h = p * U - pad + r, v = q * U - pad + s;
                    if (h >= 0 && h < H && v >= 0 && v < W)
                        sum += x[((n * C + c) * H + h) * W + v] * w[((k * C + c) * R + r) * S + s];
                }
        y[((n * K + k) * P + p) * Q + q] = sum;
    }
}
