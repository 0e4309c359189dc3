"""How many blocks of a kernel run on a multiprocessor at once, and how well a grid fills the GPU with them."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ArgumentError
from .resources import Resources

WARP = 32


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor of an architecture has.

    shared_bytes           shared memory of a multiprocessor
    reserved_shared_bytes  of it, what the system takes for each block
    block_shared_bytes     most that a block may ask for, static and dynamic, after opting in
    """

    warps: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    reserved_shared_bytes: int = 1024
    shared_unit: int = 128
    registers: int = 65536
    register_unit: int = 256  # registers of a warp are given out in such units
    partitions: int = 4  # each has a quarter of the registers and holds a quarter of the warps


def _limits(warps: int, blocks: int, kilobytes: int) -> Limits:
    return Limits(warps, blocks, kilobytes * 1024, (kilobytes - 1) * 1024)


#: By architecture. CUDA C++ Programming Guide 13.0, section 20.2, "Technical Specifications per Compute Capability";
#: units and partitions: cuda_occupancy.h of the CUDA runtime 13.0.
LIMITS: dict[str, Limits] = {
    "sm_75": Limits(32, 16, 64 * 1024, 64 * 1024, reserved_shared_bytes=0, shared_unit=256),
    "sm_80": _limits(64, 32, 164),
    "sm_86": _limits(48, 16, 100),
    "sm_87": _limits(48, 16, 164),
    "sm_89": _limits(48, 24, 100),
    "sm_90": _limits(64, 32, 228),
    "sm_100": _limits(64, 32, 228),
    "sm_103": _limits(64, 32, 228),
    "sm_110": _limits(48, 24, 228),
    "sm_120": _limits(48, 24, 100),
    "sm_121": _limits(48, 24, 100),
}

MAX_BLOCK_THREADS = 1024


@dataclass(frozen=True)
class Occupancy:
    """Blocks of one kernel that run on a multiprocessor at once.

    blocks_by   how many each resource would allow: "blocks", "warps", "registers", "shared memory"
    limited_by  the resource that allows fewest; of several, the first
    """

    blocks: int
    warps: int
    max_warps: int
    blocks_by: dict[str, int]
    limited_by: str

    @property
    def ratio(self) -> float:
        """Active warps of those that a multiprocessor can hold, 0 to 1."""
        return self.warps / self.max_warps


def occupancy(kernel: Resources, block: int, shared: int = 0) -> Occupancy:
    """How many blocks of a kernel run on a multiprocessor of its architecture at once.

    kernel   what `resources` found
    block    threads of a block, 1 to 1024
    shared   bytes of dynamic shared memory of a block
    Raises ArgumentError for an architecture without limits here, or a block that cannot run at all.
    """
    limits = limits_of(kernel.arch)
    if not 1 <= block <= MAX_BLOCK_THREADS:
        raise ArgumentError(f"block = {block}: a block has 1 to {MAX_BLOCK_THREADS} threads")
    asked = kernel.shared_bytes + shared
    if shared < 0 or asked > limits.block_shared_bytes:
        raise ArgumentError(
            f"{kernel.kernel} asks for {asked} bytes of shared memory; a block on {kernel.arch} has at most "
            f"{limits.block_shared_bytes}"
        )
    warps = -(-block // WARP)
    blocks_by = {
        "blocks": limits.blocks,
        "warps": limits.warps // warps,
        "registers": _blocks_by_registers(kernel, warps, limits),
        "shared memory": _blocks_by_shared_memory(asked, limits),
    }
    limited_by = min(blocks_by, key=lambda name: blocks_by[name])
    blocks = blocks_by[limited_by]
    return Occupancy(blocks, blocks * warps, limits.warps, blocks_by, limited_by)


def limits_of(arch: str) -> Limits:
    """The limits of an architecture. Raises ArgumentError for one that is not in LIMITS."""
    if arch not in LIMITS:
        raise ArgumentError(f"arch = {arch!r}: limits are known of {', '.join(LIMITS)}")
    return LIMITS[arch]


def _blocks_by_registers(kernel: Resources, warps: int, limits: Limits) -> int:
    """Registers are given to whole warps; a partition of the multiprocessor keeps its warps to itself."""
    for_warp = _rounded_up(kernel.registers * WARP, limits.register_unit)
    in_partition = limits.registers // limits.partitions // for_warp
    # A block that would not fit if its warps were dealt out evenly cannot run.
    if for_warp * _rounded_up(warps, limits.partitions) > limits.registers:
        return 0
    return in_partition * limits.partitions // warps


def _blocks_by_shared_memory(asked: int, limits: Limits) -> int:
    for_block = _rounded_up(asked + limits.reserved_shared_bytes, limits.shared_unit)
    return limits.shared_bytes // for_block if for_block else limits.blocks


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# ---- the training paper's measures (Li, Zhang, Cao: Analyzing performance of neural networks in training phase, 2018)


def compute_efficiency(flops: float, time_us: float, multiprocessors: int, cores: int, clock_mhz: float) -> float:
    """CE: operations a second, of those that a GPU could do at most (training paper, section 5.1, eq. 8).

    cores      of each multiprocessor: one multiply-add, two operations, each a clock
    clock_mhz  the paper takes the base clock, which boosts exceed; algorithms that save operations may exceed 1
    """
    return flops / (time_us * 1e-6) / (2 * clock_mhz * 1e6 * multiprocessors * cores)


def grid_size(rows: int, columns: int, tile_rows: int, tile_columns: int) -> int:
    """Blocks of a product whose result of rows x columns is cut into tiles (training paper, section 5.1, eq. 9)."""
    return -(-rows // tile_rows) * -(-columns // tile_columns)


def max_blocks(multiprocessors: int, registers: int, block: int, register_file: int = 65536) -> int:
    """Blocks that the registers of a whole GPU can hold at once (training paper, section 5.1, eq. 10).

    registers       of a thread
    block           threads of a block
    register_file   registers of a multiprocessor
    An upper bound: shared memory, allocation units and the caps on warps and blocks are left out. `occupancy` counts
    them all; times the multiprocessors it is what runs.
    """
    return multiprocessors * (register_file // (block * registers))


def resource_utilisation(grid: int, at_once: int) -> float:
    """RU: of the places for blocks in all the waves that a grid takes, those that it fills (training paper, eq. 11).

    grid      blocks of the grid
    at_once   blocks that run at once: `max_blocks`, or the occupancy's blocks times the multiprocessors
    returns   0 to 1. Raises ArgumentError where no block can run.
    """
    if grid < 1 or at_once < 1:
        raise ArgumentError(f"a grid of {grid} blocks, of which {at_once} run at once, has no utilisation")
    waves = -(-grid // at_once)
    return grid / (waves * at_once)
