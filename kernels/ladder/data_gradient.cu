/* data_gradient: gradient of a convolution by its input, one thread an element, which gathers its sum.
 *   dx[n,c,h,w] = sum_{k,r,s} dy[n,k,p,q] * w[k,c,r,s]  over the taps with p*U-pad+r = h, q*U-pad+s = w   (lab 7, eq. 2)
 * dy      device, N*K*P*Q float
 * w       device, K*C*R*S float
 * dx      device, N*C*H*W float, every element stored once
 * launch  grid (cdiv(W, BX), cdiv(H, BY), N*C), block (BX, BY)
 * needs   dil == 1, groups == 1;  N*C < 65536;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * over data_gradient_scatter: no atomic update, no zeros to write first; with U > 1 most taps are tested in vain.
 */
//@ const BX = 32
//@ const BY = 4
//@ needs U >= 1 and pad >= 0 and dil == 1 and groups == 1 and N*C < 65536
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
//@ launch data_gradient grid=(cdiv(W, BX), cdiv(H, BY), N*C) block=(BX, BY)

__global__ void data_gradient(const float* dy, const float* w, float* dx,
                              int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int n = blockIdx.z / C;
    int c = blockIdx.z % C;
    if (row >= H || col >= W) return;

    // BEGIN SOLUTION: about 12 lines: the sum over k, r and s, skipping taps through which no output reads this element
    float sum = 0.0f;
    for (int r = 0; r < R; r++) {
        int down = row + pad - r;                       // p*U where an output p reads this row through tap r
        if (down < 0 || down % U != 0 || down / U >= P) continue;
        for (int s = 0; s < S; s++) {
            int right = col + pad - s;
            if (right < 0 || right % U != 0 || right / U >= Q) continue;
            for (int k = 0; k < K; k++)
                sum += dy[((n * K + k) * P + down / U) * Q + right / U] * w[((k * C + c) * R + r) * S + s];
        }
    }
    // END SOLUTION
    dx[((n * C + c) * H + row) * W + col] = sum;
}
