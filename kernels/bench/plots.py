"""A picture of a record: times over sizes, batches and sparsities, or ratios layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .cases import CODEGEN, DIRECT_RUNGS, GEMM_RUNGS, LOWERING_STEPS, SPARSE_RUNGS
from .compare import rows
from .tables import NETWORKS, Record, Row, best, origin, timed

_CUDNN = ("cudnn fp32 nchw", "cudnn fp32 nhwc", "cudnn tf32 nchw", "cudnn tf32 nhwc")
_CUSPARSE = ("cusparse batched", "cusparse image")

#: Curves and bars: what each is called, and the ways whose fastest it shows.
_DIRECT = {"best direct rung": DIRECT_RUNGS, "cuDNN FP32": _CUDNN[:2], "cuDNN": _CUDNN, "cuBLAS": ("cublas batched",)}
_LIBRARIES = {
    "cuBLAS by image": ("cublas image",), "cuBLAS batched": ("cublas batched",), "cuSPARSE": _CUSPARSE,
    "cuDNN FP32": _CUDNN[:2],
}  # fmt: skip


def save(record: Record, file: Path) -> None:
    """Draw a record into a file; its suffix tells the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    draw = {
        "direct": _direct, "lowering": _lowering, "gemm": _gemm, "plans": _plans, "cudnn": _cudnn, "sparse": _sparse,
        "batch": _batch, "codegen": _codegen,
    }[record["suite"]]  # fmt: skip
    draw(figure.subplots(), rows(record))
    figure.suptitle(origin(record), fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)


def _curves(axes: Any, curves: dict[str, list[tuple[float, float]]], x: str, y: str, *, log_y: bool = True) -> None:
    for name, points in curves.items():
        if points:
            axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, label=name)
    axes.set_xscale("log", base=2)
    if log_y:
        axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend()


def _direct(axes: Any, solved: list[Row]) -> None:
    here = timed(solved, stride=1)
    curves = {
        name: [(size, row["us"]) for size in _known(here, "size") if (row := best(timed(here, size=size), ways))]
        for name, ways in _DIRECT.items()
    }
    _curves(axes, curves, "input height and width", "µs")
    axes.set_title("One 3×3 filter, stride 1, one image of 3 channels")


def _lowering(axes: Any, solved: list[Row]) -> None:
    ways = ("direct_report", "gemv_rows", *LOWERING_STEPS, "gemv")
    curves = {way: [(row["size"], row["us"]) for row in timed(solved, way=way) if "size" in row] for way in ways}
    _curves(axes, curves, "input height and width", "µs")
    axes.set_title("Lowering step by step, one 3×3 filter, one image of 3 channels")


def _gemm(axes: Any, solved: list[Row]) -> None:
    curves = {
        way: [(row["size"], 2 * row["size"] ** 3 / row["us"] * 1e-6) for row in timed(solved, way=way)]
        for way in (*GEMM_RUNGS, "cublas batched")
    }
    _curves(axes, curves, "size of the square matrices", "TFLOP/s", log_y=False)
    axes.set_title("Matrix product in float32")


def _plans(axes: Any, solved: list[Row]) -> None:
    """Each plan's time against its scratch memory, of the first layer."""
    here = timed(solved, layer=_known(solved, "layer")[0])
    for row in here:
        points = [(workspace / 1e6, us) for *_, workspace, us in row.get("every_plan", [])]
        if points:
            axes.scatter(*zip(*points, strict=True), s=14, label=row["way"])
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_yscale("log")
    axes.set_xlabel("scratch memory, MB")
    axes.set_ylabel("µs")
    if axes.has_data():
        axes.legend()
    axes.set_title(f"Every plan that cuDNN builds for {here[0]['layer']}, batch 128" if here else "")


def _cudnn(axes: Any, solved: list[Row]) -> None:
    ways = (*_CUDNN, "cublas batched", "cublas image")
    _bars(axes, {way: [(row["layer"], row["us"] / 1e3) for row in timed(solved, way=way)] for way in ways}, "ms")
    axes.set_title("AlexNet, batch 128")


def _sparse(axes: Any, solved: list[Row]) -> None:
    """How many times as long each library takes as the best rung, every layer of the three networks."""
    _ratios(axes, solved, _LIBRARIES, SPARSE_RUNGS, "time of the library / best sparse rung")
    axes.set_title("Sparse layers, batch 128")


def _codegen(axes: Any, solved: list[Row]) -> None:
    """How many times as long other ways take as weights as code, every layer of the three networks."""
    others = {
        "best CSR rung": SPARSE_RUNGS, "cuDNN FP32": _CUDNN[:2], "TF32 NCHW": _CUDNN[2:3], "TF32 NHWC": _CUDNN[3:],
    }  # fmt: skip
    _ratios(axes, solved, others, (CODEGEN,), "time / time of weights as code")
    axes.set_title("Weights as code, batch 128")


def _ratios(axes: Any, solved: list[Row], others: Mapping[str, Sequence[str]], mine: Sequence[str], y: str) -> None:
    """Layer by layer, how many times as long the best of other ways takes as the best of mine."""
    points: dict[str, list[tuple[str, float]]] = {name: [] for name in others}
    for network in NETWORKS:
        here = timed(solved, network=network, pattern="random")
        for layer in _known(here, "layer"):
            fastest = best(timed(here, layer=layer), mine)
            for name, ways in others.items():
                if fastest and (other := best(timed(here, layer=layer), ways)):
                    points[name].append((f"{network[:1].upper()} {layer}", other["us"] / fastest["us"]))
    _bars(axes, points, y, points=True)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")


def _batch(axes: Any, solved: list[Row]) -> None:
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, ways in _LIBRARIES.items():
        curves[name] = []
        for images in _known(solved, "batch"):
            layers = [timed(solved, batch=images, layer=layer) for layer in _known(solved, "layer")]
            pairs = [(best(here, ways), best(here, SPARSE_RUNGS)) for here in layers]
            if all(a and b for a, b in pairs):
                curves[name].append((images, sum(a["us"] for a, _ in pairs if a) / sum(b["us"] for _, b in pairs if b)))
    _curves(axes, curves, "batch", "time of the library / best sparse rung", log_y=False)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_title("AlexNet conv2 to conv5 together")


def _bars(axes: Any, groups: dict[str, list[tuple[str, float]]], y: str, *, points: bool = False) -> None:
    labels = list(dict.fromkeys(label for bars in groups.values() for label, _ in bars))
    width = 0.8 / max(len(groups), 1)
    for number, (name, bars) in enumerate(groups.items()):
        heights = dict(bars)
        at = [i for i, label in enumerate(labels) if label in heights]
        values = [heights[labels[i]] for i in at]
        if points:
            axes.plot(at, values, "o", markersize=4, label=name)
        else:
            axes.bar([i + (number - len(groups) / 2 + 0.5) * width for i in at], values, width, label=name)
    axes.set_xticks(range(len(labels)), labels, rotation=90 if len(labels) > 10 else 0, fontsize=7)
    axes.set_ylabel(y)
    axes.grid(axis="y", alpha=0.3)
    axes.legend()


def _known(solved: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in solved if key in row))
