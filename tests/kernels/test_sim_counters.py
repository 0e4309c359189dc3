"""The counters of known access patterns, computed by hand, from both executors alike."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels.result import total

I = np.int32


def measure(
    engine, body, grid=1, block=32, size=4096, dtype=np.float32, params="float* y, const float* __restrict__ x"
):
    source = f'extern "C" __global__ void k({params}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}'
    args = {"y": np.zeros(size, dtype), "x": np.arange(size).astype(dtype)}
    out = engine.run(source, grid, block, args)
    assert out.faults == []
    return out.counters


def line(access):
    """requests, threads, sectors, ideal sectors, bytes needed"""
    return access.requests, access.threads, access.sectors, access.sectors_ideal, access.bytes_needed


PATTERNS = {
    "coalesced": ("y[i] = x[i];", (1, 32, 4, 4, 128)),
    "shifted by one element": ("y[i] = x[i + 1];", (1, 32, 5, 4, 128)),
    "stride of two": ("y[i] = x[2 * i];", (1, 32, 8, 4, 128)),
    "stride of eight: a sector for each thread": ("y[i] = x[8 * i];", (1, 32, 32, 4, 128)),
    "stride of 64": ("y[i] = x[64 * i];", (1, 32, 32, 4, 128)),
    "broadcast": ("y[i] = x[blockIdx.x + 7];", (1, 32, 1, 1, 4)),
    "two rows of sixteen": ("y[i] = x[(i / 16) * 100 + i % 16];", (1, 32, 5, 4, 128)),
    "pairs share an element": ("y[i] = x[i / 2];", (1, 32, 2, 2, 64)),
    "backwards": ("y[i] = x[31 - i];", (1, 32, 4, 4, 128)),
    "scrambled": ("y[i] = x[(i * 5) & 31];", (1, 32, 4, 4, 128)),
    "scrambled over four far places": ("y[i] = x[(i & 3) * 512];", (1, 32, 4, 1, 16)),
    "every other thread": ("if (i & 1) y[i] = x[i];", (1, 16, 4, 2, 64)),
    "the upper half": ("if (i >= 16) y[i] = x[i - 16];", (1, 16, 2, 2, 64)),
    "one thread": ("if (i == 5) y[i] = x[i];", (1, 1, 1, 1, 4)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_loads_of_one_warp(engine, name):
    body, expected = PATTERNS[name]
    counters = measure(engine, body)
    load, store = counters.accesses
    assert (load.op, load.array, store.op, store.array) == ("load", "x", "store", "y")
    assert line(load) == expected


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("i", (1, 32, 4, 4, 128)),
        ("i + 3", (1, 32, 5, 4, 128)),
        ("8 * i", (1, 32, 32, 4, 128)),
        ("31 - i", (1, 32, 4, 4, 128)),
    ],
)
def test_stores_of_one_warp(engine, index, expected):
    store = measure(engine, f"y[{index}] = 1;").accesses[0]
    assert store.op == "store"
    assert line(store) == expected


@pytest.mark.parametrize(
    ("dtype", "ctype", "expected"),
    [
        (np.uint8, "unsigned char", (1, 32, 1, 1, 32)),
        (np.int16, "short", (1, 32, 2, 2, 64)),
        (np.float64, "double", (1, 32, 8, 8, 256)),
    ],
)
def test_sectors_follow_the_element_size(engine, dtype, ctype, expected):
    params = f"{ctype}* y, const {ctype}* __restrict__ x"
    counters = measure(engine, "y[i] = x[i];", dtype=dtype, params=params)
    assert [line(a) for a in counters.accesses] == [expected, expected]


def test_a_vector_load_is_one_request(engine):
    params = "float4* y, const float4* __restrict__ x"
    counters = measure(engine, "y[i] = x[i];", params=params)
    assert [line(a) for a in counters.accesses] == [(1, 32, 16, 16, 512)] * 2


def test_partial_warps_and_blocks_add_up(engine):
    counters = measure(engine, "y[i] = x[i];", grid=3, block=40)
    load = counters.accesses[0]
    # Blocks begin at 0, 40 and 80; each has a full warp and one of 8 threads.
    assert line(load) == (6, 120, 4 + 1 + 4 + 1 + 4 + 1, 15, 480)
    assert (counters.blocks, counters.threads) == (3, 120)
    assert counters.warp_instructions % 6 == 0
    assert counters.thread_instructions * 6 == counters.warp_instructions * 120


def test_totals_by_operation_and_array(engine):
    counters = measure(engine, "y[i] = x[i] + x[8 * i];")
    assert counters.requests("load") == 2
    assert counters.sectors("load", "x") == 36
    assert counters.sectors() == 40
    assert counters.bytes_moved("load") == 36 * 32
    assert counters.bytes_needed("store") == 128
    assert counters.sectors_ideal(array="x") == 8


def test_one_instruction_on_two_arrays_is_one_request(engine):
    source = """extern "C" __global__ void k(const float* a, const float* b, float* y) {
        const float* p = threadIdx.x & 1 ? a : b; y[threadIdx.x] = p[threadIdx.x]; }"""
    args = {"a": np.ones(32, np.float32), "b": np.ones(32, np.float32), "y": np.zeros(32, np.float32)}
    counters = engine.run(source, 1, 32, args).counters
    loads = [a for a in counters.accesses if a.op == "load"]
    assert [(a.array, a.requests, a.threads, a.sectors) for a in loads] == [("a", 0, 16, 4), ("b", 1, 16, 4)]


def test_constant_and_local_memory_are_no_global_traffic(engine):
    source = """__constant__ float w[4] = {1, 2, 3, 4}; __device__ float bias[2] = {5, 6};
    extern "C" __global__ void k(float* y, int n) {
        float t[8]; for (int j = 0; j < n; j++) t[j] = w[j & 3]; y[threadIdx.x] = t[threadIdx.x % n] + bias[n & 1]; }"""
    out = engine.run(source, 1, 32, {"y": np.zeros(32, np.float32), "n": I(5)})
    assert out.faults == []
    assert [(a.array, a.op, a.requests) for a in out.counters.accesses] == [("bias", "load", 1), ("y", "store", 1)]
    assert out.arrays["y"][:5].tolist() == [7, 8, 9, 10, 7]


def test_fmas_and_flops_count_active_lanes(engine):
    source = """extern "C" __global__ void k(float* y, const float* x, int n) {
        int i = threadIdx.x; if (i >= n) return;
        float s = 0; for (int j = 0; j < 10; j++) s += x[j] * x[i]; y[i] = s + 1; }"""
    args = {"y": np.zeros(64, np.float32), "x": np.ones(64, np.float32), "n": I(40)}
    counters = engine.run(source, 1, 64, args).counters
    assert counters.fmas == 400
    assert counters.flops == 840


def test_branches_count_executions_and_divergence(engine):
    source = """extern "C" __global__ void k(volatile int* y, int n, int m) {
        int i = threadIdx.x;
        #pragma unroll 1
        for (int j = 0; j < n; j++)
            if (i < m + j)
                y[i] = j; }"""
    counters = engine.run(source, 1, 96, {"y": np.zeros(96, I), "n": I(3), "m": I(46)}).counters
    guards = [b for b in counters.branches if b.line == 5]
    # Of three warps only the middle one has lanes on both sides.
    assert (sum(b.executed for b in guards), sum(b.divergent for b in guards)) == (9, 3)
    assert counters.divergent_branches == 3


def test_active_lanes_of_a_convergent_kernel_are_all(engine):
    assert measure(engine, "y[i] = x[i];", grid=2, block=64).active_lanes == 1.0
    assert measure(engine, "y[i] = x[i];", grid=2, block=16).active_lanes == 0.5


def test_equal_blocks_are_all_busy(engine):
    counters = measure(engine, "y[i] = x[i];", grid=8)
    assert (counters.blocks, counters.busy_blocks) == (8, 8)


def test_blocks_without_work_do_not_make_busy_ones(engine):
    body = "if (blockIdx.x == 0) for (int j = 0; j < 100; j++) y[j * 32 + threadIdx.x] = x[j];"
    counters = measure(engine, body, grid=8)
    assert counters.blocks == 8
    assert counters.busy_blocks < 1.2


def test_a_launch_of_idle_blocks_adds_no_busy_ones(engine):
    work = measure(engine, "for (int j = 0; j < 100; j++) y[j * 32 + threadIdx.x] = x[j];")
    idle = measure(engine, "if (i < 0) y[0] = x[0];", grid=16)
    assert total([work, idle]).blocks == 17
    assert total([work, idle]).busy_blocks < 2


def test_direct_convolution_counts_its_products(engine):
    source = """extern "C" __global__ void conv(const float* x, const float* w, float* y, int H, int W) {
        int q = blockIdx.x * blockDim.x + threadIdx.x, p = blockIdx.y;
        if (q >= W) return;
        float sum = 0;
        for (int r = 0; r < 3; r++)
            for (int s = 0; s < 3; s++) {
                int h = p + r - 1, v = q + s - 1;
                if (h >= 0 && h < H && v >= 0 && v < W) sum += x[h * W + v] * w[r * 3 + s];
            }
        y[p * W + q] = sum; }"""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((9, 13)).astype(np.float32), rng.standard_normal((3, 3)).astype(np.float32)
    args = {"x": x, "w": w, "y": np.zeros((9, 13), np.float32), "H": I(9), "W": I(13)}
    out = engine.run(source, (1, 9), 32, args, undefined=("y",))
    assert out.faults == []
    assert out.counters.fmas == (3 * 9 - 2) * (3 * 13 - 2)
    padded = np.pad(x.astype(np.float64), 1)
    expected = sum(padded[r : r + 9, s : s + 13] * w[r, s] for r in range(3) for s in range(3))
    assert np.allclose(out.arrays["y"], expected, atol=1e-5)


def test_three_runs_give_equal_reports(engine):
    source = 'extern "C" __global__ void k(float* y, int n) { y[(threadIdx.x * 7) % n] += blockIdx.x; }'
    args = {"y": np.zeros(64, np.float32), "n": I(70)}
    first, *others = [engine.once("llvm", source, 4, 96, args) for _ in range(3)]
    assert first.faults
    for other in others:
        assert (other.faults, other.counters) == (first.faults, first.counters)
