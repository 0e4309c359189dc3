"""What was handed in: one notebook for each student, from a folder or from a learning platform's zip archive.

A notebook of the lab LAB is its student's by the name of its file or of the folder that it lies in:

    STUDENT/LAB.ipynb    STUDENT/LAB/LAB.ipynb    STUDENT_LAB.ipynb    STUDENT.ipynb
    STUDENT_[LATE_]NUMBER_NUMBER_LAB[-1].ipynb                   Canvas; -1, -2 …: handed in again
    STUDENT_NUMBER_assignsubmission_file_/LAB.ipynb              Moodle, with or without folders
    [TITLE_]STUDENT_attempt_2026-01-30-15-00-00_LAB.ipynb        Blackboard

Of one student's several attempts the last one counts. When something was handed in is known from Blackboard's names
(taken for UTC), from nbgrader's timestamp.txt beside the notebook, or else from the file's last change; but not from
that where the name is a platform's or the folder nbgrader's, for there it is the time of a download.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath, PurePosixPath

from ..judge.submission import MAX_BYTES
from .grades import GradingError, display_name

#: What an archive may hold: files in it, and bytes of the notebooks in it.
MAX_FILES = 20_000
MAX_TOTAL = 4 << 30

#: What platforms write before the name of a student's file, and on a student's folder.
_CANVAS = re.compile(r"([^_]+)_(LATE_)?(\d+)_\d+_")
_MOODLE = re.compile(r"(.+?)_(\d+)_assignsubmission_file_+")
_MOODLE_FOLDER = re.compile(r"(.+)_(\d+)_assignsubmission_file_*")
_BLACKBOARD = re.compile(r"(?:.*?_)?([^_]+)_attempt_(\d{4}(?:-\d\d){5})_")


@dataclass(frozen=True)
class Attempt:
    """What a notebook's path says of it.

    person  what tells people of one name apart: the platform's number, "" where there is none
    number  which attempt of the student it is: the largest is the last
    late    the platform marked it so
    known   the name is a platform's, whose archives tell no time but that in `submitted`
    """

    student: str
    person: str = ""
    number: int = 0
    submitted: datetime | None = None
    late: bool = False
    known: bool = False


def attempt(path: PurePath, lab: str) -> Attempt | None:
    """Whose notebook of `lab` a file is, by its name and the folders that it lies in; None where it is nobody's.

    What a platform writes stands before what a student chose, so the outermost folder and the first mark in a name
    decide: a student's file that is called like another one's attempt is nobody's.
    """
    whose = _attempt([part for part in path.parts if part not in ("/", "..", ".")], lab)
    return whose if whose is not None and whose.student not in ("", ".", "..") else None


def _attempt(parts: Sequence[str], lab: str) -> Attempt | None:
    *folders, name = parts
    for folder in folders:
        if found := _MOODLE_FOLDER.fullmatch(folder):
            return Attempt(found[1], found[2], known=True) if name == f"{lab}.ipynb" else None
    marks = [m for m in (_CANVAS.match(name), _MOODLE.match(name), _BLACKBOARD.match(name)) if m]
    if marks:
        found = min(marks, key=lambda m: m.end())
        chosen = re.fullmatch(rf"{re.escape(lab)}(?:-(\d+))?\.ipynb", name[found.end() :])
        if chosen is None or (chosen[1] and found.re is not _CANVAS):
            return None
        return _marked(found, int(chosen[1] or 0))
    if name == f"{lab}.ipynb":
        return _of_folder(folders, lab)
    if name.endswith(f"_{lab}.ipynb"):
        return Attempt(name.removesuffix(f"_{lab}.ipynb"))
    return None


def _marked(found: re.Match[str], again: int) -> Attempt | None:
    """What a platform wrote before a student's file name."""
    if found.re is _CANVAS:
        return Attempt(found[1], found[3], again, late=bool(found[2]), known=True)
    if found.re is _MOODLE:
        return Attempt(found[1], found[2], known=True)
    with suppress(ValueError):
        when = datetime.strptime(found[2], "%Y-%m-%d-%H-%M-%S").replace(tzinfo=UTC)
        return Attempt(found[1], number=int(when.timestamp()), submitted=when, known=True)
    return None


def _of_folder(folders: Sequence[str], lab: str) -> Attempt | None:
    if folders and folders[-1] == lab:
        folders = folders[:-1]
    if not folders:
        return None
    if found := _MOODLE_FOLDER.fullmatch(folders[-1]):
        return Attempt(found[1], found[2], known=True)
    return Attempt(folders[-1])


