"""The loop over blocks and warps: each warp runs to its end or to a barrier, where it waits for the others."""

from __future__ import annotations

from . import async_copies
from .access import array_record, exists, field_of, fill_bytes, shared_row, widen
from .context import FINISHED, NO_SITE, WARP_FIELDS, ArrayField, Slot, Stop, WarpField, get, put
from .faults import APART
from .ir import LANES, FunctionBuilder, Value, integer
from .tags import LANE_BITS

#: Shared memory is filled with this byte before a block begins: floats are NaN, integers -1.
UNDEFINED = 0xFF


def drive() -> FunctionBuilder:
    """Run every warp of blocks BLOCK to BLOCK_END, in order, until something stops the run."""
    return _Driver().function()


def warp_record(f: FunctionBuilder, context: Value, warp: Value) -> Value:
    """Pointer to the WarpField record of a warp."""
    return f.at(get(f, context, Slot.WARP_RECORDS, "ptr"), f.mul(warp, 8 * WARP_FIELDS))


def new_clock(f: FunctionBuilder, context: Value) -> tuple[Value, Value]:
    """The tag that begins the next epoch, and whether there are tags left for it."""
    bits = get(f, context, Slot.FIELD_BITS)
    clock = f.add(get(f, context, Slot.LAST_CLOCK), 1)
    fits = f.icmp("ult", clock, f.binary("lshr", integer((1 << 32) - 1, "i64"), bits))
    put(f, context, Slot.LAST_CLOCK, clock)
    return f.binary("shl", clock, bits), fits


class _Driver:
    def __init__(self) -> None:
        self.f = FunctionBuilder("drive", "void", [("ptr", "context"), ("ptr", "warp")])
        self.context, self.code = self.f.arguments.values()

    def function(self) -> FunctionBuilder:
        f, context = self.f, self.context
        blocks, body, rounds, between, next_block, done = (
            f.label(stem) for stem in ("blocks", "block", "rounds", "between", "next_block", "done")
        )
        self.done = done
        f.place(blocks)
        block = get(f, context, Slot.BLOCK)
        f.branch(f.icmp("ult", block, get(f, context, Slot.BLOCK_END)), body, done)
        f.place(body)
        self._begin_block(block)
        f.place(rounds)
        waiting = self._run_warps(block)
        f.branch(f.icmp("eq", waiting, 0), next_block, between)
        f.place(between)
        f.call("void", "meet", [context])
        self._begin_epoch()
        f.jump(rounds)
        f.place(next_block)
        spent = f.sub(get(f, context, Slot.BLOCK_BUDGET), get(f, context, Slot.LAUNCH_BUDGET))
        put(f, context, Slot.LONGEST_BLOCK, f.intrinsic("smax", get(f, context, Slot.LONGEST_BLOCK), spent))
        suspects = get(f, context, Slot.SUSPECTS, "ptr")
        with f.when(exists(f, suspects)):
            is_one = f.icmp("ne", get(f, context, Slot.WATCHED), get(f, context, Slot.BLOCK_WATCHED))
            f.store(f.cast("zext", is_one, "i8"), suspects, block)
        f.increment(context, 8 * Slot.BLOCK, 1)
        hasty = f.icmp("ne", f.mul(get(f, context, Slot.HASTY), get(f, context, Slot.ORDER)), 0)
        f.branch(hasty, done, blocks, unlikely=True)
        f.place(done)
        f.ret()
        return f

    def _begin_block(self, block: Value) -> None:
        f, context = self.f, self.context
        put(f, context, Slot.BLOCK_BUDGET, get(f, context, Slot.LAUNCH_BUDGET))
        put(f, context, Slot.BLOCK_WATCHED, get(f, context, Slot.WATCHED))
        width, height = get(f, context, Slot.GRID_X), get(f, context, Slot.GRID_Y)
        row = f.binary("udiv", block, width)
        put(f, context, Slot.INDEX_X, f.binary("urem", block, width))
        put(f, context, Slot.INDEX_Y, f.binary("urem", row, height))
        put(f, context, Slot.INDEX_Z, f.binary("udiv", row, height))
        warps = get(f, context, Slot.WARPS)
        fill_bytes(f, get(f, context, Slot.WARP_RECORDS, "ptr"), f.mul(warps, 8 * WARP_FIELDS))
        fill_bytes(f, get(f, context, Slot.SHARED, "ptr"), get(f, context, Slot.SHARED_BYTES), UNDEFINED)
        self._begin_epoch()
        put(f, context, Slot.BLOCK_TAG, get(f, context, Slot.EPOCH_TAG))
        pending = field_of(f, array_record(f, context, shared_row(f, context)), ArrayField.PENDING)
        with f.when(exists(f, pending)):
            fill_bytes(f, pending, get(f, context, Slot.SHARED_BYTES))
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        f, context = self.f, self.context
        tag, fits = new_clock(f, context)
        put(f, context, Slot.EPOCH_TAG, tag)
        with f.when(f.not_(fits), unlikely=True):
            put(f, context, Slot.STOPPED, integer(Stop.CLOCK, "i64"))
            f.jump(self.done)

    def _run_warps(self, block: Value) -> Value:
        """Run each warp that has not ended; how many wait at a barrier then."""
        f, context = self.f, self.context
        waiting = f.alloca("i64")
        f.store(integer(0, "i64"), waiting)
        grid_thread = f.add(f.mul(block, get(f, context, Slot.THREADS_PER_BLOCK)), 1)
        with f.repeat(get(f, context, Slot.WARPS)) as warp:
            record = warp_record(f, context, warp)
            resume = f.load("i64", record, 8 * WarpField.RESUME)
            with f.when(f.icmp("ne", resume, FINISHED)):
                first = f.mul(warp, LANES)
                put(f, context, Slot.WARP, warp)
                put(f, context, Slot.THREAD, first)
                put(f, context, Slot.GLOBAL_THREAD, f.add(grid_thread, first))
                put(f, context, Slot.MY_TAG, f.or_(get(f, context, Slot.EPOCH_TAG), f.mul(warp, 1 << LANE_BITS)))
                fill_bytes(f, get(f, context, Slot.SYNC_TAGS, "ptr"), integer(4 * LANES, "i64"))
                with f.when(f.icmp("eq", resume, 0)):
                    self._clear_local(warp)
                    async_copies.clear(f, context)
                frame = f.at(get(f, context, Slot.FRAMES, "ptr"), f.mul(warp, get(f, context, Slot.FRAME_STRIDE)))
                next_block = f.value("i64", f"call i64 {self.code.text}({context}, {frame}, {resume})")
                f.store(next_block, record, 8 * WarpField.RESUME)
                f.increment(waiting, 0, widen(f, f.icmp("ne", next_block, FINISHED)))
                stopped = f.icmp("ne", get(f, context, Slot.STOPPED), 0)
                with f.when(stopped, unlikely=True):
                    f.jump(self.done)
        return f.load("i64", waiting)

    def _clear_local(self, warp: Value) -> None:
        f, context = self.f, self.context
        size = f.mul(get(f, context, Slot.LOCAL_SIZE), LANES)
        start = f.mul(warp, get(f, context, Slot.LOCAL_STRIDE))
        for memory in (Slot.LOCAL, Slot.LOCAL_WRITTEN):
            fill_bytes(f, f.at(get(f, context, memory, "ptr"), start), size)


