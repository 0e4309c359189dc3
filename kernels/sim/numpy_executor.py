"""The plain executor: one warp after the other, one instruction after the other, in NumPy.

It is the oracle of the compiled executor and states the engine's meaning:

- Blocks run in order of their linear index. Warps run in order within a block, each to its end or to a barrier; when
  all that are left wait, they go on in the same order.
- At a conditional branch whose lanes disagree, those that take it go first; the others follow; both meet
  again at the immediate post-dominator of the branch.
- An access of a faulting lane does not happen: a load gives 0. Execution goes on.
- Registers that were never written hold 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..result import Counters, Fault
from . import counters, faults, numpy_half, numpy_warp
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, split, window, window_change
from .async_copies import MOST_COPIES, STORE_OPCODE, waits
from .barriers import RESULT, is_barrier, is_warp_barrier, vote_of
from .cfg import CARRY, EXIT, TAKE_CARRY, destinations, is_branch, is_return
from .counters import SECTOR, AccessTally, Tally
from .faults import (
    APART,
    LEFT,
    MISALIGNED,
    NOBODY,
    OUT_OF_BOUNDS,
    PARTED,
    PENDING,
    READ_WRITE,
    STOPPED,
    UNINITIALISED,
    UPDATED,
    WRITE_WRITE,
    Event,
)
from .isa import CLOCKS, STOPS, WARP_FUNCTIONS, source_types
from .launch import WARP, Launch
from .numpy_alu import carry_chain, compare, evaluate, flush, update
from .numpy_memory import Mark, Memory, Sync
from .observer import Observer
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
)
from .types import TYPES, ScalarType, bits_type

Lanes = np.ndarray
LANE = np.arange(WARP)


def run(launch: Launch, observer: Observer | None = None) -> tuple[list[Fault], Counters]:
    """Execute a launch; an observer sees every instruction, and may ask for one block alone."""
    with np.errstate(all="ignore"):
        return _Executor(launch, observer).run()


class _OutOfBudget(Exception):
    def __init__(self, pc: int, thread: int, block: int):
        self.pc, self.thread, self.block = pc, thread, block


class Wait(NamedTuple):
    """A warp at a barrier: where, and how many of its lanes vote yes."""

    pc: int
    votes: int


@dataclass
class _Copy:
    """An asynchronous copy under way: its instruction, and for each lane whether, in which group, whereto and what."""

    pc: int
    lanes: Lanes
    groups: np.ndarray
    addresses: list[int]
    data: np.ndarray


@dataclass
class _Pending:
    """Lanes that wait: they resume at `resume` when the running lanes arrive at `meet` or end."""

    meet: int
    mask: Lanes
    resume: int


class _Executor:
    def __init__(self, launch: Launch, observer: Observer | None):
        self.launch = launch
        self.observer = observer
        self.graph = launch.entry.graph
        self.code = launch.entry.function.code
        count = len(self.graph.blocks)
        self.tally = Tally([0] * count, [0] * count, [0] * count)
        self.events: dict[tuple[int, int, int], Event] = {}
        self.order = 0
        self.time = 0
        self.memory = {n: Memory(b.data, b.initialised) for n, b in enumerate(launch.arrays) if n}
        self.budget = launch.launch_budget

    def run(self) -> tuple[list[Fault], Counters]:
        found: list[Fault] = []
        try:
            for block in self._blocks():
                before = self.budget
                self._run_block(block)
                self.tally.longest_block = max(self.tally.longest_block, before - self.budget)
        except _OutOfBudget as stop:
            executions = self.tally.executions
            found.append(faults.budget_fault(self.launch, stop.pc, stop.thread, stop.block, executions))
        if not self.launch.checks:
            return [], Counters()
        found = faults.explain(self.launch, list(self.events.values())) + found
        self.tally.work = self.launch.launch_budget - self.budget
        return found, counters.report(self.launch, self.tally)

    def _blocks(self) -> Iterable[int]:
        only = self.observer.only_block if self.observer else None
        every = range(self.launch.blocks)
        return every if only is None else [only] if only in every else []

    def _run_block(self, block: int) -> None:
        """Each warp runs to its end or to a barrier; when all that are left wait, they go on."""
        self.memory[SHARED_WINDOW] = Memory(np.full(self.launch.shared_bytes, 0xFF, np.uint8), False)
        self.epoch = 0
        warps = [_Warp(self, block, w) for w in range(self.launch.warps_per_block)]
        runs = [warp.run() for warp in warps]
        waiting: dict[int, Wait] = {}
        running = list(range(len(warps)))
        while running:
            for w in running:
                wait = next(runs[w], None)
                if wait is None:
                    waiting.pop(w, None)
                else:
                    waiting[w] = wait
            running = sorted(waiting)
            if running:
                self._meet(block, warps, waiting)

    def _meet(self, block: int, warps: list[_Warp], waiting: dict[int, Wait]) -> None:
        """All warps that are left wait: they should wait at the same barrier, and none should have ended."""
        first, (pc, _) = min(waiting.items())
        apart = [(w, wait.pc) for w, wait in sorted(waiting.items()) if wait.pc != pc]
        ended: list[tuple[int, int | None]] = [(w, None) for w in range(len(warps)) if w not in waiting]
        for other, other_pc in [*apart, *ended][:1]:
            who = 1 + block * self.launch.threads_per_block + other * WARP
            self.record(pc, APART, 0, first * WARP, block, 0, who, other_pc)
        self.votes = sum(wait.votes for wait in waiting.values())
        self.voters = sum(int(warps[w].initial.sum()) for w in waiting)
        self.epoch += 1

    def now(self) -> int:
        """Counts up: each call is later than the one before."""
        self.time += 1
        return self.time

    def record(
        self,
        pc: int,
        code: int,
        array: int,
        thread: int,
        block: int,
        address: int,
        other: int = NOBODY,
        other_pc: int | None = None,
    ) -> None:
        """Note a misbehaviour; only the first of its kind at an instruction and array is kept."""
        event = self.events.get((pc, code, array))
        if event:
            event.count += 1
        else:
            self.events[pc, code, array] = Event(
                pc, code, array, self.order, 1, thread, block, address, other, other_pc
            )
        self.order += 1


def _bits(lanes: Lanes) -> int:
    """A mask with bit n for lane n."""
    return sum(1 << int(lane) for lane in np.flatnonzero(lanes))


class _Warp:
    def __init__(self, owner: _Executor, block: int, warp: int):
        self.owner = owner
        self.launch = owner.launch
        self.block = block
        self.first_thread = warp * WARP
        self.initial = self.first_thread + LANE < self.launch.threads_per_block
        self.live = self.initial.copy()
        self.mask = self.live.copy()
        self.stack: list[_Pending] = []
        self.registers: dict[str, Lanes] = {}
        self.special = self._special_registers(warp)
        size = self.launch.entry.local_layout[1]
        self.local = np.zeros((WARP, size), np.uint8)
        self.local_written = np.zeros((WARP, size), bool)
        self.synced = [Sync(0, 0)] * WARP
        self.copies: list[_Copy] = []
        self.groups = np.zeros(WARP, int)

    def _special_registers(self, warp: int) -> dict[str, Lanes]:
        threads = [self.launch.thread_index(self.first_thread + lane) for lane in range(WARP)]
        block = self.launch.block_index(self.block)
        values = {
            "%laneid": LANE,
            "%warpid": np.full(WARP, warp),
            "%nwarpid": np.full(WARP, self.launch.warps_per_block),
        }
        values["WARP_SZ"] = np.full(WARP, WARP)
        values |= {"%smid": LANE * 0, "%nsmid": LANE * 0 + 1, "%gridid": LANE * 0}  # one multiprocessor does it all
        masks = {"eq": 1 << LANE, "lt": (1 << LANE) - 1, "le": (2 << LANE) - 1}
        masks |= {"gt": ~masks["le"], "ge": ~masks["lt"]}
        values |= {f"%lanemask_{name}": mask for name, mask in masks.items()}
        for i, axis in enumerate("xyz"):
            values[f"%tid.{axis}"] = np.array([t[i] for t in threads])
            values[f"%ntid.{axis}"] = np.full(WARP, self.launch.block[i])
            values[f"%ctaid.{axis}"] = np.full(WARP, block[i])
            values[f"%nctaid.{axis}"] = np.full(WARP, self.launch.grid[i])
        return {name: v.astype(np.uint32) for name, v in values.items()}

    # -- control ---------------------------------------------------------------------------------

    def run(self) -> Iterator[Wait]:
        """Execute to the end; each barrier is a stop."""
        self.budget = self.launch.warp_budget - self.launch.entry.warp_price
        self.owner.budget -= self.launch.entry.warp_price
        graph, tally = self.owner.graph, self.owner.tally
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
            last = self.owner.code[block.end - 1]
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
        votes = arriving if vote is None else arriving & self._read(vote, TYPES["pred"])
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
            raise _OutOfBudget(pc, self.first_thread + int(np.argmax(self.mask)), self.block)

    def _leave(self, pc: int, block: int) -> int:
        """Execute the last instruction of a block; the block to go on with."""
        instruction = self.owner.code[pc]
        successors = self.owner.graph.blocks[block].successors
        if not (is_branch(instruction) or is_return(instruction)):
            self._execute(pc)
            return successors[0]
        if len(successors) == 1:
            return successors[0]
        following, target = successors
        assert instruction.guard
        wanted = self._predicate(instruction.guard.register) ^ instruction.guard.negated
        taking, staying = self.mask & wanted, self.mask & ~wanted
        if not taking.any():
            return following
        if not staying.any():
            return target
        self.owner.tally.divergent[block] += 1
        meet = self.owner.graph.post_dominators[block]
        if meet != EXIT:
            self.stack.append(_Pending(meet, self.mask, meet))
        self.stack.append(_Pending(meet, staying, following))
        self.mask = taking
        return target

    # -- registers and operands ------------------------------------------------------------------

    def _predicate(self, name: str) -> Lanes:
        return self.registers.get(name, np.zeros(WARP, bool))

    def _read(self, operand: Operand, kind: ScalarType) -> Lanes:
        """An operand's lanes as a type: the low bits of a wider register."""
        if isinstance(operand, NotPredicate):
            return ~self._predicate(operand.register.name)
        if isinstance(operand, Register):
            return self._read_register(operand.name, kind)
        if isinstance(operand, Immediate):
            return np.full(WARP, operand.as_type(kind))
        if isinstance(operand, Name):
            if operand.name in self.special:
                return self.special[operand.name].astype(kind.dtype)
            address = self.launch.address_of(operand.name)
            if address is not None:
                return np.full(WARP, (address + operand.offset) & (2**kind.bits - 1), bits_type(kind.bits).dtype)
        raise KeyError(operand)

    def _read_register(self, name: str, kind: ScalarType) -> Lanes:
        if kind.kind == "p":
            return self._predicate(name)
        value: Lanes | None
        if name in self.special:
            value = self.special[name]
        else:
            declared = self.launch.entry.function.register_type(name)
            value = self.registers.get(name)
            if value is None:
                value = np.zeros(WARP, bits_type(declared.bits).dtype)
        return value.astype(bits_type(kind.bits).dtype).view(kind.dtype)

    def _write(self, operand: Operand, value: Lanes, active: Lanes) -> None:
        """Write the active lanes; a narrower value is extended by its own sign."""
        if isinstance(operand, Register) and operand.name == "_":
            return
        assert isinstance(operand, Register)
        kind = self.launch.entry.function.register_type(operand.name)
        if kind.kind == "p":
            new = value.astype(bool)
        else:
            if value.dtype.kind == "f":
                value = value.view(f"u{value.dtype.itemsize}")
            new = value.astype(bits_type(kind.bits).dtype)
        old = self.registers.get(operand.name)
        self.registers[operand.name] = np.where(active, new, np.zeros_like(new) if old is None else old)

    # -- instructions ----------------------------------------------------------------------------

    def _active(self, ins: Instruction) -> Lanes:
        """The running lanes that an instruction's own predicate lets through."""
        return self.mask & (self._predicate(ins.guard.register) ^ ins.guard.negated) if ins.guard else self.mask

    def _execute(self, pc: int) -> None:
        ins = self.owner.code[pc]
        active = self._active(ins)
        if self.owner.observer:
            self.owner.observer.executes(self, pc, ins, active)
        opcode = ins.opcode
        if opcode in ("ld", "st"):
            self._access(pc, ins, active)
        elif opcode == STORE_OPCODE:
            self._start_copy(pc, ins, active)
        elif opcode == "cp":
            self._end_copies(ins, active)
        elif opcode in ("atom", "red"):
            self._update(pc, ins, active)
        elif opcode == "activemask":
            self._write(ins.operands[0], np.full(WARP, _bits(active), np.uint32), active)
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
            self._write(ins.operands[0], self._read(ins.operands[1], TYPES["u64"]) + change, active)
        elif opcode == "setp" or (opcode == "set" and not ins.type.is_half):
            self._set(ins, active)
        elif opcode in ("selp", "slct"):
            self._select(ins, active)
        elif opcode in ("and", "or", "xor", "not") and ins.type.kind == "p":
            self._logic(ins, active)
        elif destinations(ins):
            self._arithmetic(ins, active)

    def _logic(self, ins: Instruction, active: Lanes) -> None:
        a, *rest = (self._read(o, ins.type) for o in ins.operands[1:])
        result = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
        self._write(ins.operands[0], result[ins.opcode](a, *rest) if rest else ~a, active)

    def _move(self, ins: Instruction, active: Lanes) -> None:
        to, source = ins.operands
        kind = ins.type
        if isinstance(source, Vector):  # pack
            part = bits_type(kind.bits // len(source.parts))
            packed = np.zeros(WARP, np.uint64)
            for i, operand in enumerate(source.parts):
                packed |= self._read(operand, part).astype(np.uint64) << np.uint64(i * part.bits)
            self._write(to, packed, active)
        elif isinstance(to, Vector):  # unpack
            part = bits_type(kind.bits // len(to.parts))
            whole = self._read(source, bits_type(kind.bits)).astype(np.uint64)
            for i, operand in enumerate(to.parts):
                self._write(operand, (whole >> np.uint64(i * part.bits)).astype(part.dtype), active)
        else:
            self._write(to, self._read(source, kind), active)

    def _set(self, ins: Instruction, active: Lanes) -> None:
        """setp.cmp[.boolop].type p[|q], a, b[, c] and set.cmp[.boolop].dtype.stype d, a, b[, c]."""
        to, a, b, *rest = ins.operands
        kind = ins.type
        name = next(m for m in ins.modifiers if m not in ("ftz",))
        x, y = (self._flushed(ins, self._read(o, kind)) for o in (a, b))
        if kind.is_pair:
            pairs = zip(numpy_half.halves(x), numpy_half.halves(y))
            result, other = (compare(name, a, b, kind.element) for a, b in pairs)
        else:
            result = compare(name, x, y, kind)
            other = ~result
        if rest:
            c = self._read(rest[0], TYPES["pred"])
            combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
            operator = combine[next(m for m in ins.modifiers if m in combine)]
            result, other = operator(result, c), operator(other, c)
        if ins.opcode == "set":
            target = ins.types[0]
            value = np.where(result, 1.0, 0.0).astype(np.float32) if target.is_float else np.where(result, -1, 0)
            self._write(to, value if target.is_float else value.astype(f"i{target.size}"), active)
        elif isinstance(to, PredicatePair):
            self._write(to.first, result, active)
            self._write(to.second, other, active)
        else:
            self._write(to, result, active)

    def _flushed(self, ins: Instruction, x: Lanes) -> Lanes:
        return flush(x) if ins.has("ftz") else x

    def _select(self, ins: Instruction, active: Lanes) -> None:
        to, a, b, c = ins.operands
        if ins.opcode == "selp":
            choose, kind = self._read(c, TYPES["pred"]), ins.type
        else:
            choose, kind = self._flushed(ins, self._read(c, ins.types[-1])) >= 0, ins.types[0]
        self._write(to, np.where(choose, self._read(a, kind), self._read(b, kind)), active)

    def _arithmetic(self, ins: Instruction, active: Lanes) -> None:
        kinds = source_types(ins)
        values = [self._read(o, k) for o, k in zip(ins.operands[1:], kinds)]
        self._write(ins.operands[0], evaluate(ins, values), active)

    def _carry(self, ins: Instruction, active: Lanes) -> None:
        """A link of a chain of additions or subtractions."""
        u32 = TYPES["u32"]
        values = [self._read(o, ins.type) for o in ins.operands[1:]]
        before = self._read_register(CARRY, u32) if ins.opcode in TAKE_CARRY else np.zeros(WARP, np.uint32)
        result, carry = carry_chain(ins, values, before)
        self._write(ins.operands[0], result, active)
        if ins.has("cc"):
            self._write(Register(CARRY), carry, active)

    def _is_space(self, ins: Instruction, active: Lanes) -> None:
        to, place = ins.operands
        numbers = np.array([split(int(a))[0] for a in self._read(place, TYPES["u64"])])
        shared, local = numbers == SHARED_WINDOW, numbers == LOCAL_WINDOW
        self._write(to, shared if ins.has("shared") else local if ins.has("local") else ~(shared | local), active)

    def _read_clock(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """The engine's clock is the work done: what the warp has spent of its budget."""
        source = ins.operands[1]
        assert isinstance(source, Register)
        block = next(b for b in self.owner.graph.blocks if b.start <= pc < b.end)
        spent = self.launch.warp_budget - self.budget - self.launch.entry.work[block.index].price + pc - block.start
        time = spent >> 32 if source.name.endswith("_hi") else spent
        self._write(ins.operands[0], np.full(WARP, time, np.int64).astype(ins.type.dtype), active)

    def _stop(self, pc: int, ins: Instruction, active: Lanes) -> None:
        text = int(self._read(ins.operands[0], TYPES["u64"])[np.argmax(active)]) if ins.operands else 0
        for lane in np.flatnonzero(active):
            self.owner.record(pc, STOPPED, 0, self.first_thread + int(lane), self.block, text, NOBODY)

    def _print(self, ins: Instruction, active: Lanes) -> None:
        to, *arguments = ins.operands
        form, rest = (self._read(a, TYPES["u64"]) for a in arguments)
        counts = np.zeros(WARP, np.int32)
        for lane in np.flatnonzero(active):

            def memory(address: int, size: int, local: np.ndarray = self.local[lane]) -> bytes:
                number, offset = split(address)
                if number != LOCAL_WINDOW:
                    return self.launch.bytes_at(address, size)
                return local[offset : offset + size].tobytes() if offset >= 0 else b""

            counts[lane] = self.launch.output.call(memory, int(form[lane]), int(rest[lane]))
        self._write(to, counts, active)

    def _meet(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """A shuffle, vote, match, reduction or election among the lanes that name each other."""
        to, *operands = ins.operands
        u32 = TYPES["u32"]
        kinds = [ins.types[-1] if ins.types else u32, *[u32] * 3]
        if ins.opcode == "vote":
            kinds[0] = TYPES["pred"]
        elif ins.opcode == "elect":
            operands.insert(0, Immediate(0))
        sources = [self._read(o, k) for o, k in zip(operands, kinds)]
        values, predicate, silent = numpy_warp.evaluate(ins, sources, active)
        for c in (*numpy_warp.complaints(sources[-1], active, self.live), *silent):
            self.owner.record(pc, c.code, 0, self.first_thread + c.lane, self.block, c.members, c.other)
        if isinstance(to, PredicatePair):
            self._write(to.first, values, active)
            self._write(to.second, predicate, active)
        else:
            self._write(to, predicate if ins.types[-1].kind == "p" else values, active)

    def _sync(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """__syncwarp: what the lanes did before is ordered before what they do after."""
        members = self._read(ins.operands[0], TYPES["u32"])
        for c in numpy_warp.complaints(members, active, self.live):
            self.owner.record(pc, c.code, 0, self.first_thread + c.lane, self.block, c.members, c.other)
        for lane in np.flatnonzero(active):
            together = int(members[lane]) & _bits(active)
            self.synced[lane] = Sync(self.owner.now(), 2**32 - 1 if together == _bits(self.live) else together)

    def _barrier_result(self, ins: Instruction, active: Lanes) -> None:
        votes, voters = self.owner.votes, self.owner.voters
        if ins.has("popc"):
            self._write(ins.operands[0], np.full(WARP, votes, np.uint32), active)
        else:
            self._write(ins.operands[0], np.full(WARP, votes == voters if ins.has("and") else votes > 0), active)

    # -- memory ----------------------------------------------------------------------------------

    def _access(self, pc: int, ins: Instruction, active: Lanes) -> None:
        at = 1 if ins.opcode == "ld" else 0
        address = ins.operands[at]
        value = ins.operands[1 - at]
        assert isinstance(address, Address)
        parts = value.parts if isinstance(value, Vector) else (value,)
        if ins.has("param"):
            self._load_param(ins, parts, active)
            return
        addresses = self._addresses(ins, address)
        size = ins.type.size
        data = self._data(ins, value) if ins.opcode == "st" else np.zeros((WARP, size * ins.width), np.uint8)
        self._touch(pc, ins, addresses, data, active)
        if ins.opcode == "ld":
            for i, part in enumerate(parts):
                raw = np.ascontiguousarray(data[:, i * size : (i + 1) * size])
                self._write(part, raw.view(ins.type.dtype).reshape(WARP), active)

    def _start_copy(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """What was loaded is queued until the thread waits for it."""
        if not active.any():
            return
        if len(self.copies) == MOST_COPIES:
            self._finish(self.copies[:1], np.ones(WARP, bool))
        place, value = ins.operands
        assert isinstance(place, Address)
        copy = _Copy(pc, active.copy(), self.groups.copy(), self._addresses(ins, place), self._data(ins, value))
        self.copies.append(copy)
        self.owner.memory[SHARED_WINDOW].pending.update(
            *(self._words(copy, int(lane)) for lane in np.flatnonzero(active))
        )

    def _words(self, copy: _Copy, lane: int) -> range:
        """The words that a lane's copy fills; none if they do not lie in shared memory."""
        offset, width = copy.addresses[lane] - window(SHARED_WINDOW), copy.data.shape[1]
        fits = 0 <= offset <= self.launch.shared_bytes - width
        return range(offset // 4, offset // 4 + width // 4) if fits else range(0)

    def _end_copies(self, ins: Instruction, active: Lanes) -> None:
        """commit_group, wait_group and wait_all."""
        if not waits(ins):
            self.groups[active] += 1
            return
        last = ins.operands[0] if ins.operands else Immediate(0)
        assert isinstance(last, Immediate)
        for copy in list(self.copies):
            due = ins.has("wait_all") | (copy.groups < self.groups - last.value)
            self._finish([copy], active & due)

    def _finish(self, copies: list[_Copy], lanes: Lanes) -> None:
        for copy in copies:
            ready = copy.lanes & lanes
            words = (self._words(copy, int(lane)) for lane in np.flatnonzero(ready))
            self.owner.memory[SHARED_WINDOW].pending.difference_update(*words)
            if ready.any():
                self._touch(copy.pc, self.owner.code[copy.pc], copy.addresses, copy.data, ready)
            copy.lanes = copy.lanes & ~ready
        self.copies = [copy for copy in self.copies if copy.lanes.any()]

    def _data(self, ins: Instruction, value: Operand) -> np.ndarray:
        """What each lane stores, as bytes."""
        size = ins.type.size
        data = np.zeros((WARP, size * ins.width), np.uint8)
        for i, part in enumerate(value.parts if isinstance(value, Vector) else (value,)):
            lanes = self._read(part, bits_type(ins.type.bits))
            data[:, i * size : (i + 1) * size] = lanes.reshape(WARP, 1).view(np.uint8)
        return data

    def _addresses(self, ins: Instruction, address: Address) -> list[int]:
        """The generic address of each lane."""
        start = address.offset + (window(SHARED_WINDOW) if ins.has("shared") else 0)
        if address.base is None:
            return [start] * WARP
        kind = "s" if ins.has("shared") else "u"  # a 32-bit address of shared memory may be below 0
        bits = 64
        if isinstance(address.base, Register):
            bits = self.launch.entry.function.register_type(address.base.name).bits
        base = self._read(address.base, TYPES[f"{kind}{bits}"])
        return [(int(b) + start) & (2**64 - 1) for b in base]

    read, addresses = _read, _addresses  # what an observer may ask

    def _load_param(self, ins: Instruction, parts: tuple[Operand, ...], active: Lanes) -> None:
        at = self.launch.entry.param_place(ins)
        for i, part in enumerate(parts):
            raw = self.launch.params[at + i * ins.type.size : at + (i + 1) * ins.type.size]
            self._write(part, np.full(WARP, np.frombuffer(raw, ins.type.dtype)[0]), active)

    def _touch(self, pc: int, ins: Instruction, addresses: list[int], data: np.ndarray, active: Lanes) -> None:
        """Check and perform the access of each active lane; count the warp's request."""
        total = data.shape[1]
        touched: dict[int, list[int]] = {}
        for lane in np.flatnonzero(active):
            number, offset = split(addresses[lane])
            if number == LOCAL_WINDOW:
                self._touch_local(pc, ins, addresses[lane], offset, int(lane), data[lane])
            elif self._is_inside(pc, addresses[lane], total, int(lane)):
                touched.setdefault(number, []).append(offset)
                self._touch_array(pc, ins, addresses[lane], data[lane], int(lane))
        if not ins.has("const"):  # constant memory has a cache and units of its own
            self._count(pc, ins, touched, total, _bits(active))

    def _is_inside(self, pc: int, address: int, size: int, lane: int) -> bool:
        """Whether an access lies in an array, aligned; if not, say so."""
        number, offset = split(address)
        memory = self.owner.memory.get(number)
        thread = self.first_thread + lane
        begin, end = (0, len(memory.data)) if memory else (0, 0)
        if number == SHARED_WINDOW:
            meant = self.launch.shared_arrays(pc)
            begin, end = min((a.begin for a in meant), default=0), max((a.end for a in meant), default=0)
        if memory is None or offset < begin or offset + size > end:
            self.owner.record(pc, OUT_OF_BOUNDS, number if memory else 0, thread, self.block, address)
            return False
        if offset % size:
            self.owner.record(pc, MISALIGNED, number, thread, self.block, address)
            return False
        return True

    def _mark(self, pc: int, lane: int) -> Mark:
        """Who does something now, where in the program, and what is known to have been before."""
        thread = self.block * self.launch.threads_per_block + self.first_thread + lane
        own = (self.block, self.first_thread // WARP, lane)
        return Mark(thread, *own, self.owner.epoch, self.owner.now(), pc, self.synced[lane])

    def _record_race(self, code: int, me: Mark, address: int, other: Mark | None) -> None:
        if other is not None:
            thread = self.first_thread + me.lane
            number = split(address)[0]
            self.owner.record(me.pc, code, number, thread, self.block, address, 1 + other.thread, other.pc)

    def _touch_array(self, pc: int, ins: Instruction, address: int, data: np.ndarray, lane: int) -> None:
        number, offset = split(address)
        memory = self.owner.memory[number]
        span = range(offset, offset + len(data))
        place = memory.data[offset : offset + len(data)]
        me = self._mark(pc, lane)
        if memory.is_pending(span):
            self.owner.record(pc, PENDING, number, self.first_thread + lane, self.block, address)
        if ins.opcode == "ld":
            if not memory.written[offset : offset + len(data)].all():
                self.owner.record(pc, UNINITIALISED, number, self.first_thread + lane, self.block, address)
            self._record_race(READ_WRITE, me, address, memory.racing_writer(span, me))
            if pc not in self.launch.entry.guesses:
                self._record_race(UPDATED, me, address, memory.racing(memory.updaters, span, me))
                memory.note(memory.readers, span, me)
            data[:] = place
            return
        if (data != place).any():
            self._record_race(WRITE_WRITE, me, address, memory.racing_writer(span, me))
            self._record_race(READ_WRITE, me, address, memory.racing(memory.readers, span, me))
            self._record_race(UPDATED, me, address, memory.racing(memory.updaters, span, me))
        memory.note_writer(span, me)
        place[:] = data

    def _update(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """An atomic update: the lanes take turns."""
        to = ins.operands[0] if ins.opcode == "atom" else None
        place, *operands = ins.operands[to is not None :]
        assert isinstance(place, Address)
        addresses = self._addresses(ins, place)
        values = [self._read(o, ins.type) for o in operands]
        old = np.zeros(WARP, ins.type.dtype)
        size = ins.type.size
        touched: dict[int, list[int]] = {}
        for lane in np.flatnonzero(active):
            number, offset = split(addresses[lane])
            if self._reach(pc, ins, addresses[lane], int(lane)):
                touched.setdefault(number, []).append(offset)
                memory = self.owner.memory[number].data[offset : offset + size]
                old[lane] = memory.view(ins.type.dtype)[0]
                new = update(ins, number == SHARED_WINDOW, old[lane], *(v[lane] for v in values))
                memory[:] = np.array([new], ins.type.dtype).view(np.uint8)
        self._count(pc, ins, touched, size, _bits(active))
        if to is not None:
            self._write(to, old, active)

    def _reach(self, pc: int, ins: Instruction, address: int, lane: int) -> bool:
        """Check an atomic update of one lane: it races with loads and stores of others, not with their updates."""
        if not self._is_inside(pc, address, ins.type.size, lane):
            return False
        number, offset = split(address)
        memory = self.owner.memory[number]
        span = range(offset, offset + ins.type.size)
        me = self._mark(pc, lane)
        if memory.is_pending(span):
            self.owner.record(pc, PENDING, number, self.first_thread + lane, self.block, address)
        written = memory.written[span.start : span.stop]
        reads = not ins.has("exch") or self.launch.entry.uses_result(ins)
        if reads and not written.all():
            self.owner.record(pc, UNINITIALISED, number, self.first_thread + lane, self.block, address)
        written[:] = True
        self._record_race(READ_WRITE, me, address, memory.racing(memory.readers, span, me))
        self._record_race(WRITE_WRITE, me, address, memory.racing_writer(span, me))
        memory.note(memory.updaters, span, me)
        return True

    def _touch_local(self, pc: int, ins: Instruction, address: int, offset: int, lane: int, data: np.ndarray) -> None:
        thread = self.first_thread + lane
        size = self.local.shape[1]
        if offset < 0 or offset + len(data) > size:
            self.owner.record(pc, OUT_OF_BOUNDS, LOCAL_WINDOW, thread, self.block, address)
            return
        if offset % len(data):
            self.owner.record(pc, MISALIGNED, LOCAL_WINDOW, thread, self.block, address)
            return
        span = slice(offset, offset + len(data))
        if ins.opcode == "st":
            self.local[lane, span] = data
            self.local_written[lane, span] = True
            return
        if not self.local_written[lane, span].all():
            self.owner.record(pc, UNINITIALISED, LOCAL_WINDOW, thread, self.block, address)
        data[:] = self.local[lane, span]

    def _count(self, pc: int, ins: Instruction, touched: dict[int, list[int]], total: int, lanes: int) -> None:
        """One request; it belongs to the array of its first lane, the traffic to each array that it touches."""
        for i, (number, offsets) in enumerate(touched.items()):
            tally = self.owner.tally.accesses.setdefault((pc, number), AccessTally())
            tally.requests += i == 0
            tally.threads += len(offsets)
            if number == SHARED_WINDOW:
                self._count_banks(tally, ins, offsets, total, lanes)
                continue
            distinct = len(set(offsets)) * total
            tally.sectors += sum(self._turns(pc, offsets).values())
            tally.sectors_ideal += -(-distinct // SECTOR)
            tally.bytes_needed += distinct

    def _turns(self, pc: int, offsets: list[int]) -> dict[int, int]:
        """How often each sector is moved: once, but anew for each turn of lanes that update one address."""
        turns: dict[int, int] = {}
        scattered = pc in self.launch.entry.scattered_updates
        for offset, lanes in Counter(offsets).items():
            sector = offset // SECTOR
            turns[sector] = max(turns.get(sector, 1), lanes if scattered else 1)
        return turns

    def _count_banks(self, tally: AccessTally, ins: Instruction, offsets: list[int], total: int, lanes: int) -> None:
        """Wavefronts, turn by turn: the most words that any bank has to give."""
        at = dict(zip([lane for lane in range(WARP) if lanes >> lane & 1], offsets))
        per_turn = min(WARP, 128 // total)
        pairs = [(at[lane], at[lane + 1]) for lane in range(0, WARP, 2) if lane in at and lane + 1 in at]
        if total > 4 and ins.opcode == "ld" and all(a == b for a, b in pairs):
            per_turn *= 2
        every: set[int] = set()
        for turn in range(WARP // per_turn):
            here = [at[lane] for lane in range(turn * per_turn, (turn + 1) * per_turn) if lane in at]
            words = {(o + part) // 4 for o in here for part in range(0, total, 4)}
            every |= words
            tally.sectors += max(Counter(w % 32 for w in words).values(), default=0)
        tally.sectors_ideal += -(-len(every) // 32)
        tally.bytes_needed += 4 * len(every)
