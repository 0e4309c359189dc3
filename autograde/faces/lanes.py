"""Which element each lane of a warp touches, drawn over the array: as SVG for pages, as characters for terminals.

Shared memory is drawn in rows of its 32 banks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

_ELEMENT, _SECTOR, _BANKS = 4, 32, 32
#: Rows and columns of a plane that are drawn at most, and the elements in a row where an array has no planes.
_MOST_ROWS, _MOST_COLUMNS, _FLAT_ROW = 34, 66, 32
#: A plane with no more rows is drawn whole.
_FEW_ROWS = 12
_DIGITS = "0123456789abcdefghijklmnopqrstuv"

Place = tuple[int, int]


@dataclass(frozen=True)
class Box:
    """The part of a plane that is drawn; rows and columns outside of the plane are its padding."""

    top: int
    left: int
    rows: int
    columns: int

    def places(self) -> Iterator[Iterator[Place]]:
        """Row after row."""
        for p in range(self.top, self.top + self.rows):
            yield ((p, q) for q in range(self.left, self.left + self.columns))


@dataclass(frozen=True)
class LaneMap:
    """One request of a warp over a plane of the array.

    title    what is drawn, in a line
    caption  the plane, and how to read it
    inside   rows and columns of the plane
    count    elements that it has, row by row: what comes after its last one is none
    lanes    the lanes that touch an element (row, column)
    frames   the touched sectors: row, first column, length
    waste    sectors moved, or passes through the banks, beyond the ideal
    """

    line: int
    title: str
    caption: str
    box: Box
    inside: tuple[int, int]
    count: int
    lanes: Mapping[Place, tuple[int, ...]]
    frames: Sequence[tuple[int, int, int]]
    waste: int

    def text(self) -> str:
        """A character an element: the lane in base 32, `*` for several lanes, `░` for the padding."""
        return "\n".join("".join(map(self._character, row)).rstrip() for row in self.box.places())

    def _character(self, place: Place) -> str:
        lanes = self.lanes.get(place, ())
        if lanes:
            return _DIGITS[lanes[0]] if len(lanes) == 1 else "*"
        return "·" if self._is_inside(place) else "░"

    def _is_inside(self, place: Place) -> bool:
        (p, q), (rows, columns) = place, self.inside
        return 0 <= p < rows and 0 <= q < columns and p * columns + q < self.count

    def svg(self) -> Markup:
        box = self.box
        size = max(14, min(20, 640 // max(box.rows, box.columns)))
        shapes = [self._square(place, size) for row in box.places() for place in row]
        shapes += [
            f'<rect x="{(q - box.left) * size + 1}" y="{(p - box.top) * size + 1}" width="{length * size - 2}" '
            f'height="{size - 2}" rx="3" style="fill:none;stroke:var(--bad);stroke-width:1.8"/>'
            for p, q, length in self.frames
        ]
        width, height = box.columns * size + 2, box.rows * size + 2
        return Markup(
            '<svg role="img" aria-label="{}" width="{}" height="{}" viewBox="-1 -1 {} {}" '
            'style="font-family:system-ui,sans-serif;text-anchor:middle">{}</svg>'
        ).format(escape(f"{self.title}. {self.caption}"), width, height, width, height, Markup("".join(shapes)))

    def _square(self, place: Place, size: int) -> str:
        x, y = (place[1] - self.box.left) * size, (place[0] - self.box.top) * size
        lanes, inside = self.lanes.get(place, ()), self._is_inside(place)
        fill = "var(--bar)" if lanes else "var(--panel)" if inside else "none"
        dashes = "" if inside else ";stroke-dasharray:2 2"
        style = f"fill:{fill};stroke:var(--line){dashes}"
        square = f'<rect x="{x}" y="{y}" width="{size}" height="{size}" style="{style}"/>'
        if not lanes:
            return square
        label = str(lanes[0]) if len(lanes) == 1 else f"×{len(lanes)}"
        points = size * (0.56 if len(label) < 3 else 0.44)
        at = f'x="{x + size / 2:g}" y="{y + size * 0.7:g}"'
        return f'{square}<text {at} style="fill:var(--fg);font-size:{points:.1f}px">{label}</text>'


def worst(drawn: Sequence[LaneMap]) -> LaneMap | None:
    """The access that wastes most; of several the one that touches most."""
    return max(drawn, key=lambda m: (m.waste, len(m.frames)), default=None)


@dataclass(frozen=True)
class _Request:
    """What the lanes of one execution touch, as elements of four bytes, by lane."""

    elements: Mapping[int, range]
    size: int
    shared: bool

    @classmethod
    def of(cls, access: Mapping[str, Any]) -> _Request:
        size = int(access["size"])
        lanes = enumerate(access["offsets"])
        elements = {lane: range(o // _ELEMENT, (o + size) // _ELEMENT) for lane, o in lanes if o is not None}
        return cls(elements, size, access["space"] == "shared")

    @property
    def distinct(self) -> set[int]:
        return {e for touched in self.elements.values() for e in touched}

    @property
    def sectors(self) -> list[int]:
        return sorted({e * _ELEMENT // _SECTOR for e in self.distinct})

    @property
    def ideal(self) -> int:
        return -(-len(self.distinct) * _ELEMENT // _SECTOR)

    @property
    def wavefronts(self) -> int:
        """Passes through the banks: a word of each bank a pass, 128 bytes of the warp's lanes at a time."""
        together = max(1, len(self.elements) and 128 // self.size)
        found = 0
        for first in range(0, 32, together):
            words = {e for lane, own in self.elements.items() if first <= lane < first + together for e in own}
            found += max(Counter(w % _BANKS for w in words).values(), default=0)
        return found

    @property
    def fewest_wavefronts(self) -> int:
        together = 128 // self.size
        return len({lane // together for lane in self.elements})

    @property
    def waste(self) -> int:
        return self.wavefronts - self.fewest_wavefronts if self.shared else len(self.sectors) - self.ideal

    def said(self) -> str:
        used, best = (self.wavefronts, self.fewest_wavefronts) if self.shared else (len(self.sectors), self.ideal)
        what = _count(used, "wavefront") if self.shared else _count(used, "sector")
        verb = ("take" if self.shared else "touch") + ("s" if self.shared else "es") * (len(self.elements) == 1)
        would = f", {best} would do" if used > best else ""
        return f"{_count(len(self.elements), 'lane')} {verb} {what}{would}"


def lane_map(access: Mapping[str, Any]) -> LaneMap | None:
    """Draw one access as judge.lanes gives it: the plane that most lanes touch. None where nothing can be drawn."""
    try:
        request = _Request.of(access)
        shape = tuple(int(n) for n in access["shape"])
        border, array, line = int(access["border"]), str(access["array"]), int(access["line"])
        title = (
            f"line {line}, {access['op']} of {array}: {request.said()} "
            f"(warp {int(access['warp'])} of block {int(access['block'])})"
        )
    except (KeyError, TypeError, ValueError):
        return None
    if not request.distinct or min(request.distinct) < 0:
        return None
    beyond = max(request.distinct) + 1
    flat = request.shared or len(shape) < 2 or math.prod(shape) < beyond
    count = math.prod(shape[-2:])
    if flat:
        count = beyond if request.shared or not shape else math.prod(shape)
        shape, border = (-(-max(beyond, math.prod(shape)) // _FLAT_ROW), _FLAT_ROW), 0
    plane, lanes = _fullest_plane(request, shape)
    box = _box(lanes, shape[-2:], border)
    sectors = [] if request.shared else request.sectors
    frames = [f for s in sectors for f in _frames(s, plane, shape[-2:]) if _within(f, box)]
    name = f"{array}, {_FLAT_ROW} elements in a row" if flat else f"{array}[{_plane_index(plane, shape)}]"
    if request.shared:
        name = f"{array} in the 32 banks of shared memory, which are the columns; a wavefront serves a row of each"
    caption = _caption(name, box, shape[-2:], lanes, len(request.elements), bool(sectors))
    inside = (shape[-2], shape[-1])
    late = {lane for (p, q), own in lanes.items() if p * inside[1] + q >= count for lane in own}
    caption += f"; {_count(len(late), 'lane')} beyond the last element" if late else ""
    return LaneMap(line, title, caption, box, inside, count, lanes, frames, request.waste)


def _fullest_plane(request: _Request, shape: Sequence[int]) -> tuple[int, dict[Place, tuple[int, ...]]]:
    """The plane (last two axes) that most lanes touch, by its number, and the lanes at each of its elements."""
    rows, columns = shape[-2:]
    plane = Counter(own[0] // (rows * columns) for own in request.elements.values()).most_common(1)[0][0]
    lanes: dict[Place, tuple[int, ...]] = {}
    for lane, own in request.elements.items():
        for element in own:
            if element // (rows * columns) == plane:
                place = divmod(element % (rows * columns), columns)
                lanes[place] = (*lanes.get(place, ()), lane)
    return plane, lanes


def _box(lanes: Mapping[Place, Any], inside: Sequence[int], border: int) -> Box:
    """What is touched with its neighbours; a plane of few rows or columns whole."""
    spans = []
    for axis, few, most in ((0, _FEW_ROWS, _MOST_ROWS), (1, _MOST_COLUMNS, _MOST_COLUMNS)):
        first, end = -border, inside[axis] + border
        if end - first > few:
            first = max(first, min(p[axis] for p in lanes) - 1)
            end = min(end, max(p[axis] for p in lanes) + 2, first + most)
        spans.append((first, end - first))
    (top, rows), (left, columns) = spans
    return Box(top, left, rows, columns)


def _frames(sector: int, plane: int, inside: Sequence[int]) -> list[tuple[int, int, int]]:
    """The part of a sector that lies in a plane: (row, first column, length), one for each row that it reaches."""
    rows, columns = inside
    first = sector * _SECTOR // _ELEMENT - plane * rows * columns
    own = range(max(first, 0), min(first + _SECTOR // _ELEMENT, rows * columns))
    by_row = Counter(e // columns for e in own)
    return [(p, max(own[0] - p * columns, 0), length) for p, length in by_row.items()]


def _within(frame: tuple[int, int, int], box: Box) -> bool:
    p, q, length = frame
    return box.top <= p < box.top + box.rows and box.left <= q and q + length <= box.left + box.columns


def _plane_index(plane: int, shape: Sequence[int]) -> str:
    """`0,3,:,:`"""
    index = []
    for size in reversed(shape[:-2]):
        plane, own = divmod(plane, size)
        index.append(str(own))
    return ",".join([*reversed(index), ":", ":"])


def _caption(
    name: str, box: Box, inside: Sequence[int], lanes: Mapping[Place, tuple[int, ...]], active: int, framed: bool
) -> str:  # fmt: skip
    parts = [name]
    if box.top > 0 or box.left > 0:
        parts.append(f"from row {max(box.top, 0)}, column {max(box.left, 0)} on")
    elsewhere = active - len({lane for own in lanes.values() for lane in own})
    if elsewhere:
        parts.append(f"{_count(elsewhere, 'lane')} in other planes")
    several = any(len(own) > 1 for own in lanes.values())
    parts.append(f"numbers are lanes{', ×n means n lanes' if several else ''}")
    if framed:
        parts.append("frames are the sectors moved")
    if box.top < 0 or box.left < 0:
        parts.append("dashed squares are padding")
    return "; ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
