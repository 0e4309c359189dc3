"""Where values come from: an observer that follows floats from the arrays through registers and memory.

Beside each register and each stored element stands the expression that made it, as far as it is a sum of products
of loaded elements, numbers and parameters. Everything else is unknown (None), and so is what is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from . import numpy_meeting
from .addresses import LOCAL_WINDOW, split
from .async_copies import STORE_OPCODE
from .cfg import destinations
from .launch import WARP
from .observer import Warp, first_byte
from .ptx import Address, Immediate, Instruction, Operand, PredicatePair, Register, Vector
from .types import TYPES, ScalarType


@dataclass(frozen=True, slots=True)
class Element:
    """What an array held before the first launch. `memory`: address of the array's first byte in this process."""

    memory: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A number in the code, or one that the kernel got by value."""

    value: float


@dataclass(frozen=True, slots=True)
class Operation:
    """opcode is add, sub, mul, fma or neg; line is that of the CUDA source."""

    opcode: str
    parts: tuple[Value, ...]
    line: int


Value = Element | Constant | Operation | None

#: What a register of 64 bits holds that was packed from narrower ones.
Packed = tuple[Value, ...]

_Lanes = list[Value | Packed]
_Registers = dict[str, _Lanes]

UNKNOWN: _Lanes = [None] * WARP

_OPERATIONS = {"add": "add", "sub": "sub", "mul": "mul", "fma": "fma", "mad": "fma", "neg": "neg"}
#: Modifiers of cvt that make another number of a value, not a less exact one.
_ROUNDED = frozenset(("sat", "rni", "rzi", "rmi", "rpi"))

#: More than a block has.
MAX_THREADS = 1 << 12

#: (space or address of an array's memory, owner in that space, byte offset)
_Place = tuple[int | str, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """What a store left: where it began, how many bytes it has, what they are."""

    offset: int
    size: int
    value: Value | Packed


@dataclass(frozen=True)
class Product:
    """A number times elements: one term of a sum. `line` is where it was formed; 0 if it was only copied."""

    coefficient: float
    factors: tuple[Element, ...]
    line: int


class Provenance:
    """Follows the values of one launch after the other. Memory that no launch wrote holds its own elements."""

    only_block: int | None = None

    def __init__(self) -> None:
        self._stored: dict[_Place, _Stored] = {}  # for each byte
        self._lost = False  # whether memory was changed in a way that is not followed
        self._by_warp: WeakKeyDictionary[Warp, _Registers] = WeakKeyDictionary()
        self._registers: _Registers = {}  # of the warp that executes

    def of(self, array: np.ndarray, element: int) -> Value:
        """What an array's element (flat index) was last given; None where that is unknown or nothing."""
        if self._lost:
            return None
        found = self._at((first_byte(array), 0, element * array.itemsize), array.itemsize, False)
        return None if isinstance(found, tuple) else found

    # -- the observer ----------------------------------------------------------------------------

    def executes(self, warp: Warp, pc: int, instruction: Instruction, active: np.ndarray) -> None:
        self._registers = self._by_warp.setdefault(warp, {})
        opcode = instruction.opcode
        lanes = [int(lane) for lane in np.flatnonzero(active)]
        if opcode == "ld":
            self._load(warp, instruction, lanes)
        elif opcode in ("st", STORE_OPCODE):
            self._store(warp, instruction, lanes)
        elif opcode in ("atom", "red"):
            self._update(warp, instruction, lanes)
        elif opcode == "shfl":
            self._shuffle(warp, instruction, active, lanes)
        elif opcode == "mov":
            self._move(instruction, lanes)
        elif opcode == "selp":
            chosen = warp.read(instruction.operands[3], TYPES["pred"])
            one, other = (self._values(o, instruction.type) for o in instruction.operands[1:3])
            self._write(instruction.operands[0], [one[i] if chosen[i] else other[i] for i in range(WARP)], lanes)
        elif opcode == "cvt" and instruction.types[0].is_float:
            source = self._values(instruction.operands[1], instruction.types[1])
            self._write(
                instruction.operands[0], source if _ROUNDED.isdisjoint(instruction.modifiers) else UNKNOWN, lanes
            )
        elif opcode in _OPERATIONS and instruction.type.is_float and not instruction.has("sat"):
            parts = [self._values(o, instruction.type) for o in instruction.operands[1:]]
            name, line = _OPERATIONS[opcode], instruction.line
            made: _Lanes = [_operation(name, line, values) for values in zip(*parts, strict=True)]
            self._write(instruction.operands[0], made, lanes)
        else:
            if opcode != "prefetch" and any(isinstance(o, Address) for o in instruction.operands):
                self._lost = True
            for register in destinations(instruction):
                self._write(Register(register), UNKNOWN, lanes)

    # -- registers -------------------------------------------------------------------------------

    def _values(self, operand: Operand, kind: ScalarType) -> _Lanes:
        if isinstance(operand, Register):
            return self._registers.get(operand.name) or UNKNOWN
        return [_number(operand, kind) if isinstance(operand, Immediate) else None] * WARP

    def _write(self, operand: Operand, values: _Lanes, lanes: list[int]) -> None:
        if isinstance(operand, Register):
            new: _Lanes = list(self._registers.get(operand.name) or UNKNOWN)
            for lane in lanes:
                new[lane] = values[lane]
            self._registers[operand.name] = new

    def _move(self, ins: Instruction, lanes: list[int]) -> None:
        to, source = ins.operands
        if isinstance(source, Vector):
            parts = [self._values(p, TYPES[f"b{ins.type.bits // len(source.parts)}"]) for p in source.parts]
            packed: _Lanes = [_packed(values) for values in zip(*parts, strict=True)]
            self._write(to, packed, lanes)
        elif isinstance(to, Vector):
            whole = self._values(source, ins.type)
            for i, part in enumerate(to.parts):
                self._write(part, [w[i] if isinstance(w, tuple) and len(w) > i else None for w in whole], lanes)
        else:
            self._write(to, self._values(source, ins.type), lanes)

    def _shuffle(self, warp: Warp, ins: Instruction, active: np.ndarray, lanes: list[int]) -> None:
        to, value, *how = ins.operands
        numbers = np.arange(WARP, dtype=np.uint32)
        from_lane, _, _ = numpy_meeting.evaluate(ins, [numbers, *(warp.read(o, TYPES["u32"]) for o in how)], active)
        values = self._values(value, ins.type)
        register = to.first if isinstance(to, PredicatePair) else to
        self._write(register, [values[int(source)] for source in from_lane], lanes)

    # -- memory ----------------------------------------------------------------------------------

    def _load(self, warp: Warp, ins: Instruction, lanes: list[int]) -> None:
        to = ins.operands[0]
        parts = to.parts if isinstance(to, Vector) else (to,)
        if ins.has("param"):
            at = warp.launch.entry.param_place(ins)
            raw = np.frombuffer(warp.launch.params, ins.type.dtype, len(parts), at)
            for part, number in zip(parts, raw, strict=True):
                self._write(part, [Constant(float(number))] * WARP, lanes)
            return
        places = self._places(warp, ins, lanes)
        size = ins.type.size
        for i, part in enumerate(parts):
            values = list(UNKNOWN)
            for lane, (place, initialised) in places.items():
                values[lane] = self._at((*place[:2], place[2] + i * size), size, initialised)
            self._write(part, values, lanes)

    def _at(self, place: _Place, size: int, initialised: bool) -> Value | Packed:
        memory, owner, offset = place
        there = [self._stored.get((memory, owner, offset + i)) for i in range(size)]
        first = there[0]
        if first is None:
            untouched = initialised and isinstance(memory, int) and not any(there)
            return Element(memory, offset, size) if untouched and isinstance(memory, int) else None
        whole = first.offset == offset and first.size == size and all(t is first for t in there)
        return first.value if whole else None

    def _store(self, warp: Warp, ins: Instruction, lanes: list[int]) -> None:
        value = ins.operands[1]
        parts = value.parts if isinstance(value, Vector) else (value,)
        size = ins.type.size
        places = self._places(warp, ins, lanes)
        for i, part in enumerate(parts):
            values = self._values(part, ins.type)
            for lane, ((memory, owner, offset), _) in places.items():
                self._put((memory, owner, offset + i * size), size, values[lane])

    def _put(self, place: _Place, size: int, value: Value | Packed) -> None:
        memory, owner, offset = place
        stored = _Stored(offset, size, value)
        self._stored.update(((memory, owner, offset + byte), stored) for byte in range(size))

    def _update(self, warp: Warp, ins: Instruction, lanes: list[int]) -> None:
        """An atomic addition of floats adds terms to what is there; the lanes take turns. Others are not followed."""
        adds = ins.has("add") and ins.type.is_float
        values = self._values(ins.operands[-1], ins.type)
        old = list(UNKNOWN)
        for lane, (place, initialised) in self._places(warp, ins, lanes).items():
            old[lane] = self._at(place, ins.type.size, initialised)
            self._put(place, ins.type.size, _operation("add", ins.line, (old[lane], values[lane])) if adds else None)
        if ins.opcode == "atom":
            self._write(ins.operands[0], old, lanes)

    def _places(self, warp: Warp, ins: Instruction, lanes: list[int]) -> dict[int, tuple[_Place, bool]]:
        """Where each lane loads or stores, and whether what is there was defined before the first launch."""
        address = ins.operands[1 if ins.opcode in ("ld", "atom") else 0]
        found: dict[int, tuple[_Place, bool]] = {}
        pointers = warp.addresses(ins, address)  # type: ignore[arg-type]
        for lane in lanes:
            number, offset = split(pointers[lane])
            if number == LOCAL_WINDOW:
                found[lane] = (("local", MAX_THREADS * warp.block + warp.first_thread + lane, offset), False)
            elif 0 < number < len(warp.launch.arrays):
                array = warp.launch.arrays[number]
                found[lane] = ((first_byte(array.data), 0, offset), array.initialised)
            else:
                found[lane] = (("block", warp.block, pointers[lane]), False)
        return found


