"""Draw records: the views that text and HTML share, and the HTML itself.

Whatever a record says came from a student or was derived from a student's text, so all of it is escaped
here (Jinja's autoescape) and stripped of control characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup, escape

from ..course.grades import Grades, file_stem, write_atomically
from ..judge.record import CheckRecord, SubmissionRecord
from . import overview
from .bars import Bars, standing
from .example import Example, example
from .lanes import LaneMap, lane_map, worst
from .pictures import wrong_map
from .traffic import Traffic


@dataclass(frozen=True)
class State:
    """How a verdict looks: a symbol and a word beside the colour."""

    symbol: str
    word: str
    style: str


PASSED = State("✓", "passed", "good")
PARTLY = State("◐", "partly", "part")
FAILED = State("✗", "failed", "bad")
SKIPPED = State("–", "not reached", "skip")
BY_HAND = State("✎", "graded by hand", "hand")


def state(check: CheckRecord) -> State:
    if check.manual:
        return BY_HAND
    if check.passed is None:
        return SKIPPED
    if check.passed:
        return PASSED if check.score >= check.max else PARTLY
    return PARTLY if check.score > 0 else FAILED


def plain(text: str) -> str:
    """Text without control and formatting characters (tabs and line ends stay): safe on any terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str) -> str:
    return " ".join(plain(text).split())


def points(value: float) -> str:
    """Points as people write them: at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


# --- What was lost, and why ----------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """Points that one mistake cost: those of the check that failed and of the checks that could not be reached."""

    points: float
    check: str
    reason: str
    help: str
    also: tuple[str, ...] = ()
    state: State = FAILED


def losses(record: SubmissionRecord) -> list[Loss]:
    """One entry a mistake, in the order of the tasks; none where nothing was judged: then `problems` say why."""
    if all(check.passed is None for check in record.checks):
        return []
    found: list[Loss] = []
    for checks in by_task(record.checks).values():
        cause: Loss | None = None
        for check in checks:
            missing = check.max - check.score
            if check.manual or (missing <= 0 and check.passed is not False):
                continue
            if check.passed is None and cause is not None:
                cause = Loss(
                    cause.points + missing,
                    cause.check,
                    cause.reason,
                    cause.help,
                    (*cause.also, check.check),
                    cause.state,
                )
                found[-1] = cause
                continue
            loss = Loss(missing, check.check, short_reason(check), one_line(check.help), (), state(check))
            found.append(loss)
            if check.passed is False:
                cause = loss
    return [loss for loss in found if loss.points > 0 or loss.state is FAILED]


#: A reason in a table is one line; the student's page tells the rest.
_REASON = 110


def short_reason(check: CheckRecord) -> str:
    """The reason in one line: what is wrong, without the case, the quoted source and the advice."""
    evidence = check.evidence
    text = one_line(check.rationale)
    fault = evidence.get("fault")
    errors = [d for d in evidence.get("diagnostics") or () if d[1] == "error"]
    if isinstance(fault, dict):
        text = f"line {fault['line']}: {fault['kind']}: {fault['message']}"
    elif errors:
        text = f"line {errors[0][0]}: {errors[0][2]}"
    elif evidence.get("mistake"):
        text = f"{text.split(';')[0]}: {evidence['mistake']}"
    text = re.sub(r" \(on case .*\)$", "", text)
    if "case" in evidence:
        named = re.escape(repr(evidence["case"]))
        text = re.split(rf"\.? Case {named}", re.sub(rf" on case {named}", "", text))[0]
    text = one_line(text)
    return text if len(text) <= _REASON else f"{text[: _REASON - 1].rsplit(' ', 1)[0]} …"


def by_task(checks: Sequence[CheckRecord]) -> dict[str, list[CheckRecord]]:
    tasks: dict[str, list[CheckRecord]] = {}
    for check in checks:
        tasks.setdefault(check.task, []).append(check)
    return tasks


# --- Views of checks -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceRow:
    """One line of the student's text; `at` marks the line to blame, `caret` points into it."""

    number: int
    text: str
    at: bool = False
    caret: str = ""


@dataclass
class CheckView:
    label: str
    state: State
    points: str
    rationale: str = ""
    help: str = ""
    excerpt: list[SourceRow] = field(default_factory=list)
    log: str = ""
    picture: Markup | None = None
    sketch: str = ""
    caption: str = ""
    why: str = ""
    example: Example | None = None
    lanes: LaneMap | None = None
    bars: Bars | None = None


