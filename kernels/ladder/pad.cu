/* pad: the zero-padded copy of the input, which sparse rungs read without a guard.
 *   xp[n,c,h,w] = x[n,c,h-padh,w-padw], 0 outside of x     for h < Hp = H + 2*padh, w < Wp = W + 2*padw
 * x       device, N*C*H*W float
 * xp      device, N*C*Hp*Wp float, every element stored once
 * launch  grid cdiv(N*C*Hp*Wp, 256), block 256
 * needs   N*C*Hp*Wp < 2^31
 * a step: its time counts in every convolution that needs xp.
 */
//@ needs N*C*(H + 2*padh)*(W + 2*padw) < 2**31
//@ launch pad grid=cdiv(N*C*Hp*Wp, 256) block=256

__global__ void pad(const float* x, float* xp, int N, int C, int H, int W, int Hp, int Wp, int padh, int padw)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;      // one thread an element of xp
    if (i >= N * C * Hp * Wp) return;
    // BEGIN SOLUTION: about 5 lines: the plane, the row and the column in x, then one store
    int plane = i / (Hp * Wp);
    int h = i / Wp % Hp - padh;
    int w = i % Wp - padw;

    bool inside = h >= 0 && h < H && w >= 0 && w < W;
    xp[i] = inside ? x[(plane * H + h) * W + w] : 0.0f;
    // END SOLUTION
}
