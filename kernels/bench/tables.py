"""What a record says: a few tables for each suite, and the sources' claims with what was measured of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import workloads
from .cases import DIRECT_RUNGS, GEMM_RUNGS, SPARSE_RUNGS, SQUARES, STEP_WAYS
from .compare import rows

Row = dict[str, Any]
Record = dict[str, Any]

#: The networks of the sparse paper, as its figures 7 to 10 name them.
NETWORKS = {"alexnet": "AlexNet", "googlenet": "GoogLeNet", "resnet50": "ResNet-50"}


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Verdict:
    """A source's claim and what a record says of it."""

    claim: str
    source: str
    measured: str


def tables(record: Record) -> list[Table]:
    """The tables of a record's suite."""
    makers = {"direct": _direct, "gemm": _gemm, "cudnn": _cudnn, "sparse": _sparse, "batch": _batch}
    return list(makers[record["suite"]](rows(record)))


def verdicts(record: Record) -> list[Verdict]:
    """The claims that a record's suite bears on."""
    makers: dict[str, Callable[[Record], Iterator[Verdict]]] = {
        "direct": _direct_claims, "cudnn": _cudnn_claims, "sparse": _sparse_claims, "batch": _batch_claims,
    }  # fmt: skip
    return list(makers[record["suite"]](record)) if record["suite"] in makers else []


def origin(record: Record) -> str:
    """On what, when and with which versions a record was made, in one line."""
    driver = record["device_state"]["before"].get("driver_version", "unknown")
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items() if name != "convladder")
    return f"{record['device']['device']}, driver {driver}, {versions}, {record['date'][:10]}"


def held_down(record: Record) -> str:
    """What held the clocks down during the measurement; empty where nothing did or nothing can tell."""
    reasons = {state.get("held_down_by", "") for state in (*record["device_state"].values(), *record["cases"])}
    return ", ".join(sorted(reasons - {"", "nothing", "idle"}))


# ---- choosing rows


