"""nbgrader with a whole class: from a learning platform's archive, by several commands at once, by both doors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from nbgrader.api import Gradebook

from convladder.autograde.course import build, grade, sample
from convladder.autograde.faces import nbgrader_course
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import sandbox

LAB = "01_direct"
KIND = "bwrap" if sandbox.available()[0] else "none"  # the class is our own


def start(root: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nbgrader", *arguments]
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(root / "no-config")}
    return subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True, env=environment)


def nbgrader(root: Path, *arguments: str) -> str:
    """Run one of nbgrader's commands, which must end well, and return what it said."""
    process = start(root, *arguments)
    _, said = process.communicate()
    assert process.returncode == 0, said
    return said


@pytest.fixture
def released(tmp_path: Path) -> Iterator[Path]:
    """A course folder with a released lab."""
    root = tmp_path / "course"
    nbgrader_course.make(root, [LAB])
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"c.Judge.sandbox = {KIND!r}\n")
    nbgrader(root, "generate_assignment", LAB)
    yield root
    shutil.rmtree(root)


def scores(root: Path, student: str) -> dict[str, float]:
    """What the gradebook has of each task; nothing of a task that waits for a person."""
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        found = book.find_submission_notebook(LAB, LAB, student).grades
        return {g.name.removesuffix("-check"): g.auto_score for g in found if g.auto_score is not None}


def test_an_archive_of_a_learning_platform_is_collected_and_graded(released: Path) -> None:
    archive = released / "downloaded" / LAB / "archive"
    archive.mkdir(parents=True)
    stub, solved = build.serialise(build.build_lab(LAB)), build.serialise(build.solved_notebook(LAB))
    with zipfile.ZipFile(archive / "all.zip", "w") as packed:
        packed.writestr("Bela Bee_4711_assignsubmission_file_/01_direct.ipynb", stub)
        packed.writestr("Lab 1_ada_attempt_2026-01-30-15-00-00_01_direct.ipynb", stub)
        packed.writestr("Lab 1_ada_attempt_2026-01-31-15-00-00_01_direct.ipynb", solved)
        packed.writestr("notes.txt", "no notebook")
    nbgrader(released, "zip_collect", LAB)
    assert {p.name for p in (released / "submitted").iterdir()} == {"ada", "4711"}
    assert "2026-01-31" in (released / "submitted/ada" / LAB / "timestamp.txt").read_text()
    nbgrader(released, "autograde", LAB)
    assert sum(scores(released, "ada").values()) == pytest.approx(95)
    assert set(scores(released, "4711").values()) == {0.0}


@pytest.mark.full
def test_commands_that_grade_at_once_lose_nothing_in_the_gradebook(released: Path) -> None:
    students = [f"s{i}" for i in range(8)]
    for student in students:
        place = released / "submitted" / student / LAB
        place.mkdir(parents=True)
        (place / f"{LAB}.ipynb").write_text(build.serialise(build.solved_notebook(LAB)))
    commands = [start(released, "autograde", LAB, f"--student={student}") for student in students]
    for command in commands:
        said = command.communicate()[1]
        assert command.returncode == 0, said
    wanted = scores(released, "s0")
    assert sum(wanted.values()) == pytest.approx(95)
    assert all(scores(released, student) == wanted for student in students)


@pytest.mark.full
def test_both_doors_give_the_whole_sample_class_the_same_scores(released: Path, tmp_path: Path) -> None:
    students = sample.sample_class(LAB, tmp_path / "class")
    for student in students:
        place = released / "submitted" / student.name / LAB
        place.mkdir(parents=True)
        shutil.copy(student.path, place)
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(released / "grades" / LAB / "grading.json", own)
    nbgrader(released, "autograde", LAB)
    grades = grade.grade_class(LAB, tmp_path / "class", own, grade.Settings(sandbox=KIND, workers=2))
    assert {r.student for r in grades.records} == {s.name for s in students}
    for record in grades.records:
        tasks = dict.fromkeys(c.task for c in record.checks if not c.manual)
        wanted = {t: sum(c.score for c in record.checks if c.task == t) for t in tasks}
        assert scores(released, record.student) == pytest.approx(wanted, abs=1e-12), record.student


def test_on_an_unsolved_notebook_validate_ends_with_0_and_convladder_check_with_1(released: Path) -> None:
    notebook = released / "release" / LAB / f"{LAB}.ipynb"
    nbgrader(released, "validate", str(notebook))
    assert CliRunner().invoke(main, ["check", str(notebook)]).exit_code == 1
