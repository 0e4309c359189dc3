"""Shuffles, votes, matches and reductions give what the CUDA guide says, on both executors, or name the mistake."""

from __future__ import annotations

import numpy as np
import pytest

LANES = np.arange(32)
VALUES = (LANES * 7919 % 1009).astype(np.int32)


def shuffled(engine, call: str, width: int = 32, by=0) -> np.ndarray:
    """What every lane gets from `call` on its value v, where every lane's `by` may differ."""
    source = f"""
extern "C" __global__ void k(const int* x, const int* by, int* y) {{
    int i = threadIdx.x, v = x[i], b = by[i];
    y[i] = {call};
}}"""
    out = engine.run(source, 1, 32, {"x": VALUES, "by": np.broadcast_to(by, 32).astype(np.int32), "y": VALUES * 0})
    assert out.faults == []
    return out.arrays["y"]


@pytest.mark.parametrize("width", [32, 8, *(pytest.param(w, marks=pytest.mark.full) for w in (16, 4, 1))])
@pytest.mark.parametrize("by", [1, 16, *(pytest.param(b, marks=pytest.mark.full) for b in (0, 3, 31))])
def test_shuffles_move_values_within_their_segments(engine, width, by):
    first = LANES // width * width
    last = first + width - 1
    down, up, across = LANES + by % 32, LANES - by % 32, LANES ^ by
    expected = {
        f"__shfl_down_sync(~0u, v, {by}, {width})": np.where(down <= last, down, LANES),
        f"__shfl_up_sync(~0u, v, {by}, {width})": np.where(up >= first, up, LANES),
        f"__shfl_xor_sync(~0u, v, {by}, {width})": np.where(across <= last, across, LANES),
        f"__shfl_sync(~0u, v, {by}, {width})": first + by % width,
    }
    for call, source in expected.items():
        assert (shuffled(engine, call) == VALUES[source]).all(), call


def test_each_lane_may_read_from_a_lane_of_its_own(engine):
    by = LANES * 5 % 32
    assert (shuffled(engine, "__shfl_sync(~0u, v, b)", by=by) == VALUES[by]).all()


def test_a_double_is_shuffled_whole(engine):
    source = 'extern "C" __global__ void k(double* x) { x[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 1); }'
    x = np.random.default_rng(1).standard_normal(32)
    assert (engine.run(source, 1, 32, {"x": x}).arrays["x"] == x[LANES ^ 1]).all()


