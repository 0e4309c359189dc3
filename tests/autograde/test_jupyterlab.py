"""A student in JupyterLab: opens a lab, writes a wrong kernel, sees why, repairs it, sees it pass, and submits it.

The browser is Debian's Chromium, driven by Playwright. `make screenshots` keeps what it sees for the documentation.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from convladder.autograde import faces
from convladder.autograde.course import build, grade
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import sandbox

LAB = "01_direct"
TASK = "direct_guarded"
COURSE = "course"  # as nbgrader-setup names it
EXTENSION = Path(next(iter(faces.__path__)), "jupyterlab")
SOLVED = {cell.id: cell.source for cell in build.solved_notebook(LAB).cells}
#: The columns forget the stride.
WRONG = SOLVED[TASK].replace("col = q * U - pad", "col = q - pad")
#: A semicolon is missing.
BROKEN = SOLVED[TASK].replace("blockIdx.y;", "blockIdx.y")


class Lab:
    """The notebook in front of a student. Cells are named by their ids."""

    def __init__(self, page: Any):
        self.page = page

    def open(self, address: str, notebook: str) -> None:
        self.page.goto(f"{address}/lab/tree/{notebook}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_function("jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'")

    def go(self, cell: str) -> Any:
        """Make a cell the active one, and give it."""
        self.page.evaluate(
            """async id => {
                const notebook = jupyterapp.shell.currentWidget.content;
                notebook.activeCellIndex = notebook.widgets.findIndex(cell => cell.model.id === id);
                notebook.mode = 'command';
                await notebook.scrollToItem(notebook.activeCellIndex, 'start');
                notebook.activate();
            }""",
            cell,
        )
        return self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")

    def run(self, cell: str, text: str | None = None) -> Any:
        """Run a cell, with this text in place of its own, and give what it shows."""
        active = self.go(cell)
        if text is not None:
            self.page.keyboard.press("Enter")
            self.page.keyboard.press("Control+A")
            self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function("/\\[\\d+\\]/.test(document.querySelector('.jp-Cell.jp-mod-active').innerText)")
        return active.locator(".jp-OutputArea")

    def languages(self) -> dict[str, str]:
        """The language that each code cell of the notebook is shown in, by its id."""
        found = self.page.evaluate(
            """jupyterapp.shell.currentWidget.content.widgets
               .filter(cell => cell.model.type === 'code').map(cell => [cell.model.id, cell.model.mimeType])"""
        )
        return dict(found)

    def use(self, theme: str) -> None:
        self.page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        self.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)


@pytest.fixture(scope="module")
def student(jupyter: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A student's Jupyter, as the package installs it: with its extension and settings, and a course's exchange."""
    home = jupyter(tmp_path_factory.mktemp("home"))
    extensions, settings = home.home / "data" / "labextensions", home.home / "config" / "labconfig"
    for folder in (extensions, settings):
        folder.mkdir(parents=True)
    (extensions / "convladder").symlink_to(EXTENSION / "labextension")
    shutil.copy(EXTENSION / "overrides.d" / "convladder.json", settings / "default_setting_overrides.json")
    exchange = home.home / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)  # else nbgrader refuses it
    config = f"c = get_config()\nc.CourseDirectory.course_id = {COURSE!r}\nc.Exchange.root = {str(exchange)!r}\n"
    (home.home / "config" / "nbgrader_config.py").write_text(config)
    return home


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the student has."""
    folder = tmp_path_factory.mktemp("student")
    (folder / "syllabus.md").write_text(build.syllabus())
    (folder / LAB).mkdir()
    return folder


@pytest.fixture(scope="module")
def address(student: Any, folder: Path) -> Iterator[str]:
    with student.serve(folder, "lab", "--LabApp.expose_app_in_browser=True") as address:
        yield address


@pytest.fixture
def notebook(folder: Path) -> Path:
    """The lab as it was handed out."""
    path = folder / LAB / f"{LAB}.ipynb"
    path.write_text(build.serialise(build.build_lab(LAB)))
    return path


@pytest.fixture
def page(sign_in: Any, address: str) -> Iterator[Any]:
    """A page of its own; it fails the test if it asks anybody but the server for anything."""
    page = sign_in(address, timeout_s=60)
    strangers: list[str] = []
    page.on("request", lambda asked: strangers.append(asked.url) if asked.url.startswith("http") else None)
    yield page
    assert [url for url in strangers if not url.startswith(address)] == []


@pytest.fixture
def lab(page: Any, address: str, notebook: Path) -> Lab:
    opened = Lab(page)
    opened.open(address, f"{LAB}/{notebook.name}")
    return opened


def test_a_kernel_is_written_in_cpp_and_its_mistake_is_shown_at_the_cells_own_line(lab: Lab) -> None:
    lab.run(f"{LAB}-02")  # open_lab
    said = lab.run(TASK, BROKEN).inner_text()
    after = BROKEN.split("\n").index("    int k = blockIdx.y") + 2  # there it is missed; lines of the cell count from 1
    assert f'line {after}: expected a ";"' in said
    languages = lab.languages()
    assert {id for id, language in languages.items() if language == "text/x-c++src"} == {
        id for id, source in SOLVED.items() if source.startswith("%%cuda")
    }
    assert languages["source_index"] == "text/x-ipython"


@pytest.mark.full
def test_labs_open_on_a_syllabus_that_leads_to_them_and_nobody_asks_about_news(
    page: Any, address: str, notebook: Path, keep: Any
) -> None:
    page.goto(f"{address}/lab/tree/syllabus.md")
    page.wait_for_selector(".jp-RenderedMarkdown table")
    page.wait_for_timeout(2000)  # for whatever would pop up
    assert page.locator(".Toastify__toast, .jp-Dialog").count() == 0
    keep(page, "syllabus", clip={"x": 0, "y": 0, "width": 1280, "height": 720})
    page.click(f".jp-RenderedMarkdown a:has-text('{LAB}')")
    page.wait_for_selector(".jp-Notebook h1:has-text('Direct convolution')")


@pytest.mark.full
def test_a_wrong_kernel_is_explained_with_a_picture_and_passes_once_it_is_repaired(lab: Lab, keep: Any) -> None:
    lab.run(f"{LAB}-02")
    keep(lab.run(TASK, BROKEN), "compile_error")
    lab.run(TASK, WRONG)
    shown = lab.run(f"{TASK}-check")
    said = shown.inner_text()
    assert "9 of 12 elements are wrong; only the elements with q = 0 are right" in said
    assert "got 0 of its 6 products: x is read off by [0,0,0,-1]" in said
    assert "The smallest case that fails like this" in said
    assert "Step 2" in said  # where to look
    picture = shown.locator("figure svg[role=img]").first
    assert re.fullmatch(r"y\[0,0,p,q\]: .*; 9 of 12 elements wrong \(x\)", picture.get_attribute("aria-label"))
    passed = shown.locator("details.passed")
    assert (passed.get_attribute("open"), passed.locator("summary").inner_text()) == (None, "2 passed")
    keep(shown, "wrong_kernel")
    lab.run(TASK, SOLVED[TASK])
    repaired = lab.run(f"{TASK}-check")
    folded = repaired.locator("details.task")
    assert "18 / 18" in folded.inner_text()
    assert folded.get_attribute("open") is None


@pytest.mark.full
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_measured_traffic_is_drawn_with_words_and_legible_in_both_themes(
    lab: Lab, keep: Any, lowest_contrast: Any, theme: str
) -> None:
    lab.page.set_viewport_size({"width": 1180, "height": 1500})  # for the pictures that are kept
    lab.use(theme)
    lab.run(f"{LAB}-02")
    for cell in ("predict_coalesced", "direct_coalesced"):
        lab.run(cell, SOLVED[cell])
    checked = lab.run("direct_coalesced-check")
    checked.locator("summary").first.click()
    least = [lowest_contrast(checked)]
    shown = lab.run(f"{LAB}-41")
    assert "you predicted 4, your kernel has 4." in shown.inner_text()
    labels = shown.locator("svg[role=img]").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert len(labels) == 6  # traffic, target, roofline, and three accesses
    assert any("direct_report (base): 65,572; your kernel: 19,624" in label for label in labels)
    least.append(lowest_contrast(shown))
    assert min(least) >= 4.5, least  # WCAG 2.2, AA
    keep(shown, f"measured_{theme.rpartition(' ')[2].lower()}")


@pytest.mark.full
def test_everything_is_reached_with_the_keyboard_alone(lab: Lab) -> None:
    page = lab.page
    lab.go(f"{LAB}-01")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Enter")  # open_lab
    names = [cell.id for cell in build.build_lab(LAB).cells]
    for _ in range(names.index(TASK) - 2):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(WRONG)
    for _ in range(names.index(f"{TASK}-check") - names.index(TASK) + 1):  # over the hints, and the check
        page.keyboard.press("Shift+Enter")
    page.wait_for_selector("details.passed summary")
    page.keyboard.press("ArrowUp")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    assert page.evaluate("document.activeElement.innerText") == "2 passed"
    page.keyboard.press("Enter")
    assert page.locator("details.passed").get_attribute("open") is not None


@pytest.mark.full
def test_the_validate_button_names_the_tasks_that_convladder_check_finds_wanting(lab: Lab, notebook: Path) -> None:
    lab.run(TASK, SOLVED[TASK])
    lab.run("predict_report", SOLVED["predict_report"])
    lab.page.keyboard.press("Control+S")
    lab.page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    lab.page.click("text=Validate >> visible=true")
    dialog = lab.page.locator(".jp-Dialog")
    dialog.wait_for(timeout=180_000)
    said = dialog.inner_text()
    done = CliRunner().invoke(main, ["check", str(notebook), "--json"])
    checks = json.loads(done.output)["checks"]
    wanting = {check["task"] for check in checks if check["score"] < check["max"]} - {"explain_mapping"}  # no machine's
    assert set(re.findall(r'^check\("(\w+)"\)', said, re.MULTILINE)) == wanting
    assert TASK not in wanting
    assert "predict_padding" in wanting


@pytest.mark.full
def test_what_a_student_submits_in_the_browser_is_collected_and_gets_its_points(
    student: Any, lab: Lab, address: str, tmp_path: Path, keep: Any
) -> None:
    course = tmp_path / COURSE
    assert CliRunner().invoke(main, ["nbgrader-setup", str(course), "--lab", LAB]).exit_code == 0
    with (course / "nbgrader_config.py").open("a") as config:
        config.write("" if sandbox.available()[0] else 'c.Judge.sandbox = "none"\n')
    student.run(course, "nbgrader", "generate_assignment", LAB)
    student.run(course, "nbgrader", "release_assignment", LAB)
    page = lab.page
    lab.run(TASK, SOLVED[TASK])
    page.keyboard.press("Control+S")
    page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    page.goto(f"{address}/lab")
    page.click(".lm-MenuBar >> text=Nbgrader")
    page.click(".lm-Menu >> text=Assignment List")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_function("!document.body.innerText.includes('There are no submitted assignments')")
    keep(page, "submitted")
    student.run(course, "nbgrader", "collect", LAB)
    (name,) = [folder.name for folder in (course / "submitted").iterdir()]
    student.run(course, "nbgrader", "autograde", LAB)
    record = grade.read_record(grade.record_path(course / "grades" / LAB, name))
    assert record is not None
    scored = {check.task: check.passed for check in record.checks if check.score}
    assert set(scored) == {TASK}
