"""Two kernels in Numba's CUDA simulator, timed: a program of its own, as the simulator is chosen before Numba loads.

    NUMBA_ENABLE_CUDASIM=1 python -m convladder.kernels.bench.numba_simulator EDGE IMAGE

Prints JSON: seconds for a tiled product of EDGE x EDGE matrices, and for one 3x3 filter over three channels of an
IMAGE x IMAGE picture.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def product(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, first + x]
        b_tile[y, x] = b[first + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def convolution(x, w, y):
    q, p = cuda.grid(2)
    total = float32(0)
    for c in range(w.shape[0]):
        for r in range(3):
            for s in range(3):
                i, j = p + r - 1, q + s - 1
                if i >= 0 and j >= 0 and i < x.shape[1] and j < x.shape[2]:
                    total += x[c, i, j] * w[c, r, s]
    y[p, q] = total


def main(edge: int, image: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((edge, edge), np.float32) for _ in range(2))
    c = np.zeros_like(a)
    began = time.perf_counter()
    product[(edge // TILE, edge // TILE), (TILE, TILE)](a, b, c)
    seconds = {"gemm": time.perf_counter() - began}
    assert np.allclose(c, a @ b, atol=1e-3)
    x, w = rng.standard_normal((3, image, image), np.float32), rng.standard_normal((3, 3, 3), np.float32)
    y = np.zeros((image, image), np.float32)
    began = time.perf_counter()
    convolution[(image // TILE, image // TILE), (TILE, TILE)](x, w, y)
    seconds["direct"] = time.perf_counter() - began
    return seconds


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
