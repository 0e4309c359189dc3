"""The suite `training`: networks layer by layer, forwards and backwards, and training iterations stage by stage.

A record has a case for each network and batch, with `layers` (whole layers) and `ways` (the matrix products of
convolutions and fully connected layers, in their three directions), and a case for each form of the stages.
Strict float32 throughout.
"""

from __future__ import annotations

import datetime
import gc
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import activity, cudnn, stopwatch
from ..errors import BackendError
from ..gpu import cupy_module, device_facts, fp32_peak_gflops
from ..measure import bandwidth_gbs, device_state
from ..net import convolutions, images, stages
from ..net.layers import Convolution, FullyConnected, Operation
from ..net.networks import Layer
from ..net.training import Network
from .compare import Progress, versions
from .launches import distinct
from .tables import Record

SUITE = "training"

#: What is measured: AlexNet at the training paper's batches (section 5.3), the others at those of its figures 15, 16.
NETWORKS = (("alexnet", 256), ("alexnet", 128), ("alexnet", 512), ("lenet", 256), ("vgg16", 64))
PAPER = ("alexnet", 256)
#: cuBLAS image by image, as Caffe does: timed on so many images and multiplied, as one follows the other.
IMAGES = 8
#: cuDNN's plans that are built and timed for each product, of some 16 that it offers in strict float32.
PLANS = 6

DIRECTIONS = ("forward", "data gradient", "weight gradient")

#: Pictures of 256 x 256 and the pace of disks. The training paper (section 4) says how much slower one disk is than an
#: array of four, not how fast either is: 480 MB/s for the array is our assumption.
PICTURES, PICTURE_SIZE = 128, 256
ARRAY_RATE = 480e6
DISKS = {"array": ARRAY_RATE, "one disk": ARRAY_RATE / 5.4}
#: Disk, threads that transform pictures, whether overlapped.
STAGED = (
    ("array", 1, False), ("one disk", 1, False), ("array", 1, True), ("one disk", 1, True),
    ("array", 16, False), ("array", 16, True), ("one disk", 16, True),
)  # fmt: skip
ITERATIONS = 5


def measure(progress: Progress = lambda *_: None) -> Record:
    """Run the suite on the GPU at hand. Raises BackendError without a GPU or cuDNN."""
    cupy = cupy_module()
    facts, bus = device_facts(), cupy.cuda.Device().pci_bus_id
    before = device_state(bus)
    todo: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        (f"{name}, batch {batch}", partial(_network, name, batch, facts)) for name, batch in NETWORKS
    ]
    with tempfile.TemporaryDirectory(prefix="convladder-") as folder:
        todo.append(("stages", partial(_stages, Path(folder))))
        cases = []
        with cupy.cuda.Stream(non_blocking=True):
            limits = {"bandwidth_gbs": round(bandwidth_gbs(cupy), 1), "peak_gflops": fp32_peak_gflops()}
            for number, (name, solve) in enumerate(todo):
                progress(number, len(todo), name)
                found = solve()
                state = device_state(bus)
                clocks = {"clocks.sm": state.get("clocks.sm", ""), "held_down_by": state.get("held_down_by", "")}
                cases.append({"case": name, **found, **clocks})
                gc.collect()
                cupy.get_default_memory_pool().free_all_blocks()
    progress(len(todo), len(todo), "")
    return {
        "suite": SUITE, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": facts, "device_state": {"before": before, "after": device_state(bus)}, "versions": versions(),
        "limits": limits, "rungs": {}, "cases": cases,
    }  # fmt: skip


# ---- networks


def _network(name: str, batch: int, facts: dict[str, str]) -> dict[str, Any]:
    """Every layer of a network, timed one by one on what the layers before and behind it give."""
    cupy = cupy_module()
    network = Network(name, batch, cupy, convolutions.Cudnn(cupy, PLANS))
    rng = cupy.random.default_rng(0)
    arrays = {"data": rng.standard_normal(network.data.output, dtype=np.float32)}
    network.operations[-1].labels = cupy.arange(batch) % 10  # type: ignore[attr-defined]
    layers: list[dict[str, Any]] = []
    ways: list[dict[str, Any]] = []
    for layer, operation in zip(network.layers, network.operations):
        inputs = [arrays[below] for below in layer.below]
        arrays[layer.array] = operation.forward(*inputs)
        forward_us = stopwatch.elapsed_us(partial(operation.forward, *inputs))
        sizes = {"map_bytes": layer.map_bytes, "weight_bytes": layer.weight_bytes, "flops": layer.flops}
        layers.append({"layer": layer.name, "kind": layer.kind, **sizes, "forward_us": round(forward_us, 2)})
    gradients = {"loss": cupy.ones((), np.float32)}
    backwards = list(zip(network.layers, network.operations, layers))[::-1]
    for layer, operation, row in backwards:
        dy = gradients.pop(layer.array)
        for below, gradient in zip(layer.below, operation.backward(dy)):
            gradients[below] = gradients[below] + gradient if below in gradients else gradient
        row["backward_us"] = round(stopwatch.elapsed_us(partial(operation.backward, dy)), 2)
        ways += _products(layer, operation, dy, facts, by_image=(name, batch) == PAPER)
    update_us = stopwatch.elapsed_us(network.update)
    cudnn.forget()
    return {
        "network": name, "batch": batch, "update_us": round(update_us, 2), "layers": layers, "ways": ways[::-1],
        "memory_bytes": facts["memory_bytes"],
    }  # fmt: skip


