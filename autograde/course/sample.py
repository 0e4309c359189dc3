"""A class of sample students: one who solved the lab, one who never began, and one for each known mistake.

The mistakes are the files in solutions/LAB/wrong: the text of one task's cell (without its magic line) after
three lines of header,

    //! task: direct_guarded               (`#!` in a .py file)
    //! fails: direct_guarded.correct      the checks that must fail, and no other; several are separated by commas
    //! why: forgets the channel in the filter's index
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from . import build
from .build import BuildError
from .course import Course

_HEADER = re.compile(r"(?://|#)!\s*(?P<key>task|fails|why):\s*(?P<value>.*\S)\s*$")
_KEYS = ("task", "fails", "why")

SOLVED = "ada"
STUB = "bela"
#: The students with a mistake, in the order of the files.
NAMES = (
    "carla", "david", "elena", "felix", "greta", "hugo", "ines", "jonas", "kira", "luis", "mara", "nils", "olga",
    "pavel", "quinn", "rosa", "simon", "tilda", "umar", "vera", "wim", "xenia", "yuri", "zoe", "anton", "bruno",
    "clara", "dario", "emil", "frida", "gustav", "hanna", "igor", "jana", "karl", "lena", "milan", "nora", "oskar",
    "paula", "rafael", "selma", "theo", "ulla", "viktor", "wanda", "ximena", "yara",
)  # fmt: skip


@dataclass(frozen=True)
class Wrong:
    """One known mistake: `text` is the cell of `task` that has it, `fails` the checks that must say so."""

    path: Path
    task: str
    fails: tuple[str, ...]
    why: str
    text: str


@dataclass(frozen=True)
class Student:
    """One sample submission. `fails` names the checks that must fail; None for the stub, which passes none."""

    name: str
    path: Path
    what: str
    fails: tuple[str, ...] | None


def mistakes(lab: str, root: Path | None = None, course: Course | None = None) -> list[Wrong]:
    """The known mistakes of a lab, by file name. Raises BuildError for a file whose header cannot be read."""
    folder = build.source_path(lab, root, course).parent / "wrong"
    return [_read(path) for path in sorted(folder.glob("*")) if path.suffix in (".cu", ".py")]


def sample_class(lab: str, dest: Path | str, root: Path | None = None, course: Course | None = None) -> list[Student]:
    """Write DEST/STUDENT/LAB.ipynb for every sample student, and say who they are."""
    students = []
    for name, notebook, what, fails in _class(lab, root, course):
        path = Path(dest) / name / f"{lab}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(build.serialise(notebook), encoding="utf-8", newline="\n")
        students.append(Student(name, path, what, fails))
    return students


def _class(
    lab: str, root: Path | None, course: Course | None = None
) -> Iterator[tuple[str, NotebookNode, str, tuple[str, ...] | None]]:
    solved = build.solved_notebook(lab, root, course)
    yield SOLVED, solved, "solved everything", ()
    yield STUB, build.build_lab(lab, root, course), "handed in the released notebook", None
    found = mistakes(lab, root, course)
    if len(found) > len(NAMES):
        raise BuildError(
            found[-1].path, 1, f"there are {len(found)} mistakes and names for {len(NAMES)} students: add to NAMES"
        )
    for name, wrong in zip(NAMES, found):
        yield name, _with_answer(solved, wrong), f"{wrong.path.name}: {wrong.why}", wrong.fails


def _with_answer(notebook: NotebookNode, wrong: Wrong) -> NotebookNode:
    """The notebook with one task's answer replaced."""
    changed = copy.deepcopy(notebook)
    for cell in changed.cells:
        if cell.id == wrong.task:
            cell.source = cell.source.partition("\n")[0] + "\n" + wrong.text
            return changed
    raise BuildError(wrong.path, 1, f"the lab has no task {wrong.task}")


def _read(path: Path) -> Wrong:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = {}
    for number, key in enumerate(_KEYS):
        match = _HEADER.match(lines[number]) if number < len(lines) else None
        if match is None or match["key"] != key:
            raise BuildError(path, number + 1, f"the header's line {number + 1} is `//! {key}: …` (`#!` in Python)")
        header[key] = match["value"]
    fails = tuple(check.strip() for check in header["fails"].split(","))
    return Wrong(path, header["task"], fails, header["why"], "\n".join(lines[len(_KEYS) :]))
