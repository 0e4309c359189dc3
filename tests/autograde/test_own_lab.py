"""The page that tells how a lab is added, followed to the letter in an empty folder outside of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from convladder.autograde.course import build, release
from convladder.autograde.course import course as courses
from convladder.autograde.course.course import Course
from convladder.autograde.faces import nbgrader_course
from convladder.autograde.faces.cli import main
from convladder.autograde.faces.nbgrader_plugin import ClearAnswers
from convladder.autograde.judge import spec as specs
from convladder.autograde.judge.spec import SpecError
from convladder.kernels.errors import ConvladderError

LAB = "90_mirror"
PAGE = (Path(__file__).parents[2] / "docs" / "adding.md").read_text(encoding="utf-8")
#: A file to write (named at the end of the paragraph before its text), or commands with what they print.
STEP = re.compile(
    r"`(?P<path>course/[\w/.]+)`[^`\n]*\n\n```(?!console)\S+\n(?P<text>.*?)```|```console\n(?P<console>.*?)```",
    re.DOTALL,
)


def write(folder: Path, step: re.Match[str]) -> None:
    path = folder / step["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(step["text"], encoding="utf-8")


def follow(folder: Path) -> list[str]:
    """Write each file and run each command in its turn; returns the commands. Fails where one prints something else."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    commands = []
    for step in STEP.finditer(PAGE):
        if step["path"]:
            write(folder, step)
            continue
        for block in step["console"].removeprefix("$ ").split("\n$ "):
            command, *shown = block.splitlines()
            done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            wanted = "\n".join(re.escape(line).replace("…", ".*") for line in shown)
            assert re.search(wanted, done.stdout, re.DOTALL), f"{command}\n{done.stdout}"
            commands.append(command)
    return commands


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="the page grades in the sandbox, which needs bubblewrap")
def test_the_page_can_be_followed_to_the_letter(tmp_path: Path) -> None:
    commands = follow(tmp_path)
    assert [command.split()[1] for command in commands if command.startswith("convladder")] == [
        "course", "build", "prove", "grade",
    ]  # fmt: skip
    assert (tmp_path / "grades" / "feedback" / "ada.html").is_file()


@pytest.fixture
def own(tmp_path: Path) -> Course:
    """The course of the page."""
    for step in STEP.finditer(PAGE):
        if step["path"]:
            write(tmp_path, step)
    (tmp_path / "course" / "hidden").mkdir()
    return courses.load(tmp_path / "course" / "course.toml")


def test_a_lab_of_a_courses_own_is_built_where_its_notebook_finds_its_spec(own: Course) -> None:
    notebook, spec = build.write_own(own)
    assert (notebook.name, spec.name) == (f"{LAB}.ipynb", f"{LAB}.toml")
    assert notebook.parent == spec.parent == own.path.parent / "built" / LAB
    assert "W + W - 1" not in notebook.read_text(encoding="utf-8")
    assert specs.load(LAB, specs.folder_of(LAB, notebook.parent)).task("mirror").title == "Mirror every row"
    with pytest.raises(SpecError, match=f"there is no lab '{LAB}'"):
        specs.load(LAB, specs.folder_of(LAB, own.path.parent))


def test_its_hidden_cases_are_the_graders_alone(own: Course) -> None:
    _, spec = build.write_own(own)
    public, graded = specs.load(LAB, spec.parent).task("mirror"), own.spec(LAB).task("mirror")
    assert len(graded.cases) == len(public.cases) + 1  # type: ignore[attr-defined]


def test_a_solved_notebook_passes_in_a_terminal(own: Course) -> None:
    notebook, _ = build.write_own(own)
    notebook.write_text(build.serialise(build.solved_notebook(LAB, course=own)), encoding="utf-8")
    shown = CliRunner().invoke(main, ["check", str(notebook)])
    assert shown.exit_code == 0, shown.output


def test_nbgrader_hands_it_out_with_its_public_spec(own: Course, tmp_path: Path) -> None:
    nbgrader_course.make(tmp_path / "nbgrader", [LAB], course_file=own.path)
    source = tmp_path / "nbgrader" / "source" / LAB
    assert sorted(path.name for path in source.iterdir()) == [f"{LAB}.ipynb", f"{LAB}.toml"]
    notebook = nbformat.read(source / f"{LAB}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(source), "name": LAB}}
    released, _ = ClearAnswers().preprocess(notebook, resources)
    assert "W + W - 1" not in nbformat.writes(released)
    (source / f"{LAB}.hidden.toml").touch()
    with pytest.raises(ConvladderError, match="nbgrader copies whatever lies there to students"):
        ClearAnswers().preprocess(notebook, resources)


@pytest.mark.full
def test_students_bundles_hold_its_notebook_and_its_public_spec_alone(own: Course, tmp_path: Path) -> None:
    release.release(tmp_path / "out", course=own)
    folder = tmp_path / "out" / "students" / "labs" / LAB
    assert sorted(path.name for path in folder.iterdir()) == [f"{LAB}.ipynb", f"{LAB}.toml"]
    (folder / "notes.txt").write_text('name = "one column more than a block"', encoding="utf-8")
    assert any("a hidden case" in leak.what for leak in release.leaks(folder, course=own))
