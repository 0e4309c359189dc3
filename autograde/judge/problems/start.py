"""The two first kernels: one index, then two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ..problem import UNIT_ROUNDOFF, Instance, Output, Problem, Summand, Symbols, zero_mean


class Saxpy(Problem):
    """z[i] = a x[i] + y[i]."""

    name = "saxpy"
    declarations: ClassVar = {
        "x": "const float* x", "y": "const float* y", "z": "float* z", "n": "int n", "a": "float a",
    }  # fmt: skip
    required = ("n",)

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if symbols["n"] < 1:
            raise ValueError("`n` must be at least 1")

    def size(self, symbols: Symbols) -> int:
        return int(symbols["n"])

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        x, y = zero_mean(rng, int(symbols["n"])), zero_mean(rng, int(symbols["n"]))
        a = float(np.float32(rng.uniform(0.5, 2)))
        product = a * x.astype(np.float64)
        expected = product + y
        bound = 2 * UNIT_ROUNDOFF * (abs(product) + abs(expected))

        def mistakes() -> Iterator[tuple[str, np.ndarray]]:
            yield "x and y are swapped", a * y.astype(np.float64) + x
            yield "a is not used", x.astype(np.float64) + y
            yield "y is not added", product

        output = Output("z", ("i",), expected, bound)
        return Instance({"n": symbols["n"], "a": a}, {"x": x, "y": y}, [output], mistakes)

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        return [Summand((("x", index),), coefficient=float(instance.symbols["a"])), Summand((("y", index),))]


class Mirror(Problem):
    """y[i,j] = x[i, W-1-j]: a first two-dimensional index."""

    name = "mirror"
    declarations: ClassVar = {"x": "const float* x", "y": "float* y", "H": "int H", "W": "int W"}
    required = ("H", "W")

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if min(symbols["H"], symbols["W"]) < 1:
            raise ValueError("`H` and `W` must be at least 1")

    def size(self, symbols: Symbols) -> int:
        return int(symbols["H"] * symbols["W"])

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        x = zero_mean(rng, int(symbols["H"]), int(symbols["W"]))
        expected = x[:, ::-1].astype(np.float64)

        def mistakes() -> Iterator[tuple[str, np.ndarray]]:
            yield "nothing is mirrored: y is a copy of x", x
            yield "the rows are mirrored, not the columns", x[::-1]
            yield "the column is W - j instead of W - 1 - j", np.roll(x[:, ::-1], 1, axis=1)

        output = Output("y", ("i", "j"), expected, np.zeros_like(expected))
        return Instance({"H": symbols["H"], "W": symbols["W"]}, {"x": x}, [output], mistakes)

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        i, j = index
        return [Summand((("x", (i, int(instance.symbols["W"]) - 1 - j)),))]
