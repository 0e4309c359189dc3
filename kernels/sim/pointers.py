"""Which arrays an entry's loads and stores can touch, found by following its pointers through the registers.

Only an array that is stored to can race, so the others need no shadow. Where a pointer's origin is unknown (it
was itself loaded from memory), every array counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cfg import destinations, is_branch, registers_of
from .launch import Buffer, Launch
from .program import Entry, is_access
from .ptx import Address, Instruction, Name

#: The origin of a pointer that was loaded from memory.
ANYWHERE = "*"

Origins = frozenset[str]
NOWHERE: Origins = frozenset()


@dataclass(frozen=True)
class Touched:
    """Names of the parameters and variables whose arrays are loaded from and stored to; may hold ANYWHERE."""

    loaded: Origins
    stored: Origins


def touched(entry: Entry) -> Touched:
    """Follow each address back to the parameters and variables that it was computed from."""
    origins: dict[str, Origins] = {}
    code = [ins for ins in entry.function.code if not is_branch(ins)]
    changed = True
    while changed:
        changed = False
        for ins in code:
            for register in destinations(ins):
                old = origins.get(register, NOWHERE)
                new = old | _origin(ins, origins)
                if new != old:
                    origins[register] = new
                    changed = True
    loaded: Origins = NOWHERE
    stored: Origins = NOWHERE
    for ins in code:
        if _is_shared_by_threads(ins):
            place = ins.operands[1 if ins.opcode in ("ld", "atom") else 0]
            found = _operand_origin(place, origins) or frozenset({ANYWHERE})
            if ins.opcode != "st":
                loaded |= found
            if ins.opcode != "ld":
                stored |= found
    return Touched(loaded, stored)


def _origin(ins: Instruction, origins: dict[str, Origins]) -> Origins:
    """What the result of an instruction may point to."""
    if ins.opcode in ("ld", "atom"):
        if not ins.has("param"):
            return frozenset({ANYWHERE}) if ins.type.bits == 64 and not ins.type.is_float else NOWHERE
        place = ins.operands[1]
        return frozenset({place.base.name}) if isinstance(place, Address) and isinstance(place.base, Name) else NOWHERE
    if ins.opcode in ("setp", "set"):
        return NOWHERE
    return frozenset().union(*(_operand_origin(o, origins) for o in ins.operands[1:]))


def _operand_origin(operand: object, origins: dict[str, Origins]) -> Origins:
    if isinstance(operand, Address) and isinstance(operand.base, Name):
        return frozenset({operand.base.name})
    if isinstance(operand, Name):
        return frozenset({operand.name})
    return frozenset().union(*(origins.get(r, NOWHERE) for r in registers_of(operand)))  # type: ignore[arg-type]


def granule(entry: Entry) -> int:
    """Bytes of the narrowest element that the entry loads or stores in memory shared by threads."""
    return min((ins.type.size for ins in entry.function.code if _is_shared_by_threads(ins)), default=4)


def _is_shared_by_threads(ins: Instruction) -> bool:
    """An access to memory that other threads may write."""
    return is_access(ins) and not ins.has("local") and not ins.has("const")


def is_among(launch: Launch, array: Buffer, number: int, names: Origins) -> bool:
    """Whether one of the names stands for an array of the launch."""
    if ANYWHERE in names:
        return True
    if number < 1 + len(launch.program.symbols):
        return array.name in names
    return launch.parameter_names[number] in names
