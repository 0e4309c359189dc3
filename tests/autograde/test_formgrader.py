"""nbgrader's own pages in a real browser: what an instructor sees and clicks, and a feedback page.

The browser is Debian's Chromium, driven by Playwright. With CONVLADDER_SCREENSHOTS=DIR each page is kept as a picture.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nbgrader.api import Gradebook

from convladder.autograde.course import build, grade, sample
from convladder.autograde.faces import report
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import sandbox
from convladder.autograde.judge.record import SubmissionRecord

pytestmark = pytest.mark.full

LAB = "01_direct"
EXPLAIN = "explain_mapping"
COMMENT = "Which counter says so?"
#: Every way in which a student's text may try to run a script in the page of whoever grades.
HOSTILE = """It is </pre></code></div><script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 2"> <svg onload="window.pwned = 3"></svg>
[a](javascript:window.pwned=4) <iframe srcdoc="<script>parent.pwned = 5</script>"></iframe>
<style>body { display: none }</style> ![b](x"onerror="window.pwned=6) $\\href{javascript:window.pwned=7}{c}$
"""


def submissions() -> Iterator[tuple[str, Any]]:
    solved = build.solved_notebook(LAB)
    for student in sample._class(LAB, None):
        if student[0] in (sample.SOLVED, sample.STUB) or student[3] == ("direct_clipped.hidden",):
            yield student[0], student[1]
    for cell in solved.cells:
        if cell.id == EXPLAIN:
            cell.source = HOSTILE
        elif cell.id == "direct_guarded":
            cell.source = f"%%cuda direct_guarded\n{HOSTILE}"
        elif cell.id == "predict_report":
            cell.source = f"%%answer predict_report\npredict_report = {HOSTILE}"
    yield "mallory", solved


@pytest.fixture(scope="module")
def nbgrader(jupyter: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    home = jupyter(tmp_path_factory.mktemp("home"))
    return lambda root, *command: home.run(root, "nbgrader", *command)


@pytest.fixture(scope="module")
def course(nbgrader: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A course folder with a graded class."""
    root = tmp_path_factory.mktemp("formgrader") / "course"
    assert CliRunner().invoke(main, ["nbgrader-setup", str(root), "--lab", LAB]).exit_code == 0
    with (root / "nbgrader_config.py").open("a") as config:
        config.write("" if sandbox.available()[0] else 'c.Judge.sandbox = "none"\n')
    nbgrader(root, "generate_assignment", LAB)
    for student, notebook in submissions():
        for cell in notebook.cells:
            if cell.id == EXPLAIN and cell.source != HOSTILE and student != sample.STUB:
                cell.source = "Neighbouring lanes store neighbouring floats."
        place = root / "submitted" / student / LAB
        place.mkdir(parents=True)
        (place / f"{LAB}.ipynb").write_text(build.serialise(notebook))
    nbgrader(root, "autograde", LAB)
    nbgrader(root, "generate_feedback", LAB)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def server(jupyter: Any, course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of formgrader on this course."""
    with jupyter(tmp_path_factory.mktemp("server")).serve(course, "server") as address:
        yield f"{address}/formgrader"


@pytest.fixture
def page(sign_in: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of its own; a script of a student's, or a dialog, fails the test."""
    address = ""
    if "server" in request.fixturenames:
        address = request.getfixturevalue("server").removesuffix("/formgrader")
    page = sign_in(address)
    yield page
    assert page.evaluate("window.pwned") is None


def record(course: Path, student: str) -> SubmissionRecord:
    found = grade.read_record(grade.record_path(course / "grades" / LAB, student))
    assert found is not None
    return found


def students(course: Path) -> list[str]:
    return sorted(p.name for p in (course / "submitted").iterdir())


def rows(page: Any) -> list[list[str]]:
    """The text of the cells of a page's table, once it is there."""
    page.wait_for_function("document.querySelector('tbody') && !document.body.innerText.includes('Loading, please')")
    found = page.locator("tbody tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.innerText.trim()))")
    return list(found)


def of(got: float, most: float) -> str:
    """As nbgrader writes points."""
    return f"{round(got, 2):g} / {round(most, 2):g}"


def submission_id(course: Path, student: str) -> str:
    with Gradebook(f"sqlite:///{course}/gradebook.db") as book:
        return str(book.find_submission_notebook(LAB, LAB, student).id)


def test_manage_submissions_shows_the_records_scores_and_maxima(
    course: Path, server: str, page: Any, keep: Any
) -> None:
    page.goto(f"{server}/manage_submissions/{LAB}")
    shown = {cells[1]: (cells[3], cells[4]) for cells in rows(page)}
    keep(page, "manage_submissions", full_page=True)
    wanted = {}
    for student in students(course):
        found = record(course, student)
        state = "graded" if student == sample.STUB else "needs manual grading"
        wanted[student] = (state, of(found.score, found.max + found.manual_max))
    assert shown == wanted


def test_the_gradebook_shows_what_the_machine_gave_and_what_a_person_will_give(
    course: Path, server: str, page: Any, keep: Any
) -> None:
    page.goto(f"{server}/gradebook/{LAB}/{LAB}")
    shown = sorted(tuple(cells[2:5]) for cells in rows(page))
    keep(page, "gradebook", full_page=True)
    wanted = []
    for found in (record(course, student) for student in students(course)):
        written = sum(c.max for c in found.checks if c.task == EXPLAIN)
        whole = found.max + found.manual_max
        wanted.append((of(found.score, whole), of(found.score, whole - written), of(0, written)))
    assert shown == sorted(wanted)


def test_a_written_answer_is_graded_by_hand_and_keeps_points_and_comment_when_graded_again(
    course: Path, server: str, page: Any, keep: Any, nbgrader: Any
) -> None:
    address = f"{server}/submissions/{submission_id(course, sample.SOLVED)}"
    score, comment = page.locator(f"input#{EXPLAIN}.score"), page.locator(f"textarea#{EXPLAIN}-comment")
    page.goto(address)
    assert score.input_value() == ""
    assert "what they are given for" in page.inner_text("body")  # the rubric
    for field, text, saved in ((score, "4", "score-saved"), (comment, COMMENT, "comment-saved")):
        field.fill(text)
        with page.expect_response(lambda reply: reply.request.method == "PUT"):
            field.blur()
        page.locator(f".{saved}:visible").first.wait_for()
    keep(page, "graded_by_hand", full_page=True)
    nbgrader(course, "autograde", LAB, "--student", sample.SOLVED, "--force")
    page.goto(address)
    page.wait_for_function(f"document.querySelector('#{EXPLAIN}-comment').value")
    assert (score.input_value(), comment.input_value()) == ("4", COMMENT)
    nbgrader(course, "generate_feedback", LAB, "--student", sample.SOLVED, "--force")
    page.goto((course / "feedback" / sample.SOLVED / LAB / f"{LAB}.html").as_uri())
    keep(page, "feedback_by_hand", full_page=True)
    text = page.inner_text("body")
    assert COMMENT in text
    assert "Score: 99.0 / 100.0" in text


def test_the_feedback_page_says_what_is_wrong_and_where_to_look(course: Path, page: Any, keep: Any) -> None:
    flawed = next(s for s in students(course) if s not in (sample.SOLVED, sample.STUB, "mallory"))
    page.goto((course / "feedback" / flawed / LAB / f"{LAB}.html").as_uri())
    keep(page, "feedback", full_page=True)
    text = page.inner_text("body")
    failed = [c for c in record(course, flawed).student_view().checks if c.passed is False]
    assert failed
    for check in failed:
        assert report.plain(check.rationale) in text
        assert check.help in text
    assert "judged by convladder" in text


@pytest.mark.parametrize("where", ["feedback", "formgrader"])
def test_no_script_of_a_hostile_notebook_runs(course: Path, server: str, page: Any, keep: Any, where: str) -> None:
    """The fixture of the page looks for what a script would have left; the text itself is shown."""
    if where == "feedback":
        page.goto((course / "feedback" / "mallory" / LAB / f"{LAB}.html").as_uri())
    else:
        page.goto(f"{server}/submissions/{submission_id(course, 'mallory')}")
    page.wait_for_timeout(500)  # for whatever loads late
    keep(page, f"hostile_{where}", full_page=True)
    assert page.inner_text("body").count("window.pwned = 1") >= 3
    for tag in ("iframe[srcdoc]", "svg[onload]", "img[onerror]", "a[href^='javascript']"):
        assert page.locator(tag).count() == 0, tag
    assert page.locator("body").is_visible()
