/* direct_registers: direct convolution, TALL outputs of a column a thread, filter and window in registers.
 *   y[n,k,p,q] = sum_{c,r,s} x[n, c, p*Uh-padh+r*dilh, q*Uw-padw+s*dilw] * w[k,c,r,s]
 * x       device, N*C*H*W float, not padded;  c runs over the C/groups channels of filter k's group
 * w       device, K*(C/groups)*R*S float
 * y       device, N*K*P*Q float, every element stored once
 * launch  grid (cdiv(Q, BX), cdiv(P, BY*TALL), N*K), block (BX, BY)
 * needs   Uh == 1, dilh == 1, R == S, R one of 1, 3, 5;  N*K < 65536;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * H100    3 x 31^2, 511^2, 4095^2, a 3 x 3 filter: 4.0, 5.5, 193 us; cuDNN: 4.7, 12.2, 649
 * over direct_unrolled: a loaded float serves every one of the TALL outputs below each other whose windows hold it, so
 * TALL*R rows become TALL + R - 1, and a weight is loaded once for all; pays where the image is large, and loses
 * where there are too few threads to fill the GPU.
 * Source: lab report, section 3.2 (its second idea: more work for a thread).
 */
//@ const BX = 32
//@ const BY = 4
//@ const TALL = 8
//@ needs Uh == 1 and dilh == 1 and R == S and (R == 1 or R == 3 or R == 5)
//@ needs N*K < 65536
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
//@ launch direct_registers grid=(cdiv(Q, BX), cdiv(P, BY*TALL), N*K) block=(BX, BY)

// One channel: row by row, each float to all outputs whose windows hold it.
template <int SIZE, bool GUARD>
__device__ void add_channel(float (&sum)[TALL], const float* x, const float* w, int top, int left, int H, int W,
                            int dilw)
{
    float weight[SIZE][SIZE];
    #pragma unroll
    for (int r = 0; r < SIZE; r++)
        #pragma unroll
        for (int s = 0; s < SIZE; s++) weight[r][s] = w[r * SIZE + s];

    #pragma unroll
    for (int h = 0; h < TALL + SIZE - 1; h++)
        #pragma unroll
        for (int s = 0; s < SIZE; s++) {
            int row = top + h, col = left + s * dilw;
            bool inside = !GUARD || (row >= 0 && row < H && col >= 0 && col < W);
            float value = inside ? x[row * W + col] : 0.0f;
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                if (h >= i && h - i < SIZE) sum[i] += value * weight[h - i][s];
        }
}

template <int SIZE>
__device__ void convolve(float (&sum)[TALL], const float* x, const float* w, int top, int left, int channels,
                         int H, int W, int dilw, bool inside)
{
    if (inside)
        for (int c = 0; c < channels; c++, x += H * W, w += SIZE * SIZE)
            add_channel<SIZE, false>(sum, x, w, top, left, H, W, dilw);
    else
        for (int c = 0; c < channels; c++, x += H * W, w += SIZE * SIZE)
            add_channel<SIZE, true>(sum, x, w, top, left, H, W, dilw);
}

__global__ void direct_registers(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y,
                                 int C, int H, int W, int K, int R, int S, int P, int Q,
                                 int Uw, int padh, int padw, int dilw, int groups)
{
    int q = blockIdx.x * BX + threadIdx.x;
    int p = (blockIdx.y * BY + threadIdx.y) * TALL;     // the first of TALL outputs below each other
    int n = blockIdx.z / K;
    int k = blockIdx.z % K;
    if (p >= P || q >= Q) return;
    int channels = C / groups;
    x += (n * C + k / (K / groups) * channels) * H * W;
    w += k * channels * R * S;

    int up = blockIdx.y * BY * TALL - padh, west = blockIdx.x * BX * Uw - padw;
    bool inside = up >= 0 && up + BY * TALL + R - 2 < H                  // all windows of the block, so that no
               && west >= 0 && west + (BX - 1) * Uw + (S - 1) * dilw < W;   // warp goes both ways
    float sum[TALL] = {};
    switch (R) {
        case 1: convolve<1>(sum, x, w, p - padh, q * Uw - padw, channels, H, W, dilw, inside); break;
        case 3: convolve<3>(sum, x, w, p - padh, q * Uw - padw, channels, H, W, dilw, inside); break;
        case 5: convolve<5>(sum, x, w, p - padh, q * Uw - padw, channels, H, W, dilw, inside); break;
    }
    #pragma unroll
    for (int i = 0; i < TALL; i++)
        if (p + i < P) y[((n * K + k) * P + p + i) * Q + q] = sum[i];
}
