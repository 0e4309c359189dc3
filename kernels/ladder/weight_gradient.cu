/* weight_gradient: gradient of a convolution by its filters, one block a weight, its sum split among the threads.
 *   dw[k,c,r,s] = sum_{n,p,q} dy[n,k,p,q] * x[n,c,p*U-pad+r,q*U-pad+s]     (lab 7, eq. 3)
 * x       device, N*C*H*W float, not padded
 * dy      device, N*K*P*Q float
 * dw      device, K*C*R*S float, every element stored once
 * launch  grid (R*S, C, K), block TILE, shared TILE floats
 * needs   dil == 1, groups == 1;  TILE a power of two;  C and K < 65536;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * over weight_gradient_serial: TILE times as many threads, each with a TILE-th of the sum; neighbours read neighbours.
 */
//@ const TILE = 128
//@ needs U >= 1 and pad >= 0 and dil == 1 and groups == 1 and C < 65536 and K < 65536
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
//@ launch weight_gradient grid=(R*S, C, K) block=TILE

__global__ void weight_gradient(const float* x, const float* dy, float* dw,
                                int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    __shared__ float part[TILE];
    int r = blockIdx.x / S;
    int s = blockIdx.x % S;
    int c = blockIdx.y;
    int k = blockIdx.z;

    // BEGIN SOLUTION: about 18 lines: this thread's share of the sum over n, p and q; then the sum of all shares
    float sum = 0.0f;
    for (int i = threadIdx.x; i < N * P * Q; i += TILE) {
        int n = i / (P * Q);
        int p = i / Q % P;
        int q = i % Q;
        int row = p * U - pad + r;
        int col = q * U - pad + s;
        if (row >= 0 && row < H && col >= 0 && col < W)
            sum += dy[((n * K + k) * P + p) * Q + q] * x[((n * C + c) * H + row) * W + col];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = TILE / 2; half > 0; half /= 2) {    // a tree: 7 steps for 128 shares
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    // END SOLUTION
    if (threadIdx.x == 0) dw[((k * C + c) * R + r) * S + s] = part[0];
}
