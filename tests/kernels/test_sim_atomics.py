"""Atomic functions give what one lane after the other would, count as the hardware's, and race only with the rest."""

from __future__ import annotations

import numpy as np
import pytest

N = 70

#: CUDA's function -> (C types, the new contents from the old and the operand).
FUNCTIONS = {
    "atomicAdd": ("int unsigned float double ull", lambda old, b: old + b),
    "atomicSub": ("int unsigned", lambda old, b: old - b),
    "atomicMin": ("int unsigned ull ll", min),
    "atomicMax": ("int unsigned ull ll", max),
    "atomicAnd": ("int unsigned ull", lambda old, b: old & b),
    "atomicOr": ("int unsigned ull", lambda old, b: old | b),
    "atomicXor": ("int unsigned ull", lambda old, b: old ^ b),
    "atomicExch": ("int unsigned ull float", lambda old, b: b),
    "atomicInc": ("unsigned", lambda old, b: np.uint32(0) if old >= b else old + np.uint32(1)),
    "atomicDec": ("unsigned", lambda old, b: b if old == 0 or old > b else old - np.uint32(1)),
}
TYPES = {
    "int": ("int", np.int32), "unsigned": ("unsigned", np.uint32), "float": ("float", np.float32),
    "double": ("double", np.float64), "ull": ("unsigned long long", np.uint64), "ll": ("long long", np.int64),
}  # fmt: skip
CASES = [(f, t) for f, (types, _) in FUNCTIONS.items() for t in types.split()]


def operands(dtype, count: int) -> np.ndarray:
    """Edge values and noise."""
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind == "f":
        values = (rng.standard_normal(count) * 10.0 ** rng.integers(-5, 6, count)).astype(dtype)
        values[:3] = [0, -0.0, np.inf]
        return values
    values = rng.integers(0, 256, count * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype)
    values[:4] = [0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min]
    values[4:20] %= 5
    return values


@pytest.mark.parametrize(("function", "kind"), CASES)
def test_threads_take_turns_in_their_order(engine, function, kind):
    name, dtype = TYPES[kind]
    source = f"""
extern "C" __global__ void k({name}* y, const {name}* x, {name}* old) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < {N}) old[i] = {function}(&y[i % 3], x[i]);
}}"""
    x, y, old = operands(dtype, N), operands(dtype, 5)[1:4].copy(), np.zeros(N, dtype)
    out = engine.run(source, 2, 50, {"y": y, "x": x, "old": old}, undefined=("old",))
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(N):
            old[i] = y[i % 3]
            y[i % 3] = FUNCTIONS[function][1](y[i % 3], x[i])
    assert out.faults == []
    assert out.arrays["old"].tobytes() == old.tobytes()
    assert out.arrays["y"].tobytes() == y.tobytes()


@pytest.mark.parametrize("kind", ["int", "unsigned", "ull", "unsigned short"])
def test_compare_and_swap_lets_one_thread_win(engine, kind):
    name = TYPES.get(kind, (kind,))[0]
    dtype = np.uint16 if kind == "unsigned short" else TYPES[kind][1]
    source = f"""
extern "C" __global__ void k({name}* lock, {name}* seen) {{
    seen[threadIdx.x] = atomicCAS(lock, ({name})7, ({name})(100 + threadIdx.x));
}}"""
    out = engine.run(source, 1, 40, {"lock": np.array([7], dtype), "seen": np.zeros(40, dtype)})
    assert out.faults == []
    assert out.arrays["lock"].tolist() == [100]
    assert out.arrays["seen"].tolist() == [7] + [100] * 39


def test_a_loop_of_compare_and_swap_multiplies(engine):
    source = """
extern "C" __global__ void k(float* y, const float* x) {
    int* place = (int*)y;
    int old = *(volatile int*)place, assumed;
    do {
        assumed = old;
        old = atomicCAS(place, assumed, __float_as_int(__int_as_float(assumed) * x[threadIdx.x]));
    } while (old != assumed);
}"""
    x = np.full(20, 1.5, np.float32)
    out = engine.run(source, 2, 10, {"y": np.ones(1, np.float32), "x": x})
    assert out.arrays["y"][0] == np.float32(1.5) ** 20
    assert out.faults == []  # the plain read is a guess that atomicCAS checks


@pytest.mark.parametrize("shared", [False, True])
def test_a_maximum_of_floats_by_compare_and_swap(engine, shared):
    source = """
__device__ float maximum(float* place, float value) {
    int* bits = (int*)place;
    int old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}
extern "C" __global__ void k(const float* x, float* y) {
    __shared__ float best;
    if (threadIdx.x == 0) best = -1e30f;
    __syncthreads();
    maximum(PLACE, x[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) maximum(y, best);
}"""
    x = np.random.default_rng(4).standard_normal(96).astype(np.float32)
    source = source.replace("PLACE", "&best" if shared else "y")
    out = engine.run(source, 2, 48, {"x": x, "y": np.full(1, -9, np.float32)})
    assert out.faults == []
    assert out.arrays["y"].tolist() == [x.max()]


