"""The gradients of a convolution, by its input and by its filters, and what typical mistakes make of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from convladder.kernels import layouts, oracle
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.net.convolutions import Lowered

from ..problem import Instance, Output, Shape, Summand, Symbols, zero_mean
from .convolution import Conv2d, keep

#: Matrix products in float64: every sum in another order than a kernel's.
_EXACT = Lowered(np)

_SIZES: dict[str, str] = {n: c for n, c in Conv2d.declarations.items() if "*" not in c}


class DataGradient(Conv2d):
    """dx[n,c,h,w] = sum of dy[n,k,p,q] w[k,c,r,s] over k and the taps with p U - pad + r dil = h, q likewise w."""

    name = "data_gradient"
    declarations: ClassVar = {"dy": "const float* dy", "w": "const float* w", "dx": "float* dx", **_SIZES}

    def border(self, symbols: Symbols) -> dict[str, int]:
        return {}

    def size(self, symbols: Symbols) -> int:
        g = self.geometry(symbols)
        return math.prod(g.x_shape) * g.K // g.groups * g.R * g.S

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g = self.geometry(symbols)
        inputs = {"dy": zero_mean(rng, *g.y_shape), "w": zero_mean(rng, *g.w_shape)}
        outputs = self.expected(symbols, inputs)
        return Instance(
            self.all_symbols(symbols), inputs, outputs, lambda: _data_mistakes(inputs["dy"], inputs["w"], g)
        )

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        g = self.geometry_of(instance)
        n, c, h, w = index
        filters, channels = g.K // g.groups, g.C // g.groups
        found = []
        for k, r, s in np.ndindex(filters, g.R, g.S):
            p = layouts.output_index(h, r * g.dilation[0], g.stride[0], g.pad[0], g.P)
            q = layouts.output_index(w, s * g.dilation[1], g.stride[1], g.pad[1], g.Q)
            if p is not None and q is not None:
                k += c // channels * filters
                factors = (("dy", (n, k, p, q)), ("w", (k, c % channels, r, s)))
                found.append(Summand(factors, {"k": k, "r": r, "s": s}))
        return found

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        g = self.geometry(symbols)
        return {"dy": g.y_shape, "w": g.w_shape}, {"dx": g.x_shape}

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        g = self.geometry(symbols)
        dy, w = (inputs[name].astype(np.float64) for name in ("dy", "w"))
        dx = _EXACT.data_gradient(dy, w, g)
        bound = oracle.bound_of_squares(_EXACT.data_gradient(dy**2, w**2, g), g.K // g.groups * g.R * g.S)
        return [Output("dx", ("n", "c", "h", "w"), dx, bound)]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return _at(self.expected(symbols, inputs), elements)


class WeightGradient(Conv2d):
    """dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p U - pad + r dil, q U - pad + s dil]."""

    name = "weight_gradient"
    declarations: ClassVar = {"x": "const float* x", "dy": "const float* dy", "dw": "float* dw", **_SIZES}

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g = self.geometry(symbols)
        inputs = {"x": zero_mean(rng, *g.x_shape), "dy": zero_mean(rng, *g.y_shape)}
        outputs = self.expected(symbols, inputs)
        return Instance(
            self.all_symbols(symbols), inputs, outputs, lambda: _weight_mistakes(inputs["x"], inputs["dy"], g)
        )

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        g = self.geometry_of(instance)
        k, c, r, s = index
        c += k // (g.K // g.groups) * (g.C // g.groups)
        found = []
        for n, p, q in np.ndindex(g.N, g.P, g.Q):
            row, column = p * g.stride[0] - g.pad[0] + r * g.dilation[0], q * g.stride[1] - g.pad[1] + s * g.dilation[1]
            if 0 <= row < g.H and 0 <= column < g.W:
                factors = (("dy", (n, k, p, q)), ("x", (n, c, row, column)))
                found.append(Summand(factors, {"n": n, "p": p, "q": q}))
        return found

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        g = self.geometry(symbols)
        return {"x": g.x_shape, "dy": g.y_shape}, {"dw": g.w_shape}

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        g = self.geometry(symbols)
        x, dy = (inputs[name].astype(np.float64) for name in ("x", "dy"))
        dw = _EXACT.weight_gradient(x, dy, g)
        bound = oracle.bound_of_squares(_EXACT.weight_gradient(x**2, dy**2, g), g.N * g.P * g.Q)
        return [Output("dw", ("k", "c", "r", "s"), dw, bound)]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return _at(self.expected(symbols, inputs), elements)


def _at(outputs: list[Output], elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (output,) = outputs
    return output.expected.reshape(-1)[elements], output.bound.reshape(-1)[elements]


# ---- mistakes, for one group and no dilation


def _data_mistakes(dy: np.ndarray, w: np.ndarray, g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What a data gradient gives that was programmed with one typical mistake, as (mistake, dx)."""
    if g.groups > 1 or g.dilation != (1, 1):
        return

    def gathered(w: np.ndarray = w, U: int = g.stride[0], pad: int = g.pad[0], divides: bool = True) -> np.ndarray:
        return _gathered(dy, w, g, U, pad, divides)

    if g.stride[0] > 1:
        yield "nobody asks whether U divides h + pad - r: the quotient is rounded down", gathered(divides=False)
        yield "the stride U is not used (p = h + pad - r)", gathered(U=1)
    if g.pad[0]:
        yield "pad is not added to the input's index", gathered(pad=0)
        yield "pad is subtracted from the input's index instead of added", gathered(pad=-g.pad[0])
    if g.R * g.S > 1:
        yield "the filter is flipped (r and s run the wrong way)", gathered(w[:, :, ::-1, ::-1])
    if g.R == g.S > 1:
        yield "r and s are swapped in the filter's index", gathered(w.swapaxes(2, 3))
    if g.K > 1 and g.C > 1:
        yield "k and c are swapped in the filter's index", gathered(w.reshape(g.C, g.K, g.R, g.S).swapaxes(0, 1))
    for name, axis, size in (("k", 0, g.K), ("r", 2, g.R), ("s", 3, g.S)):
        yield from ((said, gathered(keep(w, axis, kept))) for said, kept in _parts(name, size))


