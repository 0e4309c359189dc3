"""The out-of-line code that every kernel calls: memory accesses with their checks and counters, and the loop
over blocks and warps. Written once, compiled once for a machine.

`touch` knows every rule of an access and reports every fault, for one lane; `careful` takes a warp through it. The
module `fast_access` handles whole warps that have nothing to report.

Accesses are named by their number among the kernel's loads and stores. Widths are the bytes of one lane.
"""

from __future__ import annotations

from .addresses import HALF_WINDOW, LOCAL_WINDOW, WINDOW_BITS
from .context import (
    ACCESS_FIELDS,
    ARRAY_FIELDS,
    EVENT_CODES,
    EVENT_FIELDS,
    AccessField,
    ArrayField,
    EventField,
    Slot,
    get,
    put,
)
from .faults import ATOMIC, MISALIGNED, NOBODY, OUT_OF_BOUNDS, READ_WRITE, SEVERAL, UNINITIALISED, WRITE_WRITE
from .ir import LANES, FunctionBuilder, Value, integer, module_text, vector

#: Flags of an access. Compiled code hands over the access's number, and the flags above it.
STORE, UNCOUNTED, OVERWRITES = 1, 2, 4
FLAG_SHIFT = 24


def base_module() -> str:
    """Everything that does not depend on an access's width."""
    return module_text([_record(), _count(), _count_by_array(), _touch(), _careful(), _load_uniform(), _drive()])


# -- pieces ----------------------------------------------------------------------------------------


def widen(f: FunctionBuilder, a: Value) -> Value:
    return f.cast("zext", a, "i64")


def array_record(f: FunctionBuilder, context: Value, number: Value) -> Value:
    """Pointer to an array's record; number is i64."""
    return f.at(get(f, context, Slot.ARRAYS, "ptr"), f.mul(number, 8 * ARRAY_FIELDS))


def field_of(f: FunctionBuilder, record: Value, field: ArrayField, type_name: str = "ptr") -> Value:
    return f.load(type_name, record, 8 * field)


def number_of(f: FunctionBuilder, address: Value) -> Value:
    return f.binary("lshr", f.add(address, HALF_WINDOW), WINDOW_BITS)


def is_null(f: FunctionBuilder, pointer: Value) -> Value:
    return f.value("i1", f"icmp eq {pointer}, null")


def exists(f: FunctionBuilder, pointer: Value) -> Value:
    return f.value("i1", f"icmp ne {pointer}, null")


def copy_bytes(f: FunctionBuilder, to: Value, source: Value, size: Value) -> None:
    f.call("void", "llvm.memcpy.p0.p0.i64", [to, source, size, Value("i1", "false")])


def clear_bytes(f: FunctionBuilder, pointer: Value, size: Value) -> None:
    f.call("void", "llvm.memset.p0.i64", [pointer, integer(0, "i8"), size, Value("i1", "false")])


def split_access(f: FunctionBuilder, access: Value) -> tuple[Value, Value]:
    """Number and flags of an access."""
    return f.and_(access, (1 << FLAG_SHIFT) - 1), f.binary("lshr", access, FLAG_SHIFT)


def unless_uncounted(f: FunctionBuilder, flags: Value):
    return f.when(f.icmp("eq", f.and_(flags, UNCOUNTED), 0))


# -- reports ---------------------------------------------------------------------------------------


def _record() -> FunctionBuilder:
    """Note a fault of one lane; only the first of its kind at an access and array is kept, with a count."""
    f = FunctionBuilder(
        "record",
        "void",
        [
            ("ptr", "context"),
            ("i32", "access"),
            ("i32", "code"),
            ("i64", "row"),
            ("i32", "lane"),
            ("i64", "address"),
            ("i32", "other"),
        ],
    )
    context, access, code, row, lane, address, other = f.arguments.values()
    rows = f.add(get(f, context, Slot.ARRAY_COUNT), 1)
    index = f.add(f.mul(widen(f, access), rows), row)
    index = f.add(f.mul(index, EVENT_CODES), widen(f, code))
    event = f.at(get(f, context, Slot.EVENTS, "ptr"), f.mul(index, 8 * EVENT_FIELDS))
    with f.when(f.icmp("eq", f.load("i64", event, 8 * EventField.COUNT), 0)):
        f.store(get(f, context, Slot.ORDER), event, 8 * EventField.ORDER)
        f.store(f.add(get(f, context, Slot.THREAD), widen(f, lane)), event, 8 * EventField.THREAD)
        f.store(get(f, context, Slot.BLOCK), event, 8 * EventField.BLOCK)
        f.store(address, event, 8 * EventField.ADDRESS)
        f.store(widen(f, other), event, 8 * EventField.OTHER)
    f.increment(event, 8 * EventField.COUNT, 1)
    f.increment(context, 8 * Slot.ORDER, 1)
    f.ret()
    return f


