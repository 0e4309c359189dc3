"""nbgrader's own commands on a clean course folder, from the release to the exported table.

One class goes through one autograde: sample students, and one for each way in which a notebook can be broken.
"""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from nbgrader import utils
from nbgrader.api import Gradebook
from traitlets.config import PyFileConfigLoader

from convladder.autograde.course import build, grade, sample
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import sandbox
from convladder.autograde.judge.record import SubmissionRecord

LAB = "01_direct"
BROKEN_TASK = "direct_clipped"
EXPLAIN = "explain_mapping"
SECRET_WORD = "hypotenuse"


@dataclass
class Course:
    """A course folder, and what its commands said."""

    root: Path
    autograded: subprocess.CompletedProcess[str]

    def nbgrader(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return nbgrader(self.root, *arguments)

    def gradebook(self) -> Gradebook:
        return Gradebook(f"sqlite:///{self.root}/gradebook.db")

    def scores(self, student: str) -> dict[str, float | None]:
        """What the gradebook has of each task, without what a person gives."""
        with self.gradebook() as book:
            grades = book.find_submission_notebook(LAB, LAB, student).grades
            return {g.name.removesuffix("-check"): g.auto_score for g in grades}

    def record(self, student: str) -> SubmissionRecord:
        path = self.root / "grades" / LAB / "records" / f"{student}.json"
        return SubmissionRecord.from_json(path.read_text())

    def notebook(self, student: str) -> nbformat.NotebookNode:
        return nbformat.read(self.root / "autograded" / student / LAB / f"{LAB}.ipynb", as_version=4)

    def feedback(self, student: str) -> str:
        return (self.root / "feedback" / student / LAB / f"{LAB}.html").read_text()


def nbgrader(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of nbgrader's commands, in the course folder."""
    command = [sys.executable, "-m", "nbgrader", *arguments]
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(root / "no-config"), "NO_COLOR": "1"}
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment, check=False)


def answered(explanation: str = "It is coalesced.") -> nbformat.NotebookNode:
    """The solved notebook with something in its written cell."""
    notebook = build.solved_notebook(LAB)
    for cell in notebook.cells:
        if cell.id == EXPLAIN:
            cell.source = explanation
    return notebook


def cell_of(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(c for c in notebook.cells if c.id == name)


def without_tests(notebook: nbformat.NotebookNode) -> None:
    notebook.cells = [c for c in notebook.cells if not utils.is_grade(c) or c.cell_type == "markdown"]


def with_rewritten_tests(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if utils.is_grade(cell) and cell.cell_type == "code":
            cell.source = "100.0"
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "100.0"}, execution_count=1)]


def with_copied_tests(notebook: nbformat.NotebookNode) -> None:
    copies = [copy.deepcopy(c) for c in notebook.cells if utils.is_grade(c)]
    for cell in copies:
        cell.id = f"copy-{cell.id}"[:60]
    notebook.cells += copies