def _number(literal: Immediate, kind: ScalarType) -> Value:
    """A literal as a number; None where it may be the bits of another one."""
    if kind.is_float or not literal.value:
        return Constant(float(literal.as_type(kind)))
    if literal.float_bits:
        return Constant(float(literal.as_type(TYPES[f"f{literal.float_bits}"])))
    return None


def _packed(values: tuple[Value | Packed, ...]) -> Packed | None:
    return None if any(isinstance(v, tuple) for v in values) else values  # type: ignore[return-value]


def _operation(opcode: str, line: int, parts: tuple[Value | Packed, ...]) -> Value:
    if any(p is None or isinstance(p, tuple) for p in parts):
        return None
    return Operation(opcode, parts, line)  # type: ignore[arg-type]


# ---- expressions as sums of products


def products(value: Value, most: int = 4096) -> list[Product] | None:
    """The expression multiplied out; None where it is unknown, or has more than `most` products."""
    found: list[Product] = []
    pending: list[tuple[Value, float, tuple[Element, ...], int]] = [(value, 1.0, (), 0)]
    steps = 0
    while pending:
        steps += 1
        if steps > 8 * most or len(found) > most:
            return None
        part, coefficient, factors, line = pending.pop()
        if part is None:
            return None
        if isinstance(part, Constant):
            if part.value != 0:
                found.append(Product(coefficient * part.value, factors, line))
        elif isinstance(part, Element):
            found.append(Product(coefficient, (*factors, part), line))
        elif part.opcode == "neg":
            pending.append((part.parts[0], -coefficient, factors, line))
        elif part.opcode == "add" and part.parts[0] is part.parts[1]:  # what the compiler makes of 2 * a
            pending.append((part.parts[0], 2 * coefficient, factors, line or part.line))
        elif part.opcode in ("add", "sub"):
            sign = -1.0 if part.opcode == "sub" else 1.0
            pending.append((part.parts[1], sign * coefficient, factors, line or part.line))
            pending.append((part.parts[0], coefficient, factors, line or part.line))
        else:
            a, b, *addend = part.parts
            pending += [(c, coefficient, factors, line or part.line) for c in addend]
            for scale, more, rest in _split(a, b):
                pending.append((rest, coefficient * scale, (*factors, *more), part.line))
    return found[::-1]


def _split(a: Value, b: Value) -> list[tuple[float, tuple[Element, ...], Value]]:
    """a * b as (number, factors, rest): the simple one of the two, or each term of a sum, is taken out."""
    if isinstance(a, Operation) and not isinstance(b, Operation):
        a, b = b, a
    if isinstance(a, Constant):
        return [(a.value, (), b)]
    if isinstance(a, Element):
        return [(1.0, (a,), b)]
    terms = products(a, 64)
    if terms is None:
        return [(1.0, (), None)]
    return [(t.coefficient, t.factors, b) for t in terms]
