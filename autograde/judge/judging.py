"""One submission, every task of it, to one record."""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

from . import content, score
from .check import check_task
from .record import CheckRecord, SubmissionRecord
from .sandbox import SandboxPolicy, Worker, open_worker
from .score import Timing
from .spec import GeneratorTask, KernelTask, PythonTask, Spec
from .submission import Submission
from .timing import Gain


def judge(
    spec: Spec,
    submission: Submission,
    *,
    student: str,
    secret: bytes,
    sandbox: SandboxPolicy | str = "bwrap",
    on: str = "sim",
    timing: Timing = "counters",
    explain: bool = True,
    hidden: bool = True,
    worker: Worker | None = None,
    gains: Mapping[str, Gain] | None = None,
    earlier: SubmissionRecord | None = None,
) -> SubmissionRecord:
    """Check every task of a submission.

    secret  seeds the data; the same for a whole class and for a regrade
    on      "gpu": values are taken from the GPU, after the engine found no fault
    worker  one that was started early and has seen no other submission; closed here like one of its own.
            Its policy is its own: for on="gpu" that needs gpu=True
    timing  "measured": targets are scored by their times on the GPU, which needs on="gpu"
    gains   what timing.calibrate found for the class
    earlier another record, whose checks are kept for each task on which nothing has changed
    A check that could not be decided (a timing without a clear result) is named in environment["unfinished"].
    Raises SandboxError or BackendError where this machine cannot judge; no text raises anything.
    """
    started = time.perf_counter()
    planned = score.planned(spec, timing=timing, explain=explain, hidden=hidden)
    given = content.Circumstances(spec.lab, secret, on, timing, hidden, gains or {})
    keys = {task.name: content.key(task, submission.answers.get(task.name), given) for task in spec.tasks}
    kept = {
        task.name: content.kept(earlier, task.name, keys[task.name], [p for p in planned if p.task == task.name])
        for task in spec.tasks
        if earlier is not None
    }
    checks: list[CheckRecord] = []
    policy = SandboxPolicy.of(sandbox)
    if on == "gpu":
        policy = replace(policy, gpu=True)
    with worker or open_worker(policy) as w:
        if any(isinstance(t, KernelTask) and kept.get(t.name) is None for t in spec.tasks):
            w.start("kernel")
        for task in spec.tasks:
            if (known := kept.get(task.name)) is not None:
                checks += known
                continue
            if isinstance(task, PythonTask | GeneratorTask):
                w.start("python")
            checks += check_task(
                spec, task, submission.answers.get(task.name), w,
                on=on, timing=timing, explain=explain, hidden=hidden, secret=secret, gains=gains,
            )  # fmt: skip
        kind = w.policy.kind
    return SubmissionRecord(
        lab=spec.lab,
        student=student,
        notebook=Path(submission.path).name,
        sha256=submission.sha256,
        spec_sha256=spec.sha256,
        on=on,
        timing=timing,
        checks=checks,
        problems=list(submission.problems),
        seconds=time.perf_counter() - started,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        environment=dict(_environment()) | _open_ends(checks) | _kept(kept, earlier),
        sandbox=kind,
        keys=keys,
    )


def _kept(kept: Mapping[str, list[CheckRecord] | None], earlier: SubmissionRecord | None) -> dict[str, str]:
    tasks = [name for name, checks in kept.items() if checks is not None]
    return {"kept": f"{', '.join(tasks)} (judged {earlier.date})"} if tasks and earlier is not None else {}


def _open_ends(checks: list[CheckRecord]) -> dict[str, str]:
    inconclusive = [c.check for c in checks if c.evidence.get("inconclusive")]
    return {"unfinished": f"inconclusive: {', '.join(inconclusive)}"} if inconclusive else {}


@cache
def _environment() -> tuple[tuple[str, str], ...]:
    """What decides about a grade besides the text: versions."""
    found = [("python", platform.python_version()), ("platform", platform.platform())]
    for package in ("convladder", "numpy", "llvmlite", "nvidia-cuda-nvrtc", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            found.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
