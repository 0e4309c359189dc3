"""Loads, stores, asynchronous copies and atomic updates as LLVM IR: what they are about goes to the library."""

from __future__ import annotations

from . import access, atomics, pointers, shared_access, shared_groups
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, window
from .arithmetic import llvm_type
from .async_copies import MOST_COPIES, STORE_OPCODE, waits
from .context import Slot, get
from .frame import PREDICATE
from .ir import LANES, Value, integer, is_vector, vector
from .ptx import Address, Immediate, Instruction, Name, Operand, Vector
from .types import TYPES, bits_type
from .uniformity import differs_by_lane
from .updates import Joined
from .warp_code import Part, WarpCode


class MemoryCode(Part):
    def __init__(self, code: WarpCode):
        super().__init__(code)
        self.shared_granule = pointers.granule(self.entry, "shared")
        found = shared_groups.find(self.entry)
        self.groups = {pc: group for group, loads in enumerate(found) for pc in loads.pcs}
        self.checked: dict[int, tuple[Value, Value]] = {}  # whether a group was found in order, and where it loads

    def is_space(self, ins: Instruction, guard: Value | None) -> None:
        """Whether a generic address points to the global memory, or the shared or local window."""
        f = self.f
        to, place = ins.operands
        lanes = not self.frame.all_uniform((place,))
        number = access.number_of(f, self.frame.read(place, TYPES["u64"], lanes))
        shared, local = (f.icmp("eq", number, w) for w in (SHARED_WINDOW, LOCAL_WINDOW))
        found = shared if ins.has("shared") else local if ins.has("local") else f.not_(f.or_(shared, local))
        self.frame.write(to, found, PREDICATE, guard)

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

    def load(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        to, place = ins.operands
        assert isinstance(place, Address)
        parts = to.parts if isinstance(to, Vector) else (to,)
        if ins.has("param"):
            self._load_param(ins, parts, guard)
            return
        f = self.f
        kind = ins.type
        width = kind.size * ins.width
        active = self.code.mask if guard is None else guard
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
            values = [f.load(llvm_type(kind), self.code.data, i * kind.size) for i in range(len(parts))]
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
        access.fill_bytes(f, self.code.data, integer(width * (1 if uniform else LANES), "i64"))
        if uniform:
            address = f.add(*self._address(ins, place))
            f.call("void", "careful_uniform", [self.context, address, active, site, size, flags])
        else:
            row = f.alloca(vector("i64"), align=64)
            base, offset = self._row_address(ins, place)
            f.store(f.add(base, f.splat(offset)), row, align=64)
            f.call("void", "careful", [self.context, row, active, site, self.code.data, size, flags])

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
            fine = f.call("i1", "check_group", [self.context, row, self.code.mask, integer(group)])
            self.checked[group] = fine, low
        fine, low = self.checked[group]
        fast, slow, done = f.label("fast"), f.label("slow"), f.label("done")
        f.branch(fine, fast, slow)
        f.place(fast)
        where = f.add(low, integer(place.offset, low.type))
        if is_row:
            quick = f.call(vector("i32"), "fetch_shared", [self.context, where, self.code.mask])
        else:
            shared = get(f, self.context, Slot.SHARED, "ptr")
            quick = f.load("i32", shared, f.cast("sext", where, "i64"), align=4)
        f.jump(done)
        f.place(slow)
        if is_row:
            f.call("void", self._function("load", ins), [self.context, base, offset, self.code.mask, site])
        else:
            width = integer(ins.type.size, "i64")
            f.call("void", "load_shared_uniform", [self.context, f.add(base, offset), self.code.mask, site, width])
        loaded = f.load(quick.type, self.code.data, align=4)
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
            return [f.load(vector(element), self.code.data, align=64)]
        whole = f.load(f"<{LANES * count} x {element}>", self.code.data, align=64)
        return [f.shuffle(whole, whole, [lane * count + i for lane in range(LANES)]) for i in range(count)]

    def _load_param(self, ins: Instruction, parts: tuple[Operand, ...], guard: Value | None) -> None:
        start = self.entry.param_place(ins)
        for i, part in enumerate(parts):
            value = self.f.load(llvm_type(ins.type), self.code.params, start + i * ins.type.size, align=1)
            self.frame.write(part, value, ins.type, guard)

    def store(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        place, source = ins.operands
        assert isinstance(place, Address)
        parts = source.parts if isinstance(source, Vector) else (source,)
        kind = bits_type(ins.type.bits)
        values = [self.frame.read(p, kind, True) for p in parts]
        while len(values) > 1:  # interleave: (a, c) and (b, d), then both
            half = len(values) // 2
            values = [self._interleave(values[i], values[i + half]) for i in range(half)]
        f.store(values[0], self.code.data, align=64)
        active = self.code.mask if guard is None else guard
        site = self._access(pc, ins)
        where = [self.context, *self._row_address(ins, place), active, site]
        if ins.opcode == STORE_OPCODE:
            f.call("void", "start_copy", [*where, integer(ins.type.size * ins.width, "i64")])
        else:
            f.call("void", self._function("store", ins), where)

    def end_copies(self, ins: Instruction, guard: Value | None) -> None:
        """cp.async.commit_group, wait_group and wait_all."""
        if not self.entry.has_copies:
            return
        active = self.code.active(guard)
        if not waits(ins):
            self.f.call("void", "commit_copies", [self.context, active])
            return
        last = ins.operands[0] if ins.operands else Immediate(0)
        assert isinstance(last, Immediate)
        early = MOST_COPIES if ins.has("wait_all") else 0
        self.f.call("void", "finish_copies", [self.context, active, integer(last.value), integer(early)])

    def atomic(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to = ins.operands[0] if ins.opcode == "atom" else None
        place, *operands = ins.operands[to is not None :]
        assert isinstance(place, Address)
        kind = ins.type
        for i, operand in enumerate(operands):
            f.store(self.frame.read(operand, kind, True), f.at(self.code.data, i * atomics.SECOND_AT), align=64)
        overwrites = ins.has("exch") and not self.entry.uses_result(ins)
        done = self.entry.updates[pc]
        flags = access.UPDATE | (access.OVERWRITES if overwrites else 0)
        flags |= (access.SWAPS if done.swaps else 0) | (access.LOOPS if done.loops else 0)
        joined, apart = (integer(self.sites[pc] | f << access.FLAG_SHIFT) for f in (flags, flags | access.TURNS))
        active = self.code.active(guard)
        site = {
            Joined.ALWAYS: joined,
            Joined.NEVER: apart,
            Joined.WHOLE_WARPS: f.select(f.icmp("eq", active, -1), joined, apart),
        }[done.joined]
        arguments = [self.context, *self._row_address(ins, place), active, site]
        f.call("void", atomics.name_of(ins), arguments)
        if to is not None:
            old = f.load(vector(llvm_type(kind)), self.code.data, align=64)
            self.frame.write(to, old, kind, guard)

    def _interleave(self, a: Value, b: Value) -> Value:
        count = int(a.type[1 : a.type.index(" ")])
        return self.f.shuffle(a, b, [i // 2 + (count if i % 2 else 0) for i in range(2 * count)])
