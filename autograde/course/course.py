"""A course's own decisions: `course.toml`, laid over the labs without touching them.

This docstring is the schema. Every key but `semester` is optional; unknown keys are errors, and each error names
file, key and fix.

    semester = "autumn 2026"
    roster = "roster.csv"        # beside this file: a column `student`, with the names of the submissions' folders;
                                 # and, if you like, a column `name`, for nbgrader's pages
    groups = "groups.csv"        # columns `student` and `group`: what the members of a group hand in, whoever did it
                                 # last, is judged once and counts for all of them; explanations are each one's own
    timing = "counters"          # or "measured" (needs a GPU) or "off": one form for the whole class
    explain = true               # false: explanations are neither asked nor graded; their points go to the rest
    hidden = "hidden"            # the course's own hidden cases, made by `convladder course init`: LAB.hidden.toml
    labs = "labs"                # the course's own labs: LAB.toml, which come before those of the same name here, and
                                 # beside each LAB/LAB.py, the solved notebook that `convladder build --course` reads
    [lab.01_direct]
    deadline = 2026-10-20T23:59:00+02:00      # with its offset from UTC. Lateness is recorded
    late = {percent_a_day = 10, at_most = 50, grace_minutes = 15}     # of the points reached, for each day begun after
                                 # the deadline; nothing within the grace. Without `late` nothing is taken off
    points = {correctness = 70, counters = 15, timing = 15}      # the lab's categories, sum 100
    off = ["predict_reuse"]      # tasks that do not count
    releases = ["rules/2026-10"] # folders with the LAB.toml of earlier releases (`convladder release` makes one): a
                                 # notebook of such a release is judged by it. Of any other one the answers to tasks
                                 # that have changed since are refused, and their author is told what to do
    [lab.01_direct.extensions]
    ada = 2026-10-27T23:59:00+02:00
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ...kernels.errors import ConvladderError
from ..judge import edition
from ..judge import spec as specs
from ..judge.spec import Spec, SpecError

TIMINGS = ("measured", "counters", "off")


class CourseError(ConvladderError):
    """course.toml, or a file that it names, cannot be used. The message names file, key and fix."""


@dataclass(frozen=True)
class LatePenalty:
    """What is taken off the points reached, in percent, for each day begun after the deadline."""

    percent_a_day: float
    at_most: float = 100.0
    grace_minutes: float = 0.0

    def points(self, score: float, late_s: float) -> float:
        """The points that this many seconds cost."""
        if late_s <= 60 * self.grace_minutes:
            return 0.0
        return score * min(self.at_most, self.percent_a_day * math.ceil(late_s / 86400)) / 100


@dataclass(frozen=True)
class LabRules:
    """What a course decides about one lab. `points` None: the lab's own; `late` None: lateness costs nothing."""

    deadline: datetime | None = None
    late: LatePenalty | None = None
    extensions: Mapping[str, datetime] = field(default_factory=dict)
    points: Mapping[str, float] | None = None
    off: tuple[str, ...] = ()
    releases: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Course:
    """A course, read and checked. `roster` None: nobody is missed, and everybody is welcome; `names`: full ones.

    groups  the group of each student who has one
    """

    path: Path
    semester: str
    roster: tuple[str, ...] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    timing: str = "counters"
    explain: bool = True
    hidden: Path | None = None
    own_labs: Path | None = None
    rules: Mapping[str, LabRules] = field(default_factory=dict)

    def labs(self) -> list[str]:
        """Every lab that this course can grade."""
        return sorted({*specs.names(), *self.own()})

    def spec(self, lab: str, release: str = "") -> Spec:
        """A lab's spec with this course's hidden cases, points and tasks. Raises CourseError, SpecError.

        release  what the notebook says that it is of: where it is one of the lab's earlier ones, its own spec
        """
        if release and (folder := self.earlier(lab).get(release)) is not None:
            return self._adjusted(specs.load(lab, folder), missing=True)
        own = self.own_labs if lab in self.own() else None
        hidden: bool | Path = True
        if self.hidden and (self.hidden / f"{lab}.hidden.toml").is_file():
            hidden = self.hidden / f"{lab}.hidden.toml"
        return self._adjusted(specs.load(lab, own, hidden=hidden))

    def _adjusted(self, loaded: Spec, missing: bool = False) -> Spec:
        """With this course's points and without the tasks that are off, which may be missing in another release."""
        rules = self.of(loaded.lab)
        there = {task.name for task in loaded.tasks}
        off = [name for name in rules.off if not missing or name in there]
        try:
            return specs.adjusted(loaded, rules.points, off)
        except SpecError as error:
            raise CourseError(f"{self.path.name}, lab.{loaded.lab}: {error}") from None

    def earlier(self, lab: str) -> dict[str, Path]:
        """The lab's earlier releases, each with the folder of its spec."""
        return {edition.of(specs.load(lab, folder)).release: folder for folder in self.of(lab).releases}

    def present_releases(self) -> Course:
        """The same course, which judges nothing by an earlier release's rules."""
        return replace(self, rules={lab: replace(rules, releases=()) for lab, rules in self.rules.items()})

    def own(self) -> list[str]:
        """The labs that the course describes itself, in their order."""
        return specs.names(self.own_labs) if self.own_labs else []

    def source(self, lab: str) -> Path | None:
        """The solved notebook that the course has of a lab; None where it has none."""
        path = self.own_labs / lab / f"{lab}.py" if self.own_labs else None
        return path if path is not None and path.is_file() else None

    def of(self, lab: str) -> LabRules:
        return self.rules.get(lab, LabRules())

    def deadline(self, lab: str, student: str) -> datetime | None:
        """When a student's work is due, any extension counted in."""
        return self.of(lab).extensions.get(student, self.of(lab).deadline)

    def penalty(self, lab: str, score: float, late_s: float) -> float:
        """The points that lateness takes off a score."""
        late = self.of(lab).late
        return late.points(score, late_s) if late is not None else 0.0


