"""cp.async: copies from global to shared memory that a thread starts, and whose data are there after it has waited.

Here a copy reads at once and stores when its thread waits for it: until then it stands in its warp's queue, and the
words that it will fill are marked, so that whoever touches them before is found. A queue that is full stores its
oldest copy early.

`cp.async` becomes two instructions: a load, and `async_store`, which queues what was loaded.
"""

from __future__ import annotations

from dataclasses import replace

from .access import STORE, array_record, copy_bytes, exists, field_of, fill_bytes, shared_row, split_access, widen
from .addresses import SHARED_WINDOW, window
from .context import ArrayField, Slot, get
from .ir import LANES, FunctionBuilder, Value, integer, vector
from .ptx import Function, Immediate, Instruction, Operand, Register, Vector, unsupported
from .requests import BYTES_OF_A_LANE
from .types import TYPES

STORE_OPCODE = "async_store"

#: Copies that a warp may have under way.
MOST_COPIES = 64

_ROW = vector("i32")


class QueueField:
    """A warp's queue, in bytes from its begin: the lanes' numbers of committed groups, then copies."""

    GROUPS = 0  # <32 x i32>
    COUNT = 128  # i64
    COPIES = 192
    # Of a copy, in bytes from its begin:
    LANES = 0  # i32: those whose copy is under way
    SITE = 4
    WIDTH = 8  # i64
    GROUP = 64  # <32 x i32>: the group of each lane that it belongs to
    ADDRESSES = 192  # <32 x i64>
    DATA = 448
    COPY_BYTES = DATA + 32 * BYTES_OF_A_LANE
    BYTES = COPIES + MOST_COPIES * COPY_BYTES


# -- as two instructions ---------------------------------------------------------------------------


def is_copy(ins: Instruction) -> bool:
    return ins.opcode == "cp" and not ins.has("commit_group") and not waits(ins)


def waits(ins: Instruction) -> bool:
    return ins.opcode == "cp" and (ins.has("wait_group") or ins.has("wait_all"))


def check(ins: Instruction) -> None:
    """Raise UnsupportedPTX at a copy whose size is no constant, or that fills only a part of what it copies to."""
    if not is_copy(ins):
        return
    sizes = [o.value for o in ins.operands[2:] if isinstance(o, Immediate)]
    fits = len(sizes) == len(ins.operands) - 2 and sizes and sizes[0] in (4, 8, 16)
    if not fits or len(sizes) > 2 or sizes[-1] not in (0, sizes[0]):
        raise unsupported(ins, "the engine copies asynchronously 4, 8 or 16 bytes, all of them or none")


def split_copies(function: Function) -> Function:
    """The function with each copy as a load and an async_store."""
    if not any(is_copy(ins) for ins in function.code):
        return function
    out = replace(function, code=[], registers=dict(function.registers))
    moved = []
    for ins in function.code:
        moved.append(len(out.code))
        out.code += _split(ins, out) if is_copy(ins) else [ins]
    moved.append(len(out.code))
    out.labels = {name: moved[at] for name, at in function.labels.items()}
    return out


def _split(copy: Instruction, out: Function) -> list[Instruction]:
    to, source, size, *given = copy.operands
    assert isinstance(size, Immediate)
    words = size.value // 4
    names = [f"%async{len(out.code)}_{i}" for i in range(words)]
    out.registers.update(dict.fromkeys(names, TYPES["b32"]))
    parts: tuple[Operand, ...] = tuple(Register(n) for n in names)
    value = Vector(parts) if words > 1 else parts[0]
    shape = (f"v{words}", "b32") if words > 1 else ("b32",)
    store = replace(copy, opcode=STORE_OPCODE, modifiers=("shared", *shape), operands=(to, value))
    if given and given[0] == Immediate(0):  # nothing is read: zeros are stored
        clear = [replace(copy, opcode="mov", modifiers=("b32",), operands=(p, Immediate(0))) for p in parts]
        return [*clear, store]
    return [replace(copy, opcode="ld", modifiers=("global", *shape), operands=(value, source)), store]


# -- in compiled code ------------------------------------------------------------------------------


def _queue(f: FunctionBuilder, context: Value) -> Value:
    """The running warp's queue."""
    return f.at(get(f, context, Slot.QUEUES, "ptr"), f.mul(get(f, context, Slot.WARP), QueueField.BYTES))


def _copy(f: FunctionBuilder, queue: Value, number: Value) -> Value:
    return f.at(f.at(queue, QueueField.COPIES), f.mul(number, QueueField.COPY_BYTES))


