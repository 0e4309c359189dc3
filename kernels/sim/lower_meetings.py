"""Instructions in which lanes meet, or tell something to the outside, as LLVM IR."""

from __future__ import annotations

from . import warp_functions
from .context import NO_SITE, Slot, get
from .faults import STOPPED
from .frame import PREDICATE
from .ir import Value, integer, vector
from .ptx import Immediate, Instruction, PredicatePair, Register
from .types import TYPES
from .warp_code import Part


class MeetingCode(Part):
    # -- what threads tell -----------------------------------------------------------------------

    def read_clock(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        """The engine's clock is the work done: the same on every machine."""
        source = ins.operands[1]
        assert isinstance(source, Register)
        time = self.control.clock(self.code.graph.blocks[self.frame.block], pc)
        if source.name.endswith("_hi"):
            time = self.f.binary("lshr", time, 32)
        self.frame.write(ins.operands[0], self.f.resize(time, f"i{ins.type.bits}"), ins.type, guard)

    def stop(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        zero, site, none = integer(0, "i64"), integer(self.sites[pc]), integer(NO_SITE)
        text = self.frame.read(ins.operands[0], TYPES["u64"], False) if ins.operands else zero
        with f.each_lane(self.code.active(guard)) as lane:
            f.call("void", "record", [self.context, site, integer(STOPPED), zero, lane, text, integer(0), none])

    def print(self, ins: Instruction, guard: Value | None) -> None:
        f = self.f
        to, *arguments = ins.operands
        u64, results = TYPES["u64"], f.alloca(vector("i32"), align=64)
        rows = [f.alloca(vector("i64"), align=64) for _ in arguments]
        for row, argument in zip(rows, arguments):
            f.store(self.frame.read(argument, u64, True), row, align=64)
        printer = get(f, self.context, Slot.PRINTER, "ptr")
        with f.each_lane(self.code.active(guard)) as lane:
            index = f.cast("zext", lane, "i64")
            passed = [self.context, *(f.load("i64", row, f.mul(index, 8)) for row in rows), lane]
            count = f.value("i32", f"call i32 {printer.text}({', '.join(map(str, passed))})")
            f.store(count, results, f.mul(index, 4))
        self.frame.write(to, f.load(vector("i32"), results, align=64), TYPES["u32"], guard)

    # -- lanes that meet -------------------------------------------------------------------------

    def vote(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        to, wanted, named = ins.operands
        u32 = TYPES["u32"]
        active = self.code.active(guard)
        row = self.frame.read(named, u32, True)
        self.f.call("void", "check_members", [self.context, row, active, self.control.live(), integer(self.sites[pc])])
        members = row if not self.frame.all_uniform((named,)) else self.frame.read(named, u32, False)
        result = warp_functions.vote(self.f, ins, self.frame.read(wanted, PREDICATE, False), members, active)
        self.frame.write(to, result, ins.type, guard)

    def sync_warp(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        members, active = self.frame.read(ins.operands[0], TYPES["u32"], True), self.code.active(guard)
        live = self.control.live()
        self.f.call("void", "check_members", [self.context, members, active, live, integer(self.sites[pc])])
        self.f.call("void", "sync_warp", [self.context, members, active, live])

    def barrier_result(self, ins: Instruction, guard: Value | None) -> None:
        """What the threads of the block voted at the barrier before."""
        f = self.f
        votes, voters = (get(f, self.context, slot, "i32") for slot in (Slot.VOTES, Slot.VOTERS))
        if ins.has("popc"):
            self.frame.write(ins.operands[0], votes, TYPES["u32"], guard)
        else:
            holds = f.icmp("eq", votes, voters) if ins.has("and") else f.icmp("ne", votes, 0)
            self.frame.write(ins.operands[0], holds, PREDICATE, guard)

    def warp_function(self, pc: int, ins: Instruction, guard: Value | None) -> None:
        """A shuffle, match, reduction or election: in memory come the lanes' values and a predicate."""
        f = self.f
        to, *sources = ins.operands
        u32, none = TYPES["u32"], integer(0, vector("i32"))
        value, *others = sources if len(sources) > 1 else (Immediate(0), *sources)
        a = self.frame.read(value, ins.types[-1] if ins.types else u32, True)
        *places, members = (self.frame.read(o, u32, True) for o in others)
        b, c = places or (none, none)
        arguments = [self.context, f.resize(a, vector("i64")), b, c, members, self.code.active(guard)]
        arguments += [self.control.live(), integer(self.sites[pc])]
        f.call("void", warp_functions.name_of(ins), arguments)
        results = f.load(vector("i32"), self.code.data, align=64)
        predicate = f.load("i32", self.code.data, warp_functions.PREDICATE_AT)
        if isinstance(to, PredicatePair):
            self.frame.write(to.first, results, u32, guard)
            self.frame.write(to.second, predicate, PREDICATE, guard)
        else:
            self.frame.write(to, results, u32, guard)