def load(path: Path | str) -> Course:
    """Read course.toml, its roster, and the specs that it changes. Raises CourseError, SpecError."""
    path = Path(path)
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CourseError(f"{path} is not TOML: {error}. Mend that line") from None
    table = _Keys(body, path.name)
    semester = table.text("semester")
    names = _roster(path, table)
    roster = None if names is None else tuple(names)
    groups = _groups(path, table, roster)
    timing = table.text("timing", "counters")
    if timing not in TIMINGS:
        raise table.error("timing", f"is {timing!r}: it must be one of {', '.join(TIMINGS)}")
    explain = table.take("explain", bool, True)
    hidden, own = _folder(path, table, "hidden"), _folder(path, table, "labs")
    rules = {name: _rules(name, given, path, roster) for name, given in table.take("lab", dict, {}).items()}
    table.end()
    course = Course(path, semester, roster, names or {}, groups, timing, explain, hidden, own, rules)
    for lab in rules:
        if lab not in course.labs():
            raise CourseError(f"{path.name}: lab.{lab} is no lab{_meant(lab, course.labs())}")
        course.spec(lab)
        for release in course.earlier(lab):
            course.spec(lab, release)
    return course


class _Keys:
    """A TOML table whose keys are taken one by one; what is left over is an error."""

    def __init__(self, body: Mapping[str, Any], where: str):
        self._body = dict(body)
        self._taken: list[str] = []
        self.where = where

    def error(self, key: str, message: str) -> CourseError:
        return CourseError(f"{self.where}: `{key}` {message}")

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        self._taken.append(key)
        if key not in self._body:
            if default is ...:
                raise self.error(key, "is missing")
            return default
        value = self._body.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"is {value!r}: it must be {_KINDS[kind]}")
        return value

    def text(self, key: str, default: Any = ...) -> Any:
        value = self.take(key, str, default)
        if isinstance(value, str) and not value.strip():
            raise self.error(key, "is empty")
        return value

    def time(self, key: str, default: Any = ...) -> datetime | None:
        value = self.take(key, datetime, default)
        if value is not None and value.tzinfo is None:
            raise self.error(key, f"is {value.isoformat()}: add its offset from UTC, as in {value.isoformat()}+01:00")
        return value

    def number(self, key: str, default: Any = ..., *, most: float = math.inf) -> float:
        value = self.take(key, (int, float), default)
        if not 0 <= value <= most:
            raise self.error(
                key, f"is {value}: it must be at least 0" + (f" and at most {most:g}" if most < 1e9 else "")
            )
        return float(value)

    def names(self) -> list[str]:
        return list(self._body)

    def end(self) -> None:
        if self._body:
            key = next(iter(self._body))
            raise self.error(key, f"is not a key here{_meant(key, self._taken)}")


_KINDS: dict[type | tuple[type, ...], str] = {
    str: "a string", bool: "true or false", dict: "a table", list: "a list", datetime: "a date with time and offset",
    (int, float): "a number",
}  # fmt: skip


