"""The sources' claims, each with what a record says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .. import workloads
from .cases import DIRECT_RUNGS, SPARSE_RUNGS
from .compare import rows
from .tables import (
    CUDNN_ANY,
    CUDNN_FP32,
    CUSPARSE,
    NETWORKS,
    TILED,
    Record,
    Row,
    batches,
    best,
    layers_of,
    ratio,
    speedups,
    timed,
    total_us,
    values,
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A source's claim and what a record says of it."""

    claim: str
    source: str
    measured: str


def verdicts(record: Record) -> list[Verdict]:
    """The claims that a record's suite bears on."""
    makers: dict[str, Callable[[Record], Iterator[Verdict]]] = {
        "direct": _direct, "lowering": _lowering, "gemm": _gemm, "plans": _none, "cudnn": _cudnn, "sparse": _sparse,
        "batch": _batch, "codegen": _none,
    }  # fmt: skip
    return list(makers[record["suite"]](record))


def _none(record: Record) -> Iterator[Verdict]:
    """No source claims anything of it."""
    yield from ()


def _direct(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    report: list[float] = []
    larger: list[float] = []
    overtaken = []
    for size in values(solved, "size"):
        for stride in values(timed(solved, size=size), "stride"):
            here = timed(solved, size=size, stride=stride)
            rung, library = best(here, DIRECT_RUNGS), best(here, CUDNN_ANY)
            if rung and library:
                (report if size in workloads.REPORT_SIZES else larger).append(library["us"] / rung["us"])
                if library["us"] < rung["us"]:
                    overtaken.append(f"{size} (stride {stride})")
    if report:
        yield Verdict(
            "hand-written kernels are faster than cuDNN on inputs of 31 to 511",
            "lab report, 3.1",
            f"{_holds(min(report) >= 1)}: best cuDNN plan / best direct rung {min(report):.2f} to {max(report):.2f}; "
            f"cuDNN is faster at {', '.join(overtaken) or 'no size'}",
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


def _lowering(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    said = []
    for product, whole in (("step gemv_rows", "gemv_rows"), ("step gemv", "gemv")):
        found = []
        for way in (product, whole):
            gains = [
                direct[0]["us"] / lowered[0]["us"]
                for size in workloads.REPORT_SIZES
                if (direct := timed(solved, size=size, way="direct_report"))
                and (lowered := timed(solved, size=size, way=way))
            ]
            found.append(f"{min(gains):.2f} to {max(gains):.2f}" if gains else "–")
        said.append(f"{whole} {found[0]} times as fast without the conversion, {found[1]} with it")
    yield Verdict(
        "lowered, the convolution is faster than the direct kernel (0.92 to 1.33 times on inputs of 31 to 511)",
        "lab report, 3.1, without the conversion's time",
        f"against the report's direct kernel: {'; '.join(said)}",
    )


def _gemm(record: Record) -> Iterator[Verdict]:
    for size in (2048, 4096):
        here = timed(rows(record), size=size)
        naive, shared, float4 = (best(here, (f"gemm_{name}",)) for name in ("naive", "shared", "float4"))
        if naive and shared and float4:
            yield Verdict(
                "tiles in local memory make a matrix product 3 times as fast, vectors of four 1.25 times",
                "mobile-GPU paper, 4.1",
                f"at {size}³ gemm_shared is {ratio(naive, shared)} times as fast as gemm_naive (not coalesced); "
                f"gemm_float4 {ratio(shared, float4)} times as fast as that",
            )


def _cudnn(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    for ways, precision in ((CUDNN_FP32, "strict FP32"), (CUDNN_ANY, "any precision")):
        ratios = []
        for layer in values(solved, "layer"):
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
    by_image, at_once = (_utilisation(solved, ways) for ways in (("cublas image",), CUDNN_FP32))
    if by_image and at_once:
        yield Verdict(
            "convolutions by image through cuBLAS use 47 % of the GPU's blocks, cuDNN more than 95 %",
            "training paper, 5.1",
            f"RU (eq. 11) of the longest kernel, mean of the layers: {100 * sum(by_image) / len(by_image):.0f} % and "
            f"{100 * sum(at_once) / len(at_once):.0f} %",
        )


def _utilisation(solved: list[Row], ways: tuple[str, ...]) -> list[float]:
    """RU of each layer's longest kernel by the fastest of some ways, where it is known."""
    found = [best(timed(solved, layer=layer), ways) for layer in values(solved, "layer")]
    return [row["launches"][0]["ru"] for row in found if row and row.get("launches") and "ru" in row["launches"][0]]


#: Totals over cuBLAS lowering and over cuSPARSE (sparse paper, 4.2; AlexNet at batch 64, the others at 128).
_PAPER_TOTALS = {"alexnet": (1.10, 1.41), "googlenet": (1.34, 1.21), "resnet50": (2.43, 1.97)}


def _sparse(record: Record) -> Iterator[Verdict]:
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


#: What a step from the base kernel on is, and the rungs before and after it.
_STEPS = (
    ("a register for the sum gives", ("csr_global",), ("csr",)),
    ("tiles", ("csr",), ("csr_tiled",)),
    ("blocks cut to the output", ("csr_tiled",), ("csr_fitted",)),
    ("tiles in blocks cut to the output", ("csr",), ("csr_fitted",)),
)


def _steps(rows: list[Row]) -> Iterator[Verdict]:
    """Which step from the paper's base to its tiled kernel gives how much."""
    alexnet = [here for layer, here in layers_of(rows, "alexnet") if "ungrouped" not in layer]
    alone = [here for layer, here in layers_of(rows, "alexnet") if layer == "conv3" or "ungrouped" in layer]
    for layers, grouping in ((alexnet, "with groups"), (alone, "ungrouped")):
        gains = [f"{what} {_gains(found)}" for what, slow, fast in _STEPS if (found := speedups(layers, slow, fast))]
        if gains:
            yield Verdict(
                "tiles in shared memory make the base kernel 46.7/41.1/41.5/42.6 % faster on conv2 to conv5",
                "sparse paper, 4.1",
                f"AlexNet {grouping}: {'; '.join(gains)}",
            )


def _totals(rows: list[Row]) -> Iterator[Verdict]:
    for network, (dense, sparse) in _PAPER_TOTALS.items():
        found = [here for layer, here in layers_of(rows, network) if "ungrouped" not in layer]
        mine, tiled = total_us(found, SPARSE_RUNGS), total_us(found, TILED)
        if not mine or not tiled:
            continue
        image, batched, cusparse = (
            total_us(found, ways) for ways in (("cublas image",), ("cublas batched",), CUSPARSE)
        )
        yield Verdict(
            f"{NETWORKS[network]}'s sparse layers: {dense:.2f} over cuBLAS lowering, {sparse:.2f} over cuSPARSE",
            "sparse paper, 4.2",
            f"its tiled kernel, in the better blocks, {image / tiled:.2f} over cuBLAS by image, "
            f"{batched / tiled:.2f} batched, {cusparse / tiled:.2f} over cuSPARSE; the best rungs {image / mine:.2f}, "
            f"{batched / mine:.2f}, {cusparse / mine:.2f}",
        )
        lost = sum(r < 1 for r in speedups(found, ("cublas batched",), TILED))
        if network == "resnet50":
            most = [max(speedups(found, ways, TILED)) for ways in (("cublas image",), CUSPARSE)]
            yield Verdict(
                "a layer of ResNet gains up to 5.00 over cuBLAS and 3.22 over cuSPARSE, and none loses to cuBLAS",
                "sparse paper, 4.2",
                f"its tiled kernel, in the better blocks, up to {most[0]:.2f} over cuBLAS by image and {most[1]:.2f} "
                f"over cuSPARSE; {lost} of {len(found)} layers lose to batched cuBLAS",
            )


def _batch(record: Record) -> Iterator[Verdict]:
    solved = rows(record)
    at_64 = next((layers for images, layers in batches(solved) if images == 64), [])
    if ratios := speedups(at_64, ("cublas image",), TILED):
        batched, cusparse = (speedups(at_64, ways, TILED) for ways in (("cublas batched",), CUSPARSE))
        yield Verdict(
            "at batch 64 conv2 loses slightly to cuBLAS lowering, conv3 to conv5 gain 41.1/26.2/40.1 %; over cuSPARSE "
            "conv2 to conv5 gain 29.6/39.2/47.1/67.4 %",
            "sparse paper, 4.2",
            f"its tiled kernel, in the better blocks, with groups: {_gains(ratios)} over cuBLAS by image, "
            f"{_gains(batched)} batched, {_gains(cusparse)} over cuSPARSE",
        )
    for ways, library, claim in (
        (("cublas image",), "cuBLAS by image", "over cuBLAS the speed-up is largest at batch 192"),
        (("cublas batched",), "cuBLAS batched", "over cuBLAS the speed-up is largest at batch 192"),
        (CUSPARSE, "cuSPARSE", "over cuSPARSE the speed-up is largest at batch 32 to 64"),
    ):
        gains = {
            images: total_us(layers, ways) / mine
            for images, layers in batches(solved)
            if (mine := total_us(layers, SPARSE_RUNGS))
        }
        if gains:
            most = max(gains, key=lambda images: gains[images])
            yield Verdict(
                claim,
                "sparse paper, figure 9",
                f"against {library} largest at batch {most} ({gains[most]:.2f}); "
                f"{min(gains)}: {gains[min(gains)]:.2f}, {max(gains)}: {gains[max(gains)]:.2f}",
            )
