"""The README's results: written between two markers from what is recorded, without a GPU too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import ConvladderError
from . import codesize
from .cases import SUITES, cases
from .claims import Verdict, verdicts
from .compare import rows, ways_of
from .tables import Record, code_of_layers, held_down, losses, markdown, networks_of, origin, tables

BEGIN, END = "<!-- bench: written by `make bench` -->", "<!-- /bench -->"


class MarkerError(ConvladderError):
    """The file has no place for the results."""


def rewrite(file: Path, records: dict[str, Record]) -> bool:
    """Put the results between the markers of a file; whether that changed it. Raises MarkerError without markers.

    records  by suite; a suite that is not recorded is left out
    """
    text = file.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise MarkerError(f"{file} needs the line {BEGIN!r} once, and after it {END!r}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = f"{before}{BEGIN}\n{results(records)}{END}{after}"
    file.write_text(written, encoding="utf-8")
    return written != text


def results(records: dict[str, Record]) -> str:
    """The tables and verdicts in Markdown."""
    parts = list(_parts(records))
    return (
        "\n\n".join(parts) + "\n" if parts else "Nothing is recorded yet: `convladder bench SUITE --keep` on a GPU.\n"
    )


def _parts(records: dict[str, Record]) -> Iterator[str]:
    here = [records[suite] for suite in SUITES if suite in records]
    origins = dict.fromkeys(origin(record) for record in here)
    if not here:
        return
    yield "Recorded on " + "; ".join(origins) + ". Medians; each suite timed in turn in one session."
    told: list[Verdict] = []
    if missing := "; ".join(unrecorded(records)):
        yield f"Not yet recorded: {missing}."
    for record in here:
        if reasons := held_down(record):
            yield f"In the suite {record['suite']} the clocks were held down by: {reasons}."
        yield from _of_suite(record)
        told += verdicts(record)
    if sizes := records.get(codesize.SUITE):
        told += codesize.verdicts(sizes)
    if told:
        lines = ["| claim | source | measured |", "| --- | --- | --- |"]
        yield "\n".join(lines + [f"| {v.claim} | {v.source} | {v.measured} |" for v in told])


def unrecorded(records: dict[str, Record]) -> Iterator[str]:
    """What the suites hold and the records do not."""
    for suite in SUITES:
        if suite not in records:
            yield f"the suite {suite}"
            continue
        known = {row["way"] for row in rows(records[suite])}
        if ways := [way for way in ways_of(cases(suite)) if way not in known]:
            yield f"{', '.join(ways)} in the suite {suite}"


def _of_suite(record: Record) -> Iterator[str]:
    """What the README shows of a suite: its first table, or what sums it up."""
    if record["suite"] == "sparse":
        yield markdown(networks_of(record))
        yield f"cuDNN in strict FP32 is faster than every rung on {losses(record) or 'no layer'}."
        return
    yield markdown(tables(record)[0])
    if record["suite"] == "codegen":
        yield markdown(code_of_layers(record, "alexnet"))
