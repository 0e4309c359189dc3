/* direct_coalesced: clipped direct convolution on square blocks, the output column on threadIdx.x.
 *   y[n,k,p,q] = sum_{c,r,s} x[n,c,p*U-pad+r,q*U-pad+s] * w[k,c,r,s]     (lab 1, eq. 1)
 * x       device, N*C*H*W float, not padded
 * w       device, K*C*R*S float
 * y       device, N*K*P*Q float, every element stored once
 * launch  grid (cdiv(Q, BX), cdiv(P, BY), N*K), block (BX, BY)
 * needs   dil == 1, groups == 1;  N*K < 65536;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * H100    3 x 31^2, 511^2, 4095^2, a 3 x 3 filter: 5.0, 10.6, 409 us; cuDNN: 4.7, 12.2, 649
 * over direct_report: neighbouring lanes store and load neighbouring floats, so a request needs a quarter of the
 * sectors; loses lanes where Q or P is no multiple of the block. At U > 1 the loads of x spread again.
 */
//@ const BX = 16
//@ const BY = 16
//@ needs U >= 1 and pad >= 0 and dil == 1 and groups == 1
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
// BEGIN SOLUTION: 1 line: //@ launch direct_coalesced grid=(..., ..., N*K) block=(BX, BY)
//@ launch direct_coalesced grid=(cdiv(Q, BX), cdiv(P, BY), N*K) block=(BX, BY)
// END SOLUTION

__global__ void direct_coalesced(const float* x, const float* w, float* y,
                                 int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    // BEGIN SOLUTION: about 3 lines: p, q and the guard on them
    int q = blockIdx.x * blockDim.x + threadIdx.x;      // the column changes from lane to lane
    int p = blockIdx.y * blockDim.y + threadIdx.y;
    if (p >= P || q >= Q) return;
    // END SOLUTION
    int n = blockIdx.z / K;
    int k = blockIdx.z % K;

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
