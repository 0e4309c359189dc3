//! rows 6, per_row 3, columns 8, H 5, W 6, P 3, Q 4
//! rowptr int[rows+1] step per_row, col int[rows*per_row] mod columns, val float[rows*per_row], v float[columns]
//! y out float[rows], back out float[columns], sums float[columns], x float[H*W], z out float[P*Q], some out int[rows+1]

//! bug csr_one_row_more out-of-bounds
//@ launch csr_one_row_more grid=1 block=32
__global__ void csr_one_row_more(const int* rowptr, const int* col, const float* val, const float* v, float* y, int rows)
{
    int row = threadIdx.x;
    if (row > rows) return;                             // row == rows stays
    float sum = 0;
    int end = rowptr[row + 1];                          // <- behind the last pointer
    for (int j = rowptr[row]; j < end; j++) sum += val[j] * v[col[j]];
    y[row] = sum;
}

//! bug csr_columns_from_one out-of-bounds
//@ launch csr_columns_from_one grid=1 block=rows
__global__ void csr_columns_from_one(const int* rowptr, const int* col, const float* val, const float* v, float* y)
{
    float sum = 0;
    for (int j = rowptr[threadIdx.x]; j < rowptr[threadIdx.x + 1]; j++)
        sum += val[j] * v[col[j] + 1];                  // <- the last column
    y[threadIdx.x] = sum;
}

//! bug csr_scatter global-race
//@ launch csr_scatter grid=1 block=rows
__global__ void csr_scatter(const int* rowptr, const int* col, const float* val, const float* v, float* sums)
{
    for (int j = rowptr[threadIdx.x]; j < rowptr[threadIdx.x + 1]; j++)
        sums[col[j]] += val[j] * v[threadIdx.x];        // <- rows share columns
}

//! bug csr_pointers_not_filled uninitialised
//@ launch csr_pointers_not_filled grid=1 block=rows args=(some, col, val, v, y)
__global__ void csr_pointers_not_filled(const int* rowptr, const int* col, const float* val, const float* v, float* y)
{
    float sum = 0;
    int first = rowptr[threadIdx.x];                    // <- nobody wrote them
    for (int j = first; j < first + 1; j++) sum += val[j & 1] * v[col[j & 1]];
    y[threadIdx.x] = sum;
}

//! bug csr_row_never_ends budget
//@ launch csr_row_never_ends grid=1 block=rows
__global__ void csr_row_never_ends(const int* rowptr, const int* col, const float* val, const float* v, float* y)
{
    float sum = 0;
    int j = rowptr[threadIdx.x];
    while (j != rowptr[threadIdx.x + 1] + 1000000000)   // <- the end is never met
        sum += val[j % 4] * v[col[j % 4]];
    y[threadIdx.x] = sum;
}

//! bug stretched_window_too_wide out-of-bounds
//@ launch stretched_window_too_wide grid=1 block=(Q, P)
__global__ void stretched_window_too_wide(const float* x, float* z, int W, int Q)
{
    const float* corner = x + threadIdx.y * W + threadIdx.x;
    z[threadIdx.y * Q + threadIdx.x] = corner[0] + corner[W] + corner[3 * W + 3];   // <- 3 x 3 windows end at 2
}

//! clean csr
//@ launch csr grid=1 block=32
__global__ void csr(const int* rowptr, const int* col, const float* val, const float* v, float* y, int rows)
{
    int row = threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int j = rowptr[row]; j < rowptr[row + 1]; j++) sum += val[j] * v[col[j]];
    y[row] = sum;
}

//! clean csr_scatter_atomic
//@ launch csr_scatter_atomic grid=1 block=rows
__global__ void csr_scatter_atomic(const int* rowptr, const int* col, const float* val, const float* v, float* sums)
{
    for (int j = rowptr[threadIdx.x]; j < rowptr[threadIdx.x + 1]; j++) atomicAdd(&sums[col[j]], val[j] * v[threadIdx.x]);
}
