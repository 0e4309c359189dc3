"""Kernels that behave when they are checked and misbehave when they are timed, on a real GPU.

Each counts its runs in a `__device__` variable. A check loads the module anew for every case, so there each run is
the first; in a timing session the count goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from convladder.autograde.judge import check, open_worker, spec, timing
from convladder.autograde.judge.record import CheckRecord
from convladder.autograde.judge.sandbox import SandboxPolicy, Worker
from convladder.kernels.methods import ladder_source

pytestmark = pytest.mark.gpu

TASK = "direct_coalesced"
LAUNCH = "//@ launch direct_coalesced grid=(cdiv(Q, BX), cdiv(P, BY), N*K) block=(BX, BY)\n"
COUNT = f"{LAUNCH}//@ launch count_runs grid=1 block=1 args=()\n"
KERNEL = "__device__ int runs;\n__global__ void count_runs() {{ runs = runs + 1; }}\n\n__global__ void direct_coalesced"
STORE = "    y[((n * K + k) * P + p) * Q + q] = sum;\n"


def hostile(misdeed: str, honest_runs: int) -> str:
    """The solution, which does `misdeed` before its store once it has been run so often."""
    text = ladder_source(TASK)
    for old, new in (
        (LAUNCH, COUNT),
        ("__global__ void direct_coalesced", KERNEL.format()),
        (STORE, f"    if (*(volatile int*)&runs >= {honest_runs}) {misdeed}\n{STORE}"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One for all: what a hostile text leaves behind must not cost the next one a point."""
    with open_worker(SandboxPolicy("none", gpu=True)) as w:
        yield w


def judged(text: str, worker: Worker) -> dict[str, CheckRecord]:
    lab = spec.load("01_direct")
    found = check.check_task(lab, TASK, text, worker, on="gpu", timing="measured", secret=b"s")
    return {record.check.removeprefix(f"{TASK}."): record for record in found}


@pytest.mark.parametrize(
    ("misdeed", "says"),
    [
        ("sum = 0.0f;", "in a timed run"),
        ("y[1ll << 40] = sum;", "illegal memory access"),
        ("while (*(volatile int*)&runs > 0) {}", "did not come to an end when it was timed"),
    ],
    ids=["wrong", "illegal", "endless"],
)
def test_what_goes_wrong_only_in_timed_runs_costs_the_timing_points_and_nothing_else(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, misdeed: str, says: str
) -> None:
    monkeypatch.setattr(timing, "_SECONDS", 20.0)
    found = judged(hostile(misdeed, honest_runs=9), worker)
    target = found.pop("target")
    assert (target.passed, target.score) == (False, 0.0)
    assert says in target.rationale
    assert [name for name, record in found.items() if not record.passed] == []


def test_after_all_of_them_the_solution_gets_full_marks(worker: Worker) -> None:
    assert [name for name, record in judged(ladder_source(TASK), worker).items() if not record.passed] == []


def test_every_case_of_a_check_is_the_first_run_of_its_module(worker: Worker) -> None:
    """So a text can tell no case from another: one that is right in its first run only passes every check."""
    found = judged(hostile("sum = 0.0f;", honest_runs=1), worker)
    assert [name for name, record in found.items() if not record.passed] == ["target"]
    assert "in a timed run" in found["target"].rationale