def access_record(f: FunctionBuilder, context: Value, access: Value, number: Value) -> Value:
    index = f.add(f.mul(widen(f, access), get(f, context, Slot.ARRAY_COUNT)), number)
    return f.at(get(f, context, Slot.ACCESSES, "ptr"), f.mul(index, 8 * ACCESS_FIELDS))


def add_to_tally(
    f: FunctionBuilder, record: Value, requests: Value, threads: Value, sectors: Value, needed: Value
) -> None:
    ideal = f.binary("lshr", f.add(needed, 31), 5)
    for field, value in zip(AccessField, (requests, threads, sectors, ideal, needed)):
        f.increment(record, 8 * field, value)


def _count() -> FunctionBuilder:
    """Count a request on one array: distinct sectors and distinct bytes of any set of lanes."""
    f = FunctionBuilder(
        "count",
        "void",
        [
            ("ptr", "context"),
            ("ptr", "offsets"),
            ("i32", "lanes"),
            ("i32", "access"),
            ("i64", "number"),
            ("i64", "width"),
            ("i64", "requests"),
        ],
    )
    context, offsets, lanes, access, number, width, requests = f.arguments.values()
    exact = f.load(vector("i64"), offsets, align=8)
    sectors = f.binary("lshr", exact, integer(5, vector("i64")))
    distinct_sectors = _distinct(f, sectors, lanes)
    needed = f.mul(_distinct(f, exact, lanes), width)
    threads = widen(f, f.popcount(lanes))
    add_to_tally(f, access_record(f, context, access, number), requests, threads, distinct_sectors, needed)
    f.ret()
    return f


def _distinct(f: FunctionBuilder, values: Value, lanes: Value) -> Value:
    """How many different values the lanes hold: strike out one value a turn."""
    rest, found = f.alloca("i32"), f.alloca("i64")
    memory = f.alloca(values.type, align=64)
    f.store(values, memory, align=64)
    f.store(lanes, rest)
    f.store(integer(0, "i64"), found)
    head, body, after = f.label("distinct"), f.label("strike"), f.label("after")
    f.place(head)
    left = f.load("i32", rest)
    f.branch(f.icmp("eq", left, 0), after, body)
    f.place(body)
    value = f.load("i64", memory, f.mul(widen(f, f.lowest_bit(left)), 8))
    equal = f.to_mask(f.icmp("eq", values, f.splat(value)))
    f.store(f.and_(left, f.not_(equal)), rest)
    f.increment(found, 0, 1)
    f.jump(head)
    f.place(after)
    return f.load("i64", found)


# -- lane by lane ----------------------------------------------------------------------------------


def _touch() -> FunctionBuilder:
    """Check and perform the access of one lane. Returns the array's number, 0 where there is nothing to count."""
    f = FunctionBuilder(
        "touch",
        "i64",
        [
            ("ptr", "context"),
            ("i64", "address"),
            ("i32", "lane"),
            ("i32", "access"),
            ("ptr", "data"),
            ("i64", "width"),
            ("i32", "flags"),
        ],
    )
    context, address, lane, access, data, width, flags = f.arguments.values()
    number = number_of(f, address)
    offset = f.sub(address, f.binary("shl", number, WINDOW_BITS))
    is_store = f.icmp("ne", f.and_(flags, STORE), 0)
    me = f.add(get(f, context, Slot.GLOBAL_THREAD, "i32"), lane)

    def report(code: int, row: Value, other: Value | None = None) -> None:
        f.call("void", "record", [context, access, integer(code), row, lane, address, other or integer(NOBODY)])

    with f.when(f.icmp("eq", number, LOCAL_WINDOW), unlikely=True):
        _touch_local(f, context, offset, lane, data, width, is_store, report)
        f.ret(integer(0, "i64"))
    known = f.and_(f.icmp("ult", number, get(f, context, Slot.ARRAY_COUNT)), f.icmp("ne", number, 0))
    number = f.select(known, number, integer(0, "i64"))
    record = array_record(f, context, number)
    with f.when(outside(f, offset, width, field_of(f, record, ArrayField.SIZE, "i64")), unlikely=True):
        report(OUT_OF_BOUNDS, number)
        f.ret(integer(0, "i64"))
    with f.when(f.icmp("ne", f.and_(offset, f.sub(width, 1)), 0), unlikely=True):
        report(MISALIGNED, number)
        f.ret(integer(0, "i64"))
    memory = f.at(field_of(f, record, ArrayField.BASE), offset)
    shift = get(f, context, Slot.GRANULE_SHIFT)
    first, count = f.binary("lshr", offset, shift), f.binary("lshr", width, shift)
    with f.when(is_store):
        _store_lane(f, record, memory, data, width, first, count, me, number, report)
        f.ret(number)
    _load_lane(f, record, memory, data, width, first, count, me, number, report)
    f.ret(number)
    return f


