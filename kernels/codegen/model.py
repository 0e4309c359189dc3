"""What a choice should cost: the default without measuring.

A block takes the time of the slowest of four: its instructions, its traffic with shared memory and the first-level
cache, fetching its code, which comes from afar unless it stays on the multiprocessor, and waiting for what a stage
loads. The rates below were fitted to the runs on an H100 that docs/codegen.md tells of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from ..layouts import ConvGeometry
from .tiling import VECTOR, WARP, Choice, Tiling

#: Of the register file of a multiprocessor, in partitions that keep their warps to themselves.
_REGISTERS = 65536
_PARTITIONS = 4

#: Registers of a thread beside its sums and what it stages: addresses, what was loaded ahead. With fewer than these a
#: kernel spills, each missing register so much of its instructions; with fewer than the least it is not considered.
_OTHER_REGISTERS, _LEAST_OTHER = 26, 10
_SPILLED = 0.017

#: Code bytes that a multiprocessor gets in a cycle: new ones, and those that it has kept of at most so many.
_NEW_CODE, _KEPT_CODE, _MOST_KEPT = 1.35, 6.6, 93_500
#: The same from round to round of a block; and what adding to y costs, in bytes of a whole GPU.
_MOST_KEPT_IN_ROUNDS, _BYTES_A_CYCLE = 120_000, 1180.0
#: Shares of their peak that the schedulers and the path to shared memory reach.
_ISSUED, _MOVED = 0.83, 0.95
#: Cycles of that path for a warp: a load of a vector from shared memory; staging a vector (stored, loaded in two
#: lines, brought into the cache); and staging where there is nothing to stage.
_LOAD, _STAGE, _IDLE_STAGE = 4.27, 12.1, 9.9
#: Cycles before and after the stages of a block (addresses, zeros, results), and between the starts of two kernels.
_AROUND, _LAUNCH = 8070.0, 1450.0
#: Cycles of a stage beside its work (its barrier), and the least that a stage takes (a load from memory far away).
_BARRIER, _FLOOR = 159.0, 816.0

_INSTRUCTION_BYTES = 16

#: More multiply-adds in one kernel take the compiler too long. Of the numbers of filters so many are considered, the
#: largest: fewer load their input too often.
_MOST_IN_A_KERNEL, _MOST_SHARES = 24_000, 16
_MOST_WAVES = 8
#: Input channels in shared memory at a time.
_CHANNELS = (VECTOR, 2 * VECTOR, 4 * VECTOR)


@dataclass(frozen=True)
class Cost:
    """Cycles of one block by what takes them, and of the whole convolution."""

    issue: float
    memory: float
    fetch: float
    wait: float
    waves: int
    total: float

    @property
    def bound(self) -> str:
        """What takes longest: "issue", "memory", "fetch" or "wait"."""
        return max(("issue", "memory", "fetch", "wait"), key=lambda name: getattr(self, name))


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
    spilled = _SPILLED * max(0, filters + held(tiling) + _OTHER_REGISTERS - registers(choice)) * instructions
    instructions += spilled
    code = instructions * _INSTRUCTION_BYTES
    waves = -(-kernels * tiling.blocks(geometry.N) // multiprocessors)
    kept = min(waves, kernels) * code <= _MOST_KEPT
    again = min(waves, kernels) * code <= _MOST_KEPT_IN_ROUNDS

    issue = -(-warps // _PARTITIONS) * instructions / _ISSUED
    staged = vectors * (staging * _STAGE + (tiling.copies - staging) * _IDLE_STAGE)
    memory = warps * (loads * _LOAD + staged + spilled) / _MOVED
    fetch = code / (_KEPT_CODE if kept else _NEW_CODE)
    around = _AROUND + stages * _BARRIER
    wait = stages * _FLOOR
    first = max(issue, memory, fetch, wait) + around
    later = max(issue, memory, code / _KEPT_CODE if kept or again else fetch, wait) + around
    adding = 0.0
    if choice.splits > 1:
        adding = 3 * 4 * geometry.N * geometry.K * geometry.P * geometry.Q / _BYTES_A_CYCLE
    total = waves * (first + (choice.rounds - 1) * later) + kernels * _LAUNCH + adding
    return Cost(issue, memory, fetch, wait, waves, total)


def registers(choice: Choice) -> int:
    """Registers that each thread of a block may have, one block on a multiprocessor."""
    warps = -(-choice.threads // WARP // _PARTITIONS)
    return min(255, _REGISTERS // _PARTITIONS // WARP // warps // 8 * 8)


def held(tiling: Tiling) -> int:
    """Registers in which a thread keeps what it stages next."""
    return tiling.copies * tiling.choice.channels


def fits(tiling: Tiling) -> bool:
    """Whether the sums of a thread leave registers for the rest."""
    return tiling.choice.filters + held(tiling) + _LEAST_OTHER <= registers(tiling.choice)


def candidates(geometry: ConvGeometry, nnz: int, multiprocessors: int) -> Iterator[Choice]:
    """Choices worth a thought: filters shared out evenly; blocks of whole images, or that fill whole waves; each also
    with blocks that walk, so that all run at once."""
    per_group = geometry.K // geometry.groups
    shares = {-(-per_group // parts): parts for parts in range(per_group, 0, -1)}  # filters: the fewest kernels
    for splits in (1, 2):
        most = max(1, int(_MOST_IN_A_KERNEL * splits * geometry.K / max(1, nnz)))
        largest = [filters for filters in sorted(shares, reverse=True) if filters <= most][:_MOST_SHARES]
        for filters, staged in product(largest, _CHANNELS):
            kernels = splits * geometry.groups * shares[filters]
            for points, rounds in _cuts(geometry, max(1, multiprocessors // kernels)):
                choice = Choice(filters, points, staged, splits, rounds)
                if fits(Tiling(geometry, choice)):
                    yield choice


def _cuts(geometry: ConvGeometry, blocks: int) -> Iterator[tuple[int, int]]:
    """Points and rounds of blocks, of which so many run at once."""
    plane = geometry.P * geometry.Q
    points = max(1, geometry.N * plane)
    in_waves = {-(-points // (waves * blocks)) for waves in range(1, _MOST_WAVES + 1)}
    whole_images = set(range(plane, 1025, plane))
    for size in sorted(in_waves | whole_images | {min(1024, max(WARP, points))}):
        if min(WARP, points) <= size <= 1024:
            tiles = -(-points // size)
            yield from product((size,), {1, -(-tiles // blocks)})


def ranked(geometry: ConvGeometry, w: np.ndarray, multiprocessors: int) -> list[Choice]:
    """The candidates for weights w, the cheapest first."""
    nnz = int(np.count_nonzero(w))
    found = set(candidates(geometry, nnz, multiprocessors)) or {Choice(1, 128)}
    return sorted(found, key=lambda c: (cost(geometry, nnz, c, multiprocessors).total, c.filters, c.points, c.rounds))


def default_choice(geometry: ConvGeometry, w: np.ndarray, multiprocessors: int) -> Choice:
    """The cheapest choice by the model."""
    return ranked(geometry, w, multiprocessors)[0]
