"""Grading a class: what is found, what is kept, what survives crashes, kills and other graders."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.course import grade as grading
from convladder.autograde.course.grade import Entry, GradingError, Settings
from convladder.autograde.judge.record import SubmissionRecord

PLAIN = Settings(sandbox="none", workers=2)


@pytest.fixture
def specs_dir(tmp_path: Path, toy: Any) -> Path:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "toy.toml").write_text(toy.spec)
    return folder


@pytest.fixture
def folder(tmp_path: Path, toy: Any) -> Path:
    """A class of three: right, half right, and a file that is no notebook."""
    folder = tmp_path / "submitted"
    for student, text in {"ada": toy.notebook(), "bob": toy.notebook(triple="0"), "cy": "not a notebook"}.items():
        toy.hand_in(folder, student, text)
    return folder


@pytest.fixture
def grade(folder: Path, specs_dir: Path, tmp_path: Path):
    """Grade the class; `kept` in the result tells how many records were not judged again."""

    def run(
        settings: Settings = PLAIN, watch: Any = None, out: Path = tmp_path / "out", source: Path = folder
    ) -> grading.Grades:
        return grading.grade_class("toy", source, out, settings, watch, specs_dir=specs_dir)

    return run


# --- Finding submissions -------------------------------------------------------------------------


def test_submissions_are_found_in_all_three_places(tmp_path: Path, toy: Any) -> None:
    toy.hand_in(tmp_path, "ada", "{}")
    nested = tmp_path / "bob" / "toy" / "toy.ipynb"
    nested.parent.mkdir(parents=True)
    nested.write_text("{}")
    (tmp_path / "cy.ipynb").write_text("{}")
    found, _ = grading.find_submissions(tmp_path, "toy")
    assert [(e.student, e.notebook) for e in found] == [
        ("ada", tmp_path / "ada" / "toy.ipynb"),
        ("bob", nested),
        ("cy", tmp_path / "cy.ipynb"),
    ]


def test_two_notebooks_of_one_student_are_a_problem_that_names_both(tmp_path: Path, toy: Any) -> None:
    toy.hand_in(tmp_path, "ada", "{}")
    (tmp_path / "ada.ipynb").write_text("{}")
    (entry,), _ = grading.find_submissions(tmp_path, "toy")
    assert entry.notebook is None
    assert "ada/toy.ipynb and ada.ipynb" in entry.problem


def test_a_folder_without_the_notebook_is_a_problem_that_names_what_is_there(tmp_path: Path, toy: Any) -> None:
    toy.hand_in(tmp_path, "ada", "{}")
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "toy (1).ipynb").write_text("{}")
    found, _ = grading.find_submissions(tmp_path, "toy")
    assert "toy (1).ipynb; the file must be called toy.ipynb" in found[1].problem


def test_hidden_folders_and_other_files_are_no_submissions(tmp_path: Path, toy: Any) -> None:
    toy.hand_in(tmp_path, "ada", "{}")
    toy.hand_in(tmp_path, ".ipynb_checkpoints", "{}")
    (tmp_path / "roster.csv").write_text("x")
    found, ignored = grading.find_submissions(tmp_path, "toy")
    assert [e.student for e in found] == ["ada"]
    assert ignored == ["roster.csv"]


def test_a_link_out_of_the_submissions_is_not_followed(tmp_path: Path, toy: Any) -> None:
    secret = tmp_path / "secret.ipynb"
    secret.write_text(toy.notebook())
    folder = tmp_path / "in"
    (folder / "eve").mkdir(parents=True)
    (folder / "eve" / "toy.ipynb").symlink_to(secret)
    (entry,), _ = grading.find_submissions(folder, "toy")
    assert entry.notebook is None
    assert "is a link" in entry.problem


def test_a_link_to_another_students_notebook_is_not_followed(tmp_path: Path, toy: Any) -> None:
    toy.hand_in(tmp_path, "ada", toy.notebook())
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "toy.ipynb").symlink_to(tmp_path / "ada" / "toy.ipynb")
    (tmp_path / "mal").symlink_to(tmp_path / "ada", target_is_directory=True)
    (ada, eve, mal), _ = grading.find_submissions(tmp_path, "toy")
    assert ada.notebook is not None
    assert eve.notebook is None
    assert mal.notebook is None
    assert "hand in the file itself" in eve.problem


@pytest.mark.parametrize("target", ["toy.ipynb", "absent.ipynb"])
def test_a_link_to_nowhere_costs_only_its_own_student(tmp_path: Path, target: str, toy: Any) -> None:
    toy.hand_in(tmp_path, "ada", "{}")
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "toy.ipynb").symlink_to(target)
    (ada, eve), _ = grading.find_submissions(tmp_path, "toy")
    assert ada.notebook is not None
    assert eve.notebook is None
    assert "toy.ipynb cannot be read" in eve.problem


def test_a_pipe_in_place_of_a_notebook_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "eve").mkdir()
    os.mkfifo(tmp_path / "eve" / "toy.ipynb")
    (entry,), _ = grading.find_submissions(tmp_path, "toy")
    assert "not a regular file" in entry.problem


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_any_submission_is_an_error_that_says_where_they_belong(tmp_path: Path, there: bool) -> None:
    folder = tmp_path if there else tmp_path / "absent"
    with pytest.raises(GradingError, match=r"STUDENT/toy\.ipynb" if there else "cannot be read"):
        grading.find_submissions(folder, "toy")


HOSTILE_NAMES = [
    "..", "a/b", "../../etc/passwd", "-rf", ".hidden", "a\x1b[2Jb", "a\u202eb", "\udcff", "", "x" * 300,
    "Ünal", "a b", "a?b", "con~1", "<script>", "=cmd()",
]  # fmt: skip


@pytest.mark.parametrize("raw", HOSTILE_NAMES)
def test_a_file_stem_stays_in_its_folder(raw: str) -> None:
    stem = grading.file_stem(grading.display_name(raw))
    assert "/" not in stem
    assert not stem.startswith((".", "-"))
    assert 0 < len(stem.encode()) <= 120
    assert stem.isascii()


def test_names_that_differ_get_stems_that_differ() -> None:
    raws = [*HOSTILE_NAMES, "a_b", "a.b", "a:b", "script", "a\x1b[3Jb"]
    stems = {grading.file_stem(grading.display_name(raw)) for raw in raws}
    assert len(stems) == len(raws)
    assert grading.file_stem("Ünal") != grading.file_stem(grading.file_stem("Ünal") + " ")


def test_an_ordinary_name_is_its_own_stem() -> None:
    assert grading.file_stem("ada.lovelace@example.org") == "ada.lovelace@example.org"


def test_a_shown_name_has_no_control_characters() -> None:
    for raw in HOSTILE_NAMES:
        shown = grading.display_name(raw)
        assert shown.isprintable()
        shown.encode()  # no lone surrogates


# --- A class -------------------------------------------------------------------------------------


def test_every_student_gets_a_record_and_a_row(grade: Any, tmp_path: Path, toy: Any) -> None:
    grades = grade()
    assert [(r.student, r.score, r.max, r.manual_max) for r in grades.records] == [
        ("ada", 90, 90, 10),
        ("bob", 60, 90, 10),
        ("cy", 0, 90, 10),
    ]
    table = toy.rows(tmp_path / "out")
    assert table["bob"] == {
        "student": "bob", "total": "60", "max": "90", "manual pending": "10", "double": "60", "triple": "0",
        "words": "0", "problems": "",
    }  # fmt: skip
    assert "not JSON" in table["cy"]["problems"]
    for student in ("ada", "bob", "cy"):
        text = (tmp_path / "out" / "records" / f"{student}.json").read_text()
        assert SubmissionRecord.from_json(text).student == student


def test_the_secret_is_drawn_once_and_closed_to_others(grade: Any, tmp_path: Path) -> None:
    grade()
    path = tmp_path / "out" / "grading.json"
    before = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(json.loads(before)["secret"]) == 64
    grade(Settings(sandbox="none", force=True))
    assert path.read_text() == before


def test_records_do_not_tell_the_secret(grade: Any, tmp_path: Path) -> None:
    grade()
    secret = json.loads((tmp_path / "out" / "grading.json").read_text())["secret"]
    for path in (tmp_path / "out").rglob("*"):
        assert path.name == "grading.json" or path.is_dir() or secret not in path.read_text()


def test_a_second_run_keeps_what_is_judged(grade: Any) -> None:
    grade()
    assert grade().kept == 3


def test_a_changed_notebook_is_judged_again_and_only_that(grade: Any, folder: Path, toy: Any) -> None:
    grade()
    toy.hand_in(folder, "bob", toy.notebook())
    grades = grade()
    assert grades.kept == 2
    assert grades.records[1].score == 90


def test_a_changed_spec_judges_everybody_again(grade: Any, specs_dir: Path, toy: Any) -> None:
    grade()
    (specs_dir / "toy.toml").write_text(toy.spec.replace("3*N", "0*N"))
    grades = grade()
    assert grades.kept == 0
    assert [r.score for r in grades.records[:2]] == [60, 90]


@pytest.mark.parametrize(
    "settings", [Settings(sandbox="none", force=True), Settings(sandbox="none", timing="off")], ids=["force", "timing"]
)
def test_other_settings_and_force_judge_everybody_again(grade: Any, settings: Settings) -> None:
    grade()
    assert grade(settings).kept == 0


def test_another_secret_judges_everybody_again(grade: Any, tmp_path: Path) -> None:
    grade()
    (tmp_path / "out" / "grading.json").unlink()
    assert grade().kept == 0


def test_a_record_of_another_version_is_judged_again(grade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    grade()
    monkeypatch.setattr(grading, "__version__", "99.0")
    assert grade().kept == 0


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"checks": [{}]}', '{"checks": 7}'])
def test_a_damaged_record_is_judged_again(grade: Any, tmp_path: Path, text: str) -> None:
    grade()
    path = tmp_path / "out" / "records" / "ada.json"
    path.write_text(text)
    assert grade().kept == 2
    assert SubmissionRecord.from_json(path.read_text()).score == 90


def test_a_record_put_under_another_students_name_is_not_believed(grade: Any, tmp_path: Path) -> None:
    grade()
    records = tmp_path / "out" / "records"
    (records / "bob.json").write_text((records / "ada.json").read_text())
    assert grade().records[1].score == 60


def test_a_student_who_left_is_named_and_not_in_the_table(grade: Any, folder: Path, tmp_path: Path, toy: Any) -> None:
    grade()
    (folder / "bob" / "toy.ipynb").unlink()
    (folder / "bob").rmdir()
    assert grade().strays == ["bob"]
    assert "bob" not in toy.rows(tmp_path / "out")


def test_a_problem_that_was_solved_is_judged(grade: Any, folder: Path, toy: Any) -> None:
    (folder / "ada.ipynb").write_text(toy.notebook())
    assert "Two notebooks" in grade().records[0].problems[0]
    (folder / "ada.ipynb").unlink()
    assert grade().records[0].score == 90


def test_a_damaged_secret_is_an_error_and_never_replaced(grade: Any, tmp_path: Path) -> None:
    grade()
    path = tmp_path / "out" / "grading.json"
    path.write_text('{"lab": "toy"}')
    with pytest.raises(GradingError, match="restore it"):
        grade()
    assert path.read_text() == '{"lab": "toy"}'


def test_grades_of_another_lab_are_not_mixed_in(grade: Any, tmp_path: Path) -> None:
    grade()
    path = tmp_path / "out" / "grading.json"
    path.write_text(path.read_text().replace('"toy"', '"other"'))
    with pytest.raises(GradingError, match="grades of other"):
        grade()


def test_progress_is_told_for_each_submission(grade: Any) -> None:
    seen: list[tuple[int, int, str, bool]] = []
    grade(watch=lambda done, total, record, kept: seen.append((done, total, record.student, kept)))
    assert [(done, total) for done, total, _, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert {student for _, _, student, _ in seen} == {"ada", "bob", "cy"}


def test_out_may_lie_within_the_submissions(grade: Any, folder: Path) -> None:
    out = folder / "graded"
    grade(out=out)
    assert [r.student for r in grade(out=out).records] == ["ada", "bob", "cy"]


@pytest.mark.parametrize("student", ["=cmd()|' /C calc'!A0", "+1", "-2", "@SUM(1)", "a,b", 'a"b', "tab\tname"])
def test_a_spreadsheet_reads_a_hostile_name_as_text(student: str) -> None:
    record = SubmissionRecord("toy", student, "", "", "", "sim", "off", [], [f"{student}\nsecond line"])
    ((name, *_, problem),) = list(csv.reader(io.StringIO(grading.to_csv([record]))))[1:]
    assert not name.startswith(("=", "+", "-", "@", "\t"))
    assert not problem.startswith(("=", "+", "-", "@", "\t"))
    assert "\n" not in problem


def test_an_archive_is_graded_as_the_folder_in_it_is(grade: Any, toy: Any, tmp_path: Path) -> None:
    archive, out = tmp_path / "all.zip", tmp_path / "out"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("ada_5_90_toy.ipynb", toy.notebook(double="0", triple="0"))
        packed.writestr("ada_5_95_toy-1.ipynb", toy.notebook())
        packed.writestr("bob_LATE_6_91_toy.ipynb", toy.notebook(triple="0"))
        packed.writestr("cy_7_92_toy.ipynb", "not a notebook")
    grades = grade(source=archive)
    assert {r.student: r.score for r in grades.records} == {"ada": 90, "bob": 60, "cy": 0}
    assert grades.marked == ["bob"]
    assert (out / "handed_in").is_dir()
    assert grade(source=archive).kept == 3


# --- Crashes, kills, other graders, full and closed disks ----------------------------------------


@pytest.fixture
def stuck(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bob's notebook is a pipe that nobody writes to: his judging never ends by itself."""
    path = folder / "bob" / "toy.ipynb"
    path.unlink()
    os.mkfifo(path)
    entries = [Entry(s, folder / s / "toy.ipynb") for s in ("ada", "bob", "cy")]
    monkeypatch.setattr(grading, "find_submissions", lambda *a, **k: (entries, []))
    monkeypatch.setattr(grading, "sha256_of", lambda path: "")
    return path