def test_a_warp_sums_by_shuffles_in_the_order_of_the_tree(engine):
    source = """
extern "C" __global__ void k(const float* x, float* y) {
    float v = x[blockIdx.x * 32 + threadIdx.x];
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
}"""
    x = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
    out = engine.run(source, 5, 32, {"x": x, "y": np.zeros(5, np.float32)}, undefined=("y",))
    tree = x
    while tree.shape[1] > 1:
        tree = tree[:, : tree.shape[1] // 2] + tree[:, tree.shape[1] // 2 :]
    assert out.faults == []
    assert (out.arrays["y"] == tree[:, 0]).all()


VOTES = """
extern "C" __global__ void k(const int* x, unsigned* y) {
    int i = threadIdx.x;
    unsigned mask = i < 20 ? 0xfffffu : 0xfff00000u;
    int v = x[i];
    if (i < 20)
        y[i] = __ballot_sync(mask, v > 3) + (__any_sync(mask, v > 9) << 20) + (__all_sync(mask, v >= 0) << 21);
    else
        y[i] = __ballot_sync(mask, v > 3) ^ __any_sync(mask, v > 9) ^ (__all_sync(mask, v >= 9) << 1);
}"""


@pytest.mark.parametrize("seed", range(4))
def test_votes_ask_the_lanes_of_the_mask_on_each_side_of_a_branch(engine, seed):
    x = np.random.default_rng(seed).integers(-1 if seed % 2 else 0, 11, 32).astype(np.int32)
    out = engine.run(VOTES, 1, 32, {"x": x, "y": np.zeros(32, np.uint32)})
    bits = [int(x[i] > 3) << i for i in range(32)]
    low = sum(bits[:20]) + (int((x[:20] > 9).any()) << 20) + (int((x[:20] >= 0).all()) << 21)
    high = sum(bits[20:]) ^ int((x[20:] > 9).any()) ^ (int((x[20:] >= 9).all()) << 1)
    assert out.faults == []
    assert out.arrays["y"].tolist() == [low] * 20 + [high] * 12


def test_the_lanes_of_a_partial_warp_need_not_name_only_those_that_exist(engine):
    source = 'extern "C" __global__ void k(unsigned* y) { y[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 3 == 0); }'
    out = engine.run(source, 1, 40, {"y": np.zeros(40, np.uint32)})
    assert out.faults == []
    ballots = [sum(1 << i for i in range(n) if (first + i) % 3 == 0) for first, n in ((0, 32), (32, 8))]
    assert out.arrays["y"].tolist() == [ballots[0]] * 32 + [ballots[1]] * 8


def test_activemask_names_the_lanes_of_the_branch(engine):
    source = 'extern "C" __global__ void k(unsigned* y) { if (threadIdx.x & 1) y[threadIdx.x] = __activemask(); }'
    out = engine.run(source, 1, 32, {"y": np.zeros(32, np.uint32)})
    assert out.arrays["y"].tolist() == [0, 0xAAAAAAAA] * 16


@pytest.mark.parametrize("kind", ["unsigned", "unsigned long long"])
def test_match_finds_equal_values(engine, kind):
    source = f"""
extern "C" __global__ void k(const {kind}* x, unsigned* y, int* z) {{
    int i = threadIdx.x, same;
    y[i] = __match_any_sync(~0u, x[i]);
    y[i + 32] = __match_all_sync(~0u, x[i], &same);
    z[i] = same;
}}"""
    dtype = np.uint64 if "long" in kind else np.uint32
    for x in (LANES % 5, LANES * 0 + 9):
        x = (x * (2**40 + 1 if "long" in kind else 1)).astype(dtype)
        out = engine.run(source, 1, 32, {"x": x, "y": np.zeros(64, np.uint32), "z": np.zeros(32, np.int32)})
        assert out.arrays["y"][:32].tolist() == [sum(1 << j for j in range(32) if x[j] == v) for v in x]
        equal = len(set(x)) == 1
        assert set(out.arrays["y"][32:]) == {0xFFFFFFFF if equal else 0}
        assert set(out.arrays["z"]) == {int(equal)}


REDUCTIONS = {
    "add": ("unsigned", lambda v: int(v.sum(dtype=np.uint64)) & 0xFFFFFFFF),
    "min": ("int", lambda v: int(v.view(np.int32).min())),
    "max": ("unsigned", lambda v: int(v.max())),
    "and": ("unsigned", lambda v: int(np.bitwise_and.reduce(v))),
    "or": ("unsigned", lambda v: int(np.bitwise_or.reduce(v))),
    "xor": ("unsigned", lambda v: int(np.bitwise_xor.reduce(v))),
}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_each_half_of_a_warp(engine, op):
    kind, expected = REDUCTIONS[op]
    source = f"""
extern "C" __global__ void k(const {kind}* x, {kind}* y) {{
    int i = threadIdx.x;
    y[i] = __reduce_{op}_sync(i < 16 ? 0xffffu : 0xffff0000u, x[i]);
}}"""
    x = np.random.default_rng(2).integers(0, 2**32, 32, dtype=np.uint32)
    out = engine.run(source, 1, 32, {"x": x, "y": np.zeros(32, np.uint32 if kind == "unsigned" else np.int32)})
    assert out.faults == []
    assert out.arrays["y"].tolist() == [expected(x[:16])] * 16 + [expected(x[16:])] * 16


# -- mistakes ------------------------------------------------------------------------------------


def test_a_lane_that_waits_for_one_elsewhere_is_named(engine):
    source = """extern "C" __global__ void k(int* x) {
    int v = x[threadIdx.x];
    if (threadIdx.x < 20)
        v += __shfl_down_sync(0xffffffff, v, 1);
    x[threadIdx.x] = v;
}"""
    away, silent = engine.run(source, 1, 64, {"x": np.arange(64, dtype=np.int32)}).faults
    assert (away.kind, away.line, away.thread, away.count) == ("divergent-barrier", 4, (0, 0, 0), 20)
    assert "waits in __shfl_down_sync for lane 20, thread (20, 0, 0) of block (0, 0, 0)" in away.message
    assert (silent.kind, silent.line, silent.thread, silent.count) == ("uninitialised", 4, (19, 0, 0), 1)
    assert "reads from lane 20 in __shfl_down_sync, but that lane takes no part in it" in silent.message


def test_a_shuffle_from_a_lane_that_does_not_exist_is_named(engine):
    source = 'extern "C" __global__ void k(int* x) { x[threadIdx.x] = __shfl_down_sync(~0u, x[threadIdx.x], 8); }'
    out = engine.run(source, 1, 40, {"x": np.arange(40, dtype=np.int32)})
    fault = out.fault()
    assert (fault.kind, fault.thread, fault.count) == ("uninitialised", (32, 0, 0), 8)
    assert "lane 8 in __shfl_down_sync, but that lane does not exist in this block" in fault.message
    assert out.arrays["x"].tolist() == [*range(8, 32), *range(24, 32), *[0] * 8]


def test_lanes_that_have_ended_may_be_named_but_not_read(engine):
    source = """extern "C" __global__ void k(unsigned* y, int from) {
    if (threadIdx.x >= 24) return;
    y[threadIdx.x] = __ballot_sync(0xffffffff, 1);
    y[threadIdx.x] += __shfl_sync(0xffffffff, threadIdx.x, from);
}"""
    good = engine.run(source, 1, 32, {"y": np.zeros(32, np.uint32), "from": np.int32(5)})
    assert good.faults == []
    assert good.arrays["y"].tolist() == [0xFFFFFF + 5] * 24 + [0] * 8
    bad = engine.run(source, 1, 32, {"y": np.zeros(32, np.uint32), "from": np.int32(25)})
    assert (bad.fault().kind, bad.fault().line, bad.fault().count) == ("uninitialised", 4, 24)


def test_a_lane_outside_of_its_own_mask_is_named(engine):
    source = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = __any_sync(0xffff, 1); }'
    fault = engine.run(source, 1, 32, {"y": np.zeros(32, np.int32)}).fault()
    assert (fault.kind, fault.thread, fault.count) == ("divergent-barrier", (16, 0, 0), 16)
    assert "calls __any_sync with the mask 0x0000ffff, in which its own lane 16 is missing" in fault.message


def test_lanes_that_leave_a_loop_early_are_missed_by_those_that_stay(engine):
    source = """extern "C" __global__ void k(int* y) {
    int n = 0;
    for (int i = 0; i < (int)threadIdx.x % 3 + 1; i++)
        n += __any_sync(0xffffffff, i == 2);
    y[threadIdx.x] = n;
}"""
    fault = engine.run(source, 1, 32, {"y": np.zeros(32, np.int32)}).fault()
    assert (fault.kind, fault.line, fault.thread) == ("divergent-barrier", 4, (1, 0, 0))


def test_lanes_must_agree_on_the_mask(engine):
    source = """extern "C" __global__ void k(int* y) {
    y[threadIdx.x] = __all_sync(threadIdx.x < 8 ? 0xffffffffu : 0xffffff00u, 1);
}"""
    fault = engine.run(source, 1, 32, {"y": np.zeros(32, np.int32)}).fault()
    assert (fault.kind, fault.thread, fault.count) == ("divergent-barrier", (0, 0, 0), 8)
    assert "for lane 8" in fault.message
