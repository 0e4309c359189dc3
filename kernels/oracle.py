"""The reference: convolution in float64, and how far a correct float32 kernel may be from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .layouts import ConvGeometry, output_size

__all__ = ["at", "bound", "conv2d", "output_size", "tf32"]

#: Unit roundoff of float32.
UNIT_ROUNDOFF = 2.0**-24

#: Slack over the rounding error that a random walk of n additions is expected to make.
#: A sequential float32 sum stays under 2.5 of the 8; one product in TF32 is already far above.
SLACK = 8.0

#: Elements of unrolled windows that are multiplied at a time.
_UNROLLED = 1 << 20


def conv2d(x, w, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: Any = 1) -> np.ndarray:
    """y[n,k,p,q] = sum over c, r, s of x[n, c, p U - pad + r dil, q U - pad + s dil] * w[k,c,r,s], in float64.

    x (N, C, H, W), w (K, C/groups, R, S), any real dtype; stride, pad, dilation ints or (h, w) pairs.
    Returns (N, K, P, Q) float64. Raises GeometryError where the shapes do not fit together.
    """
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    g = ConvGeometry.of(x.shape, w.shape, stride, pad, dilation, groups)
    padded = np.pad(x, ((0, 0), (0, 0), (g.pad[0],) * 2, (g.pad[1],) * 2))
    (up, across), (down, right) = g.stride, g.dilation
    window = ((g.R - 1) * down + 1, (g.S - 1) * right + 1)
    taps = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3))[:, :, ::up, ::across, ::down, ::right]
    channels, filters = g.C // g.groups, g.K // g.groups
    y = np.empty(g.y_shape)
    # One matrix product for a band of output rows, whose windows, unrolled, take a few megabytes.
    rows = max(1, _UNROLLED // (g.products * g.Q))
    for group in range(g.groups):
        matrix = w[group * filters : (group + 1) * filters].reshape(filters, g.products)
        mine = taps[:, group * channels : (group + 1) * channels]
        for n in range(g.N):
            for p in range(0, g.P, rows):
                band = mine[n, :, p : p + rows].transpose(0, 3, 4, 1, 2)
                product = matrix @ band.reshape(g.products, -1)
                y[n, group * filters : (group + 1) * filters, p : p + rows] = product.reshape(filters, -1, g.Q)
    return y


def bound(
    x, w, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: Any = 1, *, zero_mean: bool = True
) -> np.ndarray:
    """The largest |y - conv2d(...)| that float32 arithmetic explains, per element, shape (N, K, P, Q).

    With n products x w in an element and u = 2^-24:
    zero-mean data  8 sqrt(n) u sqrt(sum (x w)^2), which any order of summation keeps, fused or not,
                    and which half precision and TF32 break;
    other data      (n + 1) u sum |x w|, the worst case (`zero_mean=False`): on all-positive data the
                    rounding errors of a plain sum no longer cancel.
    """
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    n = ConvGeometry.of(x.shape, w.shape, stride, pad, dilation, groups).products
    underflow = n * float(np.finfo(np.float32).tiny)
    if zero_mean:
        return bound_of_squares(conv2d(x * x, w * w, stride, pad, dilation, groups), n)
    return (n + 1) * UNIT_ROUNDOFF * conv2d(abs(x), abs(w), stride, pad, dilation, groups) + underflow


def tf32(x: np.ndarray) -> np.ndarray:
    """float32 values rounded to TF32, the nearest with 10 bits of fraction instead of 23; halves away from zero.

    So a tensor core takes its inputs (PTX: cvt.rna.tf32.f32); it sums their products in float32.
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def bound_of_products(products: np.ndarray) -> np.ndarray:
    """As `bound` for zero-mean data, from the products themselves: (elements, products) float64 to (elements,)."""
    return bound_of_squares((products**2).sum(axis=1), products.shape[1])


def at(
    elements: np.ndarray, x, w, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: Any = 1
) -> tuple[np.ndarray, np.ndarray]:
    """conv2d(...) and its bound for zero-mean data, at some elements only: flat indices into (N, K, P, Q).

    Returns two float64 arrays as long as `elements`. For outputs that are too large to compute in full.
    """
    g = ConvGeometry.of(x.shape, w.shape, stride, pad, dilation, groups)
    n, k, p, q = (i.reshape(-1, 1, 1, 1) for i in np.unravel_index(elements, g.y_shape))
    channels = g.C // g.groups
    c = (k // (g.K // g.groups)) * channels + np.arange(channels).reshape(-1, 1, 1)
    row = p * g.stride[0] - g.pad[0] + np.arange(g.R).reshape(-1, 1) * g.dilation[0]
    column = q * g.stride[1] - g.pad[1] + np.arange(g.S) * g.dilation[1]
    inside = (row >= 0) & (row < g.H) & (column >= 0) & (column < g.W)
    taps = x[n, c, row.clip(0, g.H - 1), column.clip(0, g.W - 1)] * inside
    products = taps.astype(np.float64) * w[k.reshape(-1)].astype(np.float64)
    return products.sum((1, 2, 3)), bound_of_products(products.reshape(len(elements), -1))


def bound_of_squares(squares: np.ndarray, n: int) -> np.ndarray:
    """As `bound` for zero-mean data, from the sums of n squared products."""
    return SLACK * np.sqrt(n) * UNIT_ROUNDOFF * np.sqrt(squares) + n * float(np.finfo(np.float32).tiny)
