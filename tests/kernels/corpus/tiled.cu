//! n 32, M 32, N 32, K 20, H 10, W 20
//! a float[M*K], b float[K*N], c out float[M*N], t float[n*n], turned out float[n*n], x float[H*W], y out float[H*W]

//! bug gemm_tile_not_ready shared-race
//@ launch gemm_tile_not_ready grid=(N//16, M//16) block=(16, 16)
__global__ void gemm_tile_not_ready(const float* a, const float* b, float* c, int N, int K)
{
    __shared__ float as[16][16], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 16) {
        as[threadIdx.y][threadIdx.x] = k0 + threadIdx.x < K ? a[row * K + k0 + threadIdx.x] : 0;
        bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K ? b[(k0 + threadIdx.y) * N + column] : 0;
        for (int k = 0; k < 16; k++)
            sum += as[threadIdx.y][k] * bs[k][threadIdx.x];     // <- before everybody has stored
        __syncthreads();
    }
    c[row * N + column] = sum;
}

//! bug gemm_tile_overwritten shared-race
//@ launch gemm_tile_overwritten grid=(N//16, M//16) block=(16, 16)
__global__ void gemm_tile_overwritten(const float* a, const float* b, float* c, int N, int K)
{
    __shared__ float as[16][16], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 16) {
        as[threadIdx.y][threadIdx.x] =                          // <- others still read the last tile
            k0 + threadIdx.x < K ? a[row * K + k0 + threadIdx.x] : 0;
        bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K ? b[(k0 + threadIdx.y) * N + column] : 0;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    }
    c[row * N + column] = sum;
}

//! bug gemm_edge_not_cleared uninitialised
//@ launch gemm_edge_not_cleared grid=(N//16, M//16) block=(16, 16)
__global__ void gemm_edge_not_cleared(const float* a, const float* b, float* c, int N, int K)
{
    __shared__ float as[16][17], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    int k0 = 16;                                                // the last, partial tile
    if (k0 + threadIdx.x < K) as[threadIdx.y][threadIdx.x] = a[row * K + k0 + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K ? b[(k0 + threadIdx.y) * N + column] : 0;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 16; k++)
        sum += as[threadIdx.y][k]                               // <- columns 4 to 15 hold nothing
             * bs[k][threadIdx.x];
    c[row * N + column] = sum;
}

//! bug gemm_barrier_for_some divergent-barrier
//@ launch gemm_barrier_for_some grid=(2, 2) block=(16, 16)
__global__ void gemm_barrier_for_some(const float* a, float* c, int N, int K)
{
    __shared__ float as[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (column < K) {
        as[threadIdx.y][threadIdx.x] = a[row * K + column];
        __syncthreads();                                        // <- columns from K on never come
        c[row * N + column] = as[threadIdx.y][threadIdx.x ^ 1 & 3];
    }
}

//! bug transpose_without_barrier shared-race
//@ launch transpose_without_barrier grid=1 block=(32, 32)
__global__ void transpose_without_barrier(const float* t, float* turned, int n)
{
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = t[threadIdx.y * n + threadIdx.x];          // <- while others read
    turned[threadIdx.y * n + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

//! bug transpose_tile_too_narrow out-of-bounds
//@ launch transpose_tile_too_narrow grid=1 block=(32, 32)
__global__ void transpose_tile_too_narrow(const float* t, float* turned, int n)
{
    __shared__ float tile[31][32];
    tile[threadIdx.y][threadIdx.x] = t[threadIdx.y * n + threadIdx.x];          // <- row 31
    __syncthreads();
    turned[threadIdx.y * n + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

//! bug return_before_barrier divergent-barrier
//@ launch return_before_barrier grid=1 block=(32, 8)
__global__ void return_before_barrier(const float* x, float* y, int W, int H)
{
    __shared__ float rows[8][32];
    if (threadIdx.x >= W) return;
    rows[threadIdx.y][threadIdx.x] = x[threadIdx.y * W + threadIdx.x];
    __syncthreads();                                            // <- some have left
    y[threadIdx.y * W + threadIdx.x] = rows[7 - threadIdx.y][threadIdx.x];
}

//! bug stencil_halo_not_loaded uninitialised
//@ launch stencil_halo_not_loaded grid=H block=W
__global__ void stencil_halo_not_loaded(const float* x, float* y, int W)
{
    __shared__ float row[22];
    int q = threadIdx.x;
    row[q + 1] = x[blockIdx.x * W + q];
    __syncthreads();
    y[blockIdx.x * W + q] = row[q + 2] + row[q];                // <- row[21], and row[0], are nobody's
}

//! bug stencil_into_the_next_array out-of-bounds
//@ launch stencil_into_the_next_array grid=H block=W
__global__ void stencil_into_the_next_array(const float* x, float* y, int W)
{
    __shared__ float row[20], out[20];
    int q = threadIdx.x;
    row[q] = x[blockIdx.x * W + q];
    out[q] = 0;
    __syncthreads();
    y[blockIdx.x * W + q] = row[q + 1] + out[q];                // <- row[20]
}

//! bug dynamic_too_small out-of-bounds
//@ launch dynamic_too_small grid=H block=W shared=2*W
__global__ void dynamic_too_small(const float* x, float* y, int W)
{
    extern __shared__ float line[];
    line[threadIdx.x] = x[blockIdx.x * W + threadIdx.x];        // <- two bytes a float were asked for
    __syncthreads();
    y[blockIdx.x * W + threadIdx.x] = line[W - 1 - threadIdx.x];
}

//! clean gemm_tiled
//@ launch gemm_tiled grid=(N//16, M//16) block=(16, 16)
__global__ void gemm_tiled(const float* a, const float* b, float* c, int N, int K)
{
    __shared__ float as[16][16], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 16) {
        as[threadIdx.y][threadIdx.x] = k0 + threadIdx.x < K ? a[row * K + k0 + threadIdx.x] : 0;
        bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K ? b[(k0 + threadIdx.y) * N + column] : 0;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * N + column] = sum;
}

//! clean transpose_tiled
//@ launch transpose_tiled grid=1 block=(32, 32)
__global__ void transpose_tiled(const float* t, float* turned, int n)
{
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = t[threadIdx.y * n + threadIdx.x];
    __syncthreads();
    turned[threadIdx.y * n + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

//! clean stencil_tiled
//@ launch stencil_tiled grid=H block=W shared=4*(W+2)
__global__ void stencil_tiled(const float* x, float* y, int W)
{
    extern __shared__ float line[];
    int q = threadIdx.x;
    line[q + 1] = x[blockIdx.x * W + q];
    if (q == 0) line[0] = line[W + 1] = 0;
    __syncthreads();
    y[blockIdx.x * W + q] = line[q + 2] + line[q];
}
