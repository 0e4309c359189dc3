//! M 10, N 12, K 7
//! a float[M*K], b float[K*N], c out float[M*N], v float[K], y out float[M], t float[M*M]

//! bug gemv_one_product_more out-of-bounds
//@ launch gemv_one_product_more grid=1 block=M
__global__ void gemv_one_product_more(const float* a, const float* v, float* y, int K)
{
    float sum = 0;
    for (int k = 0; k <= K; k++)
        sum += v[k]                                     // <- k = K
             * a[0];
    y[threadIdx.x] = sum;
}

//! bug gemv_two_threads_a_row global-race
//@ launch gemv_two_threads_a_row grid=1 block=2*M
__global__ void gemv_two_threads_a_row(const float* a, const float* v, float* y, int K)
{
    int row = threadIdx.x / 2, half = threadIdx.x % 2;
    float sum = 0;
    for (int k = half; k < K; k += 2) sum += a[row * K + k] * v[k];
    y[row] = sum;                                       // <- each stores its half
}

//! bug gemv_adds_to_nothing uninitialised
//@ launch gemv_adds_to_nothing grid=1 block=2*M
__global__ void gemv_adds_to_nothing(const float* a, const float* v, float* y, int K)
{
    int row = threadIdx.x / 2, half = threadIdx.x % 2;
    float sum = 0;
    for (int k = half; k < K; k += 2) sum += a[row * K + k] * v[k];
    atomicAdd(&y[row], sum);                            // <- to what was never set
}

//! bug gemv_rows_of_four misaligned
//@ launch gemv_rows_of_four grid=1 block=M
__global__ void gemv_rows_of_four(const float* a, const float* v, float* y, int K)
{
    float4 first = *(const float4*)(a + threadIdx.x * K);   // <- K is no multiple of 4
    y[threadIdx.x] = first.x * v[0] + first.y * v[1] + first.z * v[2] + first.w * v[3];
}

//! bug gemm_row_unguarded out-of-bounds
//@ launch gemm_row_unguarded grid=(cdiv(N, 8), cdiv(M, 8)) block=(8, 8)
__global__ void gemm_row_unguarded(const float* a, const float* b, float* c, int M, int N, int K)
{
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    if (column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += a[row % M * K + k] * b[k * N + column];
    c[row * N + column] = sum;                          // <- rows M to 15
}

//! bug gemm_b_transposed out-of-bounds
//@ launch gemm_b_transposed grid=(cdiv(N, 8), cdiv(M, 8)) block=(8, 8)
__global__ void gemm_b_transposed(const float* a, const float* b, float* c, int M, int N, int K)
{
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += b[column * N + k]                        // <- b is K x N
             * a[row * K + k];
    c[row * N + column] = sum;
}

//! bug gemm_split_k global-race
//@ launch gemm_split_k grid=(1, 1, 2) block=(N, M)
__global__ void gemm_split_k(const float* a, const float* b, float* c, int N, int K)
{
    int row = threadIdx.y, column = threadIdx.x;
    float sum = 0;
    for (int k = blockIdx.z; k < K; k += 2) sum += a[row * K + k] * b[k * N + column];
    c[row * N + column] = sum;                          // <- both halves
}

//! bug transpose_in_place global-race
//@ launch transpose_in_place grid=1 block=(M, M)
__global__ void transpose_in_place(float* t, int M)
{
    float own = t[threadIdx.y * M + threadIdx.x];
    t[threadIdx.x * M + threadIdx.y] = own;             // <- another thread's
}

//! bug transpose_height_for_width out-of-bounds
//@ launch transpose_height_for_width grid=1 block=(K, M) args=(a, c, M, K)
__global__ void transpose_height_for_width(const float* in, float* turned, int height, int width)
{
    int row = threadIdx.y, column = threadIdx.x;
    turned[column * height + row] = in[row * height + column];  // <- row * width
}

//! clean gemm
//@ launch gemm grid=(cdiv(N, 8), cdiv(M, 8)) block=(8, 8)
__global__ void gemm(const float* a, const float* b, float* c, int M, int N, int K)
{
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += a[row * K + k] * b[k * N + column];
    c[row * N + column] = sum;
}

//! clean transpose
//@ launch transpose grid=1 block=(K, M) args=(a, c, M, K)
__global__ void transpose(const float* in, float* turned, int height, int width)
{
    turned[threadIdx.x * height + threadIdx.y] = in[threadIdx.y * width + threadIdx.x];
}

//! clean gemv_halves_added
//@ launch clear grid=1 block=M
//@ launch gemv_halves_added grid=1 block=2*M
__global__ void clear(float* y) { y[threadIdx.x] = 0; }
__global__ void gemv_halves_added(const float* a, const float* v, float* y, int K)
{
    int row = threadIdx.x / 2, half = threadIdx.x % 2;
    float sum = 0;
    for (int k = half; k < K; k += 2) sum += a[row * K + k] * v[k];
    atomicAdd(&y[row], sum);
}
