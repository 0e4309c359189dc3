"""The layers of a convolutional network, forwards and backwards, on the arrays of either library.

`xp` is the array library: NumPy, or CuPy on a GPU; every line runs on both. A layer keeps of its forward pass what its
backward pass needs. Arrays are (N, C, H, W), or (N, K) behind the first fully connected layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ..layouts import ConvGeometry
from .networks import Layer, pooled_size

Array = Any

#: Caffe's normalisation across channels: y = x (1 + ALPHA / SIZE * sum of the squares of SIZE channels)^-BETA.
LRN_SIZE, LRN_ALPHA, LRN_BETA = 5, 1e-4, 0.75
DROP_SHARE = 0.5


class Way(Protocol):
    """A way to compute the three convolutions of a training step (lab 7, eqs. 1 to 3)."""

    def forward(self, x: Array, w: Array, g: ConvGeometry) -> Array: ...

    def data_gradient(self, dy: Array, w: Array, g: ConvGeometry) -> Array: ...

    def weight_gradient(self, x: Array, dy: Array, g: ConvGeometry) -> Array: ...


class Operation(ABC):
    """A layer at work: `weights` are changed by training, `gradients` are theirs after the backward pass."""

    def __init__(self, xp: Any):
        self.xp = xp
        self.weights: list[Array] = []
        self.gradients: list[Array] = []

    @abstractmethod
    def forward(self, *inputs: Array) -> Array:
        """The output."""

    @abstractmethod
    def backward(self, dy: Array) -> tuple[Array, ...]:
        """The gradients of the loss by the inputs, from that by the output; those by the weights are kept."""


class Convolution(Operation):
    """y = x * w + b. `on_data`: the input is the images, whose gradient nobody needs."""

    def __init__(self, xp: Any, way: Way, geometry: ConvGeometry, w: Array, b: Array, on_data: bool = False):
        super().__init__(xp)
        self.way, self.geometry, self.on_data = way, geometry, on_data
        self.weights = [w, b]

    def forward(self, *inputs: Array) -> Array:
        (self.x,) = inputs
        y = self.way.forward(self.x, self.weights[0], self.geometry)
        y += self.weights[1][:, None, None]
        return y

    def backward(self, dy: Array) -> tuple[Array, ...]:
        self.gradients = [self.way.weight_gradient(self.x, dy, self.geometry), dy.sum(axis=(0, 2, 3))]
        if self.on_data:
            return (None,)
        return (self.way.data_gradient(dy, self.weights[0], self.geometry),)


class FullyConnected(Operation):
    """y = x w^T + b, the images' maps in one row each."""

    def __init__(self, xp: Any, w: Array, b: Array):
        super().__init__(xp)
        self.weights = [w, b]

    def forward(self, *inputs: Array) -> Array:
        (x,) = inputs
        self.shape, self.rows = x.shape, x.reshape(len(x), -1)
        return self.rows @ self.weights[0].T + self.weights[1]

    def backward(self, dy: Array) -> tuple[Array, ...]:
        self.gradients = [dy.T @ self.rows, dy.sum(axis=0)]
        return ((dy @ self.weights[0]).reshape(self.shape),)


class Relu(Operation):
    """max(x, 0), in place."""

    def forward(self, *inputs: Array) -> Array:
        (x,) = inputs
        self.y = self.xp.maximum(x, 0, out=x)
        return self.y

    def backward(self, dy: Array) -> tuple[Array, ...]:
        dy *= self.y > 0
        return (dy,)


class Dropout(Operation):
    """Half of the values set to zero, the others doubled, in place."""

    def __init__(self, xp: Any, seed: int):
        super().__init__(xp)
        self.rng = xp.random.default_rng(seed)

    def forward(self, *inputs: Array) -> Array:
        (x,) = inputs
        kept = self.rng.random(x.shape, dtype=np.float32) >= DROP_SHARE
        self.factor = kept.astype(x.dtype) / (1 - DROP_SHARE)
        x *= self.factor
        return x

    def backward(self, dy: Array) -> tuple[Array, ...]:
        dy *= self.factor
        return (dy,)


