"""What lab 7 shows: the stages of a run along time, the memory of a network's layers, and what is recorded of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from ...kernels import recorded
from ...kernels.bench import tables, training_results
from ...kernels.bench.claims import Verdict
from ...kernels.bench.tables import Table
from ...kernels.bench.training import SUITE
from ...kernels.errors import BackendError
from ...kernels.net import networks
from ...kernels.net.stages import PREFETCHED, STAGES, Run
from .figures import _INK as INK
from .figures import BLUE, ORANGE, VERMILION, Picture
from .figures import _svg as as_svg

#: A colour and a hatch for each stage: neither says anything alone.
_LOOKS = {
    "read": (ORANGE, ""), "transform": (ORANGE, "////"), "copy": (ORANGE, "xxxx"),
    "forward": (BLUE, ""), "backward": (BLUE, "////"), "update": (BLUE, "xxxx"), "save": (VERMILION, ""),
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """Text for a notebook: as HTML, and in plain characters."""

    html: Markup
    text: str

    def _repr_html_(self) -> str:
        return str(self.html)

    def __repr__(self) -> str:
        return self.text


# ---- runs of the stages


def timeline(run: Run, iterations: int = 4) -> Picture:
    """The stages of the first iterations of a run, one row for each thread that did them."""
    rows = ("prefetch thread", "main thread") if run.overlapped else ("main thread",)
    spans = [span for span in run.spans if span.iteration < iterations]
    first, last = min(s.start_ms for s in spans), max(s.end_ms for s in spans)
    figure = Figure(figsize=(8.6, 0.95 + 0.55 * len(rows)))
    axes = figure.add_axes((0.13, 0.42 / len(rows) ** 0.5, 0.85, 0.78 - 0.42 / len(rows) ** 0.5))
    for span in spans:
        row = 0 if span.stage in PREFETCHED or not run.overlapped else 1
        colour, hatch = _LOOKS[span.stage]
        axes.barh(
            row, span.end_ms - span.start_ms, left=span.start_ms - first, height=0.7, color=colour, alpha=0.75,
            hatch=hatch, edgecolor=INK, linewidth=0.4,
        )  # fmt: skip
        if span.end_ms - span.start_ms > 0.02 * (last - first):
            middle = (span.start_ms + span.end_ms) / 2 - first
            axes.text(middle, row - 0.42, str(span.iteration), ha="center", va="bottom", fontsize=7, color=INK)
    axes.set_yticks(range(len(rows)), rows, color=INK, fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.75)
    axes.set_xlim(0, last - first)
    axes.set_xlabel("milliseconds", color=INK, fontsize=8)
    axes.tick_params(colors=INK, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)
    handles = [axes.barh(0, 0, color=c, alpha=0.75, hatch=h, edgecolor=INK, label=s) for s, (c, h) in _LOOKS.items()]
    figure.legend(handles=handles, loc="lower right", ncol=7, fontsize=7, labelcolor=INK, frameon=False)
    how = "overlapped: a prefetch thread reads ahead" if run.overlapped else "one stage after the other"
    means = ", ".join(f"{stage} {ms:.1f}" for stage, ms in run.stage_ms().items())
    title = f"{how}: {run.iteration_ms():.1f} ms an iteration"
    return Picture(as_svg(figure, title), f"{title}. Medians of the stages in milliseconds: {means}.")


def stage_table(runs: Iterable[Run]) -> Page:
    """The stages of some runs side by side, in milliseconds."""
    lines = [
        (
            "overlapped" if run.overlapped else "in turn",
            *(f"{ms:.1f}" for ms in run.stage_ms().values()), f"{run.iteration_ms():.1f}",
        )
        for run in runs
    ]  # fmt: skip
    return _page([Table("Milliseconds, medians", ("stages", *STAGES, "iteration"), tuple(lines))], "measured here")


# ---- memory


def layer_memory(network: str, batch: int) -> Picture:
    """Feature maps and weights of each layer in training, as the training paper draws them (figures 14 to 16)."""
    layers = [x for x in networks.layers(network, batch) if x.map_bytes + x.weight_bytes]
    maps, weights = (
        [size / 2**20 for size in sizes] for sizes in zip(*((x.map_bytes, x.weight_bytes) for x in layers))
    )
    names = [layer.name for layer in layers]
    figure = Figure(figsize=(7.5, 0.9 + 0.19 * len(layers)))
    axes = figure.add_axes((0.2, 0.55 / (0.9 + 0.19 * len(layers)), 0.77, 1 - 0.9 / (0.9 + 0.19 * len(layers))))
    axes.barh(names, maps, label="feature maps", color=BLUE, alpha=0.75, edgecolor=INK, linewidth=0.4)
    axes.barh(
        names, weights, left=maps, label="weights", color=ORANGE, alpha=0.75, edgecolor=INK, linewidth=0.4, hatch="////"
    )
    axes.invert_yaxis()
    axes.set_xlabel("MiB", color=INK, fontsize=8)
    axes.tick_params(colors=INK, labelsize=8)
    axes.legend(fontsize=8, labelcolor=INK, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
    total = sum(maps) + sum(weights)
    largest = max(range(len(layers)), key=lambda i: maps[i] + weights[i])
    title = f"{network}, batch {batch}: {total:,.0f} MiB in all"
    said = ", ".join(f"{n} {m:.0f} and {w:.0f}" for n, m, w in zip(names, maps, weights))
    alt = (
        f"{title}; most in {names[largest]} ({maps[largest] + weights[largest]:,.0f} MiB). MiB of feature maps and of "
        f"weights: {said}."
    )
    return Picture(as_svg(figure, title), alt)


# ---- what is recorded


def record(number: int) -> Page:
    """One of the recorded tables of the suite `training`: 0 whole networks, 1 layers, 2 CE and RU, 3 stages."""
    kept = _kept()
    return _page([training_results.tables(kept)[number]], f"recorded on {tables.origin(kept)}, not measured here")


def claims(*sections: str) -> Page:
    """The training paper's claims of some sections ("4", "5.1" …; none: of all), and what the record says of them."""
    kept = _kept()
    found = [v for v in training_results.verdicts(kept) if not sections or v.source.split()[-1] in sections]
    return _page([_table(found)], f"recorded on {tables.origin(kept)}, not measured here")


def _kept() -> tables.Record:
    found = recorded.load(SUITE)
    if not found:
        raise BackendError(f"nothing is recorded of the suite {SUITE}: run `convladder bench {SUITE} --keep` on a GPU")
    return found[0]


def _table(verdicts: Sequence[Verdict]) -> Table:
    lines = tuple((v.claim, v.source.removeprefix("training paper, "), v.measured) for v in verdicts)
    return Table("Claims of the training paper", ("claim", "section", "verdict"), lines)


def _page(shown: Sequence[Table], origin: str) -> Page:
    html, text = Markup(), []
    for table in shown:
        head = Markup().join(Markup("<th style='text-align:left'>{}</th>").format(c) for c in table.columns)
        body = Markup().join(
            Markup("<tr>{}</tr>").format(
                Markup().join(Markup("<td style='text-align:left'>{}</td>").format(cell) for cell in row)
            )
            for row in table.rows
        )
        html += Markup("<p><b>{}</b> ({})</p><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
            escape(table.title), escape(origin), head, body
        )
        text += [f"{table.title} ({origin})", *(" | ".join(row) for row in (table.columns, *table.rows))]
    return Page(html, "\n".join(text))