def _products(
    layer: Layer, operation: Operation, dy: Any, facts: dict[str, str], by_image: bool
) -> Iterator[dict[str, Any]]:
    """The products of a layer in each direction that training needs, the last direction first."""
    directions = DIRECTIONS[:1] + DIRECTIONS[2:] if layer.below == ("data",) else DIRECTIONS
    for direction in reversed(directions):
        if isinstance(operation, Convolution):
            yield _convolved("cudnn", direction, layer, operation, dy, facts)
            if by_image:
                yield _convolved("cublas image", direction, layer, operation, dy, facts)
        elif isinstance(operation, FullyConnected):
            x, w = operation.rows, operation.weights[0]
            products = {"forward": (x, w.T), "data gradient": (dy, w), "weight gradient": (dy.T, x)}
            work = partial(cupy_module().matmul, *products[direction])
            yield _row("cublas", direction, layer, work, 1.0, facts)


def _convolved(
    way: str, direction: str, layer: Layer, operation: Convolution, dy: Any, facts: dict[str, str]
) -> dict[str, Any]:
    """One product of a convolution: by cuDNN all images at once, by cuBLAS image by image."""
    cupy, g = cupy_module(), operation.geometry
    part = g.N if way == "cudnn" else min(IMAGES, g.N)
    lowered = convolutions.Lowered(cupy, 1)
    x, dy = operation.x[:part], dy[:part]
    given = {
        "forward": (x, operation.weights[0]),
        "data gradient": (dy, operation.weights[0]),
        "weight gradient": (x, dy),
    }
    geometry = replace(g, N=part)
    computes = getattr(operation.way if way == "cudnn" else lowered, _METHODS[direction])
    work = partial(computes, *given[direction], geometry)
    found = _row(way, direction, layer, work, g.N / part, facts)
    if way == "cudnn":
        plan = cudnn.best(g, direction=direction, most=PLANS)  # type: ignore[arg-type]
        found |= {"plan": plan.best.name, "workspace_bytes": plan.best.workspace_bytes}
        found["relative_error"] = _difference(
            work(), getattr(lowered, _METHODS[direction])(*given[direction], geometry)
        )
    return found


_METHODS = {"forward": "forward", "data gradient": "data_gradient", "weight gradient": "weight_gradient"}


def _difference(a: Any, b: Any) -> float:
    """Of two ways' results, relative to their size."""
    return float(f"{float(cupy_module().linalg.norm(a - b) / cupy_module().linalg.norm(b)):.2e}")


def _row(
    way: str, direction: str, layer: Layer, work: Callable[[], Any], times: float, facts: dict[str, str]
) -> dict[str, Any]:
    """A product's time, its compute efficiency (training paper, eq. 8) and the utilisation of its longest kernel."""
    work()
    us = times * stopwatch.elapsed_us(work)
    found = {"way": way, "layer": layer.name, "kind": layer.kind, "direction": direction, "us": round(us, 2)}
    if peak := fp32_peak_gflops():
        found["ce"] = round(layer.flops / (us * 1e3) / peak, 4)
    try:
        launched = distinct(activity.launches(work), facts)
    except BackendError as error:
        return {**found, "launches_unknown": str(error)}
    longest = next((one for one in launched if not one["name"].startswith("cupy")), launched[0])  # not the unrolling
    kept = ("name", "grid", "block", "registers", "ru", "ru_real", "occupancy")
    return found | {"kernel": {key: longest[key] for key in kept if key in longest}}


# ---- stages


def _stages(folder: Path) -> dict[str, Any]:
    """AlexNet trained on pictures of our own, from disks of two paces."""
    cupy = cupy_module()
    name, batch = PAPER
    pictures = folder / "pictures.zip"
    images.write(pictures, PICTURES, PICTURE_SIZE)
    network = Network(name, batch, cupy, convolutions.Cudnn(cupy, PLANS))
    found = []
    for disk, workers, overlapped in STAGED:
        with images.Reader(pictures, DISKS[disk]) as reader:
            pipeline = stages.Pipeline(network, reader, folder / "snapshot.npz", workers=workers, every=ITERATIONS)
            run = pipeline.run(ITERATIONS, overlapped)
        times = {stage: round(ms, 3) for stage, ms in run.stage_ms().items()}
        about = {"disk": disk, "rate": DISKS[disk], "workers": workers, "overlapped": overlapped}
        found.append({**about, "stage_ms": times, "iteration_ms": round(run.iteration_ms(), 3)})
    cudnn.forget()
    return {
        "network": name,
        "batch": batch,
        "picture_bytes": pictures.stat().st_size // PICTURES,
        "runs": found,
        "ways": [],
    }
