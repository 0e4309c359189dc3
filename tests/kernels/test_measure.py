"""Timing: what is computed of times needs no GPU; sessions themselves do."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from convladder.kernels import measure, plan
from convladder.kernels.errors import BackendError
from convladder.kernels.launch import compile_cuda

SCALE = """
//@ const TILE = 128
//@ launch scale grid=cdiv(N, TILE) block=TILE
__global__ void scale(const float* x, float* y, int N)
{
    int i = blockIdx.x * TILE + threadIdx.x;
    if (i < N) y[i] = 2.0f * x[i];
}
"""
TWICE = """
//@ temp half float[N]
//@ launch halve grid=cdiv(N, 64) block=64 args=(x, half, N)
//@ launch quadruple grid=cdiv(N, 64) block=64 args=(half, y, N)
__global__ void halve(const float* x, float* h, int N)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < N) h[i] = 0.5f * x[i];
}
__global__ void quadruple(const float* h, float* y, int N)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < N) y[i] = 4.0f * h[i];
}
"""
DEVICE = "0000:01:00.0"


def test_the_inputs_of_a_run_repeat_and_those_of_two_runs_differ() -> None:
    shapes = {"x": (3, 50), "w": (7,)}
    first, again, other = (measure.fresh(b"key", call, shapes) for call in (0, 0, 1))
    assert all(np.array_equal(first[n], again[n]) for n in shapes)
    assert not np.intersect1d(first["x"], other["x"]).size
    assert first["x"].dtype == np.float32
    assert abs(first["x"]).max() <= 1


def test_other_keys_give_other_inputs() -> None:
    one, two = (measure.fresh(key, 0, {"x": (100,)})["x"] for key in (b"one", b"two"))
    assert not np.array_equal(one, two)


def test_the_interval_of_a_ratio_holds_it_and_shrinks_with_rounds() -> None:
    rng = np.random.default_rng(0)
    widths = []
    for rounds in (10, 1000):
        base, fast = 4 * rng.normal(1, 0.05, rounds), 2 * rng.normal(1, 0.05, rounds)
        found = measure.bootstrap(measure.median_ratio, base, fast)
        assert found.low <= 2 <= found.high
        assert found.low <= found.value <= found.high
        widths.append(found.width)
    assert widths[1] < widths[0] / 3


def test_what_a_round_does_to_all_its_texts_cancels() -> None:
    drift = np.random.default_rng(0).uniform(1, 5, 20)
    found = measure.bootstrap(measure.median_ratio, 6 * drift, 2 * drift)
    assert (found.low, found.value, found.high) == pytest.approx((3, 3, 3))


def test_the_same_samples_give_the_same_interval() -> None:
    samples = np.random.default_rng(0).uniform(1, 2, (2, 15))
    assert measure.bootstrap(measure.median_ratio, *samples) == measure.bootstrap(measure.median_ratio, *samples)


@pytest.mark.parametrize(
    ("moved", "flops", "peak", "limit"),
    [
        (3e9, 0, 60_000, 1000),  # 3 GB at 3000 GB/s
        (0, 60e9, 60_000, 1000),  # 60 GFLOP at 60 TFLOP/s
        (3e9, 600e9, 60_000, 10_000),
        (3e9, 600e9, None, 1000),  # a device whose peak is not known has the memory's limit only
    ],
)
def test_the_limit_is_the_longer_of_bytes_and_operations(
    moved: float, flops: float, peak: float | None, limit: float
) -> None:
    assert measure.limit_us(moved, flops, 3000, peak) == pytest.approx(limit)


def test_the_reasons_of_low_clocks_are_told_in_words() -> None:
    assert measure.reason_names(0) == "nothing"
    assert measure.reason_names(0x4 | 0x40) == "power cap, thermal (hardware)"
    assert measure.reason_names(0x1000 | 0x1) == "idle, 0x1000"


def test_the_state_of_a_device_is_read_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "NVIDIA H100 80GB HBM3, 580.1, 1980 MHz, 2619 MHz, 1980 MHz, 45, 195.42 W, 0x0000000000000004\n"
    monkeypatch.setattr(measure.shutil, "which", lambda _: "nvidia-smi")
    monkeypatch.setattr(measure.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, said, ""))
    state = measure._state_by_smi(DEVICE)
    assert state["clocks.sm"] == "1980 MHz"
    assert state["held_down_by"] == "power cap"


def test_an_older_driver_is_asked_under_the_older_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if "clocks_event_reasons" in command[3]:
            return subprocess.CompletedProcess([], 2, "Field is not a valid field to query.\n", "")
        return subprocess.CompletedProcess([], 0, "Tesla T4, 470, 1, 2, 3, 4, 5 W, Not Active\n", "")

    monkeypatch.setattr(measure.shutil, "which", lambda _: "nvidia-smi")
    monkeypatch.setattr(measure.subprocess, "run", run)
    assert measure._state_by_smi(DEVICE)["held_down_by"] == "Not Active"


def test_without_any_tool_the_state_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.shutil, "which", lambda _: None)
    assert measure._state_by_smi(DEVICE) == {}


def test_the_launches_of_a_plan_can_be_had_without_running_them() -> None:
    text = plan.parse(TWICE)
    module = compile_cuda(TWICE)
    arrays = {n: np.zeros(100, np.float32) for n in ("x", "y")} | plan.temps(text, {"N": 100}, "sim")
    first, second = plan.ready(module, text, {"N": 100}, arrays)
    assert (first.kernel.name, first.grid, first.block) == ("halve", (2, 1, 1), (64, 1, 1))
    assert second.args[0].array is first.args[1].array
    assert not arrays["y"].any()


def test_timing_without_a_gpu_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise BackendError("CuPy finds no GPU")

    monkeypatch.setattr(measure, "cupy_module", missing)
    with pytest.raises(BackendError, match="no GPU"):
        measure.session({"a": measure.Text(SCALE)}, {"N": 8}, {"x": (8,)}, {"y": (8,)}, b"k")


@pytest.mark.gpu
def test_a_session_times_every_text_and_shows_what_the_watched_one_returned() -> None:
    seen: list[np.ndarray] = []

    def watch(number: int, runs: list[dict[str, np.ndarray]]) -> None:
        assert number * len(runs) == len(seen)
        seen.extend(run["y"] for run in runs)

    n = 100_000
    texts = {"one": measure.Text(SCALE), "two": measure.Text(TWICE)}
    found = measure.session(
        texts, {"N": n}, {"x": (n,)}, {"y": (n,)}, b"key", rounds=8, watched="two", watch=watch
    )  # fmt: skip
    assert {len(t) for t in found.times_us.values()} == {8}
    assert min(min(t) for t in found.times_us.values()) > 0
    assert found.calls > 1  # one run is a few microseconds
    assert len(seen) == 8 * found.calls
    for call, y in enumerate(seen):
        assert np.array_equal(y, 2 * measure.fresh(b"key", call, {"x": (n,)})["x"])
    assert found.bandwidth_gbs > 10


@pytest.mark.gpu
def test_no_text_finds_the_results_of_another() -> None:
    idle = "//@ launch nothing grid=1 block=1\n__global__ void nothing(const float* x, float* y, int N) {}\n"
    seen: list[np.ndarray] = []
    texts = {"works": measure.Text(SCALE), "idle": measure.Text(idle)}
    measure.session(
        texts, {"N": 64}, {"x": (64,)}, {"y": (64,)}, b"key", rounds=7, watched="idle",
        watch=lambda _, runs: seen.extend(run["y"] for run in runs),
    )  # fmt: skip
    assert np.isnan(seen).all()
