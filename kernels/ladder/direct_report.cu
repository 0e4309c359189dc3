/* direct_report: clipped direct convolution on square blocks, the output row on threadIdx.x.
 *   y[n,k,p,q] = sum_{c,r,s} x[n,c,p*U-pad+r,q*U-pad+s] * w[k,c,r,s]     (lab 1, eq. 1)
 * x       device, N*C*H*W float, not padded
 * w       device, K*C*R*S float
 * y       device, N*K*P*Q float, every element stored once
 * launch  grid (cdiv(P, 16), cdiv(Q, 16), N*K), block (16, 16)
 * needs   dil == 1, groups == 1;  N*K < 65536;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * H100    3 x 31^2, 511^2, 4095^2, a 3 x 3 filter: 5.5, 11.7, 442 us; cuDNN: 4.7, 12.2, 649
 * over direct_clipped: no division to find (p, q), a block covers a square whose windows overlap; loses because
 * neighbouring lanes lie Q floats apart. A base rung: this is the mapping to get away from.
 * Source: lab report, section 2.1.2 (one image, one filter there; its store in the channel loop left out).
 */
//@ needs U >= 1 and pad >= 0 and dil == 1 and groups == 1
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
//@ launch direct_report grid=(cdiv(P, 16), cdiv(Q, 16), N*K) block=(16, 16)

__global__ void direct_report(const float* x, const float* w, float* y,
                              int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int p = blockIdx.x * blockDim.x + threadIdx.x;      // the row changes from lane to lane
    int q = blockIdx.y * blockDim.y + threadIdx.y;
    int n = blockIdx.z / K;
    int k = blockIdx.z % K;
    if (p >= P || q >= Q) return;

    int top = p * U - pad;                              // the window's corner in x, negative in the padding
    int left = q * U - pad;
    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        for (int row = max(top, 0); row < min(top + R, H); row++)
            for (int col = max(left, 0); col < min(left + S, W); col++)
                sum += x[((n * C + c) * H + row) * W + col]
                     * w[((k * C + c) * R + row - top) * S + col - left];
    y[((n * K + k) * P + p) * Q + q] = sum;
}
