"""Points: the lab's categories are divided over the tasks by their shares, and a task's over its checks.

What is off (timing, explanations) gives its points to the other categories, in proportion to theirs, so a lab
always has 100. Points are divided as exact fractions and then turned into floats; the largest check takes what
that rounding leaves, a few 1e-15, so that the floats add up to exactly 100. Nothing else is rounded: displays round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from .spec import CATEGORIES, ExplainTask, KernelTask, NumberTask, PythonTask, Spec, Task

Timing = Literal["measured", "counters", "off"]

#: How a task's correctness points are split, by kind and by whether it has hidden cases.
_CORRECTNESS = {
    ("kernel", True): {"runs": Fraction(1, 5), "correct": Fraction(2, 5), "hidden": Fraction(2, 5)},
    ("kernel", False): {"runs": Fraction(1, 3), "correct": Fraction(2, 3)},
    ("python", True): {"correct": Fraction(1, 2), "hidden": Fraction(1, 2)},
    ("python", False): {"correct": Fraction(1)},
}


@dataclass(frozen=True)
class PlannedCheck:
    """A check that a task will get, and its most points. `name` is the full one, TASK.CHECK."""

    task: str
    name: str
    max: float
    manual: bool = False


def planned(
    spec: Spec, *, timing: Timing = "counters", explain: bool = True, hidden: bool = True
) -> list[PlannedCheck]:
    """Every check of a lab, in order.

    timing   "measured": a target is scored by times on a GPU; "counters": by the engine's counters;
             "off": there is no target
    explain  whether explanations count; without them no such check is made
    hidden   whether hidden cases are judged (where the spec has them)
    """
    off = {c for c, is_off in (("timing", timing == "off"), ("explanation", not explain)) if is_off}
    if spec.graded:  # a course may have left all of a category's tasks out
        off |= {c for c in CATEGORIES if not any(t.share.get(c) for t in spec.tasks)}
    points = _category_points(spec, off)
    exact = []
    for task in spec.tasks:
        for check, category, part in _parts(task, hidden):
            if category not in off:
                whole = sum(Fraction(t.share.get(category, 0)) for t in spec.tasks)
                share = Fraction(task.share.get(category, 0)) / whole if whole else Fraction(0)
                exact.append((task, check, points[category] * share * part))
    floats = _floats([value for _, _, value in exact])
    return [
        PlannedCheck(task.name, f"{task.name}.{check}", value, isinstance(task, ExplainTask))
        for (task, check, _), value in zip(exact, floats, strict=True)
    ]


def task_points(spec: Spec, task: str, *, timing: Timing = "counters", explain: bool = True) -> float:
    """The most that the machine can give for a task: what its check cell is worth."""
    return math.fsum(
        c.max for c in planned(spec, timing=timing, explain=explain) if c.task == task and not c.manual
    )  # fmt: skip


def manual_points(spec: Spec, task: str, *, timing: Timing = "counters", explain: bool = True) -> float:
    """The most that a person can give for a task."""
    return math.fsum(c.max for c in planned(spec, timing=timing, explain=explain) if c.task == task and c.manual)


def _category_points(spec: Spec, off: set[str]) -> dict[str, Fraction]:
    points = {c: Fraction(spec.points.get(c, 0)) for c in CATEGORIES}
    on = sum(v for c, v in points.items() if c not in off)
    if not on:  # an ungraded lab, or one of which nothing is left
        return {c: Fraction(0) for c in CATEGORIES}
    return {c: Fraction(0) if c in off else v * sum(points.values()) / on for c, v in points.items()}


def has_hidden(task: Task) -> bool:
    return isinstance(task, KernelTask | PythonTask) and any(c.hidden for c in task.cases)


def _parts(task: Task, hidden: bool) -> Iterator[tuple[str, str, Fraction]]:
    """(check, category, its part of the task's points in that category)."""
    if isinstance(task, KernelTask):
        yield "compiles", "correctness", Fraction(0)
    if isinstance(task, KernelTask | PythonTask):
        for check, part in _CORRECTNESS[
            "kernel" if isinstance(task, KernelTask) else "python", hidden and has_hidden(task)
        ].items():
            yield check, "correctness", part
    if isinstance(task, KernelTask):
        whole = sum(Fraction(t.weight) for t in task.counters)
        for threshold in task.counters:
            yield f"counters.{threshold.name}", "counters", Fraction(threshold.weight) / whole
        if task.target is not None:
            yield "target", "timing", Fraction(1)
    elif isinstance(task, NumberTask):
        yield "prediction", "prediction", Fraction(1)
    elif isinstance(task, ExplainTask):
        yield "explanation", "explanation", Fraction(1)


def _floats(exact: list[Fraction]) -> list[float]:
    """The nearest floats, the largest of them moved so that their sum is the float of the exact sum."""
    values = [float(v) for v in exact]
    if values:
        largest = values.index(max(values))
        for _ in range(8):
            error = float(sum(exact)) - math.fsum(values)
            if not error:
                break
            values[largest] += error
    return values
