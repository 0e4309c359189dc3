#include <cuda_fp16.h>
//! n 256
//! x half[n], y out half[n], z out float[n]

//! clean half_pairs
//@ launch half_pairs grid=1 block=n//2
__global__ void half_pairs(const __half2* x, __half2* y) { y[threadIdx.x] = __hmul2(x[threadIdx.x], x[127 - threadIdx.x]); }

//! clean half_alone
//@ launch half_alone grid=1 block=n
__global__ void half_alone(const __half* x, float* z) { z[threadIdx.x] = 2 * __half2float(x[threadIdx.x]); }
