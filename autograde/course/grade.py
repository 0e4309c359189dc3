"""Grade a class: judge each submission in a process of its own, keep complete records only.

A class lives in one folder, OUT:

    grading.json           the secret of the hidden seeds; drawn once, for the whole class and every regrade
    timing.json            which timing targets this class's GPU can time; measured once, where timing is measured
    handed_in/             what was in an archive of submissions; unpacked anew by each run
    records/STUDENT.json   everything known of a submission (the audit record; not for students)
    proposed/STUDENT.json  where grades that are given already would change: what they would become
    history/STUDENT.N.json records that were replaced by others with another grade, or for a reason
    run.json               from where and how the class was graded last
    grades.csv             one row a student

Whoever draws pages from the records writes them beside these.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ... import __version__
from ...kernels import gpu
from ...kernels.errors import BackendError
from ..judge import judging, score, timing
from ..judge import spec as specs
from ..judge import submission as submissions
from ..judge.record import CheckRecord, SubmissionRecord
from ..judge.sandbox import SandboxPolicy, open_worker
from ..judge.spec import ExplainTask, Spec
from ..judge.submission import Submission
from ..judge.timing import Gain
from . import cluster, collect, pool
from . import course as courses
from .collect import Entry, find_submissions
from .course import Course
from .grades import Change, Grades, GradingError, display_name, file_stem, write_atomically
from .provenance import provenance

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Settings:
    """How a class is judged. Records made under other settings are judged again.

    workers   processes at once, on this machine
    scheduler address of a Dask scheduler whose workers judge, in place of processes here
    timing    "measured" (needs on="gpu"), "counters" or "off"
    explain   whether explanations count
    sandbox   "bwrap", or "none" for work that is trusted
    force     judge again what has a valid record, every task of it
    hold      let no grade that is given already change: keep what it would become in proposed/, and say so. The next
              run without `hold` puts these in force. A notebook that was handed in anew is none of them
    limit_s   wall-clock after which one submission's process is stopped
    """

    on: str = "sim"
    timing: str = "counters"
    explain: bool = True
    sandbox: str = "bwrap"
    workers: int = 1
    scheduler: str = ""
    force: bool = False
    hold: bool = False
    limit_s: float = 900.0


#: Called after each submission with (done, total, record, kept).
Watch = Callable[[int, int, SubmissionRecord, bool], None]


# --- The folder of a class -----------------------------------------------------------------------


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold OUT for one grader at a time; the system lets go of it however that grader ends."""
    if fcntl is None:
        raise GradingError("grading a class needs Linux or macOS: on Windows, grade in WSL2.")
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
        and (job.entry.notebook is not None or job.entry.shared is not None)
        and "unfinished" not in record.environment
        and record.student == job.entry.student
        and (record.lab, record.on, record.timing) == (job.lab, job.settings.on, job.settings.timing)
        and (record.sha256, record.spec_sha256) == (job.digest(), job.spec_sha256)
        and all(record.environment.get(mark, "") == value for mark, value in job.marks().items())
        and job._is_trusted(record)
    )


def sha256_of(notebook: Path | None) -> str:
    """The digest of a notebook; "" where there is none, or it cannot be read."""
    if notebook is None:
        return ""
    try:
        return hashlib.sha256(notebook.read_bytes()).hexdigest()
    except OSError:
        return ""


# --- What was handed in --------------------------------------------------------------------------


def digest(entry: Entry) -> str:
    """Of what is judged: a notebook, or a group's and the own one."""
    if entry.shared is None:
        return sha256_of(entry.notebook)
    both = f"{sha256_of(entry.shared)} {sha256_of(entry.notebook)}"
    return hashlib.sha256(both.encode()).hexdigest()


