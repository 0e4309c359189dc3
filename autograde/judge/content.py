"""What a task's checks depend on, as one digest: where it is the same, an earlier judgement still holds.

So a changed spec has exactly those tasks judged again that it touches. Points are not in it: they are given anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from convladder import __version__
from convladder.kernels.errors import BackendError
from convladder.kernels.methods import ladder_source

from .problem import Problem
from .record import CheckRecord, SubmissionRecord
from .score import PlannedCheck
from .spec import ExplainTask, Task
from .submission import Answer
from .timing import Gain


@dataclass(frozen=True)
class Circumstances:
    """What decides about a verdict besides task and answer. `secret` seeds the data; digests hold it only hashed."""

    lab: str
    secret: bytes
    on: str
    timing: str
    hidden: bool
    gains: Mapping[str, Gain]


def key(task: Task, answer: Answer | None, given: Circumstances) -> str:
    """The digest of a task, its answer (with its place, which messages name) and the circumstances."""
    gain = given.gains.get(task.name)
    parts = [
        __version__, given.lab, hashlib.sha256(b"content:" + given.secret).hexdigest(), given.on, given.timing,
        given.hidden, _plain(gain), _plain(task), _plain(answer), _rungs(task),
    ]  # fmt: skip
    if isinstance(task, ExplainTask):  # the same wherever and with whatever the rest is judged
        parts = [given.lab, _plain(task), _plain(answer)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _plain(thing: Any) -> Any:
    """Dataclasses, mappings and sequences as JSON; a problem by its name."""
    if isinstance(thing, Problem):
        return thing.name
    if is_dataclass(thing):
        return {f.name: _plain(getattr(thing, f.name)) for f in fields(thing) if f.name != "share"}
    if isinstance(thing, Mapping):
        return {str(k): _plain(v) for k, v in thing.items()}
    if isinstance(thing, tuple | list):
        return [_plain(v) for v in thing]
    if isinstance(thing, np.ndarray):
        return [thing.dtype.str, thing.shape, hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()]
    return thing


def _rungs(task: Task) -> dict[str, str]:
    """The texts of the rungs that a task is measured by."""
    parts = [*getattr(task, "counters", ()), getattr(task, "target", None), task]
    named = [getattr(p, n, None) for p in parts for n in ("base", "target", "rung")]
    found = {}
    for name in sorted({n for n in named if isinstance(n, str)}):
        try:
            found[name] = hashlib.sha256(ladder_source(name).encode()).hexdigest()
        except BackendError:  # not in this installation: then nothing is measured by it
            found[name] = ""
    return found


def kept(record: SubmissionRecord, task: str, digest: str, planned: list[PlannedCheck]) -> list[CheckRecord] | None:
    """The checks of a task in an earlier record, with the points of today; None where it must be judged."""
    if record.keys.get(task) != digest:
        return None
    earlier = {c.check: c for c in record.checks if c.task == task}
    if set(earlier) != {p.name for p in planned} or any(c.evidence.get("inconclusive") for c in earlier.values()):
        return None
    again = []
    for plan in planned:
        check = earlier[plan.name]
        share = 1.0 if check.passed else check.score / check.max if check.max else None
        if share is None and check.passed is False and plan.max and not plan.name.endswith(_ALL_OR_NOTHING):
            return None  # it may have earned a part that was worth nothing then
        score = check.score if check.max == plan.max else min(plan.max, plan.max * (share or 0.0))
        again.append(replace(check, score=score, max=plan.max))
    return again


#: Checks that give all of their points or none.
_ALL_OR_NOTHING = (".compiles", ".runs", ".correct", ".hidden", ".prediction", ".explanation")
