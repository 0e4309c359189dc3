#! task: generate
#! fails: generate.correct
#! why: forgets the last column of each filter
def generate(w, Hp, Wp, P, Q, U, dil, filters):
    """The kernel of a small layer, as text."""
    K, C, R, S = w.shape
    lines = []
    for k in range(K):
        for c in range(C):
            for r in range(R):
                for s in range(max(1, S - 1)):
                    if w[k, c, r, s] != 0:
                        place = (c * Hp + r * dil) * Wp + s * dil
                        lines.append(f"sum{k} += {float(w[k, c, r, s]):.9e}f * x[{place}];")
    sums = " ".join(f"float sum{k} = 0.0f;" for k in range(K))
    stores = " ".join(f"y[(blockIdx.z * {K} + {k}) * {P * Q} + pq] = sum{k};" for k in range(K))
    body = "\n    ".join([sums, *lines, stores])
    return f"""
//@ launch conv grid=(cdiv(P*Q, 128), 1, N) block=128
__global__ void conv(const float* xp, float* y)
{{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    if (pq >= {P * Q}) return;
    const float* x = xp + blockIdx.z * {C * Hp * Wp} + pq / {Q} * {U * Wp} + pq % {Q} * {U};
    {body}
}}
"""
