/* csr_staged: sparse convolution, CSR, the input under a band of output rows staged in shared memory.
 *   y[n,k,p,q] = sum_j val[j] * staged[col[j] + p*Uh*pitch + q*Uw]     j over row k, p from the band's first row on
 * x            device, N*C*H*W float, not padded
 * rowptr       device, K+1 int
 * entries      device, nnz pairs (col, bits of val), col = (ch*rows + r*dilh)*pitch + s*dilw, ch in the filter's group
 * y            device, N*K*P*Q float, every element stored once
 * launch       grid (bands, groups*shares, N), block 32*WARPS / residents, shared 4*floats bytes
 * needs        the input rows under one output row, all channels of a group, in a block's shared memory;  N < 65536;
 *              N*C*H*W and N*K*P*Q < 2^31
 * H100         AlexNet's conv2, conv3, 128 images: 0.71, 0.29 ms; lowered, cuBLAS: 1.83, 1.13
 * over csr_images: an input float comes from global memory once for many filters, not once a multiply-add, and no
 * padded copy is made: one zero column parts two rows and serves both, and so do zero rows between channels. A warp
 * takes a filter at a time, with up to SLOTS outputs a lane in registers, and meets no barrier. Where an image takes
 * more than three bands, two blocks share a multiprocessor: one stages while the other multiplies. One load from
 * shared memory a multiply-add is its limit; the load of a non-zero, eight bytes to every lane, adds to it where a lane
 * has few outputs.
 */
// A band is as many output rows as leave room for the input rows under them (window: under one); `whole` where all
// channels fit with the zero rows that part them. A small batch is spread over the GPU by shares of the filters.
//@ const WARPS = 32
//@ const SLOTS = 12
//@ let channels = C // groups
//@ let pitch = W + padw
//@ let window = (R - 1)*dilh + 1
//@ let room = SHARED // 4 - WARPS - 31
//@ let whole = (channels*(H + padh) + padh)*pitch + padw <= room
//@ let fitting = (room - padw) // (channels*pitch)
//@ let residents = 1 + (P > 3*((fitting - window) // Uh + 1) and fitting >= 4*window)
//@ let most = max(1, min(P, (fitting // residents - window) // Uh + 1))
//@ let bands = cdiv(P, whole*P + (1 - whole)*most)
//@ let band = cdiv(P, bands)
//@ let rows = whole*(H + padh) + (1 - whole)*((band - 1)*Uh + window)
//@ let floats = (channels*rows + whole*padh)*pitch + padw + 31
//@ let shares = max(1, min(K // groups, SMS // max(1, N*bands*groups)))
//@ needs N*C*H*W < 2**31 and N*K*P*Q < 2**31
//@ needs N < 65536 and groups*shares < 65536
//@ needs C // groups*((R - 1)*dilh + 1)*(W + padw) + padw <= SHARED // 4 - 63
//@ launch csr_staged grid=(bands, groups*shares, N) block=32*WARPS//residents shared=4*floats

// The block, of THREADS threads: copies `height` rows of W floats of each channel among zeros.
template <int THREADS>
__device__ void stage(const float* __restrict__ from, float* to, int channels, int height, int W, int from_channel,
                      int pitch, int to_channel, float* staged, int floats)
{
    for (int e = threadIdx.x; e < floats; e += THREADS) staged[e] = 0.0f;
    __syncthreads();
    if (height > 0) {                                   // else the band lies in the padding
        // Element e of the rows is (c, h, w). Each step adds THREADS to e: the digits are added, no division.
        int c = threadIdx.x / (height * W), h = threadIdx.x / W % height, w = threadIdx.x % W;
        int c_step = THREADS / (height * W), h_step = THREADS / W % height, w_step = THREADS % W;
        #pragma unroll 8
        for (int e = threadIdx.x; e < channels * height * W; e += THREADS) {
            to[c * to_channel + h * pitch + w] = from[c * from_channel + h * W + w];
            w += w_step;
            h += h_step + (w >= W);
            w -= w >= W ? W : 0;
            c += c_step + (h >= height);
            h -= h >= height ? height : 0;
        }
    }
    __syncthreads();
}

