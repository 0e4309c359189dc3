"""The labs' figures, drawn from their parameters.

Each function returns a Picture: an SVG that takes its text colour from the page, so that it reads on a light
and on a dark theme, with a text that says the same in words. Colours are told apart by colour-blind readers
(Okabe and Ito's palette), and nothing is said by colour alone.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import matplotlib as mpl
from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...kernels.layouts import output_size, source_index, window_start

BLUE = "#0072B2"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"

#: Drawn in this colour, a mark takes the text colour of the page.
INK = "#010203"

SECTOR_FLOATS = 8
WARP = 32


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG, and `alt`: what it shows, in words; `figure`: what both were made from."""

    svg: str
    alt: str
    figure: Figure = field(compare=False)

    @classmethod
    def of(cls, figure: Figure, title: str, alt: str, size: int = 10) -> Picture:
        """The picture of a figure, with a title in points of `size`."""
        return cls(_svg(figure, title, size), alt, figure)

    def _repr_html_(self) -> str:
        return f'<figure style="margin:0.5em 0" role="img" aria-label="{escape(self.alt)}">{self.svg}</figure>'

    def __repr__(self) -> str:
        return self.alt


def window(H: int, W: int, R: int, S: int, U: int, pad: int, p: int, q: int) -> Picture:
    """The window of output (p, q) over an H x W image and its padding, tap by tap."""
    figure, axes = _plane(H + 2 * pad, W + 2 * pad, cell=0.42)
    axes.set_xlim(-pad, W + pad)
    axes.set_ylim(H + pad, -pad)
    for h in range(-pad, H + pad):
        for w in range(-pad, W + pad):
            style = "solid" if 0 <= h < H and 0 <= w < W else "dotted"
            axes.add_patch(Rectangle((w, h), 1, 1, fill=False, edgecolor=INK, linewidth=0.8, linestyle=style))
    taps = {(r, s): source_index(p, q, r, s, U, pad, H, W) for r in range(R) for s in range(S)}
    for (r, s), read in taps.items():
        h, w = p * U - pad + r, q * U - pad + s
        color, hatch = (BLUE, "") if read else (ORANGE, "////")
        axes.add_patch(Rectangle((w, h), 1, 1, facecolor=color, alpha=0.35, linewidth=0))
        if hatch:
            axes.add_patch(Rectangle((w, h), 1, 1, fill=False, edgecolor=color, linewidth=0, hatch=hatch))
        axes.text(w + 0.5, h + 0.5, f"{r},{s}", ha="center", va="center", fontsize=9, color=INK)
    corner = (q * U - pad, p * U - pad)
    axes.add_patch(Rectangle(corner, S, R, fill=False, edgecolor=INK, linewidth=2.2))
    inside = sum(1 for element in taps.values() if element)
    outside = len(taps) - inside
    alt = (
        f"The {R} by {S} window of output ({p}, {q}) over a {H} by {W} image with padding {pad}, stride {U}. "
        f"Of its {len(taps)} taps {inside} read the image (solid cells) and {outside} fall into the padding "
        f"(hatched, dotted cells). The window's corner lies at row {corner[1]}, column {corner[0]}."
    )
    return Picture.of(figure, f"taps r,s of output ({p}, {q}): {inside} read, {outside} in the padding", alt)


