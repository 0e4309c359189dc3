"""Convolution as a matrix product: the input unrolled, then the product, and what typical mistakes make of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from convladder.kernels import oracle
from convladder.kernels.errors import GeometryError
from convladder.kernels.layouts import ConvGeometry, Pair

from ..problem import Instance, Output, Problem, Shape, Summand, Symbols, TimedProblem, zero_mean
from .convolution import OfConvolution

#: The tile of the lab's product; sums that leave out a last, smaller one are a typical mistake.
_TILE = 32


class Im2col(OfConvolution):
    """col[n, (c R + r) S + s, p Q + q] = x[n, c, p Uh - padh + r dilh, q Uw - padw + s dilw], 0 in the padding."""

    name = "im2col"
    declarations: ClassVar = {
        "x": "const float* x",
        "col": "float* col",
        **{n: f"int {n}" for n in ("N", "C", "H", "W", "R", "S", "P", "Q")},
        **{n: f"int {n}" for n in ("Uh", "Uw", "padh", "padw", "dilh", "dilw")},
    }
    required = ("N", "C", "H", "W", "R", "S", "Uh", "Uw", "padh", "padw")
    optional: ClassVar = {"dilh": 1, "dilw": 1}
    least: ClassVar = {"padh": 0, "padw": 0}

    def border(self, symbols: Symbols) -> dict[str, int]:
        """A picture has one border on all sides: none where they differ."""
        return {"x": int(symbols["padh"])} if symbols["padh"] == symbols["padw"] > 0 else {}

    def geometry(self, symbols: Symbols) -> ConvGeometry:
        s: dict[str, Any] = {**self.optional, **symbols}
        stride, pad, dilation = ((s[f"{n}h"], s[f"{n}w"]) for n in ("U", "pad", "dil"))
        return ConvGeometry(
            **{n: s[n] for n in ("N", "C", "H", "W", "R", "S")}, K=1, stride=stride, pad=pad, dilation=dilation
        )

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        at_least_1 = [symbols.get(n, 1) for n in ("N", "Uh", "Uw", "dilh", "dilw")]
        if min(at_least_1) < 1 or min(symbols["padh"], symbols["padw"]) < 0:
            raise GeometryError("N, strides and dilations must be at least 1, paddings at least 0")
        self.geometry(symbols)

    def size(self, symbols: Symbols) -> int:
        return math.prod(_col_shape(self.geometry(symbols)))

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g = self.geometry(symbols)
        x = zero_mean(rng, *g.x_shape)
        inputs = {"x": x}
        return Instance(
            self.all_symbols(symbols), inputs, self.expected(symbols, inputs), lambda: _im2col_mistakes(x, g)
        )

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        g = self.geometry_of(instance)
        n, c, row, column = _source(g, [np.array(i) for i in index])
        if not _inside(instance.inputs["x"], row, column):
            return []
        return [Summand((("x", (int(n), int(c), int(row), int(column))),))]

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        g = self.geometry(symbols)
        return {"x": g.x_shape}, {"col": _col_shape(g)}

    def work(self, symbols: Symbols) -> tuple[float, float]:
        g = self.geometry(symbols)
        return 4.0 * (math.prod(g.x_shape) + math.prod(_col_shape(g))), 0.0

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        """Copies: every element must be exact."""
        g = self.geometry(symbols)
        values = _unrolled(inputs["x"], g)
        return [Output("col", ("n", "l", "i"), values.astype(np.float64), np.zeros(values.shape))]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        g = self.geometry(symbols)
        taken = _taken(inputs["x"], *_source(g, np.unravel_index(elements, _col_shape(g))))
        return taken.astype(np.float64), np.zeros(len(elements))


def _col_shape(g: ConvGeometry) -> tuple[int, int, int]:
    return g.N, g.products, g.P * g.Q


def _unrolled(x: np.ndarray, g: ConvGeometry, mode: str = "constant") -> np.ndarray:
    """The first P x Q windows of each image; beyond the end of what there is, everything is zero."""
    need = [
        (size - 1) * U + (taps - 1) * dil + 1
        for size, U, taps, dil in zip((g.P, g.Q), g.stride, (g.R, g.S), g.dilation)
    ]
    sides = [(pad, max(0, n - pad - have)) for pad, n, have in zip(g.pad, need, (g.H, g.W), strict=True)]
    wide = np.pad(x, ((0, 0), (0, 0), *sides), mode=mode)  # type: ignore[call-overload]
    window = tuple((taps - 1) * dil + 1 for taps, dil in zip((g.R, g.S), g.dilation, strict=True))
    taps = np.lib.stride_tricks.sliding_window_view(wide, window, (2, 3))
    taps = taps[:, :, :: g.stride[0], :: g.stride[1], :: g.dilation[0], :: g.dilation[1]]
    return taps[:, :, : g.P, : g.Q].transpose(0, 1, 4, 5, 2, 3).reshape(_col_shape(g))


def _source(
    g: ConvGeometry, index: Sequence[np.ndarray],
    stride: Pair | None = None, pad: Pair | None = None, dilation: Pair | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Image, channel, row and column that elements of col (image, row, column) are copies of; some lie outside."""
    n, tap, point = index
    (Uh, Uw), (padh, padw), (dilh, dilw) = stride or g.stride, pad or g.pad, dilation or g.dilation
    c, r, s = np.unravel_index(tap, (g.C, g.R, g.S))
    p, q = np.unravel_index(point, (g.P, g.Q))
    return n, c, p * Uh - padh + r * dilh, q * Uw - padw + s * dilw


