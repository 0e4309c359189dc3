"""Networks as data: the layers of LeNet, AlexNet, VGG-16 and GoogLeNet (Inception), and what each layer costs.

The table is networks.csv, one layer a row with its source. A layer takes what lies `below` it, the row before where
nothing is named; with `relu` a ReLU follows, which works in place.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ..errors import ArgumentError
from ..layouts import ConvGeometry

Kind = Literal["data", "conv", "relu", "lrn", "maxpool", "avgpool", "fc", "dropout", "concat", "loss"]

#: What works in place, or has no array of its own that grows with the batch: no memory is counted for it.
IN_PLACE = ("relu", "dropout")

FLOAT_BYTES = 4
#: Of each feature map its values and their gradient are kept; of each weight its momentum too (Caffe's SGD does so).
MAP_COPIES = 2
WEIGHT_COPIES = 3

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """One layer for a batch of images.

    inputs, output  shapes, the batch first
    R, U, pad       size, stride and padding of the window of a convolution or pooling
    """

    name: str
    kind: Kind
    below: tuple[str, ...]
    inputs: tuple[Shape, ...]
    output: Shape
    R: int = 0
    U: int = 1
    pad: int = 0
    groups: int = 1

    @property
    def array(self) -> str:
        """The layer whose array holds the output: the one below where this one works in place."""
        return self.below[0] if self.kind in IN_PLACE else self.name

    @property
    def geometry(self) -> ConvGeometry:
        """The sizes of a convolution."""
        N, C, H, W = self.inputs[0]
        window = {"R": self.R, "S": self.R, "stride": (self.U, self.U), "pad": (self.pad, self.pad)}
        return ConvGeometry(N=N, C=C, H=H, W=W, K=self.output[1], groups=self.groups, **window)  # type: ignore[arg-type]

    @property
    def weights(self) -> tuple[Shape, ...]:
        """Shapes of the filters or the matrix, and of the bias."""
        if self.kind == "conv":
            return self.geometry.w_shape, (self.output[1],)
        if self.kind == "fc":
            return (self.output[1], math.prod(self.inputs[0][1:])), (self.output[1],)
        return ()

    @property
    def flops(self) -> int:
        """Operations of the layer's product in the forward pass, two for a multiply-add; 0 where it has none."""
        return 2 * self.output[0] * math.prod(self.weights[0]) * math.prod(self.output[2:]) if self.weights else 0

    @property
    def backward_flops(self) -> int:
        """Operations of the weight gradient and, unless the layer lies on the data, of the data gradient."""
        return self.flops * (1 if self.below == ("data",) else 2)

    @property
    def map_bytes(self) -> int:
        """Memory of the layer's feature maps while it is trained (training paper, section 5.4); float32.

        The images have no gradient, the loss has its probabilities, and what works in place takes nothing.
        """
        if self.kind in IN_PLACE:
            return 0
        copies = 1 if self.kind in ("data", "loss") else MAP_COPIES
        return copies * FLOAT_BYTES * math.prod(self.output)

    @property
    def weight_bytes(self) -> int:
        """Memory of the layer's weights and bias, of their gradient and of their momentum; float32."""
        return WEIGHT_COPIES * FLOAT_BYTES * sum(map(math.prod, self.weights))


def names() -> list[str]:
    return list(_table())


def layers(network: str, batch: int = 1) -> tuple[Layer, ...]:
    """Every layer of a network in order, with its shapes. Raises ArgumentError for a network that is none."""
    if network not in _table():
        raise ArgumentError(f"there is no network {network!r}; there are {', '.join(names())}")
    if batch < 1:
        raise ArgumentError(f"batch = {batch}: it must be at least 1")
    return tuple(_layers(_table()[network], batch))


@cache
def _table() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            found.setdefault(row["network"], []).append(row)
    return found


def _layers(rows: list[dict[str, str]], batch: int) -> Iterator[Layer]:
    shapes: dict[str, Shape] = {}
    last = ""
    for row in rows:
        name, kind = row["layer"], row["kind"]
        below = tuple(row["below"].split()) or ((last,) if last else ())
        inputs = tuple(shapes[one] for one in below)
        K, R, U, pad, groups = (int(row[key] or default) for key, default in _NUMBERS)
        output = _output(kind, (batch, K, R, R), inputs, K, R, U, pad)
        layer = Layer(name, kind, below, inputs, output, R, U, pad, groups)  # type: ignore[arg-type]
        yield layer
        if row["relu"]:
            yield Layer(f"{name} relu", "relu", (name,), (output,), output)
        if kind not in IN_PLACE:
            shapes[name] = output
            last = name


_NUMBERS = (("K", "0"), ("R", "0"), ("U", "1"), ("pad", "0"), ("groups", "1"))


def _output(kind: str, data: Shape, inputs: tuple[Shape, ...], K: int, R: int, U: int, pad: int) -> Shape:
    if kind == "data":
        return data
    N, C, *plane = inputs[0]
    if kind == "conv":
        return (N, K, *((size + 2 * pad - R) // U + 1 for size in plane))
    if kind in ("maxpool", "avgpool"):
        return (N, C, *(pooled_size(size, R, U, pad) for size in plane))
    if kind == "fc":
        return (N, K)
    if kind == "concat":
        return (N, sum(shape[1] for shape in inputs), *plane)
    return inputs[0]


def pooled_size(size: int, R: int, U: int, pad: int) -> int:
    """Windows along one axis, rounded up as Caffe does: the last one may reach over the border, not begin there."""
    count = -(-(size + 2 * pad - R) // U) + 1
    return count - 1 if pad and (count - 1) * U >= size + pad else count
