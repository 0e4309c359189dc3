"""What a choice should cost: the default without measuring.

A block's time on a multiprocessor is that of the slowest of three: its instructions, its traffic with shared memory
and the first-level cache, and fetching its code, which no warp of another block has used before. The rates below are
those of an H100, and docs/codegen.md tells how they were found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..layouts import ConvGeometry
from .tiling import VECTOR, WARP, Choice, Tiling

#: Of the register file of a multiprocessor, in four partitions.
_REGISTERS = 65536
_PARTITIONS = 4

#: Registers of a thread beside its sums: addresses, what is staged, what was loaded ahead.
_OTHER_REGISTERS = 24

#: Bytes of new code that a multiprocessor gets in a cycle while it also loads data, and of code alone.
_CODE_BYTES_A_CYCLE = 1.15
#: Shares of their peak that the schedulers and the path to shared memory reach.
_ISSUED, _MOVED = 0.8, 0.94
#: Before and after the stages: addresses, zeros, results. In cycles.
_AROUND = 9000.0
#: Between the starts of two kernels.
_LAUNCH = 2300.0

_INSTRUCTION_BYTES = 16

#: More multiply-adds in one kernel take the compiler too long.
_MOST_IN_A_KERNEL = 24_000


@dataclass(frozen=True)
class Cost:
    """Cycles of one block by what takes them, and of the whole convolution."""

    issue: float
    memory: float
    fetch: float
    waves: int
    total: float

    @property
    def bound(self) -> str:
        """What takes longest: "issue", "memory" or "fetch"."""
        return max(("issue", "memory", "fetch"), key=lambda name: getattr(self, name))


def cost(geometry: ConvGeometry, nnz: int, choice: Choice, multiprocessors: int) -> Cost:
    """What a choice should cost for weights of so many non-zeros, spread evenly."""
    tiling = Tiling(geometry, choice)
    channels, taps = geometry.C // geometry.groups, geometry.R * geometry.S
    kernels = geometry.groups * -(-(geometry.K // geometry.groups) // choice.filters)
    filters = -(-(geometry.K // geometry.groups) // (kernels // geometry.groups))
    density = nnz / (geometry.K * channels * taps)
    vectors = -(-channels // VECTOR)
    loads = vectors * taps * (1 - (1 - density) ** (filters * min(VECTOR, channels)))
    multiplications = filters * channels * taps * density
    warps = choice.threads // WARP
    staging = tiling.input_rows * geometry.W / choice.threads  # elements of a channel for each thread
    stages = -(-vectors // (choice.channels // VECTOR))
    instructions = multiplications + loads + vectors * tiling.copies * 6 + stages * 4 + filters
    issue = -(-warps // _PARTITIONS) * instructions / _ISSUED
    memory = warps * (loads * 4.3 + vectors * staging * (4 + 8 + 4)) / _MOVED
    fetch = instructions * _INSTRUCTION_BYTES / _CODE_BYTES_A_CYCLE
    waves = -(-kernels * tiling.blocks(geometry.N) // multiprocessors)
    total = waves * (max(issue, memory, fetch) + _AROUND) + kernels * _LAUNCH
    return Cost(issue, memory, fetch, waves, total)


def registers_allow(choice: Choice) -> bool:
    """Whether the sums of a block's threads fit into registers, one block on a multiprocessor."""
    warps = choice.threads // WARP
    each = min(255, _REGISTERS // _PARTITIONS // WARP // -(-warps // _PARTITIONS) // 8 * 8)
    return choice.filters + _OTHER_REGISTERS <= each


def candidates(geometry: ConvGeometry, nnz: int, multiprocessors: int) -> Iterator[Choice]:
    """Choices worth a thought: filters that share out evenly, and blocks that fill whole waves."""
    per_group = geometry.K // geometry.groups
    points = max(1, geometry.N * geometry.P * geometry.Q)
    for parts in range(1, per_group + 1):
        filters = -(-per_group // parts)
        if -(-per_group // filters) != parts and parts != per_group:
            continue  # another number of parts has as many filters
        if filters > 1 and nnz * filters / geometry.K > _MOST_IN_A_KERNEL:
            continue
        seen = set()
        for waves in range(1, 9):
            blocks = max(1, waves * multiprocessors // (parts * geometry.groups))
            for size in (-(-points // blocks), *range(128, 1025, 128)):
                if not WARP <= size <= 1024 and size != points:
                    continue
                choice = Choice(filters, min(size, 1024))
                if choice not in seen and registers_allow(choice):
                    seen.add(choice)
                    yield choice


def ranked(geometry: ConvGeometry, w: np.ndarray, multiprocessors: int) -> list[Choice]:
    """The candidates, the cheapest first."""
    nnz = int(np.count_nonzero(w))
    found = set(candidates(geometry, nnz, multiprocessors)) or {Choice(1, 128)}
    return sorted(found, key=lambda c: (cost(geometry, nnz, c, multiprocessors).total, c.filters, c.points))


def default_choice(geometry: ConvGeometry, w: np.ndarray, multiprocessors: int) -> Choice:
    """The cheapest choice by the model."""
    return ranked(geometry, w, multiprocessors)[0]
