/* csr_staged: sparse convolution, CSR, the input under a band of output rows staged in shared memory.
 *   y[n,k,p,q] = sum_j val[j] * staged[col[j] + p*Uh*pitch + q*Uw]     j over row k, p from the band's first row on
 * x            device, N*C*H*W float, not padded
 * rowptr       device, phases*K+1 int: a row for each slab of channels and filter
 * entries      device, nnz pairs (col, bits of val), col = (ch*rows + r*dilh)*pitch + s*dilw, ch in the slab
 * y            device, N*K*P*Q float, every element stored once a phase
 * launch       grid (bands, groups*shares, N), block 32*WARPS / residents, shared 4*floats bytes
 * needs        the input rows under one output row, of one channel, in a block's shared memory;  N < 65536;
 *              N*C*H*W and N*K*P*Q < 2^31
 * H100         AlexNet's conv2, conv3, 128 images: 0.65, 0.25 ms; lowered, cuBLAS: 1.84, 1.14
 * over csr_images: an input float comes from global memory once for many filters, not once a multiply-add, and no
 * padded copy is made: one zero column parts two rows and serves both, and so do zero rows between channels. A warp
 * takes a filter at a time, with up to SLOTS outputs a lane in registers, and meets no barrier. Where an image takes
 * more than three bands, two blocks share a multiprocessor: one stages while the other multiplies. Where a small image
 * has too many channels, they are staged slab by slab, in phases that add up in y. One load from shared memory a
 * multiply-add is its limit; the load of a non-zero, eight bytes to every lane, adds to it where a lane has few outputs.
 */
// A band is as many output rows as leave room for the input rows under them (window: under one); `whole` where all
// rows fit with the zero rows that part channels. An image whose outputs one warp can hold is `small`: of that all rows
// are staged, of as many channels as fit (a slab). A small batch is spread over the GPU by shares of the filters.
// Shared memory holds also what is a block's own; `halved`: rows where two blocks share it.
//@ const WARPS = 32
//@ const SLOTS = 12
//@ const TILE = 32
//@ let channels = C // groups
//@ let pitch = W + padw
//@ let window = (R - 1)*dilh + 1
//@ let own = WARPS + 2*TILE*WARPS + 31
//@ let room = SHARED // 4 - own
//@ let small = P*pitch <= 32*SLOTS and (H + 2*padh)*pitch <= room
//@ let least = small*(H + padh) + (1 - small)*window
//@ let fit = max(1, (room - small*padh*pitch - padw) // (least*pitch))
//@ let slab = cdiv(channels, cdiv(channels, fit))
//@ let phases = cdiv(channels, slab)
//@ let whole = (slab*(H + padh) + padh)*pitch + padw <= room
//@ let fitting = (room - padw) // (slab*pitch)
//@ let halved = ((SHARED // 4 - 256) // 2 - own - padw) // (slab*pitch)
//@ let residents = 1 + (P > 3*((fitting - window) // Uh + 1) and halved >= 2*window)
//@ let most = max(1, min(P, ((2 - residents)*fitting + (residents - 1)*halved - window) // Uh + 1))
//@ let bands = cdiv(P, whole*P + (1 - whole)*most)
//@ let band = cdiv(P, bands)
//@ let rows = whole*(H + padh) + (1 - whole)*((band - 1)*Uh + window)
//@ let floats = (slab*rows + whole*padh)*pitch + padw + 31
//@ let shares = max(1, min(K // groups, SMS // max(1, N*bands*groups)))
//@ needs N*C*H*W < 2**31 and N*K*P*Q < 2**31
//@ needs N < 65536 and groups*shares < 65536
//@ needs ((R - 1)*dilh + 1)*(W + padw) + padw <= room
//@ launch csr_staged grid=(bands, groups*shares, N) block=32*WARPS//residents shared=4*floats

