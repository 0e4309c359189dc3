"""What the kernels were to reach on an H100, and what the records say of it: which targets are met, which are missed
where, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .. import workloads
from .cases import CODEGEN, DIRECT_RUNGS, GEMM_RUNGS, SPARSE_RUNGS
from .compare import rows
from .tables import (
    CUDNN_ANY,
    CUDNN_FP32,
    CUSPARSE,
    MOSTLY_ZERO,
    NETWORKS,
    Record,
    Row,
    Table,
    best,
    geometric_mean,
    layers_of,
    timed,
    values,
)

#: (where, what was measured there); the place is empty for a mean of all.
Found = tuple[str, float]


@dataclass(frozen=True)
class Target:
    """What `measure` finds in the record of a suite must be at least, or else at most, `wanted` everywhere."""

    name: str
    suite: str
    wanted: float
    measure: Callable[[list[Row]], Iterator[Found]]
    at_most: bool = False


@dataclass(frozen=True)
class Outcome:
    """What was found of a target, and where it is missed."""

    target: Target
    found: tuple[Found, ...]

    @property
    def missed(self) -> tuple[Found, ...]:
        """Where, the farthest off first."""
        wanted, at_most = self.target.wanted, self.target.at_most
        off = [one for one in self.found if (one[1] > wanted if at_most else one[1] < wanted)]
        return tuple(sorted(off, key=lambda one: -one[1] if at_most else one[1]))

    @property
    def worst(self) -> Found:
        return (max if self.target.at_most else min)(self.found, key=lambda one: one[1])


def outcomes(records: Mapping[str, Record]) -> list[Outcome]:
    """Every target whose suite is recorded. A record in which nothing bears on its target is an error."""
    judged = []
    for target in TARGETS:
        if target.suite in records:
            found = tuple(target.measure(rows(records[target.suite])))
            assert found, f"the record of {target.suite} holds nothing on: {target.name}"
            judged.append(Outcome(target, found))
    return judged


def table(records: Mapping[str, Record]) -> Table:
    """Each target with the measured value that is farthest from it."""
    lines = []
    for outcome in outcomes(records):
        target, (where, value) = outcome.target, outcome.worst
        missed = "; ".join(f"{place or 'all'} {_number(off)}" for place, off in outcome.missed)
        wanted = f"{'at most' if target.at_most else 'at least'} {_number(target.wanted)}"
        worst = f"{_number(value)} ({where})" if where else _number(value)
        lines.append((target.name, wanted, worst, f"missed: {missed}" if missed else "met"))
    columns = ("target", "wanted", "measured; of several the worst", "")
    return Table("Targets", columns, tuple(lines))


def _number(value: float) -> str:
    return f"{value:.1e}" if value < 1e-3 else f"{value:.2f}"


# ---- what is measured


def _products(solved: list[Row]) -> Iterator[Found]:
    for size in (2048, 4096):
        here = timed(solved, size=size)
        rung, library = best(here, GEMM_RUNGS), best(here, ("cublas batched",))
        if rung and library:
            yield f"{size}³", library["us"] / rung["us"]


def _photographs(solved: list[Row]) -> Iterator[Found]:
    for size in workloads.REPORT_SIZES:
        for stride in values(timed(solved, size=size), "stride"):
            here = timed(solved, size=size, stride=stride)
            rung, library = best(here, DIRECT_RUNGS), best(here, CUDNN_ANY)
            if rung and library:
                yield f"{size}² stride {stride}", library["us"] / rung["us"]


def _gains(slow: tuple[str, ...], fast: tuple[str, ...], zeros: float = 0.0) -> Callable[[list[Row]], Iterator[Found]]:
    """How many times as long one way takes as another on each layer with so many zeros, all networks of the record."""

    def measure(solved: list[Row]) -> Iterator[Found]:
        for network in values(solved, "network"):
            for layer, here in layers_of(solved, network):
                a, b = best(here, slow), best(here, fast)
                if a and b and here[0]["sparsity"] >= zeros:
                    yield f"{NETWORKS.get(network, network)} {layer}", a["us"] / b["us"]

    return measure


def _mean(slow: tuple[str, ...], fast: tuple[str, ...], zeros: float = 0.0) -> Callable[[list[Row]], Iterator[Found]]:
    """The geometric mean of these over the paper's networks, each layer once, with its groups."""

    def measure(solved: list[Row]) -> Iterator[Found]:
        mine = [row for row in solved if row.get("network") in NETWORKS]
        gains = [gain for where, gain in _gains(slow, fast, zeros)(mine) if not where.endswith(" ungrouped")]
        if gains:
            yield "", geometric_mean(gains)

    return measure


def _stretch(solved: list[Row]) -> Iterator[Found]:
    for where, gain in _gains(("cudnn tf32 nhwc",), (CODEGEN,))(solved):
        if where in ("AlexNet conv3", "AlexNet conv4", "AlexNet conv5"):
            yield where, gain


def _of_code(key: str) -> Callable[[list[Row]], Iterator[Found]]:
    def measure(solved: list[Row]) -> Iterator[Found]:
        for row in timed(solved, way=CODEGEN):
            yield f"{NETWORKS.get(row['network'], row['network'])} {row['layer']}", row[key]

    return measure


_FP32, _TF32_NCHW = CUDNN_FP32, ("cudnn tf32 nchw",)

TARGETS = (
    Target("best plain product rung over cuBLAS FP32", "gemm", 0.90, _products),
    Target("cuDNN's best plan over the best direct rung, inputs 31 to 511", "direct", 1.0, _photographs),
    Target("batched cuBLAS lowering over the best CSR rung, each layer", "sparse", 1.5,
           _gains(("cublas batched",), SPARSE_RUNGS)),
    Target("batched cuBLAS lowering over the best CSR rung, geometric mean", "sparse", 2.5,
           _mean(("cublas batched",), SPARSE_RUNGS)),
    Target("cuSPARSE lowering over the best CSR rung, geometric mean", "sparse", 3.0, _mean(CUSPARSE, SPARSE_RUNGS)),
    Target("cuDNN FP32 over weights as code, layers of 90 % zeros or more, geometric mean", "codegen", 3.0,
           _mean(_FP32, (CODEGEN,), MOSTLY_ZERO)),
    Target("cuDNN TF32 NCHW over weights as code, the same layers, geometric mean", "codegen", 1.0,
           _mean(_TF32_NCHW, (CODEGEN,), MOSTLY_ZERO)),
    Target("stretch: cuDNN TF32 NHWC over weights as code, AlexNet conv3 to conv5", "codegen", 1.0, _stretch),
    Target("seconds to compile a layer as code, 16 cores", "codegen", 60.0, _of_code("compile_s"), at_most=True),
    Target("relative error of weights as code", "codegen", 1e-6, _of_code("relative_error"), at_most=True),
)  # fmt: skip
