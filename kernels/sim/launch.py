"""One launch, as every executor sees it: geometry, arrays with their windows, parameter bytes, budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..result import Triple
from .addresses import LOCAL_WINDOW, split, window
from .printf import Output
from .program import Entry, Program

WARP = 32

#: What a launch may spend on its work (program.Work.price) is fixed, so that an endless loop ends at the same
#: place on every machine.
#: One warp's share: an endless loop ends within about 0.3 s. A thread of a large layer spends about 100,000.
WARP_BUDGET = 1 << 24
#: All warps together: some seconds.
LAUNCH_BUDGET = 1 << 32


@dataclass(frozen=True)
class Buffer:
    """An array that a kernel gets a pointer to.

    data          uint8, 1-D, writable: the kernel reads and writes this memory
    initialised   False if its contents are undefined until the kernel writes them
    """

    name: str
    data: np.ndarray
    initialised: bool = True


@dataclass
class Launch:
    """Everything that an executor needs to run an entry once."""

    program: Program
    entry: Entry
    grid: Triple
    block: Triple
    arrays: list[Buffer]  # arrays[0] is the null pointer's, empty
    parameter_names: dict[int, str]  # array number -> the parameter that points to it
    params: bytes
    checks: bool
    warp_budget: int
    launch_budget: int
    output: Output = field(default_factory=Output)

    @property
    def threads_per_block(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps_per_block(self) -> int:
        return -(-self.threads_per_block // WARP)

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def thread_index(self, linear: int) -> Triple:
        x, y, _ = self.block
        return (linear % x, linear // x % y, linear // (x * y))

    def block_index(self, linear: int) -> Triple:
        x, y, _ = self.grid
        return (linear % x, linear // x % y, linear // (x * y))

    def bytes_at(self, address: int, size: int) -> bytes:
        """Bytes of an array, as many as it has there."""
        number, offset = split(address)
        known = 0 < number < len(self.arrays) and offset >= 0
        return self.arrays[number].data[offset : offset + size].tobytes() if known else b""

    def address_of(self, name: str) -> int | None:
        """Address of a variable: module-scope, or in local memory."""
        if name in self.program.symbol_numbers:
            return window(self.program.symbol_numbers[name])
        offset = self.entry.local_layout[0].get(name)
        return None if offset is None else window(LOCAL_WINDOW) + offset


def prepare(
    program: Program,
    entry_name: str,
    grid: Triple,
    block: Triple,
    params: Sequence[Buffer | bytes],
    checks: bool,
    budget: int | None,
) -> Launch:
    """Number the arrays and lay out the parameter block."""
    entry = program.entries[entry_name]
    arrays = [Buffer("nothing", np.zeros(0, np.uint8))]
    arrays += [Buffer(s.name, s.data) for s in program.symbols.values()]
    names = list(entry.param_offsets)
    if len(params) != len(names):
        raise ValueError(f"{entry_name} takes {len(names)} parameters, got {len(params)}")
    data = bytearray(entry.param_bytes)
    parameter_names: dict[int, str] = {}
    for name, slot, value in zip(names, entry.params, params):
        if isinstance(value, Buffer):
            parameter_names[len(arrays)] = name
            raw = window(len(arrays)).to_bytes(8, "little")
            arrays.append(value)
        else:
            raw = bytes(value)
        if len(raw) != slot.size:
            raise ValueError(f"parameter {name} of {entry_name} has {slot.size} bytes, got {len(raw)}")
        at = entry.param_offsets[name]
        data[at : at + slot.size] = raw
    shares = (WARP_BUDGET, LAUNCH_BUDGET) if budget is None else (budget, budget)
    return Launch(program, entry, grid, block, arrays, parameter_names, bytes(data), checks, *shares)