SHARED_HISTOGRAM = """
extern "C" __global__ void k(const int* x, unsigned* y, int n) {
    __shared__ unsigned bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i]], 1u);
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}"""


def test_a_histogram_in_shared_memory_needs_its_barriers(engine):
    x = np.random.default_rng(0).integers(0, 32, 500).astype(np.int32)
    args = {"x": x, "y": np.zeros(32, np.uint32), "n": np.int32(500)}
    good = engine.run(SHARED_HISTOGRAM, 5, 100, args)
    assert good.faults == []
    assert good.arrays["y"].tolist() == np.bincount(x, minlength=32).tolist()
    head, _, tail = SHARED_HISTOGRAM.rpartition("    __syncthreads();\n")
    fault = engine.run(head + tail, 5, 100, args).faults[0]
    assert (fault.kind, fault.line) == ("shared-race", 8)
    assert "updates atomically at line 7" in fault.message


def test_updates_in_shared_memory_keep_subnormals(engine):
    source = """
extern "C" __global__ void k(float* y, float x) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 1e-40f;
    __syncthreads();
    atomicAdd(&sum, x);
    __syncthreads();
    y[threadIdx.x] = sum;
}"""
    out = engine.run(source, 1, 3, {"y": np.zeros(3, np.float32), "x": np.float32(2e-41)})
    expected = np.float32(1e-40)
    for _ in range(3):
        expected += np.float32(2e-41)
    assert out.arrays["y"].tolist() == [expected] * 3


def test_single_precision_updates_flush_subnormals(engine):
    source = 'extern "C" __global__ void k(float* y, float x) { atomicAdd(y, x); }'
    out = engine.run(source, 1, 1, {"y": np.array([1e-40], np.float32), "x": np.float32(-2e-40)})
    assert out.arrays["y"].view(np.uint32).tolist() == [0]


HISTOGRAM = """
extern "C" __global__ void k(const int* x, unsigned* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i]], 1u);
}"""


def turns(bins: np.ndarray) -> int:
    """Sectors that a warp's updates move: of each, one for every lane at the address that most lanes update."""
    lanes = np.bincount(bins, minlength=320)
    return int(lanes.reshape(-1, 8).max(axis=1).sum())


