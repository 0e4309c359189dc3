"""Whether this GPU times a lab's targets so that the same kernel always gets the same points.

The solved answer of every timed task must get full marks each time, its base rung none. Several processes do it side by
side: each judges its answer in full first, as one of a class, and then times it again and again in the same worker.
What comes out is a record, with the device that it was made on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ... import __version__
from ...kernels import gpu, measure, signature
from ...kernels.errors import BackendError
from ...kernels.methods import ladder_source
from ..judge import check, kernel_task, timing
from ..judge import spec as specs
from ..judge.record import CheckRecord
from ..judge.sandbox import SandboxPolicy, open_worker
from ..judge.spec import KernelTask, Spec
from ..judge.submission import Answer, Submission
from ..judge.timing import Gain
from . import pool

_SECRET = b"steadiness"
#: Wall-clock after which one repetition is given up: it may wait for others that are timed.
_LIMIT_S = 600.0

#: Called after each repetition with (task, "solved" or "base", number, the target's record).
Watch = Callable[[str, str, int, CheckRecord], None]


@dataclass
class Steadiness:
    """Shares of the timing points in every repetition, by task; `solved` should be all 1, `base` all 0."""

    lab: str
    date: str
    device: dict[str, str]
    state_before: dict[str, str]
    state_after: dict[str, str] = field(default_factory=dict)
    convladder: str = __version__
    sandbox: str = ""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def steady(self) -> bool:
        return all(
            all(run["share"] == wanted for run in found[who])
            for found in self.tasks.values()
            if found["gain"]["timed"]
            for who, wanted in (("solved", 1.0), ("base", 0.0))
        )


@dataclass(frozen=True)
class _Repetitions:
    """One answer, to be judged several times: what a process is told."""

    lab: str
    task: str
    who: str
    times: int
    answer: Answer | None
    gains: Mapping[str, Gain]
    policy: SandboxPolicy


def examine(
    spec: Spec,
    solved: Submission,
    times: int,
    policy: SandboxPolicy,
    watch: Watch | None = None,
    *,
    base_times: int | None = None,
    workers: int = 1,
) -> Steadiness:
    """Judge the solved answer of every timed task `times` times, and its base rung `base_times` times.

    policy   with gpu=True
    workers  processes that judge at once; the GPU times one kernel at a time all the same
    Raises BackendError without a GPU, SandboxError where the policy cannot be had.
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    found = Steadiness(spec.lab, date, gpu.device_facts(), measure.device_state(gpu.device_id()), sandbox=policy.kind)
    with open_worker(policy) as worker:
        gains = timing.calibrate(spec, worker, _SECRET)
    jobs = []
    for task in spec.tasks:
        if not isinstance(task, KernelTask) or task.target is None or task.name not in gains:
            continue
        gain = gains[task.name]
        found.tasks[task.name] = {
            "base_rung": task.target.base, "target_rung": task.target.target, "tolerance": task.target.tolerance,
            "gain": {**asdict(gain), "timed": gain.timed}, "solved": [], "base": [],
        }  # fmt: skip
        asked = {"solved": times, "base": times if base_times is None else base_times}
        answers = {"solved": solved.answers.get(task.name), "base": base_answer(task.target.base)}
        jobs += [
            _Repetitions(spec.lab, task.name, who, len(range(part, most, workers)), answers[who], gains, policy)
            for who, most in asked.items()
            for part in range(min(workers, most))
        ]
    for job, result in pool.run(jobs, _judged, workers, _LIMIT_S, [check.__name__]):
        if isinstance(result, pool.Broken):
            raise BackendError(f"{job.task} could not be judged ({result.how}): {result.details[-1000:]}")
        kept = found.tasks[job.task][job.who]
        for body in json.loads(result):
            target = CheckRecord(**body)
            kept.append(_short(target))
            if watch is not None:
                watch(job.task, job.who, len(kept) - 1, target)
    found.state_after = measure.device_state(gpu.device_id())
    return found


def _judged(job: _Repetitions) -> str:
    """What a process does: the target's record each time, or that of a check that failed before it."""
    spec = specs.load(job.lab)
    task = spec.task(job.task)
    assert isinstance(task, KernelTask)
    assert task.target is not None
    assert job.answer is not None
    with open_worker(job.policy) as worker:
        *others, target = check.check_task(
            spec, job.task, job.answer, worker, on="gpu", timing="measured", secret=_SECRET, gains=job.gains
        )
        found = [next((r for r in others if not r.passed and job.who == "solved"), target)]
        for _ in range(job.times - 1):
            judged = timing.judge(spec.lab, task, task.target, job.answer, worker, _SECRET, job.gains[task.name])
            if isinstance(judged, str):
                break  # this GPU cannot time the target, and the counters say the same each time
            found.append(kernel_task.record(target.check, task, target.max, judged, False))
    return json.dumps([asdict(record) for record in found])


def base_answer(rung: str) -> Answer:
    """A rung as an answer to a task that passes other arguments by default: it says which ones it takes."""
    source = ladder_source(rung)
    names = ", ".join(p.name for p in next(iter(signature.kernels(source).values())))
    return Answer(re.sub(r"^//@ launch (?!.*args=).*$", rf"\g<0> args=({names})", source, flags=re.MULTILINE))


def _short(record: CheckRecord) -> dict[str, Any]:
    """A target's record without its single times. Without points, passing stands for all of them."""
    kept = ("medians_us", "base_over_target", "limit_us", "runs_in_a_sample", "checked", "form", "review")
    evidence = {key: record.evidence[key] for key in kept if key in record.evidence}
    interval = record.evidence.get("share", {})
    return {
        "share": record.score / record.max if record.max else interval.get("value"), "passed": record.passed,
        "interval": [interval.get("low"), interval.get("high")], "attempts": len(record.evidence.get("attempts", [])),
        "rationale": record.rationale, **evidence,
    }  # fmt: skip
