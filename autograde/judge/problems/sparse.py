"""Direct sparse convolution, step by step: the padded input, the stretched columns, the sum over a filter's row.

A case says how many weights are not zero (`nnz`) and how they are spread over the filters (`rows`, see `ROWS`).
Source: sparse paper, sections 2.2 to 3.2, with padding and dilation added; its M, E, F are our K, P, Q.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from convladder.kernels import layouts, oracle, workloads
from convladder.kernels.layouts import ConvGeometry

from ..problem import Instance, Output, Problem, Shape, Summand, Symbols, TimedProblem, zero_mean

#: What the symbol `rows` of a case means: every weight alike; rows as unequal as log-normal numbers; one filter has
#: all but one non-zero of each other filter.
RANDOM, UNEVEN, ONE_LONG = range(3)

#: Tiles of non-zeros that a kernel may sum wholly or not at all.
_TILES = (32, 64, 128, 256, 512, 1024)

_STRETCHED = "(c*Hp + r*dilh)*Wp + s*dilw"


class Pad(Problem):
    """xp[n,c,h,w] = x[n,c,h-padh,w-padw], and 0 outside of x."""

    name = "pad"
    declarations: ClassVar = {
        "x": "const float* x",
        "xp": "float* xp",
        **{n: f"int {n}" for n in ("N", "C", "H", "W", "Hp", "Wp", "padh", "padw")},
    }
    required = ("N", "C", "H", "W", "padh", "padw")
    least: ClassVar = {"padh": 0, "padw": 0}

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if min(symbols[n] for n in ("N", "C", "H", "W")) < 1 or min(symbols["padh"], symbols["padw"]) < 0:
            raise ValueError("N, C, H and W must be at least 1, padh and padw at least 0")

    def size(self, symbols: Symbols) -> int:
        return math.prod(self._shape(symbols))

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        N, C, Hp, Wp = self._shape(symbols)
        x = zero_mean(rng, N, C, int(symbols["H"]), int(symbols["W"]))
        expected = padded(x, int(symbols["padh"]), int(symbols["padw"])).astype(np.float64)
        output = Output("xp", ("n", "c", "h", "w"), expected, np.zeros_like(expected))
        return Instance(
            {**symbols, "Hp": Hp, "Wp": Wp}, {"x": x}, [output], lambda: _pad_mistakes(x, symbols, expected.shape)
        )

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        n, c, h, w = index
        s = instance.symbols
        row, column = h - int(s["padh"]), w - int(s["padw"])
        inside = 0 <= row < s["H"] and 0 <= column < s["W"]
        return [Summand((("x", (n, c, row, column)),))] if inside else []

    def _shape(self, symbols: Symbols) -> tuple[int, int, int, int]:
        s = {name: int(value) for name, value in symbols.items()}
        return s["N"], s["C"], s["H"] + 2 * s["padh"], s["W"] + 2 * s["padw"]


def padded(x: np.ndarray, padh: int, padw: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (padh, padh), (padw, padw)))


def _pad_mistakes(x: np.ndarray, symbols: Symbols, shape: Shape) -> Iterator[tuple[str, np.ndarray]]:
    """What padding gives that was programmed with one typical mistake, as (mistake, xp)."""
    padh, padw = int(symbols["padh"]), int(symbols["padw"])
    if padh or padw:
        yield (
            "padh and padw are not subtracted: the image lies in the upper left corner",
            np.pad(x, ((0, 0), (0, 0), (0, 2 * padh), (0, 2 * padw))),
        )
        yield (
            "the border repeats the edge of the image instead of being zero",
            np.pad(x, ((0, 0), (0, 0), (padh, padh), (padw, padw)), mode="edge"),
        )
        flat = np.zeros(math.prod(shape))
        flat[: x.size] = x.reshape(-1)
        yield "the elements are copied one after another, as if there were no padding", flat.reshape(shape)
    if padh != padw:
        moved = padded(x, padw, padh)  # then cut or filled up to the right size
        swapped = np.zeros(shape)
        rows, columns = min(shape[2], moved.shape[2]), min(shape[3], moved.shape[3])
        swapped[:, :, :rows, :columns] = moved[:, :, :rows, :columns]
        yield "padh and padw are swapped", swapped
    if shape[0] * shape[1] > 1:
        first = np.broadcast_to(x[:1, :1], x.shape)
        yield "the plane is left out of the index: all planes are copies of the first", padded(first, padh, padw)


class OfFilters(Problem):
    """What the problems about sparse filters share: the geometry, and where the non-zeros stand."""

    declarations: ClassVar = {
        "rowptr": "const int* rowptr",
        "col": "const int* col",
        **{n: f"int {n}" for n in (
            "N", "C", "H", "W", "K", "R", "S", "P", "Q", "Hp", "Wp", "U", "Uh", "Uw", "pad", "padh", "padw",
            "dil", "dilh", "dilw", "nnz", "rows",
        )},
    }  # fmt: skip
    required = ("N", "C", "H", "W", "K", "R", "S", "U", "pad", "nnz")
    optional: ClassVar = {"dil": 1, "rows": RANDOM}
    least: ClassVar = {"pad": 0, "rows": 0}

    def geometry(self, symbols: Symbols) -> ConvGeometry:
        s: dict[str, Any] = {**self.optional, **symbols}
        sizes = {n: s[n] for n in ("N", "C", "H", "W", "K", "R", "S")}
        stride, pad, dilation = ((s[n], s[n]) for n in ("U", "pad", "dil"))
        return ConvGeometry(**sizes, stride=stride, pad=pad, dilation=dilation)

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        s: dict[str, Any] = {**self.optional, **symbols}
        if min(s["N"], s["U"], s["dil"]) < 1 or s["pad"] < 0:
            raise ValueError("N, U and dil must be at least 1, pad at least 0")
        g = self.geometry(symbols)
        if not 1 <= s["nnz"] <= math.prod(g.w_shape):
            raise ValueError(f"`nnz` is {s['nnz']}: it must be at least 1 and at most K*C*R*S")
        if s["rows"] not in (RANDOM, UNEVEN, ONE_LONG):
            raise ValueError(f"`rows` is {s['rows']}: it is 0 (random), 1 (uneven) or 2 (one long row)")
        if s["rows"] == ONE_LONG and not g.K <= s["nnz"] < g.K + g.products:
            raise ValueError("with one long row, `nnz` must be at least K and less than K + C*R*S")

    def all_symbols(self, symbols: Symbols) -> dict[str, int | float]:
        """A case's symbols and those that follow from them."""
        g = self.geometry(symbols)
        found: dict[str, Any] = {**self.optional, **symbols, **g.symbols()}
        found |= {"Hp": g.H + 2 * g.pad[0], "Wp": g.W + 2 * g.pad[1]}
        return {n: found[n] for n in self.declarations if n in found}

    def mask(self, symbols: Symbols, rng: np.random.Generator) -> np.ndarray:
        """(K, C, R, S) bool: which weights are not zero."""
        g, nnz, rows = self.geometry(symbols), int(symbols["nnz"]), int(symbols.get("rows", RANDOM))
        mask = np.zeros(g.w_shape, bool)
        if rows == ONE_LONG:
            flat = mask.reshape(g.K, -1)
            flat[np.arange(g.K), rng.integers(0, g.products, g.K)] = True
            free = np.flatnonzero(~flat[g.K // 2])
            flat[g.K // 2, rng.choice(free, nnz - g.K, replace=False)] = True
        else:
            pattern = "uneven" if rows == UNEVEN else "random"
            mask.reshape(-1)[workloads.positions(g, nnz, pattern, rng)] = True
        return mask

    def structure(self, symbols: Symbols, mask: np.ndarray, column: str) -> layouts.Csr:
        return layouts.csr(mask.astype(np.float32), 1, column, self.all_symbols(symbols))

    def output(self, symbols: Symbols, mask: np.ndarray, xp: np.ndarray, val: np.ndarray) -> Output:
        g, w = self.geometry(symbols), dense(mask, val)
        y = oracle.conv2d(xp, w, g.stride, 0, g.dilation)
        bound = oracle.bound(xp, w, g.stride, 0, g.dilation) * _fewer_terms(mask).reshape(-1, 1, 1)
        return Output("y", ("n", "k", "p", "q"), y, bound)


class Stretch(OfFilters):
    """stretched[j] = (c*Hp + r*dil)*Wp + s*dil, where col[j] = (c*R + r)*S + s."""

    name = "stretch"
    declarations: ClassVar = {**OfFilters.declarations, "stretched": "int* stretched"}

    def size(self, symbols: Symbols) -> int:
        return int(symbols["nnz"]) + int(symbols["K"])

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        mask = self.mask(symbols, rng)
        plain = self.structure(symbols, mask, layouts.PLAIN_COLUMN)

        def stretched(column: str) -> np.ndarray:
            return self.structure(symbols, mask, column).col

        expected = stretched(_STRETCHED).astype(np.float64)
        output = Output("stretched", ("j",), expected, np.zeros_like(expected), "<i4")
        names = self.all_symbols(symbols)

        def mistakes() -> Iterator[tuple[str, np.ndarray]]:
            for what, column, shows in _COLUMN_MISTAKES:
                if all(names[a] != names[b] if isinstance(b, str) else names[a] > b for a, b in shows):
                    yield what, stretched(column)

        return Instance(names, {"rowptr": plain.rowptr, "col": plain.col}, [output], mistakes)


#: (what the student did, the columns that it gives, pairs of symbols that must differ, or a symbol and what it must
#: exceed, for the mistake to show)
_COLUMN_MISTAKES: tuple[tuple[str, str, tuple[tuple[str, str | int], ...]], ...] = (
    ("H and W stand where the padded Hp and Wp belong", "(c*H + r*dilh)*W + s*dilw", (("pad", 0),)),
    ("only the width is padded: H stands where Hp belongs", "(c*H + r*dilh)*Wp + s*dilw", (("pad", 0), ("C", 1))),
    ("only the height is padded: W stands where Wp belongs", "(c*Hp + r*dilh)*W + s*dilw", (("pad", 0),)),
    ("the dilation is not used", "(c*Hp + r)*Wp + s", (("dil", 1),)),
    ("the stride is in the column", "(c*Hp + r*dilh*Uh)*Wp + s*dilw*Uw", (("U", 1),)),
    ("the columns are not changed at all", "(c*R + r)*S + s", ()),
    ("the row of the filter is left out", "c*Hp*Wp + s*dilw", (("R", 1),)),
    ("the channel is left out", "r*dilh*Wp + s*dilw", (("C", 1),)),
    ("r and s are swapped", "(c*Hp + s*dilw)*Wp + r*dilh", (("R", "S"),)),
    ("Hp and Wp are swapped", "(c*Wp + r*dilh)*Hp + s*dilw", (("Hp", "Wp"),)),
)  # fmt: skip


class SparseConv(OfFilters, TimedProblem):
    """y[n,k,p,q] = sum over j in row k of val[j] * xp[n, col[j] + p U Wp + q U], columns stretched to xp."""

    name = "sparse_conv"
    declarations: ClassVar = {
        **OfFilters.declarations, "xp": "const float* xp", "val": "const float* val", "y": "float* y",
    }  # fmt: skip

    def size(self, symbols: Symbols) -> int:
        g = self.geometry(symbols)
        return math.prod(g.y_shape) * (1 + int(symbols["nnz"]) // g.K)

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g = self.geometry(symbols)
        mask = self.mask(symbols, rng)
        sparse = self.structure(symbols, mask, _STRETCHED)
        xp = padded(zero_mean(rng, *g.x_shape), *g.pad)
        val = zero_mean(rng, sparse.nnz)
        inputs = {"xp": xp, "rowptr": sparse.rowptr, "col": sparse.col, "val": val}
        outputs = [self.output(symbols, mask, xp, val)]
        return Instance(self.all_symbols(symbols), inputs, outputs, lambda: _row_mistakes(inputs, g))

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        n, k, p, q = index
        s, inputs = instance.symbols, instance.inputs
        plane = inputs["xp"].shape[1:]
        window = int((p * s["Uh"]) * s["Wp"] + q * s["Uw"])
        found = []
        for j in range(inputs["rowptr"][k], inputs["rowptr"][k + 1]):
            c, h, w = (int(i) for i in np.unravel_index(int(inputs["col"][j]) + window, plane))
            found.append(Summand((("val", (j,)), ("xp", (n, c, h, w))), {"c": c, "j": j}))
        return found

    # -- timing ----------------------------------------------------------------------------------

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        """The padding is new in each run like the rest: a kernel that reads it as it is gives the same in any case."""
        g = self.geometry(symbols)
        padded = (g.N, g.C, g.H + 2 * g.pad[0], g.W + 2 * g.pad[1])
        return {"xp": padded, "val": (int(symbols["nnz"]),)}, {"y": g.y_shape}

    def timed_constants(self, symbols: Symbols) -> dict[str, np.ndarray]:
        sparse = self.structure(symbols, self._timed_mask(symbols), _STRETCHED)
        return {"rowptr": sparse.rowptr, "col": sparse.col}

    def work(self, symbols: Symbols) -> tuple[float, float]:
        inputs, outputs = self.timed_shapes(symbols)
        g, nnz = self.geometry(symbols), int(symbols["nnz"])
        moved = math.prod(inputs["xp"]) + 2 * nnz + g.K + 1 + math.prod(outputs["y"])
        return 4.0 * moved, 2.0 * g.N * g.P * g.Q * nnz

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        return [self.output(symbols, self._timed_mask(symbols), inputs["xp"], inputs["val"])]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """By the non-zeros alone: a few hundred products an element, where the dense filter has thousands."""
        g, names = self.geometry(symbols), self.all_symbols(symbols)
        sparse = self.structure(symbols, self._timed_mask(symbols), _STRETCHED)
        n, k, p, q = np.unravel_index(elements, g.y_shape)
        window = p * int(names["Uh"]) * int(names["Wp"]) + q * int(names["Uw"])
        first, end = sparse.rowptr[k].reshape(-1, 1), sparse.rowptr[k + 1].reshape(-1, 1)
        j = first + np.arange(np.diff(sparse.rowptr).max(initial=1))
        inside, j = j < end, np.minimum(j, sparse.nnz - 1)
        planes = inputs["xp"].reshape(g.N, -1)
        taps = planes[n.reshape(-1, 1), sparse.col[j] + window.reshape(-1, 1)].astype(np.float64)
        products = taps * inputs["val"][j].astype(np.float64) * inside
        scale = np.sqrt((end - first).reshape(-1) / products.shape[1])  # as if only the row's own products were counted
        return products.sum(axis=1), oracle.bound_of_products(products) * scale

    def _timed_mask(self, symbols: Symbols) -> np.ndarray:
        return _fixed_mask(tuple(sorted(symbols.items())))


@lru_cache(maxsize=8)
def _fixed_mask(symbols: tuple[tuple[str, int | float], ...]) -> np.ndarray:
    """Where the non-zeros stand in a timed case: the same in every session."""
    return SparseConv().mask(dict(symbols), np.random.default_rng(0))


def dense(mask: np.ndarray, val: np.ndarray) -> np.ndarray:
    w = np.zeros(mask.shape, np.float32)
    w[mask] = val
    return w


def _fewer_terms(mask: np.ndarray) -> np.ndarray:
    """For each filter, what its bound shrinks by because it sums its non-zeros only."""
    return np.sqrt(mask.reshape(len(mask), -1).mean(axis=1))


def _row_mistakes(inputs: Mapping[str, np.ndarray], g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What the sum over a row gives that was programmed with one typical mistake, as (mistake, y)."""
    planes = inputs["xp"].reshape(g.N, -1).astype(np.float64)
    rowptr, col, val = inputs["rowptr"], inputs["col"], inputs["val"].astype(np.float64)
    Wp, (Uh, Uw) = g.W + 2 * g.pad[1], g.stride
    rows = [np.arange(rowptr[k], rowptr[k + 1]) for k in range(g.K)]
    p, q = np.indices((g.P, g.Q))
    right = p * Uh * Wp + q * Uw

    def total(
        rows: list[np.ndarray] = rows, columns: list[np.ndarray] | None = None, window: np.ndarray = right,
        planes: np.ndarray = planes,
    ) -> np.ndarray:  # fmt: skip
        """y as the sum of other non-zeros, of others' columns, at other windows or in other images."""
        y = np.zeros(g.y_shape)
        for k, row in enumerate(rows):
            at = col[row if columns is None else columns[k]].reshape(-1, 1) + window.reshape(1, -1)
            y[:, k] = np.einsum("j,njw->nw", val[row], planes[:, at]).reshape(g.N, g.P, g.Q)
        return y

    if g.stride != (1, 1):
        yield "the stride is not used (p and q step by 1)", total(window=p * Wp + q)
        yield "the stride is used for the columns q only", total(window=p * Wp + q * Uw)
        yield "the stride is used for the rows p only", total(window=p * Uh * Wp + q)
    if g.pad[1]:
        unpadded = p * Uh * g.W + q * Uw
        yield "the window begins at p*U*W + q*U: W stands where the padded Wp belongs", total(window=unpadded)
    yield "every filter sums the row of filter 0", total(rows=[rows[0]] * g.K)
    yield "the last non-zero of each row is left out", total(rows=[row[:-1] for row in rows])
    yield "the first non-zero of each row is left out", total(rows=[row[1:] for row in rows])
    begun = [row - row[:1] if row.size else row for row in rows]
    yield "col is read from its beginning, not from where the row begins (col[j - rowptr[k]])", total(columns=begun)
    yield "col and val are read from their beginning, not from where the row begins", total(rows=begun)
    yield (
        "every row is summed from the first non-zero of all filters on, not from rowptr[k]",
        total(rows=[np.arange(end) for end in rowptr[1:]]),
    )
    yield "a row's last, partial tile is lost: shorter rows give 0", total(rows=[row[:0] for row in rows])
    longest = max(row.size for row in rows)
    for tile in _TILES:
        if longest > tile:
            yield f"only the first {tile} non-zeros of each row are summed", total(rows=[row[:tile] for row in rows])
        whole = [row[: row.size // tile * tile] for row in rows]
        yield f"only whole tiles of {tile} non-zeros are summed: a row's last, partial tile is lost", total(rows=whole)
    if g.N > 1:
        y = total()
        yield "every image is computed from image 0", np.broadcast_to(y[:1], y.shape)
        if g.pad != (0, 0):
            image = np.arange(g.N).reshape(-1, 1) * (g.C * g.H * g.W) + np.arange(planes.shape[1])
            yield "image n begins at n*C*H*W, without its padding", total(planes=planes.reshape(-1)[image])
