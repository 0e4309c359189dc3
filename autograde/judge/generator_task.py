"""Checks a generator task: the student's function makes a kernel's text for each case, and that text is judged.

The function runs where functions of students run, in a process of its own without a GPU, and nothing but text comes
out of it; the text is compiled and run where kernels of students are. Weights of hidden cases go to another process
than those of public ones, and only once these are right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from . import kernel_task, python_task
from .kernel_task import CaseRun, Judgement, Run
from .sandbox import Worker
from .spec import GeneratorTask, Threshold
from .submission import Answer
from .values import show

#: Characters of a generated text. The solutions make some ten thousand for a case.
MAX_TEXT = 200_000

#: What belongs to lines of a generated text; faces would look for them in the student's cell.
_OF_LINES = ("fault", "faults", "source", "diagnostics", "line", "log", "worst")

#: What a line that does not compile has in it, and what to do about it.
_ADVICE = (
    (r"--\s*[\d.]", "a minus before a negative constant makes `--`: add it, or put it in brackets"),
    (r"\b(inf|nan)f?\b", "Python writes inf and nan in a way that is no constant in C++"),
    (r"(?<![\w.])\d+f\b", "a constant needs a point or an exponent before its f, as in 1.0f"),
    (r"np\.float32\(", "NumPy 2 shows a number with its type: turn it into a Python float before you print it"),
)


@dataclass(frozen=True)
class Generated(Answer):
    """The text that a function made for one case."""

    first_line: int = 1
    made_for: str = ""

    def where(self) -> str:
        return f"the text generated for case {self.made_for!r}"


@dataclass(frozen=True)
class Made:
    """What came of one case. `missing`: the function made no text, for this reason."""

    planned: CaseRun
    answer: Generated
    run: Run = field(default_factory=Run)
    missing: str = ""

    def broken(self) -> Judgement | None:
        """Why its text cannot be run at all."""
        reason = self.missing or self.run.broken
        if not reason:
            return None
        evidence = {"case": self.planned.case.name, "category": "no kernel that runs is generated for a hidden case"}
        quoted = "" if self.missing else reason.partition("`")[2]
        advice = next((f". Is it this: {said}?" for found, said in _ADVICE if re.search(found, quoted)), "")
        return Judgement(False, f"{reason}{advice}", evidence)

    def misbehaves(self) -> Judgement | None:
        """Why its text did not run to its end as it should."""
        found = kernel_task.runs(self.run, self.answer)
        return None if found.passed else _without_lines(found)


def _without_lines(found: Judgement) -> Judgement:
    return replace(found, evidence={k: v for k, v in found.evidence.items() if k not in _OF_LINES})


@dataclass(frozen=True)
class Outcome:
    """What came of a generator: of the public cases up to the first that fails, then of the hidden ones."""

    public: tuple[Made, ...] = ()
    secret: tuple[Made, ...] = ()
    broken: str = ""  # the function cannot be called, for this reason
    broken_in_secret: str = ""  # as `broken`, in words that may be the function's own: not for students

    def compiles(self) -> Judgement:
        """Each public case got a text that compiles and whose launch fits."""
        if self.broken:
            return Judgement(False, self.broken)
        failed = next((f for m in self.public if (f := m.broken()) is not None), None)
        return failed or Judgement(True, f"it makes a kernel that compiles for each of {len(self.public)} cases")

    def runs(self) -> Judgement:
        """No text has a fault, and each writes something."""
        failed = next((f for m in self.public if (f := m.misbehaves()) is not None), None)
        return failed or Judgement(True, f"no fault on {len(self.public)} cases")

    def correct(self) -> Judgement:
        """Every element is right."""
        return kernel_task.correct(Run(cases=[r for m in self.public for r in m.run.cases]))

    def hidden(self) -> Judgement:
        """As the three before, with weights that students do not see; `category` is what they are told."""
        if self.broken_in_secret:
            return Judgement(False, self.broken_in_secret, {"category": "the function fails on a hidden case"})
        for made in self.secret:
            found = made.broken() or kernel_task.hidden(made.run, made.answer)
            if not found.passed:
                return _without_lines(found)
        return Judgement(True, f"right on {len(self.secret)} hidden cases")

    def threshold(self, task: GeneratorTask, t: Threshold) -> Judgement:
        """A bound on the counters of the text of one case."""
        made = next(m for m in self.public if m.planned.case.name == t.case)
        return _without_lines(kernel_task.threshold(task, t, made.run, made.answer))


def run(
    lab: str, task: GeneratorTask, answer: Answer, worker: Worker, *, on: str, secret: bytes, hidden: bool
) -> Outcome:  # fmt: skip
    """Have texts made for the cases, and run each on its own case.

    Raises SandboxError or BackendError where this machine cannot judge.
    """

    def of(is_hidden: bool) -> str | tuple[Made, ...]:
        cases = kernel_task.prepared(lab, task, secret, [c for c in task.cases if c.hidden == is_hidden])
        return _made(task, answer, worker, cases, on) if cases else ()

    public = of(False)
    if isinstance(public, str):
        return Outcome(broken=public)
    right = all(not m.missing and not m.run.broken and _is_right(m.run) for m in public)
    secrets = of(True) if hidden and right else ()
    if isinstance(secrets, str):
        return Outcome(public, broken_in_secret=secrets)
    return Outcome(public, secrets)


def _is_right(run: Run) -> bool:
    return all(not (r.error or r.faults or r.changed) and r.wrong() is None for r in run.cases)


def _made(
    task: GeneratorTask, answer: Answer, worker: Worker, cases: Sequence[CaseRun], on: str
) -> str | tuple[Made, ...]:
    """What came of these cases up to the first that does not run; a text: the function cannot be called."""
    calls = [r.instance.given for r in cases]
    values = python_task.called(task.function, answer, worker, calls, MAX_TEXT + 1)
    if isinstance(values, str):
        return values
    found = []
    for r, (value, raised) in zip(cases, values, strict=False):
        text = Generated(value if isinstance(value, str) else "", made_for=r.case.name)
        if reason := raised or _no_text(value):
            call = python_task.shown_call(task.function, r.instance.given)
            found.append(Made(r, text, missing=f"{call} {reason}. Case {r.case.name!r}"))
        else:
            found.append(Made(r, text, kernel_task.run_on(task, text, worker, [r], on)))
        if found[-1].broken() or any(c.faults or c.error for c in found[-1].run.cases):
            break
    return tuple(found)


def _no_text(value: object) -> str:
    if not isinstance(value, str):
        return f"returned {show(value)}, expected a text: join the lines"
    if not value.strip():
        return "returned an empty text"
    if len(value) > MAX_TEXT:
        return f"returned a text of more than {MAX_TEXT} characters: is there a line for each zero, or for each output?"
    return ""
