"""Makes a course folder that nbgrader's own commands work in: source notebooks, configuration, secrets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.api import Gradebook

from ...kernels.errors import ConvladderError
from ..course import build, grade
from ..course import course as courses
from ..course.course import Course
from .nbgrader_plugin import STUB, find_alembic

CONFIG = '''"""An nbgrader course of convladder labs; see the plugin's module for what each command does here."""

from convladder.autograde.faces.nbgrader_plugin import configure

c = get_config()  # noqa: F821
configure(c, __file__{course})

c.CourseDirectory.course_id = {course_id!r}

# What your learning platform calls a student's notebook, if zip_collect does not understand it:
# c.FileNameCollectorPlugin.named_regexp = r".*/(?P<student_id>[^/]+)/(?P<file_id>[^/]+)\\.ipynb$"

# Work handed in late gets nothing, where course.toml has no `late` for the lab:
# c.LateSubmissionPlugin.penalty_method = "zero"

# Judge on a GPU:
# c.Judge.on = "gpu"

# Students that are not in the gradebook (nbgrader db student import) are told, not added:
# c.Autograde.create_student = False
'''


def source_notebook(lab: str, root: Path | None = None, course: Course | None = None) -> NotebookNode:
    """The solved notebook of a lab, each of whose answer cells carries what students get in its place."""
    solved = build.solved_notebook(lab, root, course)
    for cell, stub in zip(solved.cells, build.build_lab(lab, root, course).cells, strict=True):
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.metadata[STUB] = stub.source
    return solved


def make(dest: Path, labs: Sequence[str] = (), root: Path | None = None, course_file: Path | None = None) -> list[Path]:
    """Make the course folder DEST, or bring its sources up to date, and return what was written.

    labs         all unless named
    root         the repository whose solutions/ are built
    course_file  the course.toml whose points the notebooks get and whose roster the gradebook; DEST's own unless named
    An nbgrader_config.py and the secrets of hidden cases that are there already stay as they are.
    """
    dest = Path(dest)
    course = _course(dest, course_file)
    own = course.own() if course is not None else []
    known = sorted({*build.labs(root), *own})
    unknown = [lab for lab in labs if lab not in known]
    if unknown:
        raise ConvladderError(f"There is no lab {', '.join(unknown)}; there are: {', '.join(known)}.")
    written = []
    try:
        dest.mkdir(parents=True, exist_ok=True)
        config = dest / "nbgrader_config.py"
        if not config.exists():
            argument = f", course={_relative(course_file, dest)!r}" if course_file else ""
            grade.write_atomically(config, CONFIG.replace("{course}", argument).format(course_id=dest.resolve().name))
            written.append(config)
        for lab in labs or known:
            source = dest / "source" / lab / f"{lab}.ipynb"
            source.parent.mkdir(parents=True, exist_ok=True)
            grade.write_atomically(source, build.serialise(source_notebook(lab, root, course)))
            if course is not None and lab in own:
                build.copy_spec(course, lab, source.parent)
            records = dest / "grades" / lab
            records.mkdir(mode=0o700, parents=True, exist_ok=True)
            grade.class_secret(records, lab)  # drawn now: commands that run at once would draw several
            written.append(source)
        (dest / "submitted").mkdir(exist_ok=True)
        if course is not None and course.roster is not None:
            _enrol(course, dest)
    except OSError as error:
        raise ConvladderError(f"{error.filename or dest} cannot be written: {error.strerror}.") from error
    return written


def _course(dest: Path, file: Path | None) -> Course | None:
    """The course whose rules hold in DEST. Raises ConvladderError where DEST's configuration names another."""
    config = dest / "nbgrader_config.py"
    if file is None:
        file = dest / "course.toml"
        return courses.load(file) if file.exists() else None
    if config.exists() and _relative(file, dest) not in config.read_text(encoding="utf-8"):
        raise ConvladderError(
            f"{config} is there already and does not name {file}: write "
            f"`configure(c, __file__, course={_relative(file, dest)!r})` into it, and run this command again."
        )
    return courses.load(file)


def _relative(file: Path, dest: Path) -> str:
    return Path(os.path.relpath(file, dest)).as_posix()


def _enrol(course: Course, dest: Path) -> None:
    """Put the roster into the gradebook: nbgrader's pages show names, and its exported table who handed nothing in."""
    find_alembic()
    with Gradebook(f"sqlite:///{dest.resolve()}/gradebook.db") as book:
        for student in course.roster or ():
            first, _, last = course.names.get(student, "").rpartition(" ")
            book.update_or_create_student(student, first_name=first or None, last_name=last or None)
