//! H 7, W 9, R 3, S 2, P 5, Q 8, K 4
//! x float[H*W], w float[R*S], y out float[P*Q], z out float[K*P*Q]

//! bug no_guard out-of-bounds
//@ launch no_guard grid=cdiv(P*Q, 32) block=32
__global__ void no_guard(const float* x, const float* w, float* y, int W, int R, int S, int P, int Q)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int p = i / Q % P, q = i % Q;
    float sum = 0;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
            sum += x[(p + r) * W + q + s] * w[r * S + s];
    y[i] = sum;                                         // <- the surplus threads of the last block store too
}

//! bug no_guard_above out-of-bounds
//@ launch no_guard_above grid=1 block=64
__global__ void no_guard_above(const float* x, const float* w, float* y, int H, int W, int R, int S, int P, int Q)
{
    int i = threadIdx.x;
    if (i >= P * Q) return;
    int p = i / Q, q = i % Q;
    float sum = 0;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
            if (p - 1 + r < H && q + s < W)
                sum += x[(p - 1 + r) * W + q + s] * w[r * S + s];   // <- row -1
    y[i] = sum;
}

//! bug weight_row out-of-bounds
//@ launch weight_row grid=1 block=64
__global__ void weight_row(const float* x, const float* w, float* y, int W, int R, int S, int P, int Q)
{
    int i = threadIdx.x;
    if (i >= P * Q) return;
    float sum = 0;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
            sum += x[(i / Q + r) * W + i % Q + s]
                 * w[(r + 1) * S + s];                  // <- a row too far
    y[i] = sum;
}

//! bug sums_in_memory uninitialised
//@ launch sums_in_memory grid=1 block=64
__global__ void sums_in_memory(const float* x, const float* w, float* y, int W, int R, int S, int P, int Q)
{
    int i = threadIdx.x;
    if (i >= P * Q) return;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
            y[i] += x[(i / Q + r) * W + i % Q + s] * w[r * S + s];  // <- y holds nothing yet
}

//! bug one_output_for_all_filters global-race
//@ launch one_output_for_all_filters grid=(1, K) block=64
__global__ void one_output_for_all_filters(const float* x, const float* w, float* y, int W, int S, int P, int Q)
{
    int i = threadIdx.x;
    if (i >= P * Q) return;
    y[i] = x[(i / Q) * W + i % Q] * (blockIdx.y + 1);   // <- every k stores here
}

//! bug step_of_zero budget
//@ launch step_of_zero grid=1 block=64
__global__ void step_of_zero(const float* x, const float* w, float* y, int W, int R, int S, int P, int Q)
{
    int i = threadIdx.x;
    if (i >= P * Q) return;
    float sum = 0;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s += r)                  // <- stands still at r = 0
            sum += x[(i / Q + r) * W + i % Q + s] * w[r * S + s];
    y[i] = sum;
}

//! clean direct
//@ launch direct grid=(cdiv(P*Q, 32), K) block=32
__global__ void direct(const float* x, const float* w, float* z, int W, int R, int S, int P, int Q)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= P * Q) return;
    float sum = 0;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
            sum += x[(i / Q + r) * W + i % Q + s] * w[r * S + s];
    z[blockIdx.y * P * Q + i] = sum;
}
