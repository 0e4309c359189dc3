"""What counters say, arranged for people: memory traffic by source line, and totals in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...kernels.result import Access, Branch, Counters, SharedAccess

#: A longer text is not shown line by line.
_LONG = 80

#: A line that moves more than this many times the ideal number of sectors is pointed out.
_WASTE = 1.5


@dataclass(frozen=True)
class TrafficRow:
    """One array's loads or stores at one source line. Where `shared` is set, `sectors` are wavefronts."""

    line: int
    text: str
    array: str
    op: str
    shared: bool
    requests: int
    threads: int
    sectors: int
    ideal: int

    @property
    def lanes(self) -> float:
        """Active lanes of a request, on average."""
        return self.threads / self.requests

    @property
    def per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def wasteful(self) -> bool:
        return self.sectors > _WASTE * self.ideal


@dataclass(frozen=True)
class SourceLine:
    """One line of the kernel with what it moves, and its branches in words."""

    number: int
    text: str
    rows: list[TrafficRow]
    branches: str = ""


@dataclass(frozen=True)
class Traffic:
    """`rows` are the accesses in the order of the source, `lines` the kernels' text with them."""

    rows: list[TrafficRow]
    totals: list[str]
    lines: list[SourceLine] = field(default_factory=list)

    @property
    def moved(self) -> str:
        """The heading of what is counted."""
        return "moved" if any(row.shared for row in self.rows) else "sectors"


def from_json(counters: Mapping[str, Any]) -> Counters:
    """Counters from `dataclasses.asdict` of them; keys that they do not have are left out."""
    known = {k: v for k, v in counters.items() if k in Counters.__dataclass_fields__}
    known["accesses"] = [_known(Access, a) for a in counters.get("accesses", ())]
    known["shared"] = [_known(SharedAccess, a) for a in counters.get("shared", ())]
    known["branches"] = [_known(Branch, b) for b in counters.get("branches", ())]
    return Counters(**known)


def _known(kind: Any, values: Mapping[str, Any]) -> Any:
    return kind(**{k: v for k, v in values.items() if k in kind.__dataclass_fields__})


def arrange(counters: Counters, source: str) -> Traffic:
    """Rows in the order of the source, with each line's own text; the text itself; totals as sentences."""
    lines = source.expandtabs(4).split("\n")
    sums: dict[tuple[int, str, str, bool], tuple[int, int, int, int]] = {}
    for key, figures in _figures(counters):
        before = sums.get(key, (0, 0, 0, 0))
        sums[key] = tuple(map(sum, zip(before, figures, strict=True)))  # type: ignore[assignment]
    rows = [
        TrafficRow(line, lines[line - 1].strip() if 0 < line <= len(lines) else "", array, op, shared, *figures)
        for (line, array, op, shared), figures in sorted(sums.items())
        if figures[0]
    ]
    totals = list(_totals(counters))
    if counters.shared:
        totals.insert(0, "moved: 32-byte sectors, and wavefronts (passes through the 32 banks) of shared memory")
    return Traffic(rows, totals, _listing(lines, rows, counters.branches))


def _figures(counters: Counters) -> Iterable[tuple[tuple[int, str, str, bool], tuple[int, int, int, int]]]:
    """((line, array, op, shared), (requests, threads, moved, ideal)) of every instruction."""
    for a in counters.accesses:
        yield (a.line, a.array, a.op, False), (a.requests, a.threads, a.sectors, a.sectors_ideal)
    for s in counters.shared:
        yield (s.line, s.array, s.op, True), (s.requests, s.threads, s.wavefronts, s.wavefronts_ideal)


def _listing(lines: Sequence[str], rows: Sequence[TrafficRow], branches: Sequence[Branch]) -> list[SourceLine]:
    """From the first kernel to the last line; of a long text only what is counted, with its neighbours."""
    divergent: dict[int, list[int]] = {}
    for b in branches:
        cell = divergent.setdefault(b.line, [0, 0])
        cell[0] += b.divergent
        cell[1] += b.executed
    counted = {r.line for r in rows} | {line for line, (split, _) in divergent.items() if split}
    first = next((n for n, text in enumerate(lines, 1) if "__global__" in text), 1)
    last = max((n for n, text in enumerate(lines, 1) if text.strip()), default=0)
    shown = range(min([first, *(n for n in counted if n)]), last + 1)
    if len(shown) > _LONG:
        shown = [n for n in shown if counted & {n - 1, n, n + 1}]  # type: ignore[assignment]
    unplaced = [SourceLine(0, "", own, "")] if (own := [r for r in rows if not 0 < r.line <= len(lines)]) else []
    return unplaced + [
        SourceLine(n, lines[n - 1], [r for r in rows if r.line == n], _branching(*divergent.get(n, (0, 0))))
        for n in shown
    ]


def _branching(divergent: int, executed: int) -> str:
    return f"{divergent:,} of {executed:,} branches split" if divergent else ""


def _totals(c: Counters) -> Iterable[str]:
    yield f"{c.blocks:,} block{'s' * (c.blocks != 1)}, {c.threads:,} threads, {c.warp_instructions:,} warp instructions"
    if c.sectors():
        excess = c.sectors() / max(1, c.sectors_ideal())
        yield (
            f"{c.sectors():,} sectors ({bytes_text(c.bytes_moved())}) for {c.requests():,} requests: "
            f"{excess:.2f} x the ideal {c.sectors_ideal():,}"
        )
    if c.shared:
        excess = c.wavefronts() / max(1, c.wavefronts_ideal())
        yield (
            f"{c.wavefronts():,} wavefronts for {c.shared_requests():,} requests of shared memory: "
            f"{excess:.2f} x the ideal {c.wavefronts_ideal():,}"
        )
    if c.executed_branches:
        share = c.divergent_branches / c.executed_branches
        yield (
            f"{c.divergent_branches:,} of {c.executed_branches:,} branches divergent ({share:.1%}); "
            f"{32 * c.active_lanes:.1f} of 32 lanes active on average"
        )
    elif c.warp_instructions:
        yield f"no branch was divergent; {32 * c.active_lanes:.1f} of 32 lanes active on average"
    if c.flops:
        yield f"{c.flops:,} floating-point operations, {c.fmas:,} of them fused multiply-adds (each counts as two)"


def bytes_text(count: float) -> str:
    """Bytes as people write them."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
