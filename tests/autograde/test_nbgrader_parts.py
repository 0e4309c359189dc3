"""What our parts of nbgrader do, one by one; test_nbgrader.py runs its commands."""

from __future__ import annotations

import csv
import re
import sqlite3
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.converters.base import NbGraderException

from convladder.autograde.course import build
from convladder.autograde.faces import nbgrader_course, nbgrader_output
from convladder.autograde.faces.nbgrader_export import Table
from convladder.autograde.faces.nbgrader_plugin import STUB, _require_writable, find_alembic, harmless_markdown
from convladder.autograde.judge.record import CheckRecord
from convladder.kernels.errors import ConvladderError


def grade_cell(points: float) -> nbformat.NotebookNode:
    cell = nbformat.v4.new_code_cell('check("t")')
    cell.metadata["nbgrader"] = {
        "grade": True, "solution": False, "locked": True, "points": points, "grade_id": "t-check", "schema_version": 3,
        "task": False,
    }  # fmt: skip
    return cell


def check(score: float, most: float = 5.0, rationale: str = "") -> CheckRecord:
    record = CheckRecord("t", "t.correct", score >= most, 0.0, most, rationale)
    record.score = score  # also what a CheckRecord refuses
    return record


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (5.0, 5.0), (2.5, 2.5), (0.0, 0.0), (np.float64(2.5), 2.5), (False, 0.0), (-1.0, 0.0), (float("nan"), 0.0),
        (float("inf"), 0.0), (7.0, 5.0), (1e-9, 1e-9),
    ],
)  # fmt: skip
def test_nbgrader_reads_from_a_grade_cell_exactly_the_clamped_points(score: float, wanted: float) -> None:
    cell = grade_cell(5.0)
    cell.outputs = nbgrader_output.graded([check(score)], 5.0, "")
    assert cell.outputs[-1].data["text/plain"] == repr(float(wanted))
    assert utils.determine_grade(cell) == (wanted, 5.0)
    assert not utils.has_failed(cell)


def test_reasons_are_escaped_in_html_and_plain_in_words() -> None:
    shown = nbgrader_output.graded([check(0.0, rationale="<script>alert(1)</script> \x1b[31m")], 5.0, "")[0]
    assert "<script>" not in shown.data["text/html"]
    assert "&lt;script&gt;" in shown.data["text/html"]
    assert "\x1b" not in shown.data["text/plain"] + shown.data["text/html"]


@pytest.mark.parametrize(
    "text",
    [
        "<script>x</script>", "<img src=x onerror=y>", "</div>", "<!-- x -->", "[a](javascript:x)", "![a](http://x/y.png)",
        "[a]: javascript:x\n\n[a][a]", "<http://x>",
    ],
)  # fmt: skip
def test_a_students_words_make_no_tags_or_images_and_no_link_that_runs(text: str) -> None:
    from nbconvert.filters.markdown_mistune import markdown2html_mistune

    made = markdown2html_mistune(harmless_markdown(f"words {text} words\n\n{text}"))
    assert set(re.findall(r"<(\w+)", made)) <= {"p", "br", "a"}
    assert all(target.startswith("http://") for target in re.findall(r'<a href="([^"]*)">', made))


def test_ordinary_words_stay_as_they_are() -> None:
    text = "x < y, `a[i] < 3`, *why*: 4.5 <= 9"
    assert harmless_markdown(text) == text


def test_a_gradebook_that_another_program_holds_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "gradebook.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE t (x)")
    _require_writable(f"sqlite:///{path}", 0.1)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(NbGraderException, match=r"gradebook\.db cannot be written \(database is locked\)"):
        _require_writable(f"sqlite:///{path}", 0.1)
    holder.close()


def test_source_notebooks_are_solved_and_carry_what_students_get() -> None:
    source = nbgrader_course.source_notebook("01_direct")
    released = build.build_lab("01_direct")
    answers = [(s, r) for s, r in zip(source.cells, released.cells, strict=True) if utils.is_solution(s)]
    assert answers
    for solved, stub in answers:
        assert solved.metadata[STUB] == stub.source
    assert any(solved.source != stub.source for solved, stub in answers)
    assert [c.id for c in source.cells] == [c.id for c in nbgrader_course.source_notebook("01_direct").cells]


def test_making_a_course_again_keeps_its_configuration_and_its_secret(tmp_path: Path) -> None:
    nbgrader_course.make(tmp_path, ["01_direct"])
    secret = (tmp_path / "grades/01_direct/grading.json").read_text()
    config = tmp_path / "nbgrader_config.py"
    config.write_text(config.read_text() + "# mine\n")
    assert nbgrader_course.make(tmp_path, ["01_direct"]) == [tmp_path / "source/01_direct/01_direct.ipynb"]
    assert (tmp_path / "grades/01_direct/grading.json").read_text() == secret
    assert config.read_text().endswith("# mine\n")


def test_a_lab_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConvladderError, match="no lab 09_none; there are: 00_start"):
        nbgrader_course.make(tmp_path / "course", ["09_none"])
    assert not (tmp_path / "course").exists()


def test_the_exported_table_quotes_what_csv_asks_for_and_runs_nothing(tmp_path: Path) -> None:
    find_alembic()
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        book.add_assignment("01_direct")
        book.add_student("ada", last_name='Lovelace, "Countess"', first_name="=1+1", email="ada@example.org")
        book.add_student("bela")
        Table(to=str(tmp_path / "all.csv")).export(book)
        Table(to=str(tmp_path / "one.csv"), student=["bela"]).export(book)
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert rows["ada"]["last_name"] == 'Lovelace, "Countess"'
    assert rows["ada"]["first_name"] == "'=1+1"
    assert (rows["ada"]["score"], rows["bela"]["email"]) == ("0.0", "")
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 2
