"""The convolution itself, and what typical mistakes make of it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from convladder.kernels import oracle
from convladder.kernels.errors import GeometryError
from convladder.kernels.layouts import ConvGeometry

from ..problem import Instance, Output, Shape, Summand, Symbols, TimedProblem, zero_mean


class OfConvolution(TimedProblem):
    """What problems about the elements of a convolution share: its geometry, and the symbols that follow from it."""

    @abstractmethod
    def geometry(self, symbols: Symbols) -> ConvGeometry:
        """The convolution of a case."""

    def geometry_of(self, instance: Instance) -> ConvGeometry:
        """The same, from the instance, which has more symbols than a case sets."""
        return self.geometry({k: v for k, v in instance.symbols.items() if k in self.required or k in self.optional})

    def all_symbols(self, symbols: Symbols) -> dict[str, int | float]:
        return {n: v for n, v in self.geometry(symbols).symbols().items() if n in self.declarations}


class Conv2d(OfConvolution):
    """y[n,k,p,q] = sum over c, r, s of x[n, c, p U - pad + r dil, q U - pad + s dil] * w[k,c,r,s]."""

    name = "conv2d"
    declarations: ClassVar = {
        "x": "const float* x",
        "w": "const float* w",
        "y": "float* y",
        **{n: f"int {n}" for n in ("N", "C", "H", "W", "K", "R", "S", "P", "Q", "U", "pad", "dil", "groups")},
    }
    required = ("N", "C", "H", "W", "K", "R", "S", "U", "pad")
    optional: ClassVar = {"dil": 1, "groups": 1}
    least: ClassVar = {"pad": 0}

    def border(self, symbols: Symbols) -> dict[str, int]:
        return {"x": int(symbols["pad"])} if symbols["pad"] else {}

    def geometry(self, symbols: Symbols) -> ConvGeometry:
        s: dict[str, Any] = {**self.optional, **symbols}
        sizes = {n: s[n] for n in ("N", "C", "H", "W", "K", "R", "S", "groups")}
        stride, pad, dilation = ((s[n], s[n]) for n in ("U", "pad", "dil"))
        return ConvGeometry(**sizes, stride=stride, pad=pad, dilation=dilation)

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if min(symbols["U"], symbols.get("dil", 1), symbols.get("groups", 1), symbols["N"]) < 1 or symbols["pad"] < 0:
            raise GeometryError("N, U, dil and groups must be at least 1, pad at least 0")
        self.geometry(symbols)

    def size(self, symbols: Symbols) -> int:
        return int(np.prod(self.geometry(symbols).y_shape, dtype=object)) * self.geometry(symbols).products

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g = self.geometry(symbols)
        x, w = zero_mean(rng, *g.x_shape), zero_mean(rng, *g.w_shape)
        inputs = {"x": x, "w": w}
        outputs = self.expected(symbols, inputs)
        return Instance(self.all_symbols(symbols), inputs, outputs, lambda: _conv_mistakes(x, w, g))

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        g = self.geometry_of(instance)
        n, k, p, q = index
        channels = g.C // g.groups
        found = []
        for c, r, s in np.ndindex(channels, g.R, g.S):
            row, column = p * g.stride[0] - g.pad[0] + r * g.dilation[0], q * g.stride[1] - g.pad[1] + s * g.dilation[1]
            if 0 <= row < g.H and 0 <= column < g.W:
                of_x = (n, k // (g.K // g.groups) * channels + c, row, column)
                found.append(Summand((("w", (k, c, r, s)), ("x", of_x)), {"c": c, "r": r, "s": s}))
        return found

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        g = self.geometry(symbols)
        return {"x": g.x_shape, "w": g.w_shape}, {"y": g.y_shape}

    def work(self, symbols: Symbols) -> tuple[float, float]:
        """Products with the padding are not asked for."""
        g = self.geometry(symbols)
        moved = sum(math.prod(shape) for shape in (g.x_shape, g.w_shape, g.y_shape))
        rows, columns = (
            sum(0 <= p * g.stride[a] - g.pad[a] + r * g.dilation[a] < size for p in range(many) for r in range(taps))
            for a, (many, taps, size) in enumerate(((g.P, g.R, g.H), (g.Q, g.S, g.W)))
        )
        return 4.0 * moved, 2.0 * g.N * g.K * (g.C // g.groups) * rows * columns

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        g = self.geometry(symbols)
        x, w = inputs["x"], inputs["w"]
        how = (g.stride, g.pad, g.dilation, g.groups)
        return [Output("y", ("n", "k", "p", "q"), oracle.conv2d(x, w, *how), oracle.bound(x, w, *how))]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        g = self.geometry(symbols)
        return oracle.at(elements, inputs["x"], inputs["w"], g.stride, g.pad, g.dilation, g.groups)


def _conv_mistakes(x: np.ndarray, w: np.ndarray, g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What a convolution gives that was programmed with one typical mistake, as (mistake, y)."""
    U, pad, dil = g.stride[0], g.pad[0], g.dilation[0]

    def conv(x: np.ndarray = x, w: np.ndarray = w, U: int = U, pad: int = pad, dil: int = dil) -> np.ndarray:
        """The first P x Q outputs; where the changed convolution has fewer, the input is zero beyond its end."""
        need_h = max(0, (g.P - 1) * U + (g.R - 1) * dil + 1 - pad - g.H)
        need_w = max(0, (g.Q - 1) * U + (g.S - 1) * dil + 1 - pad - g.W)
        before, cut = max(pad, 0), max(-pad, 0)
        wide = np.pad(x, ((0, 0), (0, 0), (before, need_h), (before, need_w)))[..., cut:, cut:]
        return oracle.conv2d(wide, w, U, 0, dil, g.groups)[:, :, : g.P, : g.Q]

    if U > 1:
        yield "the stride U is not used (p and q step by 1)", conv(U=1)
    if pad:
        yield "pad is not subtracted from the input's index", conv(pad=0)
        yield "pad is added to the input's index instead of subtracted", conv(pad=-pad)
        yield (
            "the padding repeats the input's border instead of being zero",
            oracle.conv2d(np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="edge"), w, U, 0, dil, g.groups),
        )
    if dil > 1:
        yield "the dilation dil is not used", conv(dil=1)
    if g.R * g.S > 1:
        yield "the filter is flipped (r and s run the wrong way)", conv(w=w[:, :, ::-1, ::-1])
    if g.R == g.S > 1:
        yield "r and s are swapped in the filter's index", conv(w=w.swapaxes(2, 3))
    if g.H == g.W > 1:
        yield "the rows and columns of the input are swapped", conv(x=x.swapaxes(2, 3))
    if g.P == g.Q > 1:
        yield "the rows and columns of the output are swapped", conv().swapaxes(2, 3)
    for name, axis, size in (("c", 1, g.C // g.groups), ("r", 2, g.R), ("s", 3, g.S)):
        if size > 1:
            limit = {"c": "C", "r": "R", "s": "S"}[name]
            yield f"only the last {name} = {limit} - 1 is summed", conv(w=keep(w, axis, slice(size - 1, size)))
            yield f"the sum leaves out the last {name} = {limit} - 1", conv(w=keep(w, axis, slice(0, size - 1)))
            yield f"the sum leaves out {name} = 0", conv(w=keep(w, axis, slice(1, size)))
    for what, rows, columns in (("row and column", True, True), ("row", True, False), ("column", False, True)):
        first = (slice(int(rows), None), slice(int(columns), None))
        last = (slice(0, g.H - rows), slice(0, g.W - columns))
        yield f"the input's first {what} (index 0) is taken for padding", conv(x=_keep_inner(x, *first))
        yield f"the input's last {what} is taken for padding", conv(x=_keep_inner(x, *last))


def keep(w: np.ndarray, axis: int, kept: slice) -> np.ndarray:
    """A copy with zeros but for a slice along one axis."""
    index = tuple(kept if a == axis else slice(None) for a in range(w.ndim))
    copy = np.zeros_like(w)
    copy[index] = w[index]
    return copy


def _keep_inner(x: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    copy = np.zeros_like(x)
    copy[:, :, rows, columns] = x[:, :, rows, columns]
    return copy
