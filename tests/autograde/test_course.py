"""course.toml and what hangs on it: rosters, deadlines, points, private hidden cases."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from convladder.autograde.course import begin, collect, hidden, sample
from convladder.autograde.course import course as courses
from convladder.autograde.course import grade as grading
from convladder.autograde.course.course import CourseError
from convladder.autograde.course.grade import Settings
from convladder.autograde.faces import report
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import check, open_worker, score, spec
from convladder.autograde.judge.record import CheckRecord, SubmissionRecord
from convladder.autograde.judge.spec import KernelTask, PythonTask, SpecError
from convladder.kernels.methods import ladder_source


@pytest.fixture
def write(toy: Any) -> Any:
    """Writes a course of the toy lab, and returns its course.toml."""

    def run(folder: Path, text: str = "", roster: str = "student,name\nada,Ada L.\nbela,Bela B.\n") -> Path:
        (folder / "own").mkdir(exist_ok=True)
        (folder / "own" / "toy.toml").write_text(toy.spec)
        (folder / "roster.csv").write_text(roster)
        path = folder / "course.toml"
        path.write_text(f'semester = "autumn"\nroster = "roster.csv"\nlabs = "own"\n{text}')
        return path

    return run


def graded(path: Path, folder: Path, out: Path) -> grading.Grades:
    return grading.grade_class("toy", folder, out, Settings(sandbox="none"), course=courses.load(path))


#: The beginning of a lab that has a deadline.
DUE = "[lab.toy]\ndeadline = 2026-10-01T00:00:00Z\n"


# ---- reading


def test_a_course_says_what_it_says(tmp_path: Path, write: Any) -> None:
    text = """