def test_a_killed_judging_process_is_that_submissions_problem_alone(grade: Any, stuck: Path) -> None:
    finished: list[str] = []
    done: list[grading.Grades] = []
    watch = lambda _done, _total, record, _kept: finished.append(record.student)  # noqa: E731
    thread = threading.Thread(target=lambda: done.append(grade(watch=watch)))
    thread.start()
    while set(finished) != {"ada", "cy"} or len(multiprocessing.active_children()) > 1:
        assert thread.is_alive()
        time.sleep(0.01)
    (process,) = multiprocessing.active_children()  # the others have nothing left to do and are gone
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    thread.join(60)
    (grades,) = done
    assert [r.score for r in grades.records] == [90, 0, 0]
    assert "SIGKILL" in grades.records[1].problems[0]
    assert [r.student for r in grades.unfinished] == ["bob"]


def test_what_was_not_judged_is_judged_by_the_next_run(grade: Any, stuck: Path, toy: Any) -> None:
    assert "more than 1 s" in grade(Settings(sandbox="none", limit_s=1)).records[1].problems[0]
    stuck.unlink()
    stuck.write_text(toy.notebook())
    grades = grade()
    assert grades.records[1].score == 90
    assert not grades.unfinished


def test_a_second_grader_is_sent_away_while_the_first_one_runs(grade: Any, tmp_path: Path) -> None:
    with grading.locked(tmp_path / "out"), pytest.raises(GradingError, match=rf"process {os.getpid()} is grading"):
        grade()
    assert len(grade().records) == 3


