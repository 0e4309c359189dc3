/* gemm_buffered: matrix product, 8 x 16 elements a thread, the next tiles on their way while these are multiplied.
 *   c[m,i] = sum_l a[m,l] * b[l,i]     a lowered convolution is y[n,k,p,q] = c[n,k,pq]
 * a       device, groups*GM*GK float, 16-byte aligned
 * b       device, GB matrices of GK*GN float, 16-byte aligned
 * c       device, GB matrices of GM*GN float, 16-byte aligned, every element stored once
 * launch  grid (cdiv(GN, 256), cdiv(GM, 128), GB), block 256
 * needs   GN % 4 == 0, GK % 4 == 0;  GM < 2^22, GB < 65536;  groups*GM*GK, GK*GN and GM*GN < 2^31
 * H100    0.96 of cuBLAS at 4096 x 4096 x 4096
 * over gemm_blocked: 24 loads from shared memory, in 6 instructions, serve 128 multiply-adds; two pairs of tiles, so
 * one barrier a tile and no wait for global memory; 16 bytes a load from there too.
 */
//@ needs GN % 4 == 0 and GK % 4 == 0
//@ needs GM < 2**22 and GB < 65536
//@ needs groups*GM*GK < 2**31 and GK*GN < 2**31 and GM*GN < 2**31
//@ launch gemm_buffered grid=(cdiv(GN, 256), cdiv(GM, 128), GB) block=256

__global__ void __launch_bounds__(256)
gemm_buffered(const float* a, const float* b, float* c, int GM, int GN, int GK, int groups)
{
    __shared__ __align__(16) float a_tile[2][8][132];   // [l][m], a turned round; 132 spreads its stores over the banks
    __shared__ __align__(16) float b_tile[2][8][256];   // [l][i]
    int m0 = blockIdx.y * 128;
    int i0 = blockIdx.x * 256;

    // What this thread brings of each pair of tiles: four neighbours in row am of a, and in rows bl and bl + 4 of b.
    int am = threadIdx.x / 2, al = threadIdx.x % 2 * 4;
    int bl = threadIdx.x / 64, bi = threadIdx.x % 64 * 4;
    a += (size_t)(blockIdx.z % groups) * GM * GK + (size_t)(m0 + am) * GK + al;     // one product an image and group
    b += (size_t)blockIdx.z * GK * GN + (size_t)bl * GN + i0 + bi;
    c += (size_t)blockIdx.z * GM * GN;
    float4 a_next, b_next[2];

    auto bring = [&](int l0) {                          // four are inside together, as GN and GK are multiples of 4
        float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        a_next = m0 + am < GM && l0 + al < GK ? *(const float4*)(a + l0) : zero;
        b_next[0] = l0 + bl < GK && i0 + bi < GN ? *(const float4*)(b + (size_t)l0 * GN) : zero;
        b_next[1] = l0 + 4 + bl < GK && i0 + bi < GN ? *(const float4*)(b + (size_t)(l0 + 4) * GN) : zero;
    };
    auto keep = [&](int buffer) {
        a_tile[buffer][al][am] = a_next.x;
        a_tile[buffer][al + 1][am] = a_next.y;
        a_tile[buffer][al + 2][am] = a_next.z;
        a_tile[buffer][al + 3][am] = a_next.w;
        *(float4*)&b_tile[buffer][bl][bi] = b_next[0];
        *(float4*)&b_tile[buffer][bl + 4][bi] = b_next[1];
    };

    // What it computes: rows top + {0..3, 16..19}, columns left + {0..3, 32..35, 64..67, 96..99}. The 4 x 8 threads of
    // a warp cover 32 x 128, so that its loads from either tile meet in few words.
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int top = warp / 2 * 32 + lane / 8 * 4;
    int left = warp % 2 * 128 + lane % 8 * 4;
    float sum[8][16] = {};

    bring(0);
    keep(0);
    __syncthreads();
    for (int l0 = 0, buffer = 0; l0 < GK; l0 += 8, buffer ^= 1) {
        bool more = l0 + 8 < GK;
        if (more) bring(l0 + 8);                        // under way during the products below
        #pragma unroll
        for (int l = 0; l < 8; l++) {
            float u[8], v[16];
            #pragma unroll
            for (int j = 0; j < 2; j++) *(float4*)&u[4 * j] = *(const float4*)&a_tile[buffer][l][top + 16 * j];
            #pragma unroll
            for (int h = 0; h < 4; h++) *(float4*)&v[4 * h] = *(const float4*)&b_tile[buffer][l][left + 32 * h];
            #pragma unroll
            for (int j = 0; j < 8; j++)
                #pragma unroll
                for (int h = 0; h < 16; h++) sum[j][h] += u[j] * v[h];
        }
        if (more) keep(buffer ^ 1);                     // nobody reads that buffer since the last barrier
        __syncthreads();
    }

    #pragma unroll
    for (int j = 0; j < 8; j++) {
        int m = m0 + top + j / 4 * 16 + j % 4;
        #pragma unroll
        for (int h = 0; h < 16; h += 4) {
            int i = i0 + left + h / 4 * 32;
            if (m < GM && i < GN) *(float4*)&c[(size_t)m * GN + i] = *(float4*)&sum[j][h];
        }
    }
}
