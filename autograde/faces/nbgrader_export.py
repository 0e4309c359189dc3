"""nbgrader's `export` with its own columns, as CSV that every reader takes: names with commas and quotes are quoted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student
from nbgrader.plugins import ExportPlugin

from ..course.grade import cell_text

COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score",
)  # fmt: skip


class Table(ExportPlugin):
    """One row for each assignment and student. Text that a spreadsheet would run is marked as text."""

    def export(self, gradebook: Gradebook) -> None:
        path = Path(self.to or "grades.csv")
        self.log.info("Exporting grades to %s", path)
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            table.writerows(self._rows(gradebook))

    def _rows(self, gradebook: Gradebook) -> Iterator[list[str]]:
        labs, students = {str(name) for name in self.assignment}, {str(name) for name in self.student}
        for assignment in gradebook.assignments:
            for student in gradebook.students:
                if assignment.name in (labs or {assignment.name}) and student.id in (students or {student.id}):
                    yield [
                        cell_text("" if value is None else str(value)) for value in _row(gradebook, assignment, student)
                    ]


def _row(gradebook: Gradebook, assignment: Assignment, student: Student) -> list[object]:
    """The values of COLUMNS; whoever handed nothing in has no points."""
    try:
        submission = gradebook.find_submission(assignment.name, student.id)
        raw, penalty = submission.score, submission.late_submission_penalty or 0.0
        timestamp = submission.timestamp
    except MissingEntry:
        raw, penalty, timestamp = 0.0, 0.0, None
    return [
        assignment.name, assignment.duedate, timestamp, student.id, student.last_name, student.first_name,
        student.email, raw, penalty, max(0.0, raw - penalty), assignment.max_score,
    ]  # fmt: skip
