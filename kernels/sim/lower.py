"""One PTX entry as LLVM IR: the function that runs a warp of it from beginning to end.

A register lives in a stack slot, its *home*, between basic blocks and as an SSA value inside one: a block loads
a home at the first read and stores it at its end if a later block may read it. A uniform register is a scalar,
a varying one a vector of 32 lanes, a predicate always the i32 mask of its lanes.

Control is that of a GPU warp. `mask` holds the running lanes. Where the lanes of a branch part, a stack takes
(meeting block, lanes, block to resume at): first all lanes, for the meeting block, then those that wait. Arriving
at a meeting block, or ending, pops it.
"""

from __future__ import annotations

from collections.abc import Callable

from . import library
from .addresses import LOCAL_WINDOW, window
from .arithmetic import Arithmetic, compare, llvm_type
from .cfg import EXIT, Block, destinations, is_branch, is_return, registers_of
from .context import BLOCK_FIELDS, BlockField, Slot, get, put
from .ir import LANES, FunctionBuilder, Value, bits_of, constants, element_of, integer, is_vector, module_text, vector
from .isa import result_type, source_types
from .program import Entry, Program
from .ptx import (
    Address,
    Immediate,
    Instruction,
    Name,
    NotPredicate,
    Operand,
    PredicatePair,
    Register,
    Vector,
    unsupported,
)
from .types import TYPES, ScalarType, bits_type
from .uniformity import analyse

#: Pairs of stack entries: each pair stands for a split, and 32 lanes can split at most 31 times.
STACK_ENTRIES = 64

PREDICATE = TYPES["pred"]
FULL = integer(-1)


def lower(program: Program, entry: Entry) -> str:
    """The LLVM IR of an entry: a function `warp(context)`. Raises UnsupportedPTX."""
    return _Lowering(program, entry).module()


