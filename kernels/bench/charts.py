"""A record as numbers to draw: values of several series over sizes, batches, layers or sparsities.

What is drawn is described by a View, which is data; `chart` reads it out of a record of the suites of `compare`,
and TRAINING has a function for each chart of the suite `training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..net.stages import STAGES
from . import training_results
from .cases import CODEGEN, DIRECT_RUNGS, GEMM_RUNGS, SPARSE_RUNGS, Case
from .compare import rows
from .tables import (
    CUDNN_ANY,
    CUDNN_FP32,
    CUDNN_TF32,
    CUSPARSE,
    NETWORKS,
    TILED,
    Record,
    Row,
    best,
    timed,
    total_us,
    values,
)
from .training import DIRECTIONS, PAPER

Kind = Literal["curves", "bars", "points"]

#: What a series may be called, and the ways whose fastest it shows; any other name is a way.
SERIES: dict[str, tuple[str, ...]] = {
    "best direct rung": DIRECT_RUNGS, "best lowered rung": GEMM_RUNGS, "best sparse rung": SPARSE_RUNGS,
    "tiled rung": TILED, "cuDNN FP32": CUDNN_FP32, "cuDNN TF32": CUDNN_TF32, "cuDNN, any precision": CUDNN_ANY,
    "cuBLAS": ("cublas batched",), "cuBLAS by image": ("cublas image",), "cuSPARSE": CUSPARSE,
    "weights as code": (CODEGEN,), "TF32, channels first": CUDNN_TF32[:1], "TF32, channels last": CUDNN_TF32[1:],
}  # fmt: skip

#: What can be shown of a series at a place, and its unit.
MEASURES = {
    "us": "µs", "ms": "ms", "ratio": "times as long", "tflops": "TFLOP/s", "ce": "compute efficiency (eq. 8)",
    "ru": "utilisation of the longest kernel (eq. 11)",
}  # fmt: skip


@dataclass(frozen=True)
class View:
    """Which rows of a record are drawn, and how.

    across   the key of a case that the places along x have: "size", "batch", "layer", "network", "sparsity" …
    series   names of SERIES, or ways; each shows the fastest of its ways, of several layers the sum
    measure  a key of MEASURES
    over     of "ratio": the series whose time is 1
    where    other keys of a case and the values that they must have
    only     the places, in their order; all that are no ungrouped twins of a layer where it is empty
    mark     a place that the source names
    """

    across: str
    series: tuple[str, ...]
    measure: str = "us"
    over: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[Any, ...] = ()
    kind: Kind = "curves"
    log_x: bool = False
    log_y: bool = False
    mark: float | None = None

    @property
    def ways(self) -> tuple[str, ...]:
        """All ways that it needs."""
        named = (*self.series, self.over) if self.over else self.series
        return tuple(dict.fromkeys(way for name in named for way in SERIES.get(name, (name,))))

    def takes(self, case: Case) -> bool:
        """Whether it draws a case of its suite."""
        return self._has({**case.about, "pattern": case.pattern})

    def _has(self, about: Mapping[str, Any]) -> bool:
        place = about.get(self.across)
        if place is None or not all(about.get(key) == value for key, value in self.where.items()):
            return False
        if str(about.get("layer", "")).endswith(" ungrouped") and place != about["layer"]:
            return False  # a layer that is there with its groups must not count twice in a sum
        return place in self.only if self.only else not str(place).endswith(" ungrouped")


@dataclass(frozen=True)
class Chart:
    """`values[series][i]` stands at `places[i]`; None where nothing was measured."""

    kind: Kind
    x: str
    y: str
    places: tuple[Any, ...]
    values: Mapping[str, tuple[float | None, ...]]
    log_x: bool = False
    log_y: bool = False
    #: Where a horizontal line says "as fast".
    level: float | None = None
    #: A place that the source names.
    mark: float | None = None

    def at(self, series: str, place: Any) -> float | None:
        """One value."""
        return self.values[series][self.places.index(place)]


def chart(record: Record, view: View) -> Chart:
    """What a view shows of a record."""
    found = [row for row in rows(record) if view._has(row)]
    places = view.only or tuple(values(found, view.across))
    shown = {
        name: tuple(_value([row for row in found if row[view.across] == place], name, view) for place in places)
        for name in view.series
    }
    unit = f"{MEASURES[view.measure]} as {view.over}" if view.over else MEASURES[view.measure]
    labels = tuple(NETWORKS.get(place, place) if isinstance(place, str) else place for place in places)
    level = 1.0 if view.over else None
    return Chart(view.kind, _said(view.across), unit, labels, shown, view.log_x, view.log_y, level, view.mark)


def _said(across: str) -> str:
    """What stands at the x axis."""
    return {
        "size": "height and width", "batch": "images in a batch", "sparsity": "share of weights that are zero",
        "steps of": "layer",
    }.get(across, across)  # fmt: skip


def _value(here: list[Row], series: str, view: View) -> float | None:
    ways = SERIES.get(series, (series,))
    layers = [timed(here, case=name) for name in values(here, "case")]
    us = total_us(layers, ways) if layers else 0.0
    if not us:
        return None
    fastest = [row for layer in layers if (row := best(layer, ways))]
    if view.measure == "ratio":
        against = total_us(layers, SERIES.get(view.over, (view.over,)))
        return us / against if against else None
    if view.measure == "tflops":
        return sum(2 * row["size"] ** 3 for row in fastest) / us * 1e-6
    if view.measure == "ce":
        return _mean(row.get("ce") for row in fastest)
    if view.measure == "ru":
        return _mean(row["launches"][0].get("ru") if row.get("launches") else None for row in fastest)
    return us / 1e3 if view.measure == "ms" else us


def _mean(found: Iterable[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


# ---- the suite `training`


def _passes(record: Record) -> Chart:
    layers = (training_results.network(record, *PAPER) or {"layers": []})["layers"]
    shown = {way: tuple(layer[f"{way}_us"] / 1e3 for layer in layers) for way in ("forward", "backward")}
    return Chart("bars", "layer", "ms", tuple(layer["layer"] for layer in layers), shown)


def _stages(record: Record) -> Chart:
    runs = [run for run in training_results.runs(record) if not run["overlapped"]]
    names = tuple(f"{run['disk']}, {run['workers']} thread{'s' * (run['workers'] > 1)}" for run in runs)
    shown = {name: tuple(run["stage_ms"][stage] for stage in STAGES) for name, run in zip(names, runs)}
    return Chart("bars", "stage", "ms", tuple(STAGES), shown, log_y=True)


def _directions(record: Record) -> Chart:
    """The convolutions' three products by cuDNN and by cuBLAS image by image."""
    case = training_results.network(record, *PAPER) or {"ways": []}
    shown = {}
    for name, way in (("cuDNN", "cudnn"), ("cuBLAS by image", "cublas image")):
        found = [timed(case["ways"], way=way, direction=direction) for direction in DIRECTIONS]
        shown[name] = tuple(sum(row["us"] for row in rows) / 1e3 or None for rows in found)
    return Chart("bars", "product", "ms", DIRECTIONS, shown)


