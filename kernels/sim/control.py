"""Control flow of a warp in compiled code.

`mask` holds the running lanes, `live` those that have not ended. Where the lanes of a branch part, a stack takes
(meeting block, lanes, block to resume at): first all lanes, for the meeting block, then those that wait. Arriving
at a meeting block, or ending, pops it.
"""

from __future__ import annotations

from .cfg import EXIT, Block
from .context import BLOCK_FIELDS, BlockField, Slot, get, put
from .ir import FunctionBuilder, Value, integer
from .program import Entry
from .uniformity import Uniformity

#: Each split takes at most two entries, and 32 lanes can split at most 31 times.
STACK_ENTRIES = 64


class Control:
    """Writes what stands between the instructions: entering and leaving blocks, the warp's begin and end."""

    def __init__(self, f: FunctionBuilder, entry: Entry, uniformity: Uniformity):
        self.f = f
        self.context = f.arguments["context"]
        self.entry = entry
        self.graph = entry.graph
        self.uniformity = uniformity
        self.meets = {self.graph.post_dominators[b] for b in uniformity.divergent_branches} - {EXIT}
        self.mask_slot = f.alloca("i32", align=4)
        self.live_slot = f.alloca("i32", align=4)
        self.depth_slot = f.alloca("i64")
        self.budget_slot = f.alloca("i64")
        self.stack = f.alloca("i32", 4 * STACK_ENTRIES, 16)

    def begin(self) -> None:
        """The start of the function: all lanes that exist run."""
        f = self.f
        warp = get(f, self.context, Slot.WARP)
        initial = f.load("i32", get(f, self.context, Slot.MASKS, "ptr"), f.mul(warp, 4))
        f.store(initial, self.mask_slot)
        f.store(initial, self.live_slot)
        f.store(integer(0, "i64"), self.depth_slot)
        limit = f.intrinsic("smin", get(f, self.context, Slot.WARP_BUDGET), get(f, self.context, Slot.LAUNCH_BUDGET))
        f.store(f.sub(limit, self.entry.warp_price), self.budget_slot)
        self.limit = limit
        self.counters = get(f, self.context, Slot.BLOCKS, "ptr")

    def end(self) -> None:
        """The end of the function, after all blocks."""
        f = self.f
        if self.uniformity.divergent_branches:
            self._resume()
        f.place("finish")
        spent = f.sub(self.limit, f.load("i64", self.budget_slot))
        put(f, self.context, Slot.LAUNCH_BUDGET, f.sub(get(f, self.context, Slot.LAUNCH_BUDGET), spent))
        f.ret()

    def enter(self, block: Block) -> Value:
        """The start of a block: its label, its account, the lanes that run."""
        f = self.f
        f.emit(f"b{block.index}:")
        f.terminated = False
        if block.index in self.meets:
            self._pop_if_met(block.index)
        self.mask = f.load("i32", self.mask_slot)
        self._account(block, self.mask)
        return self.mask

    def clock(self, block: Block, pc: int) -> Value:
        """What the warp has spent of its budget when it comes to an instruction: it grows with every one."""
        f = self.f
        spent = f.sub(self.limit, f.load("i64", self.budget_slot))
        return f.add(spent, pc - block.start - self.entry.work[block.index].price)

    def live(self) -> Value:
        """The lanes that have not ended."""
        return self.f.load("i32", self.live_slot)

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
        put(f, self.context, Slot.STOPPED, integer(1, "i64"))
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
        f.store(f.and_(f.load("i32", self.live_slot), f.not_(mask)), self.live_slot)

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