def outside(f: FunctionBuilder, offset: Value, width: Value, size: Value) -> Value:
    """Whether [offset, offset + width) leaves [0, size)."""
    room = f.sub(size, width)
    return f.or_(f.icmp("ult", size, width), f.icmp("ugt", offset, room))


def _load_lane(f, record, memory, data, width, first, count, me, number, report) -> None:
    written = field_of(f, record, ArrayField.WRITTEN)
    with f.when(exists(f, written)):
        undefined = scan(f, written, first, count, "i8", lambda tag: f.icmp("eq", tag, 0))
        with f.when(undefined[0]):
            report(UNINITIALISED, number)
    writer = field_of(f, record, ArrayField.WRITER)
    with f.when(exists(f, writer)):
        found, other = scan(f, writer, first, count, "i32", lambda tag: foreign(f, tag, me))
        with f.when(found):
            report(READ_WRITE, number, other)
    reader = field_of(f, record, ArrayField.READER)
    with f.when(exists(f, reader)), granules(f, first, count) as g:
        where = f.at(reader, f.mul(g, 4))
        tag = f.load("i32", where)
        f.store(f.select(foreign(f, tag, me), integer(SEVERAL), me), where)
    copy_bytes(f, data, memory, width)


def _store_lane(f, record, memory, data, width, first, count, me, number, report) -> None:
    writer = field_of(f, record, ArrayField.WRITER)
    reader = field_of(f, record, ArrayField.READER)
    with f.when(exists(f, writer)):
        # Storing the value that is there already disturbs nobody.
        changes = f.icmp("ne", f.call("i32", "memcmp", [data, memory, width]), 0)
        with f.when(changes):
            found, other = scan(f, writer, first, count, "i32", lambda tag: foreign(f, tag, me))
            with f.when(found):
                report(WRITE_WRITE, number, other)
            with f.when(exists(f, reader)):
                found, other = scan(f, reader, first, count, "i32", lambda tag: foreign(f, tag, me))
                with f.when(found):
                    report(READ_WRITE, number, other)
        with granules(f, first, count) as g:
            f.store(me, writer, f.mul(g, 4))
    written = field_of(f, record, ArrayField.WRITTEN)
    with f.when(exists(f, written)), granules(f, first, count) as g:
        f.store(integer(1, "i8"), written, g)
    copy_bytes(f, memory, data, width)


def _touch_local(f, context, offset, lane, data, width, is_store, report) -> None:
    """A thread's own memory: nobody else's business, so no races and no counters."""
    size = get(f, context, Slot.LOCAL_SIZE)
    row = get(f, context, Slot.ARRAY_COUNT)
    with f.when(outside(f, offset, width, size), unlikely=True):
        report(OUT_OF_BOUNDS, row)
        f.ret(integer(0, "i64"))
    with f.when(f.icmp("ne", f.and_(offset, f.sub(width, 1)), 0), unlikely=True):
        report(MISALIGNED, row)
        f.ret(integer(0, "i64"))
    at = f.add(f.mul(widen(f, lane), size), offset)
    memory = f.at(get(f, context, Slot.LOCAL, "ptr"), at)
    written = f.at(get(f, context, Slot.LOCAL_WRITTEN, "ptr"), at)
    with f.when(is_store):
        copy_bytes(f, memory, data, width)
        with granules(f, integer(0, "i64"), width) as g:
            f.store(integer(1, "i8"), written, g)
        f.ret(integer(0, "i64"))
    undefined = scan(f, written, integer(0, "i64"), width, "i8", lambda tag: f.icmp("eq", tag, 0))
    with f.when(undefined[0]):
        report(UNINITIALISED, row)
    copy_bytes(f, data, memory, width)


def foreign(f: FunctionBuilder, tag: Value, me: Value) -> Value:
    """Whether a tag is another thread's."""
    own = f.or_(f.icmp("eq", tag, me), f.icmp("eq", tag, f.or_(me, ATOMIC)))
    return f.and_(f.icmp("ne", tag, NOBODY), f.not_(own))


