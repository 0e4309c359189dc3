"""Lowering on the GPU: the input unrolled, so that a library's matrix product becomes a convolution.

y[n] = w col[n], with w (K, C R S) and col[n] (C R S, P Q); with groups, one product for each group's rows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from . import plan
from .gpu import cupy_module, enough_memory
from .launch import compile_cuda
from .layouts import ConvGeometry
from .module import Module, Ready
from .rungs import ladder_source


class Lowering:
    """Unrolls a batch `images` at a time into one buffer; a 1x1 filter over all of the input needs no unrolling.

    col  (images, C R S, P Q) float32: what the last `enqueue` unrolled. Without unrolling it has all images
    Raises GeometryError where the rung im2col does not take the geometry, DeviceMemoryError.
    """

    def __init__(self, geometry: ConvGeometry, x: Any, images: int):
        g = geometry
        self.images = images
        rows = g.C * g.R * g.S
        if is_plain_product(g):
            self.col = x.reshape(g.N, rows, g.P * g.Q)
            self._launches: list[list[Ready]] = []
            return
        module, text = _im2col()
        part = replace(g, N=images)
        text.check_needs(part.symbols(), "im2col")
        with enough_memory(f"the unrolled input of {images} images, {rows} x {g.P * g.Q} floats each,"):
            self.col = cupy_module().empty((images, rows, g.P * g.Q), np.float32)
        self._launches = [
            plan.ready(module, text, part.symbols(), {"x": x[first : first + images], "col": self.col})
            for first in range(0, g.N, images)
        ]

    def enqueue(self, part: int) -> None:
        """Unroll images part * images and following."""
        if self._launches:
            for launch in self._launches[part]:
                launch.kernel.module.image.enqueue(launch)  # type: ignore[attr-defined]

    def address(self, image: int, group: int, groups: int) -> int:
        """Where the rows of a group of an image lie, once that image's part has been unrolled."""
        kept, rows, columns = self.col.shape
        image %= kept
        return int(self.col.data.ptr) + 4 * (image * rows + group * (rows // groups)) * columns


def is_plain_product(g: ConvGeometry) -> bool:
    """Whether the input itself is the unrolled matrix."""
    return (g.R, g.S, *g.stride, *g.pad) == (1, 1, 1, 1, 0, 0)


@cache
def _im2col() -> tuple[Module, plan.Plan]:
    source = ladder_source("im2col")
    text = plan.parse(source)
    return compile_cuda(source, "gpu", options=text.options()), text