def _inside(x: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    return (row >= 0) & (row < x.shape[2]) & (column >= 0) & (column < x.shape[3])


def _taken(x: np.ndarray, n: np.ndarray, c: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """These elements of x, 0 where one lies outside of its image."""
    taken = x[n, c, row.clip(0, x.shape[2] - 1), column.clip(0, x.shape[3] - 1)]
    return np.where(_inside(x, row, column), taken, np.float32(0))


def _im2col_mistakes(x: np.ndarray, g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What an unrolled input is that was programmed with one typical mistake, as (mistake, col)."""
    right = _unrolled(x, g)
    taps = right.reshape(g.N, g.C, g.R, g.S, g.P, g.Q)

    def laid_out(*axes: int) -> np.ndarray:
        return taps.transpose(axes).reshape(right.shape)

    def changed(stride: Pair = g.stride, pad: Pair = g.pad, dilation: Pair = g.dilation) -> np.ndarray:
        """As a kernel with other numbers reads it, which has as many outputs; `pad` may be negative."""
        index = np.ogrid[: g.N, : g.products, : g.P * g.Q]
        return _taken(x, *_source(g, index, stride, pad, dilation))

    if g.products > 1 and g.P * g.Q > 1:
        yield (
            "col is stored with one row an output point, as the report does it",
            right.transpose(0, 2, 1).reshape(right.shape),
        )
    if max(g.stride) > 1:
        yield "the strides are not used (p and q step by 1)", changed(stride=(1, 1))
    if max(g.pad):
        yield "the padding is not subtracted from the input's index", changed(pad=(0, 0))
        yield "the padding is added to the input's index instead of subtracted", changed(pad=(-g.pad[0], -g.pad[1]))
        yield "the padding repeats the input's border instead of being zero", _unrolled(x, g, "edge")
    if max(g.dilation) > 1:
        yield "the dilations are not used", changed(dilation=(1, 1))
    for name, (h, w) in (("stride", g.stride), ("pad", g.pad), ("dilation", g.dilation)):
        if h != w:
            yield f"the {name} of the height is used for the width too", changed(**{name: (h, h)})
    if g.R * g.S > 1:
        if g.R == g.S:
            yield "r and s are swapped", laid_out(0, 1, 3, 2, 4, 5)
        yield (
            "the taps are written from the last to the first",
            right.reshape(g.N, g.C, g.R * g.S, -1)[:, :, ::-1].reshape(right.shape),
        )
        if g.C > 1:
            yield (
                "the row of col is (r*S + s)*C + c: the taps stand outside of the channels",
                laid_out(0, 2, 3, 1, 4, 5),
            )
    if g.P == g.Q > 1:
        yield "the rows and columns of the output are swapped", laid_out(0, 1, 2, 3, 5, 4)
    if g.C > 1:
        yield "every channel is read from channel 0", _unrolled(np.broadcast_to(x[:, :1], x.shape), g)
    if g.N > 1:
        yield "every image is read from image 0", _unrolled(np.broadcast_to(x[:1], x.shape), g)


class Turned(Problem):
    """col[n,l,i] = rows[n,i,l]: the report's unrolled input turned, a row for each tap of all output points."""

    name = "turned"
    declarations: ClassVar = {
        "rows": "const float* rows",
        "col": "float* col",
        **{n: f"int {n}" for n in ("GN", "GK", "GB")},
    }
    required = ("GN", "GK")
    optional: ClassVar = {"GB": 1}

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if min(symbols.values()) < 1:
            raise GeometryError("every size must be at least 1")

    def size(self, symbols: Symbols) -> int:
        return int(symbols["GN"] * symbols["GK"] * symbols.get("GB", 1))

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        s = self.all_symbols(symbols)
        rows = zero_mean(rng, *(int(s[n]) for n in ("GB", "GN", "GK")))
        col = rows.transpose(0, 2, 1).astype(np.float64)
        return Instance(s, {"rows": rows}, [Output("col", ("n", "l", "i"), col, np.zeros(col.shape))])

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        n, row, column = index
        return [Summand((("rows", (n, column, row)),))]


class Product(TimedProblem):
    """c[n,m,i] = sum over l of a[group,m,l] * b[n,l,i]: one matrix product for each of GB images and groups."""

    name = "gemm"
    declarations: ClassVar = {
        "a": "const float* a",
        "b": "const float* b",
        "c": "float* c",
        **{n: f"int {n}" for n in ("GM", "GN", "GK", "GB", "groups")},
    }
    required = ("GM", "GN", "GK")
    optional: ClassVar = {"GB": 1, "groups": 1}
    #: Whether a row of b holds what belongs to one column of c.
    by_rows: ClassVar[bool] = False

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        s = self.all_symbols(symbols)
        if min(s.values()) < 1 or s["GB"] % s["groups"]:
            raise GeometryError("every size must be at least 1, and groups must divide GB")

    def size(self, symbols: Symbols) -> int:
        s = self.all_symbols(symbols)
        return int(s["GM"] * s["GN"] * s["GK"] * s["GB"])

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        GM, GN, GK, GB, groups = (int(self.all_symbols(symbols)[n]) for n in ("GM", "GN", "GK", "GB", "groups"))
        b = (GB, GN, GK) if self.by_rows else (GB, GK, GN)
        return {"a": (groups, GM, GK), "b": b}, {"c": (GB, GM, GN)}

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        shapes, _ = self.timed_shapes(symbols)
        inputs = {name: zero_mean(rng, *shape) for name, shape in shapes.items()}
        outputs = self.expected(symbols, inputs)
        a, b = self._operands(inputs)
        return Instance(
            self.all_symbols(symbols), inputs, outputs, lambda: _product_mistakes(a, b, by_rows=self.by_rows)
        )

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        n, m, i = index
        group = n % instance.inputs["a"].shape[0]
        return [
            Summand((("a", (group, m, k)), ("b", (n, i, k) if self.by_rows else (n, k, i))), {"l": k})
            for k in range(int(instance.symbols["GK"]))
        ]

    def work(self, symbols: Symbols) -> tuple[float, float]:
        inputs, outputs = self.timed_shapes(symbols)
        return 4.0 * sum(map(math.prod, [*inputs.values(), *outputs.values()])), 2.0 * self.size(symbols)

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        a, b = self._operands(inputs)
        return [Output("c", ("n", "m", "i"), _product(a, b), oracle.bound_of_squares(_product(a**2, b**2), a.shape[2]))]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        a, b = self._operands(inputs)
        n, m, i = np.unravel_index(elements, (b.shape[0], a.shape[1], b.shape[2]))
        products = a[n % a.shape[0], m] * b[n, :, i]
        return products.sum(axis=1), oracle.bound_of_products(products)

    def _operands(self, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """a (groups, GM, GK) and b (GB, GK, GN) in float64."""
        b = inputs["b"].transpose(0, 2, 1) if self.by_rows else inputs["b"]
        return inputs["a"].astype(np.float64), b.astype(np.float64)


class ProductByRows(Product):
    """c[n,m,i] = sum over l of a[m,l] * b[n,i,l]: b as the report's im2col lays it out, one row an output point."""

    name = "gemm_rows"
    by_rows = True


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(GB, GM, GN): image n is multiplied by the matrix of its group."""
    return (a if len(a) == 1 else a[np.arange(len(b)) % len(a)]) @ b


def _product_mistakes(a: np.ndarray, b: np.ndarray, by_rows: bool) -> Iterator[tuple[str, np.ndarray]]:
    """What a product is that was programmed with one typical mistake, as (mistake, c)."""
    GM, GK, GN = a.shape[1], *b.shape[1:]

    def over(terms: slice) -> np.ndarray:
        return _product(a[:, :, terms], b[:, terms])

    if GK > 1:
        yield "only the last l = GK - 1 is summed", over(slice(GK - 1, GK))
        yield "the sum leaves out the last l = GK - 1", over(slice(0, GK - 1))
        yield "the sum leaves out l = 0", over(slice(1, GK))
    for tile in (8, 16, _TILE):
        if tile < GK:
            yield f"only the first tile of {tile} products is summed", over(slice(0, tile))
            last = (GK - 1) // tile * tile
            yield f"only the last tile of {tile} products is summed", over(slice(last, GK))
            yield f"the last tile of {tile} products is left out", over(slice(0, last))
    if GM > 1 and GK > 1:
        turned = a.reshape(len(a), GK, GM).transpose(0, 2, 1)
        yield "a is read as a[l*GM + m], its rows and columns swapped", _product(turned, b)
    if GN > 1 and GK > 1:
        if by_rows:
            stored = np.ascontiguousarray(b.transpose(0, 2, 1))
            yield "b is read as b[l*GN + i], its rows and columns swapped", _product(a, stored.reshape(b.shape))
        else:
            turned = b.reshape(len(b), GN, GK).transpose(0, 2, 1)
            yield "b is read as b[i*GK + l], its rows and columns swapped", _product(a, turned)
    if GM == GN > 1:
        yield "c is stored with its rows and columns swapped", _product(a, b).transpose(0, 2, 1)
    if len(b) > 1:
        yield "every image is multiplied with the b of image 0", _product(a, np.broadcast_to(b[:1], b.shape))
    if len(a) > 1:
        yield "every group is multiplied with the a of group 0", _product(a[:1], b)
