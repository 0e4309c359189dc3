/* weight_gradient_serial: gradient of a convolution by its filters, one thread a weight.
 *   dw[k,c,r,s] = sum_{n,p,q} dy[n,k,p,q] * x[n,c,p*U-pad+r,q*U-pad+s]     (lab 7, eq. 3)
 * x       device, N*C*H*W float, not padded
 * dy      device, N*K*P*Q float
 * dw      device, K*C*R*S float, every element stored once
 * launch  grid cdiv(K*C*R*S, TILE), block TILE
 * needs   dil == 1, groups == 1;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * a base rung: as many threads as weights, and each adds up N*P*Q products one after the other.
 */
//@ const TILE = 128
//@ needs U >= 1 and pad >= 0 and dil == 1 and groups == 1
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
//@ launch weight_gradient_serial grid=cdiv(K*C*R*S, TILE) block=TILE

__global__ void weight_gradient_serial(const float* x, const float* dy, float* dw,
                                       int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= K * C * R * S) return;
    int s = i % S;
    int r = i / S % R;
    int c = i / (S * R) % C;
    int k = i / (S * R * C);

    // BEGIN SOLUTION: about 9 lines: the sum over n, p and q
    float sum = 0.0f;
    for (int n = 0; n < N; n++)
        for (int p = 0; p < P; p++)
            for (int q = 0; q < Q; q++) {
                int row = p * U - pad + r;
                int col = q * U - pad + s;
                if (row >= 0 && row < H && col >= 0 && col < W)
                    sum += dy[((n * K + k) * P + p) * Q + q] * x[((n * C + c) * H + row) * W + col];
            }
    // END SOLUTION
    dw[i] = sum;
}
