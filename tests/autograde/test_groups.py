"""Groups: what one of them hands in is judged once and counts for all; explanations are each one's own."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.course import course as courses
from convladder.autograde.course import grade as grading
from convladder.autograde.course.course import CourseError
from convladder.autograde.course.grade import Settings


class Room:
    """A course of the toy lab with a group of three and one who is alone."""

    def __init__(self, top: Path, toy: Any):
        self.top, self.folder, self.out = top, top / "in", top / "out"
        (top / "own").mkdir()
        (top / "own" / "toy.toml").write_text(toy.spec)
        (top / "roster.csv").write_text("student\nada\nbela\ncy\ndan\n")
        self.groups("ada,1\nbela,1\ncy,1\n")
        lines = ['semester = "autumn"', 'roster = "roster.csv"', 'groups = "groups.csv"', 'labs = "own"']
        (top / "course.toml").write_text("\n".join(lines) + "\n")

    def groups(self, rows: str) -> None:
        (self.top / "groups.csv").write_text(f"student,group\n{rows}")

    def grade(self) -> dict[str, Any]:
        course = courses.load(self.top / "course.toml")
        settings = Settings(sandbox="none")
        self.grades = grading.grade_class("toy", self.folder, self.out, settings, course=course)
        return {r.student: r for r in self.grades.records}


@pytest.fixture
def room(tmp_path: Path, toy: Any) -> Room:
    made = Room(tmp_path, toy)
    toy.hand_in(made.folder, "ada", toy.notebook(triple="0"))
    toy.hand_in(made.folder, "dan", toy.notebook(double="0"))
    return made


def words(notebook: str, text: str) -> str:
    body = json.loads(notebook)
    body["cells"][-1]["source"] = text
    return json.dumps(body)


def test_one_notebook_counts_for_the_whole_group_and_for_nobody_else(room: Room) -> None:
    found = room.grade()
    assert {name: r.score for name, r in found.items()} == {"ada": 60, "bela": 60, "cy": 60, "dan": 30}
    assert room.grades.missing == []
    assert "ada" in found["bela"].environment["group"]


def test_it_is_judged_once(room: Room) -> None:
    found = room.grade()
    assert [found[n].environment["kept"][:14] for n in ("bela", "cy")] == ["double, triple"] * 2


def test_explanations_are_each_ones_own(room: Room, toy: Any) -> None:
    toy.hand_in(room.folder, "bela", words(toy.notebook(), "My own words."))
    stamps = {"ada": "2026-10-02 12:00:00 UTC", "bela": "2026-10-01 12:00:00 UTC"}
    for student, stamp in stamps.items():
        (room.folder / student / "timestamp.txt").write_text(stamp)
    found = room.grade()
    said = {n: next(c for c in found[n].checks if c.check == "words.explanation") for n in ("ada", "bela", "cy")}
    assert said["ada"].evidence["text"] == "Because."
    assert said["bela"].evidence["text"] == "My own words."
    assert said["cy"].rationale == "there is no cell for words"
    assert [found[n].score for n in ("ada", "bela", "cy")] == [60, 60, 60]


def test_of_several_notebooks_the_last_one_counts(room: Room, toy: Any) -> None:
    toy.hand_in(room.folder, "cy", toy.notebook())
    for student, stamp in {"ada": "2026-10-01 12:00:00 UTC", "cy": "2026-10-02 12:00:00 UTC"}.items():
        (room.folder / student / "timestamp.txt").write_text(stamp)
    assert [room.grade()[n].score for n in ("ada", "bela", "cy")] == [90, 90, 90]


def test_a_second_run_keeps_them_all_and_a_change_of_groups_judges_who_it_touches(room: Room) -> None:
    room.grade()
    room.grade()
    assert room.grades.kept == 4
    room.groups("ada,1\nbela,1\n")
    found = room.grade()
    assert (room.grades.kept, found["cy"].score, room.grades.missing) == (3, 0, ["cy"])


def test_a_group_that_hands_in_nothing_is_missed_member_by_member(room: Room) -> None:
    (room.folder / "ada" / "toy.ipynb").unlink()
    (room.folder / "ada").rmdir()
    room.grade()
    assert room.grades.missing == ["ada", "bela", "cy"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("ada,1\nada,2\n", "groups.csv, line 3: 'ada' is there twice"),
        ("ada,\n", "groups.csv, line 2: `group` is empty"),
        ("adda,1\n", "`groups` name 'adda', who is not on the roster: did you mean 'ada'?"),
    ],
)
def test_groups_that_cannot_be_used_are_told(room: Room, rows: str, says: str) -> None:
    room.groups(rows)
    with pytest.raises(CourseError) as error:
        courses.load(room.top / "course.toml")
    assert says in str(error.value)


def test_a_name_is_the_same_persons_in_either_form_of_its_letters(tmp_path: Path, toy: Any) -> None:
    room = Room(tmp_path, toy)
    name = "Ünal"
    (tmp_path / "roster.csv").write_text(f"student\n{unicodedata.normalize('NFC', name)}\n")
    room.groups("")
    toy.hand_in(room.folder, unicodedata.normalize("NFD", name), toy.notebook())
    found = room.grade()
    assert list(found) == [unicodedata.normalize("NFC", name)]
    assert (room.grades.missing, room.grades.unlisted) == ([], [])


def test_one_by_one_as_nbgrader_does_it_a_group_gets_what_it_gets_as_a_class(room: Room, toy: Any) -> None:
    shutil.rmtree(room.folder)
    for student, text in (("ada", toy.notebook(triple="0")), ("bela", words(toy.notebook(), "My own words."))):
        place = room.folder / student / "toy"
        place.mkdir(parents=True)
        (place / "toy.ipynb").write_text(text)
    (room.folder / "ada" / "toy" / "timestamp.txt").write_text("2026-10-02 12:00:00 UTC")
    (room.folder / "bela" / "toy" / "timestamp.txt").write_text("2026-10-01 12:00:00 UTC")
    course, settings = courses.load(room.top / "course.toml"), Settings(sandbox="none")
    found = {}
    for student in ("ada", "bela"):
        path = room.folder / student / "toy" / "toy.ipynb"
        found[student] = grading.judge_one("toy", room.folder, path, student, room.out, settings, course)
    assert {name: r.score for name, r in found.items()} == {"ada": 60, "bela": 60}
    assert found["bela"].environment["group"] == "the notebook that ada handed in"
    assert found["bela"].environment["kept"].startswith("double, triple")
    said = next(c for c in found["bela"].checks if c.check == "words.explanation")
    assert said.evidence["text"] == "My own words."
    assert {name: r.score for name, r in room.grade().items()} == {"ada": 60, "bela": 60, "cy": 60, "dan": 0}
