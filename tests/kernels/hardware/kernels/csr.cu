//! rows 96, columns 61
//! col int[rows*rows] mod columns, val float[rows*rows], v float[columns], rowptr out int[rows+1], y out float[rows]

//! clean csr
//@ launch triangle grid=1 block=rows+1
//@ launch csr grid=cdiv(rows, 64) block=64
__global__ void triangle(int* rowptr)
{
    rowptr[threadIdx.x] = threadIdx.x * (threadIdx.x - 1) / 2;      // row i has i entries, the first none
}
__global__ void csr(const int* rowptr, const int* col, const float* val, const float* v, float* y, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    #pragma unroll 1
    for (int j = rowptr[row]; j < rowptr[row + 1]; j++) sum += val[j] * v[col[j]];
    y[row] = sum;
}
