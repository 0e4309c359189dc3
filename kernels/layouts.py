"""Shapes and layouts: how a convolution's sizes fit together and where its elements lie in memory.

Symbols, here and everywhere: N images, C input channels, H x W input, K output channels, R x S filter,
P x Q output, U stride, pad, dil dilation. Tensors are NCHW (inputs), KCRS (filters), NKPQ (outputs).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import expression
from .errors import GeometryError

Pair = tuple[int, int]


def output_size(size: int, filter_size: int, stride: int = 1, pad: int = 0, dilation: int = 1) -> int:
    """Output elements along one axis: (size + 2 pad - dilation (filter - 1) - 1) // stride + 1."""
    return (size + 2 * pad - dilation * (filter_size - 1) - 1) // stride + 1


def source_index(p: int, q: int, r: int, s: int, U: int, pad: int, H: int, W: int) -> Pair | None:
    """Where tap (r, s) of output point (p, q) lies in the unpadded H x W input: (p U - pad + r, q U - pad + s).

    None where that is outside of the input, in the padding, whose value is zero.
    """
    h, w = p * U - pad + r, q * U - pad + s
    return (h, w) if 0 <= h < H and 0 <= w < W else None


def strides(shape: tuple[int, ...], layout: str = "nchw") -> tuple[int, int, int, int]:
    """Elements from one index to the next along N, C, H, W, of a tensor of the shape (N, C, H, W) in a layout.

    layout  "nchw": the width lies side by side in memory; "nhwc": the channels do
    """
    _, c, h, w = shape
    return (c * h * w, h * w, w, 1) if layout == "nchw" else (c * h * w, 1, w * c, c)


def im2col(x: np.ndarray, R: int, S: int, U: int = 1, pad: int = 0) -> np.ndarray:
    """An image (C, H, W) unrolled: column p Q + q holds the window of output (p, q), one row a channel and tap.

    col[(c R + r) S + s, p Q + q] = x[c, p U - pad + r, q U - pad + s], 0 in the padding
    returns (C R S, P Q), of the dtype of x. Source: lab report, section 2.2 (there one row an output point)
    """
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (R, S), (1, 2))[:, ::U, ::U]
    return windows.transpose(0, 3, 4, 1, 2).reshape(x.shape[0] * R * S, -1)


def output_index(h: int, r: int, U: int, pad: int, P: int) -> int | None:
    """The output p of P that reads input row h through tap r, p U - pad + r = h; None where there is none.

    The same holds for columns. Source: the condition of the sum over k, r, s in lab 7, eq. 2.
    """
    p, between = divmod(h + pad - r, U)
    return p if not between and 0 <= p < P else None


def pair(value: Any, name: str, least: int) -> Pair:
    """An int or an (h, w) pair as a pair of ints, each at least `least`; GeometryError otherwise."""
    try:
        both = tuple(value) if hasattr(value, "__iter__") else (value, value)
        h, w = (operator.index(v) for v in both)
    except (TypeError, ValueError):
        raise GeometryError(f"{name} is {value!r}: give an int or a pair of ints (height, width)") from None
    if h < least or w < least:
        raise GeometryError(f"{name} is {value!r}: it must be at least {least}")
    return h, w


@dataclass(frozen=True)
class ConvGeometry:
    """The sizes of one convolution. Pairs are (along the height, along the width)."""

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def __post_init__(self) -> None:
        if self.N < 0 or min(self.C, self.H, self.W, self.K, self.R, self.S) < 1:
            raise GeometryError(f"every size must be at least 1 (N at least 0): {self}")
        if self.C % self.groups or self.K % self.groups:
            raise GeometryError(f"groups = {self.groups} must divide both C = {self.C} and K = {self.K}")
        if self.P < 1 or self.Q < 1:
            raise GeometryError(
                f"the filter ({self.R}x{self.S}, dilation {self.dilation}) is larger than the padded input "
                f"({self.H + 2 * self.pad[0]}x{self.W + 2 * self.pad[1]}): there is no output"
            )

    @classmethod
    def of(
        cls, x_shape: tuple[int, ...], w_shape: tuple[int, ...],
        stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: Any = 1,
    ) -> ConvGeometry:  # fmt: skip
        """From the shapes of x (N, C, H, W) and w (K, C/groups, R, S); GeometryError where they do not fit."""
        if len(x_shape) != 4 or len(w_shape) != 4:
            raise GeometryError(f"x must be (N, C, H, W) and w (K, C/groups, R, S); got {x_shape} and {w_shape}")
        groups = pair(groups, "groups", 1)[0]
        N, C, H, W = x_shape
        K, c_of_group, R, S = w_shape
        if c_of_group * groups != C:
            raise GeometryError(
                f"w has {c_of_group} channels a filter, but x has C = {C} and groups = {groups}: "
                f"w's second size must be C/groups"
            )
        return cls(
            N, C, H, W, K, R, S,
            pair(stride, "stride", 1), pair(pad, "pad", 0), pair(dilation, "dilation", 1), groups,
        )  # fmt: skip

    @property
    def P(self) -> int:
        return output_size(self.H, self.R, self.stride[0], self.pad[0], self.dilation[0])

    @property
    def Q(self) -> int:
        return output_size(self.W, self.S, self.stride[1], self.pad[1], self.dilation[1])

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.C // self.groups, self.R, self.S

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.K, self.P, self.Q

    @property
    def products(self) -> int:
        """Products in one output element, those with padding included."""
        return self.C // self.groups * self.R * self.S

    def symbols(self) -> dict[str, int]:
        """What a plan's expressions may name. U, pad and dil are there only where height and width agree."""
        named = {name: getattr(self, name) for name in ("N", "C", "H", "W", "K", "R", "S", "P", "Q", "groups")}
        for name, (h, w) in (("U", self.stride), ("pad", self.pad), ("dil", self.dilation)):
            named[f"{name}h"], named[f"{name}w"] = h, w
            if h == w:
                named[name] = h
        return named