class _Lowering:
    def __init__(self, program: Program, entry: Entry):
        self.program = program
        self.entry = entry
        self.function = entry.function
        self.graph = entry.graph
        self.uniformity = analyse(self.graph)
        self.arithmetic = Arithmetic()
        self.accesses = {pc: i for i, pc in enumerate(entry.accesses)}
        self.f = FunctionBuilder("warp", "void", [("ptr", "context")])
        self.context = self.f.arguments["context"]
        self.homes: dict[str, Value] = {}
        self.meets = {self.graph.post_dominators[b] for b in self.uniformity.divergent_branches} - {EXIT}
        self._start_block(0)

    def module(self) -> str:
        f = self.f
        self.mask_slot = f.alloca("i32", align=4)
        self.live_slot = f.alloca("i32", align=4)
        self.depth_slot = f.alloca("i64")
        self.stack = f.alloca("i32", 4 * STACK_ENTRIES, 16)
        self.budget_slot = f.alloca("i64")
        self._prologue()
        for block in self.graph.blocks:
            self._block(block)
        self._epilogue()
        return module_text([f, *self.arithmetic.functions.values()])

    # -- frame -----------------------------------------------------------------------------------

    def _prologue(self) -> None:
        f = self.f
        warp = get(f, self.context, Slot.WARP)
        initial = f.load("i32", get(f, self.context, Slot.MASKS, "ptr"), f.mul(warp, 4))
        f.store(initial, self.mask_slot)
        f.store(initial, self.live_slot)
        f.store(integer(0, "i64"), self.depth_slot)
        limit = f.intrinsic("smin", get(f, self.context, Slot.WARP_BUDGET), get(f, self.context, Slot.LAUNCH_BUDGET))
        f.store(limit, self.budget_slot)
        self.limit = limit
        self.counters = get(f, self.context, Slot.BLOCKS, "ptr")
        self.data = get(f, self.context, Slot.DATA, "ptr")
        self.params = get(f, self.context, Slot.PARAMS, "ptr")
        if self.graph.blocks:
            for name in sorted(self.graph.live_in[0]):  # registers that the code may read before it writes them
                if self._is_declared(name):
                    f.emit(f"store {self._home_type(name)} zeroinitializer, ptr {self._home(name).text}, align 64")
            f.jump("b0")
        else:
            f.jump("finish")

    def _epilogue(self) -> None:
        f = self.f
        if self.uniformity.divergent_branches:
            self._resume()
        f.place("finish")
        spent = f.sub(self.limit, f.load("i64", self.budget_slot))
        put(f, self.context, Slot.LAUNCH_BUDGET, f.sub(get(f, self.context, Slot.LAUNCH_BUDGET), spent))
        f.ret()

    def _is_declared(self, name: str) -> bool:
        return name != "_" and (name in self.function.registers or _family(name) in self.function.families)

    def _is_varying(self, name: str) -> bool:
        return name in self.uniformity.varying

    def _home_type(self, name: str) -> str:
        kind = self.function.register_type(name)
        scalar = llvm_type(kind)
        return vector(scalar) if self._is_varying(name) and kind is not PREDICATE else scalar

    def _home(self, name: str) -> Value:
        home = self.homes.get(name)
        if home is None:
            home = self.homes[name] = self.f.alloca(self._home_type(name), align=64)
        return home

    # -- control ---------------------------------------------------------------------------------

    def _start_block(self, index: int) -> None:
        self.block = index
        self.values: dict[str, Value] = {}
        self.dirty: set[str] = set()
        self.converted: dict[str, dict[tuple[str, bool], Value]] = {}
        self.mask_lanes: Value | None = None

    def _block(self, block: Block) -> None:
        f = self.f
        self._start_block(block.index)
        f.emit(f"b{block.index}:")
        f.terminated = False
        if block.index in self.meets:
            self._pop_if_met(block.index)
        self.mask = f.load("i32", self.mask_slot)
        self._account(block)
        code = self.graph.code(block)
        for pc, ins in enumerate(code[:-1], block.start):
            self._instruction(pc, ins)
        last = code[-1]
        if not (is_branch(last) or is_return(last)):
            self._instruction(block.end - 1, last)
        wanted = self._branch_mask(last) if len(block.successors) == 2 else None
        self._write_back(block)
        if wanted is None:
            self._go(block.successors[0])
        else:
            self._part(block, last, wanted)

    def _account(self, block: Block) -> None:
        """Count the block's execution and pay for its instructions."""
        f = self.f
        at = 8 * BLOCK_FIELDS * block.index
        f.increment(self.counters, at + 8 * BlockField.EXECUTIONS, 1)
        lanes = f.cast("zext", f.popcount(self.mask), "i64")
        f.increment(self.counters, at + 8 * BlockField.LANES, lanes)
        left = f.sub(f.load("i64", self.budget_slot), self.entry.work[block.index].price)
        f.store(left, self.budget_slot)
        stop, proceed = f.label("stop"), f.label("proceed")
        f.branch(f.icmp("slt", left, 0), stop, proceed, unlikely=True)
        f.place(stop)
        put(f, self.context, Slot.STOPPED, integer(1, "i64"))
        put(f, self.context, Slot.STOPPED_AT, integer(block.start, "i64"))
        put(f, self.context, Slot.STOPPED_LANES, f.cast("zext", self.mask, "i64"))
        f.jump("finish")
        f.place(proceed)

    def _branch_mask(self, last: Instruction) -> Value:
        assert last.guard
        predicate = self._read_register(last.guard.register, PREDICATE, False)
        return self.f.not_(predicate) if last.guard.negated else predicate

    def _go(self, target: int) -> None:
        if target != EXIT:
            self.f.jump(f"b{target}")
        elif not self.uniformity.divergent_branches:
            self.f.jump("finish")
        else:
            self._end_lanes(self.mask)
            self.f.jump("resume")

    def _end_lanes(self, mask: Value) -> None:
        f = self.f
        f.store(f.and_(f.load("i32", self.live_slot), f.not_(mask)), self.live_slot)

    def _edge(self, target: int) -> str:
        """A label that leads to a successor; leaving the kernel needs code of its own."""
        if target != EXIT:
            return f"b{target}"
        label = self.f.label("leave")
        self.pending_exits.append(label)
        return label

    def _part(self, block: Block, last: Instruction, wanted: Value) -> None:
        """End a block with a conditional branch."""
        f = self.f
        self.pending_exits: list[str] = []
        following, target = (self._edge(s) for s in block.successors)
        if block.index not in self.uniformity.divergent_branches:
            f.branch(f.icmp("ne", wanted, 0), target, following)
        else:
            self._diverge(block, wanted, following, target)
        for label in self.pending_exits:
            f.place(label)
            self._go(EXIT)

    def _diverge(self, block: Block, wanted: Value, following: str, target: str) -> None:
        f = self.f
        taking = f.and_(wanted, self.mask)
        staying = f.and_(f.not_(wanted), self.mask)
        some, split = f.label("some"), f.label("split")
        f.branch(f.icmp("eq", taking, 0), following, some)
        f.place(some)
        f.branch(f.icmp("eq", staying, 0), target, split)
        f.place(split)
        f.increment(self.counters, 8 * (BLOCK_FIELDS * block.index + BlockField.DIVERGENT), 1)
        meet = self.graph.post_dominators[block.index]
        if meet != EXIT:
            self._push(meet, self.mask, meet)
        next_block = block.successors[0]
        if next_block == EXIT:
            self._end_lanes(staying)
        elif next_block != meet:
            self._push(meet, staying, next_block)
        f.store(taking, self.mask_slot)
        if block.successors[1] == EXIT:
            # Only the lanes that take the branch end here.
            self._end_lanes(taking)
            f.jump("resume")
        else:
            f.jump(target)

    def _push(self, meet: int, lanes: Value, resume: int) -> None:
        f = self.f
        depth = f.load("i64", self.depth_slot)
        entry = f.at(self.stack, f.mul(depth, 16))
        f.store(integer(meet), entry)
        f.store(lanes, entry, 4)
        f.store(integer(resume), entry, 8)
        f.store(f.add(depth, 1), self.depth_slot)

    def _pop_if_met(self, index: int) -> None:
        """At a meeting block: if lanes wait for it, resume them."""
        f = self.f
        look, enter = f.label("look"), f.label("enter")
        depth = f.load("i64", self.depth_slot)
        f.branch(f.icmp("eq", depth, 0), enter, look)
        f.place(look)
        top = f.at(self.stack, f.mul(f.sub(depth, 1), 16))
        f.branch(f.icmp("eq", f.load("i32", top), index), "resume", enter)
        f.place(enter)

    def _resume(self) -> None:
        """Pop the stack until lanes are found that still live; end the warp when it is empty."""
        f = self.f
        f.place("resume")
        pop = f.label("pop")
        depth = f.load("i64", self.depth_slot)
        f.branch(f.icmp("eq", depth, 0), "finish", pop)
        f.place(pop)
        depth = f.sub(depth, 1)
        f.store(depth, self.depth_slot)
        entry = f.at(self.stack, f.mul(depth, 16))
        lanes = f.and_(f.load("i32", entry, 4), f.load("i32", self.live_slot))
        f.store(lanes, self.mask_slot)
        go = f.label("go")
        f.branch(f.icmp("eq", lanes, 0), "resume", go)
        f.place(go)
        target = f.load("i32", entry, 8)
        cases = " ".join(f"i32 {b.index}, label %b{b.index}" for b in self.graph.blocks)
        f.emit(f"switch {target}, label %finish [{cases}]")
        f.terminated = True

    # -- registers -------------------------------------------------------------------------------

    def _write_back(self, block: Block) -> None:
        live = self.graph.live_out(block)
        for name in sorted(self.dirty & live):
            self.f.store(self.values[name], self._home(name), align=64)

    def _current(self, name: str) -> Value:
        """A register's value in its own type."""
        value = self.values.get(name)
        if value is None:
            kind = self._home_type(name)
            value = self.values[name] = self.f.load(kind, self._home(name), align=64)
        return value

    def _assign(self, name: str, value: Value, guard: Value | None) -> None:
        """Write a register in its own type; lanes that wait, or that a guard stops, keep what they had."""
        varying = self._is_varying(name)
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

    # -- operands --------------------------------------------------------------------------------

    def _all_uniform(self, operands: tuple[Operand, ...]) -> bool:
        return not any(self._is_varying(r) for o in operands for r in registers_of(o))

    def _read(self, operand: Operand, kind: ScalarType, lanes: bool) -> Value:
        """An operand as a type; `lanes` asks for a vector. Predicates are masks either way."""
        if isinstance(operand, NotPredicate):
            return self.f.not_(self._read_register(operand.register.name, PREDICATE, lanes))
        if isinstance(operand, Register):
            return self._read_register(operand.name, kind, lanes)
        target = vector(llvm_type(kind)) if lanes and kind is not PREDICATE else llvm_type(kind)
        if isinstance(operand, Immediate):
            return literal(operand, kind, target)
        if isinstance(operand, Name):
            if operand.name == "WARP_SZ":
                return integer(LANES, target)
            address = self._address_of(operand.name)
            if address is not None:
                return integer(address + operand.offset, target)
        raise KeyError(operand)

    def _address_of(self, name: str) -> int | None:
        if name in self.program.symbol_numbers:
            return window(self.program.symbol_numbers[name])
        offset = self.entry.local_layout[0].get(name)
        return None if offset is None else window(LOCAL_WINDOW) + offset

    def _read_register(self, name: str, kind: ScalarType, lanes: bool) -> Value:
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
        slots = {
            "ntid": Slot.BLOCK_X,
            "nctaid": Slot.GRID_X,
            "ctaid": Slot.INDEX_X,
            "warpid": Slot.WARP,
            "nwarpid": Slot.WARPS,
        }
        return get(f, self.context, Slot(slots[stem] + place), "i32")

    # -- instructions ----------------------------------------------------------------------------

    def _instruction(self, pc: int, ins: Instruction) -> None:
        guard = self._guard(ins)
        opcode = ins.opcode
        if opcode == "ld":
            self._load(pc, ins, guard)
        elif opcode == "st":
            self._store(pc, ins, guard)
        elif opcode == "mov":
            self._move(ins, guard)
        elif opcode == "cvta":
            self._plain(ins, guard, lambda s: s[0], [TYPES["u64"]], TYPES["u64"])
        elif opcode in ("setp", "set"):
            self._set(ins, guard)
        elif opcode in ("selp", "slct"):
            self._select(ins, guard)
        elif ins.operands and opcode in ("and", "or", "xor", "not") and ins.type is PREDICATE:
            self._logic(ins, guard)
        elif destinations(ins):
            self._plain(ins, guard, lambda s: self.arithmetic.emit(self.f, ins, s), source_types(ins), result_type(ins))

    def _guard(self, ins: Instruction) -> Value | None:
        """The lanes in which an instruction has an effect; None where all the running ones."""
        if ins.guard is None:
            return None
        predicate = self._read_register(ins.guard.register, PREDICATE, False)
        if ins.guard.negated:
            predicate = self.f.not_(predicate)
        return self.f.and_(predicate, self.mask)

    def _plain(
        self,
        ins: Instruction,
        guard: Value | None,
        compute: Callable[[list[Value]], Value],
        kinds: list[ScalarType],
        result: ScalarType,
    ) -> None:
        """An instruction that maps sources to one result: scalar where all sources are uniform."""
        lanes = not self._all_uniform(ins.operands[1:])
        values = [self._read(o, k, lanes) for o, k in zip(ins.operands[1:], kinds)]
        self._finish(ins.operands[0], compute(values), result, guard)

    def _finish(self, to: Operand, value: Value, kind: ScalarType, guard: Value | None) -> None:
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

    def _logic(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        a, *rest = (self._read(o, PREDICATE, False) for o in ins.operands[1:])
        value = f.binary(ins.opcode, a, rest[0]) if rest else f.not_(a)
        self._finish(ins.operands[0], value, PREDICATE, guard)

    def _set(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to, a, b, *rest = ins.operands
        lanes = not self._all_uniform((a, b))
        kind = ins.type
        name = next(m for m in ins.modifiers if m != "ftz")
        x, y = self._read(a, kind, lanes), self._read(b, kind, lanes)
        first = compare(f, name, kind, x, y)
        second = f.not_(first) if isinstance(to, PredicatePair) else first
        if rest:
            c = self._read(rest[0], PREDICATE, False)
            combine = next(m for m in ins.modifiers if m in ("and", "or", "xor"))
            first, second = f.binary(combine, first, c), f.binary(combine, second, c)
        if ins.opcode == "set":
            self._set_number(ins, first, lanes or not self._all_uniform(tuple(rest)), guard)
        elif isinstance(to, PredicatePair):
            self._finish(to.first, first, PREDICATE, guard)
            self._finish(to.second, second, PREDICATE, guard)
        else:
            self._finish(to, first, PREDICATE, guard)

    def _set_number(self, ins: Instruction, found: Value, lanes: bool, guard: Value | None) -> None:
        """set: all ones (or 1.0) where the comparison holds."""
        f = self.f
        kind = ins.types[0]
        condition = f.to_lanes(found) if lanes else f.icmp("ne", found, 0)
        shape: Callable[[str], str] = vector if lanes else str
        value = f.cast("uitofp" if kind.is_float else "sext", condition, shape(llvm_type(kind)))
        self._finish(ins.operands[0], value, kind, guard)

    def _select(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to, a, b, c = ins.operands
        kind = ins.types[0]
        if ins.opcode == "slct":
            lanes = not self._all_uniform((a, b, c))
            test = ins.types[-1]
            x = self._read(c, test, lanes)
            zero = literal(Immediate(0), test, x.type)
            condition = f.fcmp("oge", x, zero) if test.is_float else f.icmp("sge", x, zero)
        elif self._all_uniform((c,)):
            lanes = not self._all_uniform((a, b))
            condition = f.icmp("ne", self._read(c, PREDICATE, False), 0)
        else:
            lanes = True
            condition = f.to_lanes(self._read(c, PREDICATE, False))
        value = f.select(condition, self._read(a, kind, lanes), self._read(b, kind, lanes))
        self._finish(to, value, kind, guard)

    def _move(self, ins: Instruction, guard: Value | None) -> None:
        to, source = ins.operands
        kind = ins.type
        lanes = not self._all_uniform((source,))
        if isinstance(source, Vector):
            self._finish(to, self._pack(source, kind, lanes), bits_type(kind.bits), guard)
        elif isinstance(to, Vector):
            self._unpack(to, self._read(source, bits_type(kind.bits), lanes), guard)
        else:
            self._finish(to, self._read(source, kind, lanes), kind, guard)

    def _pack(self, source: Vector, kind: ScalarType, lanes: bool) -> Value:
        f = self.f
        part = bits_type(kind.bits // len(source.parts))
        whole = f"i{kind.bits}"
        whole = vector(whole) if lanes else whole
        packed = integer(0, whole)
        for i, operand in enumerate(source.parts):
            piece = f.resize(self._read(operand, part, lanes), whole)
            packed = f.or_(packed, f.binary("shl", piece, i * part.bits))
        return packed

    def _unpack(self, to: Vector, value: Value, guard: Value | None) -> None:
        f = self.f
        part = bits_type(bits_of(value.type) // len(to.parts))
        shape: Callable[[str], str] = vector if is_vector(value.type) else str
        for i, operand in enumerate(to.parts):
            piece = f.resize(f.binary("lshr", value, i * part.bits), shape(f"i{part.bits}"))
            self._finish(operand, piece, part, guard)

    # -- memory ----------------------------------------------------------------------------------

    def _address(self, address: Address) -> tuple[Value, Value]:
        """A 64-bit address as base and offset; the base is a scalar where it is uniform."""
        offset = integer(address.offset, "i64")
        if address.base is None:
            return integer(0, "i64"), offset
        if isinstance(address.base, Name):
            return self._read(address.base, TYPES["u64"], False), offset
        name = address.base.name
        bits = self.function.register_type(name).bits
        base = self._read_register(name, TYPES[f"u{bits}"], self._is_varying(name))
        return self.f.resize(base, vector("i64") if is_vector(base.type) else "i64"), offset

    def _row_address(self, address: Address) -> list[Value]:
        base, offset = self._address(address)
        return [base if is_vector(base.type) else self.f.splat(base), offset]

    def _access(self, pc: int, ins: Instruction) -> Value:
        """Number and flags of an access."""
        flags = (library.STORE if ins.opcode == "st" else 0) | (library.UNCOUNTED if ins.has("const") else 0)
        return integer(self.accesses[pc] | flags << library.FLAG_SHIFT)

    def _load(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        to, place = ins.operands
        assert isinstance(place, Address)
        parts = to.parts if isinstance(to, Vector) else (to,)
        if ins.has("param"):
            self._load_param(ins, place, parts, guard)
            return
        f = self.f
        kind = ins.type
        width = kind.size * ins.width
        active = self.mask if guard is None else guard
        access = self._access(pc, ins)
        if self._all_uniform((to, place)):
            base, offset = self._address(place)
            address = f.add(base, offset) if place.offset else base
            f.call("void", "load_uniform", [self.context, address, active, access, integer(width, "i64")])
            values = [f.load(llvm_type(kind), self.data, i * kind.size) for i in range(len(parts))]
        else:
            f.call("void", f"load{width}", [self.context, *self._row_address(place), active, access])
            values = self._rows(llvm_type(kind), len(parts))
        for part, value in zip(parts, values):
            self._finish(part, value, kind, guard)

    def _rows(self, element: str, count: int) -> list[Value]:
        """The lanes' data, of `count` elements each, as one vector for each element."""
        f = self.f
        if count == 1:
            return [f.load(vector(element), self.data, align=64)]
        whole = f.load(f"<{LANES * count} x {element}>", self.data, align=64)
        return [f.shuffle(whole, whole, [lane * count + i for lane in range(LANES)]) for i in range(count)]

    def _load_param(self, ins: Instruction, place: Address, parts: tuple[Operand, ...], guard: Value | None) -> None:
        offset = None if not isinstance(place.base, Name) else self.entry.param_offsets.get(place.base.name)
        if offset is None:
            raise unsupported(ins, "the engine does not execute a load at a computed place of the parameters")
        for i, part in enumerate(parts):
            at = offset + place.offset + i * ins.type.size
            self._finish(part, self.f.load(llvm_type(ins.type), self.params, at, align=1), ins.type, guard)

    def _store(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        place, source = ins.operands
        assert isinstance(place, Address)
        parts = source.parts if isinstance(source, Vector) else (source,)
        kind = bits_type(ins.type.bits)
        values = [self._read(p, kind, True) for p in parts]
        while len(values) > 1:  # interleave: (a, c) and (b, d), then both
            half = len(values) // 2
            values = [self._interleave(values[i], values[i + half]) for i in range(half)]
        f.store(values[0], self.data, align=64)
        width = ins.type.size * ins.width
        active = self.mask if guard is None else guard
        access = self._access(pc, ins)
        f.call("void", f"store{width}", [self.context, *self._row_address(place), active, access])

    def _interleave(self, a: Value, b: Value) -> Value:
        count = int(a.type[1 : a.type.index(" ")])
        return self.f.shuffle(a, b, [i // 2 + (count if i % 2 else 0) for i in range(2 * count)])


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