// The block, of THREADS threads: copies `height` rows of W floats of each channel to their places among zeros.
template <int THREADS>
__device__ void stage(const float* __restrict__ from, float* to, int channels, int height, int W, int from_channel,
                      int pitch, int to_channel)
{
    if (height <= 0) return;                            // the band lies in the padding
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

// One warp: the rows of CSR below row_end that it draws, the filters of the phase from row0 on, at 32*SLOT output points
// of the staged band, from `first` on. UNIT: strides of 1, where neighbouring points are neighbours in staged too, and
// the compiler can count slots in addresses.
template <int SLOT, bool UNIT>
__device__ void convolve(const float* staged, const int* rowptr, const int2* entries, float* y, int2* tile, int* next,
                         int row0, int row_end, int first, int points, int across, int lines, int pitch, int K, int PQ,
                         int Q, int Uh, int Uw)
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
    int lane = threadIdx.x % 32;
    for (;;) {
        int row = lane ? 0 : atomicAdd(next, 1);        // rows differ in length: who is ready takes the next
        row = __shfl_sync(0xffffffff, row, 0);
        if (row >= row_end) return;
        int end = rowptr[row + 1];
        float sum[SLOT] = {};
        for (int j0 = rowptr[row]; j0 < end; j0 += TILE) {
            int length = min(TILE, end - j0);
            __syncwarp();                               // nobody reads the tile before any more
            if (lane < length) tile[lane] = entries[j0 + lane];
            __syncwarp();
            #pragma unroll 4
            for (int j = 0; j < length; j++) {
                int2 entry = tile[j];                   // the same for all lanes
                #pragma unroll
                for (int i = 0; i < SLOT; i++)
                    sum[i] += __int_as_float(entry.y) * staged[entry.x + (UNIT ? corner[0] + 32 * i : corner[i])];
            }
        }
        float* output = y + (row - row0) * PQ;
        #pragma unroll
        for (int i = 0; i < SLOT; i++)
            if (place[i] >= 0) output[place[i]] = row < K ? sum[i] : output[place[i]] + sum[i];
    }
}

__global__ void __launch_bounds__(32 * WARPS)
csr_staged(const float* x, const int* rowptr, const int2* entries, float* y,
           int C, int H, int W, int K, int P, int Q, int Uh, int Uw, int padh, int padw, int groups, int shares,
           int phases, int slab, int band, int rows, int pitch, int floats)
{
    extern __shared__ float staged[];                   // [channel][row of the band][pitch]
    __shared__ int next[WARPS];                         // the row that is drawn next, for each part of the outputs
    __shared__ int2 tiles[WARPS][TILE];                 // of the entries, one for each warp
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

    for (int e = threadIdx.x; e < floats; e += blockDim.x) staged[e] = 0.0f;
    for (int phase = 0; phase < phases; phase++) {
        int c0 = phase * slab;
        int row0 = phase * K;
        const float* from = x + (n * C + g * channels + c0) * H * W + h0 * W;
        float* to = staged + (h0 - top) * pitch + padw;
        int count = min(slab, channels - c0);
        __syncthreads();                                // the zeros are there; nobody reads the phase before any more
        if (threadIdx.x < warps) next[threadIdx.x] = row0 + k_begin;
        if (warps == WARPS)
            stage<32 * WARPS>(from, to, count, height, W, H * W, pitch, rows * pitch);
        else
            stage<16 * WARPS>(from, to, count, height, W, H * W, pitch, rows * pitch);
        __syncthreads();
        for (int part = team; part < parts; part += warps / side) {
            int first = part * 32 * slots;
            #define CONVOLVE(SLOT, UNIT)                                                                              \
                convolve<SLOT, UNIT>(staged, rowptr, entries, y, tiles[threadIdx.x / 32], &next[team], row0,          \
                                     row0 + k_end, first, points, across, lines, pitch, K, P * Q, Q, Uh, Uw)
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
            if (side == 1 && threadIdx.x % 32 == 0) next[team] = row0 + k_begin;    // alone: the same for its next part
            __syncwarp();
        }
    }
}