def _batches(measure: str) -> Callable[[Record], Chart]:
    def made(record: Record) -> Chart:
        by_batch = {}
        for batch in (128, 256, 512):
            case = training_results.network(record, PAPER[0], batch) or {"ways": []}
            ways = [row for row in timed(case["ways"], direction="forward") if row["way"] != "cublas image"]
            by_batch[batch] = {
                row["layer"]: row.get("ce") if measure == "ce" else row.get("kernel", {}).get("ru") for row in ways
            }
        layers = tuple(by_batch[PAPER[1]])
        shown = {f"batch {batch}": tuple(found.get(layer) for layer in layers) for batch, found in by_batch.items()}
        return Chart("bars", "layer, forwards", MEASURES[measure], layers, shown)

    return made


def _networks(record: Record) -> Chart:
    cases = training_results.networks(record)
    shown = {}
    for name, way in (("convolutions", "cudnn"), ("fully connected", "cublas")):
        found = [timed(case["ways"], way=way) for case in cases]
        shown[name] = tuple(training_results.efficiency(ways) if ways else None for ways in found)
    return Chart("bars", "network", MEASURES["ce"], tuple(case["case"] for case in cases), shown)


def _longest(record: Record) -> Chart:
    table = training_results.tables(record)[-1]
    names = tuple(f"{layer}, {direction}" for layer, direction, *_ in table.rows)
    return Chart("bars", "product", "ms", names, {"its time": tuple(float(row[-1]) for row in table.rows)})


#: The charts of the suite `training`, by name.
TRAINING: dict[str, Callable[[Record], Chart]] = {
    "passes": _passes, "stages": _stages, "directions": _directions, "ce": _batches("ce"), "ru": _batches("ru"),
    "networks": _networks, "longest": _longest,
}  # fmt: skip
