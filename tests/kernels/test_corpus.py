"""Planted bugs over all kinds of kernels, each found at its line; and right kernels, on which nothing is found."""

from __future__ import annotations

from typing import Any

import pytest
from annotated import CORPUS, COUNTED, Annotated, annotated

from convladder.kernels import plan

#: Enough to see that a kernel does not end.
BUDGET = 500_000
KERNELS = list(annotated(CORPUS))
BUGS = [kernel for kernel in KERNELS if kernel.kind]
RIGHT = [kernel for kernel in [*KERNELS, *annotated(COUNTED)] if not kernel.kind]


def run(kernel: Annotated) -> list[Any]:
    budget = BUDGET if kernel.kind == "budget" else None
    results = plan.run(kernel.module("sim"), kernel.plan(), *kernel.given(), budget=budget)
    return [fault for _, result in results for fault in result.faults]


@pytest.mark.parametrize("kernel", BUGS, ids=str)
def test_a_planted_bug_is_found_with_its_kind_and_line(kernel: Annotated) -> None:
    faults = run(kernel)
    assert faults, "nothing was found"
    assert (faults[0].kind, faults[0].line) == (kernel.kind, kernel.line), [str(f) for f in faults]


@pytest.mark.parametrize("kernel", RIGHT, ids=str)
def test_on_a_right_kernel_nothing_is_found(kernel: Annotated) -> None:
    assert [str(fault) for fault in run(kernel)] == []


def test_three_runs_report_the_same() -> None:
    for kernel in KERNELS:
        first, *others = ([str(f) for f in run(kernel)] for _ in range(3))
        assert all(other == first for other in others), kernel.name