def handed_in(entry: Entry, spec: Spec) -> Submission:
    """What counts for a student: the own notebook, or of a group's its answers with the own explanations.

    Raises SubmissionError where nothing can be judged.
    """
    if entry.shared is None and entry.notebook is None:
        raise submissions.SubmissionError(entry.problem)
    read = submissions.read(entry.shared or entry.notebook or "", spec)
    if entry.shared is None:
        return read
    own = {task.name for task in spec.tasks if isinstance(task, ExplainTask)}
    answers = {name: answer for name, answer in read.answers.items() if name not in own}
    if entry.notebook is not None:
        with suppress(submissions.SubmissionError):
            mine = submissions.read(entry.notebook, spec)
            answers |= {name: answer for name, answer in mine.answers.items() if name in own}
    return replace(read, sha256=digest(entry), answers=answers)


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
    course: Course | None = None
    gains: Mapping[str, Gain] = field(default_factory=dict)
    earlier: SubmissionRecord | None = None

    def spec(self) -> Spec:
        return _spec(self.lab, self.specs_dir, self.course, self.entry)

    def judge(self) -> SubmissionRecord:
        """Judge, or say in a record why nothing could be judged."""
        spec = self.spec()
        try:
            read = handed_in(self.entry, spec)
        except submissions.SubmissionError as error:
            return self.nothing(str(error))
        record = judging.judge(
            spec,
            read,
            student=self.entry.student,
            on=self.settings.on,
            timing=self.settings.timing,  # type: ignore[arg-type]
            explain=self.settings.explain,
            gains=self.gains,
            hidden=True,
            secret=self.secret,
            sandbox=SandboxPolicy(self.settings.sandbox, gpu=self.settings.on == "gpu"),  # type: ignore[arg-type]
            earlier=self.earlier if self._is_trusted(self.earlier) and not self.settings.force else None,
        )
        record.environment |= self.marks() | provenance(spec, read, self.settings.on)
        return record

    def digest(self) -> str:
        return digest(self.entry)

    def _is_trusted(self, record: SubmissionRecord | None) -> bool:
        """Whether a record was made where student text could not reach it."""
        return record is not None and (self.settings.sandbox == "none" or record.sandbox == self.settings.sandbox)

    def nothing(self, problem: str, unfinished: str = "") -> SubmissionRecord:
        """A record of what was not judged: every check is there, every score 0. `unfinished`: try again next time."""
        settings = self.settings
        planned = score.planned(self.spec(), timing=settings.timing, explain=settings.explain)  # type: ignore[arg-type]
        return SubmissionRecord(
            lab=self.lab,
            student=self.entry.student,
            notebook=str(self.entry.notebook or ""),
            sha256=self.digest(),
            spec_sha256=self.spec_sha256,
            on=settings.on,
            timing=settings.timing,
            checks=[CheckRecord(c.task, c.name, None, 0.0, c.max, manual=c.manual) for c in planned],
            problems=[problem],
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=self.marks() | ({"unfinished": unfinished} if unfinished else {}),
            sandbox=settings.sandbox,
        )

    def marks(self) -> dict[str, str]:
        """What a record must have been made with, besides its own fields, to be kept."""
        devices = {g.device for g in self.gains.values()}
        return {
            "convladder": __version__,
            "secret": secret_id(self.secret),
            "explain": "on" if self.settings.explain else "off",
            "timed_on": ", ".join(sorted(devices)),
            **({"group": f"the notebook that {self.entry.of} handed in"} if self.entry.of else {}),
        }


def _judge(job: _Job) -> str:
    """What a judging process does."""
    return job.judge().to_json()


#: What a judging process does with a submission: it returns the record's JSON.
Work = Callable[[_Job], str]


