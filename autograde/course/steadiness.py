"""Whether this GPU times a lab's targets so that the same kernel always gets the same points.

The solved answer of every timed task must get full marks each time, its base rung none: judged as a class is, in a
fresh worker each time. What comes out is a record, with the device that it was made on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ... import __version__
from ...kernels import gpu, measure, signature
from ...kernels.methods import ladder_source
from ..judge import check, timing
from ..judge.record import CheckRecord
from ..judge.sandbox import SandboxPolicy, open_worker
from ..judge.spec import KernelTask, Spec
from ..judge.submission import Answer, Submission

_SECRET = b"steadiness"

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


def examine(
    spec: Spec, solved: Submission, times: int, policy: SandboxPolicy, watch: Watch | None = None
) -> Steadiness:
    """Judge the solved answer and the base rung of every timed task `times` times.

    policy  with gpu=True. Raises BackendError without a GPU, SandboxError where the policy cannot be had.
    """
    date = datetime.now(UTC).isoformat(timespec="seconds")
    found = Steadiness(spec.lab, date, gpu.device_facts(), measure.device_state(gpu.device_id()), sandbox=policy.kind)
    with open_worker(policy) as worker:
        gains = timing.calibrate(spec, worker, _SECRET)
    for task in spec.tasks:
        if not isinstance(task, KernelTask) or task.target is None or task.name not in gains:
            continue
        gain = gains[task.name]
        entry = found.tasks.setdefault(
            task.name,
            {"base_rung": task.target.base, "target_rung": task.target.target, "tolerance": task.target.tolerance,
             "gain": {**asdict(gain), "timed": gain.timed}, "solved": [], "base": []},
        )  # fmt: skip
        answers = {"solved": solved.answers.get(task.name), "base": base_answer(task.target.base)}
        for number in range(times):
            for who, answer in answers.items():
                with open_worker(policy) as worker:
                    records = check.check_task(
                        spec, task, answer, worker, on="gpu", timing="measured", secret=_SECRET, gains=gains
                    )  # fmt: skip
                target = records[-1]
                entry[who].append(_short(target))
                if watch is not None:
                    watch(task.name, who, number, target)
    found.state_after = measure.device_state(gpu.device_id())
    return found


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
        "share": record.score / record.max if record.max else float(bool(record.passed)), "passed": record.passed,
        "interval": [interval.get("low"), interval.get("high")], "attempts": len(record.evidence.get("attempts", [])),
        "rationale": record.rationale, **evidence,
    }  # fmt: skip
