"""A network at work: a forward pass, a backward pass, an update of the weights, a snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .layers import (
    Array,
    Concatenation,
    Convolution,
    Dropout,
    FullyConnected,
    Loss,
    Normalisation,
    Operation,
    Pool,
    Relu,
    Way,
)
from .networks import Layer, layers

#: Entered around the work of each layer, with the layer and "forward" or "backward".
Around = Callable[[Layer, str], contextlib.AbstractContextManager[Any]]


class Network:
    """One network with its weights, for batches of one size.

    name   one of networks.names()
    xp     NumPy, or CuPy on a GPU
    way    how convolutions are computed
    seed   of the first weights and of the dropout
    data                the images that it takes, as a layer
    layers, operations  each further layer as data, and at work, in order
    """

    def __init__(self, name: str, batch: int, xp: Any, way: Way, *, dtype: Any = np.float32, seed: int = 0):
        self.name, self.xp, self.way, self.dtype = name, xp, way, dtype
        self.data, *self.layers = layers(name, batch)
        rng = np.random.default_rng(seed)
        self.operations = [self._operation(layer, rng, seed) for layer in self.layers]
        self._momenta = [[xp.zeros_like(w) for w in operation.weights] for operation in self.operations]

    def forward(self, images: Array, labels: Array, around: Around | None = None) -> Array:
        """The loss of a batch: images (batch, C, H, W) of the network's dtype, labels (batch,) integers."""
        self.operations[-1].labels = labels  # type: ignore[attr-defined]
        arrays = {"data": images}
        for layer, operation in zip(self.layers, self.operations):
            with around(layer, "forward") if around else contextlib.nullcontext():
                arrays[layer.array] = operation.forward(*(arrays[name] for name in layer.below))
        return arrays["loss"]

    def backward(self, around: Around | None = None) -> None:
        """The gradients of the last batch's loss by every weight; those by the feature maps are dropped on the way."""
        gradients = {"loss": self.xp.ones((), self.dtype)}
        for layer, operation in zip(reversed(self.layers), reversed(self.operations)):
            with around(layer, "backward") if around else contextlib.nullcontext():
                found = operation.backward(gradients.pop(layer.array))
                for name, gradient in zip(layer.below, found):
                    gradients[name] = gradients[name] + gradient if name in gradients else gradient

    def update(self, rate: float = 0.01, momentum: float = 0.9, decay: float = 5e-4) -> None:
        """Stochastic gradient descent: v = momentum v - rate (dw + decay w); w = w + v (training paper, eq. 7)."""
        for operation, momenta in zip(self.operations, self._momenta):
            for w, dw, v in zip(operation.weights, operation.gradients, momenta):
                v *= momentum
                v -= rate * (dw + decay * w)
                w += v

    def weights(self) -> dict[str, Array]:
        """Every array of weights, by the layer's name and its number in the layer: "conv1 0"."""
        return {
            f"{layer.name} {number}": w
            for layer, operation in zip(self.layers, self.operations)
            for number, w in enumerate(operation.weights)
        }

    def save(self, path: Path) -> None:
        """Write a snapshot: all weights, in one .npz file. A file that is there stays whole until the new one is."""
        with path.with_suffix(".part").open("wb") as file:
            np.savez(file, **{name: _on_host(w) for name, w in self.weights().items()})  # type: ignore[arg-type]
        path.with_suffix(".part").replace(path)

    def restore(self, path: Path) -> None:
        """Take the weights of a snapshot. Raises ArgumentError for one of another network."""
        with np.load(path) as kept:
            own = self.weights()
            if {n: w.shape for n, w in own.items()} != {n: kept[n].shape for n in kept.files}:
                raise ArgumentError(f"{path} is no snapshot of {self.name}: its weights have other names or shapes")
            for name, w in own.items():
                w[...] = self.xp.asarray(kept[name])

    def _operation(self, layer: Layer, rng: np.random.Generator, seed: int) -> Operation:
        xp = self.xp
        match layer.kind:
            case "conv":
                on_data = layer.below == ("data",)
                return Convolution(xp, self.way, layer.geometry, *self._first(layer, rng), on_data=on_data)
            case "fc":
                return FullyConnected(xp, *self._first(layer, rng))
            case "maxpool" | "avgpool":
                return Pool(xp, layer)
            case "relu":
                return Relu(xp)
            case "lrn":
                return Normalisation(xp)
            case "dropout":
                return Dropout(xp, seed)
            case "concat":
                return Concatenation(xp)
            case _:
                return Loss(xp)

    def _first(self, layer: Layer, rng: np.random.Generator) -> tuple[Array, Array]:
        """Filters whose outputs are about as large as their inputs (He et al., 2015), and no bias."""
        w, b = layer.weights
        scale = np.sqrt(2 / np.prod(w[1:]))
        return (
            self.xp.asarray((rng.standard_normal(w, np.float32) * scale).astype(self.dtype)),
            self.xp.zeros(b, self.dtype),
        )


def _on_host(array: Array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()
