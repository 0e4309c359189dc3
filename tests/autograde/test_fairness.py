"""Right answers get full marks: the solutions on any data, and kernels that solve a task in another way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from convladder.autograde import judge as judging
from convladder.autograde.course import build
from convladder.autograde.judge import check, open_worker, spec
from convladder.autograde.judge.sandbox import Worker

LABS = [lab for lab in build.labs() if spec.load(lab).graded]
PARAMETERS = (
    "const float* x, const float* w, float* y, "
    "int N, int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad"
)

#: The body that sums one output; the ways below differ in how threads come to outputs.
SUM = """
__device__ float window(const float* x, const float* w, int n, int k, int p, int q,
                        int C, int H, int W, int R, int S, int U, int pad)
{
    float sum = 0.0f;
    int top = p * U - pad, left = q * U - pad;
    for (int c = 0; c < C; c++)
        for (int row = max(top, 0); row < min(top + R, H); row++)
            for (int col = max(left, 0); col < min(left + S, W); col++)
                sum += x[((n * C + c) * H + row) * W + col] * w[((k * C + c) * R + row - top) * S + col - left];
    return sum;
}
"""
CALL = "window(x, w, n, k, p, q, C, H, W, R, S, U, pad)"

WAYS = {
    "wide blocks": SUM + f"""
//@ launch wide grid=(cdiv(Q, 32), cdiv(P, 8), N*K) block=(32, 8)
__global__ void wide({PARAMETERS})
{{
    int q = blockIdx.x * 32 + threadIdx.x, p = blockIdx.y * 8 + threadIdx.y, n = blockIdx.z / K, k = blockIdx.z % K;
    if (p < P && q < Q) y[((n * K + k) * P + p) * Q + q] = {CALL};
}}
""",
    "one index for all": SUM + f"""
//@ launch flat grid=cdiv(N*K*P*Q, 128) block=128
__global__ void flat({PARAMETERS})
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * K * P * Q) return;
    int q = i % Q, p = i / Q % P, k = i / Q / P % K, n = i / Q / P / K;
    y[i] = {CALL};
}}
""",
    "a loop over the grid": SUM + f"""
//@ launch strided grid=max(1, N*K*P*Q // 256) block=256
__global__ void strided({PARAMETERS})
{{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N * K * P * Q; i += gridDim.x * blockDim.x) {{
        int q = i % Q, p = i / Q % P, k = i / Q / P % K, n = i / Q / P / K;
        y[i] = {CALL};
    }}
}}
""",
    "the other order of the sum": f"""
//@ launch reversed grid=(cdiv(Q, 16), cdiv(P, 16), N*K) block=(16, 16)
__global__ void reversed({PARAMETERS})
{{
    int q = blockIdx.x * 16 + threadIdx.x, p = blockIdx.y * 16 + threadIdx.y, n = blockIdx.z / K, k = blockIdx.z % K;
    if (p >= P || q >= Q) return;
    float sum = 0.0f;
    for (int s = S - 1; s >= 0; s--)
        for (int r = R - 1; r >= 0; r--) {{
            int row = p * U - pad + r, col = q * U - pad + s;
            if (row >= 0 && row < H && col >= 0 && col < W)
                for (int c = C - 1; c >= 0; c--)
                    sum = fmaf(w[((k * C + c) * R + r) * S + s], x[((n * C + c) * H + row) * W + col], sum);
        }}
    y[((n * K + k) * P + p) * Q + q] = sum;
}}
""",
    "a template, a lambda, two names for the sizes": SUM + f"""
//@ const EDGE = 4*4
//@ let blocks = cdiv(P, EDGE)
//@ launch entry grid=(cdiv(Q, EDGE), blocks, N*K) block=(EDGE, EDGE)
template <typename T, int B>
__device__ void output(const T* x, const T* w, T* y, int n, int k,
                       int C, int H, int W, int K, int R, int S, int P, int Q, int U, int pad)
{{
    auto inside = [&](int p, int q) {{ return p < P && q < Q; }};
    int q = blockIdx.x * B + threadIdx.x, p = blockIdx.y * B + threadIdx.y;
    if (inside(p, q)) y[((n * K + k) * P + p) * Q + q] = {CALL};
}}
__global__ void entry({PARAMETERS})
{{
    output<float, EDGE>(x, w, y, blockIdx.z / K, blockIdx.z % K, C, H, W, K, R, S, P, Q, U, pad);
}}
""",
    "in double precision": f"""
