"""Four proofs that a lab judges as it says: by its own solution, its own stub, its own list of mistakes.

stub          the released notebook scores 0 on every check and passes no task
solution      the solved notebook passes every check that a machine decides, with full points
wrong         each known mistake fails the checks that it names, and nothing else
regeneration  labs/ holds what the sources build, and they build the same bytes twice
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .. import judge as judging
from ..judge.record import CheckRecord, SubmissionRecord
from ..judge.spec import Spec
from . import build, sample
from .course import Course
from .sample import Student

#: The proofs' seed: they repeat.
_SECRET = b"prove"

Judge = Callable[[Student], SubmissionRecord]


@dataclass
class Step:
    """One proof. `details` says what does not hold, a line for each."""

    name: str
    details: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.details


@dataclass
class Proof:
    lab: str
    steps: list[Step]

    @property
    def passed(self) -> bool:
        return all(step.passed for step in self.steps)


def prove(lab: str, root: Path | None = None, policy: str = "none", course: Course | None = None) -> Proof:
    """Run the four proofs of a lab, of the repository or of a course.

    policy  how the lab's own texts are run: "none" (a separate process) or "bwrap" (sandboxed)
    Raises BuildError where the sources do not build, SandboxError where the policy cannot be had.
    """
    spec = judging.load(lab) if course is None else course.spec(lab)
    with tempfile.TemporaryDirectory(prefix="convladder-prove-") as folder:
        students = sample.sample_class(lab, folder, root, course)

        def judge(student: Student) -> SubmissionRecord:
            submission = judging.read(student.path, spec)
            return judging.judge(spec, submission, student=student.name, secret=_SECRET, sandbox=policy)

        solved, stub, *wrong = students
        steps = [
            Step("stub", _stub(spec, judge(stub))),
            Step("solution", _solution(judge(solved))),
            Step(f"wrong ({len(wrong)})", [line for student in wrong for line in _wrong(student, judge(student))]),
        ]
    return Proof(lab, [*steps, Step("regeneration", _regeneration(lab, root, course))])


def _stub(spec: Spec, record: SubmissionRecord) -> list[str]:
    scored = [f"{c.check} gives {c.score:g} points to the stub" for c in record.checks if c.score]
    decided = {c.task for c in record.checks if not c.manual}
    done = [t for t in decided if all(c.passed for c in record.checks if c.task == t)]
    return scored + [f"{task.name} is passed by the stub" for task in spec.tasks if task.name in done]


def _solution(record: SubmissionRecord) -> list[str]:
    said = list(record.problems)
    said += [_said(c) for c in record.checks if not c.manual and not (c.passed and c.score == c.max)]
    return said


def _wrong(student: Student, record: SubmissionRecord) -> list[str]:
    expected = set(student.fails or ())
    failed = {c.check for c in record.checks if c.passed is False}
    tasks = {check.partition(".")[0] for check in expected}
    who = student.what.partition(":")[0]
    said = [f"{who}: {check} must fail and does not" for check in sorted(expected - failed)]
    said += [f"{who}: {_said(c)}" for c in record.checks if c.passed is False and c.check not in expected]
    said += [f"{who}: {_said(c)}" for c in record.checks if c.passed is None and not c.manual and c.task not in tasks]
    return said


def _said(check: CheckRecord) -> str:
    outcome = {True: "passed", False: "failed", None: "skipped"}[check.passed]
    return f"{check.check} {outcome} with {check.score:g} of {check.max:g}: {check.rationale}"


def _regeneration(lab: str, root: Path | None, course: Course | None) -> list[str]:
    first, second = (build.serialise(build.build_lab(lab, root, course)) for _ in range(2))
    said = [] if first == second else ["building twice gives different bytes"]
    path = build.student_path(lab, root, course)
    if not path.is_file() or path.read_bytes() != first.encode():
        said.append(f"{path} is not what the sources build: run `convladder build` and keep what it writes")
    return said
