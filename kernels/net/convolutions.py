"""The three convolutions of a training step: forward, data gradient, weight gradient.

    y[n,k,p,q]  = sum over c, r, s of x[n, c, p U - pad + r dil, q U - pad + s dil] w[k,c,r,s]
    dx[n,c,h,w] = sum over k and the taps that reach (h, w) of dy[n,k,p,q] w[k,c,r,s]
    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p U - pad + r dil, q U - pad + s dil]

`Lowered` makes matrix products of them on the arrays of either library; `Cudnn` runs NVIDIA's.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np

from .. import cudnn, gpu
from ..layouts import ConvGeometry

Array = Any


def library() -> tuple[Any, Lowered | Cudnn]:
    """The arrays and the way of this machine: CuPy with cuDNN, or its matrix products without; NumPy without a GPU."""
    if not gpu.available():
        return np, Lowered(np)
    xp = gpu.cupy_module()
    return xp, Cudnn(xp) if importlib.util.find_spec("cudnn") is not None else Lowered(xp)


class Lowered:
    """Through unrolled inputs and matrix products (cuBLAS's in strict float32, with CuPy's default settings).

    xp      NumPy or CuPy
    images  unrolled and multiplied at a time: 1 as Caffe does, None: all of a batch
    """

    def __init__(self, xp: Any, images: int | None = None):
        self.xp = xp
        self.images = images

    def forward(self, x: Array, w: Array, g: ConvGeometry) -> Array:
        matrices = w.reshape(g.groups, g.K // g.groups, g.products)
        y = self.xp.empty(g.y_shape, x.dtype)
        for part in self._parts(g.N):
            product = self.xp.matmul(matrices, self._unrolled(x[part], g))
            y[part] = product.reshape(g.K, -1, g.P, g.Q).swapaxes(0, 1)
        return y

    def weight_gradient(self, x: Array, dy: Array, g: ConvGeometry) -> Array:
        dw = self.xp.zeros((g.groups, g.K // g.groups, g.products), x.dtype)
        for part in self._parts(g.N):
            outputs = dy[part].swapaxes(0, 1).reshape(g.groups, g.K // g.groups, -1)
            dw += self.xp.matmul(outputs, self._unrolled(x[part], g).swapaxes(1, 2))
        return dw.reshape(g.w_shape)

    def data_gradient(self, dy: Array, w: Array, g: ConvGeometry) -> Array:
        """A convolution of its own: the filters flipped, their inputs and outputs exchanged, dy spread by the stride.

        Where Caffe adds up unrolled columns (col2im), this adds nothing twice; the operations are the same at stride 1.
        """
        flipped = w.reshape(g.groups, g.K // g.groups, g.C // g.groups, g.R, g.S)[..., ::-1, ::-1]
        filters = self.xp.ascontiguousarray(flipped.swapaxes(1, 2)).reshape(g.C, g.K // g.groups, g.R, g.S)
        spread = self._spread(dy, g)
        H, W = spread.shape[2:]
        turned = replace(g, C=g.K, H=H, W=W, K=g.C, stride=(1, 1), pad=(0, 0))
        return self.forward(spread, filters, turned)

    def _parts(self, batch: int) -> list[slice]:
        size = self.images or max(batch, 1)
        return [slice(first, first + size) for first in range(0, batch, size)]

    def _unrolled(self, x: Array, g: ConvGeometry) -> Array:
        """(groups, C/groups R S, images P Q): the window of output point (n, p, q) in column (n P + p) Q + q."""
        N = len(x)
        padded = self.xp.zeros((N, g.C, g.H + 2 * g.pad[0], g.W + 2 * g.pad[1]), x.dtype)
        padded[:, :, g.pad[0] : g.pad[0] + g.H, g.pad[1] : g.pad[1] + g.W] = x
        image, channel, row, column = padded.strides
        (up, across), (down, right) = g.stride, g.dilation
        windows = self.xp.lib.stride_tricks.as_strided(
            padded,
            (g.C, g.R, g.S, N, g.P, g.Q),
            (channel, row * down, column * right, image, row * up, column * across),
        )
        return windows.reshape(g.groups, g.products, N * g.P * g.Q)

    def _spread(self, dy: Array, g: ConvGeometry) -> Array:
        """dy with stride - 1 zeros between its elements, and so many around that a filter gives H x W outputs."""
        sizes, offsets, cut = [], [], []
        for size, taps, pad, dilation in zip((g.H, g.W), (g.R, g.S), g.pad, g.dilation):
            reach = (taps - 1) * dilation
            outside = max(0, pad - reach)  # outputs that see padding only, at either end
            sizes.append(size + reach + 2 * outside)
            offsets.append(reach - pad + outside)
            cut.append(slice(outside, outside + size + reach))
        wide = self.xp.zeros((g.N, g.K, *sizes), dy.dtype)
        rows, columns = (slice(first, None, step) for first, step in zip(offsets, g.stride))
        wide[:, :, rows, columns][:, :, : g.P, : g.Q] = dy
        return self.xp.ascontiguousarray(wide[:, :, cut[0], cut[1]])


class Cudnn:
    """By cuDNN in strict float32, each by the fastest of the first plans that build.

    most  plans that are tried for a convolution; None: all
    """

    def __init__(self, xp: Any, most: int | None = None):
        self.xp = xp
        self.most = most

    def forward(self, x: Array, w: Array, g: ConvGeometry) -> Array:
        return self._run("forward", g, (x, w), g.y_shape)

    def data_gradient(self, dy: Array, w: Array, g: ConvGeometry) -> Array:
        return self._run("data gradient", g, (dy, w), g.x_shape)

    def weight_gradient(self, x: Array, dy: Array, g: ConvGeometry) -> Array:
        return self._run("weight gradient", g, (x, dy), g.w_shape)

    def _run(self, direction: cudnn.Direction, g: ConvGeometry, given: tuple[Array, Array], shape: Any) -> Array:
        result = self.xp.empty(shape, given[0].dtype)
        found = cudnn.best(g, direction=direction, most=self.most)
        first, second = map(self.xp.ascontiguousarray, given)
        found.enqueue(first, second, result)
        return result
