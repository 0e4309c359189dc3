"""What a record says: a few tables for each suite, and the sources' claims with what was measured of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .cases import CODEGEN, DIRECT_RUNGS, GEMM_RUNGS, LOWERING_STEPS, SPARSE_RUNGS, SQUARES, STEP_WAYS
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


def tables(record: Record) -> list[Table]:
    """The tables of a record's suite."""
    if record["suite"] == "direct":
        return list(_direct(rows(record), record["limits"]["empty_launch_us"]))
    makers = {
        "lowering": _lowering, "gemm": _gemm, "plans": _plans, "cudnn": _cudnn, "sparse": _sparse, "batch": _batch,
        "codegen": _codegen,
    }  # fmt: skip
    return list(makers[record["suite"]](rows(record)))


def origin(record: Record) -> str:
    """On what, when and with which versions a record was made, in one line."""
    state = record["device_state"].get("before")
    driver = [f"driver {state.get('driver_version', 'unknown')}"] if state else []  # none where no GPU was needed
    versions = [f"{name} {number}" for name, number in record["versions"].items() if name != "convladder"]
    return ", ".join([record["device"]["device"], *driver, *versions, record["date"][:10]])


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


def values(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows if key in row))


def _us(row: Row | None) -> str:
    return "–" if row is None else f"{row['us']:.1f}"


def _ms(row: Row | None) -> str:
    return "–" if row is None else f"{row['us'] / 1e3:.3f}"


def ratio(slow: Row | None, fast: Row | None) -> str:
    return "–" if slow is None or fast is None else f"{slow['us'] / fast['us']:.2f}"


# ---- direct

CUDNN_FP32 = ("cudnn fp32 nchw", "cudnn fp32 nhwc")
CUDNN_TF32 = ("cudnn tf32 nchw", "cudnn tf32 nhwc")
CUDNN_ANY = (*CUDNN_FP32, *CUDNN_TF32)


def _direct(rows: list[Row], empty_us: float) -> Iterator[Table]:
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
    for size in values(rows, "size"):
        here = timed(rows, size=size, stride=1)
        rung, fp32, anyhow = best(here, DIRECT_RUNGS), best(here, CUDNN_FP32), best(here, CUDNN_ANY)
        if rung is not None:
            lines.append(
                (
                    f"3×{size}×{size}", rung["way"], _us(rung), f"{rung['percent_of_limit']:.0f} %", _us(fp32),
                    _us(anyhow), _us(best(here, ("cublas batched",))), ratio(anyhow, rung),
                )
            )  # fmt: skip
    title = f"One 3×3 filter, stride 1, pad 1, one image (an empty kernel takes {empty_us:.1f} µs)"
    yield Table(title, columns, tuple(lines))


# ---- lowering


def _lowering(rows: list[Row]) -> Iterator[Table]:
    columns = (
        "input", "direct_report", "im2col_rows", "gemv_rows", "both", "im2col", "gemv", "both", "direct_coalesced",
    )  # fmt: skip
    lines = []
    for size in values(rows, "size"):
        here = timed(rows, size=size)
        by_rows, turned = (
            [best(here, (way,)) for way in (*steps, steps[1].removeprefix("step "))]
            for steps in (LOWERING_STEPS[:2], LOWERING_STEPS[2:])
        )
        direct = [best(here, (way,)) for way in ("direct_report", "direct_coalesced")]
        lines.append((f"3×{size}×{size}", *map(_us, (direct[0], *by_rows, *turned, direct[1]))))
    yield Table("Lowering step by step, one 3×3 filter, µs", columns, tuple(lines))
    swept = []
    for filters in values(rows, "filters"):
        here = timed(rows, filters=filters)
        rung, product = best(here, DIRECT_RUNGS), best(here, GEMM_RUNGS)
        fp32, anyhow = best(here, CUDNN_FP32), best(here, CUDNN_ANY)
        swept.append(
            (
                str(filters), *map(_us, (rung, product, best(here, ("cublas batched",)), fp32, anyhow)),
                ratio(rung, fp32),
            )
        )  # fmt: skip
    heads = ("filters", "best direct rung", "best lowered rung", "cuBLAS", "cuDNN FP32", "cuDNN", "rung / cuDNN FP32")
    yield Table("One image of 64×56×56, 3×3 filters, µs", heads, tuple(swept))


# ---- matrix products


def _gemm(rows: list[Row]) -> Iterator[Table]:
    lines = []
    for way in (*GEMM_RUNGS, "cublas batched"):
        cells = []
        for size in SQUARES:
            here = timed(rows, size=size)
            mine, library = best(here, (way,)), best(here, ("cublas batched",))
            rate = f"{2 * size**3 / mine['us'] * 1e-6:.1f}" if mine else "–"
            cells.append(f"{rate} ({ratio(library, mine)})")
        lines.append(("cuBLAS" if way.startswith("cublas") else way, *cells))
    columns = ("rung", *(f"{size}³" for size in SQUARES))
    yield Table("Matrix product, TFLOP/s (share of cuBLAS FP32)", columns, tuple(lines))


