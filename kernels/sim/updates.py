"""What the assembler makes of an atomic update, as far as its traffic tells.

Which lanes it joins to one update was read from ptxas's code for sm_90; how often the memory is used then is what an
H100 counted (tests/kernels/hardware/counters.json and updates.json).
"""

from __future__ import annotations

from collections.abc import Set
from enum import IntEnum, auto
from typing import NamedTuple

from .cfg import registers_of
from .ptx import Immediate, Instruction

_NEVER_JOINED = ("exch", "cas", "inc", "dec")


class Joined(IntEnum):
    """When the lanes that update one place do it as one."""

    NEVER = auto()
    WHOLE_WARPS = auto()  # if all 32 run
    ALWAYS = auto()


class Manner(NamedTuple):
    """How an update is done.

    swaps   it takes shared memory twice as long as others: a comparison and a store
    loops   in shared memory it is a loop of a load and a compare-and-swap, which one lane for each bank leaves a turn
    """

    joined: Joined
    swaps: bool
    loops: bool


def manner(ins: Instruction, is_answered: bool, varying: Set[str]) -> Manner:
    """How an atom or red is done; `varying`: the registers that differ within a warp."""
    loops = ins.has("shared") and (ins.type.is_float or ins.type.bits == 64) and not (ins.has("exch") or ins.has("cas"))
    return Manner(_joined(ins, is_answered, varying), ins.has("cas") and ins.has("shared"), loops)


def _joined(ins: Instruction, is_answered: bool, varying: Set[str]) -> Joined:
    if ins.type.is_float or any(ins.has(m) for m in _NEVER_JOINED):
        return Joined.NEVER
    address, value = ins.operands[-2:]
    is_narrow = ins.type.bits == 32
    if any(r in varying for r in registers_of(address)):
        counts = ins.has("shared") and ins.has("add") and isinstance(value, Immediate) and value.as_type(ins.type) == 1
        return Joined.ALWAYS if counts and is_narrow and not is_answered else Joined.NEVER
    if ins.has("add") and not any(r in varying for r in registers_of(value)):
        return Joined.ALWAYS
    if not is_narrow:
        return Joined.NEVER
    if is_answered:
        return Joined.WHOLE_WARPS if ins.has("add") else Joined.NEVER
    return Joined.ALWAYS
