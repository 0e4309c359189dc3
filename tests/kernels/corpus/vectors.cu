//! n 100, bins 8
//! x float[n], y out float[n], i int[n] mod bins, counts int[bins] mod 1, empty out int[bins], sum float[1], bytes char[n]

//! bug sum_plain global-race
//@ launch sum_plain grid=1 block=n
__global__ void sum_plain(const float* x, float* sum)
{
    sum[0] += x[threadIdx.x];                           // <- all at once
}

//! bug sum_of_a_lane_that_left divergent-barrier
//@ launch sum_of_a_lane_that_left grid=1 block=32
__global__ void sum_of_a_lane_that_left(const float* x, float* y)
{
    float own = x[threadIdx.x];
    if (threadIdx.x < 16)
        own += __shfl_down_sync(0xffffffff, own, 8);    // <- half of the warp is elsewhere
    y[threadIdx.x] = own;
}

//! bug histogram_plain global-race
//@ launch histogram_plain grid=1 block=n
__global__ void histogram_plain(const int* i, int* counts)
{
    counts[i[threadIdx.x]]++;                           // <- not atomic
}

//! bug histogram_last_bin out-of-bounds
//@ launch histogram_last_bin grid=1 block=n
__global__ void histogram_last_bin(const int* i, int* counts)
{
    atomicAdd(&counts[i[threadIdx.x] + 1], 1);          // <- bin 8 of 8
}

//! bug histogram_not_cleared uninitialised
//@ launch histogram_not_cleared grid=1 block=n
__global__ void histogram_not_cleared(const int* i, int* empty)
{
    atomicAdd(&empty[i[threadIdx.x]], 1);               // <- the counts begin with nothing
}

//! bug stencil_left_edge out-of-bounds
//@ launch stencil_left_edge grid=1 block=n
__global__ void stencil_left_edge(const float* x, float* y, int n)
{
    int k = threadIdx.x;
    if (k == n - 1) return;
    y[k] = x[k + 1] - x[k - 1];                         // <- x[-1]
}

//! bug stencil_in_place global-race
//@ launch stencil_in_place grid=1 block=n
__global__ void stencil_in_place(float* x, int n)
{
    int k = threadIdx.x;
    float right = k < n - 1 ? x[k + 1] : 0;
    x[k] = 0.5f * right;                                // <- the neighbour reads it
}

//! bug backwards_from_n out-of-bounds
//@ launch backwards_from_n grid=1 block=1
__global__ void backwards_from_n(const float* x, float* y, int n)
{
    float sum = 0;
    for (int k = n; k >= 0; k--)
        sum += x[k];                                    // <- x[n]
    y[0] = sum;
}

//! bug halves_of_words misaligned
//@ launch halves_of_words grid=1 block=8
__global__ void halves_of_words(const char* bytes, float* y)
{
    y[threadIdx.x] = *(const float*)(bytes + 6 * threadIdx.x);  // <- every second one
}

//! bug local_array_overrun out-of-bounds
//@ launch local_array_overrun grid=1 block=32
__global__ void local_array_overrun(const int* i, float* y)
{
    int kept[4];
    for (int k = 0; k < 4; k++) kept[k] = i[k];
    y[threadIdx.x] = kept[i[threadIdx.x]];              // <- up to kept[7]
}

//! bug local_array_unset uninitialised
//@ launch local_array_unset grid=1 block=32
__global__ void local_array_unset(const int* i, float* y, int bins)
{
    float kept[8];
    for (int k = 1; k < bins; k++) kept[k] = i[k];
    y[threadIdx.x] = kept[i[threadIdx.x]];              // <- kept[0]
}

//! bug index_beyond_int out-of-bounds
//@ launch index_beyond_int grid=1 block=32
__global__ void index_beyond_int(float* y, int n)
{
    unsigned pitch = 1u << 28;
    y[(int)(threadIdx.x * pitch) / n] = 1;              // <- wraps below zero
}

//! bug assertion trap
//@ launch assertion grid=1 block=n
__global__ void assertion(float* y, int n)
{
    if (threadIdx.x == n - 1)
        __trap();                                       // <- on purpose
    y[threadIdx.x] = 0;
}

//! clean stencil
//@ launch stencil grid=1 block=n
__global__ void stencil(const float* x, float* y, int n)
{
    int k = threadIdx.x;
    y[k] = k > 0 && k < n - 1 ? x[k + 1] - x[k - 1] : 0;
}

//! clean histogram
//@ launch histogram grid=1 block=n
__global__ void histogram(const int* i, int* counts) { atomicAdd(&counts[i[threadIdx.x]], 1); }

//! clean sum_by_shuffles
//@ launch sum_by_shuffles grid=1 block=n
__global__ void sum_by_shuffles(const float* x, float* sum, int n)
{
    int k = threadIdx.x;
    unsigned there = __activemask();
    float own = x[k];
    if (there == 0xffffffff)
        for (int step = 16; step; step /= 2) own += __shfl_down_sync(there, own, step);
    if (there != 0xffffffff || k % 32 == 0) atomicAdd(sum, own);
}