@dataclass
class TaskView:
    """A task's checks: the first failure leads, what it kept from being reached is one line, passed ones fold away."""

    name: str
    title: str
    state: State
    points: str
    first: CheckView | None
    others: list[CheckView]
    skipped: str
    passed: list[CheckView]


def check_view(check: CheckRecord, source: str = "") -> CheckView:
    """`source`: the text of the task's cell, for the line to blame."""
    evidence = check.evidence
    seen = state(check)
    view = CheckView(
        label=check.check.removeprefix(f"{check.task}."),
        state=seen,
        points=f"{points(check.score)} / {points(check.max)}" if check.max and not check.manual else "",
        rationale=plain(check.rationale),
        help=plain(check.help),
        log=plain(str(evidence.get("log", "")))[:20000],
    )
    view.excerpt = excerpt(evidence, source)
    drawn = wrong_map(evidence)
    if drawn is not None:
        view.picture, view.sketch, view.caption = drawn.svg(), drawn.text(), drawn.caption
    view.example = example(evidence)
    access = evidence.get("lanes")
    view.lanes = lane_map(access) if isinstance(access, dict) else None
    view.bars = standing(evidence)
    told = evidence.get("why")
    view.why = plain(str(told.get("sentence", ""))) if isinstance(told, dict) else ""
    return view


def excerpt(evidence: Mapping[str, Any], source: str) -> list[SourceRow]:
    """The offending line with its neighbours where the source is at hand, else as the evidence quotes it."""
    line = _blamed(evidence)
    if line < 1:
        return []
    rows = plain(source).split("\n")
    caret = caret_below(str(evidence.get("log", "")), line, str(evidence.get("message", "")))
    if line <= len(rows) and rows[line - 1].strip():
        around = [n for n in (line - 1, line, line + 1) if 1 <= n <= len(rows) and (n == line or rows[n - 1].strip())]
        return [SourceRow(n, rows[n - 1].expandtabs(4), n == line, caret if n == line else "") for n in around]
    quoted = plain(str(evidence.get("source", ""))).split("\n")[0].expandtabs(4)
    return [SourceRow(line, quoted, True, caret)] if quoted.strip() else []


def _blamed(evidence: Mapping[str, Any]) -> int:
    """The line of the cell that evidence points at: a compiler's error, a fault or the most wasteful access."""
    places = [evidence, evidence.get("fault"), evidence.get("worst")]
    lines = [place.get("line") for place in places if isinstance(place, dict)]
    lines += [line for line, severity, _ in evidence.get("diagnostics") or () if severity == "error"]
    return next((line for line in lines if isinstance(line, int) and line > 0), 0)


_POINTED = re.compile(
    r"\((?P<line>\d+)\): [\w ]+(?: #[\w-]+)?: (?P<message>[^\n]*)\n  (?P<text>[^\n]*)\n  (?P<indent>[ \t]*)\^"
)


def caret_below(log: str, line: int, message: str = "") -> str:
    """Where the compiler's log points in a line: blanks and a caret, to stand below the line; "" where it does not.

    Of several messages about the line, the one that says `message` decides, else the first.
    """
    about = [match for match in _POINTED.finditer(log) if int(match["line"]) == line]
    said = [match for match in about if match["message"].strip() == message] or about
    if not said:
        return ""
    before = said[0]["text"][: len(said[0]["indent"])].expandtabs(4)
    return " " * len(before) + "^"


@dataclass(frozen=True)
class Complaint:
    """One message of the compiler, with the lines that it is about."""

    message: str
    excerpt: Sequence[SourceRow] = ()


def complaints(error: Mapping[str, Any], source: str) -> list[Complaint]:
    """A worker's error event as complaints: the compiler's errors, each at its line, or the one message."""
    log = str(error.get("log", ""))
    listed = [(line, message) for line, severity, message in error.get("diagnostics") or () if severity == "error"]
    if not listed:
        listed = [(error.get("line", 0), re.sub(r"^line \d+: ", "", str(error.get("message", ""))))]
    return [
        Complaint(
            plain(f"line {line}: {message}" if line else message),
            [row for row in excerpt({"line": line, "log": log, "message": message}, source) if row.at],
        )
        for line, message in listed[:5]
    ]