class granules:
    """Code that runs for each granule of an access; gives its index."""

    def __init__(self, f: FunctionBuilder, first: Value, count: Value):
        self.f, self.first, self.count = f, first, count

    def __enter__(self) -> Value:
        f = self.f
        self.slot = f.alloca("i64")
        f.store(integer(0, "i64"), self.slot)
        self.head, body, self.after = f.label("granules"), f.label("granule"), f.label("after")
        f.place(self.head)
        index = f.load("i64", self.slot)
        f.branch(f.icmp("ult", index, self.count), body, self.after)
        f.place(body)
        return f.add(self.first, index)

    def __exit__(self, *_: object) -> None:
        self.f.increment(self.slot, 0, 1)
        self.f.jump(self.head)
        self.f.place(self.after)


def scan(f, shadow, first, count, type_name, test):
    """Whether the test holds for a granule's tag, and the first such tag."""
    found, tag_found = f.alloca("i1"), f.alloca(type_name)
    f.store(Value("i1", "false"), found)
    f.store(integer(0, type_name), tag_found)
    with granules(f, first, count) as g:
        tag = f.load(type_name, shadow, f.mul(g, int(type_name[1:]) // 8))
        fresh = f.and_(test(tag), f.not_(f.load("i1", found)))
        with f.when(fresh):
            f.store(Value("i1", "true"), found)
            f.store(tag, tag_found)
    return f.load("i1", found), f.load(type_name, tag_found)


def _careful() -> FunctionBuilder:
    """An access lane by lane, in the order of the lanes, then its counters array by array."""
    f = FunctionBuilder(
        "careful",
        "void",
        [
            ("ptr", "context"),
            ("ptr", "addresses"),
            ("i32", "active"),
            ("i32", "access"),
            ("ptr", "data"),
            ("i64", "width"),
            ("i32", "flags"),
        ],
    )
    context, addresses, active, access, data, width, flags = f.arguments.values()
    numbers, offsets = f.alloca("i64", LANES, 64), f.alloca("i64", LANES, 64)
    f.store(integer(0, vector("i64")), numbers, align=64)
    with f.each_lane(active) as lane:
        index = widen(f, lane)
        address = f.load("i64", addresses, f.mul(index, 8))
        mine = f.at(data, f.mul(index, width))
        number = f.call("i64", "touch", [context, address, lane, access, mine, width, flags])
        f.store(number, numbers, f.mul(index, 8))
        f.store(f.sub(address, f.binary("shl", number, WINDOW_BITS)), offsets, f.mul(index, 8))
    with unless_uncounted(f, flags):
        f.call("void", "count_by_array", [context, numbers, offsets, active, access, width])
    f.ret()
    return f


def _count_by_array() -> FunctionBuilder:
    """Count a request whose lanes touch any arrays: it belongs to the first lane's; number 0 is not counted."""
    f = FunctionBuilder(
        "count_by_array",
        "void",
        [
            ("ptr", "context"),
            ("ptr", "numbers"),
            ("ptr", "offsets"),
            ("i32", "active"),
            ("i32", "access"),
            ("i64", "width"),
        ],
    )
    context, numbers, offsets, active, access, width = f.arguments.values()
    rest, requests = f.alloca("i32"), f.alloca("i64")
    every = f.load(vector("i64"), numbers, align=64)
    f.store(f.and_(active, f.to_mask(f.icmp("ne", every, 0))), rest)
    f.store(integer(1, "i64"), requests)
    head, body, after = f.label("arrays"), f.label("array"), f.label("after")
    f.place(head)
    left = f.load("i32", rest)
    f.branch(f.icmp("eq", left, 0), after, body)
    f.place(body)
    number = f.load("i64", numbers, f.mul(widen(f, f.lowest_bit(left)), 8))
    equal = f.to_mask(f.icmp("eq", f.load(vector("i64"), numbers, align=64), f.splat(number)))
    same = f.and_(left, equal)
    f.call("void", "count", [context, offsets, same, access, number, width, f.load("i64", requests)])
    f.store(integer(0, "i64"), requests)
    f.store(f.and_(left, f.not_(same)), rest)
    f.jump(head)
    f.place(after)
    f.ret()
    return f


# -- one address for a warp ------------------------------------------------------------------------


def _load_uniform() -> FunctionBuilder:
    """A load whose lanes all read one address; one element comes back."""
    arguments = [("ptr", "context"), ("i64", "address"), ("i32", "active"), ("i32", "access"), ("i64", "width")]
    f = FunctionBuilder("load_uniform", "void", arguments)
    context, address, active, access, width = f.arguments.values()
    access, flags = split_access(f, access)
    data = get(f, context, Slot.DATA, "ptr")
    clear_bytes(f, data, width)
    with f.when(f.icmp("eq", active, 0), unlikely=True):
        f.ret()
    number = number_of(f, address)
    known = f.icmp("ult", number, get(f, context, Slot.ARRAY_COUNT))
    number = f.select(known, number, integer(0, "i64"))
    record = array_record(f, context, number)
    offset = f.sub(address, f.binary("shl", number, WINDOW_BITS))
    bad = outside(f, offset, width, field_of(f, record, ArrayField.SIZE, "i64"))
    bad = f.or_(bad, f.icmp("ne", f.and_(offset, f.sub(width, 1)), 0))
    for field in (ArrayField.WRITTEN, ArrayField.WRITER, ArrayField.READER):
        bad = f.or_(bad, exists(f, field_of(f, record, field)))
    slow, fast = f.label("slow"), f.label("fast")
    f.branch(bad, slow, fast, unlikely=True)
    f.place(fast)
    copy_bytes(f, data, f.at(field_of(f, record, ArrayField.BASE), offset), width)
    with unless_uncounted(f, flags):
        one = integer(1, "i64")
        add_to_tally(f, access_record(f, context, access, number), one, widen(f, f.popcount(active)), one, width)
    f.ret()
    f.place(slow)
    addresses, row = f.alloca(vector("i64"), align=64), f.alloca("i8", 16 * LANES, 64)
    f.store(f.splat(address), addresses, align=64)
    clear_bytes(f, row, integer(16 * LANES, "i64"))
    f.call("void", "careful", [context, addresses, active, access, row, width, flags])
    copy_bytes(f, data, f.at(row, f.mul(widen(f, f.lowest_bit(active)), width)), width)
    f.ret()
    return f


# -- the loop over blocks and warps ----------------------------------------------------------------


def _drive() -> FunctionBuilder:
    """Run every warp of every block to its end, in order, until the budget is spent."""
    f = FunctionBuilder("drive", "void", [("ptr", "context"), ("ptr", "warp")])
    context, warp = f.arguments.values()
    blocks, warps = get(f, context, Slot.BLOCK_COUNT), get(f, context, Slot.WARPS)
    threads = get(f, context, Slot.THREADS_PER_BLOCK)
    width, height = get(f, context, Slot.GRID_X), get(f, context, Slot.GRID_Y)
    next_block, block_body, done = f.label("blocks"), f.label("block"), f.label("done")
    next_warp, warp_body, block_done = f.label("warps"), f.label("warp"), f.label("block_done")
    put(f, context, Slot.BLOCK, integer(0, "i64"))
    f.place(next_block)
    block = get(f, context, Slot.BLOCK)
    f.branch(f.icmp("ult", block, blocks), block_body, done)
    f.place(block_body)
    row = f.binary("udiv", block, width)
    put(f, context, Slot.INDEX_X, f.binary("urem", block, width))
    put(f, context, Slot.INDEX_Y, f.binary("urem", row, height))
    put(f, context, Slot.INDEX_Z, f.binary("udiv", row, height))
    put(f, context, Slot.WARP, integer(0, "i64"))
    f.place(next_warp)
    number = get(f, context, Slot.WARP)
    f.branch(f.icmp("ult", number, warps), warp_body, block_done)
    f.place(warp_body)
    first = f.mul(number, LANES)
    put(f, context, Slot.THREAD, first)
    put(f, context, Slot.GLOBAL_THREAD, f.add(f.add(f.mul(block, threads), first), 1))
    size = f.mul(get(f, context, Slot.LOCAL_SIZE), LANES)
    clear_bytes(f, get(f, context, Slot.LOCAL, "ptr"), size)
    clear_bytes(f, get(f, context, Slot.LOCAL_WRITTEN, "ptr"), size)
    f.emit(f"call void {warp.text}({context})")
    stopped = f.icmp("ne", get(f, context, Slot.STOPPED), 0)
    proceed = f.label("proceed")
    f.branch(stopped, done, proceed, unlikely=True)
    f.place(proceed)
    f.increment(context, 8 * Slot.WARP, 1)
    f.jump(next_warp)
    f.place(block_done)
    f.increment(context, 8 * Slot.BLOCK, 1)
    f.jump(next_block)
    f.place(done)
    f.ret()
    return f