def _judge_all(
    jobs: Sequence[_Job], settings: Settings, work: Work = _judge
) -> Iterator[tuple[_Job, SubmissionRecord]]:
    """Judge each job in a process of the pool, in order of completion."""
    modules = [judging.__name__, __name__]
    if settings.scheduler:
        on_gpu = settings.on == "gpu"
        results = cluster.run(jobs, work, settings.scheduler, settings.limit_s, modules, on_gpu=on_gpu)
    else:
        results = pool.run(jobs, work, settings.workers, settings.limit_s, modules)
    for job, result in results:
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
    course: Course | None = None,
    work: Work = _judge,
) -> Grades:
    """Judge every submission of a lab that has no valid record yet, and write records and grades.csv.

    A record is kept where notebook, spec, secret, settings and version are those that it was made with, so
    an interrupted run goes on where it stopped. Whatever is wrong with one submission is told in its own
    record, and the class goes on.

    folder  the submissions, or a zip archive of them (see collect.py)
    course  its roster, deadlines, points and hidden cases; `settings` say its timing form
    work    a module's function: another one only to measure what everything around the judging costs
    Raises GradingError where there is nothing to grade, OUT cannot be written, or another run holds it,
    BackendError where timing is to be measured and cannot be.
    """
    _require_gpu(settings)
    spec = _spec(lab, specs_dir, course)
    with locked(out):
        if folder.is_file():
            folder = collect.unpack(folder, out / "handed_in")
        entries, ignored = find_submissions(folder, lab, skip=out)
        if course is not None:
            entries = collect.in_groups(entries, course.groups)
        missing, unlisted = _against_roster(entries, course)
        entries = sorted([*entries, *missing], key=lambda e: e.student.casefold())
        secret = class_secret(out, lab)
        gains = _gains(out, spec, secret, settings) if settings.timing == "measured" else {}
        jobs = [
            _Job(e, lab, specs_dir, _spec(lab, specs_dir, course, e).sha256, secret, settings, course, gains)
            for e in entries
        ]
        write_atomically(out / "run.json", _run(folder, settings, course))
        records: dict[str, SubmissionRecord] = {}
        judged: dict[str, SubmissionRecord] = {}
        changes: list[Change] = []

        def finished(job: _Job, record: SubmissionRecord, kept: bool) -> None:
            judged[job.entry.student] = record
            _set_times(record, job.entry, course)
            change = store(out, record, hold=settings.hold)
            changes.extend([change] if change else [])
            records[job.entry.student] = change.before if change and settings.hold else record
            if watch is not None:
                watch(len(records), len(jobs), records[job.entry.student], kept)

        open_jobs = []
        for job in jobs:
            known = read_record(record_path(out, job.entry.student))
            proposed = read_record(_proposed_path(out, job.entry.student))
            found = next((r for r in (proposed, known) if r is not None and _still_valid(r, job)), None)
            if found is not None and not settings.force:
                finished(job, found, kept=True)
            else:
                open_jobs.append(replace(job, earlier=known))
        kept = len(records)
        # What a group handed in is judged once; its other members' records are made from that one.
        for job, record in _judge_all([j for j in open_jobs if not j.entry.of], settings, work):
            finished(job, record, kept=False)
        shared = [replace(j, earlier=judged[j.entry.of]) for j in open_jobs if j.entry.of]
        for job, record in _judge_all([replace(j, settings=replace(settings, force=False)) for j in shared], settings):
            finished(job, record, kept=False)
        grades = Grades(
            lab, [records[entry.student] for entry in entries], kept, ignored, _strays(out, records),
            [entry.student for entry in missing], unlisted, [entry.student for entry in entries if entry.late],
            changes, settings.hold,
        )  # fmt: skip
        write_atomically(out / "grades.csv", to_csv(grades.records, course))
    return grades


def judge_one(
    lab: str, folder: Path, notebook: Path, raw: str, out: Path, settings: Settings, course: Course | None = None
) -> SubmissionRecord:
    """Judge the notebook of one student, unless OUT has a valid record of it, and keep the record in OUT.

    folder  what all submissions lie in, one folder a student: below it no link is followed
    raw     the student, as the folder is named
    course  its deadlines, points, groups and hidden cases; `settings` say its timing form
    The secret is that of the class in OUT, so a class may be judged one by one, all at once, or partly so.
    Where judging broke down, "unfinished" in the record's environment says so, and the next call judges again.
    """
    _require_gpu(settings)
    entry = entry_in_group(raw, notebook, folder, lab, course)
    (out / "records").mkdir(mode=0o700, parents=True, exist_ok=True)
    secret, spec = class_secret(out, lab), _spec(lab, None, course, entry)
    gains = _gains(out, spec, secret, settings) if settings.timing == "measured" else {}
    job = _Job(entry, lab, None, spec.sha256, secret, settings, course, gains)
    path = record_path(out, entry.student)
    known = read_record(path)
    kept = known is not None and _still_valid(known, job) and not settings.force
    first = read_record(record_path(out, entry.of)) if entry.of else None  # what a group handed in is judged once
    job = replace(job, earlier=first or known)
    record = known if known is not None and kept else next(record for _, record in _judge_all([job], settings))
    _set_times(record, entry, course)
    store(out, record)
    return record


def entry_in_group(raw: str, notebook: Path, folder: Path, lab: str, course: Course | None) -> Entry:
    """What one student handed in, or a member of the group did later. Each one's lies in FOLDER/STUDENT/LAB."""
    own = collect.entry_of(raw, notebook, folder, lab)
    if course is None or own.student not in course.groups:
        return own
    group = course.groups[own.student]
    others = [m for m, its in course.groups.items() if its == group and m != own.student]
    there = [(m, path) for m in others if os.path.lexists(path := folder / m / lab / notebook.name)]
    entries = collect.in_groups([own, *(collect.entry_of(m, p, folder, lab) for m, p in there)], course.groups)
    return next(e for e in entries if e.student == own.student)


