"""Labs 4 and 5 punish no other way of being right: other blocks, orders, templates, several kernels, other repairs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convladder.autograde.judge import check_task, open_worker, spec
from convladder.autograde.judge.record import CheckRecord
from convladder.autograde.judge.sandbox import Worker

SPECS = {lab: spec.load(lab) for lab in ("04_sparse", "05_sparse_tiled")}
TASKS = {task.name: lab for lab, loaded in SPECS.items() for task in loaded.tasks}

ARRAYS = "const float* xp, const int* rowptr, const int* col, const float* val, float* y"
SIZES = "int C, int Hp, int Wp, int K, int P, int Q, int Uh, int Uw"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker("none") as opened:
        yield opened


def judged(task: str, text: str, worker: Worker) -> dict[str, CheckRecord]:
    return {c.check.partition(".")[2]: c for c in check_task(SPECS[TASKS[task]], task, text, worker, secret=b"fair")}


def lost(found: dict[str, CheckRecord]) -> list[str]:
    return [f"{c.check}: {c.rationale}" for c in found.values() if not (c.passed and c.score == c.max)]


PYTHON = {
    "nonzero and bincount": (
        "to_csr",
        """
import numpy as np
def to_csr(a):
    rows, col = np.nonzero(a)
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(a)))])
    return rowptr, col, a[rows, col]
""",
    ),
    "tuples out of comprehensions": (
        "to_csr",
        """
def to_csr(a):
    found = [[(j, v) for j, v in enumerate(row) if v] for row in a]
    rowptr = tuple(sum(map(len, found[:k])) for k in range(len(found) + 1))
    return rowptr, tuple(j for row in found for j, _ in row), tuple(v for row in found for _, v in row)
""",
    ),
    "digits by divmod": (
        "stretched_column",
        """
def stretched_column(col, R, S, Hp, Wp, U, dil):
    rest, s = divmod(col, S)
    c, r = divmod(rest, R)
    return c * Hp * Wp + dil * (r * Wp + s)
""",
    ),
    "digits by NumPy": (
        "stretched_column",
        """
import numpy as np
def stretched_column(col, R, S, Hp, Wp, U, dil):
    c, r, s = np.unravel_index(col, (col // (R * S) + 1, R, S))
    return np.ravel_multi_index((c, r * dil, s * dil), (c + 1, Hp, Wp))
""",
    ),
    "one product": ("window_start", "window_start = lambda p, q, Wp, U: (p * Wp + q) * U"),
}


@pytest.mark.parametrize("way", PYTHON)
def test_a_python_task_in_another_way_gets_full_marks(way: str, worker: Worker) -> None:
    assert lost(judged(*PYTHON[way], worker)) == []


#: Full marks for each of these.
KERNELS = {
    "pad, a loop over the grid": (
        "pad",
        """
//@ launch pad grid=2 block=128
__global__ void pad(const float* x, float* xp, int N, int C, int H, int W, int Hp, int Wp, int padh, int padw)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N * C * Hp * Wp; i += gridDim.x * blockDim.x) {
        int w = i % Wp - padw, h = i / Wp % Hp - padh;
        float value = 0.0f;
        if ((unsigned)h < H && (unsigned)w < W) value = x[(i / (Hp * Wp) * H + h) * W + w];
        xp[i] = value;
    }
}
""",
    ),
    "stretch_filter, repaired in the kernel": (
        "stretch_filter",
        """
//@ launch stretch_filter grid=1 block=64 args=(rowptr, col, stretched, K, R, S, H, W, dilh, dilw, padh, padw)
__global__ void stretch_filter(const int* rowptr, const int* col, int* stretched, int K, int R, int S,
                               int H, int W, int dilh, int dilw, int padh, int padw)
{
    for (int k = threadIdx.x; k < K; k += blockDim.x)
        for (int j = rowptr[k + 1] - 1; j >= rowptr[k]; j--) {
            int s = col[j] % S, r = col[j] / S % R, ch = col[j] / (R * S);
            stretched[j] = (ch * (H + 2 * padh) + r * dilh) * (W + 2 * padw) + s * dilw;
        }
}
""",
    ),
    "stretch, a function template and two non-zeros a thread": (
        "stretch",
        """
//@ launch stretch grid=cdiv(nnz, 128) block=64
template <typename T> __device__ T moved(T col, T R, T S, T Hp, T Wp, T dilh, T dilw)
{
    return (col / (R * S) * Hp + col / S % R * dilh) * Wp + col % S * dilw;
}
__global__ void stretch(const int* col, int* stretched, int R, int S, int Hp, int Wp, int dilh, int dilw, int nnz)
{
    int j = blockIdx.x * 128 + threadIdx.x;
    if (j < nnz) stretched[j] = moved(col[j], R, S, Hp, Wp, dilh, dilw);
    if (j + 64 < nnz) stretched[j + 64] = moved(col[j + 64], R, S, Hp, Wp, dilh, dilw);
}
""",
    ),
    "csr_global, a kernel for the zeros, and one index for all": (
        "csr_global",
        f"""
