"""What a choice should cost: the default without measuring.

A block takes the time of the slowest of three: its instructions, its traffic with shared memory and the first-level
cache, and fetching its code, which comes from afar unless it stays on the multiprocessor. The rates below were fitted
to the runs on an H100 that docs/codegen.md tells of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..layouts import ConvGeometry
from .tiling import VECTOR, WARP, Choice, Tiling

#: Of the register file of a multiprocessor, in partitions that keep their warps to themselves.
_REGISTERS = 65536
_PARTITIONS = 4

#: Registers of a thread beside its sums: addresses, what is staged, what was loaded ahead. With fewer than these a
#: kernel spills, each missing register so much of its instructions; with fewer than the least it is not considered.
_OTHER_REGISTERS, _LEAST_OTHER = 24, 16
_SPILLED = 0.01

#: Code bytes that a multiprocessor gets in a cycle: new ones, and those that it has kept of at most so many.
_NEW_CODE, _KEPT_CODE, _MOST_KEPT = 1.15, 4.0, 90_000
#: The same from round to round of a block. Not measured yet, as is the cost of adding to y: bytes of a whole GPU.
_MOST_KEPT_IN_ROUNDS, _BYTES_A_CYCLE = 120_000, 1300.0
#: Shares of their peak that the schedulers and the path to shared memory reach.
_ISSUED, _MOVED = 0.8, 0.94
#: Cycles of that path for a warp: a load of a vector from shared memory; staging a vector (stored, loaded in two
#: lines, brought into the cache); and staging where there is nothing to stage.
_LOAD, _STAGE, _IDLE_STAGE = 4.3, 16.0, 4.0
#: Cycles before and after the stages of a block (addresses, zeros, results), and between the starts of two kernels.
_AROUND, _LAUNCH = 9000.0, 2300.0

_INSTRUCTION_BYTES = 16

#: More multiply-adds in one kernel take the compiler too long.
_MOST_IN_A_KERNEL = 24_000
_MOST_WAVES = 8


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
    kernels_a_group = -(-(geometry.K // geometry.groups) // choice.filters)
    kernels = geometry.groups * kernels_a_group * choice.splits
    channels = -(-channels // choice.splits)
    filters = -(-(geometry.K // geometry.groups) // kernels_a_group)
    density = nnz / (geometry.K * geometry.C // geometry.groups * taps)
    vectors = -(-channels // VECTOR)
    stages = -(-vectors // (choice.channels // VECTOR))
    loads = vectors * taps * (1 - (1 - density) ** (filters * min(VECTOR, channels)))
    staging = tiling.input_rows * geometry.W / choice.threads  # elements of a channel for each thread
    warps = choice.threads // WARP

    instructions = filters * channels * taps * density + loads + vectors * tiling.copies * 6 + stages * 4 + filters
    spilled = _SPILLED * max(0, filters + _OTHER_REGISTERS - registers(choice)) * instructions
    instructions += spilled
    code = instructions * _INSTRUCTION_BYTES
    waves = -(-kernels * tiling.blocks(geometry.N) // multiprocessors)
    kept = min(waves, kernels) * code <= _MOST_KEPT
    again = min(waves, kernels) * code <= _MOST_KEPT_IN_ROUNDS

    issue = -(-warps // _PARTITIONS) * instructions / _ISSUED
    staged = vectors * (staging * _STAGE + (tiling.copies - staging) * _IDLE_STAGE)
    memory = warps * (loads * _LOAD + staged + spilled) / _MOVED
    fetch = code / (_KEPT_CODE if kept else _NEW_CODE)
    first = max(issue, memory, fetch) + _AROUND
    later = max(issue, memory, code / _KEPT_CODE if kept or again else fetch) + _AROUND
    adding = 0.0
    if choice.splits > 1:
        adding = 3 * 4 * geometry.N * geometry.K * geometry.P * geometry.Q / _BYTES_A_CYCLE
    total = waves * (first + (choice.rounds - 1) * later) + kernels * _LAUNCH + adding
    return Cost(issue, memory, fetch, waves, total)


def registers(choice: Choice) -> int:
    """Registers that each thread of a block may have, one block on a multiprocessor."""
    warps = -(-choice.threads // WARP // _PARTITIONS)
    return min(255, _REGISTERS // _PARTITIONS // WARP // warps // 8 * 8)


def fits(choice: Choice) -> bool:
    """Whether the sums of a thread leave registers for the rest."""
    return choice.filters + _LEAST_OTHER <= registers(choice)


def candidates(geometry: ConvGeometry, nnz: int, multiprocessors: int, splits: int = 1) -> Iterator[Choice]:
    """Choices worth a thought: filters shared out evenly; blocks of whole images, or that fill whole waves."""
    per_group, plane = geometry.K // geometry.groups, geometry.P * geometry.Q
    points = max(1, geometry.N * plane)
    for filters in sorted({-(-per_group // parts) for parts in range(1, per_group + 1)}):
        if filters > 1 and nnz * filters / geometry.K > _MOST_IN_A_KERNEL * splits:
            continue
        blocks = max(1, multiprocessors // (splits * geometry.groups * -(-per_group // filters)))  # of one wave
        in_waves = {-(-points // (waves * blocks)) for waves in range(1, _MOST_WAVES + 1)}
        whole_images = set(range(plane, 1025, plane))
        for size in sorted(in_waves | whole_images | {min(1024, max(WARP, points))}):
            choice = Choice(filters, size, splits=splits) if min(WARP, points) <= size <= 1024 else None
            if choice and fits(choice):
                yield choice


def walking(geometry: ConvGeometry, choice: Choice, multiprocessors: int) -> Choice:
    """The same with blocks that walk, so that all of them run at once, each with one code to fetch."""
    kernels = choice.splits * geometry.groups * -(-(geometry.K // geometry.groups) // choice.filters)
    tiles = -(-geometry.N * geometry.P * geometry.Q // choice.points)
    return replace(choice, rounds=max(1, -(-tiles // max(1, multiprocessors // kernels))))


def ranked(geometry: ConvGeometry, w: np.ndarray, multiprocessors: int, tried: bool = True) -> list[Choice]:
    """The candidates for weights w, the cheapest first; `tried`: of the kinds only that were measured so far."""
    nnz = int(np.count_nonzero(w))
    found = set(candidates(geometry, nnz, multiprocessors)) or {Choice(1, 128)}
    if not tried:
        found |= set(candidates(geometry, nnz, multiprocessors, splits=2))
        found |= {walking(geometry, choice, multiprocessors) for choice in found}
    return sorted(found, key=lambda c: (cost(geometry, nnz, c, multiprocessors).total, c.filters, c.points))


def default_choice(geometry: ConvGeometry, w: np.ndarray, multiprocessors: int) -> Choice:
    """The cheapest choice by the model."""
    return ranked(geometry, w, multiprocessors)[0]
