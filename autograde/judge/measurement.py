"""The engine's account of a kernel on one case: its counters by line, and what a warp touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from convladder.kernels.result import Counters, Fault

from . import counting, kernel_task, lanes
from .counting import Numbers
from .sandbox import Worker
from .spec import KernelTask
from .submission import Answer


@dataclass
class Measurement:
    """The engine's account of a kernel on one case, for measure() and its pictures.

    problem   why there is none: the text does not compile, or misbehaves; "" where all went well
    launches  (kernel, counters) in order; lines in them are lines of the cell
    totals    every counter that a threshold may name
    lanes     what each lane of one warp touches, where that was asked for (judge.lanes)
    printed   what its threads printed, the beginning
    """

    task: str
    case: str
    symbols: dict[str, int | float]
    problem: str = ""
    launches: list[tuple[str, Counters]] = field(default_factory=list)
    totals: Numbers = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    lanes: list[dict[str, Any]] = field(default_factory=list)
    printed: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "task": self.task, "case": self.case, "symbols": self.symbols, "problem": self.problem,
            "launches": [{"kernel": name, "lines": list(_lines(c)), "branches": [b.__dict__ for b in c.branches]}
                         for name, c in self.launches],
            "totals": self.totals, "printed": self.printed, "faults": [kernel_task.fault_json(f) for f in self.faults],
        }  # fmt: skip


def _lines(counters: Counters) -> Iterator[dict[str, Any]]:
    for access in counters.accesses:
        yield dict(access.__dict__)


def measure(
    lab: str, task: KernelTask, answer: Answer, worker: Worker, secret: bytes, case: str | None,
    watch: tuple[int, int] | None = None,
) -> Measurement:  # fmt: skip
    """Run a text on a case (the task's measuring case unless named); watch: (block, warp) whose lanes are noted."""
    chosen = task.case(case or task.measure_case)
    result = kernel_task.run(lab, task, answer, worker, on="sim", secret=secret, cases=[chosen])
    measured = Measurement(task.name, chosen.name, dict(chosen.symbols), result.broken)
    for r in result.cases:
        measured.symbols = dict(r.instance.symbols)
        failed = kernel_task.misbehaviour(r, answer)
        measured.problem = failed.rationale if failed else ""
        measured.faults = r.faults
        measured.printed = r.printed
        measured.launches = r.launches
        measured.totals = counting.numbers([c for _, c in r.launches])
        if watch is not None and not measured.problem:
            measured.lanes = lanes.touched(task, answer, worker, r, *watch)
    return measured
