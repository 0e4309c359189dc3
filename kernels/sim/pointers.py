"""Which arrays an entry's loads and stores can touch, found by following its pointers through the registers.

Only an array that is stored to can race, so the others need no shadow. Where a pointer's origin is unknown (it
was itself loaded from memory), every array counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .cfg import destinations, is_branch, registers_of
from .program import Entry, is_access
from .ptx import Address, Instruction, Name, Operand

#: The origin of a pointer that was loaded from memory.
ANYWHERE = "*"

Origins = frozenset[str]
NOWHERE: Origins = frozenset()


@dataclass(frozen=True)
class Touched:
    """Names of the parameters and variables whose arrays are loaded, stored to and atomically updated.

    Each may hold ANYWHERE.
    """

    loaded: Origins
    stored: Origins
    updated: Origins


def touched(entry: Entry) -> Touched:
    """Follow each address back to the parameters and variables that it was computed from."""
    origins = _origins(entry)
    found = {"ld": NOWHERE, "st": NOWHERE, "atom": NOWHERE, "red": NOWHERE}  # async_store goes to shared memory
    for ins in entry.function.code:
        if _may_touch(ins, "global"):
            found[ins.opcode] |= _operand_origin(_address_of(ins), origins) or frozenset({ANYWHERE})
    return Touched(found["ld"], found["st"], found["atom"] | found["red"])


def updates_shared(entry: Entry) -> bool:
    """Whether any instruction may update shared memory atomically."""
    return any(ins.opcode in ("atom", "red") and _may_touch(ins, "shared") for ins in entry.function.code)


@lru_cache(maxsize=256)
def shared_arrays(entry: Entry) -> dict[int, list[str]]:
    """The __shared__ arrays that each access is meant for, by its pc; all of them where that is unknown."""
    origins = _origins(entry)
    names = entry.shared_layout.places
    found = {}
    for pc, ins in enumerate(entry.function.code):
        if _may_touch(ins, "shared"):
            meant = _operand_origin(_address_of(ins), origins)
            found[pc] = [name for name in names if name in meant] or list(names)
    return found


def _may_touch(ins: Instruction, space: str) -> bool:
    """Whether an instruction loads or stores in a space; without a space it may touch any."""
    others = {"param", "local", "const", "global", "shared"} - {space}
    return is_access(ins) and not any(ins.has(s) for s in others)


def _address_of(access: Instruction) -> Operand:
    return access.operands[1 if access.opcode in ("ld", "atom") else 0]


def _origins(entry: Entry) -> dict[str, Origins]:
    """What each register may point to."""
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
    return origins


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


def granule(entry: Entry, space: str) -> int:
    """Bytes of the narrowest element that the entry loads or stores in global or shared memory."""
    return min((ins.type.size for ins in entry.function.code if _may_touch(ins, space)), default=4)
