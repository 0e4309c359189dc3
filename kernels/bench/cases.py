"""The problems of each suite, and the ways that each is solved.

direct    the lab report's photographs, and larger ones: the direct rungs against lowering and cuDNN
lowering  the same photographs: the conversion and the product of lowering by themselves; and a sweep of the filters
gemm      square matrix products: the rungs against cuBLAS
plans     every plan that cuDNN builds for a layer and for a photograph
cudnn     AlexNet's layers: every precision and layout of cuDNN against cuBLAS, with and without the conversion
sparse    every sparse layer of the published networks, random and uneven rows, and a sweep of the sparsity
batch     AlexNet's layers at batch 1 to 192
codegen   every sparse layer of three networks: weights as code against the sparse rungs and every library
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import workloads
from ..layouts import ConvGeometry
from ..rungs import DIRECT, LADDER, LOWERED, STEPS

SUITES = ("direct", "lowering", "gemm", "plans", "cudnn", "sparse", "batch", "codegen")

#: Ways that are libraries: method, then how.
CUDNN = ("cudnn fp32 nchw", "cudnn fp32 nhwc", "cudnn tf32 nchw", "cudnn tf32 nhwc")
LOWERED_DENSE = ("cublas batched", "cublas image")
LOWERED_SPARSE = ("cusparse batched", "cusparse image")
#: Weights as code, cut as the model or the tuner says.
CODEGEN = "codegen"

#: Rungs are ways of their own name.
DIRECT_RUNGS = tuple(name for name, route in LADDER.items() if route == DIRECT)
PRODUCT_RUNGS = tuple(name for name, route in LADDER.items() if route.steps == LOWERED.steps)
GEMM_RUNGS = tuple(name for name in PRODUCT_RUNGS if name.startswith("gemm"))
GEMV_RUNGS = tuple(name for name in LADDER if name.startswith("gemv"))
SPARSE_RUNGS = tuple(name for name, route in LADDER.items() if route.column is not None)
BEST_SPARSE = SPARSE_RUNGS[-2:]
#: A step before a rung, by itself: "step im2col".
STEP_WAYS = tuple(f"step {name}" for name in STEPS)
#: The two steps of a lowered convolution with one filter, by themselves: as the lab report stores them, and turned.
LOWERING_STEPS = ("step im2col_rows", "step gemv_rows", "step im2col", "step gemv")

#: Batch of the sparse paper's table (section 4.1) and of its sweep (figure 9).
PAPER_BATCH = 128
BATCHES = (1, 4, 16, 32, 64, 96, 128, 160, 192)
#: The layer of AlexNet of which every plan of cuDNN is kept.
PLANS_OF = "conv3"
SQUARES = (512, 1024, 2048, 4096)
SWEEP = (0.5, 0.7, 0.85, 0.95)
#: Filters of the sweep in which cuDNN overtakes the rungs; its image, and that of every one of its filters, 3 x 3.
FILTERS = (1, 4, 16, 64, 256)
FILTERED: dict[str, Any] = {"N": 1, "C": 64, "H": 56, "W": 56, "R": 3, "S": 3}

#: Sparse layers beyond the published ones: large images of so many channels that csr_staged takes them slab by slab.
MANY_CHANNELS = tuple(
    ConvGeometry(N=16, C=channels, H=size, W=size, K=128, R=3, S=3, pad=(1, 1))
    for channels, size in ((512, 56), (384, 112))
)
MANY_CHANNELS_ZEROS = 0.9

#: Networks whose layers are measured with uneven rows, and as code, too.
UNEVEN = GENERATED = ("alexnet", "googlenet", "resnet50")


@dataclass(frozen=True)
class Case:
    """One problem. `nnz` weights are not zero, in `pattern`; None: dense. `about` stands in its rows.

    product  the matrix product w x by itself, of a 1x1 convolution: rungs leave out the steps before them
    plans    keep the time of every plan of cuDNN, not only of the best
    """

    name: str
    geometry: ConvGeometry
    ways: tuple[str, ...]
    nnz: int | None = None
    pattern: str = "dense"
    seed: int = 0
    about: dict[str, str | int | float] = field(default_factory=dict)
    product: bool = False
    plans: bool = False


def cases(suite: str) -> list[Case]:
    """What a suite measures, in order."""
    makers = {
        "direct": _direct, "lowering": _lowering, "gemm": _gemm, "plans": _plans, "cudnn": _cudnn, "sparse": _sparse,
        "batch": _batch, "codegen": _codegen,
    }  # fmt: skip
    return list(makers[suite]())


def _direct() -> Iterator[Case]:
    strides = workloads.REPORT_STRIDES
    for g in (*workloads.report(strides), *workloads.report((1,), workloads.LARGER_SIZES)):
        stride = g.stride[0]
        layouts = CUDNN if stride == 1 else CUDNN[::2]
        ways = (*DIRECT_RUNGS, *GEMV_RUNGS, "cublas batched", *layouts)
        yield Case(f"{g.H} x {g.W}, stride {stride}", g, ways, about={"size": g.H, "stride": stride})


def _lowering() -> Iterator[Case]:
    ways = ("direct_report", "direct_coalesced", *GEMV_RUNGS, *LOWERING_STEPS)
    for g in workloads.report((1,), (*workloads.REPORT_SIZES, *workloads.LARGER_SIZES)):
        yield Case(f"{g.H} x {g.W}", g, ways, about={"size": g.H})
    for filters in FILTERS:
        g = ConvGeometry(**FILTERED, K=filters, pad=(1, 1))
        ways = ("direct_coalesced", *DIRECT_RUNGS[-3:], *GEMM_RUNGS[-2:], "cublas batched", *CUDNN)
        yield Case(f"{g.K} filters", g, ways, about={"filters": g.K})


def _gemm() -> Iterator[Case]:
    """c = a b as a 1x1 convolution of one image: GM = K, GK = C, GN = H W."""
    for size in SQUARES:
        g = ConvGeometry(N=1, C=size, H=1, W=size, K=size, R=1, S=1)
        yield Case(f"{size}^3", g, (*GEMM_RUNGS, "cublas batched"), about={"size": size}, product=True)


def _plans() -> Iterator[Case]:
    for layer in workloads.layers("alexnet"):
        if layer.name == PLANS_OF:
            yield Case(
                f"alexnet {layer.name}", layer.batch(PAPER_BATCH), CUDNN, about={"layer": layer.name}, plans=True
            )
    for g in workloads.report((1,), workloads.REPORT_SIZES[-1:]):
        yield Case(f"{g.H} x {g.W}, one filter", g, CUDNN, about={"layer": f"{g.H} x {g.W}, one filter"}, plans=True)


def _cudnn() -> Iterator[Case]:
    for layer in _alexnet():
        g = layer.batch(PAPER_BATCH)
        ways = (*CUDNN, *LOWERED_DENSE, "cublas converted")
        yield Case(f"alexnet {layer.name}", g, ways, about={"network": "alexnet", "layer": layer.name})


def _sparse() -> Iterator[Case]:
    libraries = (*LOWERED_DENSE, *LOWERED_SPARSE, *CUDNN[:2], "cudnn tf32 nhwc")
    for layer in (*_alexnet(), *(other for other in workloads.layers() if other.network != "alexnet")):
        yield _of_layer(layer, PAPER_BATCH, (*SPARSE_RUNGS, *libraries), "random")
        if layer.network in UNEVEN:
            yield _of_layer(layer, PAPER_BATCH, (*SPARSE_RUNGS[1:], *LOWERED_SPARSE), "uneven")
    for g in MANY_CHANNELS:
        name = f"{g.C}x{g.H}x{g.W}"
        about: dict[str, str | int | float] = {"channels": name, "sparsity": MANY_CHANNELS_ZEROS, "batch": g.N}
        nnz = round(math.prod(g.w_shape) * (1 - MANY_CHANNELS_ZEROS))
        yield Case(name, g, (*SPARSE_RUNGS[1:], *libraries), nnz, "random", about=about)
    for layer in workloads.layers("alexnet"):
        alone = layer.ungrouped()
        about = {"steps of": layer.name}
        yield Case(f"steps of {alone.name}", alone.batch(PAPER_BATCH), STEP_WAYS, alone.nnz, "random", about=about)
        size = alone.nnz / (1 - alone.sparsity)
        ways = (*BEST_SPARSE, *CUDNN[:2], "cublas batched")
        for sparsity in SWEEP:
            about = {"sweep": layer.name, "sparsity": sparsity}
            name, nnz = f"sweep of {alone.name} at {sparsity:.0%}", round(size * (1 - sparsity))
            yield Case(name, alone.batch(PAPER_BATCH), ways, nnz, "random", about=about)


def _batch() -> Iterator[Case]:
    ways = (*SPARSE_RUNGS[1:], *LOWERED_DENSE, *LOWERED_SPARSE, *CUDNN[:2])
    for layer in workloads.layers("alexnet"):
        for images in BATCHES:
            yield _of_layer(layer, images, ways, "random")


def _codegen() -> Iterator[Case]:
    ways = (CODEGEN, "csr_tiled", *BEST_SPARSE, *CUDNN, "cublas batched", "cusparse batched")
    for layer in (*_alexnet(), *(other for network in GENERATED[1:] for other in workloads.layers(network))):
        yield _of_layer(layer, PAPER_BATCH, ways, "random")


def _alexnet() -> Iterator[workloads.Layer]:
    """Each layer with its groups, then, where it has any, as the sparse paper's table prints it."""
    for layer in workloads.layers("alexnet"):
        yield layer
        if layer.geometry.groups > 1:
            yield layer.ungrouped()


def _of_layer(layer: workloads.Layer, images: int, ways: tuple[str, ...], pattern: str) -> Case:
    about: dict[str, str | int | float] = {
        "network": layer.network, "layer": layer.name, "sparsity": layer.sparsity, "batch": images,
    }  # fmt: skip
    name = f"{layer.network} {layer.name}" + (", uneven rows" if pattern == "uneven" else "")
    return Case(f"{name}, batch {images}", layer.batch(images), ways, layer.nnz, pattern, about=about)
