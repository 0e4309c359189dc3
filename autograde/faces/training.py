"""What lab 7 shows: the stages of a run along time, the memory of a network's layers, and what is recorded of a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from ...kernels import recorded
from ...kernels.bench import tables, training_results
from ...kernels.bench.claims import Verdict
from ...kernels.bench.tables import Table
from ...kernels.bench.training import PAPER, SUITE
from ...kernels.errors import BackendError
from ...kernels.net import networks
from ...kernels.net.stages import PREFETCHED, STAGES, Run
from .figures import BLUE, GREEN, INK, ORANGE, VERMILION, Picture, page_coloured

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
    page_coloured(axes)
    axes.grid(visible=False)
    handles = [axes.barh(0, 0, color=c, alpha=0.75, hatch=h, edgecolor=INK, label=s) for s, (c, h) in _LOOKS.items()]
    figure.legend(handles=handles, loc="lower right", ncol=7, fontsize=7, labelcolor=INK, frameon=False)
    how = "overlapped: a prefetch thread reads ahead" if run.overlapped else "one stage after the other"
    means = ", ".join(f"{stage} {ms:.1f}" for stage, ms in run.stage_ms().items())
    title = f"{how}: {run.iteration_ms():.1f} ms an iteration"
    return Picture.of(figure, title, f"{title}. Medians of the stages in milliseconds: {means}.")


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
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.1}
    axes.legend(ncols=2, fontsize=8, labelcolor=INK, frameon=False, **above)
    page_coloured(axes)
    axes.grid(visible=False, axis="y")
    total = sum(maps) + sum(weights)
    largest = max(range(len(layers)), key=lambda i: maps[i] + weights[i])
    title = f"{network}, batch {batch}: {total:,.0f} MiB in all"
    said = ", ".join(f"{n} {m:.0f} and {w:.0f}" for n, m, w in zip(names, maps, weights))
    alt = (
        f"{title}; most in {names[largest]} ({maps[largest] + weights[largest]:,.0f} MiB). MiB of feature maps and of "
        f"weights: {said}."
    )
    return Picture.of(figure, title, alt)


# ---- what is recorded


def layer_times() -> Picture:
    """AlexNet's layers forwards and backwards, as the training paper draws them (figure 6), from the record."""
    kept = _kept()
    case = training_results.network(kept, *PAPER)
    layers = case["layers"] if case else []
    figure, axes = _bars()
    for offset, direction, colour, hatch in ((-0.2, "forward", BLUE, ""), (0.2, "backward", ORANGE, "////")):
        times = [layer[f"{direction}_us"] / 1e3 for layer in layers]
        places = [place + offset for place in range(len(layers))]
        axes.bar(
            places, times, 0.4, label=direction, color=colour, alpha=0.75, hatch=hatch, edgecolor=INK, linewidth=0.4
        )
    title = "AlexNet, batch 256: milliseconds of each layer"
    said = ", ".join(f"{x['layer']} {x['forward_us'] / 1e3:.1f} and {x['backward_us'] / 1e3:.1f}" for x in layers)
    _finish(axes, [layer["layer"] for layer in layers])
    return Picture.of(figure, title, f"{title}, forwards and backwards: {said}. Recorded on {tables.origin(kept)}.")


def efficiencies(measure: Literal["ce", "ru"]) -> Picture:
    """CE or RU of AlexNet's products at three batches (training paper, figures 11 and 12), from the record."""
    kept = _kept()
    figure, axes = _bars()
    told, names = [], []
    for place, (batch, colour, hatch) in enumerate(((128, BLUE, ""), (256, ORANGE, "////"), (512, GREEN, "xxxx"))):
        case = training_results.network(kept, PAPER[0], batch)
        ways = [way for way in case["ways"] if way["way"] != "cublas image"] if case else []
        values = [way["ce"] if measure == "ce" else way["kernel"].get("ru", 0.0) for way in ways]
        names = [f"{_SHORT[way['direction']]}{way['layer']}" for way in ways]
        places = [x + 0.27 * (place - 1) for x in range(len(ways))]
        axes.bar(
            places, values, 0.27, label=f"batch {batch}", color=colour, alpha=0.75, hatch=hatch, edgecolor=INK,
            linewidth=0.4,
        )  # fmt: skip
        told.append(f"batch {batch}: " + ", ".join(f"{n} {v:.2f}" for n, v in zip(names, values)))
    title = {"ce": "Compute efficiency (eq. 8)", "ru": "Resource utilisation (eq. 11)"}[
        measure
    ] + " of AlexNet's products"
    _finish(axes, names)
    return Picture.of(figure, title, f"{title}; d: data gradient, w: weight gradient. {'; '.join(told)}.")


_SHORT = {"forward": "", "data gradient": "d ", "weight gradient": "w "}


def _bars() -> tuple[Figure, Any]:
    figure = Figure(figsize=(8.6, 2.9))
    return figure, figure.add_axes((0.06, 0.3, 0.93, 0.56))


def _finish(axes: Any, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.1}
    axes.legend(fontsize=8, labelcolor=INK, frameon=False, ncols=3, **above)
    page_coloured(axes)


def record(number: int) -> Page:
    """A recorded table of the suite `training`: 0 networks, 1 layers, 2 CE and RU, 3 stages, 4 the longest kernels."""
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
