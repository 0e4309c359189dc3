//! task: stretch
//! fails: stretch.correct
//! why: takes the column apart as if a filter had S rows of R taps
//@ launch stretch grid=cdiv(nnz, 256) block=256

__global__ void stretch(const int* col, int* stretched, int R, int S, int Hp, int Wp, int dilh, int dilw, int nnz)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= nnz) return;
    int s = col[j] % R;
    int r = col[j] / R % S;
    int ch = col[j] / (R * S);
    stretched[j] = (ch * Hp + r * dilh) * Wp + s * dilw;
}
