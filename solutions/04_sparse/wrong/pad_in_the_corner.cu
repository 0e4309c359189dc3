//! task: pad
//! fails: pad.correct
//! why: does not subtract the padding: the image lies in the upper left corner
//@ launch pad grid=cdiv(N*C*Hp*Wp, 256) block=256

__global__ void pad(const float* x, float* xp, int N, int C, int H, int W, int Hp, int Wp, int padh, int padw)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * C * Hp * Wp) return;
    int plane = i / (Hp * Wp);
    int h = i / Wp % Hp;
    int w = i % Wp;
    bool inside = h >= 0 && h < H && w >= 0 && w < W;
    xp[i] = inside ? x[(plane * H + h) * W + w] : 0.0f;
}
