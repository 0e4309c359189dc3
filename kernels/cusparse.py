"""Convolution by lowering and cuSPARSE's sparse-dense product (SpMM), through CuPy.

The filters are canonical CSR (rows and columns ascending, no stored zeros), the dense matrices row-major, the algorithm
the fastest of cuSPARSE's for CSR on the problem at hand.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from .cublas import By
from .errors import BackendError, LibraryError
from .gpu import cupy_module
from .layouts import ConvGeometry, csr
from .lowering import Lowering
from .stopwatch import elapsed_us

#: cusparseSpMMAlg_t of CSR matrices; CuPy names the first only.
ALGORITHMS = {"CSR_ALG1": 4, "CSR_ALG2": 6, "CSR_ALG3": 12}
#: Takes one matrix at a time only, and says so on the standard output.
_UNBATCHED = "CSR_ALG3"

_FLOAT, _INT32, _ZERO_BASED, _BY_ROWS, _KEEP = 0, 2, 0, 2, 0  # CUDA_R_32F, cusparseIndexType_t and so on


@dataclass(frozen=True)
class _Product:
    """One SpMM: descriptors of the sparse filters, the unrolled input, the output."""

    filters: int
    col: int
    y: int


class Convolution:
    """A lowered convolution with sparse filters on device arrays, to be run often.

    x, y       CuPy float32, C-contiguous, of the geometry's shapes;  w  the filters, NumPy or CuPy
    by         "batched" or "image"
    convert    False leaves the unrolling out of `enqueue`: it is done once, here. Only for by="batched"
    algorithm  the fastest of ALGORITHMS, found here
    Raises GeometryError, DeviceMemoryError, LibraryError where no algorithm takes the problem.
    """

    capturable = False  # CuPy refuses to

    def __init__(self, geometry: ConvGeometry, x: Any, w: Any, y: Any, by: By = "batched", convert: bool = True):
        if not convert and by == "image":
            raise ValueError("without the conversion all images must lie unrolled: use by='batched'")
        self._g, self._y, self._convert = geometry, y, convert
        self._lowering = Lowering(geometry, x, geometry.N if by == "batched" else 1)
        self._lowering.enqueue(0)
        host = w if isinstance(w, np.ndarray) else w.get()
        per_group = geometry.K // geometry.groups
        self._keep: list[Any] = []
        self._empty: list[Any] = []  # outputs of groups without non-zeros
        self._parts: list[list[_Product]] = [[] for _ in range(geometry.N // self._lowering.images)]
        descriptors: list[tuple[str, int]] = []
        weakref.finalize(self, _destroy, descriptors)
        for group in range(geometry.groups):
            self._add_group(group, host[group * per_group : (group + 1) * per_group], descriptors)
        self.algorithm, self._buffers = self._fastest()

    def _add_group(self, group: int, filters: np.ndarray, descriptors: list[tuple[str, int]]) -> None:
        cupy, library, g, images = cupy_module(), _cusparse(), self._g, self._lowering.images
        matrix, plane = csr(filters), g.P * g.Q
        rows = slice(group * len(filters), (group + 1) * len(filters))
        if not matrix.nnz:
            self._empty.append(self._y[:, rows])
            return
        arrays = [cupy.asarray(part) for part in (matrix.rowptr, matrix.col, matrix.val)]
        self._keep += arrays
        sparse = library.createCsr(
            len(filters), g.products, matrix.nnz, *(a.data.ptr for a in arrays), _INT32, _INT32, _ZERO_BASED, _FLOAT
        )
        descriptors.append(("destroySpMat", sparse))
        if images > 1:
            _call("cusparseCsrSetStridedBatch", sparse, ctypes.c_int(images), ctypes.c_int64(0), ctypes.c_int64(0))
        for part, products in enumerate(self._parts):
            first = part * images
            col = library.createDnMat(
                g.products, plane, plane, self._lowering.address(first, group, g.groups), _FLOAT, _BY_ROWS
            )
            y = library.createDnMat(
                len(filters), plane, plane, self._y.data.ptr + 4 * (first * g.K + rows.start) * plane, _FLOAT, _BY_ROWS
            )
            descriptors += [("destroyDnMat", col), ("destroyDnMat", y)]
            if images > 1:
                library.dnMatSetStridedBatch(col, images, g.C * g.R * g.S * plane)
                library.dnMatSetStridedBatch(y, images, g.K * plane)
            products.append(_Product(sparse, col, y))

    def _fastest(self) -> tuple[str, dict[int, Any]]:
        """The algorithm that takes the least time for the first part, and its scratch memory for each group."""
        if not self._parts[0]:
            return "none: no filter has a non-zero", {}
        timed = []
        for name, algorithm in ALGORITHMS.items():
            if name == _UNBATCHED and self._lowering.images > 1:
                continue
            try:
                buffers = {p.filters: self._prepared(p, algorithm) for p in self._parts[0]}
                for _ in range(2):
                    self._multiply(self._parts[0], algorithm, buffers)
                time_us = elapsed_us(partial(self._multiply, self._parts[0], algorithm, buffers))
            except (_cusparse().CuSparseError, LibraryError):
                continue
            timed.append((time_us, name))
        if not timed:
            raise LibraryError(f"cuSPARSE {version()} has no SpMM for {self._g}")
        _, name = min(timed)
        # Of what was prepared for one matrix only the last counts: prepare the winner once more.
        return name, {p.filters: self._prepared(p, ALGORITHMS[name]) for p in self._parts[0]}

    def _prepared(self, product: _Product, algorithm: int) -> Any:
        one, zero = _scalars()
        size = _cusparse().spMM_bufferSize(
            _handle(), _KEEP, _KEEP, one.ctypes.data, product.filters, product.col, zero.ctypes.data, product.y,
            _FLOAT, algorithm,
        )  # fmt: skip
        buffer = cupy_module().empty(max(size, 1), np.uint8)
        # CuPy's calls set the stream; the one below would run in that of an earlier call, which may be gone.
        _cusparse().setStream(_handle(), cupy_module().cuda.get_current_stream().ptr)
        _call(
            "cusparseSpMM_preprocess", _handle(), _KEEP, _KEEP, one.ctypes.data, product.filters, product.col,
            zero.ctypes.data, product.y, _FLOAT, algorithm, buffer.data.ptr,
        )  # fmt: skip
        return buffer

    def enqueue(self) -> None:
        for y in self._empty:
            y.fill(0)
        for part, products in enumerate(self._parts):
            if self._convert:
                self._lowering.enqueue(part)
            self._multiply(products, ALGORITHMS.get(self.algorithm, 0), self._buffers)

    @staticmethod
    def _multiply(products: Iterable[_Product], algorithm: int, buffers: dict[int, Any]) -> None:
        one, zero = _scalars()
        for p in products:
            _cusparse().spMM(
                _handle(), _KEEP, _KEEP, one.ctypes.data, p.filters, p.col, zero.ctypes.data, p.y, _FLOAT, algorithm,
                buffers[p.filters].data.ptr,
            )  # fmt: skip


def version() -> str:
    """The version of cuSPARSE, such as "12.6.3". Raises BackendError without a GPU."""
    number = _cusparse().getVersion(_handle())
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _destroy(descriptors: list[tuple[str, int]]) -> None:
    for destroy, descriptor in descriptors:
        getattr(_cusparse(), destroy)(descriptor)


@cache
def _cusparse() -> Any:
    cupy_module()
    from cupy_backends.cuda.libs import cusparse

    return cusparse


def _handle() -> int:
    return int(cupy_module().cuda.device.get_cusparse_handle())


def _call(function: str, *args: Any) -> None:
    """Call what CuPy does not wrap. Plain integers are device addresses, descriptors or enumerators alike."""
    given = [ctypes.c_void_p(a) if isinstance(a, int) and a > 0xFFFF else a for a in args]
    status = getattr(_shared_library(), function)(*given)
    if status:
        raise LibraryError(f"cuSPARSE's {function} failed with status {status}")


@cache
def _shared_library() -> ctypes.CDLL:
    """The cuSPARSE that CuPy has loaded: the system finds it by its name."""
    _handle()
    name = "cusparse64_12.dll" if sys.platform == "win32" else "libcusparse.so.12"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise BackendError(f"cuSPARSE cannot be loaded: {error}") from None


@cache
def _scalars() -> tuple[np.ndarray, np.ndarray]:
    """One and zero at addresses that stay."""
    return np.ones((), np.float32), np.zeros((), np.float32)
