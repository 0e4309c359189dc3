"""The README of this folder, written from the records: `python tests/kernels/hardware/page.py`.

No GPU is needed; the engine's figures are counted anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import annotated
import bounds
import fetch_stalls
import record
import sanitizer

from convladder.kernels import plan
from convladder.kernels.bench import codesize

PAGE = record.HERE / "README.md"

#: Columns of the table of counters, each a sum of counters of the record.
COLUMNS = {
    "loads": ("load_requests",),
    "their sectors": ("load_sectors",),
    "stores": ("store_requests",),
    "their sectors ": ("store_sectors",),
    "updates": ("atomic_requests", "reduction_requests"),
    "their sectors  ": ("atomic_sectors", "reduction_sectors"),
    "shared loads": ("shared_load_wavefronts",),
    "shared stores": ("shared_store_wavefronts",),
    "shared updates": ("shared_atomic_wavefronts",),
    "multiply-adds": ("fmas",),
}


def page() -> str:
    """The whole page."""
    counted, differing = record.recorded(), [case for case in record.cases() if case.unlike]
    device = record.runs()[0]["device"]["device"]
    found = sanitizer.recorded()
    version = found["version"].split("(")[0].strip().lower()
    kinds = hits_by_kind(found)
    right = kinds.pop("")
    return f"""# The engine beside the hardware

Written by `page.py` from `counters.json`, `sanitizer.json` and `bounds.json`; do not edit.

## Counters

What Nsight Compute counted on an {device} of the PTX that the engine executes. The engine's figures are equal in all
{len(counted)} cases, the kernels below and every rung of the ladder, but for those that are listed after the table.
Shared memory is counted in wavefronts. Where the memory took more passes than the lanes' addresses ask for, because it
was busy with other requests, the addresses count; these are listed too.

{table(["kernel", *COLUMNS], counter_rows())}

Unlike the engine's:

{bullets(f"`{name}` ({on}), {counter}: {why}" for name, on, counter, why in reasons(differing))}

More passes than the addresses ask for, which differ from run to run:

{bullets(f"`{name}` ({on}), {what}: {needed:,} asked for, {took:,} taken" for name, on, what, needed, took in busy())}

Not compared: numbers of instructions; and branches, which the assembler replaces by predicates and unrolled loops.
Where it keeps them (`trips`, `leaves_early`, `collatz`) executed and divergent branches are equal.

## Faults

What compute-sanitizer ({version}) found on an {device} in the corpus of planted bugs. The
engine finds each of them at the line given, and a test holds it to that. The corpus was planted to try the engine, so
it cannot show what compute-sanitizer alone would find: faults in libraries, in what the engine does not execute, and
in launches too large for it.

{table(["planted bug", "engine", *sanitizer.TOOLS], fault_rows(found))}

Found by any of its tools, of those planted:

{bullets(f"{kind}: {sum(hits)} of {len(hits)}" for kind, hits in kinds.items())}

Of the {len(right)} right kernels it blames {sum(right)}, the engine none.

## What bounds the sparse rungs

What Nsight Compute measured of them on an {bounds.recorded()["device"]["device"]}, {bounds.BATCH} images: how busy
units are, in per cent of their peak, and what warps wait for: the three greatest, in warps that wait in each cycle in
which a scheduler issues. The pipe of shared memory and of the first-level cache moves one word a lane and cycle, so
csr_staged reaches its limit of one load a multiply-add where that pipe is always busy; what the non-zeros take of it
and the start and the end of the blocks, when few warps run, are the rest.

{table(["rung", "layer", "µs", *BUSY, "warps wait for"], bound_rows())}

## Waits for instructions

Table 5 of the code-generation paper in form: of all that the warps of a way's longest kernel wait for, the share of the
next instruction, in per cent, as Nsight Compute measured it on an {fetch_stalls.recorded()["device"]["device"]}; in
brackets the paper's, of another GPU. One image, {fetch_stalls.SPARSITY:.0%} of the weights zero; `fetch_stalls.py`
records it.

{table(["operator", "cuDNN, strict FP32", "cuSPARSE", "weights as code"], stall_rows())}
"""


#: Units of the record of bounds.
BUSY = {
    "DRAM": "dram", "L2": "l2", "load/store pipe": "load_store", "FMA pipe": "fma", "issue slots": "issue",
    "warps resident": "warps",
}  # fmt: skip


def bound_rows() -> Iterator[list[str]]:
    for row in bounds.recorded()["launches"]:
        waits = sorted(((row[stall], stall) for stall in bounds.STALLS), reverse=True)[:3]
        said = ", ".join(f"{stall.replace('_', ' ')} {share:.1f}" for share, stall in waits)
        busy = [f"{row[unit]:.0f}" for unit in BUSY.values()]
        yield [row["rung"], f"{row['network']} {row['layer']}", f"{row['ns'] / 1000:.0f}", *busy, said]


def stall_rows() -> Iterator[list[str]]:
    shares = {(row["operator"], row["way"]): row["fetch_stalls"] for row in fetch_stalls.recorded()["operators"]}
    for number, operator in enumerate(codesize.OPERATORS):
        ways = fetch_stalls.WAYS
        yield [operator, *(f"{shares[operator, way]:.2f} ({fetch_stalls.PAPER[way][number]:.2f})" for way in ways)]


def counter_rows() -> Iterator[list[str]]:
    for case in annotated.annotated(annotated.COUNTED):
        launches = record.recorded()[case.name, case.on]
        every = ["", *(f" {n}" for n in range(2, len(launches) + 1))]
        for which, row in zip(every, launches, strict=True):
            if row["kernel"] == case.name:
                figures = [sum(row[counter] for counter in counters) for counters in COLUMNS.values()]
                yield [f"{case.name}{which}", *(f"{figure:,}" if figure else "" for figure in figures)]


def reasons(cases: list[record.Case]) -> Iterator[tuple[str, str, str, str]]:
    for case in cases:
        launches = plan.run(case.module("sim"), case.plan(), *case.given())
        ours = [record.figures(result.counters) for _, result in launches]
        for counter, why in case.unlike.items():
            pairs = zip(ours, record.recorded()[case.name, case.on], strict=True)
            both = [f"{o[counter]:,} here, {h[counter]:,} there" for o, h in pairs if o[counter] != h[counter]]
            yield case.name, case.on, f"{counter.replace('_', ' ')}, {'; '.join(both)}", why


def busy() -> Iterator[tuple[str, str, str, int, int]]:
    """Where the shared memory took more passes than were asked for."""
    for (name, on), rows in record.recorded().items():
        for row, op in itertools.product(rows, record.SHARED):
            needed, took = row.get(f"{op}_wavefronts"), row.get(f"{op}_passes")
            if took is not None and took != needed:
                yield name, on, op.replace("_", " ") + "s", needed, took


def fault_rows(found: dict) -> Iterator[list[str]]:
    for name, kernel in sanitizer.CORPUS.items():
        if kernel.kind:
            if name in sanitizer.LATER:
                cells = ["not tried"] * len(sanitizer.TOOLS)
            else:
                cells = [sanitizer.verdict(name, found["kernels"][name][tool]) for tool in sanitizer.TOOLS]
            yield [name, f"{kernel.kind}, line {kernel.line}", *cells]


def hits_by_kind(found: dict) -> dict[str, list[bool]]:
    """For each kind of bug ("" where there is none) whether any tool found something, kernel by kernel."""
    kinds: dict[str, list[bool]] = {}
    for name, results in found["kernels"].items():
        kinds.setdefault(sanitizer.CORPUS[name].kind, []).append(any(tool["found"] for tool in results.values()))
    return kinds


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
