/* data_gradient_scatter: gradient of a convolution by its input, one thread an element of dy, which adds where it came from.
 *   dx = 0;  dx[n,c,p*U-pad+r,q*U-pad+s] += dy[n,k,p,q] * w[k,c,r,s]     (lab 7, eq. 2, from the side of dy)
 * dy      device, N*K*P*Q float
 * w       device, K*C*R*S float
 * dx      device, N*C*H*W float, set to zero first
 */
//@ const TILE = 128
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
                dx[((n * C + c) * H + row) * W + col] += gradient * w[((k * C + c) * R + r) * S + s];
            }
}