//@ launch exact grid=(cdiv(Q, 16), cdiv(P, 16), N*K) block=(16, 16)
__global__ void exact({PARAMETERS})
{{
    int q = blockIdx.x * 16 + threadIdx.x, p = blockIdx.y * 16 + threadIdx.y, n = blockIdx.z / K, k = blockIdx.z % K;
    if (p >= P || q >= Q) return;
    double sum = 0;
    for (int c = 0; c < C; c++)
        for (int row = max(p * U - pad, 0); row < min(p * U - pad + R, H); row++)
            for (int col = max(q * U - pad, 0); col < min(q * U - pad + S, W); col++)
                sum += (double)x[((n * C + c) * H + row) * W + col]
                     * w[((k * C + c) * R + row - p * U + pad) * S + col - q * U + pad];
    y[((n * K + k) * P + p) * Q + q] = sum;
}}
""",
    "several kernels and a temp": SUM + f"""
//@ temp part float[N*K*P*Q]
//@ launch first grid=cdiv(N*K*P*Q, 128) block=128 args=(x, w, part, N, C, H, W, K, R, S, P, Q, U, pad)
//@ launch second grid=cdiv(N*K*P*Q, 128) block=128 args=(part, y, N*K*P*Q)
__global__ void first({PARAMETERS})
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * K * P * Q) return;
    int q = i % Q, p = i / Q % P, k = i / Q / P % K, n = i / Q / P / K;
    y[i] = {CALL};
}}
__global__ void second(const float* part, float* y, int count)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = part[i];
}}
""",
}  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker("none") as w:
        yield w


def missed(text: str, worker: Worker) -> list[str]:
    found = check.check_task(spec.load("01_direct"), "direct_coalesced", text, worker, secret=b"fairness")
    return [f"{c.check}: {c.rationale}" for c in found if not (c.passed and c.score == c.max)]


@pytest.mark.parametrize("way", WAYS)
def test_another_way_of_being_right_gets_full_marks(way: str, worker: Worker) -> None:
    assert missed(WAYS[way], worker) == []


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lab", LABS)
def test_the_solution_gets_full_marks_whatever_the_data(lab: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / f"{lab}.ipynb"
    path.write_text(build.serialise(build.solved_notebook(lab)), encoding="utf-8")
    loaded = spec.load(lab)
    read = judging.read(path, loaded)
    record = judging.judge(loaded, read, student="ada", secret=f"fairness {seed}".encode(), sandbox="none")
    missed = [
        f"{c.check}: {c.rationale}" for c in record.checks if not c.manual and not (c.passed and c.score == c.max)
    ]
    assert missed == []


ROW_BLOCKS = """
//@ launch pad grid=(cdiv(Wp, 32), cdiv(Hp, 4), N*C) block=(32, 4)
__global__ void pad(const float* x, float* xp, int N, int C, int H, int W, int Hp, int Wp, int padh, int padw)
{
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 4 + threadIdx.y, plane = blockIdx.z;
    if (col >= Wp || row >= Hp) return;
    int h = row - padh, w = col - padw;
    xp[(plane * Hp + row) * Wp + col] = h >= 0 && h < H && w >= 0 && w < W ? x[(plane * H + h) * W + w] : 0.0f;
}
"""
TWO_KERNELS = """
//@ launch clear grid=cdiv(N*C*Hp*Wp, 256) block=256 args=(xp, N*C*Hp*Wp)
//@ launch copy grid=cdiv(N*C*H*W, 256) block=256 args=(x, xp, N*C*H*W, H, W, Hp, Wp, padh, padw)
__global__ void clear(float* xp, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) xp[i] = 0.0f;
}
__global__ void copy(const float* x, float* xp, int count, int H, int W, int Hp, int Wp, int padh, int padw)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) xp[(i / (H * W) * Hp + i / W % H + padh) * Wp + i % W + padw] = x[i];
}
"""
RECTANGLES = """
//@ launch csr grid=(cdiv(Q, 16), cdiv(P, 8), N*K) block=(16, 8)
__global__ void csr(const float* xp, const int* rowptr, const int* col, const float* val, float* y,
                    int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw)
{
    int q = blockIdx.x * 16 + threadIdx.x, p = blockIdx.y * 8 + threadIdx.y, k = blockIdx.z % K, n = blockIdx.z / K;
    if (p >= P || q >= Q) return;
    const float* input = xp + n * C * Hp * Wp + p * Uh * Wp + q * Uw;
    float sum = 0.0f;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++) sum += val[j] * input[col[j]];
    y[((n * K + k) * P + p) * Q + q] = sum;
}
"""


@pytest.mark.parametrize(
    ("task", "text"),
    [("pad", ROW_BLOCKS), ("pad", TWO_KERNELS), ("csr", RECTANGLES)],
    ids=["rows of blocks", "a kernel for the zeros", "rectangles"],
)
def test_another_division_of_the_sparse_steps_loses_no_threshold(task: str, text: str, worker: Worker) -> None:
    found = check.check_task(spec.load("04_sparse"), task, text, worker, secret=b"fairness")
    lost = [f"{c.check}: {c.rationale}" for c in found if not (c.passed or c.check == "csr.target")]
    assert lost == []
    assert all(c.score > c.max / 2 for c in found if c.max)
