"""Lab 6 through nbgrader's commands: functions that write kernels are transplanted, judged and told of like kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook

from convladder.autograde.course import build, grade, sample
from convladder.autograde.faces import nbgrader_course
from convladder.autograde.judge import sandbox
from convladder.autograde.judge.record import SubmissionRecord

pytestmark = pytest.mark.full

LAB = "06_codegen"
KIND = "bwrap" if sandbox.available()[0] else "none"  # the class is our own
TASK = "generate"
#: Of the known mistakes those that go through nbgrader: one that fails each kind of check.
WRONG = {"generate_returns_lines", "generate_surplus_threads", "generate_six_digits", "grouped_loads_of_each_filter"}
#: A generator whose text, and whose error, would run a script in the page of whoever reads it.
HOSTILE = """%%answer generate
def generate(w, Hp, Wp, P, Q, U, dil, filters):
    return "<script>alert('generated')</script></pre><img src=x onerror=alert(1)>"
"""
#: A generator that hands in a cell of its own for each task that it would rather be asked.
ELSEWHERE = "%%answer generate\n# see below\n"


def nbgrader(root: Path, *arguments: str) -> None:
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(root / "no-config")}
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def hand_in(root: Path, student: str, notebook: nbformat.NotebookNode) -> None:
    place = root / "submitted" / student / LAB
    place.mkdir(parents=True)
    (place / f"{LAB}.ipynb").write_text(build.serialise(notebook))


def changed(cell_source: str) -> nbformat.NotebookNode:
    """The solved notebook with another answer to TASK."""
    notebook = build.solved_notebook(LAB)
    for cell in notebook.cells:
        if cell.id == TASK:
            cell.source = cell_source
    return notebook


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A course folder with some of the sample class, and two more, graded and told."""
    root = tmp_path_factory.mktemp("generators") / "course"
    nbgrader_course.make(root, [LAB])
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"c.Judge.sandbox = {KIND!r}\n")
    nbgrader(root, "generate_assignment", LAB)
    for student in sample.sample_class(LAB, root / "class"):
        if student.fails and not WRONG & {student.what.partition(".")[0]}:
            shutil.rmtree(student.path.parent)
            continue
        hand_in(root, student.name, nbformat.read(student.path, as_version=4))
    hand_in(root, "mallory", changed(HOSTILE))
    moved = changed(ELSEWHERE)
    answer = next(c.source for c in build.solved_notebook(LAB).cells if c.id == TASK)
    moved.cells.insert(0, nbformat.v4.new_code_cell(answer, id="of-my-own"))
    hand_in(root, "elsewhere", moved)
    nbgrader(root, "autograde", LAB)
    nbgrader(root, "generate_feedback", LAB)
    yield root
    shutil.rmtree(root)


def scores(root: Path, student: str) -> dict[str, float]:
    """What the gradebook has of each task; nothing of a task that waits for a person."""
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        found = book.find_submission_notebook(LAB, LAB, student).grades
        return {g.name.removesuffix("-check"): g.auto_score for g in found if g.auto_score is not None}


def by_machine(record: SubmissionRecord) -> dict[str, float]:
    tasks = dict.fromkeys(c.task for c in record.checks if not c.manual)
    return {t: sum(c.score for c in record.checks if c.task == t) for t in tasks}


def feedback(root: Path, student: str) -> str:
    return (root / "feedback" / student / LAB / f"{LAB}.html").read_text()


def test_both_doors_give_each_student_the_same_scores(course: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(course / "grades" / LAB / "grading.json", own)
    grades = grade.grade_class(LAB, course / "class", own, grade.Settings(sandbox=KIND, workers=2))
    assert len(grades.records) == 2 + len(WRONG)
    for record in grades.records:
        assert scores(course, record.student) == pytest.approx(by_machine(record), abs=1e-12), record.student
    assert sum(scores(course, sample.SOLVED).values()) == pytest.approx(95)
    assert sum(scores(course, sample.STUB).values()) == 0


def test_the_graded_notebook_is_the_released_one_with_the_students_function_in_it(course: Path) -> None:
    released = nbformat.read(course / "release" / LAB / f"{LAB}.ipynb", as_version=4)
    graded = nbformat.read(course / "autograded" / sample.SOLVED / LAB / f"{LAB}.ipynb", as_version=4)
    solved = {c.id: c.source for c in build.solved_notebook(LAB).cells}
    answers = {c.metadata.nbgrader.grade_id for c in released.cells if c.metadata.get("nbgrader", {}).get("solution")}
    assert {"generate_reported", "generate", "generate_grouped"} <= answers
    for before, after in zip(released.cells, graded.cells, strict=True):
        if after.id == "explain_fetch":  # its grader is told there what to look for
            continue
        assert after.source == (solved[after.id] if after.id in answers else before.source)


def test_the_feedback_says_what_is_wrong_with_the_generated_text(course: Path) -> None:
    names = {w.path.stem: name for name, w in zip(sample.NAMES, sample.mistakes(LAB))}
    assert "the constants have too few digits" in feedback(course, names["generate_six_digits"])
    assert "the text generated for case" in feedback(course, names["generate_surplus_threads"])


def test_what_a_generator_returns_is_no_markup_in_the_feedback(course: Path) -> None:
    assert scores(course, "mallory")[TASK] == 0
    page = feedback(course, "mallory")
    assert "<script>alert('generated')" not in page
    assert "<img src=x" not in page


def test_an_answer_in_a_cell_of_ones_own_does_not_count_through_nbgrader(course: Path) -> None:
    found = scores(course, "elsewhere")
    assert found[TASK] == 0
    assert found["generate_grouped"] == pytest.approx(38)
