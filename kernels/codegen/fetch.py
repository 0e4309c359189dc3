"""How fast a multiprocessor fetches code: the measurement that the design of generated kernels rests on.

A kernel of nothing but multiply-adds with immediates is run by some warps of every multiprocessor, several times over.
Its first pass finds the code in the second-level cache (or, flushed, in memory), later passes find what stayed nearer.
Warps may be in step, or be dealt to *streams* that begin at different places; blocks may be *spread* likewise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import gpu
from .assembler import build
from .convolution import architecture

#: The code is cut into so many parts, each the case of a switch: a stream can begin at any of them.
PARTS = 32
PASSES = 4
_SUMS, _OPERANDS = 24, 8
_INSTRUCTION_BYTES = 16
_BLOCK = 1024

#: Code sizes that `table` measures, in KiB, and warps of a multiprocessor.
SIZES = (32, 64, 96, 128, 192, 256, 512)
WARPS = (4, 8, 16, 32)


@dataclass(frozen=True)
class Rate:
    """Code of `kib` KiB, run by `warps` on each of `blocks` multiprocessors: median cycles of each pass."""

    kib: int
    warps: int
    streams: int
    spread: int
    blocks: int
    flushed: bool
    cycles: tuple[float, ...]

    @property
    def bytes_a_cycle(self) -> tuple[float, ...]:
        """Code that a stream got in a cycle, for each pass."""
        return tuple(self.kib * 1024 / cycles for cycles in self.cycles)

    @property
    def busy(self) -> tuple[float, ...]:
        """Multiply-adds issued, of those that could have been, for each pass."""
        least = self.kib * 1024 / _INSTRUCTION_BYTES * self.warps / 4
        return tuple(least / cycles for cycles in self.cycles)


def source(kib: int) -> str:
    """A kernel `codegen` with so many KiB of multiply-adds."""
    numbers = random.Random(kib)
    each = kib * 1024 // _INSTRUCTION_BYTES // PARTS
    sums = ", ".join(f'"+f"(sum{k})' for k in range(_SUMS))
    operands = ", ".join(f'"f"(x{j})' for j in range(_OPERANDS))
    cases = []
    for part in range(PARTS):
        body = "".join(
            f'"fma.rn.f32 %{i % _SUMS}, %{_SUMS + numbers.randrange(_OPERANDS)}, '
            f'0f{numbers.randrange(0x3F000000, 0x3F800000):08X}, %{i % _SUMS};\\n"\n'
            for i in range(each)
        )
        cases.append(f"case {part}: asm volatile({body} : {sums} : {operands}); break;")
    declared = "\n".join(
        [f"float x{j} = x[threadIdx.x + {j * _BLOCK}];" for j in range(_OPERANDS)]
        + [f"float sum{k} = 0;" for k in range(_SUMS)]
    )
    return f"""\
extern "C" __global__ void __launch_bounds__({_BLOCK})
codegen(const float* x, float* y, long long* cycles, int streams, int spread)
{{
    int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int begin = (warp * streams / warps * {PARTS} / streams + blockIdx.x * spread) % {PARTS};
    {declared}
    __syncthreads();
    long long* own = cycles + (blockIdx.x * 32 + warp) * {PASSES + 1};
    if (threadIdx.x % 32 == 0) own[0] = clock64();
    for (int pass = 1; pass <= {PASSES}; pass++) {{
        #pragma unroll 1
        for (int i = 0; i < {PARTS}; i++) switch ((begin + i) % {PARTS}) {{
{"".join(cases)}
        }}
        if (threadIdx.x % 32 == 0) own[pass] = clock64();
    }}
    y[blockIdx.x * {_BLOCK} + threadIdx.x] = {" + ".join(f"sum{k}" for k in range(_SUMS))};
}}
"""


class Fetch:
    """The kernels of all SIZES on the GPU at hand."""

    def __init__(self, sizes: tuple[int, ...] = SIZES):
        self._cupy = gpu.cupy_module()
        self._blocks = gpu.multiprocessors()
        self._kernels = {}
        for kib, built in zip(sizes, build([source(kib) for kib in sizes], architecture()), strict=True):
            module = self._cupy.cuda.function.Module()
            module.load(built.cubin)
            self._kernels[kib] = module.get_function("codegen")
        self._x = self._cupy.ones(_OPERANDS * _BLOCK, np.float32)
        self._y = self._cupy.empty(self._blocks * _BLOCK, np.float32)
        self._cycles = self._cupy.zeros((self._blocks, 32, PASSES + 1), np.int64)
        self._flush = self._cupy.empty(2 * gpu.cache_bytes(), np.uint8)

    def rate(
        self, kib: int, warps: int, streams: int = 1, spread: int = 0, blocks: int | None = None, flushed: bool = False
    ) -> Rate:
        """Measure: the median of the multiprocessors, and of three runs, between which other code is run."""
        runs = [self._run(kib, warps, streams, spread, blocks or self._blocks, flushed) for _ in range(3)]
        median = tuple(float(c) for c in np.median(runs, axis=0))
        return Rate(kib, warps, streams, spread, blocks or self._blocks, flushed, median)

    def _run(self, kib: int, warps: int, streams: int, spread: int, blocks: int, flushed: bool) -> Any:
        if flushed:
            self._flush.fill(0)
        largest, *others = sorted(self._kernels, reverse=True)
        self._launch(largest if kib != largest else others[0], 4, 1, 0, self._blocks)
        self._launch(kib, warps, streams, spread, blocks)
        cycles = self._cycles.get()[:blocks, :warps].astype(np.float64)
        ends = np.concatenate([cycles[:, :, :1].min(axis=1), cycles[:, :, 1:].max(axis=1)], axis=1)
        return np.median(np.diff(ends, axis=1), axis=0)

    def _launch(self, kib: int, warps: int, streams: int, spread: int, blocks: int) -> None:
        arguments = (self._x, self._y, self._cycles, np.int32(streams), np.int32(spread))
        self._kernels[kib]((blocks,), (32 * warps,), arguments)


def table() -> Iterator[Rate]:
    """The rates that docs/codegen.md shows: warps in step; cold from memory; streams; blocks spread."""
    fetch = Fetch()
    for kib in SIZES:
        for warps in WARPS:
            yield fetch.rate(kib, warps)
    for kib in (128, 512):
        yield fetch.rate(kib, 16, flushed=True)
        for streams in (2, 4, 8):
            yield fetch.rate(kib, 16, streams)
        yield fetch.rate(kib, 16, spread=5)
        yield fetch.rate(kib, 16, blocks=16)
