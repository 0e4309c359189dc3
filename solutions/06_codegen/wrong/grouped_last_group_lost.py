#! task: generate_grouped
#! fails: generate_grouped.correct
#! why: rounds the number of groups down: the filters of the last one are never written
def generate_grouped(w, Hp, Wp, P, Q, U, dil, filters):
    """The kernels of a layer, one for each group of filters, as one text."""
    K, C, R, S = w.shape

    def frame(name, lines):
        """A kernel of this name with these lines; `x` is a thread's window, `pq` its output point."""
        body = "\n    ".join(lines)
        return f"""
//@ launch {name} grid=(cdiv(P*Q, 128), 1, N) block=128
__global__ void {name}(const float* xp, float* y)
{{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    if (pq >= {P * Q}) return;
    const float* x = xp + blockIdx.z * {C * Hp * Wp} + pq / {Q} * {U * Wp} + pq % {Q} * {U};
    float v;
    {body}
}}
"""

    kernels = []
    for first in range(0, max(filters, K // filters * filters), filters):
        group = range(first, min(first + filters, K))
        lines = [f"float sum{k} = 0.0f;" for k in group]
        for c in range(C):
            for r in range(R):
                for s in range(S):
                    used = [k for k in group if w[k, c, r, s] != 0]
                    if used:
                        lines.append(f"v = x[{c * Hp * Wp + r * dil * Wp + s * dil}];")
                    lines += [f"sum{k} += {float(w[k, c, r, s]):.8e}f * v;" for k in used]
        lines += [f"y[(blockIdx.z * {K} + {k}) * {P * Q} + pq] = sum{k};" for k in group]
        kernels.append(frame(f"conv{first}", lines))
    return "".join(kernels)
