"""The suite `judge` of `convladder bench`: what a submission costs, and an answer in a notebook."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ...kernels.bench.engine import Row, measure, summary
from ..judge import Spec, Submission, check_task, judge, load, open_worker, read
from ..judge.spec import KernelTask
from . import build

LAB = "01_direct"


def suite(policy: str) -> Iterator[Row]:
    """Judging the solved lab 01 on the engine, wall time. `policy` is "bwrap" (sandboxed) or "none"."""
    spec = load(LAB)
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{LAB}.ipynb")
        path.write_text(build.serialise(build.solved_notebook(LAB)))
        submission = read(path, spec)
    times = [_judged(spec, submission, policy) for _ in range(8)]
    yield summary(f"one submission ({policy}), the first of a process", times[:1])
    yield summary(f"one submission ({policy}), the following", times[1:])
    with open_worker("none") as worker:
        for task in spec.tasks:
            if isinstance(task, KernelTask):
                answer = submission.answers[task.name]
                again = partial(check_task, spec, task, answer, worker, hidden=False, secret=b"bench")
                yield measure(f"check({task.name!r}) in a warm notebook", again, repetitions=5)


def _judged(spec: Spec, submission: Submission, policy: str) -> float:
    started = time.perf_counter()
    record = judge(spec, submission, student="ada", secret=b"bench", sandbox=policy)
    elapsed = time.perf_counter() - started
    if record.score != record.max:
        raise AssertionError(f"the solved lab got {record.score} of {record.max} points")
    return elapsed
