#! task: generate_reported
#! fails: generate_reported.compiles
#! why: still prints NumPy's np.float32(...) in place of a number
def generate_reported(w, Hp, Wp, P, Q, U, dil, filters):
    """A kernel for one filter, as text: a line for each weight that counts."""
    lines = []
    for channel in range(w.shape[1]):
        for row in range(w.shape[2]):
            for column in range(w.shape[3]):
                weight = w[0, channel, row, column]
                if weight != 0:
                    at = channel * Hp * Wp + row * dil * Wp + column * dil
                    lines.append(f"    sum += {weight!r}f * x[{at}];")
    body = "\n".join(lines)
    return f"""
//@ launch reported grid=(cdiv(P*Q, 128), 1, N) block=128
__global__ void reported(const float* xp, float* y)
{{
    int pq = blockIdx.x * blockDim.x + threadIdx.x;
    if (pq >= {P * Q}) return;
    const float* x = xp + blockIdx.z * {w.shape[1] * Hp * Wp} + pq / {Q} * {U * Wp} + pq % {Q} * {U};
    float sum = 0.0f;
{body}
    y[blockIdx.z * {P * Q} + pq] = sum;
}}
"""
