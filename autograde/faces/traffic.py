"""What counters say, arranged for people: memory traffic by source line, and totals in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...kernels.result import Access, Branch, Counters

#: A line that moves more than this many times the ideal number of sectors is pointed out.
_WASTE = 1.5


@dataclass(frozen=True)
class TrafficRow:
    """One array's loads or stores at one source line."""

    line: int
    text: str
    array: str
    op: str
    requests: int
    sectors: int
    ideal: int

    @property
    def per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def wasteful(self) -> bool:
        return self.sectors > _WASTE * self.ideal


@dataclass(frozen=True)
class Traffic:
    rows: list[TrafficRow]
    totals: list[str]


def from_json(counters: Mapping[str, Any]) -> Counters:
    """Counters from `dataclasses.asdict` of them; keys that they do not have are left out."""
    known = {k: v for k, v in counters.items() if k in Counters.__dataclass_fields__}
    known["accesses"] = [_known(Access, a) for a in counters.get("accesses", ())]
    known["branches"] = [_known(Branch, b) for b in counters.get("branches", ())]
    return Counters(**known)


def _known(kind: Any, values: Mapping[str, Any]) -> Any:
    return kind(**{k: v for k, v in values.items() if k in kind.__dataclass_fields__})


def arrange(counters: Counters, source: str) -> Traffic:
    """Rows in the order of the source, with each line's own text; totals as sentences."""
    lines = source.expandtabs(4).splitlines()
    sums: dict[tuple[int, str, str], list[int]] = {}
    for a in counters.accesses:
        cell = sums.setdefault((a.line, a.array, a.op), [0, 0, 0])
        cell[0] += a.requests
        cell[1] += a.sectors
        cell[2] += a.sectors_ideal
    rows = [
        TrafficRow(line, lines[line - 1].strip() if 0 < line <= len(lines) else "", array, op, *cell)
        for (line, array, op), cell in sorted(sums.items())
        if cell[0]
    ]
    return Traffic(rows, list(_totals(counters)))


def _totals(c: Counters) -> Iterable[str]:
    yield f"{c.blocks:,} block{'s' * (c.blocks != 1)}, {c.threads:,} threads, {c.warp_instructions:,} warp instructions"
    if c.sectors():
        excess = c.sectors() / max(1, c.sectors_ideal())
        yield (
            f"{c.sectors():,} sectors ({_bytes(c.bytes_moved())}) for {c.requests():,} requests: "
            f"{excess:.2f} x the ideal {c.sectors_ideal():,}"
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


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