// One warp: the filters below k_end that it draws, at 32*SLOT output points of the staged band, from `first` on. UNIT:
// strides of 1, where neighbouring points are neighbours in staged too, and the compiler can count slots in addresses.
template <int SLOT, bool UNIT>
__device__ void convolve(const float* staged, const int* rowptr, const int2* entries, float* y, int* next, int k_end,
                         int first, int points, int across, int lines, int pitch, int PQ, int Q, int Uh, int Uw)
{
    int from = max(0, min(first, points - 32 * SLOT));  // the last warp turns back rather than read beyond the end
    int corner[SLOT], place[SLOT];                      // each point's window in staged; its place in y, or -1
    #pragma unroll
    for (int i = 0; i < SLOT; i++) {
        int point = from + 32 * i + threadIdx.x % 32;
        int p = point / across, q = point % across;
        corner[i] = UNIT ? from + 32 * i + threadIdx.x % 32 : min(p, lines - 1) * Uh * pitch + q * Uw;
        place[i] = point >= first && p < lines && q < Q ? p * Q + q : -1;
    }
    for (;;) {
        int k = threadIdx.x % 32 ? 0 : atomicAdd(next, 1);      // rows differ in length: who is ready takes the next
        k = __shfl_sync(0xffffffff, k, 0);
        if (k >= k_end) return;
        int end = rowptr[k + 1];
        float sum[SLOT] = {};
        #pragma unroll 8
        for (int j = rowptr[k]; j < end; j++) {
            int2 entry = entries[j];                            // the same for all lanes
            #pragma unroll
            for (int i = 0; i < SLOT; i++)
                sum[i] += __int_as_float(entry.y) * staged[entry.x + (UNIT ? corner[0] + 32 * i : corner[i])];
        }
        #pragma unroll
        for (int i = 0; i < SLOT; i++)
            if (place[i] >= 0) y[k * PQ + place[i]] = sum[i];
    }
}

__global__ void __launch_bounds__(32 * WARPS)
csr_staged(const float* x, const int* rowptr, const int2* entries, float* y,
           int C, int H, int W, int K, int P, int Q, int Uh, int Uw, int padh, int padw, int groups, int shares,
           int band, int rows, int pitch, int floats)
{
    extern __shared__ float staged[];                   // [channel][row of the band][pitch]
    __shared__ int next[WARPS];                         // the filter that is drawn next, for each part of the outputs
    int channels = C / groups;
    int g = blockIdx.y / shares;
    int n = blockIdx.z;
    int p0 = blockIdx.x * band;
    int top = p0 * Uh - padh;                           // the row of x that is the first staged row
    int h0 = max(top, 0);
    int height = min(H, top + rows) - h0;               // of the staged rows lie in the image, from h0 on

    int filters = (K / groups + shares - 1) / shares;
    int k_begin = g * (K / groups) + blockIdx.y % shares * filters;
    int k_end = min(k_begin + filters, (g + 1) * (K / groups));
    int warps = blockDim.x / 32;
    if (threadIdx.x < warps) next[threadIdx.x] = k_begin;

    const float* from = x + (n * C + g * channels) * H * W + h0 * W;
    float* to = staged + (h0 - top) * pitch + padw;
    if (warps == WARPS)
        stage<32 * WARPS>(from, to, channels, height, W, H * W, pitch, rows * pitch, staged, floats);
    else
        stage<16 * WARPS>(from, to, channels, height, W, H * W, pitch, rows * pitch, staged, floats);

    // The outputs in rows of the pitch, so that neighbours are neighbours in staged too; those beyond Q are not stored.
    // They are cut into parts of at most SLOTS slots of 32; warps side by side share a part and its filters.
    bool unit = Uh == 1 && Uw == 1;
    int lines = min(band, P - p0);
    int across = unit ? pitch : Q;
    int points = (lines - 1) * across + Q;
    int part_points = 32 * (unit ? SLOTS : 4);
    int parts = (points + part_points - 1) / part_points;
    int slots = unit ? (points + 32 * parts - 1) / (32 * parts) : 4;
    int side = max(1, warps / parts);
    int team = threadIdx.x / 32 / side;
    y += n * K * P * Q + p0 * Q;
    for (int part = team; part < parts; part += warps / side) {
        int first = part * 32 * slots;
        #define CONVOLVE(SLOT, UNIT)                                                                                  \
            convolve<SLOT, UNIT>(staged, rowptr, entries, y, &next[team], k_end, first, points, across, lines, pitch, \
                                 P * Q, Q, Uh, Uw)
        if (!unit)
            CONVOLVE(4, false);
        else
            switch (slots) {
                case 1: CONVOLVE(1, true); break;
                case 2: CONVOLVE(2, true); break;
                case 3: CONVOLVE(3, true); break;
                case 4: CONVOLVE(4, true); break;
                case 5: CONVOLVE(5, true); break;
                case 6: CONVOLVE(6, true); break;
                case 7: CONVOLVE(7, true); break;
                case 8: CONVOLVE(8, true); break;
                case 9: CONVOLVE(9, true); break;
                case 10: CONVOLVE(10, true); break;
                case 11: CONVOLVE(11, true); break;
                case 12: CONVOLVE(12, true); break;
            }
        __syncwarp();
        if (side == 1 && threadIdx.x % 32 == 0) next[team] = k_begin;   // alone: the same filters for its next part
        __syncwarp();
    }
}
