"""A chart or a drawing as a slide: 16:9, legible from the last row, with its source and where it was measured.

Colours are told apart by colour-blind readers, and each comes with a mark or a hatch of its own.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from ...kernels.bench.charts import Chart
from .figures import BLUE, GREEN, ORANGE, PURPLE, VERMILION

_BLACK = "#222222"
#: Colour, mark and hatch of each series.
_STYLES = (
    (BLUE, "o", ""), (VERMILION, "s", "///"), (ORANGE, "^", "\\\\\\"), (GREEN, "D", "xxx"), (PURPLE, "v", "..."),
    (_BLACK, "P", "---"),
)  # fmt: skip
_SIZE = (12.8, 7.2)
_DPI = 150
#: Beyond so many bars their values are not written above them.
_MOST_LABELLED = 32


@dataclass(frozen=True)
class Slide:
    """What a slide says.

    shown   a chart, or the figure of a drawing
    said    what follows from it, a line each
    origin  where it was measured
    alt     the whole in words
    """

    title: str
    source: str
    shown: Chart | Figure
    said: Sequence[str]
    origin: str
    alt: str

    def save(self, file: Path) -> None:
        """Write it; the suffix, .png or .svg, tells the format."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".svg":
            file.write_text(self.svg(), encoding="utf-8")
        else:
            self._figure().savefig(file, dpi=_DPI, metadata={"Title": self.title, "Description": self.alt})

    def svg(self) -> str:
        """It as an SVG that scales to the width that there is, its words as its label."""
        text = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": self.title}):  # a page has several: equal ids would be the first one's
            self._figure().savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Title": self.title})
        drawn = text.getvalue()
        return drawn[drawn.index("<svg ") :].replace(
            "<svg ", f'<svg role="img" aria-label="{escape(self.alt)}" style="max-width:100%;height:auto" ', 1
        )

    def _figure(self) -> Figure:
        figure = Figure(figsize=_SIZE, facecolor="white")
        title = textwrap.wrap(self.title, 66)
        figure.text(0.03, 0.965, "\n".join(title), va="top", fontsize=21, fontweight="bold", color=_BLACK)
        top = 0.965 - 0.055 * len(title)
        figure.text(0.03, top, f"source: {self.source}", va="top", fontsize=12, color=_BLACK)
        figure.text(0.03, 0.02, "\n".join(textwrap.wrap(self.origin, 150)), fontsize=10, style="italic", color=_BLACK)
        lines = [part for line in self.said for part in textwrap.wrap(line, 132, subsequent_indent="   ")]
        bottom = 0.085 + 0.029 * len(lines)
        figure.text(0.03, bottom - 0.012, "\n".join(lines), va="top", fontsize=12, color=_BLACK)
        room = (0.03, bottom + 0.02, 0.94, top - 0.05 - bottom - 0.02)
        if isinstance(self.shown, Chart):
            _draw(figure, self.shown, room)
        else:
            _paste(figure, self.shown, room)
        return figure


Room = tuple[float, float, float, float]


def _draw(figure: Figure, chart: Chart, room: Room) -> None:
    left, bottom, width, height = room
    names = [_place(place) for place in chart.places]
    upright = sum(map(len, names)) > 90
    below = 0.07 + (min(0.012 * max(map(len, names)), 0.2) if upright else 0.02)
    above = 0.045 * math.ceil(len(chart.values) / 4) + 0.01
    axes = figure.add_axes((left + 0.055, bottom + below, width - 0.06, height - below - above))
    {"curves": _curves, "points": _points, "bars": _bars}[chart.kind](axes, chart)
    if chart.kind != "curves":
        turned: dict[str, Any] = {"rotation": 60, "ha": "right"} if upright else {}
        axes.set_xticks(range(len(names)), names, **turned)
        axes.tick_params(axis="x", length=0)
    elif chart.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(chart.places, names)
        axes.xaxis.set_minor_formatter(NullFormatter())
    if chart.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    if chart.level is not None:
        axes.axhline(chart.level, color=_BLACK, linewidth=1.2, linestyle="--")
    if chart.mark is not None:
        axes.axvline(chart.mark, color=_BLACK, linewidth=1.2, linestyle=":")
        axes.text(chart.mark, axes.get_ylim()[1], f" claimed: {chart.mark:g}", va="top", fontsize=12)
    axes.set_xlabel(chart.x, fontsize=13)
    axes.set_ylabel("\n".join(textwrap.wrap(chart.y, 30)), fontsize=13)
    axes.tick_params(labelsize=10 if upright else 12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if len(chart.values) > 1:
        where: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        axes.legend(ncols=4, fontsize=12, frameon=False, **where)


def _curves(axes: Any, chart: Chart) -> None:
    for (name, values), (color, mark, _) in zip(chart.values.items(), _STYLES):
        points = [(place, value) for place, value in zip(chart.places, values) if value is not None]
        axes.plot(*zip(*points), marker=mark, markersize=8, linewidth=2.2, color=color, label=name)


def _points(axes: Any, chart: Chart) -> None:
    for (name, values), (color, mark, _) in zip(chart.values.items(), _STYLES):
        points = [(i, value) for i, value in enumerate(values) if value is not None]
        axes.plot(*zip(*points), mark, markersize=9, color=color, label=name)


def _bars(axes: Any, chart: Chart) -> None:
    width = 0.84 / len(chart.values)
    count = len(chart.values) * len(chart.places)
    size = 10 if count <= 20 else 8
    for number, ((name, values), (color, _, hatch)) in enumerate(zip(chart.values.items(), _STYLES)):
        bars = [(i + (number - len(chart.values) / 2 + 0.5) * width, v) for i, v in enumerate(values) if v is not None]
        look: dict[str, Any] = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5, "label": name}
        axes.bar(*zip(*bars), 0.94 * width, **look)
        for x, value in bars if count <= _MOST_LABELLED else ():
            axes.text(x, value, _number(value), ha="center", va="bottom", fontsize=size)


def _paste(figure: Figure, drawn: Figure, room: Room) -> None:
    """The labs' drawings, as large as they fit."""
    file = io.BytesIO()
    drawn.savefig(file, format="png", dpi=300, facecolor="white", bbox_inches="tight")
    file.seek(0)
    axes = figure.add_axes(room)
    axes.imshow(mpl.image.imread(file), interpolation="antialiased")
    axes.set_axis_off()


def _number(value: float) -> str:
    """Three digits, and no exponent."""
    return "0" if value == 0 else f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def _place(place: Any) -> str:
    return f"{place:g}" if isinstance(place, float) else str(place)


def cells(chart: Chart) -> list[list[str]]:
    """The values as a table, its head first."""
    head = [chart.x, *chart.values]
    columns = [("–" if v is None else _number(v) for v in values) for values in chart.values.values()]
    places = [_place(place) for place in chart.places]
    return [head, *map(list, zip(places, *columns))]


def in_words(chart: Chart) -> str:
    """All that a chart shows, as a sentence for each series."""
    (_, *names), *lines = cells(chart)
    said = [
        f"{name}: {', '.join(f'{line[number]} at {line[0]}' for line in lines)}" for number, name in enumerate(names, 1)
    ]
    return f"{chart.y} against {chart.x}. {'. '.join(said)}."
