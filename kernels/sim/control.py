"""Control flow of a warp in compiled code.

`mask` holds the running lanes, `live` those that have not ended. Where the lanes of a branch part, a stack takes
(meeting block, lanes, block to resume at): first all lanes, for the meeting block, then those that wait. Arriving
at a meeting block, or ending, pops it.

A barrier ends the function: it returns the block to go on with, and what the warp must keep lies in its frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .cfg import EXIT, Block, ends_in_barrier
from .context import BLOCK_FIELDS, FINISHED, NO_SITE, BlockField, Slot, Stop, WarpField, get, put
from .driver import warp_record
from .faults import LEFT, PARTED
from .frame import WarpMemory
from .ir import FunctionBuilder, Value, integer
from .program import Entry
from .uniformity import Uniformity

#: Each split takes at most two entries, and 32 lanes can split at most 31 times.
STACK_ENTRIES = 64


class Control:
    """Writes what stands between the instructions: entering and leaving blocks, the warp's begin and end."""

    def __init__(self, f: FunctionBuilder, memory: WarpMemory, entry: Entry, uniformity: Uniformity):
        self.f = f
        self.memory = memory
        self.context = f.arguments["context"]
        self.entry = entry
        self.graph = entry.graph
        self.uniformity = uniformity
        self.meets = {self.graph.post_dominators[b] for b in uniformity.divergent_branches} - {EXIT}
        self.mask_slot, self.live_slot = memory.reserve(4, 4), memory.reserve(4, 4)
        self.depth_slot, self.left_slot = memory.reserve(8, 8), memory.reserve(8, 8)
        self.stack = memory.reserve(16 * STACK_ENTRIES, 16)
        self.budget_slot = f.alloca("i64")

    @contextmanager
    def begin(self) -> Iterator[None]:
        """The start of the function; inside, the code for a warp that is new: then all lanes that exist run."""
        f = self.f
        self.counters = get(f, self.context, Slot.BLOCKS, "ptr")
        fresh = f.icmp("eq", f.arguments["from_block"], 0)
        with f.when(fresh):
            initial = self._initial_lanes()
            self._keep(initial, self.mask_slot)
            self._keep(initial, self.live_slot)
            self._keep(integer(0, "i64"), self.depth_slot)
            self._keep(f.sub(get(f, self.context, Slot.WARP_BUDGET), self.entry.warp_price), self.left_slot)
            launch_left = get(f, self.context, Slot.LAUNCH_BUDGET)
            put(f, self.context, Slot.LAUNCH_BUDGET, f.sub(launch_left, self.entry.warp_price))
            yield
        self.granted = f.intrinsic("smin", self._kept("i64", self.left_slot), get(f, self.context, Slot.LAUNCH_BUDGET))
        f.store(self.granted, self.budget_slot)

    def start(self) -> None:
        """After `begin`, and all that a warp does once: go to the block to go on with."""
        f = self.f
        after = {s for b in self.graph.blocks if ends_in_barrier(self.graph, b) for s in b.successors}
        cases = " ".join(f"i64 {s}, label %b{s}" for s in sorted(after - {EXIT}))
        beyond = f" i64 {len(self.graph.blocks)}, label %finish" if EXIT in after else ""
        f.emit(
            f"switch {f.arguments['from_block']}, label %{'b0' if self.graph.blocks else 'finish'} [{cases}{beyond}]"
        )
        f.terminated = True

    def end(self) -> None:
        """The end of the function, after all blocks."""
        f = self.f
        if self.uniformity.divergent_branches:
            self._resume()
        f.place("finish")
        self._settle()
        f.ret(integer(FINISHED, "i64"))

    def _keep(self, value: Value, place: int) -> None:
        self.f.store(value, self.memory.frame, place)

    def _kept(self, type_name: str, place: int) -> Value:
        return self.f.load(type_name, self.memory.frame, place)

    def _initial_lanes(self) -> Value:
        f = self.f
        warp = get(f, self.context, Slot.WARP)
        return f.load("i32", get(f, self.context, Slot.MASKS, "ptr"), f.mul(warp, 4))

    def _settle(self) -> None:
        """Take what was spent since `begin` from the warp's and the launch's budget."""
        f = self.f
        spent = f.sub(self.granted, f.load("i64", self.budget_slot))
        self._keep(f.sub(self._kept("i64", self.left_slot), spent), self.left_slot)
        put(f, self.context, Slot.LAUNCH_BUDGET, f.sub(get(f, self.context, Slot.LAUNCH_BUDGET), spent))

    def wait(self, block: Block, site: int, arriving: Value, vote: Value) -> None:
        """The end of a block at a barrier: wait there unless no lane arrives.

        arriving   the lanes that execute the barrier; a warp waits as a whole, so lanes that are missing are a fault
        vote       the lanes whose predicate holds
        """
        f = self.f
        wait, go_on = f.label("wait"), f.label("go_on")
        following = block.successors[0]
        f.branch(f.icmp("eq", arriving, 0), go_on, wait)
        f.place(go_on)
        self._go(following)
        f.place(wait)
        initial = self._initial_lanes()
        with f.when(f.icmp("ne", arriving, initial), unlikely=True):
            self._report_missing(site, arriving, initial)
        record = warp_record(f, self.context, get(f, self.context, Slot.WARP))
        f.store(integer(site, "i64"), record, 8 * WarpField.SITE)
        f.store(f.cast("zext", f.and_(vote, arriving), "i64"), record, 8 * WarpField.VOTE)
        self._settle()
        f.ret(integer(len(self.graph.blocks) if following == EXIT else following, "i64"))

    def _report_missing(self, site: int, arriving: Value, initial: Value) -> None:
        """Some lanes of the warp do not execute a barrier: they are on another path, or have ended."""
        f = self.f
        elsewhere = f.and_(self.live(), f.not_(arriving))
        parted = f.icmp("ne", elsewhere, 0)
        missing = f.select(parted, elsewhere, f.and_(initial, f.not_(arriving)))
        who = f.add(get(f, self.context, Slot.GLOBAL_THREAD, "i32"), f.lowest_bit(missing))
        code = f.select(parted, integer(PARTED), integer(LEFT))
        lane, nothing = f.lowest_bit(arriving), integer(0, "i64")
        arguments = [self.context, integer(site), code, nothing, lane, nothing, who, integer(NO_SITE)]
        f.call("void", "record", arguments)

    def enter(self, block: Block) -> Value:
        """The start of a block: its label, its account, the lanes that run."""
        f = self.f
        f.emit(f"b{block.index}:")
        f.terminated = False
        if block.index in self.meets:
            self._pop_if_met(block.index)
        self.mask = self._kept("i32", self.mask_slot)
        self._account(block, self.mask)
        return self.mask

    def clock(self, block: Block, pc: int) -> Value:
        """What the warp has spent of its budget when it comes to an instruction: it grows with every one."""
        f = self.f
        before = f.sub(get(f, self.context, Slot.WARP_BUDGET), self._kept("i64", self.left_slot))
        spent = f.add(before, f.sub(self.granted, f.load("i64", self.budget_slot)))
        return f.add(spent, pc - block.start - self.entry.work[block.index].price)

    def live(self) -> Value:
        """The lanes that have not ended."""
        return self._kept("i32", self.live_slot)

    def leave(self, block: Block, wanted: Value | None) -> None:
        """The end of a block; `wanted`: the lanes that ask for the branch, None if there is none to ask for."""
        if wanted is None:
            self._go(block.successors[0])
        else:
            self._part(block, wanted)

    def _account(self, block: Block, mask: Value) -> None:
        """Count the block's execution and pay for its instructions."""
        f = self.f
        at = 8 * BLOCK_FIELDS * block.index
        f.increment(self.counters, at + 8 * BlockField.EXECUTIONS, 1)
        lanes = f.cast("zext", f.popcount(mask), "i64")
        f.increment(self.counters, at + 8 * BlockField.LANES, lanes)
        left = f.sub(f.load("i64", self.budget_slot), self.entry.work[block.index].price)
        f.store(left, self.budget_slot)
        stop, proceed = f.label("stop"), f.label("proceed")
        f.branch(f.icmp("slt", left, 0), stop, proceed, unlikely=True)
        f.place(stop)
        put(f, self.context, Slot.STOPPED, integer(Stop.BUDGET, "i64"))
        put(f, self.context, Slot.STOPPED_AT, integer(block.start, "i64"))
        put(f, self.context, Slot.STOPPED_LANES, f.cast("zext", mask, "i64"))
        f.jump("finish")
        f.place(proceed)

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
        self._keep(f.and_(self.live(), f.not_(mask)), self.live_slot)

    def _edge(self, target: int) -> str:
        """A label that leads to a successor; leaving the kernel needs code of its own."""
        if target != EXIT:
            return f"b{target}"
        label = self.f.label("leave")
        self.pending_exits.append(label)
        return label

    def _part(self, block: Block, wanted: Value) -> None:
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
        self._keep(taking, self.mask_slot)
        if block.successors[1] == EXIT:
            # Only the lanes that take the branch end here.
            self._end_lanes(taking)
            f.jump("resume")
        else:
            f.jump(target)

    def _push(self, meet: int, lanes: Value, resume: int) -> None:
        f = self.f
        depth = self._kept("i64", self.depth_slot)
        entry = self._entry(depth)
        f.store(integer(meet), entry)
        f.store(lanes, entry, 4)
        f.store(integer(resume), entry, 8)
        self._keep(f.add(depth, 1), self.depth_slot)

    def _entry(self, depth: Value) -> Value:
        """Pointer to an entry of the stack."""
        return self.f.at(self.f.at(self.memory.frame, self.stack), self.f.mul(depth, 16))

    def _pop_if_met(self, index: int) -> None:
        """At a meeting block: if lanes wait for it, resume them."""
        f = self.f
        look, enter = f.label("look"), f.label("enter")
        depth = self._kept("i64", self.depth_slot)
        f.branch(f.icmp("eq", depth, 0), enter, look)
        f.place(look)
        top = self._entry(f.sub(depth, 1))
        f.branch(f.icmp("eq", f.load("i32", top), index), "resume", enter)
        f.place(enter)

    def _resume(self) -> None:
        """Pop the stack until lanes are found that still live; end the warp when it is empty."""
        f = self.f
        f.place("resume")
        pop = f.label("pop")
        depth = self._kept("i64", self.depth_slot)
        f.branch(f.icmp("eq", depth, 0), "finish", pop)
        f.place(pop)
        depth = f.sub(depth, 1)
        self._keep(depth, self.depth_slot)
        entry = self._entry(depth)
        lanes = f.and_(f.load("i32", entry, 4), self.live())
        self._keep(lanes, self.mask_slot)
        go = f.label("go")
        f.branch(f.icmp("eq", lanes, 0), "resume", go)
        f.place(go)
        target = f.load("i32", entry, 8)
        cases = " ".join(f"i32 {b.index}, label %b{b.index}" for b in self.graph.blocks)
        f.emit(f"switch {target}, label %finish [{cases}]")
        f.terminated = True
