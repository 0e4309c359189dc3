"""Which release of a lab a notebook is of: what each of its tasks asks for, as digests in the notebook's metadata.

    "convladder": {"lab": "01_direct", "release": "5f0c…", "tasks": {"direct_guarded": "91ab…", …}}

What an answer must keep to is in a task's digest: its kind, its name, the problem and what is passed, the function, the
symbols of a prediction. Cases, thresholds, points and texts are not: they may change under answers that stand.
A notebook without this metadata is taken for one of the present release, and so is whatever a student writes into it:
only what a course keeps can be chosen by it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .spec import GeneratorTask, KernelTask, NumberTask, PythonTask, Spec, Task

#: The key in a notebook's metadata.
KEY = "convladder"
_ID = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class Edition:
    """A lab as it was released. `tasks`: each one's digest."""

    lab: str
    release: str
    tasks: Mapping[str, str] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        return {KEY: {"lab": self.lab, "release": self.release, "tasks": dict(self.tasks)}}

    def changed(self, task: str, other: Edition) -> bool:
        """Whether a task that both have asks for something else in the other one."""
        return task in self.tasks and task in other.tasks and self.tasks[task] != other.tasks[task]


def of(spec: Spec) -> Edition:
    """The edition that a spec describes, with the tasks that a course leaves out."""
    tasks = {task.name: _digest(_asked(task), 12) for task in sorted((*spec.tasks, *spec.off), key=lambda t: t.name)}
    return Edition(spec.lab, _digest([spec.lab, tasks], 16), tasks)


def told(metadata: Any) -> Edition | None:
    """What a notebook's metadata says; None where it says nothing that can be read."""
    said = metadata.get(KEY) if isinstance(metadata, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("tasks"), dict):
        return None
    if not isinstance(said.get("lab"), str) or not _is_id(said.get("release")):
        return None
    tasks = {name: digest for name, digest in said["tasks"].items() if _is_id(digest)}
    return Edition(said["lab"], said["release"], tasks)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and bool(_ID.fullmatch(value))


def _digest(body: Any, characters: int) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:characters]


def _asked(task: Task) -> dict[str, Any]:
    """What an answer to a task must keep to."""
    asked: dict[str, Any] = {"name": task.name, "kind": task.kind}
    if isinstance(task, KernelTask):
        asked |= {"problem": task.problem.name, "params": list(task.params)}
    if isinstance(task, GeneratorTask | PythonTask):
        asked["function"] = task.function
    if isinstance(task, PythonTask):
        asked["arguments"] = sorted({name for case in task.cases for call in case.calls for name in call})
    if isinstance(task, NumberTask):
        symbols = task.case.symbols if task.case is not None else task.symbols
        asked |= {"symbols": dict(symbols), "rung": task.rung}
    return asked