//@ launch clear grid=cdiv(N*K*P*Q, 256) block=256 args=(y, N*K*P*Q)
//@ launch add grid=cdiv(N*K*P*Q, 64) block=64 args=(xp, rowptr, col, val, y, C, Hp, Wp, K, P, Q, Uh, Uw, N)
__global__ void clear(float* y, int count)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = 0.0f;
}}
__global__ void add({ARRAYS}, {SIZES}, int N)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N * K * P * Q) return;
    int q = i % Q, p = i / Q % P, k = i / (P * Q) % K, n = i / (P * Q) / K;
    for (int j = rowptr[k + 1] - 1; j >= rowptr[k]; j--)
        atomicAdd(&y[i], val[j] * xp[n * C * Hp * Wp + p * Uh * Wp + q * Uw + col[j]]);
}}
""",
    ),
    "csr, four sums from the row's end in blocks of 32": (
        "csr",
        f"""
//@ launch csr grid=(cdiv(P*Q, 32), N, K) block=32
__global__ void csr({ARRAYS}, {SIZES})
{{
    int pq = blockIdx.x * 32 + threadIdx.x, n = blockIdx.y, k = blockIdx.z;
    if (pq >= P * Q) return;
    const float* __restrict__ input = xp + n * C * Hp * Wp + pq / Q * Uh * Wp + pq % Q * Uw;
    float sum[4] = {{}};
    int begin = rowptr[k], j = rowptr[k + 1];
    for (; j - 4 >= begin; j -= 4)
        #pragma unroll
        for (int i = 1; i <= 4; i++) sum[i - 1] = fmaf(__ldg(&val[j - i]), __ldg(&input[col[j - i]]), sum[i - 1]);
    while (--j >= begin) sum[0] += val[j] * input[col[j]];
    y[(n * K + k) * P * Q + pq] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}}
""",
    ),
    "csr, with the tiles of lab 5": (
        "csr",
        f"""
//@ launch csr grid=(cdiv(P*Q, 64), K, N) block=64
__global__ void csr({ARRAYS}, {SIZES})
{{
    __shared__ int2 tile[64];
    int pq = blockIdx.x * 64 + threadIdx.x, k = blockIdx.y, n = blockIdx.z, end = rowptr[k + 1];
    const float* input = xp + n * C * Hp * Wp + (pq < P * Q ? pq / Q * Uh * Wp + pq % Q * Uw : 0);
    float sum = 0.0f;
    for (int j0 = rowptr[k]; j0 < end; j0 += 64) {{
        int j = j0 + threadIdx.x;
        if (j < end) tile[threadIdx.x] = make_int2(col[j], __float_as_int(val[j]));
        __syncthreads();
        for (j = 0; j < min(64, end - j0); j++) sum += __int_as_float(tile[j].y) * input[tile[j].x];
        __syncthreads();
    }}
    if (pq < P * Q) y[(n * K + k) * P * Q + pq] = sum;
}}
""",
    ),
    "csr_paper, square blocks and a shorter tile": (
        "csr_paper",
        f"""
//@ launch csr_paper grid=(cdiv(Q, 16), cdiv(P, 16), N*K) block=(16, 16)
__global__ void csr_paper({ARRAYS}, {SIZES})
{{
    __shared__ int cols[100];
    __shared__ float vals[100];
    int q = blockIdx.x * 16 + threadIdx.x, p = blockIdx.y * 16 + threadIdx.y, k = blockIdx.z % K, n = blockIdx.z / K;
    bool live = p < P && q < Q;
    const float* input = xp + n * C * Hp * Wp + (live ? p * Uh * Wp + q * Uw : 0);
    int t = threadIdx.y * 16 + threadIdx.x, start = rowptr[k];
    float sum = 0.0f;
    while (start < rowptr[k + 1]) {{
        int length = min(100, rowptr[k + 1] - start);
        if (t < length) {{ cols[t] = col[start + t]; vals[t] = val[start + t]; }}
        __syncthreads();
        if (live) for (int j = length - 1; j >= 0; j--) sum += vals[j] * input[cols[j]];
        __syncthreads();
        start += length;
    }}
    if (live) y[((n * K + k) * P + p) * Q + q] = sum;
}}
""",
    ),
    "csr_tiled, two tiles in turn and one barrier": (
        "csr_tiled",
        f"""
