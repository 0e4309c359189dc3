//! task: weight_gradient
//! fails: weight_gradient.counters.waste
//! why: gives each thread a run of products that lie together
//@ const TILE = 128
//@ launch weight_gradient grid=(R*S, C, K) block=TILE

__global__ void weight_gradient(const float* x, const float* dy, float* dw,
                                int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    __shared__ float part[TILE];
    int r = blockIdx.x / S;
    int s = blockIdx.x % S;
    int c = blockIdx.y;
    int k = blockIdx.z;

    float sum = 0.0f;
    int share = (N * P * Q + TILE - 1) / TILE;
    for (int i = threadIdx.x * share; i < min((threadIdx.x + 1) * share, N * P * Q); i++) {
        int n = i / (P * Q);
        int p = i / Q % P;
        int q = i % Q;
        int row = p * U - pad + r;
        int col = q * U - pad + s;
        if (row >= 0 && row < H && col >= 0 && col < W)
            sum += dy[((n * K + k) * P + p) * Q + q] * x[((n * C + c) * H + row) * W + col];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = TILE / 2; half > 0; half /= 2) {    // a tree: 7 steps for 128 shares
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) dw[((k * C + c) * R + r) * S + s] = part[0];
}
