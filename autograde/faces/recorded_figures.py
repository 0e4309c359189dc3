"""The labs' figures of times: drawn from what the bench measured, each with the device and the date.

The times are those that are recorded with the package, never taken for the machine at hand; `crossover` measures anew
where there is a GPU, and says which of the two it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import escape
from matplotlib.figure import Figure

from ...kernels import gpu, recorded
from ...kernels.bench import claims, codesize, compare
from ...kernels.bench.cases import SPARSE_RUNGS
from ...kernels.bench.tables import (
    CUDNN_FP32,
    CUSPARSE,
    NETWORKS,
    TILED,
    Record,
    Row,
    Table,
    batches,
    best,
    layers_of,
    origin,
    speedups,
    tables,
    timed,
    total_us,
    values,
)  # fmt: skip
from ...kernels.errors import BackendError
from .figures import BLUE, GREEN, INK, ORANGE, PURPLE, VERMILION, Picture, page_coloured

#: Colour and mark of a curve, so that neither is needed alone.
STYLES = ((BLUE, "o"), (VERMILION, "s"), (ORANGE, "^"), (GREEN, "D"), (PURPLE, "v"), (INK, "x"))

#: The libraries of the sparse paper's figures 8 to 10. Caffe lowers image by image; batched is the stronger opponent.
_OPPONENTS: dict[str, tuple[str, ...]] = {
    "cuBLAS by image": ("cublas image",), "cuBLAS batched": ("cublas batched",), "cuSPARSE": CUSPARSE,
}  # fmt: skip

Curves = Mapping[str, Sequence[tuple[float, float]]]
Bars = Mapping[str, Sequence[float]]


@dataclass(frozen=True, repr=False)
class Verdicts:
    """A source's claims, each with what a record says of it."""

    found: Sequence[claims.Verdict]
    origin: str

    def __repr__(self) -> str:
        lines = [f"{v.source}: {v.claim}\n    measured: {v.measured}" for v in self.found]
        return "\n".join([*lines, self.origin])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(v.claim)} ({escape(v.source)})</td><td>{escape(v.measured)}</td></tr>" for v in self.found
        )
        head = "<tr><th>the paper says</th><th>measured</th></tr>"
        style = 'style="text-align:left"'
        rows, head = (part.replace("<td>", f"<td {style}>").replace("<th>", f"<th {style}>") for part in (rows, head))
        return f"<table>{head}{rows}</table><p>{escape(self.origin)}</p>"


@dataclass(frozen=True, repr=False)
class Tables:
    """Tables of a record, and where it was made."""

    found: Sequence[Table]
    origin: str

    def __repr__(self) -> str:
        lines = [" | ".join(line) for table in self.found for line in ((table.title,), table.columns, *table.rows)]
        return "\n".join([*lines, self.origin])

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.found)) + f"<p>{escape(self.origin)}</p>"


