"""nbgrader's zip_collect, with our reading of what learning platforms export.

Of whom nothing can be collected is told, the others are collected, and then the command fails.

downloaded/LAB/archive (zip archives, notebooks) -> downloaded/LAB/extracted -> submitted/STUDENT/LAB/LAB.ipynb. Which
names are understood, and what an archive may hold, is written in autograde/course/collect.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin

from ..course import collect
from ..course.grades import GradingError, display_name
from .report import plain

_OTHER_ARCHIVES = {".gz", ".tgz", ".bz2", ".xz", ".tar", ".7z", ".rar"}


class Unpack(ExtractorPlugin):
    """Unpack zip archives, and copy the notebooks beside them."""

    def extract(self, archive_path: str, extracted_path: str) -> None:
        archives = Path(archive_path)
        for path in sorted(archives.rglob("*")):
            target = Path(extracted_path) / path.relative_to(archives)
            try:
                self._take(path, target)
            except GradingError as error:
                self.parent.fail(str(error))

    def _take(self, path: Path, target: Path) -> None:
        if path.is_symlink():
            self.log.warning("Skipped %s: it is a link", path)
        elif path.suffix == ".zip":
            target = target.with_suffix("")
            if target.exists():
                raise GradingError(f"There is both {path} and the folder {path.with_suffix('')}: keep one of them.")
            collect.unpack(path, target)
        elif path.suffix in _OTHER_ARCHIVES:
            raise GradingError(f"{path} is no zip archive: unpack it by hand, and put the notebooks in its place.")
        elif path.is_file() and (path.suffix == ".ipynb" or path.name == "timestamp.txt"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


class Collect(FileNameCollectorPlugin):
    """Each student's last attempt. A `named_regexp` of the course's own takes the place of our reading of names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._chosen: dict[Path, dict[str, str]] | None = None

    def collect(self, submitted_file: str) -> dict[str, str] | None:
        if self.named_regexp:
            return super().collect(submitted_file)
        if self._chosen is None:
            self._chosen = self._choose()
        return self._chosen.get(Path(submitted_file))

    def _choose(self) -> dict[Path, dict[str, str]]:
        app = self.parent
        lab = app.coursedir.assignment_id
        root = Path(app._format_collect_path(app.extracted_directory))
        found: dict[str, list[tuple[collect.Attempt, Path]]] = {}
        for path in sorted(root.rglob("*.ipynb")):
            whose = collect.attempt(path.relative_to(root), lab)
            if whose is not None:
                found.setdefault(display_name(whose.student), []).append((whose, path))
        chosen, left_out = {}, []
        for student, attempts in found.items():
            last = collect.last(attempts, root)
            if isinstance(last, str):
                self.log.error("%s", plain(f"Not collected: {student}. {last}"))
                left_out.append(student)
                continue
            whose, path = last
            chosen[path] = {"student_id": student, "file_id": lab}
            if when := whose.submitted or collect.submitted_at(path, downloaded=True):
                chosen[path]["timestamp"] = f"{when:%Y-%m-%d %H:%M:%S} UTC"
            if whose.late:
                self.log.warning(
                    "%s is marked as late by the learning platform, which does not say by how much", student
                )
        if left_out:
            _fail_at_the_end(app, left_out)
        return chosen


def _fail_at_the_end(app: Any, left_out: Sequence[str]) -> None:
    """Have the command fail once the others are collected: somebody was not."""
    others = app._transfer_files

    def and_fail(collected: Any) -> None:
        others(collected)
        app.fail(plain(f"Not collected, see above: {', '.join(left_out)}"))

    app._transfer_files = and_fail
