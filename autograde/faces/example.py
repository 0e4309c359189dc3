"""The smallest failing case of a check's evidence, arranged as grids of numbers for pages and terminals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Planes of one array that are drawn, and rows and columns of zeros around one.
_MOST_PLANES, _MOST_BORDER = 6, 3


@dataclass(frozen=True)
class Cell:
    """One number as text; kind is "" or "wrong", "right" (the wrong one's expected value) or "border"."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Grid:
    """One plane of an array: `x[0,1]`, its rows."""

    label: str
    rows: list[list[Cell]]

    def lines(self) -> list[str]:
        """As characters: a wrong number carries a mark behind it, the border is dots."""
        shown = [[_MARKS.get(c.kind, "{} ").format(c.text) for c in row] for row in self.rows]
        width = max((len(text) for row in shown for text in row), default=0)
        body = [" ".join(text.rjust(width) for text in row).rstrip() for row in shown]
        return [self.label, *(f"  {line}" for line in body)]


_MARKS = {"wrong": "{}!", "border": "· "}


@dataclass(frozen=True)
class Example:
    """`sizes` in words, the sentence that says what is wrong, and the numbers where they are few."""

    sizes: str
    sentence: str
    grids: list[Grid]

    def text(self, width: int = 92) -> str:
        """The grids side by side, in as many rows as they need."""
        rows: list[list[list[str]]] = [[]]
        for block in (grid.lines() for grid in self.grids):
            if rows[-1] and sum(_width(b) + 3 for b in rows[-1]) + _width(block) > width:
                rows.append([])
            rows[-1].append(block)
        return "\n".join(line for row in rows for line in _side_by_side(row))


def _width(block: Sequence[str]) -> int:
    return max(map(len, block), default=0)


def _side_by_side(blocks: Sequence[Sequence[str]]) -> Iterator[str]:
    for lines in itertools.zip_longest(*blocks, fillvalue=""):
        yield "   ".join(line.ljust(_width(block)) for line, block in zip(lines, blocks, strict=True)).rstrip()


def example(evidence: Mapping[str, Any]) -> Example | None:
    """What a check's evidence holds of it; None where there is none, or it cannot be read."""
    found = evidence.get("counterexample")
    if not isinstance(found, dict):
        return None
    try:
        grids = list(_grids(found)) if "expected" in found else []
        why = found.get("why") or evidence.get("why") or {}
        sentence = str(found["fault"]["message"] if "fault" in found else why.get("sentence", ""))
        return Example(_sizes(found["symbols"]), sentence, grids)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _sizes(symbols: Mapping[str, int | float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in symbols.items())


def _grids(found: Mapping[str, Any]) -> Iterator[Grid]:
    for name, numbers in found["inputs"].items():
        yield from _planes(name, numbers, {}, int(found["border"].get(name, 0)))
    wrong = {tuple(index) for index in found["wrong"]}
    output = found["array"]
    yield from _planes(f"{output} expected", found["expected"], dict.fromkeys(wrong, "right"), 0)
    yield from _planes(f"{output} of your kernel", found["got"], dict.fromkeys(wrong, "wrong"), 0)


def _planes(name: str, numbers: Mapping[str, Any], kinds: Mapping[tuple[int, ...], str], border: int) -> Iterator[Grid]:
    """The planes of an array (its last two axes), with a border of zeros; none where its values were not kept."""
    if "values" not in numbers:
        return
    shape, values = tuple(numbers["shape"]), numbers["values"]
    indices = list(itertools.product(*map(range, shape)))
    text = {index: _number(value) for index, value in zip(indices, values, strict=True)}
    rows, columns = shape[-2:] if len(shape) > 1 else (1, *shape)
    border = border if border <= _MOST_BORDER else 0
    planes = list(itertools.product(*map(range, shape[:-2])))
    array, _, rest = name.partition(" ")
    for plane in planes[:_MOST_PLANES]:
        cells = [
            [_cell((*plane, p, q)[-len(shape) :], text, kinds) for q in range(-border, columns + border)]
            for p in range(-border, rows + border)
        ]
        where = f"[{','.join(map(str, plane))}]" if plane else ""
        yield Grid(f"{array}{where}{' ' if rest else ''}{rest}", cells)


def _cell(index: tuple[int, ...], text: Mapping[tuple[int, ...], str], kinds: Mapping[tuple[int, ...], str]) -> Cell:
    return Cell(text[index], kinds.get(index, "")) if index in text else Cell("0", "border")


def _number(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.6g}"
