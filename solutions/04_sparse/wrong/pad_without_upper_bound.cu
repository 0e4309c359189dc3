//! task: pad
//! fails: pad.runs
//! why: tests the coordinates against 0 only, and reads behind the image
//@ launch pad grid=cdiv(N*C*Hp*Wp, 256) block=256

__global__ void pad(const float* x, float* xp, int N, int C, int H, int W, int Hp, int Wp, int padh, int padw)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * C * Hp * Wp) return;
    int plane = i / (Hp * Wp);
    int h = i / Wp % Hp - padh;
    int w = i % Wp - padw;
    bool inside = h >= 0 && w >= 0;
    xp[i] = inside ? x[(plane * H + h) * W + w] : 0.0f;
}
