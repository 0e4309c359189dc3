"""Instructions that map registers to registers, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from . import half
from .addresses import window_change
from .arithmetic import carry_chain, compare, llvm_type
from .cfg import CARRY, TAKE_CARRY
from .conversion import flush
from .frame import PREDICATE, literal
from .ir import Value, bits_of, integer, is_vector, vector
from .isa import result_type, source_types
from .ptx import Immediate, Instruction, PredicatePair, Register, Vector
from .types import TYPES, ScalarType, bits_type
from .warp_code import Part


class ValueCode(Part):
    """Each takes an instruction and the lanes in which it has an effect; None: all the running ones."""

    def compute(self, ins: Instruction, guard: Value | None) -> None:
        kinds, result = source_types(ins), result_type(ins)
        self._map(ins, guard, lambda values: self.code.arithmetic.emit(self.f, ins, values), kinds, result)

    def change_window(self, ins: Instruction, guard: Value | None) -> None:
        """cvta: from an address of one memory to a generic one, or back."""
        by, u64 = window_change(ins), TYPES["u64"]
        self._map(ins, guard, lambda values: self.f.add(values[0], by) if by else values[0], [u64], u64)

    def _map(
        self,
        ins: Instruction,
        guard: Value | None,
        compute: Callable[[list[Value]], Value],
        kinds: list[ScalarType],
        result: ScalarType,
    ) -> None:
        """An instruction that maps sources to one result: scalar where all sources are uniform."""
        lanes = not self.frame.all_uniform(ins.operands[1:])
        values = [self.frame.read(o, k, lanes) for o, k in zip(ins.operands[1:], kinds)]
        self.frame.write(ins.operands[0], compute(values), result, guard)

    def logic(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        a, *rest = (self.frame.read(o, PREDICATE, False) for o in ins.operands[1:])
        value = f.binary(ins.opcode, a, rest[0]) if rest else f.not_(a)
        self.frame.write(ins.operands[0], value, PREDICATE, guard)

    def set(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to, a, b, *rest = ins.operands
        lanes = not self.frame.all_uniform((a, b))
        kind = ins.type
        name = next(m for m in ins.modifiers if m != "ftz")
        x, y = (self._flushed(ins, self.frame.read(o, kind, lanes)) for o in (a, b))
        if kind.is_pair:
            first, second = (
                compare(f, name, kind.element, half.half_of(f, x, i), half.half_of(f, y, i)) for i in (0, 1)
            )
        else:
            first = compare(f, name, kind, x, y)
            second = f.not_(first) if isinstance(to, PredicatePair) else first
        if rest:
            c = self.frame.read(rest[0], PREDICATE, False)
            combine = next(m for m in ins.modifiers if m in ("and", "or", "xor"))
            first, second = f.binary(combine, first, c), f.binary(combine, second, c)
        if ins.opcode == "set":
            self._set_number(ins, first, lanes or not self.frame.all_uniform(tuple(rest)), guard)
        elif isinstance(to, PredicatePair):
            self.frame.write(to.first, first, PREDICATE, guard)
            self.frame.write(to.second, second, PREDICATE, guard)
        else:
            self.frame.write(to, first, PREDICATE, guard)

    def _flushed(self, ins: Instruction, x: Value) -> Value:
        return flush(self.f, x) if ins.has("ftz") else x

    def _set_number(self, ins: Instruction, found: Value, lanes: bool, guard: Value | None) -> None:
        """set: all ones (or 1.0) where the comparison holds."""
        f = self.f
        kind = ins.types[0]
        condition = f.to_lanes(found) if lanes else f.icmp("ne", found, 0)
        shape: Callable[[str], str] = vector if lanes else str
        value = f.cast("uitofp" if kind.is_float else "sext", condition, shape(llvm_type(kind)))
        self.frame.write(ins.operands[0], value, kind, guard)

    def select(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to, a, b, c = ins.operands
        kind = ins.types[0]
        if ins.opcode == "slct":
            lanes = not self.frame.all_uniform((a, b, c))
            test = ins.types[-1]
            x = self._flushed(ins, self.frame.read(c, test, lanes))
            zero = literal(Immediate(0), test, x.type)
            condition = f.fcmp("oge", x, zero) if test.is_float else f.icmp("sge", x, zero)
        elif self.frame.all_uniform((c,)):
            lanes = not self.frame.all_uniform((a, b))
            condition = f.icmp("ne", self.frame.read(c, PREDICATE, False), 0)
        else:
            lanes = True
            condition = f.to_lanes(self.frame.read(c, PREDICATE, False))
        value = f.select(condition, self.frame.read(a, kind, lanes), self.frame.read(b, kind, lanes))
        self.frame.write(to, value, kind, guard)

    def move(self, ins: Instruction, guard: Value | None) -> None:
        to, source = ins.operands
        kind = ins.type
        lanes = not self.frame.all_uniform((source,))
        if isinstance(source, Vector):
            self.frame.write(to, self._pack(source, kind, lanes), bits_type(kind.bits), guard)
        elif isinstance(to, Vector):
            self._unpack(to, self.frame.read(source, bits_type(kind.bits), lanes), guard)
        else:
            self.frame.write(to, self.frame.read(source, kind, lanes), kind, guard)

    def _pack(self, source: Vector, kind: ScalarType, lanes: bool) -> Value:
        f = self.f
        part = bits_type(kind.bits // len(source.parts))
        whole = f"i{kind.bits}"
        whole = vector(whole) if lanes else whole
        packed = integer(0, whole)
        for i, operand in enumerate(source.parts):
            piece = f.resize(self.frame.read(operand, part, lanes), whole)
            packed = f.or_(packed, f.binary("shl", piece, i * part.bits))
        return packed

    def _unpack(self, to: Vector, value: Value, guard: Value | None) -> None:
        f = self.f
        part = bits_type(bits_of(value.type) // len(to.parts))
        shape: Callable[[str], str] = vector if is_vector(value.type) else str
        for i, operand in enumerate(to.parts):
            piece = f.resize(f.binary("lshr", value, i * part.bits), shape(f"i{part.bits}"))
            self.frame.write(operand, piece, part, guard)

    def carry(self, ins: Instruction, guard: Value | None) -> None:
        """A link of a chain of additions or subtractions."""
        u32 = TYPES["u32"]
        comes_in = ins.opcode in TAKE_CARRY
        lanes = not self.frame.all_uniform(ins.operands[1:]) or (comes_in and self.frame.is_varying(CARRY))
        values = [self.frame.read(o, ins.type, lanes) for o in ins.operands[1:]]
        before = self.frame.read_register(CARRY, u32, lanes) if comes_in else None
        result, carry = carry_chain(self.f, ins, values, before)
        self.frame.write(ins.operands[0], result, ins.type, guard)
        if ins.has("cc"):
            self.frame.write(Register(CARRY), carry, u32, guard)
