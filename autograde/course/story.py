"""The story of a grade, told from its records: what was judged, how, by what, and what became of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from ..judge.record import CheckRecord, SubmissionRecord
from .grade import read_record, record_path
from .grades import Change, GradingError, file_stem


def story(out: Path, student: str) -> Iterator[str]:
    """Lines, from the first record that is known to the one in force, and what is proposed. Raises GradingError."""
    now = read_record(record_path(out, student))
    if now is None:
        raise GradingError(f"{out} holds no record of {student}: is the name that of the row in grades.csv?")
    stem = file_stem(student)
    history = sorted((out / "history").glob(f"{stem}.*.json"), key=lambda p: int(p.stem.rpartition(".")[2]))
    earlier = [found for path in history if (found := read_record(path)) is not None]
    yield from _submission(now)
    yield from _circumstances(now)
    for before, after in itertools.pairwise([*earlier, now]):
        yield f"{before.date}  graded: {_points(before)}{_because(before)}"
        yield from (f"    then {line}" for line in _difference(before, after))
    yield f"{now.date}  graded: {_points(now)}{_because(now)}; this is in force"
    for check in now.checks:
        yield from _check(check)
    yield from _in_time(now)
    proposed = read_record(out / "proposed" / f"{stem}.json")
    if proposed is not None:
        yield f"{proposed.date}  proposed: {_points(proposed)}; not in force until `convladder grade … --apply`"
        yield from (f"    {line}" for line in _difference(now, proposed))
    yield (
        f"to judge it again: `convladder regrade {student} {now.lab} --reason TEXT`, with {out / 'grading.json'} (the "
        f"seeds), {out / 'run.json'} (the rules and the submissions) and the versions above"
    )


def _in_time(record: SubmissionRecord) -> Iterator[str]:
    """What a deadline did to a grade."""
    if not record.deadline:
        return
    late = f"{record.late_s / 3600:.2f} hours late" if record.late_s else "in time"
    cost = (
        f", which costs {record.penalty:g} points: {record.score - record.penalty:g} are left" if record.penalty else ""
    )
    yield f"handed in {record.submitted or 'at an unknown time'}, due {record.deadline}: {late}{cost}"


def _submission(record: SubmissionRecord) -> Iterator[str]:
    yield f"{record.student}, {record.lab}: {record.notebook or 'no notebook'}"
    if record.sha256:
        yield f"notebook sha256 {record.sha256}"
    for problem in record.problems:
        yield f"the notebook itself: {problem}"


def _circumstances(record: SubmissionRecord) -> Iterator[str]:
    facts = {**record.environment}
    if release := facts.pop("release", ""):
        other = facts.pop("notebook of release", "")
        yield f"release  {release} of {record.lab}{f'; the notebook says that it is of {other}' if other else ''}"
    yield f"rules    spec sha256 {record.spec_sha256}"
    where = {"sim": "the engine", "gpu": "a GPU, after the engine found no fault"}.get(record.on, record.on)
    yield f"judged   on {where}; timing {record.timing}; sandbox {record.sandbox}; {record.seconds:.2f} s"
    if secret := facts.pop("secret", ""):
        yield f"seeds    drawn from the class's secret {secret} (this is its name, not the secret)"
    for name in ("device", "group", "reason", "kept", "unfinished", "timed_on"):
        if said := facts.pop(name, ""):
            yield f"{name:8s} {said}"
    if compiler := facts.pop("nvidia-cuda-nvrtc", ""):
        yield f"compiler NVRTC {compiler}"
    judge = f"convladder {facts.pop('convladder', 'of unknown version')}"
    if sources := facts.pop("sources", ""):
        judge += f", whose texts have the digest {sources}"
    yield f"judge    {judge}"
    yield f"explain  explanations {'count' if facts.pop('explain', 'on') == 'on' else 'do not count'}"
    yield f"versions {', '.join(f'{name} {value}' for name, value in facts.items())}"


def _points(record: SubmissionRecord) -> str:
    by_hand = f", {record.manual_max:g} more by hand" if record.manual_max else ""
    return f"{record.score:g} of {record.max:g} points{by_hand}"


def _because(record: SubmissionRecord) -> str:
    reason = record.environment.get("reason")
    return f" (judged again: {reason})" if reason else ""


def _difference(before: SubmissionRecord, after: SubmissionRecord) -> Iterator[str]:
    if before.sha256 != after.sha256:
        yield "another notebook was handed in"
    if before.spec_sha256 != after.spec_sha256:
        yield "the rules were changed"
    change = Change.between(before, after)
    for name in change.checks if change is not None else ():
        old, new = (next((c for c in r.checks if c.check == name), None) for r in (before, after))
        yield f"{name}: {_score(old)} became {_score(new)}"


def _score(check: CheckRecord | None) -> str:
    return "nothing" if check is None else f"{check.score:g} of {check.max:g}"


def _check(check: CheckRecord) -> Iterator[str]:
    verdict = "by hand" if check.manual else {True: "passed", False: "failed", None: "not reached"}[check.passed]
    hidden = ", on hidden cases" if check.hidden else ""
    yield f"  {check.check}: {verdict}{hidden}, {_score(check)}"
    if check.rationale:
        yield f"      {' '.join(check.rationale.split())}"
    facts = [f"{k} {check.evidence[k]}" for k in ("case", "symbols", "form", "value", "limit") if k in check.evidence]
    device = check.evidence.get("device")
    facts += [f"device {device['device']}"] if isinstance(device, dict) and "device" in device else []
    if facts and check.passed is not None:
        yield f"      evidence: {'; '.join(facts)}"
