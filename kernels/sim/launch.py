"""One launch, as every executor sees it: geometry, arrays with their windows, parameter bytes, budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..errors import LaunchError, UnsupportedPTX
from ..result import Fault, Triple
from . import pointers
from .addresses import split, window
from .printf import Output
from .program import Entry, Program

WARP = 32

#: What a launch may spend on its work (program.Work.price) is fixed, so that an endless loop ends at the same
#: place on every machine.
#: One warp's share: an endless loop ends within about 0.3 s. A thread of a large layer spends about 100,000.
WARP_BUDGET = 1 << 24
#: All warps together: some seconds.
LAUNCH_BUDGET = 1 << 32

#: Shared memory that a block may ask for, in KiB, by compute capability (CUDA C++ Programming Guide, table
#: "Technical Specifications per Compute Capability"), and that of an architecture that is not named here.
SHARED_KIB = {"75": 64, "80": 163, "86": 99, "87": 163, "89": 99, "90": 227, "100": 227, "103": 227, "120": 99}
OTHER_SHARED_KIB = 48
#: Of it, what __shared__ arrays of known size may take: on every architecture ptxas refuses more.
STATIC_SHARED_BYTES = 48 * 1024

#: Local memory of a block's threads together, where warps wait for each other and so all have theirs at once.
BLOCK_LOCAL_BYTES = 1 << 28


@dataclass(frozen=True)
class Buffer:
    """An array that a kernel gets a pointer to.

    data          uint8, 1-D, writable: the kernel reads and writes this memory
    initialised   False if its contents are undefined until the kernel writes them
    defined       where they are not: of which bytes the contents are defined all the same, 0 or 1; None: of none.
                  A checked run that is watched to its end sets what it wrote, any other all
    """

    name: str
    data: np.ndarray
    initialised: bool = True
    defined: np.ndarray | None = None


class SharedArray(NamedTuple):
    """A __shared__ array as a student knows it, and the bytes of shared memory that it has."""

    name: str
    begin: int
    end: int


@dataclass
class Launch:
    """Everything that an executor needs to run an entry once."""

    program: Program
    entry: Entry
    grid: Triple
    block: Triple
    arrays: list[Buffer]  # arrays[0] is the null pointer's, empty
    parameter_names: dict[int, frozenset[str]]  # array number -> the parameters that point to it
    params: bytes
    shared_bytes: int
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

    def shared_arrays(self, pc: int) -> list[SharedArray]:
        """The __shared__ arrays that an access may be meant for."""
        places = self.entry.shared_layout.places
        names = pointers.shared_arrays(self.entry).get(pc, list(places))
        ends = {n: self.shared_bytes if places[n].end is None else places[n].end for n in names}
        return [SharedArray(plain_name(n), places[n].begin, ends[n] or 0) for n in names]

    def is_among(self, number: int, names: pointers.Origins) -> bool:
        """Whether one of the names stands for an array."""
        if pointers.ANYWHERE in names:
            return True
        if number < 1 + len(self.program.symbols):
            return self.arrays[number].name in names
        return bool(self.parameter_names[number] & names)

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


def prepare(
    program: Program,
    entry_name: str,
    grid: Triple,
    block: Triple,
    params: Sequence[Buffer | bytes],
    shared: int,
    checks: bool,
    budget: int | None,
) -> Launch:
    """Number the arrays and lay out the parameter block. Raises LaunchError if the memory of a block is too large."""
    entry = program.entries[entry_name]
    arrays = [Buffer("nothing", np.zeros(0, np.uint8))]
    arrays += [Buffer(s.name, s.data) for s in program.symbols.values()]
    names = list(entry.param_offsets)
    if len(params) != len(names):
        raise ValueError(f"{entry_name} takes {len(names)} parameters, got {len(params)}")
    data = bytearray(entry.param_bytes)
    parameter_names: dict[int, frozenset[str]] = {}
    numbers: dict[tuple[int, int], int] = {}  # by address and size: parameters may share an array
    for name, slot, value in zip(names, entry.params, params):
        if isinstance(value, Buffer):
            place = (value.data.ctypes.data, len(value.data))
            number = numbers.setdefault(place, len(arrays)) if len(value.data) else len(arrays)
            if number == len(arrays):
                arrays.append(value)
            parameter_names[number] = parameter_names.get(number, frozenset()) | {name}
            raw = window(number).to_bytes(8, "little")
        else:
            raw = bytes(value)
        if len(raw) != slot.size:
            raise ValueError(f"parameter {name} of {entry_name} has {slot.size} bytes, got {len(raw)}")
        at = entry.param_offsets[name]
        data[at : at + slot.size] = raw
    shares = (WARP_BUDGET, LAUNCH_BUDGET) if budget is None else (budget, budget)
    shared_bytes = _shared_bytes(program, entry, shared)
    launch = Launch(program, entry, grid, block, arrays, parameter_names, bytes(data), shared_bytes, checks, *shares)
    local = launch.warps_per_block * WARP * entry.local_layout[1]
    if entry.has_barriers and local > BLOCK_LOCAL_BYTES:
        what = f"the local arrays of a block's threads take {local} bytes; the engine allows {BLOCK_LOCAL_BYTES}"
        raise UnsupportedPTX(Fault("unsupported", what))
    return launch


@lru_cache(maxsize=1024)
def plain_name(mangled: str) -> str:
    """A __shared__ variable's own name: `As` of `_ZZ4gemmPKfE2As`, which stands in a function, and of `As`."""
    for found in reversed(list(re.finditer(r"E(\d+)", mangled))):
        rest = mangled[found.end() :]
        name = rest[: int(found[1])]
        if re.fullmatch(r"(_\d+|__\d+_)?(~\d+)*", rest[len(name) :]) and len(name) == int(found[1]):
            return name
    return mangled


def _shared_bytes(program: Program, entry: Entry, dynamic: int) -> int:
    """Shared memory of a block."""
    own = entry.shared_layout.static_bytes
    if own > STATIC_SHARED_BYTES:
        raise LaunchError(
            f"the kernel's arrays declare {own} bytes of shared memory, but a GPU allows {STATIC_SHARED_BYTES}: "
            f"make them smaller, or declare one as `extern __shared__` and give its bytes at the launch, as shared=…"
        )
    kib = SHARED_KIB.get(program.target.removeprefix("sm_").rstrip("af"), OTHER_SHARED_KIB)
    if own + dynamic > kib * 1024:
        raise LaunchError(
            f"a block wants {own + dynamic} bytes of shared memory ({own} declared, {dynamic} given at "
            f"the launch), but {program.target} allows {kib * 1024}"
        )
    return own + dynamic
