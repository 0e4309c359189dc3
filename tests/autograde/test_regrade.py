"""Grades that change: only what rules touched is judged again, everything is listed first, and nothing is forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from convladder.autograde.course import grade as grading
from convladder.autograde.course import story
from convladder.autograde.course.grade import GradingError, Settings
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import check, content, judging, spec, submission
from convladder.autograde.judge.record import SubmissionRecord

PLAIN = Settings(sandbox="none", workers=1)
HOLD = Settings(sandbox="none", workers=1, hold=True)


class Class:
    """A class of two: ada is right, bob half right."""

    def __init__(self, folder: Path, toy: Any):
        self.folder, self.out, self.own = folder / "in", folder / "out", folder / "own"
        self.course = folder / "course.toml"
        self.own.mkdir()
        self.spec = toy.spec
        self.rules(toy.spec)
        self.course.write_text('semester = "autumn"\nlabs = "own"\n')
        toy.hand_in(self.folder, "ada", toy.notebook())
        toy.hand_in(self.folder, "bob", toy.notebook(triple="0"))

    def rules(self, text: str) -> None:
        (self.own / "toy.toml").write_text(text)

    def grade(self, settings: Settings = PLAIN) -> grading.Grades:
        course = grading.courses.load(self.course)
        return grading.grade_class("toy", self.folder, self.out, settings, course=course)

    def record(self, student: str) -> SubmissionRecord:
        found = grading.read_record(grading.record_path(self.out, student))
        assert found is not None
        return found


@pytest.fixture
def room(tmp_path: Path, toy: Any) -> Class:
    made = Class(tmp_path, toy)
    made.grade()
    return made


# ---- what is judged again


def test_a_changed_task_is_judged_again_and_the_others_are_kept(room: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    room.rules(room.spec.replace("3*N", "0*N"))
    course = grading.courses.load(room.course)
    read = submission.read(room.folder / "ada" / "toy.ipynb", course.spec("toy"))
    judged: list[str] = []
    real = check.check_task
    monkeypatch.setattr(
        judging, "check_task", lambda s, task, *a, **k: judged.append(task.name) or real(s, task, *a, **k)
    )
    secret, _ = bytes.fromhex(json.loads((room.out / "grading.json").read_text())["secret"]), None
    record = judging.judge(
        course.spec("toy"), read, student="ada", secret=secret, sandbox="none", earlier=room.record("ada")
    )
    assert judged == ["triple"]
    assert record.score == 60
    assert record.environment["kept"].startswith("double, words (judged ")


def test_other_points_judge_nothing_again_and_give_the_new_points(room: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    room.rules(room.spec.replace("prediction = 90, explanation = 10", "prediction = 60, explanation = 40"))
    grades = room.grade()
    assert [r.score for r in grades.records] == [60, 40]
    assert all(r.environment["kept"].startswith("double, triple, words") for r in grades.records)


@pytest.mark.parametrize("what", ["secret", "on", "timing", "answer", "task"])
def test_the_digest_of_a_task_changes_with_all_that_decides(what: str) -> None:
    lab = spec.load("01_direct")
    task, other = lab.task("direct_coalesced"), lab.task("direct_report")
    given = content.Circumstances("01_direct", b"s", "sim", "counters", True, {})
    changed = {
        "secret": (task, submission.Answer("a"), content.Circumstances("01_direct", b"t", "sim", "counters", True, {})),
        "on": (task, submission.Answer("a"), content.Circumstances("01_direct", b"s", "gpu", "counters", True, {})),
        "timing": (task, submission.Answer("a"), content.Circumstances("01_direct", b"s", "sim", "off", True, {})),
        "answer": (task, submission.Answer("b"), given),
        "task": (other, submission.Answer("a"), given),
    }[what]
    assert content.key(task, submission.Answer("a"), given) != content.key(*changed)
    assert content.key(task, submission.Answer("a"), given) == content.key(task, submission.Answer("a"), given)


# ---- what changes


def test_grades_that_would_change_are_listed_and_stay_as_they_are(room: Class) -> None:
    room.rules(room.spec.replace("3*N", "0*N"))
    grades = room.grade(HOLD)
    assert [(c.after.student, c.before.score, c.after.score) for c in grades.changes] == [
        ("ada", 90, 60),
        ("bob", 60, 90),
    ]
    assert [r.score for r in grades.records] == [90, 60]
    assert [room.record(s).score for s in ("ada", "bob")] == [90, 60]
    assert "bob,60" in (room.out / "grades.csv").read_text()


def test_what_was_listed_is_put_in_force_without_judging_again(room: Class) -> None:
    room.rules(room.spec.replace("3*N", "0*N"))
    room.grade(HOLD)
    grades = room.grade()
    assert (grades.kept, [r.score for r in grades.records]) == (2, [60, 90])
    assert not list((room.out / "proposed").iterdir())
    assert sorted(p.name for p in (room.out / "history").iterdir()) == ["ada.1.json", "bob.1.json"]


def test_rules_that_are_taken_back_leave_no_proposal(room: Class) -> None:
    room.rules(room.spec.replace("3*N", "0*N"))
    room.grade(HOLD)
    room.rules(room.spec)
    grades = room.grade(HOLD)
    assert (grades.changes, grades.kept) == ([], 2)
    assert not list((room.out / "proposed").iterdir())


def test_a_notebook_that_is_handed_in_anew_changes_its_grade_at_once(room: Class, toy: Any) -> None:
    toy.hand_in(room.folder, "bob", toy.notebook())
    grades = room.grade(HOLD)
    assert grades.changes == []
    assert room.record("bob").score == 90


def test_the_command_lists_changes_and_exits_with_3_until_they_are_applied(room: Class) -> None:
    room.rules(room.spec.replace("3*N", "0*N"))
    command = ["grade", "toy", "--submissions", str(room.folder), "--out", str(room.out), "--course", str(room.course),
               "--no-sandbox", "--workers", "1"]  # fmt: skip
    listed = CliRunner().invoke(main, command)
    assert listed.exit_code == 3
    assert "2 grades of unchanged notebooks would change; --apply puts them in force:" in listed.output
    assert "ada: 90 → 60 (triple.prediction)" in listed.output
    applied = CliRunner().invoke(main, [*command, "--apply"])
    assert applied.exit_code == 0
    assert "2 grades of unchanged notebooks changed:" in applied.output
    assert CliRunner().invoke(main, command).exit_code == 0


# ---- one student again, and the story of a grade


def test_a_regrade_judges_everything_with_the_same_seeds_and_keeps_both_records(room: Class) -> None:
    before = room.record("bob")
    assert grading.regrade("toy", "bob", "complained", room.out) is None
    after = room.record("bob")
    assert after.environment["secret"] == before.environment["secret"]
    assert after.environment["reason"] == "complained"
    assert "kept" not in after.environment
    old = SubmissionRecord.from_json((room.out / "history" / "bob.1.json").read_text())
    assert old == before


def test_a_regrade_tells_how_the_grade_changed(room: Class) -> None:
    room.rules(room.spec.replace("3*N", "0*N"))
    shown = CliRunner().invoke(main, ["regrade", "bob", "toy", "--reason", "rule was wrong", "--out", str(room.out)])
    assert "bob: 60 → 90 (triple.prediction)" in shown.output


def test_a_regrade_of_nobody_names_who_may_be_meant(room: Class) -> None:
    with pytest.raises(GradingError, match="did you mean bob"):
        grading.regrade("toy", "bop", "x", room.out)


def test_a_regrade_needs_a_reason(room: Class) -> None:
    assert CliRunner().invoke(main, ["regrade", "bob", "toy", "--out", str(room.out)]).exit_code == 2


def test_the_story_of_a_grade_names_versions_seeds_rules_and_reasons(room: Class) -> None:
    grading.regrade("toy", "bob", "complained", room.out)
    room.rules(room.spec.replace("3*N", "0*N"))
    room.grade(HOLD)
    text = "\n".join(story.story(room.out, "bob"))
    for part in (
        "bob, toy: toy.ipynb", f"notebook sha256 {room.record('bob').sha256}", "judged   on the engine",
        "seeds    drawn from the class's secret", "versions python", "graded: 60 of 90 points, 10 more by hand",
        "(judged again: complained); this is in force", "triple.prediction: failed, 0 of 30", "0 is too small",
        "proposed: 90 of 90 points", "the rules were changed", "triple.prediction: 0 of 30 became 30 of 30",
    ):  # fmt: skip
        assert part in text


def test_the_command_tells_the_story(room: Class) -> None:
    shown = CliRunner().invoke(main, ["explain", "ada", "toy", "--out", str(room.out)])
    assert "graded: 90 of 90 points" in shown.output
    assert CliRunner().invoke(main, ["explain", "eve", "toy", "--out", str(room.out)]).exit_code == 2


# ---- a full disk

_TWICE = """
set -e
mount -t tmpfs -o size=128k small "$1"
! "$2" "$3" "$4" "$1" "$5" 2> "$6"
grep -q "No space left" "$6"
ls "$1/records" | grep -c json > "$6.kept"
mount -o remount,size=32m "$1"
"$2" "$3" "$4" "$1" "$5" > "$6.done"
"""
_GRADE = """
import sys
from pathlib import Path
from convladder.autograde.course import grade as g
folder, out, specs = map(Path, sys.argv[1:])
if __name__ == "__main__":
    grades = g.grade_class("toy", folder, out, g.Settings(sandbox="none"), specs_dir=specs)
    print(grades.kept, len(grades.records), sorted({r.score for r in grades.records}))
"""


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_full_loses_nothing_and_the_next_run_grades_the_rest(tmp_path: Path, toy: Any) -> None:
    out, script, said = tmp_path / "out", tmp_path / "grade_it.py", tmp_path / "said"
    out.mkdir()
    script.write_text(_GRADE)
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "toy.toml").write_text(toy.spec)
    for number in range(40):
        toy.hand_in(tmp_path / "in", f"s{number:02}", toy.notebook())
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _TWICE, "sh"]
    paths = [out, sys.executable, script, tmp_path / "in", specs, said]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stderr, said.read_text())
    kept = int(Path(f"{said}.kept").read_text())
    assert 0 < kept < 40
    assert Path(f"{said}.done").read_text().split(maxsplit=1) == [str(kept), "40 [90.0]\n"]