#: Bins of a warp's lanes, and the sectors that Nsight Compute counted of their updates on an NVIDIA H100 80GB.
LANES = np.arange(32)
PATTERNS = {
    "every sector once": (LANES * 8, 32),
    "neighbours": (LANES, 4),
    "a pair": (np.where(LANES == 1, 0, LANES * 8), 32),
    "two pairs in a sector": (np.where(LANES < 4, LANES // 2, LANES * 8), 30),
    "a pair and its neighbour": (np.where(LANES < 2, 0, np.where(LANES == 2, 1, LANES * 8)), 31),
    "four pairs in a sector": (np.where(LANES < 8, LANES // 2, LANES * 8), 26),
    "all at one": (LANES * 0, 32),
    "two halves": (LANES // 16 * 8, 32),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_lanes_that_update_one_address_take_turns(engine, pattern):
    bins, sectors = PATTERNS[pattern]
    args = {"x": bins.astype(np.int32), "bins": np.zeros(256, np.uint32), "n": np.int32(32)}
    (updates,) = [a for a in engine.run(HISTOGRAM, 1, 32, args).counters.accesses if a.array == "bins"]
    assert (updates.requests, updates.sectors) == (1, sectors)


def test_a_histogram_is_exact_and_has_no_race(engine):
    x = np.random.default_rng(0).integers(0, 37, 1000).astype(np.int32)
    out = engine.run(HISTOGRAM, 8, 128, {"x": x, "bins": np.zeros(37, np.uint32), "n": np.int32(1000)})
    assert out.faults == []
    assert out.arrays["bins"].tolist() == np.bincount(x, minlength=37).tolist()
    (updates,) = [a for a in out.counters.accesses if a.array == "bins"]
    sectors = sum(turns(x[first : first + 32]) for first in range(0, 1000, 32))
    assert (updates.op, updates.requests, updates.threads, updates.sectors) == ("reduction", 32, 1000, sectors)


def test_an_update_whose_old_value_is_read_is_counted_as_atomic(engine):
    source = """
extern "C" __global__ void k(int* y, int* z) {
    z[threadIdx.x] = atomicAdd(y, 1);
    atomicMax(y, 5);
    atomicExch(z, 3);
}"""
    out = engine.run(source, 1, 32, {"y": np.zeros(1, np.int32), "z": np.zeros(32, np.int32)})
    ops = [(a.op, a.array, a.requests, a.sectors) for a in out.counters.accesses]
    assert ops == [
        ("atomic", "y", 1, 1), ("store", "z", 1, 4), ("reduction", "y", 1, 1), ("atomic", "z", 1, 32)
    ]  # fmt: skip


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("atomicAdd(&y[0], 1); if (threadIdx.x == 9) y[1] = y[0];", "thread (9, 0, 0) of block (0, 0, 0) reads y[0], "
         "which thread (31, 0, 0) of block (0, 0, 0) updates atomically at line 1"),
        ("if (threadIdx.x == 9) y[1] = y[0]; atomicAdd(&y[0], 1);", "thread (0, 0, 0) of block (0, 0, 0) atomically "
         "updates y[0], but thread (9, 0, 0) of block (0, 0, 0) reads it at line 1 without an atomic function"),
        ("atomicAdd(&y[0], 1); if (threadIdx.x == 9) y[0] = 3;", "thread (9, 0, 0) of block (0, 0, 0) stores to y[0], "
         "which thread (31, 0, 0) of block (0, 0, 0) updates atomically"),
        ("if (threadIdx.x == 9) y[0] = 3; atomicAdd(&y[0], 1);", "thread (0, 0, 0) of block (0, 0, 0) atomically "
         "updates y[0], but thread (9, 0, 0) of block (0, 0, 0) stores to it at line 1 without an atomic function"),
        ("if (threadIdx.x == 9) { y[0] = 3; atomicAdd(&y[0], 1); } if (threadIdx.x == 5) atomicAdd(&y[0], 1);",
         "thread (5, 0, 0) of block (0, 0, 0) atomically updates y[0], but thread (9, 0, 0) of block (0, 0, 0) stores"),
    ],
)  # fmt: skip
def test_a_plain_access_races_with_another_threads_update(engine, body, message):
    source = f'extern "C" __global__ void k(volatile int* yy) {{ int* y = (int*)yy; {body} }}'
    source = source.replace("= y[0]", "= yy[0]").replace("y[0] = 3", "yy[0] = 3")
    fault = engine.run(source, 1, 32, {"y": np.zeros(2, np.int32)}).faults[0]
    assert (fault.kind, fault.array) == ("global-race", "y")
    assert message in fault.message


def test_a_threads_own_updates_do_not_race_with_its_own_accesses(engine):
    source = """
extern "C" __global__ void k(int* y, int* z) {
    int i = threadIdx.x;
    y[i] = 1;
    atomicAdd(&y[i], 2);
    z[i] = y[i];
    y[i] = z[i] + 1;
}"""
    out = engine.run(source, 1, 48, {"y": np.zeros(48, np.int32), "z": np.zeros(48, np.int32)})
    assert out.faults == []
    assert out.arrays["y"].tolist() == [4] * 48


def test_updates_stay_in_bounds_aligned_and_on_defined_values(engine):
    source = """
extern "C" __global__ void k(int* y, int* z, long long at) {
    atomicAdd(&y[threadIdx.x], 1);
    atomicAdd((int*)((char*)z + at), 1);
}"""
    args = {"y": np.zeros(30, np.int32), "z": np.zeros(3, np.int32), "at": np.int64(2)}
    outside, odd, fresh = engine.run(source, 1, 32, args, undefined=("y",)).faults
    assert (outside.kind, outside.line, outside.thread, outside.count) == ("out-of-bounds", 3, (30, 0, 0), 2)
    assert "atomically updates y[30], but y has 30 elements" in outside.message
    assert (odd.kind, odd.line, odd.count) == ("misaligned", 4, 32)
    assert "atomically updates 4 bytes at byte 2 of z" in odd.message
    assert (fresh.kind, fresh.line, fresh.count) == ("uninitialised", 3, 30)


def test_an_exchange_defines_what_it_overwrites(engine):
    source = 'extern "C" __global__ void k(float* y) { atomicExch(&y[threadIdx.x], 2.f); }'
    out = engine.run(source, 1, 32, {"y": np.zeros(32, np.float32)}, undefined=("y",))
    assert out.faults == []
    assert (out.arrays["y"] == 2).all()


@pytest.mark.parametrize(
    ("update", "sectors"),
    [
        ("atomicAdd(n, i)", 2),  # the lanes that run add up first
        ("atomicMax(n, i)", 2),
        ("y[i] = atomicAdd(n, 1)", 2),
        ("y[i] = atomicAdd(n, i)", 1 + 8),  # only whole warps do
        ("y[i] = atomicMax(n, i)", 40),
        ("atomicExch(n, i)", 40),
        ("atomicCAS(n, i, 3)", 40),
        ("atomicInc((unsigned*)n, 9)", 40),
        ("atomicAdd((float*)n, 1.5f)", 40),
        ("atomicAdd((unsigned long long*)n, 5ull)", 2),
        ("atomicAdd((unsigned long long*)n, (unsigned long long)i)", 40),
        ("atomicMax((unsigned long long*)n, 5ull)", 40),
    ],
)
def test_lanes_that_update_one_place_do_so_together_or_in_turns(engine, update, sectors):
    source = f"""extern "C" __global__ void k(int* n, int* y) {{ int i = threadIdx.x; {update}; }}"""
    out = engine.run(source, 1, 40, {"n": np.zeros(2, np.int32), "y": np.zeros(40, np.int32)})
    assert sum(out.counters.sectors(op) for op in ("atomic", "reduction")) == sectors
