//! task: stretch
//! fails: stretch.correct
//! why: passes the dilation times the stride: the stride is in the column
//@ launch stretch grid=cdiv(nnz, 256) block=256 args=(col, stretched, R, S, Hp, Wp, dilh*U, dilw*U, nnz)

__global__ void stretch(const int* col, int* stretched, int R, int S, int Hp, int Wp, int dilh, int dilw, int nnz)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= nnz) return;
    int s = col[j] % S;
    int r = col[j] / S % R;
    int ch = col[j] / (R * S);
    stretched[j] = (ch * Hp + r * dilh) * Wp + s * dilw;
}
