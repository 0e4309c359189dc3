"""Judges one submission: from the text of a notebook to a record with reasons.

    spec = load("01_direct")
    record = judge(spec, read("01_direct.ipynb", spec), student="ada", secret=secret, sandbox="bwrap")

Everything is loaded at first use: the worker, which is a module of this package, must start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .check import check_task, measure_task
    from .judging import judge
    from .measurement import Measurement
    from .record import CheckRecord, SubmissionRecord
    from .sandbox import SandboxError, SandboxPolicy, Worker, open_worker
    from .spec import Spec, SpecError, load
    from .submission import Answer, Submission, SubmissionError, read

_HOME = {
    "check_task": "check", "measure_task": "check", "judge": "judging", "Measurement": "measurement",
    "CheckRecord": "record", "SubmissionRecord": "record",
    "SandboxError": "sandbox", "SandboxPolicy": "sandbox", "Worker": "sandbox", "open_worker": "sandbox",
    "Spec": "spec", "SpecError": "spec", "load": "spec",
    "Answer": "submission", "Submission": "submission", "SubmissionError": "submission", "read": "submission",
}  # fmt: skip

__all__ = [
    "Answer", "CheckRecord", "Measurement", "SandboxError", "SandboxPolicy", "Spec", "SpecError", "Submission",
    "SubmissionError", "SubmissionRecord", "Worker", "check_task", "judge", "load", "measure_task",
    "open_worker", "read",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