timing = "off"
explain = false
[lab.toy]
deadline = 2026-10-20T23:59:00+02:00
off = ["triple"]
points = {prediction = 100}
[lab.toy.extensions]
bela = 2026-10-27T23:59:00+02:00
"""
    course = courses.load(write(tmp_path, text))
    assert (course.semester, course.roster, course.timing, course.explain) == ("autumn", ("ada", "bela"), "off", False)
    assert course.deadline("toy", "ada") == datetime(2026, 10, 20, 21, 59, tzinfo=UTC)
    assert course.deadline("toy", "bela") == datetime(2026, 10, 27, 21, 59, tzinfo=UTC)
    assert [t.name for t in course.spec("toy").tasks] == ["double", "words"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rooster = 1", "course.toml: `rooster` is not a key here: did you mean 'roster'?"),
        ('timing = "fast"', "`timing` is 'fast': it must be one of measured, counters, off"),
        ('explain = "no"', "`explain` is 'no': it must be true or false"),
        ('hidden = "nowhere"', "`hidden` = 'nowhere': there is no folder"),
        ("[lab.tox]", "lab.tox is no lab: did you mean 'toy'?"),
        ("[lab.toy]\ndedline = 1", "course.toml, lab.toy: `dedline` is not a key here: did you mean 'deadline'?"),
        ("[lab.toy]\ndeadline = 2026-10-20T23:59:00", "add its offset from UTC"),
        ("[lab.toy]\ndeadline = 2026-10-20", "must be a date with time and offset"),
        ('[lab.toy]\noff = ["quadruple"]', "lab.toy: toy has no task 'quadruple'"),
        ('[lab.toy]\noff = ["double", "triple", "words"]', "turn on at least one"),
        ("[lab.toy]\npoints = {prediction = 80}", "add up to 80"),
        ("[lab.toy]\npoints = {predictions = 100}", "did you mean 'prediction'?"),
        ("[lab.toy]\nlate = {percent_a_day = 10}", "`late` penalises nothing: give the lab a `deadline`"),
        (
            f"{DUE}late = {{percent_a_day = 110}}",
            "lab.toy.late: `percent_a_day` is 110: it must be at least 0 and at most",
        ),
        (f"{DUE}late = {{percent = 10}}", "`percent_a_day` is missing"),
        (f"{DUE}late = {{percent_a_day = 10, grace_minute = 1}}", "did you mean 'grace_minutes'?"),
        ("[lab.toy.extensions]\nada = 2026-10-20T23:59:00Z", "extends nothing"),
        (
            "[lab.toy]\ndeadline = 2026-10-01T00:00:00Z\n[lab.toy.extensions]\nadda = 2026-10-20T23:59:00Z",
            "`adda` is not on the roster: did you mean 'ada'?",
        ),
        ("semester", "course.toml"),
    ],
)
def test_what_a_course_cannot_mean_is_told_with_file_key_and_fix(
    tmp_path: Path, text: str, says: str, write: Any
) -> None:
    with pytest.raises((CourseError, SpecError)) as error:
        courses.load(write(tmp_path, text))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("roster", "says"),
    [
        ("name\nada\n", "roster.csv, line 1: there is no column `student` (found: name)"),
        ("student\nada\nada\n", "roster.csv, line 3: 'ada' is there twice"),
        ("student,name\nada,A\n,B\n", "roster.csv, line 3: `student` is empty"),
        ("", "found: nothing"),
    ],
)
def test_a_roster_that_cannot_be_used_is_told_with_its_line(tmp_path: Path, roster: str, says: str, write: Any) -> None:
    with pytest.raises(CourseError) as error:
        courses.load(write(tmp_path, roster=roster))
    assert says in str(error.value)


def test_a_roster_of_a_spreadsheet_may_begin_with_its_mark(tmp_path: Path, write: Any) -> None:
    assert courses.load(write(tmp_path, roster="\ufeffstudent\nada\n")).roster == ("ada",)


def test_a_missing_course_is_told(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="cannot be read"):
        courses.load(tmp_path / "course.toml")


# ---- points and tasks


def test_points_of_a_task_that_is_off_go_to_the_rest(tmp_path: Path, write: Any) -> None:
    course = courses.load(write(tmp_path, '[lab.toy]\noff = ["words"]'))
    found = {c.name: c.max for c in score.planned(course.spec("toy"))}
    assert found == {"double.prediction": pytest.approx(200 / 3), "triple.prediction": pytest.approx(100 / 3)}


def test_the_cell_of_a_task_that_is_off_is_no_problem(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder = write(tmp_path, '[lab.toy]\noff = ["triple"]', "student\nada\n"), tmp_path / "in"
    toy.hand_in(folder, "ada", toy.notebook(triple="not even Python ("))
    (record,) = graded(course, folder, tmp_path / "out").records
    assert (record.problems, record.score) == ([], 90)
    assert {c.task for c in record.checks} == {"double", "words"}


def test_a_changed_course_changes_what_records_were_made_with(tmp_path: Path, write: Any) -> None:
    plain = courses.load(write(tmp_path)).spec("toy")
    other = courses.load(write(tmp_path, "[lab.toy]\npoints = {prediction = 80, explanation = 20}")).spec("toy")
    assert plain.sha256 != other.sha256
    assert plain.sha256 == spec.load("toy", tmp_path / "own").sha256


# ---- a class


def test_whoever_is_missing_or_unknown_is_named_and_the_class_goes_on(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder, out = write(tmp_path), tmp_path / "in", tmp_path / "out"
    toy.hand_in(folder, "ada", toy.notebook())
    toy.hand_in(folder, "carla", toy.notebook())
    grades = graded(course, folder, out)
    assert (grades.missing, grades.unlisted) == (["bela"], ["carla"])
    assert {r.student: r.score for r in grades.records} == {"ada": 90, "bela": 0, "carla": 90}
    assert "Nothing was handed in" in grades.records[1].problems[0]
    assert [toy.rows(out)[s]["on roster"] for s in ("ada", "bela", "carla")] == ["yes", "yes", "no"]


def test_who_was_missing_is_graded_once_the_work_is_there(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder, out = write(tmp_path), tmp_path / "in", tmp_path / "out"
    toy.hand_in(folder, "ada", toy.notebook())
    graded(course, folder, out)
    toy.hand_in(folder, "bela", toy.notebook())
    grades = graded(course, folder, out)
    assert (grades.missing, grades.kept) == ([], 1)
    assert grades.records[1].score == 90


@pytest.mark.parametrize(
    ("late", "costs"),
    [
        ("", 0.0),
        ("late = {percent_a_day = 10}", 9.0),
        ("late = {percent_a_day = 10, grace_minutes = 150}", 0.0),
        ("late = {percent_a_day = 30, at_most = 20}", 18.0),
    ],
)
def test_lateness_is_recorded_and_costs_what_the_course_says(
    tmp_path: Path, write: Any, toy: Any, late: str, costs: float
) -> None:
    text = f"""
