"""Bars for a few numbers beside each other: what a kernel moves, where it stands between base and target, its roofline.

As SVG for pages, as characters for terminals. What each bar is stands beside it, so no colour has to tell it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ...kernels.result import Counters
from .traffic import bytes_text

#: Where the student's own bar stands between others.
YOURS = "your kernel"

_WIDTH, _ROW, _HEAD = 300, 24, 22
_LETTER = 7.7  # of 13 px, on average
_CHARACTERS = 40


@dataclass(frozen=True)
class Bar:
    """A bar of `value`, of which `within` is what would do; `said` stands at its end."""

    name: str
    value: float
    said: str
    within: float | None = None


@dataclass(frozen=True)
class Bars:
    """What is drawn, and the line across it: where, and what it means. `log`: a mark on a logarithmic scale each."""

    title: str
    bars: Sequence[Bar]
    mark: tuple[float, str] | None = None
    log: bool = False

    @property
    def alt(self) -> str:
        """The whole in words."""
        said = "; ".join(f"{bar.name}: {bar.said}" for bar in self.bars)
        return f"{self.title}. {said}{f'; {self.mark[1]}' if self.mark else ''}."

    def svg(self) -> Markup:
        head = _HEAD if self.mark else 4
        width, height = self._left + _WIDTH + self._right, head + _ROW * len(self.bars) + 4
        parts = [self._drawn(bar, head + _ROW * row) for row, bar in enumerate(self.bars)]
        if self.mark:
            x = self._x(self.mark[0])
            parts.append(
                Markup(
                    '<path d="M{:.1f} 18V{}" style="stroke:var(--fg);stroke-dasharray:4 3"/>'
                    '<text x="{:.1f}" y="13" style="fill:var(--soft);text-anchor:middle">{}</text>'
                ).format(x, height, x, self.mark[1])
            )
        return Markup(
            '<svg class="bars" role="img" aria-label="{}" width="{:.0f}" height="{}" viewBox="0 0 {:.0f} {}" '
            'style="font:13px system-ui,sans-serif;overflow:visible">{}</svg>'
        ).format(self.alt, width, height, width, height, Markup("").join(parts))

    def text(self) -> str:
        """A line a bar."""
        names = max((len(bar.name) for bar in self.bars), default=0)
        lines = [f"{bar.name:{names}}  {self._characters(bar):{_CHARACTERS}}  {bar.said}".rstrip() for bar in self.bars]
        return "\n".join([self.title, *lines, *([f"({self.mark[1]})"] if self.mark else [])])

    def _characters(self, bar: Bar) -> str:
        long, mark = round(_CHARACTERS * self._share(bar.value)), "─" * self.log
        if self.log:
            return mark * max(long - 1, 0) + "●"
        full = long if bar.within is None else round(_CHARACTERS * self._share(bar.within))
        return "█" * full + "░" * (long - full)

    @property
    def _left(self) -> float:
        return 16 + _LETTER * max((len(bar.name) for bar in self.bars), default=0)

    @property
    def _right(self) -> float:
        return 20 + _LETTER * max((len(bar.said) for bar in self.bars), default=0)

    def _x(self, value: float) -> float:
        return self._left + _WIDTH * self._share(value)

    def _drawn(self, bar: Bar, y: float) -> Markup:
        left, end = self._left, self._x(bar.value)
        own = bar.name == YOURS or bar.within is not None
        within = None if bar.within is None else self._x(bar.within)
        shapes = _dot(left, end, y, own) if self.log else _bar(left, end, y, own, within)
        weight = "font-weight:700" if bar.name == YOURS else ""
        beside = (left + _WIDTH if self.mark else end) + 10  # a text beside its bar would lie across the mark
        return Markup(
            '<text x="{:.1f}" y="{}" style="fill:var(--fg);text-anchor:end;{}">{}</text>{}'
            '<text x="{:.1f}" y="{}" style="fill:var(--fg);{}">{}</text>'
        ).format(left - 8, y + 16, weight, bar.name, Markup(shapes), beside, y + 16, weight, bar.said)

    def _share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        drawn = [*(bar.value for bar in self.bars), *([self.mark[0]] if self.mark else [])]
        if not self.log:
            return value / (max(drawn) or 1.0)
        least, most = math.log(min(drawn) / 2), math.log(max(drawn))
        return (math.log(value) - least) / (most - least)


def _bar(left: float, end: float, y: float, own: bool, within: float | None) -> str:
    fill = f"fill:var({'--bar' if own else '--panel'});stroke:var(--soft)"
    if within is None:
        return _rectangle(left, end, y, fill)
    return _rectangle(left, end, y, "fill:var(--mark);stroke:var(--bad);stroke-dasharray:3 2") + _rectangle(
        left, within, y, fill
    )


def _rectangle(left: float, end: float, y: float, style: str) -> str:
    return f'<rect x="{left:.1f}" y="{y + 4}" width="{max(end - left, 1):.1f}" height="{_ROW - 8}" style="{style}"/>'


def _dot(left: float, end: float, y: float, own: bool) -> str:
    fill = "var(--bar)" if own else "var(--bg)"
    return (
        f'<path d="M{left:.1f} {y + 12}H{end:.1f}" style="stroke:var(--soft);stroke-width:1.5"/>'
        f'<circle cx="{end:.1f}" cy="{y + 12}" r="6" style="fill:{fill};stroke:var(--fg);stroke-width:1.5"/>'
    )


# ---- what is drawn


def standing(evidence: Mapping[str, Any]) -> Bars | None:
    """Where a kernel stands between the rungs of a target, or beside a threshold, from a check's evidence."""
    try:
        rungs = [str(evidence[f"{which}_rung"]) for which in ("base", "target")] if "base_rung" in evidence else []
        if "medians_us" in evidence:
            times = evidence["medians_us"]
            return _between("time, the shorter the better", rungs, times["base"], times["text"], times["target"], _time)
        value = float(evidence["value"])
        if rungs:
            base, target = float(evidence["base"]), float(evidence["target"])
            return _between(f"{evidence['expression']}, the fewer the better", rungs, base, value, target, _number)
        limit, side = float(evidence["limit"]), "at most" if evidence["at_most"] else "at least"
        return Bars(str(evidence["expression"]), [Bar(YOURS, value, _number(value))], (limit, f"{side} {limit:,.4g}"))
    except (KeyError, TypeError, ValueError):
        return None