#: The column of weight (c, r, s) in the plain CSR matrix K x (C R S), as lowering multiplies it.
PLAIN_COLUMN = "(c*R + r)*S + s"


@dataclass(frozen=True)
class Csr:
    """A sparse matrix: row k's non-zeros are val[rowptr[k] .. rowptr[k+1]-1], at the columns col.

    rowptr (rows + 1,) int32;  col (nnz,) int32, ascending in each row;  val (nnz,) float32
    """

    rowptr: np.ndarray
    col: np.ndarray
    val: np.ndarray

    @property
    def nnz(self) -> int:
        return self.val.size

    def entries(self) -> np.ndarray:
        """(nnz, 2) int32: each column beside the bits of its value, for one load of eight bytes."""
        return np.stack([self.col, self.val.view(np.int32)], axis=1)


def csr(
    w: np.ndarray,
    groups: int = 1,
    column: str = PLAIN_COLUMN,
    symbols: Mapping[str, Any] | None = None,
    row: str = "k",
) -> Csr:
    """The non-zeros of w (K, C/groups, R, S) float32 as CSR, one row a filter.

    column   where weight (k, c, r, s) stands in its row: an expression over k, c (of all C channels), r, s
    symbols  what it may name besides these and K, R and S
    row      in which row it stands, likewise; the last weight stands in the last row
    Raises GeometryError where a column or the number of non-zeros does not fit into an int32. Source: sparse paper, 2.2
    (plain); stretched to the padded input, section 3.1, the column is (c Hp + r dil) Wp + s dil.
    """
    K, channels, R, S = w.shape
    k, c, r, s = (index.astype(np.int64) for index in np.nonzero(w))
    c += k // (K // groups) * channels
    named = {**(symbols or {}), "K": K, "R": R, "S": S}
    last = expression.evaluate(row, {**named, "k": K - 1, "c": channels * groups - 1, "r": R - 1, "s": S - 1})
    named |= {"k": k, "c": c, "r": r, "s": s}
    rows, col = (np.broadcast_to(expression.evaluate(text, named), k.shape) for text in (row, column))
    if k.size >= 2**31 or col.max(initial=0) >= 2**31:
        raise GeometryError(f"the weights have {k.size} non-zeros and columns up to {col.max()}: both must be < 2^31")
    order = np.argsort(rows, kind="stable")
    rowptr = np.searchsorted(rows[order], np.arange(last + 2))
    return Csr(rowptr.astype(np.int32), col[order].astype(np.int32), w[w != 0][order])


def csr_arrays(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A matrix (rows, columns) float32 as the arrays of CSR: (rowptr, col, val). Source: sparse paper, figure 3."""
    found = csr(a[:, :, None, None])
    return found.rowptr, found.col, found.val


def stretched_column(col: int, R: int, S: int, Hp: int, Wp: int, U: int, dil: int) -> int:
    """Where the weight in column (c R + r) S + s of a filter stands, seen from the corner of the padded input.

    (c Hp + r dil) Wp + s dil: the stride U moves windows, not weights. Source: sparse paper, section 3.1, where nothing
    is padded and dil is 1.
    """
    row, s = divmod(col, S)
    c, r = divmod(row, R)
    return (c * Hp + r * dil) * Wp + s * dil


def window_start(p: int, q: int, Wp: int, U: int) -> int:
    """The first element of the window of output (p, q) in a plane of the padded input: (p U) Wp + q U.

    Source: sparse paper, section 3.2 (there U is 1 and W not padded).
    """
    return p * U * Wp + q * U
