"""Convolution by lowering and cuBLAS's matrix product in strict float32, through CuPy."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from .errors import GeometryError
from .gpu import cupy_module
from .layouts import ConvGeometry
from .lowering import Lowering

#: "batched": one product of all images; "image": one after the other, as Caffe does.
By = Literal["batched", "image"]


class Convolution:
    """A lowered convolution of device arrays, to be run often.

    x, w, y  CuPy float32, C-contiguous, of the geometry's shapes
    convert  False leaves the unrolling out of `enqueue`: it is done once, here. Only for by="batched"
    Raises GeometryError where the rung im2col does not take the geometry, DeviceMemoryError.
    """

    capturable = False  # CuPy refuses to

    def __init__(self, geometry: ConvGeometry, x: Any, w: Any, y: Any, by: By = "batched", convert: bool = True):
        if not convert and by == "image":
            raise ValueError("without the conversion all images must lie unrolled: use by='batched'")
        self._g, self._w, self._y = geometry, w, y
        self._convert = convert
        self._lowering = Lowering(geometry, x, geometry.N if by == "batched" else 1)
        self._lowering.enqueue(0)

    def enqueue(self) -> None:
        for part in range(self._g.N // self._lowering.images):
            if self._convert:
                self._lowering.enqueue(part)
            for group in range(self._g.groups):
                self._multiply(part * self._lowering.images, group)

    def _multiply(self, image: int, group: int) -> None:
        g, per_group = self._g, self._g.K // self._g.groups
        plane = g.P * g.Q
        col = self._lowering.address(image, group, g.groups)
        w = self._w.data.ptr + 4 * group * per_group * g.products
        y = self._y.data.ptr + 4 * (image * g.K + group * per_group) * plane
        strides = g.C * g.R * g.S * plane, 0, g.K * plane
        multiply(per_group, plane, g.products, w, col, y, self._lowering.images, strides)


def multiply(
    rows: int,
    columns: int,
    inner: int,
    a: int,
    b: int,
    c: int,
    count: int = 1,
    strides: tuple[int, int, int] = (0, 0, 0),
) -> None:
    """c = a b for `count` row-major matrices at device addresses, in CuPy's current stream.

    a (rows, inner), b (inner, columns), c (rows, columns) float32; strides: elements from one b, a, c to the next
    Raises GeometryError where a size does not fit into the int that cuBLAS takes.
    """
    if max(rows, columns, inner, count) >= 2**31:
        raise GeometryError(
            f"cuBLAS takes sizes below 2^31: not {rows} x {inner} by {inner} x {columns}, {count} times. "
            "Use fewer images"
        )
    cublas, handle, (one, zero) = _cublas(), cupy_module().cuda.device.get_cublas_handle(), _scalars()
    cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)  # no TF32, whatever the caller has set
    # cuBLAS counts by columns: to it a row-major matrix is the transposed one, and c^T = b^T a^T.
    keep = cublas.CUBLAS_OP_N
    if count == 1:
        cublas.sgemm(
            handle,
            keep,
            keep,
            columns,
            rows,
            inner,
            one.ctypes.data,
            b,
            columns,
            a,
            inner,
            zero.ctypes.data,
            c,
            columns,
        )
        return
    of_b, of_a, of_c = strides
    cublas.sgemmStridedBatched(
        handle, keep, keep, columns, rows, inner, one.ctypes.data, b, columns, of_b, a, inner, of_a,
        zero.ctypes.data, c, columns, of_c, count,
    )  # fmt: skip


def version() -> str:
    """The version of cuBLAS, such as "13.1.0". Raises BackendError without a GPU."""
    number = _cublas().getVersion(cupy_module().cuda.device.get_cublas_handle())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@cache
def _cublas() -> Any:
    cupy_module()
    from cupy_backends.cuda.libs import cublas

    return cublas


@cache
def _scalars() -> tuple[np.ndarray, np.ndarray]:
    """One and zero at addresses that stay."""
    return np.ones((), np.float32), np.zeros((), np.float32)
