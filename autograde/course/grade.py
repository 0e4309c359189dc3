"""Grade a class: find the submissions, judge each in a process of its own, keep complete records only.

A class lives in one folder, OUT:

    grading.json           the secret of the hidden seeds; drawn once, for the whole class and every regrade
    records/STUDENT.json   everything known of a submission (the audit record; not for students)
    grades.csv             one row a student

Whoever draws pages from the records writes them beside these.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ... import __version__
from ...kernels.errors import ConvladderError
from ..judge import judging, score
from ..judge import spec as specs
from ..judge import submission as submissions
from ..judge.record import CheckRecord, SubmissionRecord
from ..judge.sandbox import SandboxPolicy
from . import pool


class GradingError(ConvladderError):
    """The class cannot be graded: no submissions, or a folder that cannot be read or written."""


@dataclass(frozen=True)
class Settings:
    """How a class is judged. Records made under other settings are judged again.

    workers   processes at once
    sandbox   "bwrap", or "none" for work that is trusted
    force     judge again what has a valid record
    limit_s   wall-clock after which one submission's process is stopped
    """

    on: str = "sim"
    timing: str = "counters"
    sandbox: str = "bwrap"
    workers: int = 1
    force: bool = False
    limit_s: float = 900.0


@dataclass(frozen=True)
class Entry:
    """What was found of one student: a notebook, or a problem that says why there is none."""

    student: str
    notebook: Path | None = None
    problem: str = ""


@dataclass
class Grades:
    """A graded class, in the order of the students' names.

    kept     how many records were still valid and were not judged again
    ignored  files beside the submissions that are none
    strays   students with a record but without a submission
    """

    lab: str
    records: list[SubmissionRecord]
    kept: int = 0
    ignored: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    @property
    def unfinished(self) -> list[SubmissionRecord]:
        """Records of submissions whose judging broke down; the next run judges them again."""
        return [r for r in self.records if "unfinished" in r.environment]


#: Called after each submission with (done, total, record, kept).
Watch = Callable[[int, int, SubmissionRecord, bool], None]


# --- Finding submissions -------------------------------------------------------------------------


def display_name(raw: str) -> str:
    """A student's name as it may be shown: no control, formatting or undecodable characters, never empty.

    A changed name gets a digest of the original, so that two students never become one.
    """
    shown = "".join("?" if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in raw).strip()
    if shown == raw:
        return raw
    return f"{shown} #{hashlib.sha256(os.fsencode(raw)).hexdigest()[:8]}"


def file_stem(student: str) -> str:
    """A file name for a student: the name itself where it is harmless, else a slug and a digest after `~`."""
    if re.fullmatch(r"[A-Za-z0-9_@+][A-Za-z0-9._@+-]{0,99}", student):
        return student
    slug = re.sub(r"[^A-Za-z0-9_@+-]+", "_", student).strip("_-")[:60]
    return f"{slug}~{hashlib.sha256(student.encode()).hexdigest()[:16]}"


def find_submissions(folder: Path, lab: str, skip: Path | None = None) -> tuple[list[Entry], list[str]]:
    """Every student in `folder` with the notebook of `lab`, and the names of what is no submission.

    A submission is STUDENT/LAB.ipynb, STUDENT/LAB/LAB.ipynb (as nbgrader has it) or STUDENT.ipynb.
    """
    try:
        children = sorted(folder.iterdir(), key=lambda p: p.name)
    except OSError as error:
        raise GradingError(f"{folder} cannot be read as the folder of submissions: {error.strerror}.") from error
    found: dict[str, list[Path]] = {}
    ignored = []
    for child in children:
        if child.name.startswith(".") or (skip is not None and child.resolve() == skip.resolve()):
            continue
        if child.is_dir():
            places = (child / f"{lab}.ipynb", child / lab / f"{lab}.ipynb")
            found.setdefault(child.name, []).extend(p for p in places if os.path.lexists(p))
        elif child.suffix == ".ipynb":
            found.setdefault(child.stem, []).append(child)
        else:
            ignored.append(display_name(child.name))
    entries = [_entry(student, notebooks, folder, lab) for student, notebooks in found.items()]
    if not any(found.values()):
        raise GradingError(
            f"No submission of {lab} in {folder}. Expected {folder}/STUDENT/{lab}.ipynb, "
            f"{folder}/STUDENT/{lab}/{lab}.ipynb or {folder}/STUDENT.ipynb."
        )
    return sorted(entries, key=lambda e: e.student.casefold()), ignored


def _entry(raw: str, notebooks: Sequence[Path], folder: Path, lab: str) -> Entry:
    student = display_name(raw)
    if len(notebooks) > 1:
        named = " and ".join(display_name(str(p.relative_to(folder))) for p in notebooks)
        return Entry(student, problem=f"Two notebooks were handed in: {named}. Keep one of them and grade again.")
    if not notebooks:
        others = sorted(display_name(p.name) for p in (folder / raw).glob("*.ipynb"))
        hint = f" Found instead: {', '.join(others[:3])}; the file must be called {lab}.ipynb." if others else ""
        return Entry(student, problem=f"No notebook {lab}.ipynb was handed in.{hint}")
    notebook = notebooks[0]
    if not notebook.resolve().is_relative_to(folder.resolve()):
        return Entry(student, problem=f"{notebook.name} is a link out of the submissions; hand in the file itself.")
    if not notebook.is_file():
        return Entry(student, problem=f"{notebook.name} is not a regular file.")
    return Entry(student, notebook)


# --- The folder of a class -----------------------------------------------------------------------


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that is there in full or not at all, whatever interrupts."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise GradingError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold OUT for one grader at a time; the system lets go of it however that grader ends."""
    try:
        (out / "records").mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open(out / ".lock", "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise GradingError(f"{out} cannot be written: {error.strerror}. Choose another folder with --out.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = display_name(file.read(200).strip()) or "another process"
            raise GradingError(
                f"{out} is in use: {holder} is grading into it. Wait until that run has ended, "
                "or choose another folder with --out."
            ) from error
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def class_secret(out: Path, lab: str) -> bytes:
    """The secret behind the hidden cases' seeds: drawn at the first grading, the same ever after."""
    path = out / "grading.json"
    if not path.exists():
        body = {"lab": lab, "secret": secrets.token_hex(32), "drawn": datetime.now(UTC).isoformat(timespec="seconds")}
        write_atomically(path, json.dumps(body, indent=1) + "\n", mode=0o600)
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        secret, graded = bytes.fromhex(body["secret"]), str(body["lab"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GradingError(
            f"{path} cannot be read ({error}). It holds the secret of this class's hidden cases: restore it from "
            "a backup, or remove it and grade everybody again under a new one."
        ) from error
    if graded != lab:
        raise GradingError(f"{path.parent} holds the grades of {graded}, not of {lab}. Choose another --out.")
    return secret


def secret_id(secret: bytes) -> str:
    """Names a secret without telling it."""
    return hashlib.sha256(b"id:" + secret).hexdigest()[:16]


def read_record(path: Path) -> SubmissionRecord | None:
    """The record in a file; None where there is none or it is damaged."""
    try:
        record = SubmissionRecord.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return record if isinstance(record.environment, dict) else None


def _still_valid(record: SubmissionRecord | None, job: _Job) -> bool:
    return (
        record is not None
        and job.entry.notebook is not None
        and "unfinished" not in record.environment
        and record.student == job.entry.student
        and (record.lab, record.on, record.timing) == (job.lab, job.settings.on, job.settings.timing)
        and (record.sha256, record.spec_sha256) == (_sha256(job.entry.notebook), job.spec_sha256)
        and record.environment.get("convladder") == __version__
        and record.environment.get("secret") == secret_id(job.secret)
        and (job.settings.sandbox == "none" or record.sandbox == job.settings.sandbox)
    )


def _sha256(notebook: Path | None) -> str:
    if notebook is None:
        return ""
    try:
        return hashlib.sha256(notebook.read_bytes()).hexdigest()
    except OSError:
        return ""


# --- Judging -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """All that a judging process is told of one submission."""

    entry: Entry
    lab: str
    specs_dir: Path | None
    spec_sha256: str
    secret: bytes
    settings: Settings

    def judge(self) -> SubmissionRecord:
        """Judge, or say in a record why nothing could be judged."""
        if self.entry.notebook is None:
            return self.nothing(self.entry.problem)
        spec = specs.load(self.lab, self.specs_dir)
        try:
            read = submissions.read(self.entry.notebook, spec)
        except submissions.SubmissionError as error:
            return self.nothing(str(error))
        record = judging.judge(
            spec,
            read,
            student=self.entry.student,
            on=self.settings.on,
            timing=self.settings.timing,  # type: ignore[arg-type]
            hidden=True,
            secret=self.secret,
            sandbox=SandboxPolicy(self.settings.sandbox, gpu=self.settings.on == "gpu"),  # type: ignore[arg-type]
        )
        record.environment |= self._marks()
        return record

    def nothing(self, problem: str, unfinished: str = "") -> SubmissionRecord:
        """A record of what was not judged: every check is there, every score 0. `unfinished`: try again next time."""
        settings = self.settings
        planned = score.planned(specs.load(self.lab, self.specs_dir), timing=settings.timing)  # type: ignore[arg-type]
        return SubmissionRecord(
            lab=self.lab,
            student=self.entry.student,
            notebook=str(self.entry.notebook or ""),
            sha256=_sha256(self.entry.notebook),
            spec_sha256=self.spec_sha256,
            on=settings.on,
            timing=settings.timing,
            checks=[CheckRecord(c.task, c.name, None, 0.0, c.max, manual=c.manual) for c in planned],
            problems=[problem],
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=self._marks() | ({"unfinished": unfinished} if unfinished else {}),
            sandbox=settings.sandbox,
        )

    def _marks(self) -> dict[str, str]:
        return {"convladder": __version__, "secret": secret_id(self.secret)}


def _judge(job: _Job) -> str:
    """What a judging process does."""
    return job.judge().to_json()


def _judge_all(jobs: Sequence[_Job], settings: Settings) -> Iterator[tuple[_Job, SubmissionRecord]]:
    """Judge each job in a process of the pool, in order of completion."""
    modules = [judging.__name__, __name__]
    for job, result in pool.run(jobs, _judge, settings.workers, settings.limit_s, modules):
        if isinstance(result, pool.Broken):
            yield job, job.nothing(_WHY_BROKEN[result.reason].format(result.how), result.details or result.how)
        else:
            yield job, SubmissionRecord.from_json(result)


_WHY_BROKEN = {
    "died": "The process that judged this notebook ended before it was done ({}). Nothing was graded; grade again, "
    "and if it happens again look at this notebook by hand.",
    "late": "Judging this notebook took more than {} and was stopped. Nothing was graded; grade again, "
    "and if it happens again look at this notebook by hand.",
    "raised": "This notebook could not be judged ({}). Nothing was graded; this is a fault of the grader or of its "
    "machine, not of the notebook.",
}


def grade_class(
    lab: str,
    folder: Path,
    out: Path,
    settings: Settings,
    watch: Watch | None = None,
    specs_dir: Path | None = None,
) -> Grades:
    """Judge every submission of a lab that has no valid record yet, and write records and grades.csv.

    A record is kept where notebook, spec, secret, settings and version are those that it was made with, so
    an interrupted run goes on where it stopped. Whatever is wrong with one submission is told in its own
    record, and the class goes on.

    Raises GradingError where there is nothing to grade, OUT cannot be written, or another run holds it.
    """
    entries, ignored = find_submissions(folder, lab, skip=out)
    spec = specs.load(lab, specs_dir)
    with locked(out):
        secret = class_secret(out, lab)
        jobs = [_Job(entry, lab, specs_dir, spec.sha256, secret, settings) for entry in entries]
        records: dict[str, SubmissionRecord] = {}

        def finished(job: _Job, record: SubmissionRecord, kept: bool) -> None:
            records[job.entry.student] = record
            if not kept:
                write_atomically(record_path(out, record.student), record.to_json(), mode=0o600)
            if watch is not None:
                watch(len(records), len(jobs), record, kept)

        open_jobs = []
        for job in jobs:
            known = None if settings.force else read_record(record_path(out, job.entry.student))
            if known is not None and _still_valid(known, job):
                finished(job, known, kept=True)
            else:
                open_jobs.append(job)
        kept = len(records)
        for job, record in _judge_all(open_jobs, settings):
            finished(job, record, kept=False)
        grades = Grades(lab, [records[entry.student] for entry in entries], kept, ignored, _strays(out, records))
        write_atomically(out / "grades.csv", to_csv(grades.records))
    return grades


def record_path(out: Path, student: str) -> Path:
    return out / "records" / f"{file_stem(student)}.json"


def _strays(out: Path, records: dict[str, SubmissionRecord]) -> list[str]:
    expected = {record_path(out, student).name for student in records}
    return sorted(p.stem for p in (out / "records").glob("*.json") if p.name not in expected)


# --- The table -----------------------------------------------------------------------------------


def to_csv(records: Sequence[SubmissionRecord]) -> str:
    """One row a student: total, maximum, points a person still gives, each task's points, problems."""
    tasks = list(dict.fromkeys(check.task for record in records for check in record.checks))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["student", "total", "max", "manual pending", *map(_cell, tasks), "problems"])
    for r in records:
        scores = [_points(sum(c.score for c in r.checks if c.task == task)) for task in tasks]
        problems = _cell(" | ".join(r.problems))
        table.writerow([_cell(r.student), *map(_points, (r.score, r.max, r.manual_max)), *scores, problems])
    return text.getvalue()


def _points(value: float) -> str:
    return f"{round(value, 4):.10g}"


def _cell(text: str) -> str:
    """Text that a spreadsheet shows and never runs."""
    text = " ".join(text.split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "|", "%")) else text
