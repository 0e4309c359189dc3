"""`convladder bench` for the suites that are recorded, most of them on a GPU: progress, tables, record and picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ...kernels import recorded
from ...kernels.bench import claims, codesize, compare, headers, results, tables, training, training_results
from ...kernels.errors import ArgumentError, BackendError
from . import show
from .terminal import print_whole

#: Suites with a record of their own kind: what makes its tables, and what it says of the sources' claims.
_RESULTS: dict[str, tuple[Callable[[Any], Iterable[tables.Table]], Callable[[Any], Iterable[claims.Verdict]]]] = {
    training.SUITE: (training_results.tables, training_results.verdicts),
    codesize.SUITE: (codesize.tables, codesize.verdicts),
}


def run(suite: str, console: Console, *, out: Path | None, plot: Path | None, kept: bool, keep: bool) -> None:
    """Measure a suite here, or take what is recorded of it; show it, and write what is asked for.

    plot  the slide of the first claim of show.toml that stands on the suite
    Raises BackendError where there is no GPU and nothing is recorded, ArgumentError where nothing can be kept, or for
    a suite without a slide.
    """
    if keep and not recorded.is_repository():
        raise ArgumentError(
            "--keep writes into kernels/records of the repository, but convladder runs from an installation here: "
            "take --out FILE, or install it with `pip install -e` from the repository"
        )
    drawn = next((claim for claim in show.claimed().values() if claim.suite == suite), None) if plot else None
    if plot and drawn is None:
        raise ArgumentError(f"no claim of show.toml draws the suite {suite}")
    records = recorded.load(suite) if kept else [_measured(suite, console)]
    if not records:
        raise BackendError(f"nothing is recorded of the suite {suite}: run `convladder bench {suite} --keep` on a GPU")
    for record in records:
        _show(record, console, kept)
        if keep:
            file = recorded.path(suite, record["device"]["device"])
            recorded.save(record, file)
            console.print(f"kept in {file}", soft_wrap=True)
        if out:
            recorded.save(record, out)
            console.print(f"written to {out}", soft_wrap=True)
        if plot and drawn:
            show.of_record(drawn, record, here=not kept).slide().save(plot)
            console.print(f"drawn into {plot}", soft_wrap=True)


def rewrite_results(file: Path, console: Console) -> None:
    """Write what is recorded: a summary into a README, and beside it docs/results.md and the headers of the ladder."""
    records = {suite: found[0] for suite in results.RECORDED if (found := recorded.load(suite))}
    changed = results.rewrite(file, records)
    console.print(f"{file}: {'rewritten' if changed else 'unchanged'}, from {len(records)} recorded suites")
    page = file.resolve().parent / "docs" / "results.md"
    if page.parent.is_dir():
        page.write_text(results.page(records), encoding="utf-8")
        console.print(f"{page}: written", soft_wrap=True)
    ladder = file.resolve().parent / "kernels" / "ladder"
    if ladder.is_dir() and set(headers.SUITES) <= set(records):
        rungs = headers.rewrite(ladder, records)
        console.print(f"{ladder}: {', '.join(rungs) or 'no header'} rewritten", soft_wrap=True)


def _measured(suite: str, console: Console) -> dict[str, Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(suite, total=None)

        def advance(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{suite}: {name}")

        if suite in _RESULTS:
            return {training.SUITE: training.measure, codesize.SUITE: codesize.measure}[suite](advance)
        return compare.measure(suite, advance)


def _show(record: dict[str, Any], console: Console, kept: bool) -> None:
    console.print(("recorded on " if kept else "measured on ") + tables.origin(record), soft_wrap=True)
    if reasons := tables.held_down(record):
        console.print(f"the clocks were held down by: {reasons}")
    if names := compare.changed(record):
        console.print(f"an earlier version was measured of: {', '.join(names)}", soft_wrap=True)
    of_tables, of_claims = _RESULTS.get(record["suite"], (tables.tables, claims.verdicts))
    for table in of_tables(record):
        shown = Table(*table.columns, title=table.title, title_justify="left", box=None, header_style="bold")
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in table.rows:
            shown.add_row(*row)
        print_whole(shown, console)
    for verdict in of_claims(record):
        console.print(f"{verdict.source}: {verdict.claim}\n    {verdict.measured}", soft_wrap=True)
    refused = [(row["case"], row["way"], row["refused"]) for row in compare.rows(record) if "refused" in row]
    for case, way, why in refused:
        console.print(f"{case}: not by {way}: {why}", soft_wrap=True)