def _run(folder: Path, settings: Settings, course: Course | None) -> str:
    """run.json: what a later `regrade` needs to judge as the class was judged."""
    body = {"submissions": str(folder.resolve()), "course": str(course.path.resolve()) if course is not None else ""}
    kept = {
        name: value for name, value in asdict(settings).items() if name not in ("workers", "scheduler", "force", "hold")
    }
    return json.dumps({**body, "settings": kept}, indent=1) + "\n"


def last_run(out: Path) -> tuple[Path, Settings, Course | None]:
    """From where, how and by whose rules a class was graded last. Raises GradingError where it was not."""
    try:
        body = json.loads((out / "run.json").read_text(encoding="utf-8"))
        course = courses.load(body["course"]) if body["course"] else None
        return Path(body["submissions"]), Settings(**body["settings"]), course
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GradingError(f"{out} does not say how its class was graded ({error}): grade the class first.") from error


def regrade(lab: str, student: str, reason: str, out: Path) -> Change | None:
    """Judge one student's notebook once more, every task of it, with the seeds and rules of the class.

    reason  why: it is kept with the new record, and the record before stays in history/
    Returns how the grade changed, None where it did not. Raises GradingError where the student cannot be judged again.
    """
    folder, settings, course = last_run(out)
    _require_gpu(settings)
    with locked(out):
        entries, _ = find_submissions(folder, lab, skip=out)
        entries = collect.in_groups(entries, course.groups) if course is not None else entries
        entry = next((e for e in entries if e.student == student), None)
        if entry is None:
            close = difflib.get_close_matches(student, [e.student for e in entries], 1)
            meant = f": did you mean {close[0]}?" if close else ". Students are named as in grades.csv"
            raise GradingError(f"{folder} holds nothing of {student}{meant}")
        secret, spec = class_secret(out, lab), _spec(lab, None, course, entry)
        gains = _gains(out, spec, secret, settings) if settings.timing == "measured" else {}
        job = _Job(entry, lab, None, spec.sha256, secret, replace(settings, force=True), course, gains)
        record = next(record for _, record in _judge_all([job], settings))
        if "unfinished" in record.environment:
            raise GradingError(f"{student} was not judged, and the grade is what it was: {' '.join(record.problems)}")
        record.environment["reason"] = reason
        _set_times(record, entry, course)
        return store(out, record, reason=reason)


# --- Records that replace others -----------------------------------------------------------------


def _proposed_path(out: Path, student: str) -> Path:
    return out / "proposed" / f"{file_stem(student)}.json"


def store(out: Path, record: SubmissionRecord, *, hold: bool = False, reason: str = "") -> Change | None:
    """Put a record in force, and keep the one before in history/ if its grade was another one.

    hold    where a grade that is given already would change, only propose it
    reason  why it is judged again: then what was before is kept in any case
    Returns how a grade changed that the same notebook had already been given.
    """
    path, proposed = record_path(out, record.student), _proposed_path(out, record.student)
    text, before = record.to_json(), read_record(path)
    change = Change.between(before, record) if before is not None else None
    if change is not None and hold:
        proposed.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(proposed, text, mode=0o600)
        return change
    if before is not None and (change is not None or reason):
        history = out / "history"
        history.mkdir(mode=0o700, exist_ok=True)
        numbers = [int(p.stem.rpartition(".")[2]) for p in history.glob(f"{path.stem}.*.json")]
        write_atomically(history / f"{path.stem}.{max(numbers, default=0) + 1}.json", before.to_json(), mode=0o600)
    if before is None or before.to_json() != text:
        write_atomically(path, text, mode=0o600)
    with suppress(FileNotFoundError):
        proposed.unlink()
    return change


def _require_gpu(settings: Settings) -> None:
    if settings.timing == "measured" and settings.on != "gpu":
        raise BackendError('timing = "measured" needs a GPU: grade with --on gpu, or by counters')


