"""What an earlier autograde left: nbgrader by itself skips whoever has a folder in autograded/.

That folder is there too where a killed run had only begun it, and where the submission or the rules have changed since:
whoever is skipped then keeps points that are not theirs. So every autograded notebook is marked with what it was graded
from, and one whose mark no longer holds is removed before nbgrader looks; points and comments given by hand stay in
the gradebook. Nothing is removed while another autograde of the same lab runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import IO

from nbformat import NotebookNode
from nbgrader.utils import rmtree

from ... import __version__
from ..course import grade
from ..course.collect import Entry
from ..course.course import Course
from ..judge.spec import Spec

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Where an autograded notebook says what it was graded from, in its metadata.
MARK = "convladder_graded_from"


def mark(entry: Entry, spec: Spec, course: Course | None, on: str) -> str:
    """Names all that the points of a submission follow from, lateness too."""
    rules = course.of(spec.lab) if course is not None else None
    parts = (
        __version__, on, grade.digest(entry), entry.problem, spec.sha256,
        (course.timing, course.explain) if course is not None else None,
        (str(rules.deadline), str(rules.extensions.get(entry.student)), str(rules.late)) if rules is not None else None,
    )  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def marked(notebook: Path) -> str:
    """The mark in an autograded notebook; "" where there is none: grading had begun, and was not done."""
    try:
        return str(json.loads(notebook.read_text(encoding="utf-8"))["metadata"][MARK])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def set_mark(notebook: NotebookNode, text: str) -> None:
    notebook.metadata[MARK] = text


def forget(folder: Path) -> None:
    """Remove a student's folder in autograded/."""
    rmtree(str(folder))


def alone(records: Path) -> tuple[IO[str] | None, bool]:
    """Note that this process autogrades the lab whose records these are, and say whether it was the only one.

    The note holds as long as the file that is returned is open.
    """
    if fcntl is None:
        return None, True
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = open(records / ".autograde.lock", "a", encoding="utf-8")  # noqa: SIM115
    os.set_inheritable(file.fileno(), False)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH)
        return file, False
    return file, True


def share(file: IO[str] | None) -> None:
    """Let others autograde beside this process from now on."""
    if file is not None:
        fcntl.flock(file, fcntl.LOCK_SH)