[lab.toy]
deadline = 2026-10-20T12:00:00+00:00
{late}
[lab.toy.extensions]
bela = 2026-10-21T12:00:00+00:00
"""
    course, folder, out = write(tmp_path, text), tmp_path / "in", tmp_path / "out"
    handed_in = datetime(2026, 10, 20, 14, 30, tzinfo=UTC).timestamp()
    for student in ("ada", "bela"):
        path = toy.hand_in(folder, student, toy.notebook())
        os.utime(path, (handed_in, handed_in))
    ada, bela = graded(course, folder, out).records
    assert (ada.late_s, bela.late_s) == (2.5 * 3600, 0)
    assert (ada.score, bela.score) == (90, 90)
    assert (ada.penalty, bela.penalty) == (pytest.approx(costs), 0)
    row = toy.rows(out)["ada"]
    assert (row["hours late"], float(row["total"]), float(row["total less penalty"])) == ("2.50", 90, 90 - costs)
    kept = SubmissionRecord.from_json((out / "records" / "ada.json").read_text())
    assert (kept.submitted, kept.deadline) == ("2026-10-20T14:30:00+00:00", "2026-10-20T12:00:00+00:00")
    assert ("2.5 hours late" in report.feedback_page(ada, "A toy lab", {}), report.lateness(bela)) == (True, "")


@pytest.mark.parametrize(("hours", "days"), [(0.01, 1), (24, 1), (24.01, 2), (72, 3)])
def test_each_day_begun_counts(hours: float, days: int) -> None:
    assert courses.LatePenalty(5).points(100, 3600 * hours) == pytest.approx(5 * days)


def test_nbgraders_time_of_submission_comes_before_the_files(tmp_path: Path, toy: Any) -> None:
    path = toy.hand_in(tmp_path, "ada", toy.notebook())
    (path.parent / "timestamp.txt").write_text("2026-10-19 10:00:00.123456 UTC")
    assert collect.submitted_at(path) == datetime(2026, 10, 19, 10, 0, 0, 123456, tzinfo=UTC)


def test_a_new_deadline_changes_kept_records_without_judging_anew(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder, out = write(tmp_path), tmp_path / "in", tmp_path / "out"
    toy.hand_in(folder, "ada", toy.notebook())
    toy.hand_in(folder, "bela", toy.notebook())
    graded(course, folder, out)
    write(tmp_path, "[lab.toy]\ndeadline = 2020-01-01T00:00:00Z")
    grades = graded(course, folder, out)
    assert grades.kept == 2
    assert all(r.late_s > 0 for r in grades.records)
    stored = SubmissionRecord.from_json((out / "records" / "ada.json").read_text())
    assert stored.deadline == "2020-01-01T00:00:00+00:00"


def test_a_class_without_explanations_is_judged_without_them(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder, out = write(tmp_path, "explain = false"), tmp_path / "in", tmp_path / "out"
    toy.hand_in(folder, "ada", toy.notebook())
    found = grading.grade_class(
        "toy", folder, out, Settings(sandbox="none", explain=False), course=courses.load(course)
    )  # fmt: skip
    assert found.records[0].score == found.records[0].max == 100


def test_an_inconclusive_record_is_judged_anew_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, toy: Any
) -> None:
    course, folder, out = write(tmp_path, roster="student\nada\n"), tmp_path / "in", tmp_path / "out"
    toy.hand_in(folder, "ada", toy.notebook())
    first = graded(course, folder, out).records[0]
    first.checks.append(CheckRecord("double", "double.target", None, 0.0, 0.0, evidence={"inconclusive": True}))
    first.environment["unfinished"] = "inconclusive: double.target"
    (out / "records" / "ada.json").write_text(first.to_json())
    again = graded(course, folder, out)
    assert again.kept == 0
    assert again.unfinished == []


# ---- hidden cases from a secret


def test_the_same_secret_makes_the_same_cases_and_another_makes_others() -> None:
    lab = spec.load("01_direct")
    one, again, two = (hidden.generate(lab, s) for s in (b"one", b"one", b"two"))
    assert one == again
    assert one != two


def test_generated_cases_keep_the_kinds_and_differ_from_the_public_ones(tmp_path: Path) -> None:
    lab = spec.load("01_direct")
    path = tmp_path / "01_direct.hidden.toml"
    path.write_text(hidden.generate(lab, b"secret"))
    own = spec.load("01_direct", hidden=path)
    for before, after in zip(lab.tasks, own.tasks, strict=True):
        if isinstance(before, KernelTask):
            assert isinstance(after, KernelTask)
            known = {c.name: c for c in before.cases if c.hidden}
            for case in (c for c in after.cases if c.hidden):
                kind = known[case.name]
                assert case.symbols != kind.symbols
                assert all(case.symbols[k] == v for k, v in kind.symbols.items() if v in (0, 1))
                assert before.problem.size(case.symbols) <= 2 * before.problem.size(kind.symbols)
        elif isinstance(before, PythonTask):
            assert isinstance(after, PythonTask)
            assert len([c for c in after.cases if c.hidden]) == len([c for c in before.cases if c.hidden])


@pytest.mark.parametrize("lab", [lab for lab in spec.names() if spec.load(lab).graded])
def test_every_own_hidden_case_of_every_lab_has_an_answer(lab: str, tmp_path: Path) -> None:
    """`load` refuses sizes that are none; of a function's arguments only the reference can tell."""
    path = tmp_path / "own.toml"
    for number in range(4):
        path.write_text(hidden.generate(spec.load(lab), str(number).encode()))
        for task in spec.load(lab, hidden=path).tasks:
            if isinstance(task, PythonTask):
                for case in task.cases:
                    for call in case.calls:
                        task.expected()(**call)