def _between(title: str, rungs: Sequence[str], base: float, own: float, target: float, said: Any) -> Bars:
    rows = [(f"{rungs[0]} (base)", base), (YOURS, own), (f"{rungs[1]} (target)", target)]
    return Bars(title, [Bar(name, float(value), said(value)) for name, value in rows])


def moved(counters: Counters) -> Bars | None:
    """The bytes that loads, stores and atomic updates of global memory move, and those that the threads asked for."""
    rows = []
    for op in ("load", "store", "atomic", "reduction"):
        if whole := counters.bytes_moved(op):
            asked = min(counters.bytes_needed(op), whole)
            said = f"{bytes_text(whole)}, {bytes_text(asked)} of them asked for"
            rows.append(Bar(f"{op}s", whole, said, asked))
    return Bars("bytes that its sectors move; filled: what the threads asked for", rows) if rows else None


def roofline(
    points: Mapping[str, tuple[float, float]], device: str, bandwidth_gbs: float, peak_gflops: float
) -> Bars | None:
    """Operations for each byte moved, beside what a device's memory could feed.

    points  for each kernel its floating-point operations and the bytes that it moves
    """
    ridge = peak_gflops / bandwidth_gbs
    rows = [Bar(name, f / b, _fed(f / b, ridge)) for name, (f, b) in points.items() if f > 0 and b > 0]
    if not rows:
        return None
    title = (
        f"roofline: operations for each byte moved. Recorded on {device}: {bandwidth_gbs:,.0f} GB/s, "
        f"{peak_gflops / 1000:.1f} TFLOP/s; caches are not counted"
    )
    return Bars(title, rows, (ridge, f"from {ridge:.3g} on arithmetic decides"), log=True)


def _fed(intensity: float, ridge: float) -> str:
    share = min(1.0, intensity / ridge)
    return f"{intensity:.3g}: at most {share:.{0 if share >= 0.1 else 1}%} of the peak"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _time(us: float) -> str:
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} µs"
