"""What a class looks like from above: how its points are spread, what it stumbled over, who is fast and who is slow."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..judge.record import CheckRecord, SubmissionRecord

#: Parts into which the points that can be reached are cut.
PARTS = 10
#: Kernels that are named at each end.
NAMED = 3


@dataclass(frozen=True)
class Part:
    """Submissions with `least` to `most` percent of the points; the last part holds those with all of them too."""

    least: int
    most: int
    count: int


@dataclass(frozen=True)
class Ends:
    """Of one target: (student, measure) of the best kernels and of the worst, the measure to be read."""

    check: str
    best: tuple[tuple[str, str], ...]
    worst: tuple[tuple[str, str], ...]


def distribution(records: Sequence[SubmissionRecord]) -> list[Part]:
    """How many submissions reached which part of the machine's points."""
    step = 100 // PARTS
    shares = [min(PARTS - 1, int(PARTS * r.score / r.max + 1e-9)) for r in records if r.max]
    counts = Counter(shares)
    return [Part(step * n, step * (n + 1), counts[n]) for n in range(PARTS)]


def typical(reasons: Sequence[str]) -> str:
    """One of the reasons of the most frequent kind, where those that differ in their numbers only are of one kind."""
    kinds = defaultdict(list)
    for reason in reasons:
        kinds[re.sub(r"-?[0-9][0-9.e+-]*", "#", reason)].append(reason)
    return max(kinds.values(), key=len)[0] if kinds else ""


def ends(records: Sequence[SubmissionRecord]) -> list[Ends]:
    """The fastest and the slowest kernels of each target that several reached; by counters, the least and the most."""
    found: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for record in records:
        for check in record.checks:
            measure = _measure(check) if check.check.endswith(".target") else None
            if measure is not None:
                found[check.check].append((measure[0], record.student, measure[1]))
    listed = []
    for name, values in found.items():
        ordered = [(student, shown) for _, student, shown in sorted(values)]
        if len(ordered) >= 2 * NAMED:
            listed.append(Ends(name, tuple(ordered[:NAMED]), tuple(ordered[: -NAMED - 1 : -1])))
    return listed


def _measure(check: CheckRecord) -> tuple[float, str] | None:
    """What a target measured: a time, or the value of its counters."""
    medians = check.evidence.get("medians_us")
    if isinstance(medians, Mapping) and "text" in medians:
        return float(medians["text"]), f"{medians['text']:.4g} µs"
    value, expression = check.evidence.get("value"), check.evidence.get("expression")
    if isinstance(value, int | float) and isinstance(expression, str):
        return float(value), f"{value:.4g} {expression}"
    return None