//@ launch csr_tiled grid=(cdiv(P*Q, 192), K, N) block=192
__global__ void csr_tiled({ARRAYS}, {SIZES})
{{
    __shared__ float2 tiles[2][192];
    int t = threadIdx.x, pq = blockIdx.x * 192 + t, k = blockIdx.y, n = blockIdx.z, end = rowptr[k + 1];
    const float* input = xp + n * C * Hp * Wp + (pq < P * Q ? pq / Q * Uh * Wp + pq % Q * Uw : 0);
    float sum = 0.0f;
    int which = 0;
    for (int j0 = rowptr[k]; j0 < end; j0 += 192, which ^= 1) {{
        if (j0 + t < end) tiles[which][t] = make_float2(__int_as_float(col[j0 + t]), val[j0 + t]);
        __syncthreads();
        const float2* tile = tiles[which];
        for (int j = 0; j < min(192, end - j0); j++) sum += tile[j].y * input[__float_as_int(tile[j].x)];
    }}
    if (pq < P * Q) y[(n * K + k) * P * Q + pq] = sum;
}}
""",
    ),
    "csr_tiled, a tile in the registers of each warp": (
        "csr_tiled",
        f"""
//@ launch csr_tiled grid=(cdiv(P*Q, 32), K, N) block=32
__global__ void csr_tiled({ARRAYS}, {SIZES})
{{
    int lane = threadIdx.x, pq = blockIdx.x * 32 + lane, k = blockIdx.y, n = blockIdx.z, end = rowptr[k + 1];
    const float* input = xp + n * C * Hp * Wp + (pq < P * Q ? pq / Q * Uh * Wp + pq % Q * Uw : 0);
    float sum = 0.0f;
    for (int j0 = rowptr[k]; j0 < end; j0 += 32) {{
        int mine = j0 + lane < end ? col[j0 + lane] : 0;
        float weight = j0 + lane < end ? val[j0 + lane] : 0.0f;
        for (int j = 0; j < min(32, end - j0); j++)
            sum += __shfl_sync(0xffffffffu, weight, j) * input[__shfl_sync(0xffffffffu, mine, j)];
    }}
    if (pq < P * Q) y[(n * K + k) * P * Q + pq] = sum;
}}
""",
    ),
    "csr_spanning, smaller blocks and two outputs a thread": (
        "csr_spanning",
        f"""
//@ launch csr_spanning grid=(cdiv(N*P*Q, 128), K) block=64
__global__ void csr_spanning({ARRAYS}, int N, {SIZES})
{{
    __shared__ int2 tile[64];
    int k = blockIdx.y, end = rowptr[k + 1], first = blockIdx.x * 128 + threadIdx.x;
    int at[2], to[2];
    float sum[2] = {{}};
    #pragma unroll
    for (int i = 0; i < 2; i++) {{
        int point = first + 64 * i < N * P * Q ? first + 64 * i : 0, n = point / (P * Q), pq = point % (P * Q);
        at[i] = n * C * Hp * Wp + pq / Q * Uh * Wp + pq % Q * Uw;
        to[i] = (n * K + k) * P * Q + pq;
    }}
    for (int j0 = rowptr[k]; j0 < end; j0 += 64) {{
        int length = min(64, end - j0);
        int mine = j0 + threadIdx.x;
        if (threadIdx.x < length) tile[threadIdx.x] = make_int2(col[mine], __float_as_int(val[mine]));
        __syncthreads();
        for (int j = 0; j < length; j++)
            #pragma unroll
            for (int i = 0; i < 2; i++) sum[i] += __int_as_float(tile[j].y) * xp[at[i] + tile[j].x];
        __syncthreads();
    }}
    #pragma unroll
    for (int i = 0; i < 2; i++) if (first + 64 * i < N * P * Q) y[to[i]] = sum[i];
}}
""",
    ),
    "csr_free, sixteen images and no tiles": (
        "csr_free",
        f"""
//@ const IMAGES = 16
//@ launch csr_free grid=(cdiv(P*Q, 64), K, cdiv(N, IMAGES)) block=64
__global__ void csr_free({ARRAYS}, int N, {SIZES})
{{
    int pq = blockIdx.x * 64 + threadIdx.x, k = blockIdx.y, n0 = blockIdx.z * IMAGES, plane = C * Hp * Wp;
    if (pq >= P * Q) return;
    const float* input = xp + pq / Q * Uh * Wp + pq % Q * Uw;
    float sum[IMAGES] = {{}};
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++) {{
        float weight = val[j];
        const float* tap = input + col[j];
        #pragma unroll
        for (int i = 0; i < IMAGES; i++) sum[i] += weight * tap[min(n0 + i, N - 1) * plane];
    }}
    #pragma unroll
    for (int i = 0; i < IMAGES; i++) if (n0 + i < N) y[((n0 + i) * K + k) * P * Q + pq] = sum[i];
}}
""",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.full] if n % 4 else []) for n, way in enumerate(KERNELS)]
)
def test_a_kernel_in_another_way_gets_full_marks(way: str, worker: Worker) -> None:
    assert lost(judged(*KERNELS[way], worker)) == []


# ---- what is right and not as fast is scored by degrees


def rectangles(width: int, height: int) -> str:
    """`csr` in blocks of this shape."""
    return f"""