def _meant(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    return f": did you mean {close[0]!r}?" if close else f": there are {', '.join(names)}"


def _folder(path: Path, table: _Keys, key: str) -> Path | None:
    name = table.text(key, None)
    if name is None:
        return None
    folder = path.parent / name
    if not folder.is_dir():
        raise table.error(key, f"= {name!r}: there is no folder {folder}")
    return folder


def _rules(lab: str, given: Any, path: Path, roster: tuple[str, ...] | None) -> LabRules:
    file = path.name
    if not isinstance(given, dict):
        raise CourseError(f"{file}: `lab.{lab}` must be a table: [lab.{lab}]")
    table = _Keys(given, f"{file}, lab.{lab}")
    deadline = table.time("deadline", None)
    late = _late(table, deadline)
    points = table.take("points", dict, None)
    off = table.take("off", list, [])
    if not all(isinstance(name, str) for name in off):
        raise table.error("off", "must be a list of tasks' names")
    releases = tuple(_release(path, lab, name, table) for name in table.take("releases", list, []))
    extended = _Keys(table.take("extensions", dict, {}), f"{file}, lab.{lab}.extensions")
    table.end()
    extensions: dict[str, datetime] = {}
    for student in extended.names():
        if roster is not None and student not in roster:
            raise extended.error(student, f"is not on the roster{_meant(student, roster)}")
        if deadline is None:
            raise extended.error(student, f"extends nothing: give lab.{lab} a `deadline`")
        extensions[student] = extended.time(student) or deadline
    return LabRules(deadline, late, extensions, points, tuple(off), releases)


def _release(path: Path, lab: str, name: Any, table: _Keys) -> Path:
    """The folder of an earlier release's spec."""
    folder = path.parent / name if isinstance(name, str) else path
    if not (folder / f"{lab}.toml").is_file():
        raise table.error("releases", f"names {name!r}: there is no {lab}.toml in {folder}")
    return folder


def _late(table: _Keys, deadline: datetime | None) -> LatePenalty | None:
    given = table.take("late", dict, None)
    if given is None:
        return None
    if deadline is None:
        raise table.error("late", "penalises nothing: give the lab a `deadline`")
    keys = _Keys(given, f"{table.where}.late")
    per_day, most = keys.number("percent_a_day", most=100), keys.number("at_most", 100, most=100)
    grace = keys.number("grace_minutes", 0)
    keys.end()
    return LatePenalty(per_day, most, grace)


def _roster(path: Path, table: _Keys) -> dict[str, str] | None:
    """The students, in their order, and their full names."""
    if "roster" not in table.names():
        return table.text("roster", None)
    return {student: row.get("name", "") for student, row in _students(path, table, "roster")}


def _groups(path: Path, table: _Keys, roster: tuple[str, ...] | None) -> dict[str, str]:
    """The group of each student who has one."""
    if "groups" not in table.names():
        return table.text("groups", {})
    groups = {}
    for student, row in _students(path, table, "groups", "group"):
        if roster is not None and student not in roster:
            raise table.error("groups", f"name {student!r}, who is not on the roster{_meant(student, roster)}")
        groups[student] = row["group"]
    return groups


def _students(path: Path, table: _Keys, key: str, *columns: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each student of a CSV file that a key names, once, with the row. `columns` must be there and filled too."""
    name = table.text(key)
    file = path.parent / name
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise table.error(key, f"= {name!r}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise table.error(key, f"= {name!r}: {file} is not UTF-8: save it as such") from None
    rows = csv.DictReader(io.StringIO(unicodedata.normalize("NFC", text)))
    for column in ("student", *columns):
        if column not in (rows.fieldnames or ()):
            found = ", ".join(rows.fieldnames or ()) or "nothing"
            raise CourseError(f"{file.name}, line 1: there is no column `{column}` (found: {found}): name one so")
    seen = set()
    for row in rows:
        cells = {column: (value or "").strip() for column, value in row.items() if isinstance(column, str)}
        for column in ("student", *columns):
            if not cells[column]:
                raise CourseError(f"{file.name}, line {rows.line_num}: `{column}` is empty: fill it or remove the line")
        if cells["student"] in seen:
            raise CourseError(f"{file.name}, line {rows.line_num}: {cells['student']!r} is there twice: remove one")
        seen.add(cells["student"])
        yield cells["student"], cells


def summary(course: Course) -> Iterator[str]:
    """What a course says, a line for each thing."""
    yield f"{course.path}: {course.semester}"
    who = f"{len(course.roster)} students" if course.roster is not None else "everybody (no roster)"
    yield f"roster   {who}"
    yield f"timing   {course.timing}; explanations {'count' if course.explain else 'do not count'}"
    for lab in course.labs():
        spec, rules = course.spec(lab), course.of(lab)
        if not spec.graded:
            continue
        private = course.hidden is not None and (course.hidden / f"{lab}.hidden.toml").is_file()
        told = ["own hidden cases" if private else "hidden cases of the public repository: make your own"]
        if rules.deadline:
            told.append(f"due {rules.deadline.isoformat()}")
        if rules.late:
            told.append(f"{rules.late.percent_a_day:g} % off for each day late, at most {rules.late.at_most:g} %")
        if rules.extensions:
            told.append(f"{len(rules.extensions)} extensions")
        if rules.points:
            told.append("points " + ", ".join(f"{c} {p:g}" for c, p in spec.points.items() if p))
        if rules.off:
            told.append(f"off: {', '.join(rules.off)}")
        told.append(f"release {edition.of(spec).release}")
        told += [f"notebooks of release {name} by {folder.name}" for name, folder in course.earlier(lab).items()]
        yield f"{lab}  {'; '.join(told)}"
