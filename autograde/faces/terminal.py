"""Draw records for a terminal, through rich. Text from records goes in as `Text`: never read as markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..course.grades import Grades
from ..judge.record import CheckRecord, SubmissionRecord
from . import lanes
from .example import Example
from .lanes import LaneMap
from .report import (
    BY_HAND,
    FAILED,
    PASSED,
    CheckView,
    Complaint,
    Loss,
    SourceRow,
    State,
    TaskView,
    by_task,
    losses,
    one_line,
    plain,
    points,
    task_view,
)
from .single import Run
from .traffic import Traffic, arrange

if TYPE_CHECKING:
    from .show import Claim, Shown  # they bring what draws, which no other command waits for

#: The pages' two colours, in the terminal's own palette.
_STYLES = {"good": "blue", "bad": "bold red", "part": "yellow", "hand": "yellow", "skip": "dim"}


def symbol(state: State) -> Text:
    return Text(state.symbol, _STYLES[state.style])


def checks(
    records: Sequence[CheckRecord], titles: Mapping[str, str], sources: Mapping[str, str] | None = None
) -> RenderableType:
    """What `check` says: a task after the other, the first failure of each in full."""
    views = [
        task_view(name, own, titles.get(name, ""), (sources or {}).get(name, ""))
        for name, own in by_task(records).items()
    ]
    return Group(*(_task(view) for view in views))


def _task(view: TaskView) -> RenderableType:
    head = Text.assemble(symbol(view.state), " ", (view.title, "bold"), "  ", (view.points, "dim"))
    parts: list[RenderableType] = [head]
    if view.first is not None:
        parts.extend(_check(view.first))
    for check in view.others:
        parts.extend(_check(check))
    if view.skipped:
        parts.append(Text(f"  – not reached: {view.skipped}", "dim"))
    if view.passed:
        names = ", ".join(check.label for check in view.passed)
        parts.append(Text.assemble("  ", symbol(PASSED), (f" {names}", "dim")))
    return Group(*parts)


def _check_line(check: CheckView) -> Text:
    return Text.assemble("  ", symbol(check.state), f" {check.label}  ", (check.points, "dim"))


def _check(check: CheckView) -> list[RenderableType]:
    parts: list[RenderableType] = [_check_line(check)]
    if check.rationale:
        parts.append(_indented(Text(check.rationale)))
    if check.excerpt:
        parts.append(_indented(_excerpt(check.excerpt)))
    if check.why:
        parts.append(_indented(Text(check.why)))
    if check.sketch:
        parts.append(_indented(Text(check.sketch)))
    if check.lanes:
        parts.append(Padding(lane_map(check.lanes), (0, 0, 0, 4)))
    if check.bars:
        parts.append(_indented(Text(check.bars.text())))
    if check.example:
        parts.append(_indented(_example(check.example, check.why)))
    if check.help:
        parts.append(_indented(Text.assemble(("→ ", "bold blue"), check.help)))
    return parts


def _example(shown: Example, said: str) -> Text:
    """The smallest failing case; its sentence unless that was said already."""
    text = Text.assemble(("the smallest case that fails like this: ", "bold"), plain(shown.sizes))
    if shown.sentence and plain(shown.sentence) != said:
        text.append(f"\n{plain(shown.sentence)}")
    if shown.grids:
        text.append(f"\n{plain(shown.text())}")
    return text


def _indented(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 4))


def _excerpt(rows: Sequence[SourceRow]) -> Text:
    text = Text()
    for row in rows:
        text.append(f"{row.number:4} │ {row.text}\n", "bold" if row.at else "dim")
        if row.caret:
            text.append(f"     │ {row.caret}\n", "bold red")
    text.rstrip()
    return text


def complaints(found: Sequence[Complaint]) -> RenderableType:
    """The compiler's errors, each with its line and a caret below it."""
    parts: list[RenderableType] = []
    for complaint in found:
        parts.append(Text.assemble(symbol(FAILED), f" {complaint.message}"))
        if complaint.excerpt:
            parts.append(_indented(_excerpt(complaint.excerpt)))
    return Group(*parts)