def task_view(name: str, checks: Sequence[CheckRecord], title: str = "", source: str = "") -> TaskView:
    views = [check_view(check, source) for check in checks]
    first = next((v for v in views if v.state in (FAILED, PARTLY)), None)
    skipped = [v for v in views if v.state is SKIPPED and not (first is None and v.rationale)]
    return TaskView(
        name=name,
        title=title or name,
        state=_overall(checks),
        points=_of(checks),
        first=first,
        others=[v for v in views if v is not first and v.state is not PASSED and v not in skipped],
        skipped=", ".join(v.label for v in skipped),
        passed=[v for v in views if v.state is PASSED],
    )


def _overall(checks: Sequence[CheckRecord]) -> State:
    machine = [c for c in checks if not c.manual]
    if not machine:
        return BY_HAND
    if all(c.passed and c.score >= c.max for c in machine):
        return PASSED
    if all(c.passed is None for c in machine):
        return SKIPPED
    return PARTLY if any(c.score > 0 for c in machine) else FAILED


def _of(checks: Sequence[CheckRecord]) -> str:
    machine = [c for c in checks if not c.manual]
    if not sum(c.max for c in checks):
        return ""
    if not machine:
        return f"{points(sum(c.max for c in checks))} by hand"
    return f"{points(sum(c.score for c in machine))} / {points(sum(c.max for c in machine))}"


# --- HTML ----------------------------------------------------------------------------------------


@cache
def environment() -> Environment:
    loader = PackageLoader("convladder.autograde.faces", "templates")
    pages = Environment(
        loader=loader,
        autoescape=select_autoescape(enabled_extensions=("html", "j2"), default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    pages.filters["wordbreak"] = lambda text: Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(plain(text)))))
    return pages


def _percent(score: float, most: float) -> str:
    return f"{100 * score / most:.1f}" if most else "0"


def feedback_page(record: SubmissionRecord, title: str, titles: Mapping[str, str]) -> str:
    """What a student gets back: one page, complete in itself. Hidden inputs stay hidden."""
    shown = record.student_view()
    return (
        environment()
        .get_template("feedback.html.j2")
        .render(
            lab=title,
            student=shown.student,
            score=points(shown.score),
            max=points(shown.max),
            manual=points(shown.manual_max) if shown.manual_max else "",
            percent=_percent(shown.score, shown.max),
            lateness=lateness(shown),
            problems=shown.problems,
            failed=FAILED,
            tasks=[task_view(name, checks, titles.get(name, "")) for name, checks in by_task(shown.checks).items()],
            footer=f"{circumstances(record)} · {record.date[:16].replace('T', ' ')} UTC",
        )
    )


def cell_html(
    checks: Sequence[CheckRecord], titles: Mapping[str, str], sources: Mapping[str, str], notes: Sequence[str] = ()
) -> str:
    """The same records below a notebook cell."""
    tasks = [task_view(name, own, titles.get(name, ""), sources.get(name, "")) for name, own in by_task(checks).items()]
    return environment().get_template("cell.html.j2").render(tasks=tasks, notes=notes, failed=FAILED)


def compiled_html(kernels: Sequence[str], found: Sequence[Complaint], hint: str) -> str:
    """What the compiler said, below a `%%cuda` cell."""
    return (
        environment()
        .get_template("compiled.html.j2")
        .render(kernels=kernels, complaints=found, hint=hint, passed=PASSED, failed=FAILED)
    )


def traffic_html(
    seen: Traffic, title: str, drawn: Sequence[LaneMap] = (), printed: str = "", bars: Sequence[Bars] = (),
    predicted: Sequence[str] = (),
) -> str:  # fmt: skip
    """Counters beside each line of the source, below a notebook cell; what a warp touches, the worst access open."""
    page = environment().get_template("traffic.html.j2")
    return page.render(
        traffic=seen,
        title=title,
        maps=drawn,
        worst=worst(drawn),
        printed=plain(printed),
        bars=bars,
        predicted=predicted,
    )


def timed_html(said: str, drawn: Bars | None) -> str:
    """How long a kernel took, below a notebook cell."""
    return environment().get_template("timed.html.j2").render(said=said, bars=drawn)