# ---- cuDNN


def _plans(rows: list[Row]) -> Iterator[Table]:
    lines = []
    for row in timed(rows):
        times = sorted(us for *_, us in row.get("every_plan", [])) or [row["us"]]
        spread = (f"{us:.1f}" for us in (times[0], times[len(times) // 2], times[-1]))
        workspace = f"{row.get('workspace_bytes', 0) / 1e6:.1f}"
        lines.append((row["layer"], row["way"], row.get("plans", "–"), *spread, workspace))
    columns = ("", "way", "plans", "fastest, µs", "median, µs", "slowest, µs", "its workspace, MB")
    yield Table("Every plan that cuDNN builds (AlexNet's layer: batch 128)", columns, tuple(lines))


def _cudnn(rows: list[Row]) -> Iterator[Table]:
    ways = (*CUDNN_ANY, "cublas batched", "cublas converted", "cublas image")
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
    for layer in values(rows, "layer"):
        here = timed(rows, layer=layer)
        found = [best(here, (way,)) for way in ways]
        efficiency = [f"{row['ce']:.2f}" if row and "ce" in row else "–" for row in (best(here, CUDNN_FP32), found[-1])]
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


# ---- sparse layers


CUBLAS = ("cublas batched", "cublas image")
CUSPARSE = ("cusparse batched", "cusparse image")
#: The sparse paper's tiled kernel, in blocks of one size and in blocks cut to the output.
TILED = ("csr_tiled", "csr_fitted")


def layers_of(rows: list[Row], network: str, pattern: str = "random") -> Iterator[tuple[str, list[Row]]]:
    here = timed(rows, network=network, pattern=pattern)
    for layer in values(here, "layer"):
        yield layer, [row for row in here if row["layer"] == layer]


def _sparse(rows: list[Row]) -> Iterator[Table]:
    columns = (
        "layer", "zeros", "csr_global, ms", "csr", "csr_tiled", "csr_fitted", "best rung, ms", "which", "of its loads",
        "cuBLAS batched", "by image", "cuSPARSE", "cuDNN FP32", "cuDNN TF32 NHWC", "batched cuBLAS / best",
        "cuSPARSE / best", "cuDNN FP32 / best", "uneven rows",
    )  # fmt: skip
    for network in values(rows, "network"):
        lines = []
        for layer, here in layers_of(rows, network):
            mine = best(here, SPARSE_RUNGS)
            uneven = best(timed(rows, network=network, layer=layer, pattern="uneven"), SPARSE_RUNGS)
            ways = [best(here, (way,)) for way in ("csr_global", "csr", *TILED)]
            batched, image = (best(here, (way,)) for way in CUBLAS)
            cusparse, cudnn, tf32 = best(here, CUSPARSE), best(here, CUDNN_FP32), best(here, CUDNN_TF32)
            lines.append(
                (
                    layer, f"{here[0]['sparsity']:.1%}", *map(_ms, ways), _ms(mine), mine["way"] if mine else "–",
                    f"{mine['percent_of_loads']:.0f} %" if mine and "percent_of_loads" in mine else "–",
                    *map(_ms, (batched, image, cusparse, cudnn, tf32)),
                    *(ratio(way, mine) for way in (batched, cusparse, cudnn)), _ms(uneven),
                )
            )  # fmt: skip
        yield Table(f"{NETWORKS.get(network, network)}, batch {values(rows, 'batch')[0]}", columns, tuple(lines))
    yield _networks(rows)
    yield _many_channels(rows)
    yield _steps_table(rows)


def _many_channels(rows: list[Row]) -> Table:
    """Large images whose channels do not fit into shared memory at once, a row of each."""
    ways = ("csr", *TILED, "csr_images", "csr_spanning", "csr_staged")
    lines = []
    for name in values(rows, "channels"):
        here = timed(rows, channels=name)
        libraries = [best(here, those) for those in (("cublas batched",), CUSPARSE, CUDNN_FP32)]
        lines.append((name, *map(_ms, [best(here, (way,)) for way in ways]), *map(_ms, libraries)))
    columns = ("image", *(f"{way}, ms" for way in ways), "cuBLAS batched", "cuSPARSE", "cuDNN FP32")
    return Table("Large images of many channels, 128 filters 3×3, 90 % zeros, batch 16", columns, tuple(lines))


def _steps_table(rows: list[Row]) -> Table:
    lines = []
    for layer in values(rows, "steps of"):
        found = [best(timed(rows, **{"steps of": layer}), (way,)) for way in STEP_WAYS]
        lines.append((layer, *(f"{_us(row)} ({row['percent_of_limit']:.0f} %)" if row else "–" for row in found)))
    columns = ("layer", *(way.removeprefix("step ") for way in STEP_WAYS))
    return Table("Steps before a rung, µs (share of the bandwidth)", columns, tuple(lines))


def losses(record: Record) -> str:
    """Of the suite `sparse`, the layers on which cuDNN in strict FP32 is faster than every rung; empty: none."""
    found = []
    for network, name in NETWORKS.items():
        slower = [layer for layer, here in layers_of(rows(record), network) if min(speedups([here], CUDNN_FP32)) < 1]
        found += [f"{name}: {', '.join(slower)}"] * bool(slower)
    return "; ".join(found)


def _networks(rows: list[Row]) -> Table:
    """Each network's sparse layers together, and the geometric mean of the ratios of its layers."""
    ways = {
        "best rungs, ms": SPARSE_RUNGS, "cuBLAS batched": ("cublas batched",), "by image": ("cublas image",),
        "cuSPARSE": CUSPARSE, "cuDNN FP32": CUDNN_FP32, "cuDNN TF32 NHWC": CUDNN_TF32,
    }  # fmt: skip
    beside = {"batched cuBLAS": ("cublas batched",), "cuSPARSE": CUSPARSE, "cuDNN FP32": CUDNN_FP32}
    lines = []
    for name, layers in _named_layers(rows):
        sums = [total_us(layers, choice) for choice in ways.values()]
        if layers and sums[0]:
            cells = [f"{s / 1e3:.2f}" if s else "–" for s in sums]
            wins = sum(gain > 1 for gain in speedups(layers, CUDNN_TF32))
            lines.append(
                (name, str(len(layers)), *cells, *(_against(layers, other) for other in beside.values()), str(wins))
            )
    columns = (
        "network", "layers", *ways, *(f"{name} / best: all, mean, least" for name in beside), "layers faster than TF32",
    )  # fmt: skip
    return Table("Sparse layers of a network together, batch 128", columns, tuple(lines))


def _named_layers(rows: list[Row]) -> Iterator[tuple[str, list[list[Row]]]]:
    """The layers of each network; and where some have groups, those that the paper prints without them."""
    for network, name in NETWORKS.items():
        found = dict(layers_of(rows, network))
        grouped = {layer.removesuffix(" ungrouped") for layer in found if layer.endswith(" ungrouped")}
        yield name, [here for layer, here in found.items() if not layer.endswith(" ungrouped")]
        if grouped:
            yield f"{name}, ungrouped", [here for layer, here in found.items() if layer not in grouped]


def paper_layers(rows: list[Row]) -> list[list[Row]]:
    """Every layer of the sparse paper's networks once, with its groups."""
    return [here for name, layers in _named_layers(rows) if not name.endswith("ungrouped") for here in layers]


def total_us(layers: list[list[Row]], ways: Iterable[str]) -> float:
    """Microseconds of all layers, each by its fastest way; 0 where a layer has none."""
    found = [best(here, ways) for here in layers]
    return sum(row["us"] for row in found if row) if all(found) else 0.0


def speedups(layers: list[list[Row]], slow: Iterable[str], fast: Iterable[str] = SPARSE_RUNGS) -> list[float]:
    pairs = [(best(here, slow), best(here, fast)) for here in layers]
    return [a["us"] / b["us"] for a, b in pairs if a and b]


def _against(layers: list[list[Row]], ways: Iterable[str]) -> str:
    gains, mine, theirs = speedups(layers, ways), total_us(layers, SPARSE_RUNGS), total_us(layers, ways)
    if not gains or not theirs:
        return "–"
    return f"{theirs / mine:.2f}, {geometric_mean(gains):.2f}, {min(gains):.2f}"


# ---- batch


def _batch(rows: list[Row]) -> Iterator[Table]:
    ways = {
        "best rungs, ms": SPARSE_RUNGS, "cuBLAS batched": ("cublas batched",), "cuBLAS by image": ("cublas image",),
        "cuSPARSE": CUSPARSE, "cuDNN FP32": CUDNN_FP32,
    }  # fmt: skip
    lines = []
    for images, layers in batches(rows):
        sums = [total_us(layers, choice) for choice in ways.values()]
        ratios = [f"{s / sums[0]:.2f}" if s and sums[0] else "–" for s in sums[1:]]
        lines.append((str(images), *(f"{s / 1e3:.3f}" if s else "–" for s in sums), *ratios))
    columns = ("batch", *ways, *(f"{name} / best" for name in list(ways)[1:]))
    yield Table("AlexNet conv2 to conv5 together", columns, tuple(lines))


def batches(rows: list[Row]) -> Iterator[tuple[int, list[list[Row]]]]:
    for images in values(rows, "batch"):
        yield images, [timed(rows, batch=images, layer=layer) for layer in values(rows, "layer")]


# ---- weights as code

#: Zeros from which the code is held to its targets.
MOSTLY_ZERO = 0.9


def _codegen(rows: list[Row]) -> Iterator[Table]:
    yield _code_of_networks(rows)
    for network in NETWORKS:
        yield _code_of_layers(rows, network)


#: What the code is set beside.
_BESIDE_CODE = {
    "best CSR rung": SPARSE_RUNGS, "cuDNN FP32": CUDNN_FP32, "TF32 NCHW": ("cudnn tf32 nchw",),
    "TF32 NHWC": ("cudnn tf32 nhwc",), "cuBLAS batched": ("cublas batched",), "cuSPARSE": CUSPARSE,
}  # fmt: skip


def _code_of_networks(rows: list[Row]) -> Table:
    """Each network's layers together, and the geometric means of the ratios of the layers."""
    groups = dict(_named_layers(rows))
    mostly_zero = [here for here in paper_layers(rows) if here[0]["sparsity"] >= MOSTLY_ZERO]
    groups[f"layers with {MOSTLY_ZERO:.0%} zeros or more"] = mostly_zero
    lines = []
    for name, layers in groups.items():
        mine, sums = total_us(layers, (CODEGEN,)), [total_us(layers, ways) for ways in _BESIDE_CODE.values()]
        if layers and mine:
            made = [row["generation_s"] + row["compile_s"] for here in layers if (row := best(here, (CODEGEN,)))]
            means = [geometric_mean(speedups(layers, ways, (CODEGEN,))) for ways in _BESIDE_CODE.values()]
            cells = (f"{s / 1e3:.2f} ({mean:.2f})" if s else "–" for s, mean in zip(sums, means, strict=True))
            lines.append((name, str(len(layers)), f"{mine / 1e3:.2f}", *cells, f"{sum(made):.1f}, {max(made):.1f}"))
    columns = ("network", "layers", "as code, ms", *_BESIDE_CODE, "made in, s: all, longest")
    return Table("Weights as code, batch 128 (geometric mean of the layers' time / code's)", columns, tuple(lines))


def code_of_layers(record: Record, network: str) -> Table:
    """Of the suite `codegen`, the layers of one network."""
    return _code_of_layers(rows(record), network)


def _code_of_layers(rows: list[Row], network: str) -> Table:
    columns = (
        "layer", "zeros", "as code, ms", "of the limit", *(f"{name}, ms" for name in _BESIDE_CODE), "FP32 / code",
        "TF32 NCHW / code", "TF32 NHWC / code", "filters × points (channels, splits, rounds)", "kernels",
        "code, KB", "made in, s", "pays after images, against FP32",
    )  # fmt: skip
    lines = []
    for layer, here in layers_of(rows, network):
        if mine := best(here, (CODEGEN,)):
            beside = {name: best(here, ways) for name, ways in _BESIDE_CODE.items()}
            made_s = mine["generation_s"] + mine["compile_s"]
            lines.append(
                (
                    layer, f"{mine['sparsity']:.1%}", _ms(mine), f"{mine['percent_of_limit']:.0f} %",
                    *map(_ms, beside.values()),
                    *(ratio(beside[name], mine) for name in ("cuDNN FP32", "TF32 NCHW", "TF32 NHWC")),
                    _cut(mine["choice"]), str(mine["kernels"]),
                    f"{mine['code_bytes'] / 1e3:.0f}", f"{made_s:.1f}",
                    _images_to_pay(made_s, mine, beside["cuDNN FP32"]),
                )
            )  # fmt: skip
    return Table(f"{NETWORKS[network]}, weights as code, batch 128", columns, tuple(lines))


def _cut(choice: dict[str, int]) -> str:
    """How the code is cut."""
    return "{filters} × {points} ({channels}, {splits}, {rounds})".format(**choice)


def _images_to_pay(made_s: float, mine: Row, other: Row | None) -> str:
    """After how many images the time to make the code is won back from another way."""
    if other is None:
        return "–"
    gain_us = (other["us"] - mine["us"]) / mine["batch"]
    return f"{made_s * 1e6 / gain_us:,.0f}" if gain_us > 0 else "never"


# ---- Markdown


def markdown(table: Table) -> str:
    """A table; one without a title by itself."""
    lines = [" | ".join(row) for row in (table.columns, ("---",) * len(table.columns), *table.rows)]
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + "\n".join(f"| {line} |" for line in lines)
