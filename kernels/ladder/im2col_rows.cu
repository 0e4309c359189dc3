/* im2col_rows: the input unrolled with one row an output point, as one thread meets its taps.
 *   col[n, p*Q + q, (c*R + r)*S + s] = x[n,c,p*Uh-padh+r*dilh,q*Uw-padw+s*dilw], 0 in the padding
 * x       device, N*C*H*W float, not padded
 * col     device, N*P*Q*C*R*S float, every element stored once
 * launch  grid (cdiv(P*Q, 128), N), block 128
 * needs   groups == 1;  N < 65536;  C*H*W and C*R*S*P*Q < 2^31 (offsets inside an image)
 * the first way to lower: a thread writes its row from left to right, so neighbouring lanes store C*R*S floats apart
 * and every request touches 32 sectors.
 * Source: lab report, section 2.2.1.
 */
//@ needs groups == 1
//@ needs N < 65536
//@ needs C*H*W < 2**31 and C*R*S*P*Q < 2**31
//@ launch im2col_rows grid=(cdiv(P*Q, 128), N) block=128

__global__ void im2col_rows(const float* x, float* col, int C, int H, int W, int R, int S, int P, int Q,
                            int Uh, int Uw, int padh, int padw, int dilh, int dilw)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread all taps of an output point
    size_t n = blockIdx.y;
    if (pq >= P * Q) return;
    int top = pq / Q * Uh - padh;
    int left = pq % Q * Uw - padw;

    const float* from = x + n * C * H * W;
    float* to = col + (n * P * Q + pq) * C * R * S;
    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++)
            for (int s = 0; s < S; s++) {
                int h = top + r * dilh;
                int w = left + s * dilw;
                bool inside = h >= 0 && h < H && w >= 0 && w < W;
                *to++ = inside ? from[(c * H + h) * W + w] : 0.0f;
            }
}