def timed(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows with a time that have these values."""
    return [row for row in rows if "us" in row and all(row.get(k) == v for k, v in wanted.items())]


def best(rows: Iterable[Row], ways: Iterable[str]) -> Row | None:
    """The fastest row among some ways."""
    allowed = set(ways)
    return min((row for row in rows if row["way"] in allowed), key=lambda row: row["us"], default=None)


def geometric_mean(ratios: Iterable[float]) -> float:
    logs = [math.log(r) for r in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _values(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows if key in row))


def _us(row: Row | None) -> str:
    return "–" if row is None else f"{row['us']:.1f}"


def _ms(row: Row | None) -> str:
    return "–" if row is None else f"{row['us'] / 1e3:.3f}"


def _ratio(slow: Row | None, fast: Row | None) -> str:
    return "–" if slow is None or fast is None else f"{slow['us'] / fast['us']:.2f}"


# ---- direct

_CUDNN_FP32 = ("cudnn fp32 nchw", "cudnn fp32 nhwc")
_CUDNN_ANY = (*_CUDNN_FP32, "cudnn tf32 nchw", "cudnn tf32 nhwc")


def _direct(rows: list[Row]) -> Iterator[Table]:
    columns = (
        "input",
        "best direct rung",
        "µs",
        "of the limit",
        "cuDNN FP32, µs",
        "cuDNN best, µs",
        "cuBLAS, µs",
        "cuDNN best / rung",
    )
    lines = []
    for size in _values(rows, "size"):
        here = timed(rows, size=size, stride=1)
        rung, fp32, anyhow = best(here, DIRECT_RUNGS), best(here, _CUDNN_FP32), best(here, _CUDNN_ANY)
        if rung is not None:
            lines.append(
                (
                    f"3×{size}×{size}", rung["way"], _us(rung), f"{rung['percent_of_limit']:.0f} %", _us(fp32),
                    _us(anyhow), _us(best(here, ("cublas batched",))), _ratio(anyhow, rung),
                )
            )  # fmt: skip
    yield Table("One 3×3 filter, stride 1, pad 1, one image", columns, tuple(lines))


def _direct_claims(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    report: list[float] = []
    larger: list[float] = []
    for size in _values(solved, "size"):
        for stride in _values(timed(solved, size=size), "stride"):
            here = timed(solved, size=size, stride=stride)
            rung, library = best(here, DIRECT_RUNGS), best(here, _CUDNN_ANY)
            if rung and library:
                (report if size in workloads.REPORT_SIZES else larger).append(library["us"] / rung["us"])
    if report:
        yield Verdict(
            "hand-written kernels are faster than cuDNN on inputs of 31 to 511",
            "lab report, 3.1",
            f"{_holds(min(report) >= 1)}: best cuDNN plan over best direct rung {min(report):.2f} to {max(report):.2f}",
        )
    if larger:
        yield Verdict(
            "cuDNN is about 6 times as fast on large inputs",
            "lab report, 3.1",
            f"{_holds(max(larger) <= 1 / 3)} with one filter of 3 channels: there too the ratio is {min(larger):.2f} "
            f"to {max(larger):.2f}",
        )


def _gains(ratios: Iterable[float]) -> str:
    """Ratios of times as percentages gained."""
    return ", ".join(f"{100 * (r - 1):+.0f} %" for r in ratios)


def _holds(whether: bool) -> str:
    return "holds" if whether else "does not hold"


# ---- matrix products


def _gemm(rows: list[Row]) -> Iterator[Table]:
    lines = []
    for way in (*GEMM_RUNGS, "cublas batched"):
        cells = []
        for size in SQUARES:
            here = timed(rows, size=size)
            mine, library = best(here, (way,)), best(here, ("cublas batched",))
            rate = f"{2 * size**3 / mine['us'] * 1e-6:.1f}" if mine else "–"
            cells.append(f"{rate} ({_ratio(library, mine)})")
        lines.append(("cuBLAS" if way.startswith("cublas") else way, *cells))
    columns = ("rung", *(f"{size}³" for size in SQUARES))
    yield Table("Matrix product, TFLOP/s (share of cuBLAS FP32)", columns, tuple(lines))


# ---- cuDNN


def _cudnn(rows: list[Row]) -> Iterator[Table]:
    ways = (*_CUDNN_ANY, "cublas batched", "cublas converted", "cublas image")
    heads = (
        "FP32 NCHW",
        "FP32 NHWC",
        "TF32 NCHW",
        "TF32 NHWC",
        "cuBLAS batched",
        "…unrolled before",
        "cuBLAS by image",
    )
    lines = []
    for layer in _values(rows, "layer"):
        here = timed(rows, layer=layer)
        found = [best(here, (way,)) for way in ways]
        efficiency = [
            f"{row['ce']:.2f}" if row and "ce" in row else "–" for row in (best(here, _CUDNN_FP32), found[-1])
        ]
        lines.append((layer, *map(_ms, found), *efficiency))
    columns = ("layer", *(f"{head}, ms" for head in heads), "CE cuDNN FP32", "CE cuBLAS by image")
    yield Table("AlexNet, batch 128", columns, tuple(lines))
    yield _longest_kernels(rows)


def _longest_kernels(rows: list[Row]) -> Table:
    """Of each layer and way the kernel that takes the most time, and how its grid fills the device."""
    lines = []
    for row in timed(rows):
        if row.get("launches"):
            k = row["launches"][0]
            sizes = ("×".join(map(str, k[what])) for what in ("grid", "block"))
            shares = (f"{k[what]:.2f}" if what in k else "–" for what in ("ru", "ru_real", "occupancy"))
            name = k["name"] if len(k["name"]) <= 48 else k["name"][:47] + "…"
            lines.append((row["layer"], row["way"], name, str(k["times"]), *sizes, str(k["registers"]), *shares))
    columns = ("layer", "way", "kernel", "times", "grid", "block", "registers", "RU (eq. 11)", "RU, real", "occupancy")
    return Table("The kernels that take the most time", columns, tuple(lines))


def _cudnn_claims(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    for ways, precision in ((_CUDNN_FP32, "strict FP32"), (_CUDNN_ANY, "any precision")):
        ratios = []
        for layer in _values(solved, "layer"):
            here = timed(solved, layer=layer)
            mine, image = best(here, ways), best(here, ("cublas image",))
            if mine and image:
                ratios.append(image["us"] / mine["us"])
        if ratios:
            yield Verdict(
                "on convolutions cuBLAS takes 4 times as long as cuDNN, at half its compute efficiency",
                "training paper, 5.1",
                f"cuDNN in {precision}: cuBLAS by image takes {min(ratios):.1f} to {max(ratios):.1f} times as long",
            )


# ---- sparse layers

_CUBLAS = ("cublas batched", "cublas image")
_CUSPARSE = ("cusparse batched", "cusparse image")


def _layers(rows: list[Row], network: str, pattern: str = "random") -> Iterator[tuple[str, list[Row]]]:
    here = timed(rows, network=network, pattern=pattern)
    for layer in _values(here, "layer"):
        yield layer, [row for row in here if row["layer"] == layer]


def _sparse(rows: list[Row]) -> Iterator[Table]:
    columns = (
        "layer", "zeros", "csr_global, ms", "csr", "csr_tiled", "best rung, ms", "which", "of its loads",
        "cuBLAS batched", "by image", "cuSPARSE", "cuDNN FP32", "batched cuBLAS / best", "cuSPARSE / best",
        "uneven rows",
    )  # fmt: skip
    for network in _values(rows, "network"):
        lines = []
        for layer, here in _layers(rows, network):
            mine = best(here, SPARSE_RUNGS)
            uneven = best(timed(rows, network=network, layer=layer, pattern="uneven"), SPARSE_RUNGS)
            ways = [best(here, (way,)) for way in ("csr_global", "csr", "csr_tiled")]
            batched, image = (best(here, (way,)) for way in _CUBLAS)
            cusparse, cudnn = best(here, _CUSPARSE), best(here, ("cudnn fp32 nchw",))
            lines.append(
                (
                    layer, f"{here[0]['sparsity']:.1%}", *map(_ms, ways), _ms(mine), mine["way"] if mine else "–",
                    f"{mine['percent_of_loads']:.0f} %" if mine and "percent_of_loads" in mine else "–",
                    *map(_ms, (batched, image, cusparse, cudnn)), _ratio(batched, mine), _ratio(cusparse, mine),
                    _ms(uneven),
                )
            )  # fmt: skip
        yield Table(f"{NETWORKS.get(network, network)}, batch {_values(rows, 'batch')[0]}", columns, tuple(lines))
    yield _networks(rows)
    yield _steps_table(rows)


def _steps_table(rows: list[Row]) -> Table:
    lines = []
    for layer in _values(rows, "steps of"):
        found = [best(timed(rows, **{"steps of": layer}), (way,)) for way in STEP_WAYS]
        lines.append((layer, *(f"{_us(row)} ({row['percent_of_limit']:.0f} %)" if row else "–" for row in found)))
    columns = ("layer", *(way.removeprefix("step ") for way in STEP_WAYS))
    return Table("Steps before a rung, µs (share of the bandwidth)", columns, tuple(lines))


def networks_of(record: Record) -> Table:
    """Of the suite `sparse`, what its networks came to."""
    return _networks(rows(record))


def _networks(rows: list[Row]) -> Table:
    """Each network's sparse layers together, and the geometric mean of the ratios of its layers."""
    columns = (
        "network", "layers", "best rungs, ms", "cuBLAS batched", "by image", "cuSPARSE", "cuDNN FP32",
        "batched cuBLAS / best: all, mean, least", "cuSPARSE / best: all, mean, least",
    )  # fmt: skip
    lines = []
    for network, name in NETWORKS.items():
        found = [here for layer, here in _layers(rows, network) if "ungrouped" not in layer]
        sums = [_sum(found, ways) for ways in (SPARSE_RUNGS, *((w,) for w in _CUBLAS), _CUSPARSE, ("cudnn fp32 nchw",))]
        if found and sums[0]:
            against = (_against(found, ("cublas batched",)), _against(found, _CUSPARSE))
            lines.append((name, str(len(found)), *(f"{s / 1e3:.2f}" if s else "–" for s in sums), *against))
    return Table("Sparse layers of a network together", columns, tuple(lines))


def _sum(layers: list[list[Row]], ways: Iterable[str]) -> float:
    """Microseconds of all layers, each by its fastest way; 0 where a layer has none."""
    found = [best(here, ways) for here in layers]
    return sum(row["us"] for row in found if row) if all(found) else 0.0


def _ratios(layers: list[list[Row]], slow: Iterable[str], fast: Iterable[str] = SPARSE_RUNGS) -> list[float]:
    pairs = [(best(here, slow), best(here, fast)) for here in layers]
    return [a["us"] / b["us"] for a, b in pairs if a and b]


def _against(layers: list[list[Row]], ways: Iterable[str]) -> str:
    ratios, mine, theirs = _ratios(layers, ways), _sum(layers, SPARSE_RUNGS), _sum(layers, ways)
    if not ratios or not theirs:
        return "–"
    return f"{theirs / mine:.2f}, {geometric_mean(ratios):.2f}, {min(ratios):.2f}"


#: Totals over cuBLAS lowering and over cuSPARSE (sparse paper, 4.2; AlexNet at batch 64, the others at 128).
_PAPER_TOTALS = {"alexnet": (1.10, 1.41), "googlenet": (1.34, 1.21), "resnet50": (2.43, 1.97)}


def _sparse_claims(record: Record) -> Iterator[Verdict]:
    yield from _steps(rows(record))
    yield from _totals(rows(record))
    swept = record["crossover"]
    for dense in dict.fromkeys(row["dense"] for row in swept):
        found = [(row["layer"], row["sparsity"]) for row in swept if row["dense"] == dense]
        said = ", ".join(f"{layer} {'never' if s is None else f'{s:.2f}'}" for layer, s in found)
        yield Verdict(
            "sparse convolution pays where more than 0.6 of the weights are zero",
            "sparse paper, 4.1",
            f"the best rung overtakes {'cuDNN FP32' if dense == 'cudnn' else 'batched cuBLAS lowering'} at: {said}",
        )


def _steps(rows: list[Row]) -> Iterator[Verdict]:
    """Which step from the paper's base to its tiled kernel gives how much."""
    alexnet = [here for layer, here in _layers(rows, "alexnet") if "ungrouped" not in layer]
    alone = [here for layer, here in _layers(rows, "alexnet") if layer == "conv3" or "ungrouped" in layer]
    for layers, grouping in ((alexnet, "with groups"), (alone, "ungrouped")):
        steps = [_ratios(layers, (slow,), (fast,)) for slow, fast in (("csr_global", "csr"), ("csr", "csr_tiled"))]
        if all(steps):
            register, tiles = (_gains(ratios) for ratios in steps)
            yield Verdict(
                "tiles in shared memory make the base kernel 46.7/41.1/41.5/42.6 % faster on conv2 to conv5",
                "sparse paper, 4.1",
                f"AlexNet {grouping}: a register for the sum gives {register}; the tiles by themselves {tiles}",
            )


def _totals(rows: list[Row]) -> Iterator[Verdict]:
    for network, (dense, sparse) in _PAPER_TOTALS.items():
        found = [here for layer, here in _layers(rows, network) if "ungrouped" not in layer]
        mine, tiled = _sum(found, SPARSE_RUNGS), _sum(found, ("csr_tiled",))
        if not mine or not tiled:
            continue
        image, batched, cusparse = (_sum(found, ways) for ways in (("cublas image",), ("cublas batched",), _CUSPARSE))
        yield Verdict(
            f"{NETWORKS[network]}'s sparse layers: {dense:.2f} over cuBLAS lowering, {sparse:.2f} over cuSPARSE",
            "sparse paper, 4.2",
            f"its tiled kernel {image / tiled:.2f} over cuBLAS by image, {batched / tiled:.2f} batched, "
            f"{cusparse / tiled:.2f} over cuSPARSE; the best rungs {image / mine:.2f}, {batched / mine:.2f}, "
            f"{cusparse / mine:.2f}",
        )
        lost = sum(r < 1 for r in _ratios(found, ("cublas batched",), ("csr_tiled",)))
        if network == "resnet50":
            most = [max(_ratios(found, ways, ("csr_tiled",))) for ways in (("cublas image",), _CUSPARSE)]
            yield Verdict(
                "a layer of ResNet gains up to 5.00 over cuBLAS and 3.22 over cuSPARSE, and none loses to cuBLAS",
                "sparse paper, 4.2",
                f"its tiled kernel up to {most[0]:.2f} over cuBLAS by image and {most[1]:.2f} over cuSPARSE; {lost} of "
                f"{len(found)} layers lose to batched cuBLAS",
            )


# ---- batch


def _batch(rows: list[Row]) -> Iterator[Table]:
    ways = {
        "best rungs, ms": SPARSE_RUNGS, "cuBLAS batched": ("cublas batched",), "cuBLAS by image": ("cublas image",),
        "cuSPARSE": _CUSPARSE, "cuDNN FP32": ("cudnn fp32 nchw",),
    }  # fmt: skip
    lines = []
    for images, layers in _batches(rows):
        sums = [_sum(layers, choice) for choice in ways.values()]
        ratios = [f"{s / sums[0]:.2f}" if s and sums[0] else "–" for s in sums[1:]]
        lines.append((str(images), *(f"{s / 1e3:.3f}" if s else "–" for s in sums), *ratios))
    columns = ("batch", *ways, *(f"{name} / best" for name in list(ways)[1:]))
    yield Table("AlexNet conv2 to conv5 together", columns, tuple(lines))


def _batches(rows: list[Row]) -> Iterator[tuple[int, list[list[Row]]]]:
    for images in _values(rows, "batch"):
        yield images, [timed(rows, batch=images, layer=layer) for layer in _values(rows, "layer")]


def _batch_claims(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    at_64 = next((layers for images, layers in _batches(solved) if images == 64), [])
    if ratios := _ratios(at_64, ("cublas image",), ("csr_tiled",)):
        batched, cusparse = (_ratios(at_64, ways, ("csr_tiled",)) for ways in (("cublas batched",), _CUSPARSE))
        yield Verdict(
            "at batch 64 conv2 loses slightly to cuBLAS lowering, conv3 to conv5 gain 41.1/26.2/40.1 %; over cuSPARSE "
            "conv2 to conv5 gain 29.6/39.2/47.1/67.4 %",
            "sparse paper, 4.2",
            f"its tiled kernel, with groups: {_gains(ratios)} over cuBLAS by image, {_gains(batched)} batched, "
            f"{_gains(cusparse)} over cuSPARSE",
        )
    for ways, library, claim in (
        (("cublas image",), "cuBLAS by image", "over cuBLAS the speed-up is largest at batch 192"),
        (("cublas batched",), "cuBLAS batched", "over cuBLAS the speed-up is largest at batch 192"),
        (_CUSPARSE, "cuSPARSE", "over cuSPARSE the speed-up is largest at batch 32 to 64"),
    ):
        gains = {
            images: _sum(layers, ways) / mine
            for images, layers in _batches(solved)
            if (mine := _sum(layers, SPARSE_RUNGS))
        }
        if gains:
            most = max(gains, key=lambda images: gains[images])
            yield Verdict(
                claim,
                "sparse paper, figure 9",
                f"against {library} largest at batch {most} ({gains[most]:.2f}); "
                f"{min(gains)}: {gains[min(gains)]:.2f}, {max(gains)}: {gains[max(gains)]:.2f}",
            )


# ---- Markdown


def markdown(table: Table) -> str:
    lines = [" | ".join(row) for row in (table.columns, ("---",) * len(table.columns), *table.rows)]
    return f"**{table.title}**\n\n" + "\n".join(f"| {line} |" for line in lines)
