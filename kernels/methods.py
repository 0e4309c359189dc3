"""conv2d(x, w, ..., method=...): one call over every rung of the ladder and every library."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import codegen, recorded
from .errors import ArgumentError, BackendError, FaultError, GeometryError
from .gpu import cupy_module, device_facts, enough_memory
from .layouts import ConvGeometry
from .module import Backend
from .rungs import LADDER, check_geometry, convolution, ladder_source, on_host

__all__ = ["LADDER", "LIBRARIES", "Choice", "Policy", "choose", "conv2d", "ladder_source", "methods"]

#: The weights as generated code.
CODEGEN = "codegen"

#: NVIDIA's own, which need a GPU.
LIBRARIES = ("cudnn", "cublas", "cusparse")

#: How "auto" decides: by the crossover recorded for the device, or by the sparse paper's threshold.
Policy = Literal["measured", "paper"]

#: Sparse paper, section 4.1: above this share of zeros the sparse convolution is taken.
PAPER_THRESHOLD = 0.6


def methods() -> list[str]:
    """The names that conv2d takes as `method`."""
    return [*LADDER, CODEGEN, *LIBRARIES, "auto"]


def conv2d(
    x: Any,
    w: Any,
    stride: Any = 1,
    pad: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    method: str = "direct",
    on: Backend = "sim",
    policy: Policy = "measured",
    say: Callable[[str], object] = print,
) -> Any:
    """y[n,k,p,q] = sum over c, r, s of x[n, c, p U - pad + r dil, q U - pad + s dil] * w[k,c,r,s], in float32.

    x  (N, C, H, W) float32, NumPy or CuPy, any memory order;  w  (K, C/groups, R, S) float32
    stride, pad, dilation  ints or (h, w) pairs
    method  one of methods(): a rung, "codegen" (makes kernels of the weights, once for many calls), a library (on="gpu"
            only: "cudnn" in strict float32 and the faster layout, conversions counted, "cublas", "cusparse"), or
            "auto", which decides between the best sparse rung and a dense method
    on      "sim" (the engine) or "gpu"
    policy  how "auto" decides: "measured" or "paper" (zeros > 0.6);  say  is told what "auto" chose, and why
    Returns (N, K, P, Q) float32, CuPy where x is.
    Raises ArgumentError (dtype, method), GeometryError (shapes that do not fit, or a geometry that the method
    does not take), BackendError (no GPU, or a library that is not installed), DeviceMemoryError, LibraryError (the
    library has no way to do it), FaultError (the rung itself misbehaved).
    """
    if method not in methods():
        raise ArgumentError(f"there is no method {method!r}; there are {', '.join(methods())}")
    if on not in ("sim", "gpu"):
        raise ArgumentError(f'on = {on!r}: it must be "sim" or "gpu"')
    for name, array in (("x", x), ("w", w)):
        if not hasattr(array, "dtype") or array.dtype != np.float32:
            raise ArgumentError(
                f"{name} is {getattr(array, 'dtype', type(array).__name__)}: conv2d takes float32 arrays"
            )
    geometry = ConvGeometry.of(x.shape, w.shape, stride, pad, dilation, groups)
    if method == "auto":
        choice = choose(w, geometry, on, policy)
        say(f"auto: {choice.method}, because {choice.why}")
        method = choice.method
    if method in LIBRARIES:
        return _by_library(method, geometry, x, w, on)
    if method == CODEGEN:
        return _by_code(geometry, x, w, on)
    return _by_rung(method, geometry, x, w, on)


def _by_rung(method: str, geometry: ConvGeometry, x: Any, w: Any, on: Backend) -> Any:
    check_geometry(method, geometry, on)
    arrays = _array_library(x)
    with _memory(on, geometry):
        y = arrays.empty(geometry.y_shape, np.float32)
        if y.size == 0:
            return y
        x, w = arrays.ascontiguousarray(x), arrays.ascontiguousarray(w)
        for _, result in convolution(method, geometry, x, w, y, on).run():
            if result.faults:
                raise FaultError(result.faults[0])
    return y


def _by_code(geometry: ConvGeometry, x: Any, w: Any, on: Backend) -> Any:
    filters = np.ascontiguousarray(on_host(w))
    if on == "sim":
        y = np.empty(geometry.y_shape, np.float32)
        if y.size:
            codegen.run_on_engine(geometry, np.ascontiguousarray(on_host(x)), filters, y)
        return y if isinstance(x, np.ndarray) else _array_library(x).asarray(y)
    cupy = cupy_module()
    with _memory(on, geometry):
        on_device, y = cupy.ascontiguousarray(cupy.asarray(x)), cupy.empty(geometry.y_shape, np.float32)
        if y.size:
            codegen.prepared(geometry, filters).enqueue(on_device, y)
        return y.get() if isinstance(x, np.ndarray) else y


def _by_library(method: str, geometry: ConvGeometry, x: Any, w: Any, on: Backend) -> Any:
    if on != "gpu":
        raise BackendError(f'{method} is a library of NVIDIA\'s that runs on a GPU only: pass on="gpu"')
    cupy = cupy_module()
    with _memory(on, geometry):
        on_device, filters = (cupy.ascontiguousarray(cupy.asarray(a)) for a in (x, w))
        y = cupy.empty(geometry.y_shape, np.float32)
        if y.size:
            _enqueue(method, geometry, on_device, filters, y)
        return y.get() if isinstance(x, np.ndarray) else y


def _enqueue(method: str, geometry: ConvGeometry, x: Any, w: Any, y: Any) -> None:
    """The library's convolution of device arrays in CuPy's current stream."""
    from . import cublas, cudnn, cusparse  # each loads a library of its own

    if method == "cudnn":
        cudnn.fastest(geometry).enqueue(x, w, y)
    else:
        (cublas if method == "cublas" else cusparse).Convolution(geometry, x, w, y).enqueue()


def _memory(on: Backend, geometry: ConvGeometry) -> contextlib.AbstractContextManager[None]:
    return enough_memory(f"the convolution {geometry}") if on == "gpu" else contextlib.nullcontext()


def _array_library(x: Any) -> Any:
    """The array library of the result: CuPy where x is a CuPy array, else NumPy."""
    if isinstance(x, np.ndarray):
        return np
    if importlib.util.find_spec("cupy") is None:
        raise ArgumentError(f"x is a {type(x).__name__}: conv2d takes NumPy or CuPy arrays")
    import cupy

    return cupy


# ---- auto


@dataclass(frozen=True)
class Choice:
    """What "auto" takes, and why: a clause that can follow "because"."""

    method: str
    why: str


def choose(w: Any, geometry: ConvGeometry, on: Backend = "sim", policy: Policy = "measured") -> Choice:
    """Decide between the best sparse rung and a dense method by the share of zeros in w.

    Dense is "cudnn" on a GPU, "cublas" there without cuDNN, "direct" on the engine. Raises ArgumentError for another
    policy, BackendError without a GPU.
    """
    if policy not in ("measured", "paper"):
        raise ArgumentError(f'policy = {policy!r}: it must be "measured" or "paper"')
    zeros = 1 - int((w != 0).sum()) / w.size
    dense = _dense(on)
    threshold, source = _threshold(on, dense, policy)
    sparse = _sparse(geometry, on)
    if sparse is None:
        return Choice(dense, "no sparse rung takes this geometry")
    above = zeros > threshold
    relation = "above" if above else "not above"
    return Choice(
        sparse if above else dense, f"{zeros:.1%} of the weights are zero, {relation} {threshold:.1%}: {source}"
    )


def _dense(on: Backend) -> str:
    if on == "sim":
        return "direct"
    return "cudnn" if importlib.util.find_spec("cudnn") is not None else "cublas"


def _sparse(geometry: ConvGeometry, on: Backend) -> str | None:
    """The best rung for sparse weights that takes the geometry."""
    for name in reversed([name for name, route in LADDER.items() if route.column is not None]):
        with contextlib.suppress(GeometryError):
            check_geometry(name, geometry, on)
            return name
    return None


def _threshold(on: Backend, dense: str, policy: Policy) -> tuple[float, str]:
    if policy == "paper":
        return PAPER_THRESHOLD, "the sparse paper's threshold"
    if on == "sim":
        return PAPER_THRESHOLD, "the sparse paper's threshold, as nothing is measured on the engine"
    device = device_facts()["device"]
    found = recorded.crossover(device, dense)
    if found is None:
        return PAPER_THRESHOLD, f"the sparse paper's threshold, as no crossover is recorded for {device}"
    return found, f"the crossover with {dense} recorded on {device}"
