"""One PTX entry as LLVM IR: the function that runs a warp of it from beginning to end, instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import access, atomics, half, pointers, shared_access, shared_groups, warp_functions
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, window, window_change
from .arithmetic import Arithmetic, carry_chain, compare, llvm_type
from .async_copies import MOST_COPIES, STORE_OPCODE, waits
from .barriers import RESULT, is_barrier, is_warp_barrier, vote_of
from .cfg import CARRY, TAKE_CARRY, Block, destinations, is_branch, is_return
from .context import NO_SITE, Slot, get
from .control import Control
from .conversion import flush
from .faults import STOPPED
from .frame import PREDICATE, Frame, WarpMemory, literal
from .ir import LANES, FunctionBuilder, Value, bits_of, integer, is_vector, module_text, vector
from .isa import CLOCKS, STOPS, WARP_FUNCTIONS, result_type, source_types
from .program import Entry, Program
from .ptx import Address, Immediate, Instruction, Name, Operand, PredicatePair, Register, Vector, unsupported
from .types import TYPES, ScalarType, bits_type
from .uniformity import differs_by_lane


@dataclass(frozen=True)
class Lowered:
    """The LLVM IR of an entry: a function `warp(context, frame, from_block)`; frame_bytes: what a warp keeps."""

    ir: str
    frame_bytes: int


def lower(program: Program, entry: Entry) -> Lowered:
    """Translate an entry. Raises UnsupportedPTX."""
    return _Lowering(program, entry).lowered()


def _clock(ins: Instruction) -> bool:
    """Whether an instruction reads a clock."""
    return any(isinstance(o, Register) and o.name in CLOCKS for o in ins.operands)


class _Lowering:
    def __init__(self, program: Program, entry: Entry):
        self.entry = entry
        self.function = entry.function
        self.graph = entry.graph
        self.arithmetic = Arithmetic()
        self.sites = {pc: i for i, pc in enumerate(entry.sites)}
        self.shared_granule = pointers.granule(entry, "shared")
        found = shared_groups.find(entry)
        self.groups = {pc: group for group, loads in enumerate(found) for pc in loads.pcs}
        self.checked: dict[int, tuple[Value, Value]] = {}  # whether a group was found in order, and where it loads
        self.f = FunctionBuilder("warp", "i64", [("ptr", "context"), ("ptr", "frame"), ("i64", "from_block")])
        self.context = self.f.arguments["context"]
        uniformity = entry.uniformity
        memory = WarpMemory(self.f.arguments["frame"])
        self.control = Control(self.f, memory, entry, uniformity)
        self.frame = Frame(self.f, memory, program, entry, uniformity)

    def lowered(self) -> Lowered:
        text = self._module()
        return Lowered(text, self.frame.memory.reserve(0, 64))

    def _module(self) -> str:
        f = self.f
        with self.control.begin():
            if self.graph.blocks:
                self.frame.clear(self.graph.live_in[0])
        self.data = get(f, self.context, Slot.DATA, "ptr")
        self.params = get(f, self.context, Slot.PARAMS, "ptr")
        self.control.start()
        for block in self.graph.blocks:
            self._block(block)
        self.control.end()
        return module_text([f, *self.arithmetic.functions.values()])

    def _block(self, block: Block) -> None:
        self.mask = self.control.enter(block)
        self.frame.start_block(block.index, self.mask)
        for pc, ins in enumerate(self.graph.code(block), block.start):
            if not (is_branch(ins) or is_return(ins) or is_barrier(ins)):
                self._try(pc, ins)
        last = self.function.code[block.end - 1]
        wanted = self._predicate(last) if len(block.successors) == 2 else None
        if is_barrier(last):
            vote = vote_of(last)
            votes = self.mask if vote is None else self.frame.read(vote, PREDICATE, False)
            arriving = self._active(self._guard(last))
            self.frame.write_back(self.graph.live_out(block))
            self.control.wait(block, self.sites[self.entry.barrier_at(block.end - 1)], arriving, votes)
            return
        self.frame.write_back(self.graph.live_out(block))
        self.control.leave(block, wanted)

    def _predicate(self, ins: Instruction) -> Value:
        """The lanes that an instruction's own predicate lets through."""
        assert ins.guard
        predicate = self.frame.read_register(ins.guard.register, PREDICATE, False)
        return self.f.not_(predicate) if ins.guard.negated else predicate

    # -- instructions ----------------------------------------------------------------------------

    def _try(self, pc: int, ins: Instruction) -> None:
        """Write an instruction; inline assembly, which nobody has checked, may hold anything."""
        try:
            self._instruction(pc, ins)
        except (KeyError, IndexError, TypeError, ValueError, AssertionError) as error:
            raise unsupported(ins, "the engine cannot make sense of this instruction") from error

    def _instruction(self, pc: int, ins: Instruction) -> None:
        guard = self._guard(ins)
        opcode = ins.opcode
        if opcode == "ld":
            self._load(pc, ins, guard)
        elif opcode in ("st", STORE_OPCODE):
            self._store(pc, ins, guard)
        elif opcode == "cp":
            self._end_copies(ins, guard)
        elif opcode in ("atom", "red"):
            self._atomic(pc, ins, guard)
        elif opcode == "vote":
            self._vote(pc, ins, guard)
        elif opcode == "activemask":
            self.frame.write(ins.operands[0], self._active(guard), TYPES["b32"], guard)
        elif opcode in WARP_FUNCTIONS:
            self._warp_function(pc, ins, guard)
        elif is_warp_barrier(ins):
            self._sync_warp(pc, ins, guard)
        elif opcode == RESULT:
            self._barrier_result(ins, guard)
        elif opcode == "mov" and _clock(ins):
            self._read_clock(pc, ins, guard)
        elif opcode in STOPS:
            self._stop(pc, ins, guard)
        elif opcode == "printf":
            self._print(ins, guard)
        elif opcode == "isspacep":
            self._is_space(ins, guard)
        elif opcode in TAKE_CARRY or ins.has("cc"):
            self._carry(ins, guard)
        elif opcode == "mov":
            self._move(ins, guard)
        elif opcode == "cvta":
            by = window_change(ins)
            self._plain(ins, guard, lambda s: self.f.add(s[0], by) if by else s[0], [TYPES["u64"]], TYPES["u64"])
        elif opcode in ("setp", "set") and not (opcode == "set" and ins.type.is_half):
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
        return self.f.and_(self._predicate(ins), self.mask)

    def _active(self, guard: Value | None) -> Value:
        """The lanes in which an instruction has an effect."""
        return self.mask if guard is None else guard

    def _plain(
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

    def _logic(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        a, *rest = (self.frame.read(o, PREDICATE, False) for o in ins.operands[1:])
        value = f.binary(ins.opcode, a, rest[0]) if rest else f.not_(a)
        self.frame.write(ins.operands[0], value, PREDICATE, guard)

    def _set(self, ins: Instruction, guard: Value | None) -> None:
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

    def _select(self, ins: Instruction, guard: Value | None) -> None:
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

    def _move(self, ins: Instruction, guard: Value | None) -> None:
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

    def _carry(self, ins: Instruction, guard: Value | None) -> None:
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

    def _is_space(self, ins: Instruction, guard: Value | None) -> None:
        """Whether a generic address points to the global memory, or the shared or local window."""
        f = self.f
        to, place = ins.operands
        lanes = not self.frame.all_uniform((place,))
        number = access.number_of(f, self.frame.read(place, TYPES["u64"], lanes))
        shared, local = (f.icmp("eq", number, w) for w in (SHARED_WINDOW, LOCAL_WINDOW))
        found = shared if ins.has("shared") else local if ins.has("local") else f.not_(f.or_(shared, local))
        self.frame.write(to, found, PREDICATE, guard)

    # -- what threads tell -----------------------------------------------------------------------

    def _read_clock(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        """The engine's clock is the work done: the same on every machine."""
        source = ins.operands[1]
        assert isinstance(source, Register)
        time = self.control.clock(self.graph.blocks[self.frame.block], pc)
        if source.name.endswith("_hi"):
            time = self.f.binary("lshr", time, 32)
        self.frame.write(ins.operands[0], self.f.resize(time, f"i{ins.type.bits}"), ins.type, guard)

    def _stop(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        zero, site, none = integer(0, "i64"), integer(self.sites[pc]), integer(NO_SITE)
        text = self.frame.read(ins.operands[0], TYPES["u64"], False) if ins.operands else zero
        with f.each_lane(self._active(guard)) as lane:
            f.call("void", "record", [self.context, site, integer(STOPPED), zero, lane, text, integer(0), none])

    def _print(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to, *arguments = ins.operands
        u64, results = TYPES["u64"], f.alloca(vector("i32"), align=64)
        rows = [f.alloca(vector("i64"), align=64) for _ in arguments]
        for row, argument in zip(rows, arguments):
            f.store(self.frame.read(argument, u64, True), row, align=64)
        printer = get(f, self.context, Slot.PRINTER, "ptr")
        with f.each_lane(self._active(guard)) as lane:
            index = f.cast("zext", lane, "i64")
            passed = [self.context, *(f.load("i64", row, f.mul(index, 8)) for row in rows), lane]
            count = f.value("i32", f"call i32 {printer.text}({', '.join(map(str, passed))})")
            f.store(count, results, f.mul(index, 4))
        self.frame.write(to, f.load(vector("i32"), results, align=64), TYPES["u32"], guard)

    # -- lanes that meet -------------------------------------------------------------------------

    def _vote(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        to, wanted, named = ins.operands
        u32 = TYPES["u32"]
        active = self._active(guard)
        row = self.frame.read(named, u32, True)
        self.f.call("void", "check_members", [self.context, row, active, self.control.live(), integer(self.sites[pc])])
        members = row if not self.frame.all_uniform((named,)) else self.frame.read(named, u32, False)
        result = warp_functions.vote(self.f, ins, self.frame.read(wanted, PREDICATE, False), members, active)
        self.frame.write(to, result, ins.type, guard)

    def _sync_warp(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        members, active = self.frame.read(ins.operands[0], TYPES["u32"], True), self._active(guard)
        live = self.control.live()
        self.f.call("void", "check_members", [self.context, members, active, live, integer(self.sites[pc])])
        self.f.call("void", "sync_warp", [self.context, members, active, live])

    def _barrier_result(self, ins: Instruction, guard: Value | None) -> None:
        """What the threads of the block voted at the barrier before."""
        f = self.f
        votes, voters = (get(f, self.context, slot, "i32") for slot in (Slot.VOTES, Slot.VOTERS))
        if ins.has("popc"):
            self.frame.write(ins.operands[0], votes, TYPES["u32"], guard)
        else:
            holds = f.icmp("eq", votes, voters) if ins.has("and") else f.icmp("ne", votes, 0)
            self.frame.write(ins.operands[0], holds, PREDICATE, guard)

    def _warp_function(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        """A shuffle, match, reduction or election: in memory come the lanes' values and a predicate."""
        f = self.f
        to, *sources = ins.operands
        u32, none = TYPES["u32"], integer(0, vector("i32"))
        value, *others = sources if len(sources) > 1 else (Immediate(0), *sources)
        a = self.frame.read(value, ins.types[-1] if ins.types else u32, True)
        *places, members = (self.frame.read(o, u32, True) for o in others)
        b, c = places or (none, none)
        arguments = [self.context, f.resize(a, vector("i64")), b, c, members, self._active(guard)]
        arguments += [self.control.live(), integer(self.sites[pc])]
        f.call("void", warp_functions.name_of(ins), arguments)
        results = f.load(vector("i32"), self.data, align=64)
        predicate = f.load("i32", self.data, warp_functions.PREDICATE_AT)
        if isinstance(to, PredicatePair):
            self.frame.write(to.first, results, u32, guard)
            self.frame.write(to.second, predicate, PREDICATE, guard)
        else:
            self.frame.write(to, results, u32, guard)

    # -- memory ----------------------------------------------------------------------------------

    def _address(self, ins: Instruction, address: Address) -> tuple[Value, Value]:
        """A 64-bit generic address as base and offset; the base is a scalar where it is uniform."""
        offset = integer(address.offset + (window(SHARED_WINDOW) if ins.has("shared") else 0), "i64")
        if address.base is None:
            return integer(0, "i64"), offset
        if isinstance(address.base, Name):
            return self.frame.read(address.base, TYPES["u64"], False), offset
        name = address.base.name
        bits = self.function.register_type(name).bits
        base = self.frame.read_register(name, TYPES[f"u{bits}"], self.frame.is_varying(name))
        wide = vector("i64") if is_vector(base.type) else "i64"
        return self.f.resize(base, wide, signed=ins.has("shared")), offset

    def _row_address(self, ins: Instruction, address: Address) -> list[Value]:
        base, offset = self._address(ins, address)
        return [base if is_vector(base.type) else self.f.splat(base), offset]

    def _access(self, pc: int, ins: Instruction) -> Value:
        """Number and flags of an access."""
        flags = (access.STORE if ins.opcode != "ld" else 0) | (access.UNCOUNTED if ins.has("const") else 0)
        flags |= access.GUESS if pc in self.entry.guesses else 0
        return integer(self.sites[pc] | flags << access.FLAG_SHIFT)

    def _load(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        to, place = ins.operands
        assert isinstance(place, Address)
        parts = to.parts if isinstance(to, Vector) else (to,)
        if ins.has("param"):
            self._load_param(ins, parts, guard)
            return
        f = self.f
        kind = ins.type
        width = kind.size * ins.width
        active = self.mask if guard is None else guard
        site = self._access(pc, ins)
        uniform = self.frame.all_uniform((place,)) and not differs_by_lane(ins)
        if pc in self.groups:
            self.frame.write(to, self._load_of_group(pc, ins, site), kind, guard)
            return
        if pc in self.entry.guesses:
            self._load_carefully(ins, place, active, site, width, uniform)
        elif uniform:
            address = f.add(*self._address(ins, place))
            name = "load_shared_uniform" if ins.has("shared") else "load_uniform"
            f.call("void", name, [self.context, address, active, site, integer(width, "i64")])
        else:
            f.call("void", self._function("load", ins), [self.context, *self._row_address(ins, place), active, site])
        if uniform:
            values = [f.load(llvm_type(kind), self.data, i * kind.size) for i in range(len(parts))]
        else:
            values = self._rows(llvm_type(kind), len(parts))
        for part, value in zip(parts, values):
            self.frame.write(part, value, kind, guard)

    def _load_carefully(
        self, ins: Instruction, place: Address, active: Value, request: Value, width: int, uniform: bool
    ) -> None:
        """A load that the fast functions know nothing of."""
        f = self.f
        site, flags = access.split_access(f, request)
        size = integer(width, "i64")
        access.fill_bytes(f, self.data, integer(width * (1 if uniform else LANES), "i64"))
        if uniform:
            address = f.add(*self._address(ins, place))
            f.call("void", "careful_uniform", [self.context, address, active, site, size, flags])
        else:
            row = f.alloca(vector("i64"), align=64)
            base, offset = self._row_address(ins, place)
            f.store(f.add(base, f.splat(offset)), row, align=64)
            f.call("void", "careful", [self.context, row, active, site, self.data, size, flags])

    def _load_of_group(self, pc: int, ins: Instruction, site: Value) -> Value:
        """A load whose group is checked at once, at its first load."""
        f = self.f
        place = ins.operands[1]
        assert isinstance(place, Address)
        group = self.groups[pc]
        base, offset = self._address(ins, place)
        is_row = is_vector(base.type)
        if group not in self.checked:
            low = f.cast("trunc", base, vector("i32") if is_row else "i32")
            addresses = f.add(f.resize(base, base.type), integer(window(SHARED_WINDOW), base.type))
            row = addresses if is_row else f.splat(addresses)
            fine = f.call("i1", "check_group", [self.context, row, self.mask, integer(group)])
            self.checked[group] = fine, low
        fine, low = self.checked[group]
        fast, slow, done = f.label("fast"), f.label("slow"), f.label("done")
        f.branch(fine, fast, slow)
        f.place(fast)
        where = f.add(low, integer(place.offset, low.type))
        if is_row:
            quick = f.call(vector("i32"), "fetch_shared", [self.context, where, self.mask])
        else:
            shared = get(f, self.context, Slot.SHARED, "ptr")
            quick = f.load("i32", shared, f.cast("sext", where, "i64"), align=4)
        f.jump(done)
        f.place(slow)
        if is_row:
            f.call("void", self._function("load", ins), [self.context, base, offset, self.mask, site])
        else:
            width = integer(ins.type.size, "i64")
            f.call("void", "load_shared_uniform", [self.context, f.add(base, offset), self.mask, site, width])
        loaded = f.load(quick.type, self.data, align=4)
        f.place(done)
        both = f.value(quick.type, f"phi {quick.type} [{quick.text}, %{fast}], [{loaded.text}, %{slow}]")
        kind = llvm_type(ins.type)
        return f.cast("bitcast", both, vector(kind) if is_row else kind)

    def _function(self, op: str, ins: Instruction) -> str:
        """The library's function for a load or store."""
        width = ins.type.size * ins.width
        return shared_access.name_of(op, width, self.shared_granule) if ins.has("shared") else f"{op}{width}"

    def _rows(self, element: str, count: int) -> list[Value]:
        """The lanes' data, of `count` elements each, as one vector for each element."""
        f = self.f
        if count == 1:
            return [f.load(vector(element), self.data, align=64)]
        whole = f.load(f"<{LANES * count} x {element}>", self.data, align=64)
        return [f.shuffle(whole, whole, [lane * count + i for lane in range(LANES)]) for i in range(count)]

    def _load_param(self, ins: Instruction, parts: tuple[Operand, ...], guard: Value | None) -> None:
        start = self.entry.param_place(ins)
        for i, part in enumerate(parts):
            value = self.f.load(llvm_type(ins.type), self.params, start + i * ins.type.size, align=1)
            self.frame.write(part, value, ins.type, guard)

    def _store(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        place, source = ins.operands
        assert isinstance(place, Address)
        parts = source.parts if isinstance(source, Vector) else (source,)
        kind = bits_type(ins.type.bits)
        values = [self.frame.read(p, kind, True) for p in parts]
        while len(values) > 1:  # interleave: (a, c) and (b, d), then both
            half = len(values) // 2
            values = [self._interleave(values[i], values[i + half]) for i in range(half)]
        f.store(values[0], self.data, align=64)
        active = self.mask if guard is None else guard
        site = self._access(pc, ins)
        where = [self.context, *self._row_address(ins, place), active, site]
        if ins.opcode == STORE_OPCODE:
            f.call("void", "start_copy", [*where, integer(ins.type.size * ins.width, "i64")])
        else:
            f.call("void", self._function("store", ins), where)

    def _end_copies(self, ins: Instruction, guard: Value | None) -> None:
        """cp.async.commit_group, wait_group and wait_all."""
        if not self.entry.has_copies:
            return
        active = self._active(guard)
        if not waits(ins):
            self.f.call("void", "commit_copies", [self.context, active])
            return
        last = ins.operands[0] if ins.operands else Immediate(0)
        assert isinstance(last, Immediate)
        early = MOST_COPIES if ins.has("wait_all") else 0
        self.f.call("void", "finish_copies", [self.context, active, integer(last.value), integer(early)])

    def _atomic(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to = ins.operands[0] if ins.opcode == "atom" else None
        place, *operands = ins.operands[to is not None :]
        assert isinstance(place, Address)
        kind = ins.type
        for i, operand in enumerate(operands):
            f.store(self.frame.read(operand, kind, True), f.at(self.data, i * atomics.SECOND_AT), align=64)
        overwrites = ins.has("exch") and not self.entry.uses_result(ins)
        flags = (access.OVERWRITES if overwrites else 0) | (access.TURNS if pc in self.entry.scattered_updates else 0)
        site = integer(self.sites[pc] | flags << access.FLAG_SHIFT)
        arguments = [self.context, *self._row_address(ins, place), self._active(guard), site]
        f.call("void", atomics.name_of(ins), arguments)
        if to is not None:
            old = f.load(vector(llvm_type(kind)), self.data, align=64)
            self.frame.write(to, old, kind, guard)

    def _interleave(self, a: Value, b: Value) -> Value:
        count = int(a.type[1 : a.type.index(" ")])
        return self.f.shuffle(a, b, [i // 2 + (count if i % 2 else 0) for i in range(2 * count)])
