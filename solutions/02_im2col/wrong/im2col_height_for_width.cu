//! task: im2col
//! fails: im2col.correct
//! why: uses the stride of the height for the width too
/* im2col: the input unrolled so that convolution becomes a matrix product, one column an output point.
 *   col[n, (c*R + r)*S + s, p*Q + q] = x[n,c,p*Uh-padh+r*dilh,q*Uw-padw+s*dilw], 0 in the padding
 * x       device, N*C*H*W float, not padded
 * col     device, N*C*R*S*P*Q float, every element stored once
 */
//@ launch im2col grid=(cdiv(P*Q, 128), C, N) block=128

__global__ void im2col(const float* x, float* col, int C, int H, int W, int R, int S, int P, int Q,
                       int Uh, int Uw, int padh, int padw, int dilh, int dilw)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;     // one thread the R*S taps of an output point and a channel
    int c = blockIdx.y;
    size_t n = blockIdx.z;
    if (pq >= P * Q) return;
    int top = pq / Q * Uh - padh;
    int left = pq % Q * Uh - padw;

    const float* from = x + (n * C + c) * H * W;
    float* to = col + (n * C + c) * R * S * P * Q + pq;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++, to += P * Q) {      // the next tap is the next row of col
            int h = top + r * dilh;
            int w = left + s * dilw;
            *to = h >= 0 && h < H && w >= 0 && w < W ? from[h * W + w] : 0.0f;
        }
}
