/* direct_report: clipped direct convolution on square blocks, the output row on threadIdx.x.
 * It has one mistake.
 *   y[n,k,p,q] = sum_{c,r,s} x[n,c,p*U-pad+r,q*U-pad+s] * w[k,c,r,s]     (lab 1, eq. 1)
 * x       device, N*C*H*W float, not padded
 * w       device, K*C*R*S float
 * y       device, N*K*P*Q float
 */
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
    for (int c = 0; c < C; c++) {
        for (int row = max(top, 0); row < min(top + R, H); row++)
            for (int col = max(left, 0); col < min(left + S, W); col++)
                sum += x[((n * C + c) * H + row) * W + col]
                     * w[((k * C + c) * R + row - top) * S + col - left];
        y[((n * K + k + c) * P + p) * Q + q] = sum;
    }
    y[((n * K + k) * P + p) * Q + q] = sum;
}
