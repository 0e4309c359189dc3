"""The registers of a warp in compiled code: where they live, how they are read and written.

A register lives in the warp's memory, its *home*, between basic blocks and as an SSA value inside one: a block loads
a home at the first read and stores it at its end if a later block may read it. A uniform register is a scalar,
a varying one a vector of 32 lanes, a predicate always the i32 mask of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from .arithmetic import llvm_type
from .cfg import registers_of
from .context import Slot, get
from .ir import LANES, FunctionBuilder, Value, bits_of, constants, element_of, integer, is_vector, vector
from .program import Entry, Program
from .ptx import Immediate, Name, NotPredicate, Operand, Register
from .types import TYPES, ScalarType
from .uniformity import Uniformity

PREDICATE = TYPES["pred"]

LANE_MASKS: dict[str, Callable[[int], int]] = {
    "lanemask_eq": lambda lane: 1 << lane,
    "lanemask_lt": lambda lane: (1 << lane) - 1,
    "lanemask_le": lambda lane: (2 << lane) - 1,
    "lanemask_gt": lambda lane: -(2 << lane) & 0xFFFFFFFF,
    "lanemask_ge": lambda lane: -(1 << lane) & 0xFFFFFFFF,
}


class WarpMemory:
    """What a warp keeps while it waits at a barrier: the layout of its frame, which lies outside of the stack."""

    def __init__(self, frame: Value):
        self.frame = frame
        self.size = 0

    def reserve(self, size: int, align: int) -> int:
        """A place in the frame, as bytes from its begin."""
        place = -(-self.size // align) * align
        self.size = place + size
        return place


class Frame:
    """Registers and operands of the function under construction, in the block that is being written."""

    def __init__(self, f: FunctionBuilder, memory: WarpMemory, program: Program, entry: Entry, uniformity: Uniformity):
        self.f = f
        self.memory = memory
        self.context = f.arguments["context"]
        self.program = program
        self.entry = entry
        self.function = entry.function
        self.uniformity = uniformity
        self.homes: dict[str, int] = {}

    def start_block(self, index: int, mask: Value) -> None:
        """Begin a block whose running lanes are `mask`: nothing is held in values yet."""
        self.block = index
        self.mask = mask
        self.mask_lanes: Value | None = None
        self.values: dict[str, Value] = {}
        self.dirty: set[str] = set()
        self.converted: dict[str, dict[tuple[str, bool], Value]] = {}

    def clear(self, names: frozenset[str]) -> None:
        """Set registers to 0 that the code may read before it writes them."""
        for name in sorted(names):
            if self._is_declared(name):
                zero = Value(self._home_type(name), "zeroinitializer")
                self.f.store(zero, self.memory.frame, self._home(name), align=self._align(zero.type))

    def write_back(self, live: frozenset[str]) -> None:
        """At the end of a block: store what was written and a later block may read."""
        for name in sorted(self.dirty & live):
            value = self.values[name]
            self.f.store(value, self.memory.frame, self._home(name), align=self._align(value.type))

    # -- writing ---------------------------------------------------------------------------------

    def write(self, to: Operand, value: Value, kind: ScalarType, guard: Value | None) -> None:
        """Assign a result, extended to its register by its own sign."""
        assert isinstance(to, Register)
        if to.name == "_":
            return
        f = self.f
        register = self.function.register_type(to.name)
        if register is PREDICATE:
            if element_of(value.type) == "i1":
                value = f.to_mask(value) if is_vector(value.type) else f.cast("sext", value, "i32")
            self._assign(to.name, value, guard)
            return
        shape: Callable[[str], str] = vector if is_vector(value.type) else str
        wanted = llvm_type(register)
        have = element_of(value.type)
        if have != wanted:
            if have in ("float", "double"):
                value = f.cast("bitcast", value, shape(f"i{bits_of(have)}"))
            value = f.resize(value, shape(f"i{register.bits}"), kind.is_signed)
            value = f.cast("bitcast", value, shape(wanted)) if register.is_float else value
        self._assign(to.name, value, guard)

    def _current(self, name: str) -> Value:
        """A register's value in its own type."""
        value = self.values.get(name)
        if value is None:
            kind = self._home_type(name)
            value = self.f.load(kind, self.memory.frame, self._home(name), align=self._align(kind))
            self.values[name] = value
        return value

    def _assign(self, name: str, value: Value, guard: Value | None) -> None:
        """Write a register in its own type; lanes that wait, or that a guard stops, keep what they had."""
        varying = self.is_varying(name)
        is_mask = self.function.register_type(name) is PREDICATE
        if varying and not is_mask and not is_vector(value.type):
            value = self.f.splat(value)
        keep = guard
        if keep is None and name in self.uniformity.kept and self.block in self.uniformity.divergent_blocks:
            keep = self.mask
        if keep is not None:
            value = self._blend(keep, value, self._current(name), is_mask)
        self.values[name] = value
        self.dirty.add(name)
        self.converted.pop(name, None)

    def _blend(self, keep: Value, new: Value, old: Value, is_mask: bool) -> Value:
        f = self.f
        if is_mask:
            return f.or_(f.and_(new, keep), f.and_(old, f.not_(keep)))
        if not is_vector(new.type):  # a uniform register under a uniform guard
            return f.select(f.icmp("ne", keep, 0), new, old)
        return f.select(self._lanes_of(keep), new, old)

    def _lanes_of(self, mask: Value) -> Value:
        if mask is not self.mask:
            return self.f.to_lanes(mask)
        if self.mask_lanes is None:
            self.mask_lanes = self.f.to_lanes(mask)
        return self.mask_lanes

    # -- reading ---------------------------------------------------------------------------------

    def all_uniform(self, operands: tuple[Operand, ...]) -> bool:
        """Whether no operand differs between lanes."""
        return not any(self.is_varying(r) for o in operands for r in registers_of(o))

    def read(self, operand: Operand, kind: ScalarType, lanes: bool) -> Value:
        """An operand as a type; `lanes` asks for a vector. Predicates are masks either way."""
        if isinstance(operand, NotPredicate):
            return self.f.not_(self.read_register(operand.register.name, PREDICATE, lanes))
        if isinstance(operand, Register):
            return self.read_register(operand.name, kind, lanes)
        target = vector(llvm_type(kind)) if lanes and kind is not PREDICATE else llvm_type(kind)
        if isinstance(operand, Immediate):
            return literal(operand, kind, target)
        if isinstance(operand, Name):
            if operand.name == "WARP_SZ":
                return integer(LANES, target)
            address = self.program.address_of(self.entry, operand.name)
            if address is not None:
                return integer(address + operand.offset, target)
        raise KeyError(operand)

    def read_register(self, name: str, kind: ScalarType, lanes: bool) -> Value:
        """A register as a type; the conversion is done once in a block."""
        forms = self.converted.setdefault(name, {})
        value = forms.get((kind.name, lanes))
        if value is None:
            value = self._special(name) if name[0] == "%" and not self._is_declared(name) else self._current(name)
            if kind is not PREDICATE:
                value = self._as_type(value, kind)
                if lanes and not is_vector(value.type):
                    value = self.f.splat(value)
            forms[kind.name, lanes] = value
        return value

    def _as_type(self, value: Value, kind: ScalarType) -> Value:
        """The low bits of a register, as a type."""
        f = self.f
        wanted = llvm_type(kind)
        have = element_of(value.type)
        shape: Callable[[str], str] = vector if is_vector(value.type) else str
        if have == wanted:
            return value
        if have in ("float", "double"):
            value = f.cast("bitcast", value, shape(f"i{bits_of(have)}"))
        value = f.resize(value, shape(f"i{kind.bits}"))
        return f.cast("bitcast", value, shape(wanted)) if kind.is_float else value

    def _special(self, name: str) -> Value:
        f = self.f
        stem, _, axis = name[1:].partition(".")
        place = "xyz".find(axis) if axis else 0
        if stem == "tid":
            warp = get(f, self.context, Slot.WARP)
            row = f.add(f.mul(warp, 3 * 4 * LANES), 4 * LANES * place)
            return f.load(vector("i32"), get(f, self.context, Slot.THREADS, "ptr"), row, align=64)
        if stem == "laneid":
            return constants(range(LANES), "i32")
        if stem in LANE_MASKS:
            return constants([LANE_MASKS[stem](lane) for lane in range(LANES)], "i32")
        if stem in ("smid", "nsmid", "gridid"):  # one multiprocessor does it all
            return integer(int(stem == "nsmid"))
        slots = {
            "ntid": Slot.BLOCK_X,
            "nctaid": Slot.GRID_X,
            "ctaid": Slot.INDEX_X,
            "warpid": Slot.WARP,
            "nwarpid": Slot.WARPS,
        }
        return get(f, self.context, Slot(slots[stem] + place), "i32")

    # -- homes -----------------------------------------------------------------------------------

    def _is_declared(self, name: str) -> bool:
        return name != "_" and (name in self.function.registers or _family(name) in self.function.families)

    def is_varying(self, name: str) -> bool:
        return name in self.uniformity.varying

    def _home_type(self, name: str) -> str:
        kind = self.function.register_type(name)
        scalar = llvm_type(kind)
        return vector(scalar) if self.is_varying(name) and kind is not PREDICATE else scalar

    def _home(self, name: str) -> int:
        """Where a register lives in the warp's memory."""
        home = self.homes.get(name)
        if home is None:
            kind = self._home_type(name)
            size = bits_of(kind) // 8 * (LANES if is_vector(kind) else 1)
            home = self.homes[name] = self.memory.reserve(size, self._align(kind))
        return home

    def _align(self, type_name: str) -> int:
        return 64 if is_vector(type_name) else 8


def _family(name: str) -> str:
    return name.rstrip("0123456789")


def literal(operand: Immediate, kind: ScalarType, type_name: str) -> Value:
    """A literal in an LLVM type; a float literal of the other width is converted."""
    value = operand.as_type(kind)
    if kind.is_float:
        bits = value.astype("f8").view("u8").item()
        text = f"0x{bits:016X}"
        return Value(type_name, f"splat ({element_of(type_name)} {text})" if is_vector(type_name) else text)
    return integer(-int(value) if kind is PREDICATE else int(value), type_name)
