"""Sparse convolution whose weights are not data: a generator gets them, and its kernel the padded input alone.

A case sets what a case of `sparse_conv` does, and `tiny`: 1 where magnitudes reach from 1 down to 2^-24.
Source: code-generation paper, section 3.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from convladder.kernels import oracle
from convladder.kernels.layouts import ConvGeometry

from ..problem import Instance, Symbols, zero_mean
from .sparse import OfFilters, dense, padded

#: Single weights that are tried as the one that was lost.
_TRIED = 400

#: A constant with six digits is to be told from one with five.
_LIKENESS = 1e-6


class GeneratedConv(OfFilters):
    """y[n,k,p,q] = sum over the non-zero w[k,c,r,s] of w[k,c,r,s] * xp[n, c, p*U + r*dil, q*U + s*dil]."""

    name = "generated_conv"
    declarations: ClassVar = {
        **{n: d for n, d in OfFilters.declarations.items() if "*" not in d},
        "xp": "const float* xp", "y": "float* y", "filters": "int filters", "tiny": "int tiny",
    }  # fmt: skip
    optional: ClassVar = {**OfFilters.optional, "filters": 1, "tiny": 0}
    least: ClassVar = {**OfFilters.least, "tiny": 0}
    given = ("w", "Hp", "Wp", "P", "Q", "U", "dil", "filters")

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if symbols.get("filters", 1) < 1 or symbols.get("tiny", 0) not in (0, 1):
            raise ValueError("`filters` must be at least 1, `tiny` 0 or 1")

    def size(self, symbols: Symbols) -> int:
        g = self.geometry(symbols)
        return g.N * g.P * g.Q * int(symbols["nnz"])

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g, names = self.geometry(symbols), self.all_symbols(symbols)
        mask = self.mask(symbols, rng)
        xp, val = padded(zero_mean(rng, *g.x_shape), *g.pad), _weights(rng, int(symbols["nnz"]), names["tiny"] == 1)
        w = dense(mask, val)
        given: dict[str, Any] = {n: names[n] for n in self.given if n != "w"}
        output = replace(self.output(symbols, mask, xp, val), likeness=_LIKENESS)
        return Instance(names, {"xp": xp}, [output], partial(_mistakes, xp, w, g), {"w": w, **given})


def _weights(rng: np.random.Generator, count: int, tiny: bool) -> np.ndarray:
    """Non-zeros of either sign; no text of a few digits is one of them."""
    sign = np.where(np.arange(count) % 2, np.float32(-1), np.float32(1))
    magnitude = rng.uniform(0.1, 1, count)
    if tiny:
        magnitude *= 2.0 ** -rng.integers(0, 24, count)
    return (sign * magnitude).astype(np.float32)


def _mistakes(xp: np.ndarray, w: np.ndarray, g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What a generated kernel gives whose generator has one typical mistake, as (mistake, y)."""

    def conv(changed: np.ndarray) -> np.ndarray:
        return oracle.conv2d(xp, changed.astype(np.float32), g.stride, 0, g.dilation)

    for kind, digits in (*(("f", d) for d in range(2, 9)), *(("g", d) for d in range(2, 8))):
        printed = np.vectorize(lambda v, form=f".{digits}{kind}": float(format(v, form)), otypes=[float])(w)
        what = "after the point, which small weights have not got" if kind == "f" else "in all, and a float needs 9"
        yield f"the constants have too few digits: about {digits} {what}", conv(printed)
    yield "the signs of the weights are lost", conv(abs(w))
    yield "negative weights are left out", conv(np.maximum(w, 0))
    if g.R == g.S > 1:
        yield "the filter's rows and columns are swapped", conv(w.swapaxes(2, 3))
    y = conv(w)
    for k, c, r, s in np.argwhere(w)[:_TRIED].tolist():
        rows = slice(r * g.dilation[0], r * g.dilation[0] + (g.P - 1) * g.stride[0] + 1, g.stride[0])
        columns = slice(s * g.dilation[1], s * g.dilation[1] + (g.Q - 1) * g.stride[1] + 1, g.stride[1])
        lost = y.copy()
        lost[:, k] -= float(w[k, c, r, s]) * xp[:, c, rows, columns].astype(np.float64)
        yield f"weight w[{k},{c},{r},{s}] = {w[k, c, r, s]:.9g} is lost", lost
    for k in range(g.K):
        without = w.copy()
        without[k] = 0
        yield f"all weights of filter {k} are lost", conv(without)
