"""Grades that were made on a real GPU and are kept with the course, each with the device that it was made on.

`collect` makes such a record of a graded class, `load` reads the one of a lab. They are shown beside live grades and
labelled as recorded: nothing here is ever taken for a measurement of the machine at hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...kernels.errors import ConvladderError
from ..judge.record import CheckRecord, SubmissionRecord

#: Of a timing target's evidence: what defends the points, without the single times.
_EVIDENCE = ("form", "medians_us", "share", "base_over_target", "limit_us", "checked", "tolerance", "why_not_measured")


class RecordedError(ConvladderError):
    """A folder holds no class that was timed on a GPU."""


def folder() -> Path:
    """Where records lie."""
    return Path(__file__).resolve().parents[1] / "records"


def load(lab: str) -> dict[str, Any] | None:
    """The recorded class of a lab; None where there is none."""
    path = folder() / f"{lab}.class.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def steadiness(lab: str) -> list[str]:
    """What `convladder course timing` found on the GPU that it was recorded on, a line for each timed task."""
    path = folder() / f"{lab}.timing.json"
    if not path.is_file():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))
    return [
        f"{task}: the solution got all timing points {_times(found['solved'], 1.0)}, {found['base_rung']} none "
        f"{_times(found['base'], 0.0)} (target {found['gain']['ratio']:.2f} times as fast as base; "
        f"{kept['device']['device']}, {kept['date'][:10]})"
        for task, found in kept["tasks"].items()
    ]


def of_task(lab: str, task: str) -> str:
    """What the rungs of a task's target took on the GPU that its timing was recorded on; "" where it was not."""
    path = folder() / f"{lab}.timing.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"tasks": {}}
    found = kept["tasks"].get(task)
    medians = [run["medians_us"] for run in found["solved"] if "medians_us" in run] if found else []
    if not found or not medians:
        return ""
    rungs = ", ".join(
        f"{found[f'{which}_rung']} {sorted(run[which] for run in medians)[len(medians) // 2]:.0f} µs"
        for which in ("base", "target")
    )
    return f"recorded on {kept['device']['device']}, {kept['date'][:10]}: {rungs}"


def _times(runs: list[dict[str, Any]], wanted: float) -> str:
    return f"{sum(run['share'] == wanted for run in runs)} of {len(runs)} times"


def collect(out: Path, command: str) -> dict[str, Any]:
    """What a class with measured timing scored, and on what. Raises RecordedError where OUT holds no such class."""
    records = [
        SubmissionRecord.from_json(path.read_text(encoding="utf-8"))
        for path in sorted((out / "records").glob("*.json"))
    ]
    timed = [c for r in records for c in r.checks if c.evidence.get("form") == "measured" and "device" in c.evidence]
    if not timed or any(r.timing != "measured" for r in records):
        raise RecordedError(
            f"{out} holds no class that was timed on a GPU: grade it with --on gpu --timing measured first"
        )
    first = timed[0].evidence
    return {
        "recorded": "graded on a real GPU and kept; not measured on this machine",
        "lab": records[0].lab,
        "date": max(r.date for r in records),
        "command": command,
        "device": first["device"],
        "device_state": first["device_before"],
        "limits": {"bandwidth_gbs": first["bandwidth_gbs"], "peak_gflops": first["peak_gflops"]},
        "environment": {k: v for k, v in records[0].environment.items() if k not in ("secret", "unfinished")},
        "sandbox": records[0].sandbox,
        "spec_sha256": records[0].spec_sha256,
        "students": {r.student: _student(r) for r in records},
    }


def _student(record: SubmissionRecord) -> dict[str, Any]:
    return {
        "sha256": record.sha256,
        "score": record.score,
        "max": record.max,
        "checks": {c.check: [c.score, c.max, c.passed] for c in record.checks if not c.manual},
        "targets": {c.check: _target(c) for c in record.checks if c.check.endswith(".target")},
    }


def _target(check: CheckRecord) -> dict[str, Any]:
    evidence = {key: check.evidence[key] for key in _EVIDENCE if key in check.evidence}
    return {"score": check.score, "max": check.max, "passed": check.passed, "rationale": check.rationale, **evidence}
