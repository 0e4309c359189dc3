/* csr_free: sparse convolution, stretched CSR, your way.
 *   y[n,k,p,q] = sum_j val[j] * xp[n, col[j] + p*Uh*Wp + q*Uw]     j over row k
 * xp           device, N*C*Hp*Wp float, zero-padded
 * rowptr       device, K+1 int
 * col, val     device, nnz int / float, columns stretched to the padded input
 * y            device, N*K*P*Q float
 */
//@ const TILE = 128
//@ launch csr_free grid=(cdiv(P*Q, TILE), K, N) block=TILE

__global__ void csr_free(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                         int N, int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    // YOUR CODE HERE
}
