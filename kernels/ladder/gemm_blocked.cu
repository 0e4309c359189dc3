/* gemm_blocked: matrix product, one thread 8 x 8 elements, which it keeps in registers.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float
 * b       device, GB matrices of GK*GN float
 * c       device, GB matrices of GM*GN float, every element stored once
 * launch  grid (cdiv(GN, 128), cdiv(GM, 128), GB), block (16, 16)
 * needs   GM < 2^22, GB < 65536;  groups*GM*GK, GK*GN and GM*GN < 2^31
 * H100    0.55 of cuBLAS at 4096 x 4096 x 4096
 * over gemm_float4: 16 loads from shared memory serve 64 multiply-adds, and every size is taken. A warp waits for
 * global memory at each tile.
 */
//@ needs GM < 2**22 and GB < 65536
//@ needs groups*GM*GK < 2**31 and GK*GN < 2**31 and GM*GN < 2**31
//@ launch gemm_blocked grid=(cdiv(GN, 128), cdiv(GM, 128), GB) block=(16, 16)

__global__ void gemm_blocked(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    // BEGIN SOLUTION: about 5 lines: shared memory, and what this thread owns
    __shared__ float a_tile[8][129];                    // [l][m], a turned round; 129 spreads it over the banks
    __shared__ float b_tile[8][128];                    // [l][i]
    int thread = threadIdx.y * 16 + threadIdx.x;
    int m0 = blockIdx.y * 128;
    int i0 = blockIdx.x * 128;
    // END SOLUTION
    a += blockIdx.z % groups * GM * GK;                 // one product an image and group
    b += (size_t)blockIdx.z * GK * GN;
    c += (size_t)blockIdx.z * GM * GN;

    // BEGIN SOLUTION: about 35 lines: whatever makes it fast; change the launch line with it
    float sum[8][8] = {};                               // rows m0 + threadIdx.y + 16*j, columns i0 + threadIdx.x + 16*h
    for (int l0 = 0; l0 < GK; l0 += 8) {
        for (int e = thread; e < 8 * 128; e += 256) {   // neighbouring threads load neighbouring floats
            int al = e % 8, am = e / 8;
            int bl = e / 128, bi = e % 128;
            a_tile[al][am] = m0 + am < GM && l0 + al < GK ? a[(m0 + am) * GK + l0 + al] : 0.0f;
            b_tile[bl][bi] = l0 + bl < GK && i0 + bi < GN ? b[(l0 + bl) * GN + i0 + bi] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < 8; l++) {
            float left[8], right[8];
            #pragma unroll
            for (int j = 0; j < 8; j++) {
                left[j] = a_tile[l][threadIdx.y + 16 * j];
                right[j] = b_tile[l][threadIdx.x + 16 * j];
            }
            #pragma unroll
            for (int j = 0; j < 8; j++)
                #pragma unroll
                for (int h = 0; h < 8; h++) sum[j][h] += left[j] * right[h];
        }
        __syncthreads();
    }
    #pragma unroll
    for (int j = 0; j < 8; j++)
        #pragma unroll
        for (int h = 0; h < 8; h++) {
            int m = m0 + threadIdx.y + 16 * j;
            int i = i0 + threadIdx.x + 16 * h;
            if (m < GM && i < GN) c[m * GN + i] = sum[j][h];
        }
    // END SOLUTION
}