def _html(table: Table) -> str:
    def line(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"

    rows = "".join(line(row, "td") for row in table.rows)
    return f"<p>{escape(table.title)}</p><table>{line(table.columns, 'th')}{rows}</table>"


def verdicts(suite: str, *claimed: str) -> Verdicts:
    """What the record of a suite says of claims: of those that hold one of these texts, or of all."""
    record = _record(suite)
    made = codesize.verdicts(record) if suite == codesize.SUITE else claims.verdicts(record)
    told = [v for v in made if not claimed or any(text in v.claim for text in claimed)]
    return Verdicts(told, f"Recorded: {origin(record)}")


def code_against_data() -> Tables:
    """What is recorded of generated kernels beside the best of data and of cuDNN: by network, and AlexNet's layers.

    Where nothing is recorded it says so.
    """
    if not recorded.load("codegen"):
        return Tables((), "Not yet recorded: times of generated kernels beside the ladder's and cuDNN's.")
    record = _record("codegen")
    return Tables(tables(record)[:2], f"Recorded: {origin(record)}")


def code_sizes(*operators: str) -> Picture:
    """The machine code of generated kernels against the share of zeros, ours and the code-generation paper's."""
    record = _record(codesize.SUITE)
    found = compare.rows(record)
    curves = {}
    for operator in operators or codesize.OPERATORS[:2]:
        here = [row for row in found if row["operator"] == operator]
        curves[operator] = [(row["sparsity"], row["cubin_bytes"] / 1e3) for row in here]
        curves[f"{operator}, paper"] = [(row["sparsity"], row["paper_cubin_kb"]) for row in here]
    figure, axes = _axes()
    _curves(axes, curves, "share of weights that are zero", "cubin, KB")
    said = {name: ", ".join(f"{x:g}: {y:.0f} KB" for x, y in points) for name, points in curves.items()}
    return _picture(figure, "Size of weights as code", said, record)


def steps(layer: str) -> Picture:
    """What padding and stretching a layer take beside the base kernel and the one with a register (both padded)."""
    record = _record("sparse")
    everything = compare.rows(record)
    alone = timed(everything, **{"steps of": layer})
    whole = next(here for name, here in layers_of(everything, "alexnet") if name == layer)
    names = {
        "pad": (alone, "step pad"), "stretch, a thread a filter": (alone, "step stretch_filter"),
        "stretch, a thread a non-zero": (alone, "step stretch"), "sum in global memory": (whole, "csr_global"),
        "sum in a register": (whole, "csr"),
    }  # fmt: skip
    times = {name: row["us"] for name, (rows, way) in names.items() if (row := best(rows, (way,)))}
    figure, axes = _axes(height=2.4, head=0.6)
    axes.barh(range(len(times)), times.values(), color=BLUE)
    axes.set_yticks(range(len(times)), times)
    axes.invert_yaxis()
    for y, us in enumerate(times.values()):
        axes.text(us, y, f" {us:.0f} µs", va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 1.15 * max(times.values()))
    figure.subplots_adjust(left=0.32)
    return _picture(figure, f"AlexNet {layer}, 128 images", {n: f"{us:.0f} µs" for n, us in times.items()}, record)


def crossover(layer: str) -> Picture:
    """Time against sparsity: the best sparse rung beside cuDNN and lowering, measured where there is a GPU."""
    live = _swept(layer)
    record = live or _record("sparse")
    swept = timed(compare.rows(record), sweep=layer)
    ways = {"best sparse rung": SPARSE_RUNGS, "cuBLAS, lowering": ("cublas batched",), "cuDNN FP32": CUDNN_FP32}
    curves = {
        name: [(s, row["us"] / 1e3) for s in values(swept, "sparsity") if (row := best(timed(swept, sparsity=s), way))]
        for name, way in ways.items()
    }
    figure, axes = _axes()
    _curves(axes, curves, "share of weights that are zero", "ms")
    axes.set_ylim(bottom=0)
    axes.axvline(0.6, color=INK, linestyle=":", linewidth=1)
    axes.text(0.602, axes.get_ylim()[1], "the paper's 0.6", fontsize=8, va="top", color=INK)
    said = {name: ", ".join(f"{ms:.2f} ms at {s:.2f}" for s, ms in points) for name, points in curves.items()}
    crossed = [c for c in compare.crossovers(swept) if c["layer"] == layer]
    for c in crossed:
        where = "nowhere up to the last point" if c["sparsity"] is None else f"at {c['sparsity']:.2f}"
        said[f"crosses {'cuDNN' if c['dense'] == 'cudnn' else 'cuBLAS lowering'}"] = where
    return _picture(figure, f"AlexNet {layer}, one group, 128 images", said, record, live=live is not None)


def base_and_tiled() -> Picture:
    """The sparse paper's figure 7 in form: each layer of AlexNet by the base kernel, with a register, with tiles."""
    record = _record("sparse")
    layers = _with_groups(record, "alexnet")
    names = {"sum in global memory": ("csr_global",), "sum in a register": ("csr",), "tiles as well": TILED}
    bars = {name: [_ms(here, ways) for here in layers.values()] for name, ways in names.items()}
    return _bars(bars, list(layers), "ms", "AlexNet, 128 images", record)


def layer_times(images: int = 64) -> Picture:
    """The sparse paper's figure 8 in form: each layer of AlexNet by the tiled kernel and by the libraries."""
    record = _record("batch")
    here = {row["layer"]: timed(compare.rows(record), batch=images, layer=row["layer"])
            for row in timed(compare.rows(record), batch=images)}  # fmt: skip
    ways = {"tiled, as in the paper": TILED, "best rung": SPARSE_RUNGS, **_OPPONENTS}
    bars = {name: [_ms(rows, way) for rows in here.values()] for name, way in ways.items()}
    bars = {name: [*times, sum(times)] for name, times in bars.items()}
    return _bars(bars, [*here, "all"], "ms", f"AlexNet, {images} images", record, log=True)


def batch_speedups() -> Picture:
    """The sparse paper's figure 9 in form: how many times as long the libraries take as ours, against the batch."""
    record = _record("batch")
    figure, axes = _axes()
    said = {}
    for ours, ways, line in (("tiled", TILED, "-"), ("best rung", SPARSE_RUNGS, "--")):
        curves = {
            f"{name} / {ours}": [
                (images, total_us(layers, other) / mine)
                for images, layers in batches(compare.rows(record))
                if (mine := total_us(layers, ways))
            ]
            for name, other in _OPPONENTS.items()
        }
        _curves(axes, curves, "images in a batch", "ratio of times", line)
        for name, points in curves.items():
            said[name] = ", ".join(f"{gain:.2f} at {int(images)}" for images, gain in points)
    axes.set_ylim(bottom=0)
    axes.axhline(1, color=INK, linewidth=0.8)
    return _picture(figure, "AlexNet conv2 to conv5 together", said, record)


def network_speedups(network: str) -> Picture:
    """The sparse paper's figure 10 in form: layer by layer, how many times as long the libraries take as the tiled."""
    record = _record("sparse")
    layers = _with_groups(record, network)
    gains = {name: speedups(list(layers.values()), way, TILED) for name, way in _OPPONENTS.items()}
    figure, axes = _axes(height=3.8)
    for (name, found), (color, mark) in zip(gains.items(), STYLES, strict=False):
        axes.plot(range(len(found)), found, mark, color=color, markersize=5, label=name)
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(range(len(layers)), list(layers), rotation=90)
    axes.set_ylabel("time of the library / tiled", color=INK)
    figure.subplots_adjust(bottom=0.3)
    _legend(axes)
    said = {
        name: f"{min(found):.2f} to {max(found):.2f}, below 1 in {sum(g < 1 for g in found)} of {len(found)} layers"
        for name, found in gains.items()
    }
    return _picture(figure, f"{NETWORKS[network]}, 128 images", said, record)


# ---- choosing


def _record(suite: str) -> Record:
    """The newest record of a suite. Raises BackendError where there is none."""
    found = recorded.load(suite)
    if not found:
        raise BackendError(f"nothing is recorded of {suite}: run `convladder bench {suite} --keep` on a GPU")
    return max(found, key=lambda record: str(record["date"]))


def _swept(layer: str) -> Record | None:
    """The sweep of one layer on the GPU at hand; None where there is none, or nothing to run on it."""
    if not gpu.available():
        return None
    try:
        return compare.measure("sparse", only=lambda case: case.about.get("sweep") == layer)
    except BackendError:  # a student's installation comes without the rungs
        return None


def _with_groups(record: Record, network: str) -> dict[str, list[Row]]:
    return {layer: here for layer, here in layers_of(compare.rows(record), network) if "ungrouped" not in layer}


def _ms(rows: list[Row], ways: Iterable[str]) -> float:
    found = best(rows, ways)
    return found["us"] / 1e3 if found else 0.0


# ---- drawing


def _axes(height: float = 3.2, head: float = 0.9) -> tuple[Figure, Any]:
    """Axes below room for a title and a legend: `height` and `head` in inches."""
    figure = Figure(figsize=(6.8, height))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.17, top=1 - head / height)
    page_coloured(axes)
    return figure, axes


