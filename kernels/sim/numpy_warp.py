"""A warp of the plain executor: where its lanes go, and what each instruction does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import numpy_half, numpy_meeting
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, split, window_change
from .async_copies import STORE_OPCODE
from .barriers import RESULT, is_barrier, is_warp_barrier, vote_of
from .cfg import CARRY, EXIT, TAKE_CARRY, destinations, is_branch, is_return
from .faults import LEFT, NOBODY, PARTED, STOPPED
from .isa import CLOCKS, STOPS, WARP_FUNCTIONS, source_types
from .launch import WARP
from .numpy_access import Accesses
from .numpy_account import Account
from .numpy_alu import carry_chain, compare, evaluate, flush
from .numpy_memory import Sync
from .numpy_registers import LANE, Lanes, bits
from .ptx import Immediate, Instruction, PredicatePair, Register, Vector
from .types import TYPES, bits_type


class OutOfBudget(Exception):
    """Where, and by whom, the last of the budget was spent."""

    def __init__(self, pc: int, thread: int, block: int):
        self.pc, self.thread, self.block = pc, thread, block


class Wait(NamedTuple):
    """A warp at a barrier: where, and how many of its lanes vote yes."""

    pc: int
    votes: int


@dataclass
class _Pending:
    """Lanes that wait: they resume at `resume` when the running lanes arrive at `meet` or end."""

    meet: int
    mask: Lanes
    resume: int


class Warp(Accesses):
    """A warp that runs, to its end or to a barrier at a time."""

    def __init__(self, owner: Account, block: int, warp: int):
        super().__init__(owner, block, warp)
        self.graph = self.launch.entry.graph
        self.code = self.launch.entry.function.code
        self.initial = self.first_thread + LANE < self.launch.threads_per_block
        self.live = self.initial.copy()
        self.mask = self.live.copy()
        self.stack: list[_Pending] = []

    # -- control ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Wait]:
        """Execute to the end; each barrier is a stop."""
        self.budget = self.launch.warp_budget - self.launch.entry.warp_price
        self.owner.budget -= self.launch.entry.warp_price
        graph, tally = self.graph, self.owner.tally
        current = 0 if graph.blocks else EXIT
        while True:
            if current == EXIT:
                self.live &= ~self.mask
                self.mask = np.zeros(WARP, bool)
            if current == EXIT or (self.stack and self.stack[-1].meet == current):
                resume = self._resume()
                if resume is None:
                    return
                current = resume
                continue
            block = graph.blocks[current]
            tally.executions[current] += 1
            tally.lanes[current] += int(self.mask.sum())
            self._spend(self.launch.entry.work[current].price, block.start)
            for pc in range(block.start, block.end - 1):
                self._execute(pc)
            last = self.code[block.end - 1]
            if is_barrier(last):
                yield from self._wait(self.launch.entry.barrier_at(block.end - 1), last)
                current = block.successors[0]
            else:
                current = self._leave(block.end - 1, current)

    def _wait(self, pc: int, barrier: Instruction) -> Iterator[Wait]:
        """Stop at a barrier; lanes of the warp that do not come to it are a fault."""
        arriving = self._active(barrier)
        if not arriving.any():
            return
        elsewhere, ended = self.live & ~arriving, self.initial & ~self.live
        if elsewhere.any() or ended.any():
            code, missing = (PARTED, elsewhere) if elsewhere.any() else (LEFT, ended)
            thread = self.first_thread + int(np.argmax(arriving))
            other = 1 + self.block * self.launch.threads_per_block + self.first_thread + int(np.argmax(missing))
            self.owner.record(pc, code, 0, thread, self.block, 0, other)
        vote = vote_of(barrier)
        votes = arriving if vote is None else arriving & self.read(vote, TYPES["pred"])
        yield Wait(pc, int(votes.sum()))

    def _resume(self) -> int | None:
        """Continue the lanes on top of the stack; None when no lane is left."""
        while self.stack:
            pending = self.stack.pop()
            self.mask = pending.mask & self.live
            if self.mask.any():
                return pending.resume
        return None

    def _spend(self, cost: int, pc: int) -> None:
        self.budget -= cost
        self.owner.budget -= cost
        if self.budget < 0 or self.owner.budget < 0:
            raise OutOfBudget(pc, self.first_thread + int(np.argmax(self.mask)), self.block)

    def _leave(self, pc: int, block: int) -> int:
        """Execute the last instruction of a block; the block to go on with."""
        instruction = self.code[pc]
        successors = self.graph.blocks[block].successors
        if not (is_branch(instruction) or is_return(instruction)):
            self._execute(pc)
            return successors[0]
        if len(successors) == 1:
            return successors[0]
        following, target = successors
        assert instruction.guard
        wanted = self.predicate(instruction.guard.register) ^ instruction.guard.negated
        taking, staying = self.mask & wanted, self.mask & ~wanted
        if not taking.any():
            return following
        if not staying.any():
            return target
        self.owner.tally.divergent[block] += 1
        meet = self.graph.post_dominators[block]
        if meet != EXIT:
            self.stack.append(_Pending(meet, self.mask, meet))
        self.stack.append(_Pending(meet, staying, following))
        self.mask = taking
        return target

    # -- instructions ----------------------------------------------------------------------------

    def _active(self, ins: Instruction) -> Lanes:
        """The running lanes that an instruction's own predicate lets through."""
        return self.mask & (self.predicate(ins.guard.register) ^ ins.guard.negated) if ins.guard else self.mask

    def _execute(self, pc: int) -> None:
        ins = self.code[pc]
        active = self._active(ins)
        if self.owner.observer:
            self.owner.observer.executes(self, pc, ins, active)
        opcode = ins.opcode
        if opcode in ("ld", "st"):
            self.access(pc, ins, active)
        elif opcode == STORE_OPCODE:
            self.start_copy(pc, ins, active)
        elif opcode == "cp":
            self.end_copies(ins, active)
        elif opcode in ("atom", "red"):
            self.update(pc, ins, active)
        elif opcode == "activemask":
            self.write(ins.operands[0], np.full(WARP, bits(active), np.uint32), active)
        elif opcode in WARP_FUNCTIONS:
            self._meet(pc, ins, active)
        elif is_warp_barrier(ins):
            self._sync(pc, ins, active)
        elif opcode == RESULT:
            self._barrier_result(ins, active)
        elif opcode == "mov" and isinstance(ins.operands[1], Register) and ins.operands[1].name in CLOCKS:
            self._read_clock(pc, ins, active)
        elif opcode in STOPS:
            self._stop(pc, ins, active)
        elif opcode == "printf":
            self._print(ins, active)
        elif opcode == "isspacep":
            self._is_space(ins, active)
        elif opcode in TAKE_CARRY or ins.has("cc"):
            self._carry(ins, active)
        elif opcode == "mov":
            self._move(ins, active)
        elif opcode == "cvta":
            change = np.uint64(window_change(ins) & (2**64 - 1))
            self.write(ins.operands[0], self.read(ins.operands[1], TYPES["u64"]) + change, active)
        elif opcode == "setp" or (opcode == "set" and not ins.type.is_half):
            self._set(ins, active)
        elif opcode in ("selp", "slct"):
            self._select(ins, active)
        elif opcode in ("and", "or", "xor", "not") and ins.type.kind == "p":
            self._logic(ins, active)
        elif destinations(ins):
            self._arithmetic(ins, active)

    def _logic(self, ins: Instruction, active: Lanes) -> None:
        a, *rest = (self.read(o, ins.type) for o in ins.operands[1:])
        result = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
        self.write(ins.operands[0], result[ins.opcode](a, *rest) if rest else ~a, active)

    def _move(self, ins: Instruction, active: Lanes) -> None:
        to, source = ins.operands
        kind = ins.type
        if isinstance(source, Vector):  # pack
            part = bits_type(kind.bits // len(source.parts))
            packed = np.zeros(WARP, np.uint64)
            for i, operand in enumerate(source.parts):
                packed |= self.read(operand, part).astype(np.uint64) << np.uint64(i * part.bits)
            self.write(to, packed, active)
        elif isinstance(to, Vector):  # unpack
            part = bits_type(kind.bits // len(to.parts))
            whole = self.read(source, bits_type(kind.bits)).astype(np.uint64)
            for i, operand in enumerate(to.parts):
                self.write(operand, (whole >> np.uint64(i * part.bits)).astype(part.dtype), active)
        else:
            self.write(to, self.read(source, kind), active)

    def _set(self, ins: Instruction, active: Lanes) -> None:
        """setp.cmp[.boolop].type p[|q], a, b[, c] and set.cmp[.boolop].dtype.stype d, a, b[, c]."""
        to, a, b, *rest = ins.operands
        kind = ins.type
        name = next(m for m in ins.modifiers if m not in ("ftz",))
        x, y = (self._flushed(ins, self.read(o, kind)) for o in (a, b))
        if kind.is_pair:
            pairs = zip(numpy_half.halves(x), numpy_half.halves(y))
            result, other = (compare(name, a, b, kind.element) for a, b in pairs)
        else:
            result = compare(name, x, y, kind)
            other = ~result
        if rest:
            c = self.read(rest[0], TYPES["pred"])
            combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
            operator = combine[next(m for m in ins.modifiers if m in combine)]
            result, other = operator(result, c), operator(other, c)
        if ins.opcode == "set":
            target = ins.types[0]
            value = np.where(result, 1.0, 0.0).astype(np.float32) if target.is_float else np.where(result, -1, 0)
            self.write(to, value if target.is_float else value.astype(f"i{target.size}"), active)
        elif isinstance(to, PredicatePair):
            self.write(to.first, result, active)
            self.write(to.second, other, active)
        else:
            self.write(to, result, active)

    def _flushed(self, ins: Instruction, x: Lanes) -> Lanes:
        return flush(x) if ins.has("ftz") else x

    def _select(self, ins: Instruction, active: Lanes) -> None:
        to, a, b, c = ins.operands
        if ins.opcode == "selp":
            choose, kind = self.read(c, TYPES["pred"]), ins.type
        else:
            choose, kind = self._flushed(ins, self.read(c, ins.types[-1])) >= 0, ins.types[0]
        self.write(to, np.where(choose, self.read(a, kind), self.read(b, kind)), active)

    def _arithmetic(self, ins: Instruction, active: Lanes) -> None:
        kinds = source_types(ins)
        values = [self.read(o, k) for o, k in zip(ins.operands[1:], kinds)]
        self.write(ins.operands[0], evaluate(ins, values), active)

    def _carry(self, ins: Instruction, active: Lanes) -> None:
        """A link of a chain of additions or subtractions."""
        u32 = TYPES["u32"]
        values = [self.read(o, ins.type) for o in ins.operands[1:]]
        before = self.read_register(CARRY, u32) if ins.opcode in TAKE_CARRY else np.zeros(WARP, np.uint32)
        result, carry = carry_chain(ins, values, before)
        self.write(ins.operands[0], result, active)
        if ins.has("cc"):
            self.write(Register(CARRY), carry, active)

    def _is_space(self, ins: Instruction, active: Lanes) -> None:
        to, place = ins.operands
        numbers = np.array([split(int(a))[0] for a in self.read(place, TYPES["u64"])])
        shared, local = numbers == SHARED_WINDOW, numbers == LOCAL_WINDOW
        self.write(to, shared if ins.has("shared") else local if ins.has("local") else ~(shared | local), active)

    def _read_clock(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """The engine's clock is the work done: what the warp has spent of its budget."""
        source = ins.operands[1]
        assert isinstance(source, Register)
        block = next(b for b in self.graph.blocks if b.start <= pc < b.end)
        spent = self.launch.warp_budget - self.budget - self.launch.entry.work[block.index].price + pc - block.start
        time = spent >> 32 if source.name.endswith("_hi") else spent
        self.write(ins.operands[0], np.full(WARP, time, np.int64).astype(ins.type.dtype), active)

    def _stop(self, pc: int, ins: Instruction, active: Lanes) -> None:
        text = int(self.read(ins.operands[0], TYPES["u64"])[np.argmax(active)]) if ins.operands else 0
        for lane in np.flatnonzero(active):
            self.owner.record(pc, STOPPED, 0, self.first_thread + int(lane), self.block, text, NOBODY)

    def _print(self, ins: Instruction, active: Lanes) -> None:
        to, *arguments = ins.operands
        form, rest = (self.read(a, TYPES["u64"]) for a in arguments)
        counts = np.zeros(WARP, np.int32)
        for lane in np.flatnonzero(active):

            def memory(address: int, size: int, local: np.ndarray = self.local[lane]) -> bytes:
                number, offset = split(address)
                if number != LOCAL_WINDOW:
                    return self.launch.bytes_at(address, size)
                return local[offset : offset + size].tobytes() if offset >= 0 else b""

            counts[lane] = self.launch.output.call(memory, int(form[lane]), int(rest[lane]))
        self.write(to, counts, active)

    def _meet(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """A shuffle, vote, match, reduction or election among the lanes that name each other."""
        to, *operands = ins.operands
        u32 = TYPES["u32"]
        kinds = [ins.types[-1] if ins.types else u32, *[u32] * 3]
        if ins.opcode == "vote":
            kinds[0] = TYPES["pred"]
        elif ins.opcode == "elect":
            operands.insert(0, Immediate(0))
        sources = [self.read(o, k) for o, k in zip(operands, kinds)]
        values, predicate, silent = numpy_meeting.evaluate(ins, sources, active)
        for c in (*numpy_meeting.complaints(sources[-1], active, self.live), *silent):
            self.owner.record(pc, c.code, 0, self.first_thread + c.lane, self.block, c.members, c.other)
        if isinstance(to, PredicatePair):
            self.write(to.first, values, active)
            self.write(to.second, predicate, active)
        else:
            self.write(to, predicate if ins.types[-1].kind == "p" else values, active)

    def _sync(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """__syncwarp: what the lanes did before is ordered before what they do after."""
        members = self.read(ins.operands[0], TYPES["u32"])
        for c in numpy_meeting.complaints(members, active, self.live):
            self.owner.record(pc, c.code, 0, self.first_thread + c.lane, self.block, c.members, c.other)
        for lane in np.flatnonzero(active):
            together = int(members[lane]) & bits(active)
            self.synced[lane] = Sync(self.owner.now(), 2**32 - 1 if together == bits(self.live) else together)

    def _barrier_result(self, ins: Instruction, active: Lanes) -> None:
        votes, voters = self.owner.votes, self.owner.voters
        if ins.has("popc"):
            self.write(ins.operands[0], np.full(WARP, votes, np.uint32), active)
        else:
            self.write(ins.operands[0], np.full(WARP, votes == voters if ins.has("and") else votes > 0), active)