def single_run(done: Run) -> RenderableType:
    """The report of `convladder run`: faults with their lines, counters by line, what a warp touches, outputs."""
    parts: list[RenderableType] = []
    lines = done.source.expandtabs(4).split("\n")
    for fault in done.faults:
        parts.append(Text.assemble(symbol(FAILED), f" {plain(str(fault))}"))
        if 0 < fault.line <= len(lines):
            parts.append(_indented(_excerpt([SourceRow(fault.line, plain(lines[fault.line - 1]), True)])))
    if not done.faults:
        names = ", ".join(name for name, _ in done.launches)
        parts.append(Text.assemble(symbol(PASSED), f" {names} ran without faults"))
    parts += [Text(plain(line)) for line in done.printed.splitlines()]
    parts.append(traffic(arrange(done.counters, done.source)))
    for access in done.lanes:
        if (drawn := lanes.lane_map(access)) is not None:
            parts += [Text(), lane_map(drawn)]
    parts += [Text(plain(line)) for line in done.described_outputs()]
    return Group(*parts)


def record(judged: SubmissionRecord, titles: Mapping[str, str]) -> RenderableType:
    """What `convladder check` prints of one notebook."""
    parts: list[RenderableType] = [Text.assemble(symbol(FAILED), f" {plain(p)}") for p in judged.problems]
    parts.append(checks(judged.checks, titles))
    if not judged.max + judged.manual_max:
        return Group(*parts, Text("\nThis lab is not graded.", "bold"))
    manual = f", and {points(judged.manual_max)} given by hand" if judged.manual_max else ""
    parts.append(Text(f"\n{points(judged.score)} of {points(judged.max)} points{manual}", "bold"))
    return Group(*parts)