def _spec(lab: str, specs_dir: Path | None, course: Course | None, entry: Entry | None = None) -> Spec:
    """A lab's rules: the present ones, or those of the release that what was handed in is of."""
    if course is None:
        return specs.load(lab, specs_dir)
    notebook = (entry.shared or entry.notebook) if entry is not None else None
    release = submissions.release_of(notebook) if notebook is not None and course.of(lab).releases else ""
    return course.spec(lab, release)


def _against_roster(entries: Sequence[Entry], course: Course | None) -> tuple[list[Entry], list[str]]:
    """Who of the roster handed nothing in, and who handed in without being on it."""
    if course is None or course.roster is None:
        return [], []
    listed = {display_name(student) for student in course.roster}
    there = {entry.student for entry in entries}
    said = "Nothing was handed in: this student is on the roster, and there is no folder and no notebook of this name."
    return [Entry(student, problem=said) for student in sorted(listed - there)], sorted(there - listed)


def _gains(out: Path, spec: Spec, secret: bytes, settings: Settings) -> dict[str, Gain]:
    """Which targets this GPU can time: measured at the first grading, the same for everybody after that."""
    path = out / "timing.json"
    device = gpu.device_facts()["device"]
    made_with = {"device": device, "spec_sha256": spec.sha256, "convladder": __version__}
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = json.loads(path.read_text(encoding="utf-8"))
        if {key: body[key] for key in made_with} == made_with:
            return {task: Gain(**found) for task, found in body["gains"].items()}
    with open_worker(SandboxPolicy(settings.sandbox, gpu=True)) as worker:  # type: ignore[arg-type]
        gains = timing.calibrate(spec, worker, secret)
    body = {**made_with, "gains": {task: asdict(found) for task, found in gains.items()}}
    write_atomically(path, json.dumps(body, indent=1) + "\n")
    return gains


def _set_times(record: SubmissionRecord, entry: Entry, course: Course | None) -> None:
    """Write into a record when it was handed in, when it was due and what that costs."""
    due = course.deadline(record.lab, record.student) if course is not None else None
    handed_in = entry.submitted if due is not None else None
    record.submitted = handed_in.isoformat(timespec="seconds") if handed_in else ""
    record.deadline = due.isoformat(timespec="seconds") if due else ""
    record.penalty = course.penalty(record.lab, record.score, record.late_s) if course is not None else 0.0


def record_path(out: Path, student: str) -> Path:
    return out / "records" / f"{file_stem(student)}.json"


def _strays(out: Path, records: dict[str, SubmissionRecord]) -> list[str]:
    expected = {record_path(out, student).name for student in records}
    return sorted(p.stem for p in (out / "records").glob("*.json") if p.name not in expected)


# --- The table -----------------------------------------------------------------------------------


def to_csv(records: Sequence[SubmissionRecord], course: Course | None = None) -> str:
    """One row a student: total, maximum, points a person still gives, each task's points, problems.

    With a course also when it was handed in and due, how late it is (hours), what that takes off the total and what is
    left of it, and whether the roster has its author.
    """
    tasks = list(dict.fromkeys(check.task for record in records for check in record.checks))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    of_course = (
        ["submitted", "deadline", "hours late", "late penalty", "total less penalty", "on roster"]
        if course is not None
        else []
    )
    table.writerow(["student", "total", "max", "manual pending", *map(cell_text, tasks), *of_course, "problems"])
    for r in records:
        scores = [points_text(sum(c.score for c in r.checks if c.task == task)) for task in tasks]
        problems = cell_text(" | ".join(r.problems))
        times = _course_cells(r, course) if course is not None else []
        table.writerow(
            [cell_text(r.student), *map(points_text, (r.score, r.max, r.manual_max)), *scores, *times, problems]
        )
    return text.getvalue()


def _course_cells(r: SubmissionRecord, course: Course) -> list[str]:
    hours = f"{r.late_s / 3600:.2f}" if r.submitted and r.deadline else ""
    listed = "" if course.roster is None else "yes" if r.student in map(display_name, course.roster) else "no"
    return [r.submitted, r.deadline, hours, points_text(r.penalty), points_text(r.score - r.penalty), listed]


def points_text(value: float) -> str:
    """Points as tables have them, without what rounding leaves."""
    return f"{round(value, 4):.10g}"


def cell_text(text: str) -> str:
    """Text that a spreadsheet shows and never runs."""
    text = " ".join(text.split())
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "|", "%")) else text
