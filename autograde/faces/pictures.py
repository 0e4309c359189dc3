"""Pictures drawn from a check's evidence, as SVG for pages and as characters for terminals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

#: Larger maps are folded: one cell then stands for several elements.
_MOST_CELLS = 48


@dataclass(frozen=True)
class WrongMap:
    """Which elements of one output plane are wrong: `cells[p][q]` is True where one is.

    A cell stands for `fold` x `fold` elements.
    """

    caption: str
    cells: list[list[bool]]
    fold: int

    def svg(self) -> Markup:
        size = max(6, min(20, 360 // max(len(self.cells), len(self.cells[0]))))
        width, height = size * len(self.cells[0]), size * len(self.cells)
        shapes = [
            _wrong(q * size, p * size, size) if wrong else _right(q * size, p * size, size)
            for p, row in enumerate(self.cells)
            for q, wrong in enumerate(row)
        ]
        return Markup('<svg role="img" aria-label="{}" width="{}" height="{}" viewBox="-1 -1 {} {}">{}</svg>').format(
            escape(self.caption), width + 2, height + 2, width + 2, height + 2, Markup("".join(shapes))
        )

    def text(self) -> str:
        return "\n".join(" ".join("x" if wrong else "·" for wrong in row) for row in self.cells)


def _right(x: int, y: int, size: int) -> str:
    return f'<rect x="{x}" y="{y}" width="{size}" height="{size}" style="fill:var(--panel);stroke:var(--line)"/>'


def _wrong(x: int, y: int, size: int) -> str:
    a, b = size * 0.28, size * 0.72
    return (
        f'<rect x="{x}" y="{y}" width="{size}" height="{size}" style="fill:var(--mark);stroke:var(--line)"/>'
        f'<path d="M{x + a:.1f} {y + a:.1f}l{b - a:.1f} {b - a:.1f}m0 {a - b:.1f}l{a - b:.1f} {b - a:.1f}" '
        'style="stroke:var(--bad);stroke-width:1.6;fill:none"/>'
    )


def wrong_map(evidence: Mapping[str, Any]) -> WrongMap | None:
    """The plane of an output (its last two axes) in which its first wrong element lies; None where none is known."""
    try:
        shape, first, wrong = evidence["shape"], tuple(evidence["element"]), evidence["wrong_elements"]
        axes, array = list(evidence["axes"]), str(evidence["array"])
        if len(shape) < 2 or len(axes) != len(shape):
            return None
        plane = first[:-2]
        hits = [tuple(w)[-2:] for w in wrong if tuple(w)[:-2] == plane]
        fold = max(1, -(-max(shape[-2:]) // _MOST_CELLS))
        rows, columns = (-(-size // fold) for size in shape[-2:])
        cells = [[False] * columns for _ in range(rows)]
        for p, q in hits:
            cells[p // fold][q // fold] = True
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    index = ",".join([*map(str, plane), f"{axes[-2]}", f"{axes[-1]}"])
    folded = f"; one square stands for {fold} x {fold} elements" if fold > 1 else ""
    caption = (
        f"{array}[{index}]: {axes[-2]} runs down, {axes[-1]} to the right; "
        f"{len(hits)} of {shape[-2] * shape[-1]} elements wrong (x){folded}"
    )
    return WrongMap(caption, cells, fold)