def meet() -> FunctionBuilder:
    """All warps that have not ended wait at a barrier: is it the same one, and what did they vote?"""
    f = FunctionBuilder("meet", "void", [("ptr", "context")])
    (context,) = f.arguments.values()
    warps = get(f, context, Slot.WARPS)
    first, first_site, reported = f.alloca("i64"), f.alloca("i64"), f.alloca("i1")
    count, total = f.alloca("i64"), f.alloca("i64")
    for slot in (first_site, count, total):
        f.store(integer(0, "i64"), slot)
    f.store(integer(-1, "i64"), first)
    f.store(Value("i1", "false"), reported)

    def report(waits: Value, site: Value, other: Value, other_site: Value) -> None:
        """Say once that the first thread of a warp waits while that of another warp does not come."""
        with f.when(f.not_(f.load("i1", reported))):
            f.store(Value("i1", "true"), reported)
            put(f, context, Slot.THREAD, f.mul(waits, LANES))
            who = f.add(f.mul(other, LANES), f.add(_first_thread(f, context), 1))
            narrow = [f.cast("trunc", v, "i32") for v in (site, who, other_site)]
            row, lane, address = integer(0, "i64"), integer(0), integer(0, "i64")
            f.call("void", "record", [context, narrow[0], integer(APART), row, lane, address, *narrow[1:]])

    with f.repeat(warps) as warp:
        record = warp_record(f, context, warp)
        site = f.load("i64", record, 8 * WarpField.SITE)
        waits = f.icmp("ne", f.load("i64", record, 8 * WarpField.RESUME), FINISHED)
        with f.when(waits):
            vote = f.load("i64", record, 8 * WarpField.VOTE)
            f.increment(count, 0, f.intrinsic("ctpop", vote))
            lanes = f.load("i32", get(f, context, Slot.MASKS, "ptr"), f.mul(warp, 4))
            f.increment(total, 0, widen(f, f.popcount(lanes)))
            known = f.icmp("ne", f.load("i64", first), -1)
            new, again, after = f.label("new"), f.label("again"), f.label("after")
            f.branch(known, again, new)
            f.place(new)
            f.store(warp, first)
            f.store(site, first_site)
            f.jump(after)
            f.place(again)
            with f.when(f.icmp("ne", site, f.load("i64", first_site))):
                report(f.load("i64", first), f.load("i64", first_site), warp, site)
            f.place(after)
    with f.repeat(warps) as warp:
        record = warp_record(f, context, warp)
        ended = f.icmp("eq", f.load("i64", record, 8 * WarpField.RESUME), FINISHED)
        with f.when(ended):
            report(f.load("i64", first), f.load("i64", first_site), warp, integer(NO_SITE, "i64"))
    put(f, context, Slot.VOTES, f.load("i64", count))
    put(f, context, Slot.VOTERS, f.load("i64", total))
    f.ret()
    return f


def _first_thread(f: FunctionBuilder, context: Value) -> Value:
    """Linear index in the grid of the block's first thread."""
    return f.mul(get(f, context, Slot.BLOCK), get(f, context, Slot.THREADS_PER_BLOCK))
