"""Makes a course folder that nbgrader's own commands work in: source notebooks, configuration, secrets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nbformat import NotebookNode

from ...kernels.errors import ConvladderError
from ..course import build, grade
from .nbgrader_plugin import STUB

CONFIG = '''"""An nbgrader course of convladder labs; see the plugin's module for what each command does here."""

from convladder.autograde.faces.nbgrader_plugin import configure

c = get_config()  # noqa: F821
configure(c, __file__)

c.CourseDirectory.course_id = {course_id!r}

# What your learning platform calls a student's notebook, if zip_collect does not understand it:
# c.FileNameCollectorPlugin.named_regexp = r".*/(?P<student_id>[^/]+)/(?P<file_id>[^/]+)\\.ipynb$"

# Work handed in late gets nothing (for any other rule write a plugin, see nbgrader's "Late submissions"):
# c.LateSubmissionPlugin.penalty_method = "zero"

# Students that are not on your roster (nbgrader db student import) are told, not added:
# c.Autograde.create_student = False
'''


def source_notebook(lab: str, root: Path | None = None) -> NotebookNode:
    """The solved notebook of a lab, each of whose answer cells carries what students get in its place."""
    solved = build.solved_notebook(lab, root)
    for cell, stub in zip(solved.cells, build.build_lab(lab, root).cells, strict=True):
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.metadata[STUB] = stub.source
    return solved


def make(dest: Path, labs: Sequence[str] = (), root: Path | None = None) -> list[Path]:
    """Make the course folder DEST, or bring its sources up to date, and return what was written.

    labs  all unless named
    root  the repository whose solutions/ are built
    An nbgrader_config.py and the secrets of hidden cases that are there already stay as they are.
    """
    dest = Path(dest)
    known = build.labs(root)
    unknown = [lab for lab in labs if lab not in known]
    if unknown:
        raise ConvladderError(f"There is no lab {', '.join(unknown)}; there are: {', '.join(known)}.")
    written = []
    try:
        dest.mkdir(parents=True, exist_ok=True)
        config = dest / "nbgrader_config.py"
        if not config.exists():
            grade.write_atomically(config, CONFIG.format(course_id=dest.resolve().name))
            written.append(config)
        for lab in labs or known:
            source = dest / "source" / lab / f"{lab}.ipynb"
            source.parent.mkdir(parents=True, exist_ok=True)
            grade.write_atomically(source, build.serialise(source_notebook(lab, root)))
            records = dest / "grades" / lab
            records.mkdir(mode=0o700, parents=True, exist_ok=True)
            grade.class_secret(records, lab)  # drawn now: commands that run at once would draw several
            written.append(source)
        (dest / "submitted").mkdir(exist_ok=True)
    except OSError as error:
        raise ConvladderError(f"{error.filename or dest} cannot be written: {error.strerror}.") from error
    return written
