//! n 500
//! bytes char[n], halves short[n], doubles double[n], b out char[n], h out short[n], d out double[n]

//! clean one_byte
//@ launch one_byte grid=cdiv(n, 96) block=96
__global__ void one_byte(const char* bytes, char* b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = bytes[n - 1 - i];
}

//! clean two_bytes
//@ launch two_bytes grid=cdiv(n, 96) block=96
__global__ void two_bytes(const short* halves, short* h, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) h[i] = halves[n - 1 - i];
}

//! clean eight_bytes
//@ launch eight_bytes grid=cdiv(n, 96) block=96
__global__ void eight_bytes(const double* doubles, double* d, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) d[i] = doubles[n - 1 - i];
}
