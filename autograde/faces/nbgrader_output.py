"""Draws a record as the outputs of nbgrader's cells.

nbgrader's pages keep of a cell's HTML only a few tags without any style, and in our own pages nothing of a student's
text is trusted either: so the HTML here is plain, escaped by the template, and stands beside the same in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nbformat import NotebookNode
from nbformat.v4 import new_output

from ..judge.record import CheckRecord, SubmissionRecord
from . import report

_MAGIC_LANGUAGE = {"%%cuda": "cuda", "%%answer": "python"}


def highlight(notebook: NotebookNode) -> None:
    """Say which language each cell is written in: pages would mark CUDA as broken Python."""
    notebook.metadata.setdefault("language_info", NotebookNode(name="python"))["pygments_lexer"] = "ipython3"
    for cell in notebook.cells:
        language = _MAGIC_LANGUAGE.get(cell.source.partition(" ")[0])
        if cell.cell_type == "code" and language:
            cell.metadata["magics_language"] = language


def points_of(checks: Sequence[CheckRecord], most: float) -> float:
    """What a grade cell gets: a Python float between 0 and `most`, whatever stands in the records."""
    score = math.fsum(check.score for check in checks if not check.manual)
    return min(max(score, 0.0), float(most)) if math.isfinite(score) else 0.0


def graded(checks: Sequence[CheckRecord], most: float, source: str) -> list[NotebookNode]:
    """The outputs of a grade cell: reasons, and the points as the cell's one result.

    source  the text of the task's cell, for the line to blame
    """
    points = points_of(checks, most)
    if not checks:
        shown = {"text/plain": "This task does not count in this course."}
        return [new_output("display_data", shown), _result(points)]
    view = report.task_view(checks[0].task, checks, source=source)
    page = report.environment().get_template("nbgrader.html.j2").render(task=view)
    return [
        new_output("display_data", {"text/html": page, "text/plain": in_words(view)}),
        _result(points),
    ]


def _result(points: float) -> NotebookNode:
    return new_output("execute_result", {"text/plain": repr(points)}, execution_count=1)


def opening(shown: SubmissionRecord, record: SubmissionRecord) -> list[NotebookNode]:
    """The output of the notebook's first cell: what is wrong with the notebook itself, and how it was judged."""
    footer = report.circumstances(record)
    problems = [report.plain(problem) for problem in shown.problems]
    page = report.environment().get_template("nbgrader_opening.html.j2").render(problems=problems, footer=footer)
    return [new_output("display_data", {"text/html": page, "text/plain": "\n".join([*problems, footer])})]


def in_words(view: report.TaskView) -> str:
    """A task's checks as plain text."""
    lines = []
    for check in filter(None, [view.first, *view.others]):
        lines.append(f"{check.state.symbol} {check.label}  {check.points}".rstrip())
        lines += [f"    {line}" for line in check.rationale.split("\n") if line]
        lines += [f"    {row.number:4} | {row.text}" for row in check.excerpt]
        lines += [f"    {check.help}"] if check.help else []
    if view.skipped:
        lines.append(f"{report.SKIPPED.symbol} not reached: {view.skipped}")
    lines += [f"{check.state.symbol} {check.label}  {check.points}".rstrip() for check in view.passed]
    return "\n".join(lines)