GRADE = """
import signal
import sys
from pathlib import Path
from convladder.autograde.course import grade as g
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs in the background ignore it
folder, out, specs = map(Path, sys.argv[1:])
g.find_submissions = lambda *a, **k: ([g.Entry(s, folder / s / "toy.ipynb") for s in ("ada", "bob", "cy")], [])
g._sha256 = lambda path: ""
watch = lambda done, total, record, kept: print(record.student, flush=True)
if __name__ == "__main__":
    g.grade_class("toy", folder, out, g.Settings(sandbox="none", workers=2), watch, specs)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_stopped_grader_leaves_complete_records_and_an_open_folder(
    grade: Any, stuck: Path, folder: Path, specs_dir: Path, tmp_path: Path, number: signal.Signals, toy: Any
) -> None:
    script = tmp_path / "grade_it.py"
    script.write_text(GRADE)
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(folder), str(out), str(specs_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as grader:
        assert grader.stdout is not None
        finished = {grader.stdout.readline().strip(), grader.stdout.readline().strip()}
        grader.send_signal(number)
        grader.communicate(timeout=30)  # to the end of its output: none of its processes is left to hold it open
    assert finished == {"ada", "cy"}
    assert {p.name for p in (out / "records").iterdir()} == {"ada.json", "cy.json"}
    for path in (out / "records").iterdir():
        SubmissionRecord.from_json(path.read_text())
    stuck.unlink()
    stuck.write_text(toy.notebook())
    assert [r.score for r in grade().records] == [90, 90, 0]


def test_out_that_cannot_be_made_is_an_error(grade: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GradingError, match="--out"):
        grade(out=tmp_path / "file" / "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_out_that_is_closed_is_an_error(grade: Any, tmp_path: Path) -> None:
    out = tmp_path / "closed"
    out.mkdir(mode=0o500)
    with pytest.raises(GradingError, match="--out"):
        grade(out=out)


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.json"
    grading.write_atomically(path, "old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GradingError, match="No space left"):
        grading.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
