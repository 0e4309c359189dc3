"""A failing case made small: the smallest geometry that fails the same way, with whole numbers, and why.

Every trial runs in the sandbox like any other case. How many there are, and how much each may compute, is fixed,
so a regrade finds the same counterexample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from convladder.kernels.errors import ConvladderError

from . import diagnosis, kernel_task, why
from .diagnosis import Wrong
from .kernel_task import CaseRun, Judgement, Run
from .problem import Instance
from .sandbox import Worker, WorkerError
from .shrink import Symbols, smallest
from .spec import Case, KernelTask
from .submission import Answer

#: What one trial may spend on the engine: an endless loop ends at once.
_TRIAL_BUDGET = 200_000
#: Work of a case (Problem.size) beyond which nothing is tried: the trials would take too long.
_MOST_WORK = 200_000
#: Elements that an array may have to be shown whole.
_SHOWN = 64


class WholeNumbers(np.random.Generator):
    """Draws 2 to 9 wherever a problem asks for values: sums that can be followed by hand, and no neutral element."""

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        return self.integers(2, 10, size)


@dataclass(frozen=True)
class _Failure:
    """How a case failed: by this fault at this line, or with wrong values like those of this mistake."""

    fault: tuple[str, int] | None = None
    unwritten: bool = False
    mistake: str = ""

    @classmethod
    def of(cls, r: CaseRun, mistake: str = "") -> _Failure | None:
        if r.error:
            return None
        if r.faults:
            return cls(fault=(r.faults[0].kind, r.faults[0].line))
        wrong = r.wrong()
        return None if wrong is None else cls(unwritten=bool(wrong.unwritten[wrong.first]), mistake=mistake)

    def is_also_of(self, r: CaseRun) -> bool:
        other = _Failure.of(r, self.mistake)
        if other != self:
            return False
        return not self.mistake or _gives(r, self.mistake)


def _gives(r: CaseRun, mistake: str) -> bool:
    """Whether the wrong values are those of a mistake."""
    wrong = r.wrong()
    assert wrong is not None
    return any(diagnosis.same(wrong.values, y, wrong.output) for what, y in r.instance.mistakes() if what == mistake)


def shown(found: Judgement, task: KernelTask, result: Run, answer: Answer, worker: Worker) -> Judgement:
    """A failed judgement of `runs`, `correct` or `hidden`, with what explains it added to its evidence."""
    failing = result.of(str(found.evidence.get("case", "")))
    if found.passed is not False or failing is None or failing.changed:
        return found
    search = _Search(task, answer, worker)
    try:
        explained = search.explained(failing, found.evidence.get("mistake") or "")
    except (WorkerError, ConvladderError, MemoryError):  # what was found stays true without an explanation
        return found
    return replace(found, evidence={**found.evidence, **explained}) if explained else found


class _Search:
    def __init__(self, task: KernelTask, answer: Answer, worker: Worker):
        self.task, self.answer, self.worker = task, answer, worker
        self.problem = task.problem

    def explained(self, failing: CaseRun, mistake: str) -> dict[str, Any]:
        explained: dict[str, Any] = {}
        if (reason := self._why(failing)) is not None:
            explained["why"] = reason.evidence()
        small = self._smallest(failing, mistake)
        if small is None:
            return explained
        is_smaller = small.case.symbols != failing.case.symbols
        if is_smaller or not small.faults:
            border = self.problem.border(small.instance.symbols)
            explained["counterexample"] = _evidence(small, border, self._why(small) if is_smaller or reason else None)
        return explained

    # -- shrinking -------------------------------------------------------------------------------

    def _smallest(self, failing: CaseRun, mistake: str) -> CaseRun | None:
        """The failing case made small, as it ran; None where not even its own geometry fails with other data."""
        failure = _Failure.of(failing, mistake)
        symbols = {k: int(v) for k, v in failing.case.symbols.items()}
        if failure is None or self.problem.size(symbols) > _MOST_WORK:
            return None
        best: list[CaseRun] = []

        def first_failing(tried: Sequence[Symbols]) -> int | None:
            for i, r in self._trials(tried):
                if failure.is_also_of(r):
                    best[:] = [r]
                    return i
            return None

        if first_failing([symbols]) is None:
            return None
        least = {name: self.problem.least.get(name, 1) for name in symbols}
        smallest(symbols, least, self._fits, first_failing)
        return best[0]

    def _fits(self, symbols: Symbols) -> bool:
        try:
            self.problem.check(symbols)
        except ValueError:
            return False
        return True

    def _trials(self, tried: Sequence[Symbols]) -> list[tuple[int, CaseRun]]:
        """What the text does on each of some cases; a case on which it cannot be launched is left out."""
        done: list[tuple[int, CaseRun]] = []
        start = 0
        while start < len(tried):
            runs = [CaseRun(Case("smallest", s), self._instance(s)) for s in tried[start:]]
            ran = kernel_task.run_on(self.task, self.answer, self.worker, runs, "sim", _TRIAL_BUDGET)
            done += [(start + i, r) for i, r in enumerate(ran.cases)]
            # A request ends at its first fault, and before a case that cannot be launched.
            start += len(ran.cases) + bool(ran.broken)
            if not ran.cases and not ran.broken:
                break
        return done

    def _instance(self, symbols: Symbols) -> Instance:
        return self.problem.instance(symbols, WholeNumbers(np.random.PCG64(0)))

    # -- why -------------------------------------------------------------------------------------

    def _why(self, r: CaseRun) -> why.Why | None:
        """Why the first element that was written is wrong; None where that cannot be told."""
        if r.error or r.faults or (wrong := r.wrong()) is None:
            return None
        index = _explained_element(wrong)
        if index is None:
            return None
        output = wrong.output.name
        formed = self._terms(r, output, int(np.ravel_multi_index(index, wrong.mask.shape)))
        if formed is None:
            return None
        return why.explain(self.problem, r.instance, output, index, float(wrong.values[index]), formed)

    def _terms(self, r: CaseRun, output: str, element: int) -> list[why.Formed] | None:
        request, arrays = kernel_task.trace_request(self.task, self.answer, r)
        frames = self.worker.request(
            "kernel", {**request, "op": "terms", "wanted": [[output, element]]}, arrays, reply_bytes=0
        )
        return _read_terms(frames[0].header)


def _explained_element(wrong: Wrong) -> tuple[int, ...] | None:
    written = np.argwhere(wrong.mask & ~wrong.unwritten)
    return tuple(int(i) for i in written[0]) if len(written) else None


def _read_terms(header: dict[str, Any]) -> list[why.Formed] | None:
    """The terms that a worker sent; None where it sent none, or anything else."""
    try:
        (terms,) = header["terms"]
        if terms is None:
            return None
        return [
            why.Formed(float(c), tuple((str(name), int(i)) for name, i in factors), int(line))
            for c, factors, line in terms
        ]
    except (KeyError, TypeError, ValueError):
        return None


# ---- evidence


def _evidence(r: CaseRun, border: Mapping[str, int], reason: why.Why | None) -> dict[str, Any]:
    """The small case with all its numbers, as far as they are few."""
    found: dict[str, Any] = {"symbols": dict(r.case.symbols)}
    if r.faults:
        found["fault"] = kernel_task.fault_json(r.faults[0])
    else:
        wrong = r.wrong()
        assert wrong is not None
        found |= {
            "array": wrong.output.name, "axes": list(wrong.output.axes), "element": list(wrong.first),
            "inputs": {name: _numbers(a) for name, a in r.instance.inputs.items()},
            "border": dict(border),
            "expected": _numbers(wrong.output.expected), "got": _numbers(wrong.values, wrong.unwritten),
            "wrong": np.argwhere(wrong.mask)[:_SHOWN].tolist(),
        }  # fmt: skip
    if reason is not None:
        found["why"] = reason.evidence()
    return found


def _numbers(array: np.ndarray, unwritten: np.ndarray | None = None) -> dict[str, Any]:
    """An array as JSON: its shape, and its values in order (None: never written) where they are few."""
    found: dict[str, Any] = {"shape": list(array.shape)}
    if array.size <= _SHOWN:
        missing = np.zeros(array.size, bool) if unwritten is None else unwritten.ravel()
        values = [diagnosis.finite(v) for v in array.ravel()]
        found["values"] = [None if gone else value for value, gone in zip(values, missing, strict=True)]
    return found
