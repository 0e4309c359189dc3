"""Launches that race: what the second look at them finds, and where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels.sim import investigation, numpy_executor

I, F = np.int32, np.float32

#: Each block reverses its elements; those in RACY do so without a barrier, the last one reads too far.
REVERSE = """extern "C" __global__ void k(const float* x, float* y, int racy, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, b = blockIdx.x * 64;
    s[t] = x[b + t];
    if (blockIdx.x >= racy) __syncthreads();
    y[b + t] = s[63 - t] + (t == 63 && blockIdx.x == n ? x[b + 64] : 0);
}"""

#: Later blocks race in another way than earlier ones.
LATE = """extern "C" __global__ void k(float* y, int from) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = t;
    __syncwarp();
    y[blockIdx.x * 64 + t] = s[63 - t];
    if (blockIdx.x >= from) y[blockIdx.x] = t;
}"""


def reverse(engine, racy, n=-1, blocks=24):
    x = np.arange(64 * blocks, dtype=F)
    return engine.run(REVERSE, blocks, 64, {"x": x, "y": np.zeros_like(x), "racy": I(racy), "n": I(n)}, undefined="y")


def counts(out):
    return [(f.kind, f.line, f.count, f.is_counted) for f in out.faults]


@pytest.fixture
def impatient(monkeypatch):
    """A launch is watched for no more than two blocks' work without anything new."""
    for module in (investigation, numpy_executor):
        monkeypatch.setattr(module, "PATIENCE", 700)
    monkeypatch.setattr(investigation, "ENOUGH", 300)


@pytest.mark.parametrize("racy", [1, 7, 24])
def test_every_race_is_counted_while_a_launch_is_watched(engine, racy):
    found = [("shared-race", 4), ("shared-race", 6), ("uninitialised", 6)]  # the second warp stores what the first read
    assert counts(reverse(engine, racy)) == [(kind, line, 32 * racy, True) for kind, line in found]


def test_a_launch_that_races_all_over_is_not_watched_to_the_end(engine, impatient):
    out = reverse(engine, 24)
    count = out.faults[0].count
    assert 32 <= count < 24 * 32
    assert [(f.count, f.is_counted) for f in out.faults] == [(count, False)] * 3
    assert all(f"(at least {count} times)" in str(f) for f in out.faults)


def test_what_is_no_longer_watched_still_counts_and_computes(engine, impatient):
    racy, whole = reverse(engine, 24), reverse(engine, 0)
    assert racy.counters.accesses == whole.counters.accesses
    assert racy.counters.shared == whole.counters.shared
    np.testing.assert_array_equal(racy.arrays["y"].reshape(24, 64)[:, 32:], whole.arrays["y"].reshape(24, 64)[:, 32:])


def test_faults_that_are_no_races_are_found_to_the_end(engine, impatient):
    assert counts(reverse(engine, 24, n=23))[0] == ("out-of-bounds", 6, 1, True)


def test_something_new_is_worth_another_look(engine, impatient):
    out = engine.run(LATE, 24, 64, {"y": np.zeros(64 * 24, F), "from": I(2)})
    assert {(f.kind, f.line) for f in out.faults} == {
        ("shared-race", 4), ("shared-race", 6), ("uninitialised", 6), ("global-race", 7)
    }  # fmt: skip


@pytest.mark.parametrize("racy", [0, 3])
def test_a_report_does_not_depend_on_what_was_suspected(engine, monkeypatch, racy):
    """Here all blocks are looked into."""
    found = counts(reverse(engine, racy, n=23))
    survey = investigation.suspects
    monkeypatch.setattr(investigation, "suspects", lambda run, launch: survey(run, launch) | True)
    assert counts(reverse(engine, racy, n=23)) == found