def with_renamed_tests(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if utils.is_grade(cell) and cell.cell_type == "code":
            cell.metadata.nbgrader.grade_id = f"my-{cell.metadata.nbgrader.grade_id}"


def with_changed_metadata(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        if utils.is_grade(cell):
            cell.metadata.nbgrader.update(points=1000, grade=cell.cell_type == "markdown", locked=False)
        elif "nbgrader" in cell.metadata:
            cell.metadata.nbgrader.update(schema_version=1, solution=False, checksum="0")
    notebook.metadata["kernelspec"] = {"name": "mine", "display_name": "mine", "language": "mine"}


TAMPERED: dict[str, Callable[[nbformat.NotebookNode], None]] = {
    "deleted": without_tests,
    "rewritten": with_rewritten_tests,
    "copied": with_copied_tests,
    "renamed": with_renamed_tests,
    "metadata": with_changed_metadata,
}

#: What is handed in by students whose file is no notebook, and a word of what they are told.
UNREADABLE: dict[str, tuple[str, str]] = {
    "cut": ('{"cells": [', "not JSON"),
    "void": ("", "is empty"),
    "future": ('{"nbformat": 9, "nbformat_minor": 0, "cells": []}', "notebook format 9"),
    "huge": (" " * ((64 << 20) + 1), "more than 64 MiB"),
    "other": ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}', "no answer cell"),
}


def submissions(folder: Path) -> None:
    """DIR/STUDENT/LAB/LAB.ipynb of the whole class."""

    def hand_in(student: str, text: str, timestamp: str = "2026-01-01 10:00:00 UTC") -> None:
        place = folder / student / LAB
        place.mkdir(parents=True)
        (place / f"{LAB}.ipynb").write_text(text, encoding="utf-8")
        (place / "timestamp.txt").write_text(timestamp)

    solved = answered()
    wrong = {Path(w.path).stem: w for w in sample.mistakes(LAB)}
    mistake = next(w for w in wrong.values() if w.fails == (f"{BROKEN_TASK}.hidden",))
    flawed = answered()
    task = cell_of(flawed, BROKEN_TASK)
    task.source = task.source.partition("\n")[0] + "\n" + mistake.text
    hand_in("ada", build.serialise(solved))
    hand_in("late", build.serialise(solved), "2026-03-01 10:00:00 UTC")
    hand_in("elena", build.serialise(flawed))
    hand_in("bela", build.serialise(build.build_lab(LAB)))
    hand_in("html", build.serialise(html_everywhere()))
    for student, tamper in TAMPERED.items():
        notebook = copy.deepcopy(flawed)
        tamper(notebook)
        hand_in(student, nbformat.writes(notebook))
    hand_in("third", json.dumps(nbformat.convert(copy.deepcopy(flawed), 3)))
    for student, (text, _) in UNREADABLE.items():
        hand_in(student, text)


def html_everywhere() -> nbformat.NotebookNode:
    notebook = answered("It is <script>alert('words')</script> and [here](javascript:alert(1)), as x < y says.")
    cell_of(notebook, "direct_guarded").source = "%%cuda direct_guarded\n</pre><script>alert('kernel')</script>"
    cell_of(notebook, "predict_report").source = "%%answer predict_report\npredict_report = <script>alert('n')</script>"
    return notebook


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    """A class that went through generate_assignment, autograde and generate_feedback."""
    root = tmp_path_factory.mktemp("nbgrader") / "a course"
    made = CliRunner().invoke(main, ["nbgrader-setup", str(root), "--lab", LAB], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    if not sandbox.available()[0]:  # the class is our own
        with (root / "nbgrader_config.py").open("a") as config:
            config.write('c.Judge.sandbox = "none"\n')
    added = nbgrader(root, "db", "assignment", "add", LAB, "--duedate=2026-02-01 00:00:00 UTC")
    assert added.returncode == 0, added.stderr
    released = nbgrader(root, "generate_assignment", LAB)
    assert released.returncode == 0, released.stderr
    submissions(root / "submitted")
    autograded = nbgrader(root, "autograde", LAB, "--LateSubmissionPlugin.penalty_method=zero")
    feedback = nbgrader(root, "generate_feedback", LAB)
    assert feedback.returncode == 0, feedback.stderr
    yield Course(root, autograded)
    shutil.rmtree(root)


def grade_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [c for c in notebook.cells if utils.is_grade(c)]


# --- The release ---------------------------------------------------------------------------------


def test_generate_assignment_gives_exactly_the_notebook_of_labs(course: Course) -> None:
    released = course.root / "release" / LAB / f"{LAB}.ipynb"
    assert released.read_bytes() == build.student_path(LAB).read_bytes()


def test_the_release_and_the_feedback_hold_one_file_a_lab(course: Course) -> None:
    assert [p.name for p in (course.root / "release").rglob("*") if p.is_file()] == [f"{LAB}.ipynb"]
    assert {p.suffix for p in (course.root / "feedback").rglob("*") if p.is_file()} == {".html", ".txt"}


def test_a_file_beside_the_source_notebook_stops_the_release_with_a_reason(course: Course) -> None:
    stray = course.root / "source" / LAB / f"{LAB}.hidden.toml"
    stray.write_text(SECRET_WORD)
    try:
        refused = course.nbgrader("generate_assignment", LAB, "--force")
        assert refused.returncode == 1
        assert f"holds {stray.name}" in refused.stderr
        assert not (course.root / "release" / LAB).exists()
    finally:
        stray.unlink()
        again = course.nbgrader("generate_assignment", LAB, "--force")
        assert again.returncode == 0, again.stderr


def test_the_gradebook_and_the_course_do_not_follow_the_working_directory(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = PyFileConfigLoader("nbgrader_config.py", path=str(course.root)).load_config()
    assert config.CourseDirectory.root == str(course.root)
    assert config.CourseDirectory.db_url == f"sqlite:///{course.root}/gradebook.db"


# --- What a cell gets ----------------------------------------------------------------------------


def test_every_grade_cell_has_one_float_and_nothing_on_stderr(course: Course) -> None:
    for folder in (course.root / "autograded").iterdir():
        for cell in grade_cells(course.notebook(folder.name)):
            if cell.cell_type == "markdown":
                continue
            shown, result = cell.outputs
            assert (shown.output_type, result.output_type) == ("display_data", "execute_result")
            value = float(result.data["text/plain"])
            assert result.data["text/plain"] == repr(value)
            assert 0 <= value <= cell.metadata.nbgrader.points


def test_the_gradebook_has_the_records_scores(course: Course) -> None:
    for student in ("ada", "elena", "bela", "html", *UNREADABLE):
        record = course.record(student)
        tasks = dict.fromkeys(c.task for c in record.checks if not c.manual)
        wanted = {task: sum(c.score for c in record.checks if c.task == task) for task in tasks}
        found = {task: score for task, score in course.scores(student).items() if task in wanted}
        assert found == pytest.approx(wanted, abs=1e-12), student
    assert sum(filter(None, course.scores("ada").values())) == pytest.approx(95)
    assert set(course.scores("bela").values()) == {0.0}


@pytest.mark.parametrize("student", [*TAMPERED, "third"])
def test_a_tampered_notebook_gets_what_its_answers_are_worth(course: Course, student: str) -> None:
    assert course.scores(student) == course.scores("elena")
    graded = course.notebook(student)
    released = nbformat.read(course.root / "release" / LAB / f"{LAB}.ipynb", as_version=4)
    assert [c.id for c in graded.cells] == [c.id for c in released.cells]
    for cell, mine in zip(graded.cells, released.cells):
        assert {**cell.metadata, "magics_language": ""} == {**mine.metadata, "magics_language": ""}
        assert utils.is_solution(cell) or cell.source == mine.source


@pytest.mark.parametrize("student", UNREADABLE)
def test_an_unreadable_notebook_gets_nothing_and_is_told_why(course: Course, student: str) -> None:
    says = UNREADABLE[student][1]
    assert set(course.scores(student).values()) == {0.0}
    assert says in course.feedback(student)
    assert says in course.autograded.stderr


def test_the_class_goes_on_and_the_command_ends_well(course: Course) -> None:
    assert course.autograded.returncode == 0, course.autograded.stderr
    assert "Traceback" not in course.autograded.stderr
    handed_in = {p.name for p in (course.root / "submitted").iterdir()}
    assert {p.name for p in (course.root / "autograded").iterdir()} == handed_in


@pytest.mark.full
def test_convladder_grade_gives_every_broken_notebook_the_same(course: Course, tmp_path: Path) -> None:
    shutil.copy(course.root / "grades" / LAB / "grading.json", tmp_path)
    settings = grade.Settings(sandbox="bwrap" if sandbox.available()[0] else "none", workers=2)
    own = grade.grade_class(LAB, course.root / "submitted", tmp_path, settings)
    assert {r.student for r in own.records} > {*TAMPERED, *UNREADABLE, "third"}
    for record in own.records:
        other = course.record(record.student)
        assert (record.score, record.problems) == (other.score, other.problems)


# --- What students see ---------------------------------------------------------------------------


def test_of_a_hidden_case_the_feedback_shows_the_category_and_the_record_keeps_all(course: Course) -> None:
    hidden = next(c for c in course.record("elena").checks if c.check == f"{BROKEN_TASK}.hidden")
    assert hidden.passed is False
    case = hidden.evidence["case"]
    page = course.feedback("elena")
    assert case not in page
    assert hidden.evidence["category"] in page
    assert hidden.rationale not in page
    assert case not in nbformat.writes(course.notebook("elena"))


def test_the_records_and_the_secret_are_for_their_owner_only(course: Course) -> None:
    grades = course.root / "grades" / LAB
    for path in (grades / "grading.json", grades / "records" / "ada.json"):
        assert path.stat().st_mode & 0o077 == 0
    assert json.loads((grades / "grading.json").read_text())["secret"] not in course.feedback("ada")


def test_html_in_answers_is_text_in_the_feedback(course: Course) -> None:
    page = course.feedback("html")
    assert "alert(" in page
    assert not re.search(r"<script[^>]*>\s*alert", page)
    assert 'href="javascript:' not in page


# --- Points given by hand, comments, late work, regrades ------------------------------------------


def test_a_written_answer_waits_for_a_person_and_a_missing_one_gets_zero(course: Course) -> None:
    with course.gradebook() as book:
        written = book.find_grade(EXPLAIN, LAB, LAB, "elena")
        assert (written.needs_manual_grade, written.auto_score) == (True, None)
        missing = book.find_grade(EXPLAIN, LAB, LAB, "bela")
        assert (missing.needs_manual_grade, missing.auto_score) == (False, 0)
        assert book.find_comment(EXPLAIN, LAB, LAB, "bela").auto_comment == "No response."


def test_a_regrade_keeps_points_given_by_hand_and_comments(course: Course) -> None:
    with course.gradebook() as book:
        book.find_grade(EXPLAIN, LAB, LAB, "ada").manual_score = 4.0
        book.find_comment(EXPLAIN, LAB, LAB, "ada").manual_comment = "Which counter says so?"
        book.db.commit()
    before = course.record("ada")
    again = course.nbgrader("autograde", LAB, "--student", "ada", "--force")
    assert again.returncode == 0, again.stderr
    after = course.record("ada")
    assert after.date >= before.date
    assert [c.score for c in after.checks] == [c.score for c in before.checks]
    with course.gradebook() as book:
        grade_of = book.find_grade(EXPLAIN, LAB, LAB, "ada")
        assert (grade_of.manual_score, grade_of.needs_manual_grade) == (4.0, True)
        assert book.find_comment(EXPLAIN, LAB, LAB, "ada").manual_comment == "Which counter says so?"
        assert book.find_submission(LAB, "ada").score == pytest.approx(99)
    told = course.nbgrader("generate_feedback", LAB, "--student", "ada", "--force")
    assert told.returncode == 0, told.stderr
    assert "Which counter says so?" in course.feedback("ada")


def test_late_work_is_penalised_as_the_course_says_and_the_export_says_so(course: Course, tmp_path: Path) -> None:
    exported = course.nbgrader("export", "--to", str(tmp_path / "grades.csv"))
    assert exported.returncode == 0, exported.stderr
    rows = {row["student_id"]: row for row in csv.DictReader((tmp_path / "grades.csv").open())}
    late = rows["late"]
    assert float(late["raw_score"]) == pytest.approx(95)
    assert float(late["late_submission_penalty"]) == pytest.approx(95)
    assert float(late["score"]) == 0
    assert float(rows["elena"]["late_submission_penalty"]) == 0
    assert float(rows["elena"]["max_score"]) == pytest.approx(100)


# --- The other door ------------------------------------------------------------------------------


def test_convladder_grade_gives_every_task_the_same_score(course: Course, tmp_path: Path) -> None:
    own = tmp_path / "grades"
    own.mkdir()
    shutil.copy(course.root / "grades" / LAB / "grading.json", own)
    chosen = ("ada", "elena", "bela", "copied")
    for student in chosen:
        shutil.copytree(course.root / "submitted" / student, tmp_path / "submitted" / student)
    kind = "bwrap" if sandbox.available()[0] else "none"
    grades = grade.grade_class(LAB, tmp_path / "submitted", own, grade.Settings(sandbox=kind, workers=2))
    assert grades.kept == 0
    for record in grades.records:
        mine = course.record(record.student)
        assert [(c.check, c.passed, c.score, c.max, c.rationale) for c in record.checks] == [
            (c.check, c.passed, c.score, c.max, c.rationale) for c in mine.checks
        ]
    assert {r.student for r in grades.records} == set(chosen)


def test_each_door_takes_the_records_of_the_other_over(course: Course) -> None:
    kind = "bwrap" if sandbox.available()[0] else "none"
    out = course.root / "grades" / LAB
    grades = grade.grade_class(LAB, course.root / "submitted", out, grade.Settings(sandbox=kind))
    assert grades.kept == len(grades.records) - len([r for r in grades.records if not r.sha256])
    assert not grades.strays


# --- Trouble -------------------------------------------------------------------------------------


def test_a_locked_gradebook_is_told_in_one_message_before_anything_is_graded(course: Course) -> None:
    other = sqlite3.connect(course.root / "gradebook.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        refused = course.nbgrader(
            "autograde", LAB, "--student", "bela", "--force", "--SubmittedNotebook.gradebook_patience_s=0.5"
        )
    finally:
        other.rollback()
        other.close()
    assert refused.returncode == 1
    assert "cannot be written (database is locked), so nothing was graded" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (course.root / "autograded" / "bela" / LAB).is_dir()


def test_a_student_who_is_not_on_the_roster_is_named_and_the_class_goes_on(course: Course) -> None:
    shutil.copytree(course.root / "submitted" / "bela", course.root / "submitted" / "stranger")
    try:
        graded = course.nbgrader("autograde", LAB, "--student=[bs]*", "--force", "--Autograde.create_student=False")
        assert graded.returncode == 1
        assert "No student with ID 'stranger' exists in the database" in graded.stderr
        assert (course.root / "autograded" / "bela" / LAB).is_dir()
        assert not (course.root / "autograded" / "stranger" / LAB).exists()
    finally:
        shutil.rmtree(course.root / "submitted" / "stranger")


def test_a_lab_that_was_not_released_is_told_which_command_releases_it(course: Course) -> None:
    released = course.root / "release" / LAB
    away = course.root / "elsewhere"
    released.rename(away)
    try:
        refused = course.nbgrader("autograde", LAB, "--student", "late", "--force")
    finally:
        away.rename(released)
    assert refused.returncode == 1
    assert f"nbgrader generate_assignment {LAB}" in refused.stderr
