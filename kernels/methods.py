"""conv2d(x, w, ..., method=...): one call over every rung of the ladder."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from . import plan
from .errors import ArgumentError, BackendError, FaultError
from .launch import Backend, Module, compile_cuda, out
from .layouts import ConvGeometry

#: The rungs from the simplest to the best; each is the stem of a file in ladder/.
LADDER = ("direct_guarded", "direct_clipped", "direct_report", "direct_coalesced", "direct")

_FOLDER = Path(__file__).parent / "ladder"


def methods() -> list[str]:
    """The names that conv2d takes as `method`."""
    return list(LADDER)


@cache
def ladder_source(name: str) -> str:
    """The CUDA text of a rung. Raises ArgumentError for a name that is none."""
    if name not in LADDER:
        raise ArgumentError(f"there is no method {name!r}; there are {', '.join(LADDER)}")
    try:
        return (_FOLDER / f"{name}.cu").read_text()
    except FileNotFoundError:
        raise BackendError(
            f"the source of {name} does not come with this installation: it is in the repository"
        ) from None


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
    source = ladder_source(method)
    for name, array in (("x", x), ("w", w)):
        if not hasattr(array, "dtype") or array.dtype != np.float32:
            raise ArgumentError(
                f"{name} is {getattr(array, 'dtype', type(array).__name__)}: conv2d takes float32 arrays"
            )
    geometry = ConvGeometry.of(x.shape, w.shape, stride, pad, dilation, groups)
    text = plan.parse(source)
    text.check_needs(geometry.symbols(), method)
    arrays = _library(on, x)
    y = arrays.empty(geometry.y_shape, np.float32)
    if y.size == 0:
        return y
    operands = {"x": arrays.ascontiguousarray(x), "w": arrays.ascontiguousarray(w), "y": out(y)}
    for _, result in plan.run(_module(method, on), text, geometry.symbols(), operands):
        if result.faults:
            raise FaultError(result.faults[0])
    return y


@cache
def _module(method: str, on: Backend) -> Module:
    source = ladder_source(method)
    return compile_cuda(source, on, options=plan.parse(source).options())


def _library(on: Backend, x: Any) -> Any:
    """The array library of the result: CuPy where x is a CuPy array, else NumPy."""
    if isinstance(x, np.ndarray):
        return np
    if importlib.util.find_spec("cupy") is None:
        raise ArgumentError(f"x is a {type(x).__name__}: conv2d takes NumPy or CuPy arrays")
    import cupy

    return cupy
