"""nbgrader with a whole class: from a learning platform's archive, by several commands at once, by both doors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from nbgrader.api import Gradebook

from convladder.autograde.course import begin, build, grade, sample
from convladder.autograde.course import course as courses
from convladder.autograde.faces import nbgrader_course
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import sandbox, spec
from convladder.autograde.judge.record import SubmissionRecord

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
    assert {p.name for p in (released / "submitted").iterdir()} == {"ada", "Bela Bee"}
    assert "2026-01-31" in (released / "submitted/ada" / LAB / "timestamp.txt").read_text()
    nbgrader(released, "autograde", LAB)
    assert sum(scores(released, "ada").values()) == pytest.approx(95)
    assert set(scores(released, "Bela Bee").values()) == {0.0}


def put(root: Path, student: str, text: str) -> Path:
    place = root / "submitted" / student / LAB
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{LAB}.ipynb").write_text(text)
    return place


def test_whom_a_killed_run_began_and_whose_work_changed_are_graded_by_the_next_run(released: Path) -> None:
    stub, solved = build.serialise(build.build_lab(LAB)), build.serialise(build.solved_notebook(LAB))
    for student in ("ada", "bela", "cy"):
        put(released, student, solved)
    begun = released / "autograded" / "ada" / LAB
    begun.mkdir(parents=True)
    shutil.copy(released / "release" / LAB / f"{LAB}.ipynb", begun)
    (released / "autograded" / "bela" / LAB).mkdir(parents=True)
    nbgrader(released, "autograde", LAB)
    assert [sum(scores(released, s).values()) for s in ("ada", "bela", "cy")] == pytest.approx([95, 95, 95])
    put(released, "cy", stub)
    said = nbgrader(released, "autograde", LAB)
    assert sum(scores(released, "cy").values()) == 0
    assert "cy is graded again" in said
    assert said.count("Skipping existing assignment") == 2


def test_what_links_in_a_submission_lead_to_reaches_no_student(released: Path) -> None:
    solved = build.serialise(build.solved_notebook(LAB))
    put(released, "ada", solved.replace("%%cuda direct_guarded", "%%cuda direct_guarded \\u001b]0;title\\u0007"))
    eve, mal = put(released, "eve", solved), put(released, "mal", solved)
    (eve / "notes.txt").symlink_to(released / "grades" / LAB / "grading.json")
    (mal / f"{LAB}.ipynb").unlink()
    (mal / f"{LAB}.ipynb").symlink_to(released / "source" / LAB / f"{LAB}.ipynb")
    command = start(released, "autograde", LAB)
    said = command.communicate()[1]
    assert command.returncode == 1  # somebody was not graded
    assert "eve/01_direct holds notes.txt, which is a link" in said
    assert not (released / "autograded" / "eve").exists()
    assert "mal: 01_direct.ipynb is a link" in said
    assert set(scores(released, "mal").values()) == {0.0}
    shown = nbformat.read(released / "autograded" / "mal" / LAB / f"{LAB}.ipynb", as_version=4)
    blank = nbformat.read(released / "release" / LAB / f"{LAB}.ipynb", as_version=4)
    assert [c.source for c in shown.cells] == [c.source for c in blank.cells]
    assert "its first line must be `%%cuda direct_guarded`" in said
    assert "\x1b]0;" not in said


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


def by_machine(record: SubmissionRecord) -> dict[str, float]:
    """What a record has of each task, as `scores` has it of the gradebook."""
    tasks = dict.fromkeys(c.task for c in record.checks if not c.manual)
    return {t: sum(c.score for c in record.checks if c.task == t) for t in tasks}


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
        assert scores(released, record.student) == pytest.approx(by_machine(record), abs=1e-12), record.student


# ---- with a course.toml


RULES = """
semester = "autumn"
hidden = "hidden"
roster = "roster.csv"
[lab.01_direct]
deadline = 2026-10-20T23:59:00+02:00
late = {percent_a_day = 10, at_most = 50, grace_minutes = 15}
points = {correctness = 70, counters = 5, timing = 10, prediction = 5, explanation = 10}
off = ["predict_reuse"]
[lab.01_direct.extensions]
extended = 2026-10-27T23:59:00+02:00
"""
#: When each of them handed the same notebook in (UTC), and how many begun days late that is.
HANDED_IN = {
    "in_time": ("2026-10-20 21:58:00 UTC", 0),
    "in_grace": ("2026-10-20 22:10:00 UTC", 0),
    "late": ("2026-10-22 10:00:00 UTC", 2),
    "too_late": ("2026-11-20 10:00:00 UTC", 5),
    "extended": ("2026-10-27 10:00:00 UTC", 0),
}


@pytest.fixture
def ruled(tmp_path: Path) -> Path:
    """A course folder with a course.toml, and a released lab whose points follow from it."""
    root = tmp_path / "course"
    begin.begin(root, "autumn")
    (root / "course.toml").write_text(RULES)
    (root / "roster.csv").write_text("student,name\nextended,\nlate,Lana Tessa Early\nnever,Nemo\n")
    assert CliRunner().invoke(main, ["nbgrader-setup", str(root), "--lab", LAB]).exit_code == 0
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"c.Judge.sandbox = {KIND!r}\n")
    nbgrader(root, "generate_assignment", LAB)
    return root


def hand_in(root: Path, student: str, path: Path, when: str) -> None:
    place = root / "submitted" / student / LAB
    place.mkdir(parents=True)
    shutil.copy(path, place / f"{LAB}.ipynb")
    (place / "timestamp.txt").write_text(when)


def compare(root: Path, out: Path) -> list[SubmissionRecord]:
    """Grade what lies in `submitted` by both doors, each with records of its own, and compare all that they found."""
    course = courses.load(root / "course.toml")
    out.mkdir()
    shutil.copy(root / "grades" / LAB / "grading.json", out)
    said = nbgrader(root, "autograde", LAB)
    settings = grade.Settings(sandbox=KIND, workers=2)
    found = grade.grade_class(LAB, root / "submitted", out, settings, course=course)
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        for record in found.records:
            if record.student in found.missing:
                assert record.student in [s.id for s in book.students]
                continue
            kept = book.find_submission(LAB, record.student)
            assert scores(root, record.student) == pytest.approx(
                {**by_machine(record), "predict_reuse": 0.0}, abs=1e-12
            ), record.student
            assert kept.late_submission_penalty == pytest.approx(record.penalty, abs=1e-9), record.student
            assert kept.total_seconds_late == record.late_s
            assert kept.max_score == pytest.approx(record.max + record.manual_max) == 100
            own = grade.read_record(root / "grades" / LAB / "records" / f"{record.student}.json")
            assert own is not None
            assert [(c.check, c.score, c.rationale) for c in own.checks] == [
                (c.check, c.score, c.rationale) for c in record.checks
            ]
            assert (own.submitted, own.deadline, own.penalty) == (record.submitted, record.deadline, record.penalty)
    for student in found.unlisted:
        assert f"{student} is not on the course's roster" in said
    return found.records


def test_both_doors_keep_the_rules_of_a_course(ruled: Path, tmp_path: Path) -> None:
    students = sample.sample_class(LAB, tmp_path / "class")
    flawed = next(s for s in students if s.fails == ("direct_clipped.hidden",))
    for student, (when, _) in HANDED_IN.items():
        hand_in(ruled, student, flawed.path, when)
    records = {r.student: r for r in compare(ruled, tmp_path / "out")}
    reached = records["in_time"].score
    assert 0 < reached < 90
    for student, (_, days) in HANDED_IN.items():
        assert records[student].score == reached
        assert records[student].penalty == pytest.approx(reached * days / 10), student
    with Gradebook(f"sqlite:///{ruled}/gradebook.db") as book:
        cells = book.find_notebook(LAB, LAB).grade_cells
        worth = {c.name: c.max_score for c in cells}
        names = {s.id: (s.first_name, s.last_name) for s in book.students}
    assert worth["predict_reuse-check"] == 0
    assert worth["explain_mapping"] == 10
    assert (names["late"], names["never"]) == (("Lana Tessa", "Early"), (None, "Nemo"))
    private = ruled / "hidden" / f"{LAB}.hidden.toml"
    assert records["late"].spec_sha256 == courses.load(ruled / "course.toml").spec(LAB).sha256
    assert records["late"].spec_sha256 != spec.load(LAB).sha256
    assert private.is_file()


@pytest.mark.full
def test_both_doors_keep_the_rules_of_a_course_for_the_whole_sample_class(ruled: Path, tmp_path: Path) -> None:
    times = [when for when, _ in HANDED_IN.values()]
    students = sample.sample_class(LAB, tmp_path / "class")
    for number, student in enumerate(students):
        hand_in(ruled, student.name, student.path, times[number % len(times)])
    records = compare(ruled, tmp_path / "out")
    assert len(records) == len(students) + 3  # and three of the roster handed nothing in
    assert any(r.penalty for r in records)


@pytest.mark.full
def test_rules_that_changed_after_the_release_are_noticed_and_told(ruled: Path, tmp_path: Path) -> None:
    (solved,) = [s for s in sample.sample_class(LAB, tmp_path / "class") if s.name == sample.SOLVED]
    hand_in(ruled, "ada", solved.path, HANDED_IN["in_time"][0])
    rules = ruled / "course.toml"
    rules.write_text(RULES.replace("correctness = 70", "correctness = 65").replace("counters = 5", "counters = 10"))
    refused = start(ruled, "autograde", LAB)
    said = refused.communicate()[1]
    assert refused.returncode == 1
    assert f"`convladder nbgrader-setup`, then `nbgrader generate_assignment {LAB} --force`" in said
    assert CliRunner().invoke(main, ["nbgrader-setup", str(ruled), "--lab", LAB]).exit_code == 0
    nbgrader(ruled, "generate_assignment", LAB, "--force")
    nbgrader(ruled, "autograde", LAB)
    assert sum(scores(ruled, "ada").values()) == pytest.approx(90)


def test_rules_that_cannot_hold_are_told_once_by_both_doors_and_nothing_is_graded(ruled: Path) -> None:
    for student in ("ada", "bela"):
        place = ruled / "submitted" / student / LAB
        place.mkdir(parents=True)
        (place / f"{LAB}.ipynb").write_text("{}")
    rules, cases = ruled / "course.toml", ruled / "hidden" / f"{LAB}.hidden.toml"
    own = ["grade", LAB, "--submissions", str(ruled / "submitted"), "--course", str(rules), "--out", str(ruled / "own")]
    good = cases.read_text()
    for text, hidden, says in (
        ('semester = "x"\nrooster = 1', good, "`rooster` is not a key here"),
        ('semester = "x"\ntiming = "measured"', good, "needs a GPU"),
        ('semester = "x"\nhidden = "hidden"', f"{good}\n[[case]]\ntask = 'none'\n", "has no kernel or python task"),
    ):
        rules.write_text(text)
        cases.write_text(hidden)
        refused = start(ruled, "autograde", LAB)
        said = refused.communicate()[1]
        assert refused.returncode == 1
        assert (said.count(says), "Traceback" in said) == (1, False), said
        assert not (ruled / "autograded").exists()
        other = CliRunner().invoke(main, own)
        assert (other.exit_code, says in " ".join(other.output.split())) == (2, True), other.output
        assert not (ruled / "own" / "grades.csv").exists()


def test_a_course_toml_may_lie_elsewhere(tmp_path: Path) -> None:
    begin.begin(tmp_path / "rules", "autumn")
    rules = tmp_path / "rules" / "course.toml"
    rules.write_text(f'semester = "autumn"\n[lab.{LAB}]\noff = ["predict_reuse"]\n')
    folder = tmp_path / "course"
    assert CliRunner().invoke(main, ["nbgrader-setup", str(folder), "--course", str(rules)]).exit_code == 0
    assert "course='../rules/course.toml'" in (folder / "nbgrader_config.py").read_text()
    source = nbformat.read(folder / "source" / LAB / f"{LAB}.ipynb", as_version=4)
    off = next(c for c in source.cells if c.id == "predict_reuse-check")
    assert (off.metadata.nbgrader.points, off.source.partition("# ")[2]) == (0, "does not count in this course")
    other = CliRunner().invoke(main, ["nbgrader-setup", str(folder), "--course", str(tmp_path / "rules" / "no.toml")])
    assert other.exit_code == 2
    assert "does not name" in other.output


def test_on_an_unsolved_notebook_validate_ends_with_0_and_convladder_check_with_1(released: Path) -> None:
    notebook = released / "release" / LAB / f"{LAB}.ipynb"
    nbgrader(released, "validate", str(notebook))
    assert CliRunner().invoke(main, ["check", str(notebook)]).exit_code == 1