class Pool(Operation):
    """The largest value, or the mean, of each window; windows may reach over the border (networks.pooled_size)."""

    def __init__(self, xp: Any, layer: Layer):
        super().__init__(xp)
        self.R, self.U, self.pad = layer.R, layer.U, layer.pad
        self.largest = layer.kind == "maxpool"

    def forward(self, *inputs: Array) -> Array:
        (x,) = inputs
        self.shape = x.shape
        wide = self._wide(x.dtype, -np.inf if self.largest else 0)
        self._inside(wide)[:] = x
        taps = self._taps(wide)
        y = next(taps).copy()
        if not self.largest:
            for tap in taps:
                y += tap
            return y / self.R**2
        self.where = self.xp.zeros(y.shape, np.uint8)  # which tap of the window was the largest, the first if several
        for number, tap in enumerate(taps, 1):
            self.where = self.xp.where(tap > y, self.xp.uint8(number), self.where)
            y = self.xp.maximum(y, tap)
        return y

    def backward(self, dy: Array) -> tuple[Array, ...]:
        wide = self._wide(dy.dtype, 0)
        for number, tap in enumerate(self._taps(wide)):
            tap += dy * (self.where == number) if self.largest else dy / self.R**2
        return (self.xp.ascontiguousarray(self._inside(wide)),)

    def _wide(self, dtype: Any, value: float) -> Array:
        """An array that all windows fit into."""
        N, C, *plane = self.shape
        self.windows = [pooled_size(size, self.R, self.U, self.pad) for size in plane]
        sizes = [max((count - 1) * self.U + self.R, size + 2 * self.pad) for count, size in zip(self.windows, plane)]
        return self.xp.full((N, C, *sizes), value, dtype)

    def _inside(self, wide: Array) -> Array:
        H, W = self.shape[2:]
        return wide[:, :, self.pad : self.pad + H, self.pad : self.pad + W]

    def _taps(self, wide: Array) -> Iterator[Array]:
        """For each place in the window, its values of all windows."""
        rows, columns = ((count - 1) * self.U + 1 for count in self.windows)
        for r in range(self.R):
            for s in range(self.R):
                yield wide[:, :, r : r + rows : self.U, s : s + columns : self.U]


class Normalisation(Operation):
    """Local response normalisation across channels: y = x (1 + ALPHA / SIZE sum x^2)^-BETA."""

    def forward(self, *inputs: Array) -> Array:
        (self.x,) = inputs
        self.scale = 1 + LRN_ALPHA / LRN_SIZE * self._sum_of_neighbours(self.x * self.x)
        self.y = self.x * self.scale**-LRN_BETA
        return self.y

    def backward(self, dy: Array) -> tuple[Array, ...]:
        shared = self._sum_of_neighbours(dy * self.y / self.scale)
        return (dy * self.scale**-LRN_BETA - 2 * LRN_ALPHA * LRN_BETA / LRN_SIZE * self.x * shared,)

    def _sum_of_neighbours(self, a: Array) -> Array:
        found = a.copy()
        for away in range(1, LRN_SIZE // 2 + 1):
            found[:, away:] += a[:, :-away]
            found[:, :-away] += a[:, away:]
        return found


class Concatenation(Operation):
    """The channels of several arrays, one behind the other."""

    def forward(self, *inputs: Array) -> Array:
        self.ends = np.cumsum([x.shape[1] for x in inputs])[:-1].tolist()
        return self.xp.concatenate(inputs, axis=1)

    def backward(self, dy: Array) -> tuple[Array, ...]:
        return tuple(self.xp.ascontiguousarray(part) for part in self.xp.split(dy, self.ends, axis=1))


class Loss(Operation):
    """Cross-entropy of the softmax: the mean over the batch of -log of the probability of the right class.

    The training paper (section 3.1, eqs. 3 and 4) states softmax with squared errors; the networks were published,
    and Caffe trains them, with this.
    """

    labels: Array

    def forward(self, *inputs: Array) -> Array:
        (x,) = inputs
        powers = self.xp.exp(x - x.max(axis=1, keepdims=True))
        self.shares = powers / powers.sum(axis=1, keepdims=True)
        return -self.xp.log(self.shares[self.xp.arange(len(x)), self.labels]).mean()

    def backward(self, dy: Array) -> tuple[Array, ...]:
        dx = self.shares.copy()
        dx[self.xp.arange(len(dx)), self.labels] -= 1
        return (dx * (dy / len(dx)),)