def _curves(axes: Any, curves: Curves, x: str, y: str, line: str = "-") -> None:
    for (name, points), (color, mark) in zip(curves.items(), STYLES, strict=False):
        if points:
            axes.plot(*zip(*sorted(points), strict=True), line, marker=mark, color=color, markersize=4, label=name)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    _legend(axes)


def _bars(bars: Bars, labels: Sequence[str], y: str, title: str, record: Record, *, log: bool = False) -> Picture:
    figure, axes = _axes()
    width = 0.8 / len(bars)
    for number, ((name, heights), (color, _)) in enumerate(zip(bars.items(), STYLES, strict=False)):
        at = [i + (number - len(bars) / 2 + 0.5) * width for i in range(len(heights))]
        axes.bar(at, heights, 0.92 * width, color=color, label=name)
        for x, height in zip(at, heights, strict=True):
            axes.text(x, height, f"{height:.2g}", ha="center", va="bottom", fontsize=6, color=INK)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel(y, color=INK)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _legend(axes)
    said = {
        name: ", ".join(f"{label} {height:.2f} {y}" for label, height in zip(labels, heights, strict=True))
        for name, heights in bars.items()
    }
    return _picture(figure, title, said, record)


def _legend(axes: Any) -> None:
    where: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
    axes.legend(ncols=3, fontsize=8, frameon=False, labelcolor=INK, **where)


def _picture(figure: Figure, title: str, said: Mapping[str, str], record: Record, *, live: bool = False) -> Picture:
    source = f"{'Measured here' if live else 'Recorded'}: {origin(record)}"
    facts = "; ".join(f"{name}: {text}" for name, text in said.items())
    heading = f"{title}\n{source.replace(', driver', chr(10) + 'driver')}"
    return Picture.of(figure, heading, f"{title}. {facts}. {source}.", size=8)