def class_page(grades: Grades, title: str) -> str:
    """The class for the instructor: grades, what many stumbled over, and a reason for each lost point."""
    records = grades.records
    tasks = by_task([check for record in records for check in record.checks])
    lost = [loss for record in records for loss in losses(record) if loss.points > 0]
    stumbles = Counter(loss.check for loss in lost)
    spread = overview.distribution(records)
    tallest = max((part.count for part in spread), default=0)
    maxima = {name: max((_most(r, name) for r in records), default=0) for name in tasks}
    return (
        environment()
        .get_template("class.html.j2")
        .render(
            lab=title,
            summary=_class_summary(records),
            passed=PASSED,
            failed=FAILED,
            tasks=[{"name": name, "max": points(maxima[name])} for name in tasks],
            rows=[_class_row(record, list(tasks)) for record in records],
            stumbles=[
                {
                    "check": check,
                    "count": count,
                    "percent": _percent(count, len(records)),
                    "typical": overview.typical([loss.reason for loss in lost if loss.check == check]),
                }
                for check, count in stumbles.most_common(8)
            ],
            spread=[
                {"part": f"{p.least}–{p.most} %", "count": p.count, "percent": _percent(p.count, tallest)}
                for p in spread
            ],
            ends=overview.ends(records),
            footer=circumstances(records[0]) if records else "",
        )
    )


def _most(record: SubmissionRecord, task: str) -> float:
    return sum(c.max for c in record.checks if c.task == task)


def _class_row(record: SubmissionRecord, tasks: Sequence[str]) -> dict[str, Any]:
    own = by_task(record.checks)
    stem = file_stem(record.student)
    return {
        "student": record.student,
        "href": f"feedback/{stem.replace('%', '%25')}.html",
        "anchor": stem,
        "score": points(record.score),
        "max": points(record.max),
        "percent": _percent(record.score, record.max),
        "manual": points(record.manual_max) if record.manual_max else "",
        "lateness": lateness(record),
        "problems": record.problems,
        "cells": [_class_cell(own[task]) if task in own else None for task in tasks],
        "losses": [
            {
                "points": f"−{points(loss.points)}",
                "style": loss.state.style,
                "check": loss.check,
                "reason": loss.reason,
                "also": f"and {also_text(loss)}" if loss.also else "",
            }
            for loss in losses(record)
        ],
    }


def _class_cell(checks: Sequence[CheckRecord]) -> dict[str, Any]:
    machine = [c for c in checks if not c.manual]
    if not machine:
        return {"points": "", "state": BY_HAND}
    return {"points": points(sum(c.score for c in machine)), "state": _overall(checks)}


def also_text(loss: Loss) -> str:
    count = len(loss.also)
    return f"{count} check{'s' if count > 1 else ''} that need{'s' if count == 1 else ''} it"


def _class_summary(records: Sequence[SubmissionRecord]) -> str:
    if not records:
        return "nobody"
    scores = sorted(r.score for r in records)
    middle = scores[len(scores) // 2] if len(scores) % 2 else sum(scores[len(scores) // 2 - 1 :][:2]) / 2
    most = max(r.max for r in records)
    students = "1 submission" if len(records) == 1 else f"{len(records)} submissions"
    return f"{students} · median {points(middle)} of {points(most)} points"


def lateness(record: SubmissionRecord) -> str:
    """How late it was and what that costs; "" for what was in time."""
    if not record.late_s:
        return ""
    cost = f"−{points(record.penalty)} points, {points(record.score - record.penalty)} remain"
    return f"Handed in {record.late_s / 3600:.1f} hours late: {cost if record.penalty else 'nothing is taken off'}"


def circumstances(record: SubmissionRecord) -> str:
    where = "on the engine, without a GPU" if record.on == "sim" else "on a GPU"
    version = record.environment.get("convladder", "")
    return f"judged by convladder {version} {where}; performance graded by: {record.timing}".replace("  ", " ")


def write_feedback(record: SubmissionRecord, out: Path, title: str, titles: Mapping[str, str]) -> Path:
    path = out / "feedback" / f"{file_stem(record.student)}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, feedback_page(record, title, titles))
    return path


def write_class_page(grades: Grades, out: Path, title: str) -> Path:
    path = out / "index.html"
    write_atomically(path, class_page(grades, title))
    return path
