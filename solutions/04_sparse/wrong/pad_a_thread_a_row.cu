//! task: pad
//! fails: pad.counters.stores
//! why: right, but a thread writes a whole row, so lanes store far apart
//@ launch pad grid=cdiv(N*C*Hp, 256) block=256

__global__ void pad(const float* x, float* xp, int N, int C, int H, int W, int Hp, int Wp, int padh, int padw)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N * C * Hp) return;
    int plane = row / Hp;
    int h = row % Hp - padh;
    for (int column = 0; column < Wp; column++) {
        int w = column - padw;
        bool inside = h >= 0 && h < H && w >= 0 && w < W;
        xp[row * Wp + column] = inside ? x[(plane * H + h) * W + w] : 0.0f;
    }
}
