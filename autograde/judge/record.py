"""The record: what a check says of a task, and what a judged submission is.

The record comes first; text, HTML, the class table and nbgrader's outputs are drawn from it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any


@dataclass
class CheckRecord:
    """What one check says of one task.

    passed     True, False, or None: skipped because a check that it needs failed, or not decidable by machine
    score      points given, 0 <= score <= max
    rationale  what is wrong, in the student's terms; one or two sentences
    help       the step of the lab to go back to, or what to try
    evidence   JSON-able facts behind the verdict, enough to draw a picture and to defend the grade
    hidden     True where inputs are not public: students see `student_view` only
    manual     True where a person grades
    """

    task: str
    check: str
    passed: bool | None
    score: float
    max: float
    rationale: str = ""
    help: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    hidden: bool = False
    manual: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.score) and 0 <= self.score <= self.max):
            raise ValueError(f"{self.check}: score {self.score} is not between 0 and {self.max}")

    def student_view(self) -> CheckRecord:
        """Of a hidden case a student sees the category of the failure only."""
        if not self.hidden:
            return self
        category = self.evidence.get("category", "")
        return CheckRecord(
            self.task, self.check, self.passed, self.score, self.max,
            rationale=category if self.passed is False else self.rationale if self.passed is None else "",
            help=self.help, hidden=True, manual=self.manual,
        )  # fmt: skip


@dataclass
class SubmissionRecord:
    """One judged submission. `problems` are faults of the notebook itself, each naming cell and fix.

    submitted, deadline  times of ISO 8601 with their zone, where a course states a deadline; "" elsewhere
    penalty              points of `score` that the course takes off for lateness; `score` itself is without it
    keys                 what each task's checks depended on, as a digest (judge.content)
    """

    lab: str
    student: str
    notebook: str
    sha256: str
    spec_sha256: str
    on: str
    timing: str
    checks: list[CheckRecord]
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    date: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    sandbox: str = ""
    submitted: str = ""
    deadline: str = ""
    penalty: float = 0.0
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def late_s(self) -> float:
        """Seconds after the deadline; 0 where there is none, or it was kept."""
        if not (self.submitted and self.deadline):
            return 0.0
        late = datetime.fromisoformat(self.submitted) - datetime.fromisoformat(self.deadline)
        return max(0.0, late.total_seconds())

    @property
    def score(self) -> float:
        """Points that the machine gave."""
        return math.fsum(c.score for c in self.checks)

    @property
    def max(self) -> float:
        """Points that the machine could give."""
        return math.fsum(c.max for c in self.checks if not c.manual)

    @property
    def manual_max(self) -> float:
        """Points that a person still gives."""
        return math.fsum(c.max for c in self.checks if c.manual)

    def student_view(self) -> SubmissionRecord:
        fields = {**self.__dict__, "checks": [c.student_view() for c in self.checks], "environment": {}, "keys": {}}
        return SubmissionRecord(**fields)

    def to_json(self) -> str:
        body = {"score": self.score, "max": self.max, "manual_max": self.manual_max, **asdict(self)}
        return json.dumps(body, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> SubmissionRecord:
        body = json.loads(text)
        for derived in ("score", "max", "manual_max"):
            body.pop(derived, None)
        body["checks"] = [CheckRecord(**c) for c in body["checks"]]
        return cls(**body)
