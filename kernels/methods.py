"""conv2d(x, w, ..., method=...): one call over every rung of the ladder."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from .errors import ArgumentError, FaultError
from .launch import Backend
from .layouts import ConvGeometry
from .rungs import LADDER, check_geometry, convolution, ladder_source

__all__ = ["LADDER", "conv2d", "ladder_source", "methods"]


def methods() -> list[str]:
    """The names that conv2d takes as `method`."""
    return list(LADDER)


def conv2d(
    x: Any,
    w: Any,
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    method: str = "direct",
    on: Backend = "sim",
) -> Any:
    """y[n,k,p,q] = sum over c, r, s of x[n, c, p U - pad + r dil, q U - pad + s dil] * w[k,c,r,s], in float32.

    x  (N, C, H, W) float32, NumPy or CuPy, any memory order;  w  (K, C/groups, R, S) float32
    stride, pad, dilation  ints or (h, w) pairs
    method  one of methods();  on  "sim" (the engine) or "gpu"
    Returns (N, K, P, Q) float32, CuPy where x is.
    Raises ArgumentError (dtype, method), GeometryError (shapes that do not fit, or a geometry that the method
    does not take), BackendError (no GPU), FaultError (the rung itself misbehaved).
    """
    if method not in LADDER:
        raise ArgumentError(f"there is no method {method!r}; there are {', '.join(methods())}")
    for name, array in (("x", x), ("w", w)):
        if not hasattr(array, "dtype") or array.dtype != np.float32:
            raise ArgumentError(
                f"{name} is {getattr(array, 'dtype', type(array).__name__)}: conv2d takes float32 arrays"
            )
    geometry = ConvGeometry.of(x.shape, w.shape, stride, pad, dilation, groups)
    check_geometry(method, geometry)
    arrays = _library(on, x)
    y = arrays.empty(geometry.y_shape, np.float32)
    if y.size == 0:
        return y
    x, w = arrays.ascontiguousarray(x), arrays.ascontiguousarray(w)
    for _, result in convolution(method, geometry, x, w, y, on).run():
        if result.faults:
            raise FaultError(result.faults[0])
    return y


def _library(on: Backend, x: Any) -> Any:
    """The array library of the result: CuPy where x is a CuPy array, else NumPy."""
    if isinstance(x, np.ndarray):
        return np
    if importlib.util.find_spec("cupy") is None:
        raise ArgumentError(f"x is a {type(x).__name__}: conv2d takes NumPy or CuPy arrays")
    import cupy

    return cupy