def last(candidates: Sequence[tuple[Attempt, Path]], folder: Path) -> tuple[Attempt, Path] | str:
    """Which of one student's notebooks counts: the last attempt. A text says why none does, and what to do."""
    people = {(a.person, a.known): path for a, path in candidates}
    if len(people) > 1:
        both = " and ".join(_named(path, folder) for path in list(people.values())[:2])
        return (
            f"Two people would both be called {display_name(candidates[0][0].student)}: {both}. Neither was graded: "
            "put the notebook of each into a folder with a name of its own, and grade again."
        )
    most = max(a.number for a, _ in candidates)
    (first, *more) = [(a, path) for a, path in candidates if a.number == most]
    if more:
        both = " and ".join(_named(path, folder) for _, path in (first, *more))
        return f"Two notebooks were handed in: {both}. Keep one of them and grade again."
    return first


def _named(path: Path, folder: Path) -> str:
    return display_name(str(path.relative_to(folder)))


# --- A folder of submissions ---------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What was found of one student: a notebook, or a problem that says why there is none.

    submitted  when it was handed in, where that is known
    late       the learning platform marked it as late
    shared     the notebook that another member of the group handed in: it counts, but for the explanations
    of         who handed that in
    """

    student: str
    notebook: Path | None = None
    problem: str = ""
    submitted: datetime | None = None
    late: bool = False
    shared: Path | None = None
    of: str = ""


def find_submissions(folder: Path, lab: str, skip: Path | None = None) -> tuple[list[Entry], list[str]]:
    """Every student in `folder` with the notebook of `lab`, and the names of what is no submission.

    Raises GradingError where there is none.
    """
    try:
        children = sorted(folder.iterdir(), key=lambda p: p.name)
    except OSError as error:
        raise GradingError(f"{folder} cannot be read as the folder of submissions: {error.strerror}.") from error
    found: dict[str, list[tuple[Attempt, Path]]] = {}
    without: dict[str, str] = {}
    ignored = []
    for child in children:
        if child.name.startswith(".") or (skip is not None and child.resolve() == skip.resolve()):
            continue
        if child.is_dir():
            whose = _of_folder([child.name], lab) or Attempt(child.name)
            places = [p for p in (child / f"{lab}.ipynb", child / lab / f"{lab}.ipynb") if os.path.lexists(p)]
            without[unicodedata.normalize("NFC", whose.student)] = child.name
        elif child.suffix == ".ipynb":
            whose = attempt(PurePosixPath(child.name), lab) or Attempt(child.stem)
            places = [child]
        else:
            ignored.append(display_name(child.name))
            continue
        found.setdefault(unicodedata.normalize("NFC", whose.student), []).extend((whose, place) for place in places)
    if not any(found.values()):
        raise GradingError(
            f"No submission of {lab} in {folder}. Expected {folder}/STUDENT/{lab}.ipynb, "
            f"{folder}/STUDENT/{lab}/{lab}.ipynb, {folder}/STUDENT.ipynb, or the names that Canvas, Moodle or "
            "Blackboard give."
        )
    entries = [
        entry(student, notebooks, folder, lab, without.get(student, student)) for student, notebooks in found.items()
    ]
    return sorted(entries, key=lambda e: e.student.casefold()), ignored


def entry(raw: str, notebooks: Sequence[tuple[Attempt, Path]], folder: Path, lab: str, own: str = "") -> Entry:
    """What a student's notebooks come to.

    folder  what all submissions lie in: below it no link is followed, to another student's work or out of it
    own     the name of the student's own folder, to say what lies there instead
    """
    student = display_name(raw)
    if not notebooks:
        others = sorted(display_name(p.name) for p in (folder / own).glob("*.ipynb"))
        hint = f" Found instead: {', '.join(others[:3])}; the file must be called {lab}.ipynb." if others else ""
        return Entry(student, problem=f"No notebook {lab}.ipynb was handed in.{hint}")
    chosen = last(notebooks, folder)
    if isinstance(chosen, str):
        return Entry(student, problem=chosen)
    whose, notebook = chosen
    try:
        itself = notebook.resolve(strict=True) == folder.resolve() / notebook.relative_to(folder)
    except (OSError, RuntimeError) as error:  # a link that leads nowhere, or to itself
        return Entry(student, problem=f"{notebook.name} cannot be read: {getattr(error, 'strerror', '') or 'a loop'}.")
    if not itself:
        return Entry(student, problem=f"{notebook.name} is a link, or lies behind one; hand in the file itself.")
    if not notebook.is_file():
        return Entry(student, problem=f"{notebook.name} is not a regular file.")
    downloaded = whose.known or notebook.parent.name == lab
    return Entry(student, notebook, "", whose.submitted or submitted_at(notebook, downloaded), whose.late)


def in_groups(entries: Sequence[Entry], groups: Mapping[str, str]) -> list[Entry]:
    """The same entries, where every member of a group has the notebook that one of it handed in last."""
    found = {entry.student: entry for entry in entries}
    for group in sorted(set(groups.values())):
        members = [student for student, its in groups.items() if its == group]
        handed_in = [e for e in (found.get(display_name(m)) for m in members) if e is not None and e.notebook]
        if not handed_in:
            continue
        unknown = datetime.min.replace(tzinfo=UTC)
        last = max(handed_in, key=lambda e: (e.submitted or unknown, e.student))
        for student in map(display_name, members):
            if student != last.student:
                own = found.get(student, Entry(student))
                found[student] = replace(
                    own, problem="", submitted=last.submitted, late=last.late, shared=last.notebook, of=last.student
                )
    return list(found.values())


def entry_of(raw: str, notebook: Path, folder: Path, lab: str) -> Entry:
    """What the one notebook of a student comes to, where its place is known."""
    return entry(raw, [(Attempt(raw), notebook)], folder, lab)


def submitted_at(notebook: Path, downloaded: bool = False) -> datetime | None:
    """When a notebook was handed in: nbgrader's timestamp.txt beside it says, or else the file's last change.

    downloaded  the file's last change is that of a download, and says nothing
    """
    with suppress(OSError, ValueError):
        told = (notebook.parent / "timestamp.txt").read_text(encoding="utf-8").strip()
        stamp = datetime.fromisoformat(told.removesuffix(" UTC"))
        return stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    if not downloaded:
        with suppress(OSError):
            return datetime.fromtimestamp(notebook.stat().st_mtime, UTC)
    return None


# --- An archive ----------------------------------------------------------------------------------


def unpack(archive: Path, dest: Path) -> Path:
    """The notebooks of a zip archive, in a new folder DEST; what else the archive holds is left out.

    Raises GradingError, before anything is written, where a file would come to lie outside of DEST, where there are
    links or encrypted files, or more than any class hands in.
    """
    try:
        with zipfile.ZipFile(archive) as packed:
            wanted = _acceptable(packed.infolist(), archive)
            shutil.rmtree(dest, ignore_errors=True)
            dest.mkdir(parents=True)
            for info in wanted:
                target = dest / info.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(info) as source, target.open("xb") as file:
                    file.write(source.read(MAX_BYTES + 1))  # one more than is judged: its student is told
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise GradingError(
            f"{archive} is no zip archive, or a damaged one ({error}): download it once more."
        ) from error
    except FileExistsError as error:
        raise GradingError(
            f"{archive} holds {display_name(str(error.filename))} twice: download it once more."
        ) from error
    except OSError as error:
        raise GradingError(f"{archive} cannot be unpacked into {dest}: {error.strerror or error}.") from error
    return dest


def _acceptable(infos: Sequence[zipfile.ZipInfo], archive: Path) -> list[zipfile.ZipInfo]:
    """The notebooks (and nbgrader's timestamps) among the files of an archive."""

    def refused(info: zipfile.ZipInfo, why: str) -> GradingError:
        return GradingError(
            f"{archive} was not unpacked: {display_name(info.filename)[:100]} {why}. No learning platform writes this; "
            "download the archive once more."
        )

    wanted = []
    for info in infos:
        path = PurePosixPath(info.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:(/|$)", str(path)):
            raise refused(info, "would be written outside of the folder")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise refused(info, "is a link")
        if info.flag_bits & 1:
            raise refused(info, "is encrypted")
        if not info.is_dir() and (path.suffix == ".ipynb" or path.name == "timestamp.txt"):
            wanted.append(info)
    if len(infos) > MAX_FILES:
        raise GradingError(f"{archive} was not unpacked: it holds {len(infos):,} files, and {MAX_FILES:,} is the most.")
    total = sum(min(info.file_size, MAX_BYTES + 1) for info in wanted)
    if total > MAX_TOTAL:
        raise GradingError(
            f"{archive} was not unpacked: its notebooks have {total / 2**30:.1f} GiB, and {MAX_TOTAL >> 30} GiB is the "
            "most. Unpack it by hand if you trust it, and grade the folder."
        )
    return wanted
