"""Shared memory and barriers: what they compute, what can go wrong with them, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from convladder.kernels import sim
from convladder.kernels.errors import LaunchError

I, F = np.int32, np.float32


def numbered(source: str) -> str:
    """The text without its first, empty line, so that the lines count from 1."""
    return source.lstrip("\n")


GEMM = numbered(r"""
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int n) {
    __shared__ float As[16][16], Bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        As[ty][tx] = A[row * n + t + tx];
        Bs[ty][tx] = B[(t + ty) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    C[row * n + column] = sum;
}
""")


def run_gemm(engine, source=GEMM, n=32):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(F) for _ in range(2))
    args = {"A": a, "B": b, "C": np.zeros((n, n), F), "n": I(n)}
    return engine.run(source, (n // 16, n // 16), (16, 16), args, undefined=("C",)), a @ b


def without(source: str, line: int) -> str:
    lines = source.split("\n")
    return "\n".join([*lines[: line - 1], "", *lines[line:]])


# -- what it computes ------------------------------------------------------------------------------


def test_a_tiled_product_is_right_and_has_nothing_to_report(engine):
    out, expected = run_gemm(engine)
    assert out.faults == []
    np.testing.assert_allclose(out.arrays["C"], expected, atol=1e-4)
    assert out.counters.barriers == 4 * 8 * 2 * 2  # blocks, warps, tiles, barriers


def test_dynamic_shared_memory_stands_behind_the_static_arrays(engine):
    source = """extern __shared__ float tail[];
    extern "C" __global__ void k(float* y) { __shared__ int first[3]; int i = threadIdx.x;
        tail[i] = i; if (i < 3) first[i] = 100 + i; __syncthreads(); y[i] = tail[39 - i] + first[i % 3]; }"""
    out = engine.run(source, 1, 40, {"y": np.zeros(40, F)}, shared=160)
    assert out.faults == []
    assert out.arrays["y"].tolist() == [39 - i + 100 + i % 3 for i in range(40)]


def test_a_block_may_have_as_much_shared_memory_as_the_architecture_allows(engine):
    source = """extern __shared__ int s[];
    extern "C" __global__ void k(int* y, int n) { s[n - 1] = 7; __syncthreads(); y[0] = s[n - 1]; }"""
    out = engine.run(source, 1, 1, {"y": np.zeros(1, I), "n": I(163 * 256)}, shared=163 * 1024)
    assert (out.faults, out.arrays["y"][0]) == ([], 7)
    program = sim.load(engine.ptx(source))
    with pytest.raises(LaunchError, match=r"wants 166913 bytes of shared memory .* sm_80 allows 166912"):
        sim.run(program, "k", (1, 1, 1), (1, 1, 1), [bytes(8), bytes(4)], shared=163 * 1024 + 1)


LARGE = """extern "C" __global__ void k(int* y) {{ __shared__ int s[{words}]; int i = threadIdx.x;
        s[i + {words} - 32] = i; __syncthreads(); y[i] = s[{words} - 1 - i]; }}"""


def test_declared_shared_arrays_may_fill_48_kib(engine):
    out = engine.run(LARGE.format(words=12288), 1, 32, {"y": np.zeros(32, I)})
    assert (out.faults, out.arrays["y"].tolist()) == ([], list(range(31, -1, -1)))


def test_more_than_48_kib_of_declared_shared_arrays_is_refused_as_ptxas_refuses_it(engine):
    program = sim.load(engine.ptx(LARGE.format(words=12289)))
    with pytest.raises(LaunchError, match=r"declare 49156 bytes of shared memory, but a GPU allows 49152"):
        sim.run(program, "k", (1, 1, 1), (32, 1, 1), [bytes(8)])


@pytest.mark.parametrize("threads", [1, 31, 64, 100])
def test_barriers_count_votes(engine, threads):
    source = """extern "C" __global__ void k(int* y, int n) { int i = threadIdx.x;
        int c = __syncthreads_count(i % 3 == 0), a = __syncthreads_and(i < n), o = __syncthreads_or(i == 77);
        y[i] = c + 1000 * !!a + 10000 * !!o; }"""
    out = engine.run(source, 1, threads, {"y": np.zeros(threads, I), "n": I(64)})
    assert out.faults == []
    expected = len(range(0, threads, 3)) + 1000 * (threads <= 64) + 10000 * (threads > 77)
    assert out.arrays["y"].tolist() == [expected] * threads


def test_registers_and_local_arrays_survive_a_barrier(engine):
    source = """extern "C" __global__ void k(int* y, const int* x) {
        __shared__ int s[96]; int i = threadIdx.x, own[8];
        for (int j = 0; j < 8; j++) own[j] = i * 8 + j;
        for (int round = 0; round < 3; round++) { s[i] = own[x[i]]; __syncthreads(); own[x[i] ^ 1] += s[95 - i];
            __syncthreads(); }
        int sum = 0; for (int j = 0; j < 8; j++) sum += own[j] * (j + 1); y[i] = sum; }"""
    x = np.random.default_rng(3).integers(0, 8, 96).astype(I)
    out = engine.run(source, 1, 96, {"y": np.zeros(96, I), "x": x})
    own = np.arange(96 * 8).reshape(96, 8)
    for _ in range(3):
        s = own[np.arange(96), x].copy()
        own[np.arange(96), x ^ 1] += s[::-1]
    assert out.faults == []
    assert out.arrays["y"].tolist() == (own * np.arange(1, 9)).sum(axis=1).tolist()


def test_a_device_function_gets_a_pointer_into_shared_memory(engine):
    source = """__device__ __noinline__ float sum(const float* p, int n) {
        __shared__ int calls; if (threadIdx.x == 0) calls = n; float s = 0; for (int j = 0; j < n; j++) s += p[j];
        return s; }
    extern "C" __global__ void k(float* y) { __shared__ float s[64]; s[threadIdx.x] = threadIdx.x; __syncthreads();
        y[threadIdx.x] = sum(s, threadIdx.x) + sum(s + 1, 2); }"""
    out = engine.run(source, 1, 64, {"y": np.zeros(64, F)})
    assert out.faults == []
    assert out.arrays["y"].tolist() == [i * (i - 1) / 2 + 3 for i in range(64)]


def test_a_reduction_by_halves(engine):
    source = """extern "C" __global__ void k(float* y, const float* x) { __shared__ float s[256]; int i = threadIdx.x;
        s[i] = x[blockIdx.x * 256 + i]; __syncthreads();
        for (int h = 128; h > 0; h >>= 1) { if (i < h) s[i] += s[i + h]; __syncthreads(); }
        if (i == 0) y[blockIdx.x] = s[0]; }"""
    x = np.random.default_rng(1).integers(-50, 50, 768).astype(F)
    out = engine.run(source, 3, 256, {"y": np.zeros(3, F), "x": x})
    assert out.faults == []
    assert out.arrays["y"].tolist() == x.reshape(3, 256).sum(axis=1).tolist()


def test_the_last_steps_of_a_reduction_may_be_ordered_by_syncwarp(engine):
    source = """extern "C" __global__ void k(float* y) { __shared__ float s[32]; int i = threadIdx.x; s[i] = i;
        __syncwarp();
        for (int h = 16; h > 0; h >>= 1) { float t = i < h ? s[i + h] : 0; __syncwarp(); s[i] += t; __syncwarp(); }
        y[i] = s[0]; }"""
    out = engine.run(source, 2, 32, {"y": np.zeros(32, F)})
    assert out.faults == []
    assert out.arrays["y"].tolist() == [496] * 32


# -- what can go wrong -----------------------------------------------------------------------------


def test_a_missing_barrier_after_the_stores_is_named_between_its_lines(engine):
    out, _ = run_gemm(engine, without(GEMM, 8))
    fault = out.faults[0]
    assert (fault.kind, fault.line, fault.array) == ("shared-race", 10, "Bs")
    assert fault.message == (
        "thread (0, 1, 0) of block (0, 0, 0) reads element 0 of Bs, which thread (0, 0, 0) of block (0, 0, 0) stores "
        "to at line 7; which comes first is undefined: a __syncthreads() is missing between line 7 and line 10"
    )


def test_a_missing_barrier_before_the_next_stores_is_named_in_the_next_turn(engine):
    out, _ = run_gemm(engine, without(GEMM, 11))
    fault = out.faults[0]
    assert (fault.kind, fault.line, fault.array) == ("shared-race", 6, "As")
    assert "a __syncthreads() is missing between line 10 and line 6 in the loop's next turn" in fault.message


def test_a_missing_barrier_is_named_in_no_next_turn_where_there_is_no_loop(engine):
    source = """extern "C" __global__ void k(float* y) { __shared__ float s[64]; int i = threadIdx.x;
        s[i] = i;
        y[i] = s[63 - i]; }"""
    faults = engine.run(source, 1, 64, {"y": np.zeros(64, F)}).faults
    assert {f.line for f in faults} == {2, 3}
    assert all("is missing between line 2 and line 3" in f.message for f in faults if f.kind == "shared-race")
    assert not any("next turn" in f.message for f in faults)


def test_in_a_block_of_one_warp_either_barrier_is_named(engine):
    source = """extern "C" __global__ void k(float* y) { __shared__ float s[32]; int i = threadIdx.x;
        s[i] = i;
        y[i] = s[31 - i]; }"""
    fault = engine.run(source, 1, 32, {"y": np.zeros(32, F)}).faults[0]
    assert "a __syncthreads() (or, in one warp, __syncwarp()) is missing between line 2 and line 3" in fault.message


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("s[i] = i; y[i] = s[i ^ 1];", "a __syncthreads() is missing between line 3 and line 3"),
        ("s[i / 2] = i; __syncthreads(); y[i] = s[0];", "each thread needs an element of its own"),
        (
            "s[i] = i; __syncthreads(); s[i] += s[i ^ 33];",
            "which thread (1, 0, 0) of block (0, 0, 0) stores to at line 3",
        ),
        (
            "((volatile char*)s)[i] = i; __syncthreads(); ((volatile short*)s)[i / 2] = i;",
            "stores a different value there",
        ),
    ],
)
def test_races_in_shared_memory(engine, body, what):
    source = f'extern "C" __global__ void k(float* y) {{ __shared__ int s[64];\n int i = threadIdx.x;\n {body} }}'
    source = source.replace("int s[64]", "volatile int s[64]") if "char" not in body else source
    fault = engine.run(source, 1, 64, {"y": np.zeros(64, F)}).faults[0]
    assert (fault.kind, fault.line, fault.array) == ("shared-race", 3, "s")
    assert what.replace("between line 3 and line 3", "between what this line reads and what it stores") in fault.message


@pytest.mark.parametrize(
    "body",
    [
        "s[0] = 7; __syncthreads(); y[i] = s[0];",  # the same value from all
        "s[i] = i; s[i] += 1; y[i] = s[i];",  # each its own
        "((volatile char*)s)[i] = i; y[i] = 0;",  # neighbours in one word
        "if (i == 5) s[9] = 3; __syncthreads(); if (i == 60) s[9] = 4; __syncthreads(); y[i] = s[9];",
        "s[i] = i; __syncwarp(); y[i] = s[i ^ 1]; __syncwarp(); s[i ^ 2] = i;",
        "s[i] = 0; __syncthreads(); atomicAdd((int*)&s[i & 3], 1); __syncthreads(); y[i] = s[i & 3];",
    ],
)
def test_what_is_ordered_is_no_race(engine, body):
    source = f'extern "C" __global__ void k(int* y) {{ __shared__ volatile int s[64]; int i = threadIdx.x; {body} }}'
    assert engine.run(source, 2, 64, {"y": np.zeros(64, I)}).faults == []


def test_a_barrier_orders_global_memory_within_a_block(engine):
    source = """extern "C" __global__ void k(volatile int* y, int* z) { int i = threadIdx.x, b = blockIdx.x * 64;
        y[b + i] = i; __syncthreads(); z[b + i] = y[b + (i ^ 33)]; __syncthreads(); y[b + i] = 1; }"""
    assert engine.run(source, 2, 64, {"y": np.zeros(128, I), "z": np.zeros(128, I)}).faults == []


def test_no_barrier_orders_blocks(engine):
    source = """extern "C" __global__ void k(volatile int* y, int* z) { int i = threadIdx.x;
        y[blockIdx.x * 64 + i] = i; __syncthreads(); z[blockIdx.x * 64 + i] = y[i]; }"""
    fault = engine.run(source, 2, 64, {"y": np.zeros(128, I), "z": np.zeros(128, I)}).fault()
    assert (fault.kind, fault.block, fault.array, fault.count) == ("global-race", (1, 0, 0), "y", 64)
    assert fault.message == (
        "thread (0, 0, 0) of block (1, 0, 0) reads y[0], which thread (0, 0, 0) of block (0, 0, 0) stores to at line "
        "2; which comes first is undefined: blocks run in any order, and no barrier orders them"
    )


def test_a_read_of_shared_memory_that_nobody_wrote(engine):
    source = 'extern "C" __global__ void k(float* y) { __shared__ float s[40]; int i = threadIdx.x;\n'
    source += "if (i != 7) s[i] = i; __syncthreads(); y[i] = s[i]; }"
    out = engine.run(source, 3, 40, {"y": np.zeros(40, F)})
    fault = out.faults[-1]
    assert (fault.kind, fault.line, fault.array, fault.thread, fault.count) == ("uninitialised", 2, "s", (7, 0, 0), 3)
    assert np.isnan(out.arrays["y"][7])


def test_an_index_beyond_one_array_does_not_pass_for_the_next(engine):
    source = 'extern "C" __global__ void k(int* y, int n) { __shared__ int a[40], b[40]; int i = threadIdx.x;\n'
    source += "b[i] = 1; a[i + n] = 2;\n __syncthreads(); y[i] = a[i] + b[i]; }"
    for n, element in (
        (1, "element 40 of a, but a has 40 elements"),
        (-1, "element -1 of a, but a begins at element 0"),
    ):
        fault = engine.run(source, 1, 40, {"y": np.zeros(40, I), "n": I(n)}).faults[0]
        assert (fault.kind, fault.line, fault.array) == ("out-of-bounds", 2, "a")
        assert element in fault.message


def test_a_misaligned_vector_in_shared_memory(engine):
    source = """extern "C" __global__ void k(float4* y, int n) { __shared__ __align__(16) float s[64];
        s[threadIdx.x] = 1; __syncthreads(); y[0] = *(float4*)(s + n); }"""
    fault = engine.run(source, 1, 64, {"y": np.zeros(4, F), "n": I(3)}).faults[0]
    assert (fault.kind, fault.array) == ("misaligned", "s")
    assert "reads 16 bytes at byte 12 of s" in fault.message


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("if (i % 32 < 8)\n __syncthreads();", 3, "thread (8, 0, 0) of block (0, 0, 0) of its warp is on another path"),
        ("if (i < 32)\n __syncthreads();", 3, "thread (32, 0, 0) of block (0, 0, 0) has already returned"),
        ("if (i < 32)\n __syncthreads();\n else\n __syncthreads();", 3, "thread (32, 0, 0) of block (0, 0, 0) waits at "
         "the one in line 5"),
        ("if (i == 3) return;\n __syncthreads();", 3, "thread (3, 0, 0) of block (0, 0, 0) has already returned"),
        ("if (i == 3)\n __syncwarp();", 3, "waits in __syncwarp for lane 0"),
    ],
)  # fmt: skip
def test_a_barrier_that_not_all_threads_come_to(engine, body, line, what):
    source = f'extern "C" __global__ void k(volatile int* y) {{ int i = threadIdx.x;\n {body}\n y[i] += y[i + 64]; }}'
    fault = engine.run(source, 2, 64, {"y": np.zeros(128, I)}).faults[0]
    assert (fault.kind, fault.line) == ("divergent-barrier", line)
    assert what in fault.message


def test_a_loop_whose_warps_wait_different_numbers_of_times_ends(engine):
    source = """extern "C" __global__ void k(int* y) { for (int j = 0; j <= threadIdx.x / 32; j++) __syncthreads();
        y[threadIdx.x] = 1; }"""
    out = engine.run(source, 1, 128, {"y": np.zeros(128, I)})
    assert (out.fault().kind, out.fault().count) == ("divergent-barrier", 3)
    assert out.arrays["y"].tolist() == [1] * 128


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 8, 32, 33])
def test_bank_conflicts_of_a_stride(engine, stride):
    source = f"""extern "C" __global__ void k(float* y) {{ __shared__ volatile float s[33 * 32]; int i = threadIdx.x;
        s[i * {stride}] = i; y[i] = s[i * {stride}]; }}"""
    out = engine.run(source, 2, 32, {"y": np.zeros(32, F)})
    store, load = out.counters.shared
    ways = np.gcd(stride, 32)
    assert [(a.op, a.array, a.requests, a.wavefronts, a.conflicts) for a in (store, load)] == [
        ("store", "s", 2, 2 * ways, 2 * ways - 2),
        ("load", "s", 2, 2 * ways, 2 * ways - 2),
    ]


def test_a_broadcast_takes_one_wavefront(engine):
    source = """extern "C" __global__ void k(float* y) { __shared__ float s[4]; int i = threadIdx.x;
        if (i < 4) s[i] = i; __syncthreads(); y[i] = s[i / 16] + s[2]; }"""
    out = engine.run(source, 1, 64, {"y": np.zeros(64, F)})
    assert [a.wavefronts for a in out.counters.shared if a.op == "load"] == [2, 2]
    assert out.counters.shared_requests("store") == 1


BANKS = json.loads((Path(__file__).parent / "hardware" / "banks.json").read_text())


@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.parametrize("op", ["load", "store"])
def test_wavefronts_are_those_that_a_gpu_counted(engine, op, width):
    """Every recorded pattern of lanes."""
    kind = {2: "short", 4: "float", 8: "float2", 16: "float4"}[width]
    body = {
        "load": "if (lanes[0] >> i & 1) y[i] = s[at[i]];",
        "store": "if (lanes[0] >> i & 1) s[at[i]] = y[0]; __syncthreads(); y[i] = s[at[31 - i]];",
    }[op]
    head = f'extern "C" __global__ void k(const int* at, const unsigned* lanes, {kind}* y)'
    source = f"{head} {{ __shared__ {kind} s[1024]; int i = threadIdx.x; {body} }}"
    for row in (r for r in BANKS["rows"] if r["width"] == width and r["op"] == op):
        pattern = BANKS["patterns"][row["pattern"]]
        args = {"at": np.array(pattern["elements"], I), "lanes": np.array([pattern["lanes"]], np.uint32)}
        out = engine.run(source, 1, 32, args | {"y": np.zeros(16 * width, np.int16)})
        assert out.counters.wavefronts(op) == row["wavefronts"], row["pattern"]  # no matter what was written before


# -- asynchronous copies ---------------------------------------------------------------------------

COPIES = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* x, float* y, int n) {{ __shared__ __align__(16) float s[2][256];
    int i = threadIdx.x; float sum = 0;
    __pipeline_memcpy_async(&s[0][i * 4], x + i * 4, 16); __pipeline_commit();
    for (int t = 0; t < n; t++) {{
        if (t + 1 < n) __pipeline_memcpy_async(&s[(t + 1) & 1][i * 4], x + (t + 1) * 256 + i * 4, 16);
        __pipeline_commit();
        {wait}
        sum += s[t & 1][255 - i] + s[t & 1][i];
        {after}
    }}
    y[i] = sum; }}"""


def run_copies(engine, wait="__pipeline_wait_prior(1); __syncthreads();", after="__syncthreads();"):
    x = np.random.default_rng(5).integers(0, 100, (5, 256)).astype(F)
    source = COPIES.format(wait=wait, after=after)
    out = engine.run(source, 1, 64, {"x": x, "y": np.zeros(64, F), "n": I(5)})
    return out, (x[:, :64] + x[:, :-65:-1]).sum(axis=0)


def test_asynchronous_copies_overlap_with_work(engine):
    out, expected = run_copies(engine)
    assert out.faults == []
    assert out.arrays["y"].tolist() == expected.tolist()
    assert out.counters.requests("load", "x") == 10
    assert out.counters.shared_requests("store", "s") == 10


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ({"wait": "__syncthreads();"}, "which an asynchronous copy has yet to fill"),
        ({"wait": "__pipeline_wait_prior(2); __syncthreads();"}, "which an asynchronous copy has yet to fill"),
        ({"wait": "__pipeline_wait_prior(1);"}, "stores to"),
        ({"wait": "__syncthreads(); __pipeline_wait_prior(1);"}, "which thread"),
        ({"after": ""}, "which an asynchronous copy has yet to fill"),
    ],
)
def test_what_is_copied_must_be_waited_for(engine, steps, what):
    out, _ = run_copies(engine, **steps)
    assert {f.kind for f in out.faults} <= {"shared-race", "uninitialised"}
    assert any(what in f.message for f in out.faults if f.kind == "shared-race")


def test_a_copy_out_of_bounds_is_found_on_both_sides(engine):
    source = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* x, float* y) { __shared__ float s[32]; int i = threadIdx.x;
    __pipeline_memcpy_async(&s[i + 1], x + i + 1, 4);
    __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); y[i] = i ? s[i] : 0; }"""
    out = engine.run(source, 1, 32, {"x": np.ones(32, F), "y": np.zeros(32, F)})
    assert [(f.kind, f.line, f.array, f.thread) for f in out.faults] == [
        ("out-of-bounds", 3, "x", (31, 0, 0)),
        ("out-of-bounds", 3, "s", (31, 0, 0)),
    ]
