"""What each lane of one warp touches: an observer that notes the accesses of a warp of one block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..result import WarpAccess
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, split
from .counters import operation
from .launch import WARP
from .observer import Warp, first_byte
from .program import is_access
from .ptx import Instruction

#: Executions of one instruction that are kept.
_KEPT = 1024


class Lanes:
    """Notes loads and stores of global and shared memory, in the order in which the warp executes them.

    block, warp  linear indices
    names        of arrays, by the address of their first byte; others are called as the kernel's parameter
    """

    def __init__(self, block: int = 0, warp: int = 0, names: Mapping[int, str] | None = None):
        self.only_block: int | None = block
        self._names = names or {}
        self.accesses: list[WarpAccess] = []
        self._warp = warp
        self._executions: dict[int, int] = {}

    def executes(self, warp: Warp, pc: int, instruction: Instruction, active: np.ndarray) -> None:
        if warp.first_thread != self._warp * WARP or not is_access(instruction) or instruction.has("local"):
            return
        before = self._executions[pc] = self._executions.get(pc, 0) + 1
        if before > _KEPT or not active.any():
            return
        address = instruction.operands[1 if instruction.opcode in ("ld", "atom") else 0]
        places = [split(a) for a in warp.addresses(instruction, address)]  # type: ignore[arg-type]
        number = places[int(np.argmax(active))][0]
        if number == LOCAL_WINDOW:
            return
        offsets = [offset if on and n == number else None for (n, offset), on in zip(places, active, strict=True)]
        self.accesses.append(
            WarpAccess(
                line=instruction.line,
                pc=pc,
                op=operation(warp.launch.entry, instruction),
                array=self._name(warp, pc, number),
                space="shared" if number == SHARED_WINDOW else "global",
                size=instruction.type.size * instruction.width,
                offsets=tuple(offsets),
            )
        )

    def _name(self, warp: Warp, pc: int, number: int) -> str:
        if number == SHARED_WINDOW:
            return " or ".join(a.name for a in warp.launch.shared_arrays(pc))
        if not 0 < number < len(warp.launch.arrays):
            return ""
        array = warp.launch.arrays[number]
        return self._names.get(first_byte(array.data), array.name)