def class_table(grades: Grades) -> Table:
    """The table of grades, with a one-line reason for each lost point."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("student", style="bold", overflow="fold", max_width=28)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("lost", justify="right", no_wrap=True)
    table.add_column("because", overflow="fold", ratio=1)
    for judged in grades.records:
        reasons = _reasons(judged)
        total = Text.assemble(points(judged.score), (f" / {points(judged.max)}", "dim"))
        table.add_row(Text(one_line(judged.student)), total, *reasons[0])
        for lost, why in reasons[1:]:
            table.add_row("", "", lost, why)
    return table


def _reasons(judged: SubmissionRecord) -> list[tuple[Text, Text]]:
    rows = [(Text(FAILED.symbol, "bold red"), Text(one_line(p), "red")) for p in judged.problems]
    found = losses(judged)
    if judged.problems and judged.score == 0:
        return rows
    rows += [(Text(f"−{points(loss.points)}", _STYLES[loss.state.style]), _reason(loss)) for loss in found]
    if not rows:
        by_hand = f"; {points(judged.manual_max)} more {BY_HAND.word}" if judged.manual_max else ""
        rows = [(symbol(PASSED), Text(f"everything passed{by_hand}", "dim"))]
    return rows


def _reason(loss: Loss) -> Text:
    text = Text.assemble((loss.check, "bold"), f" {loss.reason}")
    if loss.also:
        text.append(f" (+{len(loss.also)} that need{'s' * (len(loss.also) == 1)} it)", "dim")
    return text


def traffic(seen: Traffic) -> RenderableType:
    """Counters by source line, then their totals."""
    parts: list[RenderableType] = []
    if seen.rows:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in ("line", "source", "array", "requests", "lanes", seen.moved, "ideal", "per req."):
            right = name not in ("source", "array")
            table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="ellipsis")
        for row in seen.rows:
            style = "bold red" if row.wasteful else ""
            table.add_row(
                str(row.line or "–"),
                Text(plain(row.text), no_wrap=True, overflow="ellipsis"),
                Text(plain(f"{row.op} {row.array}")),
                f"{row.requests:,}",
                f"{row.lanes:.1f}",
                f"{row.sectors:,}",
                f"{row.ideal:,}",
                Text(f"{row.per_request:.1f}{' !' if row.wasteful else ''}", style),
            )
        parts.append(table)
    parts += [Text(line) for line in seen.totals]
    return Group(*parts)


def lane_map(drawn: LaneMap) -> RenderableType:
    """What the lanes of a warp touch, a character an element."""
    return Group(Text(plain(drawn.title), "bold"), Text(plain(drawn.text())), Text(plain(drawn.caption), "dim"))


def as_text(drawn: RenderableType, width: int = 100) -> str:
    """A drawing as plain text, for notebooks without HTML and for files."""
    # In a notebook rich would otherwise display the text besides capturing it.
    console = Console(width=width, color_system=None, force_terminal=False, force_jupyter=False)
    with console.capture() as capture:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def recorded_table(record: Mapping[str, Any], live: Mapping[str, SubmissionRecord]) -> RenderableType:
    """Grades that were timed on a real GPU and kept (course.recorded), beside those just made of the same students."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("student", style="bold", overflow="fold", max_width=28)
    table.add_column("here", justify="right", no_wrap=True)
    table.add_column("recorded", justify="right", no_wrap=True)
    table.add_column("timing", justify="right", no_wrap=True)
    table.add_column("µs", justify="right", no_wrap=True)
    table.add_column("base, target", overflow="fold", ratio=1)
    for student, kept in record["students"].items():
        now = points(live[student].score) if student in live else "–"
        for number, (check, target) in enumerate(kept["targets"].items()):
            of_timing = f"{points(target['score'])} / {points(target['max'])}"
            first = (Text(one_line(student)), now, points(kept["score"])) if number == 0 else ("", "", "")
            table.add_row(*first, of_timing, *_as_timed(check, target))
    heading = (
        f"Recorded, not measured here: the same class with timing on {record['device']['device']}, {record['date']}"
    )
    return Group(Text(plain(heading), "bold"), table)


def _as_timed(check: str, target: Mapping[str, Any]) -> tuple[str, Text]:
    """The kernel's median time, then base and target beside it; why there is none where it was not timed."""
    medians = target.get("medians_us")
    if not medians:
        return "–", Text(plain(target["rationale"]), "dim")
    others = f"{medians['base']:,.0f}, {medians['target']:,.0f}"
    return f"{medians['text']:,.0f}", Text(plain(f"{others}  {check.removesuffix('.target')}"))


def claims(known: Iterable[Claim]) -> RenderableType:
    """What `convladder show --list` prints."""
    table = Table("claim", "shows", "from", box=SIMPLE_HEAD, pad_edge=False)
    for claim in known:
        table.add_row(Text(claim.name, "bold", no_wrap=True), claim.title, Text(claim.source, "dim"))
    return table


def shown(found: Shown) -> RenderableType:
    """A claim as a table, what the sources say of it, and where it was measured."""
    parts: list[RenderableType] = [Text(found.claim.title, "bold"), Text(f"source: {found.claim.source}", "dim")]
    if found.chart is not None:
        head, *lines = found.cells()
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for number, name in enumerate(head):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        parts += [table, Text(found.chart.y, "dim")]
    else:
        parts.append(Text(found.alt))
    for verdict in found.verdicts:
        parts.append(Text.assemble(("“", "dim"), verdict.claim, ("”", "dim"), f"\n    {verdict.measured}"))
    return Group(*parts, Text(found.origin, "italic"))


def print_whole(table: RenderableType, console: Console) -> None:
    """Print every number in full: on a narrow screen lines run over, rather than that digits are cut off."""
    screen = console.width
    console.width = max(screen, Measurement.get(console, console.options.update(max_width=1000), table).maximum)
    console.print(table)
    console.width = screen
