/* data_gradient_scatter: gradient of a convolution by its input, one thread an element of dy, which adds where it came from.
 *   dx = 0;  dx[n,c,p*U-pad+r,q*U-pad+s] += dy[n,k,p,q] * w[k,c,r,s]     (lab 7, eq. 2, from the side of dy)
 * dy      device, N*K*P*Q float
 * w       device, K*C*R*S float
 * dx      device, N*C*H*W float, set to zero first
 * launch  zero: grid cdiv(N*C*H*W, TILE), block TILE; then grid (cdiv(P*Q, TILE), K, N), block TILE
 * needs   dil == 1, groups == 1;  N*C*H*W, K*C*R*S and N*K*P*Q < 2^31
 * every product is an atomic update of global memory, K*R*S/(U*U) of them for each element.
 */
//@ const TILE = 128
//@ needs U >= 1 and pad >= 0 and dil == 1 and groups == 1
//@ needs N*C*H*W < 2**31 and K*C*R*S < 2**31 and N*K*P*Q < 2**31
//@ launch zero grid=cdiv(N*C*H*W, TILE) block=TILE args=(dx, N*C*H*W)
//@ launch data_gradient_scatter grid=(cdiv(P*Q, TILE), K, N) block=TILE

__global__ void zero(float* dx, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) dx[i] = 0.0f;
}

__global__ void data_gradient_scatter(const float* dy, const float* w, float* dx,
                                      int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y;
    int n = blockIdx.z;
    if (i >= P * Q) return;
    float gradient = dy[(n * K + k) * P * Q + i];
    int top = i / Q * U - pad;
    int left = i % Q * U - pad;

    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++)
            for (int s = 0; s < S; s++) {
                int row = top + r;
                int col = left + s;
                if (row < 0 || row >= H || col < 0 || col >= W) continue;
                // neighbouring windows overlap, and all filters read the same input: many threads add to one element
                atomicAdd(&dx[((n * C + c) * H + row) * W + col], gradient * w[((k * C + c) * R + r) * S + s]);
            }
}
