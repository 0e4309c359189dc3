"""nbgrader's own pages in a real browser: what an instructor sees and clicks, and a feedback page.

The browser is Debian's Chromium, driven by Playwright. With CONVLADDER_SCREENSHOTS=DIR each page is kept as a picture.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
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
TOKEN = "a-token-of-this-test"
CHROMIUM = shutil.which("chromium")
#: No network of its own, no first-run pages, no GPU.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Every way in which a student's text may try to run a script in the page of whoever grades.
HOSTILE = """It is </pre></code></div><script>window.pwned = 1</script>
<img src=x onerror="window.pwned = 2"> <svg onload="window.pwned = 3"></svg>
[a](javascript:window.pwned=4) <iframe srcdoc="<script>parent.pwned = 5</script>"></iframe>
<style>body { display: none }</style> ![b](x"onerror="window.pwned=6) $\\href{javascript:window.pwned=7}{c}$
"""


def nbgrader(root: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments], cwd=root, env=environment(root), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def environment(root: Path) -> dict[str, str]:
    """Nothing of the configuration of whoever runs the tests."""
    away = {f"JUPYTER_{kind}_DIR": str(root / "jupyter" / kind.lower()) for kind in ("CONFIG", "RUNTIME", "DATA")}
    return {**os.environ, **away, "HOME": str(root / "jupyter")}


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
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
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
def server(course: Path) -> Iterator[str]:
    """The address of formgrader on this course."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "jupyter", "server", "--no-browser", "--allow-root", f"--port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={course}",
    ]  # fmt: skip
    log = course / "server.log"
    with log.open("w") as said:
        process = subprocess.Popen(command, cwd=course, env=environment(course), stdout=said, stderr=said)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while not answers(f"{address}/api?token={TOKEN}"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"{address}/formgrader"
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of its own; a script of a student's, or a dialog, fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    if "server" in request.fixturenames:  # sign in
        address = request.getfixturevalue("server").removesuffix("/formgrader")
        page.goto(f"{address}/?token={TOKEN}")
    page.set_default_timeout(20_000)
    unexpected: list[str] = []
    page.on("dialog", lambda dialog: (unexpected.append(dialog.message), dialog.dismiss()))
    yield page
    assert page.evaluate("window.pwned") is None
    assert unexpected == []
    context.close()


def keep(page: Any, name: str) -> None:
    """A picture of the page, where somebody wants to look at it."""
    if folder := os.environ.get("CONVLADDER_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


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


def test_manage_submissions_shows_the_records_scores_and_maxima(course: Path, server: str, page: Any) -> None:
    page.goto(f"{server}/manage_submissions/{LAB}")
    shown = {cells[1]: (cells[3], cells[4]) for cells in rows(page)}
    keep(page, "manage_submissions")
    wanted = {}
    for student in students(course):
        found = record(course, student)
        state = "graded" if student == sample.STUB else "needs manual grading"
        wanted[student] = (state, of(found.score, found.max + found.manual_max))
    assert shown == wanted


def test_the_gradebook_shows_what_the_machine_gave_and_what_a_person_will_give(
    course: Path, server: str, page: Any
) -> None:
    page.goto(f"{server}/gradebook/{LAB}/{LAB}")
    shown = sorted(tuple(cells[2:5]) for cells in rows(page))
    keep(page, "gradebook")
    wanted = []
    for found in (record(course, student) for student in students(course)):
        written = sum(c.max for c in found.checks if c.task == EXPLAIN)
        whole = found.max + found.manual_max
        wanted.append((of(found.score, whole), of(found.score, whole - written), of(0, written)))
    assert shown == sorted(wanted)


def test_a_written_answer_is_graded_by_hand_and_keeps_points_and_comment_when_graded_again(
    course: Path, server: str, page: Any
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
    keep(page, "graded_by_hand")
    nbgrader(course, "autograde", LAB, "--student", sample.SOLVED, "--force")
    page.goto(address)
    page.wait_for_function(f"document.querySelector('#{EXPLAIN}-comment').value")
    assert (score.input_value(), comment.input_value()) == ("4", COMMENT)
    nbgrader(course, "generate_feedback", LAB, "--student", sample.SOLVED, "--force")
    page.goto((course / "feedback" / sample.SOLVED / LAB / f"{LAB}.html").as_uri())
    keep(page, "feedback_by_hand")
    text = page.inner_text("body")
    assert COMMENT in text
    assert "Score: 99.0 / 100.0" in text


def test_the_feedback_page_says_what_is_wrong_and_where_to_look(course: Path, page: Any) -> None:
    flawed = next(s for s in students(course) if s not in (sample.SOLVED, sample.STUB, "mallory"))
    page.goto((course / "feedback" / flawed / LAB / f"{LAB}.html").as_uri())
    keep(page, "feedback")
    text = page.inner_text("body")
    failed = [c for c in record(course, flawed).student_view().checks if c.passed is False]
    assert failed
    for check in failed:
        assert report.plain(check.rationale) in text
        assert check.help in text
    assert "judged by convladder" in text


@pytest.mark.parametrize("where", ["feedback", "formgrader"])
def test_no_script_of_a_hostile_notebook_runs(course: Path, server: str, page: Any, where: str) -> None:
    """The fixture of the page looks for what a script would have left; the text itself is shown."""
    if where == "feedback":
        page.goto((course / "feedback" / "mallory" / LAB / f"{LAB}.html").as_uri())
    else:
        page.goto(f"{server}/submissions/{submission_id(course, 'mallory')}")
    page.wait_for_timeout(500)  # for whatever loads late
    keep(page, f"hostile_{where}")
    assert page.inner_text("body").count("window.pwned = 1") >= 3
    for tag in ("iframe[srcdoc]", "svg[onload]", "img[onerror]", "a[href^='javascript']"):
        assert page.locator(tag).count() == 0, tag
    assert page.locator("body").is_visible()