def warp(P: int, Q: int, block: tuple[int, int], along: Literal["rows", "columns"], counted: bool = True) -> Picture:
    """The outputs of the first warp on a P x Q plane and the sectors that hold them.

    block    (x, y) sizes
    along    what threadIdx.x counts: the "rows" or the "columns" of the output
    counted  say the number of sectors; without it the reader counts
    """
    lanes = [(lane % block[0], lane // block[0]) for lane in range(WARP)]
    outputs = [(x, y) if along == "rows" else (y, x) for x, y in lanes]
    outputs = [(p, q) for p, q in outputs if p < P and q < Q]
    sectors = sorted({(p * Q + q) // SECTOR_FLOATS for p, q in outputs})
    figure, axes = _plane(P, Q, cell=0.14)
    axes.set_xlim(0, Q)
    axes.set_ylim(P, 0)
    for p in range(P + 1):
        axes.plot([0, Q], [p, p], color=INK, linewidth=0.2)
    for q in range(Q + 1):
        axes.plot([q, q], [0, P], color=INK, linewidth=0.2)
    for p, q in outputs:
        axes.add_patch(Rectangle((q, p), 1, 1, facecolor=BLUE, linewidth=0))
    for sector in sectors:
        for p, q, length in _runs(sector, Q):
            axes.add_patch(Rectangle((q, p), length, 1, fill=False, edgecolor=VERMILION, linewidth=1.3))
    where = f"{len(sectors)} sectors" if counted else "sectors"
    shape = " by ".join(map(str, block))
    alt = (
        f"A plane of {P} by {Q} outputs, stored row by row; threadIdx.x counts the {along} of a {shape} block. "
        f"The first warp's {len(outputs)} outputs fill {_extent(outputs)} and lie in {where} of {SECTOR_FLOATS} floats."
    )
    title = f"{along} on threadIdx.x: the first warp and its {where}"
    return Picture.of(figure, title, alt)


def stretched(H: int, W: int, pad: int, taps: Sequence[tuple[int, int]], p: int, q: int, U: int = 1) -> Picture:
    """The padded H x W image numbered as in memory, and where the taps (r, s) of output (p, q) stand in it."""
    Hp, Wp = H + 2 * pad, W + 2 * pad
    figure, axes = _plane(Hp, Wp, cell=0.46)
    axes.set_xlim(0, Wp)
    axes.set_ylim(Hp, 0)
    start = window_start(p, q, Wp, U)
    columns = [r * Wp + s for r, s in taps]
    for element in range(Hp * Wp):
        h, w = divmod(element, Wp)
        inside = pad <= h < H + pad and pad <= w < W + pad
        style = "solid" if inside else "dotted"
        if element in {start + column for column in columns}:
            axes.add_patch(Rectangle((w, h), 1, 1, facecolor=BLUE, alpha=0.35, linewidth=0))
        axes.add_patch(Rectangle((w, h), 1, 1, fill=False, edgecolor=INK, linewidth=0.8, linestyle=style))
        axes.text(w + 0.5, h + 0.5, str(element), ha="center", va="center", fontsize=9, color=INK)
    extent = [max(axis) + 1 for axis in zip(*taps, strict=True)]
    axes.add_patch(Rectangle((q * U, p * U), extent[1], extent[0], fill=False, edgecolor=INK, linewidth=2.2))
    said = ", ".join(f"{start} + {column} = {start + column}" for column in columns)
    alt = (
        f"A {H} by {W} image with {pad} rows and columns of zeros around it (dotted), its {Hp * Wp} elements numbered "
        f"row by row. The window of output ({p}, {q}) begins at element {start}; the weights stand at {said}."
    )
    return Picture.of(figure, f"output ({p}, {q}): the window begins at {start}", alt)


def row_lengths(lengths: Sequence[int]) -> Picture:
    """How long each lane of a warp works that walks along the row of a filter: one bar a lane, and what it waits."""
    longest, total = max(lengths), sum(lengths)
    figure = Figure(figsize=(6.4, 2.2))
    axes = figure.add_axes((0.09, 0.2, 0.89, 0.64))
    axes.bar(range(len(lengths)), [longest] * len(lengths), 0.8, facecolor="none", edgecolor=INK, linewidth=0.4)
    axes.bar(range(len(lengths)), lengths, 0.8, color=BLUE)
    page_coloured(axes)
    axes.set_xlabel("lane (filter)", color=INK)
    axes.set_ylabel("passes", color=INK)
    share = total / (longest * len(lengths))
    alt = (
        f"One bar a lane of a warp: rows of {min(lengths)} to {longest} non-zeros. The warp makes {longest} passes; "
        f"its lanes work in {total} of {longest * len(lengths)} ({share:.1%}) and wait in the others (outlined)."
    )
    return Picture.of(figure, f"filled: a lane works; outlined: it waits for the longest row ({longest})", alt)


def useful_threads(outputs: Sequence[int], blocks: Sequence[int]) -> Picture:
    """Which share of the threads has an output, where blocks of several sizes cover planes of P*Q outputs."""
    figure = Figure(figsize=(6.4, 2.6))
    axes = figure.add_axes((0.09, 0.18, 0.89, 0.66))
    width = 0.8 / len(blocks)
    said = []
    for number, (block, color) in enumerate(zip(blocks, (BLUE, ORANGE, VERMILION, GREEN, PURPLE), strict=False)):
        shares = [size / (-(-size // block) * block) for size in outputs]
        at = [i + (number - len(blocks) / 2 + 0.5) * width for i in range(len(outputs))]
        axes.bar(at, shares, 0.9 * width, color=color, label=f"{block} threads")
        for x, share in zip(at, shares, strict=True):
            axes.text(x, share + 0.02, f"{share:.0%}", ha="center", fontsize=7, color=INK)
        said.append(f"{block} threads: {', '.join(f'{share:.0%}' for share in shares)}")
    page_coloured(axes)
    axes.set_ylim(0, 1.12)
    axes.set_xticks(range(len(outputs)), [f"P*Q = {size}" for size in outputs])
    where: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1)}
    axes.legend(ncols=len(blocks), fontsize=7, frameon=False, labelcolor=INK, **where)
    alt = f"Share of threads with an output, for planes of {', '.join(map(str, outputs))} outputs. {'; '.join(said)}."
    return Picture.of(figure, "", alt)


def page_coloured(axes: Any) -> None:
    """Axes in the text colour of the page, without a frame."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(colors=INK, labelsize=8)
    axes.grid(axis="y", color=INK, alpha=0.2, linewidth=0.5)
    axes.set_axisbelow(True)


def lowering(H: int, W: int, R: int, S: int, U: int = 1, pad: int = 0, p: int = 0, q: int = 0) -> Picture:
    """An H x W image with the window of output (p, q), and the matrix that its windows make, a column an output.

    Each cell holds the number of the element that it is, row by row from 1; a dot is a zero of the padding.
    """
    P, Q = output_size(H, R, U, pad), output_size(W, S, U, pad)
    rows, columns = R * S, P * Q
    height = max(H + 2 * pad, rows)
    figure, axes = _plane(height, W + 2 * pad + 2 + columns, cell=0.36)
    axes.set_xlim(-pad, W + pad + 2 + columns)
    axes.set_ylim(height - pad, -pad)
    chosen = {(p * U - pad + r, q * U - pad + s) for r in range(R) for s in range(S)}
    for h in range(-pad, H + pad):
        for w in range(-pad, W + pad):
            inside = 0 <= h < H and 0 <= w < W
            _cell(axes, h, w, str(h * W + w + 1) if inside else "·", (h, w) in chosen, dotted=not inside)
    for j in range(rows):
        for i in range(columns):
            read = source_index(i // Q, i % Q, j // S, j % S, U, pad, H, W)
            text = "·" if read is None else str(read[0] * W + read[1] + 1)
            _cell(axes, j - pad, W + pad + 2 + i, text, i == p * Q + q)
    alt = (
        f"Left, a {H} by {W} image with padding {pad}; right, the {rows} by {columns} matrix of its windows. "
        f"The window of output ({p}, {q}) is filled, and so is column {p * Q + q} of the matrix, which holds its "
        f"{rows} elements one below the other."
    )
    return Picture.of(figure, f"the image, and col: output ({p}, {q}) is its column {p * Q + q}", alt)


def tiles(GM: int, GN: int, GK: int, tile: int, row: int, column: int, step: int) -> Picture:
    """The matrices a, b and c of a product, in tiles; filled: what block (row, column) works on in one step.

    row, column, step  count tiles; sizes are multiples of a tile
    """
    unit = 3.0 / (GK + max(GM, GN))
    figure, axes = _plane(GK + GM + 1, GK + GN + 1, cell=unit)
    axes.set_xlim(-GK - 1, GN)
    axes.set_ylim(GM, -GK - 1)
    for name, top, left, height, width in (("a", 0, -GK - 1, GM, GK), ("b", -GK - 1, 0, GK, GN), ("c", 0, 0, GM, GN)):
        axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=INK, linewidth=1.4))
        for y in range(0, height, tile):
            axes.plot([left, left + width], [top + y, top + y], color=INK, linewidth=0.3)
        for x in range(0, width, tile):
            axes.plot([left + x, left + x], [top, top + height], color=INK, linewidth=0.3)
        axes.text(left + width - tile * 0.12, top + tile * 0.12, name, ha="right", va="top", fontsize=11, color=INK)
    for color, top, left in (
        (BLUE, row * tile, -GK - 1 + step * tile),
        (ORANGE, -GK - 1 + step * tile, column * tile),
        (VERMILION, row * tile, column * tile),
    ):
        axes.add_patch(Rectangle((left, top), tile, tile, facecolor=color, alpha=0.75, linewidth=0))
    alt = (
        f"The product of a, {GM} by {GK} (left), and b, {GK} by {GN} (above), in tiles of {tile}. In step {step} the "
        f"block of tile ({row}, {column}) of c multiplies tile ({row}, {step}) of a with tile ({step}, {column}) of b. "
        f"It takes {GK // tile} such steps."
    )
    return Picture.of(figure, f"step {step}, counted from 0, of {GK // tile} for one tile of c", alt)


def banks(pitch: int, lanes: int = WARP) -> Picture:
    """In which of the 32 banks lie the words [0][0], [1][0], … of a column of a tile whose rows are `pitch` words."""
    hit = [lane * pitch % WARP for lane in range(lanes)]
    worst = max(hit.count(bank) for bank in hit)
    figure, axes = _plane(lanes, WARP, cell=0.13)
    axes.set_xlim(0, WARP)
    axes.set_ylim(lanes, 0)
    for bank in range(WARP + 1):
        axes.plot([bank, bank], [0, lanes], color=INK, linewidth=0.2)
    for lane, bank in enumerate(hit):
        axes.add_patch(Rectangle((bank, lane), 1, 1, facecolor=BLUE, linewidth=0))
    times = "all at once" if worst == 1 else f"one after the other, {worst} deep"
    alt = (
        f"One line a lane, one column a bank: in a tile with rows of {pitch} words the {lanes} words of a column lie "
        f"in {_counted(len(set(hit)), 'bank')} and are read {times}."
    )
    return Picture.of(figure, f"rows of {pitch} words: {_counted(len(set(hit)), 'bank')} for {lanes} lanes", alt)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _cell(axes: Any, row: float, column: float, text: str, filled: bool, dotted: bool = False) -> None:
    if filled:
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=BLUE, alpha=0.35, linewidth=0))
    style = "dotted" if dotted else "solid"
    axes.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor=INK, linewidth=0.8, linestyle=style))
    axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9, color=INK)


def _extent(outputs: list[tuple[int, int]]) -> str:
    rows = {p for p, _ in outputs}
    columns = {q for _, q in outputs}
    return f"{len(rows)} rows of {len(columns)} columns"


def _runs(sector: int, Q: int) -> list[tuple[int, int, int]]:
    """A sector as (row, first column, length): in two rows where the end of one falls into it."""
    runs: list[tuple[int, int, int]] = []
    for element in range(sector * SECTOR_FLOATS, (sector + 1) * SECTOR_FLOATS):
        p, q = divmod(element, Q)
        if runs and runs[-1][0] == p:
            runs[-1] = (p, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((p, q, 1))
    return runs


def _plane(rows: int, columns: int, cell: float) -> tuple[Figure, Any]:
    """A figure for rows x columns cells of `cell` inches, the first row on top."""
    figure = Figure(figsize=(max(columns * cell, 3.6), rows * cell + 0.35))
    axes = figure.add_axes((0.01, 0.01, 0.98, (rows * cell) / (rows * cell + 0.35)))
    axes.set_aspect("equal", anchor="SW")
    axes.set_axis_off()
    return figure, axes


def _svg(figure: Figure, title: str, size: int) -> str:
    """The figure's SVG, the same bytes for the same figure, in the page's text colour."""
    figure.text(0.01, 0.99, title, ha="left", va="top", fontsize=size, color=INK)
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "convladder", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    return _with_own_ids(svg[svg.index("<svg") :].replace(INK, "currentColor").strip())


def _with_own_ids(svg: str) -> str:
    """The SVG with ids that no other one has.

    Matplotlib names equal hatches and clips alike, and in a page of several figures a name means the first of that
    name: where JupyterLab has hidden that one, the hatches of all others would vanish.
    """
    own = hashlib.sha256(svg.encode()).hexdigest()[:8]
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{own}-", svg)
