"""Grades as tables that learning platforms import: points given by the machine, less what lateness costs.

What a person still gives is not in them: `explanations` come with nbgrader, or by hand.

    canvas   Grades, Import: students are found by their login, the column by the lab's name
    moodle   Grades, Import, CSV file: map `username`; a student's problems and lateness are feedback
    generic  student, points, maximum
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..judge.record import SubmissionRecord
from .grade import cell_text, points_text, read_record
from .grades import GradingError

Row = Sequence[str]


def records(out: Path) -> list[SubmissionRecord]:
    """The records of a class, by student. Raises GradingError where there are none."""
    found = [r for path in sorted((out / "records").glob("*.json")) if (r := read_record(path)) is not None]
    if not found:
        raise GradingError(f"{out} holds no grades: grade the class first, or name its folder with --out.")
    return sorted(found, key=lambda r: r.student.casefold())


def table(form: str, graded: Sequence[SubmissionRecord], names: Mapping[str, str]) -> str:
    """The grades as CSV. `names` are full names, where a course's roster has them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(FORMS[form](graded, names))
    return text.getvalue()


def _total(record: SubmissionRecord) -> str:
    return points_text(record.score - record.penalty)


def _canvas(graded: Sequence[SubmissionRecord], names: Mapping[str, str]) -> list[Row]:
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", graded[0].lab]
    most = ["    Points Possible", "", "", "", "", points_text(max(r.max for r in graded))]
    rows = [[cell_text(names.get(r.student) or r.student), "", "", cell_text(r.student), "", _total(r)] for r in graded]
    return [head, most, *rows]


def _moodle(graded: Sequence[SubmissionRecord], names: Mapping[str, str]) -> list[Row]:
    head = ["username", graded[0].lab, f"{graded[0].lab} feedback"]
    return [head, *([cell_text(r.student), _total(r), cell_text(_feedback(r))] for r in graded)]


def _feedback(record: SubmissionRecord) -> str:
    late = f"{record.late_s / 3600:.1f} hours late: {points_text(record.penalty)} points off" if record.penalty else ""
    return " | ".join([*record.problems, *([late] if late else [])])


def _generic(graded: Sequence[SubmissionRecord], names: Mapping[str, str]) -> list[Row]:
    return [["student", "points", "max"], *([cell_text(r.student), _total(r), points_text(r.max)] for r in graded)]


FORMS: Mapping[str, Callable[[Sequence[SubmissionRecord], Mapping[str, str]], list[Row]]] = {
    "canvas": _canvas, "moodle": _moodle, "generic": _generic,
}  # fmt: skip