//@ launch csr grid=(cdiv(Q, {width}), cdiv(P, {height}), N*K) block=({width}, {height})
__global__ void csr({ARRAYS}, {SIZES})
{{
    int q = blockIdx.x * {width} + threadIdx.x, p = blockIdx.y * {height} + threadIdx.y;
    int k = blockIdx.z % K, n = blockIdx.z / K;
    if (p >= P || q >= Q) return;
    const float* input = xp + n * C * Hp * Wp + p * Uh * Wp + q * Uw;
    float sum = 0.0f;
    for (int j = rowptr[k]; j < rowptr[k + 1]; j++) sum += val[j] * input[col[j]];
    y[((n * K + k) * P + p) * Q + q] = sum;
}}
"""


def points(number: int, block: int) -> str:
    """`csr_free` with several outputs of one plane for each thread of such blocks."""
    return f"""
//@ const POINTS = {number}
//@ const TILE = {block}
//@ launch csr_free grid=(cdiv(P*Q, POINTS*TILE), K, N) block=TILE
__global__ void csr_free({ARRAYS}, int N, {SIZES})
{{
    __shared__ int2 tile[TILE];
    int k = blockIdx.y, n = blockIdx.z, end = rowptr[k + 1], first = blockIdx.x * POINTS * TILE + threadIdx.x;
    const float* input = xp + n * C * Hp * Wp;
    int at[POINTS];
    float sum[POINTS] = {{}};
    #pragma unroll
    for (int i = 0; i < POINTS; i++) {{
        int pq = first + i * TILE < P * Q ? first + i * TILE : 0;
        at[i] = pq / Q * Uh * Wp + pq % Q * Uw;
    }}
    for (int j0 = rowptr[k]; j0 < end; j0 += TILE) {{
        int length = min(TILE, end - j0);
        int mine = j0 + threadIdx.x;
        if (threadIdx.x < length) tile[threadIdx.x] = make_int2(col[mine], __float_as_int(val[mine]));
        __syncthreads();
        for (int j = 0; j < length; j++) {{
            const float* tap = input + tile[j].x;
            float weight = __int_as_float(tile[j].y);
            #pragma unroll
            for (int i = 0; i < POINTS; i++) sum[i] += weight * tap[at[i]];
        }}
        __syncthreads();
    }}
    #pragma unroll
    for (int i = 0; i < POINTS; i++)
        if (first + i * TILE < P * Q) y[(n * K + k) * P * Q + first + i * TILE] = sum[i];
}}
"""


def test_blocks_lose_by_degrees_what_their_idle_lanes_cost(worker: Worker) -> None:
    """On a plane of 13 x 13: no lane in vain but those of the last warp, then 3 of 16, of 8 x 4 more, 19 of 32."""
    found = [judged("csr", rectangles(*shape), worker) for shape in ((13, 13), (16, 8), (8, 4), (32, 4))]
    assert [c.rationale for f in found for name, c in f.items() if "target" not in name and not c.passed] == [
        found[-1]["counters.stores"].rationale
    ]
    assert "have many lanes of a warp no output?" in found[-1]["counters.stores"].rationale
    shares = [f["target"].score / f["target"].max for f in found]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1
    assert 0.3 < shares[2] < shares[1] < 0.9
    assert shares[3] == 0
    assert "give nearly every lane of a warp an output" in found[-1]["target"].rationale


@pytest.mark.full
def test_several_points_of_a_plane_are_scored_by_what_they_save_if_they_exist(worker: Worker) -> None:
    """Four points a thread in blocks of 64 are a plane of 16 x 16; in blocks of 128 half of them are behind its end."""
    two, four, surplus = (judged("csr_free", points(*way), worker) for way in ((2, 128), (4, 64), (4, 128)))
    assert lost({n: c for found in (two, four) for n, c in found.items() if n != "target"}) == []
    shares = [found["target"].score / found["target"].max for found in (surplus, two, four)]
    assert 0.1 < shares[0] < 0.5 < shares[1] < shares[2]
    assert [n for n, c in surplus.items() if not c.passed] == ["counters.requests", "target"]
    assert "only outputs that exist" in surplus["counters.requests"].rationale
    assert "those of the last block that do not exist" in surplus["target"].rationale