def test_a_lab_without_hidden_cases_gets_some_after_its_public_ones(tiny: spec.Spec, specs_dir: Path) -> None:
    plain = replace(tiny, lab="tiny")
    text = hidden.generate(plain, b"s", specs_dir)
    assert 'task = "conv"' in text
    assert 'task = "index"' in text


@pytest.mark.full
@pytest.mark.parametrize("number", range(8))
def test_what_only_a_hidden_case_catches_is_caught_by_cases_of_any_secret(tmp_path: Path, number: int) -> None:
    path = tmp_path / "01_direct.hidden.toml"
    path.write_text(hidden.generate(spec.load("01_direct"), str(number).encode()))
    own = spec.load("01_direct", hidden=path)
    found = [w for w in sample.mistakes("01_direct") if any(check.endswith(".hidden") for check in w.fails)]
    assert found
    with open_worker("none") as worker:
        for wrong in found:
            failed = [r.check for r in check.check_task(own, wrong.task, wrong.text, worker) if r.passed is False]
            assert failed == list(wrong.fails), wrong.path.name


def test_the_solution_is_right_on_generated_cases(tmp_path: Path) -> None:
    path = tmp_path / "01_direct.hidden.toml"
    path.write_text(hidden.generate(spec.load("01_direct"), b"any"))
    own = spec.load("01_direct", hidden=path)
    with open_worker("none") as worker:
        records = check.check_task(own, "direct_coalesced", ladder_source("direct_coalesced"), worker)
    assert [r.check for r in records if not r.passed] == []
    assert "direct_coalesced.hidden" in [r.check for r in records]


def test_a_new_course_is_private_and_can_be_read(tmp_path: Path) -> None:
    written = begin.begin(tmp_path / "c", "spring 2027")
    course = courses.load(tmp_path / "c" / "course.toml")
    assert course.semester == "spring 2027"
    assert course.spec("01_direct").sha256 != spec.load("01_direct").sha256
    private = [p for p in written if p.name == "secret" or p.parent.name == "hidden"]
    assert len(private) >= 2
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in private)


def test_a_kept_secret_makes_the_same_course_again(tmp_path: Path) -> None:
    begin.begin(tmp_path, "one")
    before = (tmp_path / "hidden" / "01_direct.hidden.toml").read_text()
    (tmp_path / "course.toml").unlink()
    (tmp_path / "hidden" / "01_direct.hidden.toml").unlink()
    begin.begin(tmp_path, "two")
    assert (tmp_path / "hidden" / "01_direct.hidden.toml").read_text() == before


def test_a_course_is_not_begun_over_another(tmp_path: Path) -> None:
    begin.begin(tmp_path, "one")
    with pytest.raises(CourseError, match="is there already"):
        begin.begin(tmp_path, "two")


def test_a_spoilt_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0123")
    with pytest.raises(CourseError, match="64 hexadecimal digits"):
        begin.begin(tmp_path, "one")


# ---- the command line


def cli(*args: Any) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in args])
    return result.exit_code, " ".join(result.output.split())


def test_course_init_and_course_check(tmp_path: Path) -> None:
    assert cli("course", "init", tmp_path / "c", "--semester", "spring")[0] == 0
    code, said = cli("course", "check", tmp_path / "c" / "course.toml")
    assert code == 0
    assert "spring" in said
    assert "01_direct own hidden cases" in said


def test_course_check_tells_an_error_in_one_paragraph(tmp_path: Path, write: Any) -> None:
    code, said = cli("course", "check", write(tmp_path, "rooster = 1"))
    assert code == 2
    assert "did you mean 'roster'" in said


def test_grade_with_a_course_tells_of_its_roster(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder = write(tmp_path), tmp_path / "in"
    toy.hand_in(folder, "carla", toy.notebook())
    code, said = cli(
        "grade", "toy", "--submissions", folder, "--out", tmp_path / "out", "--course", course, "--no-sandbox"
    )  # fmt: skip
    assert code == 0
    assert "on the roster, but nothing handed in: ada, bela" in said
    assert "graded, but not on the roster: carla" in said


def test_grade_refuses_another_form_of_timing_than_the_courses(tmp_path: Path, write: Any, toy: Any) -> None:
    course, folder = write(tmp_path, 'timing = "off"'), tmp_path / "in"
    toy.hand_in(folder, "ada", toy.notebook())
    code, said = cli("grade", "toy", "--submissions", folder, "--course", course, "--timing", "counters")
    assert code == 2
    assert "a class is graded in one form" in said


def test_measured_timing_needs_a_gpu_and_says_so(tmp_path: Path) -> None:
    code, said = cli("grade", "01_direct", "--submissions", tmp_path, "--timing", "measured")
    assert code == 2
    assert "Measured timing needs a GPU: say --on gpu" in said