def _gathered(dy: np.ndarray, w: np.ndarray, g: ConvGeometry, U: int, pad: int, divides: bool) -> np.ndarray:
    """The sum as a thread gathers it, with another U or pad, or without the test that U divides."""
    dx = np.zeros(g.x_shape)
    for r, s in np.ndindex(g.R, g.S):
        (rows, p), (columns, q) = (
            _reached(size, tap, U, pad, many, divides) for size, tap, many in ((g.H, r, g.P), (g.W, s, g.Q))
        )
        found = np.einsum("nkpq,kc->ncpq", dy[:, :, p][:, :, :, q].astype(np.float64), w[:, :, r, s])
        dx[:, :, rows[:, None], columns] += found
    return dx


def _reached(size: int, tap: int, U: int, pad: int, many: int, divides: bool) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the input that a tap reaches, and the outputs that reach them."""
    positions = np.arange(size)
    outputs, between = np.divmod(positions + pad - tap, U)
    kept = (outputs >= 0) & (outputs < many) & ((between == 0) | (not divides))
    return positions[kept], outputs[kept]


def _weight_mistakes(x: np.ndarray, dy: np.ndarray, g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What a weight gradient gives that was programmed with one typical mistake, as (mistake, dw)."""
    if g.groups > 1 or g.dilation != (1, 1):
        return

    def summed(dy: np.ndarray = dy, U: int = g.stride[0], pad: int = g.pad[0]) -> np.ndarray:
        return _summed(x, dy, g, U, pad)

    if g.stride[0] > 1:
        yield "the stride U is not used (p and q step by 1)", summed(U=1)
    if g.pad[0]:
        yield "pad is not subtracted from the input's index", summed(pad=0)
        yield "pad is added to the input's index instead of subtracted", summed(pad=-g.pad[0])
    if g.R == g.S > 1:
        yield "r and s are swapped", summed().swapaxes(2, 3)
    if g.R * g.S > 1:
        yield "the filter is flipped (r and s run the wrong way)", summed()[:, :, ::-1, ::-1]
    if g.K > 1 and g.C > 1:
        yield "k and c are swapped in the result's index", summed().swapaxes(0, 1).reshape(g.w_shape)
    if g.N > 1:
        yield "the sum over the images is divided by their number", summed() / g.N
    for name, axis, size in (("n", 0, g.N), ("p", 2, g.P), ("q", 3, g.Q)):
        yield from ((said, summed(keep(dy, axis, kept))) for said, kept in _parts(name, size))


def _summed(x: np.ndarray, dy: np.ndarray, g: ConvGeometry, U: int, pad: int) -> np.ndarray:
    """The sum with another U or pad; what lies outside of the input counts as zero."""
    dw = np.zeros(g.w_shape)
    for r, s in np.ndindex(g.R, g.S):
        rows, columns = np.arange(g.P) * U - pad + r, np.arange(g.Q) * U - pad + s
        inside = [(at >= 0) & (at < size) for at, size in ((rows, g.H), (columns, g.W))]
        read = x[:, :, rows[inside[0]]][:, :, :, columns[inside[1]]].astype(np.float64)
        dw[:, :, r, s] = np.einsum("nkpq,ncpq->kc", dy[:, :, inside[0]][:, :, :, inside[1]], read)
    return dw


def _parts(name: str, size: int) -> Iterator[tuple[str, slice]]:
    """Mistakes in the loop over one index, and what is left of the sum."""
    if size > 1:
        yield f"only the last {name} = {name.upper()} - 1 is summed", slice(size - 1, size)
        yield f"the sum leaves out the last {name} = {name.upper()} - 1", slice(0, size - 1)
        yield f"the sum leaves out {name} = 0", slice(1, size)