def start() -> FunctionBuilder:
    """Queue what the lanes have in DATA for their addresses in shared memory."""
    arguments = [("ptr", "context"), (vector("i64"), "addresses"), ("i64", "offset"), ("i32", "active")]
    f = FunctionBuilder("start_copy", "void", [*arguments, ("i32", "access"), ("i64", "width")])
    context, addresses, offset, active, access, width = f.arguments.values()
    with f.when(f.icmp("eq", active, 0)):
        f.ret()
    queue = _queue(f, context)
    with f.when(f.icmp("eq", f.load("i64", queue, QueueField.COUNT), MOST_COPIES), unlikely=True):
        f.call("void", "finish_copies", [context, integer(-1), integer((1 << 31) - 1), integer(1)])
    count = f.load("i64", queue, QueueField.COUNT)
    copy = _copy(f, queue, count)
    f.store(f.add(count, 1), queue, QueueField.COUNT)
    site, _ = split_access(f, access)
    f.store(active, copy, QueueField.LANES)
    f.store(site, copy, QueueField.SITE)
    f.store(width, copy, QueueField.WIDTH)
    f.store(f.load(_ROW, queue, QueueField.GROUPS, align=64), copy, QueueField.GROUP, align=64)
    f.store(f.add(addresses, f.splat(offset)), copy, QueueField.ADDRESSES, align=64)
    size = integer(LANES * BYTES_OF_A_LANE, "i64")
    copy_bytes(f, f.at(copy, QueueField.DATA), get(f, context, Slot.DATA, "ptr"), size)
    _mark(f, context, copy, active, 1)
    f.ret()
    return f


def _mark(f: FunctionBuilder, context: Value, copy: Value, lanes: Value, flag: int) -> None:
    """Mark the words that a copy of some lanes will fill, or no longer."""
    record = array_record(f, context, shared_row(f, context))
    pending, size = field_of(f, record, ArrayField.PENDING), field_of(f, record, ArrayField.SIZE, "i64")
    width = f.load("i64", copy, QueueField.WIDTH)
    with f.when(exists(f, pending)), f.each_lane(lanes) as lane:
        address = f.load("i64", f.at(copy, QueueField.ADDRESSES), f.mul(widen(f, lane), 8))
        offset = f.sub(address, window(SHARED_WINDOW))
        with f.when(f.icmp("ule", f.add(offset, width), size)), f.repeat(f.binary("lshr", width, 2)) as word:
            f.store(integer(flag), pending, f.mul(f.add(f.binary("lshr", offset, 2), word), 4))


def commit() -> FunctionBuilder:
    """The copies that the active lanes have started since their last group become a group."""
    f = FunctionBuilder("commit_copies", "void", [("ptr", "context"), ("i32", "active")])
    context, active = f.arguments.values()
    queue = _queue(f, context)
    groups = f.load(_ROW, queue, QueueField.GROUPS, align=64)
    f.store(f.add(groups, f.cast("zext", f.to_lanes(active), _ROW)), queue, QueueField.GROUPS, align=64)
    f.ret()
    return f


def finish() -> FunctionBuilder:
    """Store what active lanes have under way, but for their last groups.

    early   how many of the oldest copies end in any case: all of them where a thread waits for all
    """
    arguments = [("ptr", "context"), ("i32", "active"), ("i32", "but"), ("i32", "early")]
    f = FunctionBuilder("finish_copies", "void", arguments)
    context, active, but, early = f.arguments.values()
    queue = _queue(f, context)
    groups = f.load(_ROW, queue, QueueField.GROUPS, align=64)
    done_before = f.sub(groups, f.splat(but))
    count, kept = f.load("i64", queue, QueueField.COUNT), f.alloca("i64")
    f.store(integer(0, "i64"), kept)
    with f.repeat(count) as number:
        copy = _copy(f, queue, number)
        lanes = f.load("i32", copy, QueueField.LANES)
        due = f.to_mask(f.icmp("slt", f.load(_ROW, copy, QueueField.GROUP, align=64), done_before))
        forced = f.icmp("ult", f.cast("trunc", number, "i32"), early)
        ready = f.and_(f.and_(lanes, active), f.select(forced, integer(-1), due))
        _mark(f, context, copy, ready, 0)
        site, width = f.load("i32", copy, QueueField.SITE), f.load("i64", copy, QueueField.WIDTH)
        places = [f.at(copy, QueueField.ADDRESSES), ready, site, f.at(copy, QueueField.DATA)]
        with f.when(f.icmp("ne", ready, 0)):
            f.call("void", "careful", [context, *places, width, integer(STORE)])
        left = f.and_(lanes, f.not_(ready))
        with f.when(f.icmp("ne", left, 0)):
            f.store(left, copy, QueueField.LANES)
            to = f.load("i64", kept)
            with f.when(f.icmp("ne", to, number)):
                size = integer(QueueField.COPY_BYTES, "i64")
                copy_bytes(f, _copy(f, queue, to), copy, size)
            f.increment(kept, 0, 1)
    f.store(f.load("i64", kept), queue, QueueField.COUNT)
    f.ret()
    return f


def clear(f: FunctionBuilder, context: Value) -> None:
    """At the start of a block: nothing is under way in the running warp."""
    queue = get(f, context, Slot.QUEUES, "ptr")
    with f.when(exists(f, queue)):
        fill_bytes(f, _queue(f, context), integer(QueueField.COPIES, "i64"))
