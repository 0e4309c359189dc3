//! M 64, N 96, K 64
//! a float[M*K], b float[K*N], c out float[M*N]

template <int T>
__device__ void product(const float* a, const float* b, float* c, int N, int K)
{
    __shared__ float as[T][T], bs[T][T];
    int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
        as[threadIdx.y][threadIdx.x] = a[row * K + k0 + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k0 + threadIdx.y) * N + column];
        __syncthreads();
        for (int k = 0; k < T; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * N + column] = sum;
}

//! clean gemm_16
//! unlike shared_load_wavefronts neighbouring loads of a row are joined into wider ones
//@ launch gemm_16 grid=(N//16, M//16) block=(16, 16)
__global__ void gemm_16(const float* a, const float* b, float* c, int N, int K) { product<16>(a, b, c, N, K); }

//! clean gemm_32
//! unlike shared_load_wavefronts neighbouring loads of a row are joined into wider ones
//@ launch gemm_32 grid=(N//32, M//32) block=(32, 32)
__global__ void gemm_32(const float* a, const float* b, float* c, int N, int K) { product<32>(a, b, c, N, K); }
