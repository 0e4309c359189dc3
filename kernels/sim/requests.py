"""Requests of a warp, counted: sectors of arrays, wavefronts of shared memory. `careful`: a request lane by lane."""

from __future__ import annotations

from .access import (
    LOOPS,
    STORE,
    SWAPS,
    TURNS,
    UPDATE,
    add_to_tally,
    array_record,
    bit,
    copy_bytes,
    exists,
    field_of,
    fill_bytes,
    ideal_sectors,
    number_of,
    outside,
    shared_row,
    tally_of,
    unless_uncounted,
    widen,
)
from .addresses import WINDOW_BITS
from .context import ArrayField, Slot, get
from .ir import LANES, FunctionBuilder, Value, integer, iota, vector
from .warp_access import UNIFORM_ARGUMENTS, UniformLoad

#: Shared memory: banks of so many bytes, each of which gives one word in a wavefront.
BANKS, WORD = 32, 4

#: The widest access of a lane.
BYTES_OF_A_LANE = 16


def count() -> FunctionBuilder:
    """Count a request on one array: distinct sectors and distinct bytes of any set of lanes."""
    f = FunctionBuilder(
        "count",
        "void",
        [
            ("ptr", "context"),
            ("ptr", "offsets"),
            ("i32", "lanes"),
            ("i32", "site"),
            ("i64", "row"),
            ("i64", "width"),
            ("i32", "flags"),
            ("i64", "requests"),
        ],
    )
    context, offsets, lanes, site, row, width, flags, requests = f.arguments.values()
    threads = widen(f, f.popcount(lanes))
    tally = tally_of(f, context, site, row)
    is_update = f.icmp("ne", f.and_(flags, UPDATE), 0)
    served = f.alloca("i64")
    with f.when(f.icmp("eq", row, shared_row(f, context))):
        result = f.alloca("i64", 2)
        is_load = f.icmp("eq", f.and_(flags, STORE), 0)
        f.call("void", "count_banks", [offsets, lanes, width, is_load, result])
        f.store(f.load("i64", result), served)
        with f.when(is_update):
            f.store(f.call("i64", "count_shared_update", [offsets, lanes, width, flags]), served)
        words = f.load("i64", result, 8)
        ideal = f.binary("lshr", f.add(words, BANKS - 1), (BANKS - 1).bit_length())
        add_to_tally(f, tally, requests, threads, f.load("i64", served), ideal, f.mul(words, WORD))
        f.ret()
    exact = f.load(vector("i64"), offsets, align=8)
    needed = f.mul(_distinct(f, exact, lanes), width)
    ideal = ideal_sectors(f, needed)
    with f.when(f.icmp("ne", f.and_(flags, TURNS), 0)):
        add_to_tally(f, tally, requests, threads, f.call("i64", "count_turns", [offsets, lanes]), ideal, needed)
        f.ret()
    add_to_tally(f, tally, requests, threads, _distinct(f, _sectors(f, exact), lanes), ideal, needed)
    f.ret()
    return f


def _sectors(f: FunctionBuilder, offsets: Value) -> Value:
    return f.binary("lshr", offsets, integer(5, vector("i64")))


def count_turns() -> FunctionBuilder:
    """Sectors of atomic updates: lanes of one address take turns, and each turn moves its sectors anew."""
    f = FunctionBuilder("count_turns", "i64", [("ptr", "offsets"), ("i32", "lanes")])
    offsets, lanes = f.arguments.values()
    exact = f.load(vector("i64"), offsets, align=8)
    rest, found = f.alloca("i32"), f.alloca("i64")
    f.store(lanes, rest)
    f.store(integer(0, "i64"), found)
    with f.until_empty(rest) as left:
        taken = _first_of_each(f, exact, offsets, left)
        f.increment(found, 0, _distinct(f, _sectors(f, exact), taken))
        f.store(f.and_(left, f.not_(taken)), rest)
    f.ret(f.load("i64", found))
    return f


def count_shared_update() -> FunctionBuilder:
    """Wavefronts of an update of shared memory; updates.Manner and numpy_requests say what is counted.

    In each wavefront a bank serves one lane. What loops does so in turns: the first lane of each bank tries, and
    succeeds unless another lane did so at its place in the same turn.
    """
    arguments = [("ptr", "offsets"), ("i32", "lanes"), ("i64", "width"), ("i32", "flags")]
    f = FunctionBuilder("count_shared_update", "i64", arguments)
    offsets, lanes, width, flags = f.arguments.values()
    exact = f.load(vector("i64"), offsets, align=8)
    size = f.intrinsic("umax", width, integer(WORD, "i64"))
    places = f.binary("udiv", exact, f.splat(size))
    bank_count = f.binary("udiv", integer(BANKS * WORD, "i64"), size)  # lanes that are served together, too
    banks = f.binary("urem", places, f.splat(bank_count))
    part_of = f.binary("udiv", iota("i64"), f.splat(bank_count))
    place_row, bank_row, part_row = (f.alloca(vector("i64"), align=64) for _ in range(3))
    for values, row in ((places, place_row), (banks, bank_row), (part_of, part_row)):
        f.store(values, row, align=64)
    rest, tries, turn, changed, found = (f.alloca("i32") for _ in range(5))
    f.store(lanes, rest)
    f.store(integer(0), found)
    with f.when(f.icmp("eq", f.and_(flags, TURNS), 0)):
        f.store(_first_of_each(f, places, place_row, lanes), rest)
    loops = f.icmp("ne", f.and_(flags, LOOPS), 0)
    with f.until_empty(rest) as left:
        f.store(left, turn)
        f.store(integer(0), changed)
        with f.until_empty(turn) as ahead:  # part by part of the warp
            part = f.load("i64", part_row, f.mul(widen(f, f.lowest_bit(ahead)), 8))
            here = f.and_(ahead, f.to_mask(f.icmp("eq", part_of, f.splat(part))))
            f.store(f.and_(ahead, f.not_(here)), turn)
            f.store(_first_of_each(f, banks, bank_row, here), tries)
            with f.each_lane(f.load("i32", tries)) as lane:
                place = f.load("i64", place_row, f.mul(widen(f, lane), 8))
                there = f.to_mask(f.icmp("eq", places, f.splat(place)))
                late = f.icmp("ne", f.and_(there, f.load("i32", changed)), 0)
                fails = f.and_(loops, late)
                mine = f.select(fails, integer(0), bit(f, lane))
                f.store(f.or_(f.load("i32", changed), mine), changed)
                f.store(f.and_(f.load("i32", rest), f.not_(mine)), rest)
            f.store(f.add(f.load("i32", found), 1), found)
    doubled = f.icmp("ne", f.and_(flags, SWAPS | LOOPS), 0)
    total = widen(f, f.load("i32", found))
    f.ret(f.select(doubled, f.add(total, total), total))
    return f


def _first_of_each(f: FunctionBuilder, values: Value, row: Value, lanes: Value) -> Value:
    """Of the lanes that hold one value the lowest. `row`: where the values lie."""
    rest, first = f.alloca("i32"), f.alloca("i32")
    f.store(lanes, rest)
    f.store(integer(0), first)
    with f.until_empty(rest) as left:
        lane = f.lowest_bit(left)
        equal = f.to_mask(f.icmp("eq", values, f.splat(f.load("i64", row, f.mul(widen(f, lane), 8)))))
        f.store(f.or_(f.load("i32", first), bit(f, lane)), first)
        f.store(f.and_(left, f.not_(equal)), rest)
    return f.load("i32", first)


def _distinct(f: FunctionBuilder, values: Value, lanes: Value) -> Value:
    """How many different values the lanes hold: strike out one value a turn."""
    rest, found = f.alloca("i32"), f.alloca("i64")
    memory = f.alloca(values.type, align=64)
    f.store(values, memory, align=64)
    f.store(lanes, rest)
    f.store(integer(0, "i64"), found)
    with f.until_empty(rest) as left:
        value = f.load("i64", memory, f.mul(widen(f, f.lowest_bit(left)), 8))
        equal = f.to_mask(f.icmp("eq", values, f.splat(value)))
        f.store(f.and_(left, f.not_(equal)), rest)
        f.increment(found, 0, 1)
    return f.load("i64", found)


def count_banks() -> FunctionBuilder:
    """Wavefronts of a request on shared memory, and its distinct words.

    Lanes of 8 bytes are served half a warp at a time, lanes of 16 bytes a quarter; twice as many in a load whose
    neighbouring lanes 2i and 2i+1 read the same. In each such turn a bank gives one word in a wavefront, to any
    number of lanes. (So an H100 counts, tests/kernels/hardware/banks.json.)
    """
    arguments = [("ptr", "offsets"), ("i32", "lanes"), ("i64", "width"), ("i1", "is_load"), ("ptr", "result")]
    f = FunctionBuilder("count_banks", "void", arguments)
    offsets, lanes, width, is_load, result = f.arguments.values()
    doubled = f.and_(f.and_(is_load, f.icmp("ugt", width, WORD)), _pairs_agree(f, offsets, lanes))
    bytes_of_turn = f.select(doubled, integer(2 * BANKS * WORD, "i64"), integer(BANKS * WORD, "i64"))
    seen = f.alloca("i64", LANES * BYTES_OF_A_LANE // WORD)  # words of all turns, one after the other
    loads = f.alloca("i64", BANKS)  # of each bank, in this turn
    total, turn, turn_start, most, waves, distinct = (f.alloca("i64") for _ in range(6))
    found, found_now = f.alloca("i1"), f.alloca("i1")
    for slot in (total, turn, turn_start, most, waves, distinct):
        f.store(integer(0, "i64"), slot)
    fill_bytes(f, loads, integer(8 * BANKS, "i64"))
    step = f.intrinsic("umax", width, integer(WORD, "i64"))
    with f.each_lane(lanes) as lane:
        own_turn = f.binary("udiv", f.mul(widen(f, lane), step), bytes_of_turn)
        with f.when(f.icmp("ne", own_turn, f.load("i64", turn))):
            f.increment(waves, 0, f.load("i64", most))
            f.store(integer(0, "i64"), most)
            f.store(own_turn, turn)
            f.store(f.load("i64", total), turn_start)
            fill_bytes(f, loads, integer(8 * BANKS, "i64"))
        first = f.binary("lshr", f.load("i64", offsets, f.mul(widen(f, lane), 8)), 2)
        with f.repeat(f.binary("udiv", step, WORD)) as part:
            word = f.add(first, part)
            f.store(Value("i1", "false"), found)
            f.store(Value("i1", "false"), found_now)
            with f.repeat(f.load("i64", total)) as index:
                equal = f.icmp("eq", f.load("i64", seen, f.mul(index, 8)), word)
                now = f.icmp("uge", index, f.load("i64", turn_start))
                f.store(f.or_(f.load("i1", found), equal), found)
                f.store(f.or_(f.load("i1", found_now), f.and_(equal, now)), found_now)
            f.increment(distinct, 0, f.sub(integer(1, "i64"), widen(f, f.load("i1", found))))
            with f.when(f.not_(f.load("i1", found_now))):
                f.store(word, seen, f.mul(f.load("i64", total), 8))
                f.increment(total, 0, 1)
                load = f.at(loads, f.mul(f.and_(word, BANKS - 1), 8))
                f.increment(load, 0, 1)
                f.store(f.intrinsic("umax", f.load("i64", most), f.load("i64", load)), most)
    f.store(f.add(f.load("i64", waves), f.load("i64", most)), result)
    f.store(f.load("i64", distinct), result, 8)
    f.ret()
    return f


def _pairs_agree(f: FunctionBuilder, offsets: Value, lanes: Value) -> Value:
    """Whether lanes 2i and 2i+1, where both run, touch the same place."""
    exact = f.load(vector("i64"), offsets, align=8)
    equal = f.to_mask(f.icmp("eq", exact, f.shuffle(exact, exact, [i ^ 1 for i in range(LANES)])))
    even = 0x55555555
    partners = f.or_(f.and_(f.binary("lshr", lanes, 1), even), f.binary("shl", f.and_(lanes, even), 1))
    return f.icmp("eq", f.or_(equal, f.not_(f.and_(lanes, partners))), -1)


def careful() -> FunctionBuilder:
    """An access lane by lane, in the order of the lanes, then its counters array by array."""
    f = FunctionBuilder(
        "careful",
        "void",
        [
            ("ptr", "context"),
            ("ptr", "addresses"),
            ("i32", "active"),
            ("i32", "site"),
            ("ptr", "data"),
            ("i64", "width"),
            ("i32", "flags"),
        ],
    )
    context, addresses, active, site, data, width, flags = f.arguments.values()
    rows, offsets = f.alloca("i64", LANES, 64), f.alloca("i64", LANES, 64)
    f.store(integer(0, vector("i64")), rows, align=64)
    with f.each_lane(active) as lane:
        index = widen(f, lane)
        address = f.load("i64", addresses, f.mul(index, 8))
        mine = f.at(data, f.mul(index, width))
        row = f.call("i64", "touch", [context, address, lane, site, mine, width, flags])
        f.store(row, rows, f.mul(index, 8))
        start = f.binary("shl", number_of(f, address), WINDOW_BITS)
        f.store(f.sub(address, start), offsets, f.mul(index, 8))
    with unless_uncounted(f, flags):
        f.call("void", "count_by_array", [context, rows, offsets, active, site, width, flags])
    f.ret()
    return f


def count_by_array() -> FunctionBuilder:
    """Count a request whose lanes touch any arrays: it belongs to the first lane's; row 0 is not counted."""
    f = FunctionBuilder(
        "count_by_array",
        "void",
        [
            ("ptr", "context"),
            ("ptr", "rows"),
            ("ptr", "offsets"),
            ("i32", "active"),
            ("i32", "site"),
            ("i64", "width"),
            ("i32", "flags"),
        ],
    )
    context, rows, offsets, active, site, width, flags = f.arguments.values()
    rest, requests = f.alloca("i32"), f.alloca("i64")
    every = f.load(vector("i64"), rows, align=64)
    f.store(f.and_(active, f.to_mask(f.icmp("ne", every, 0))), rest)
    f.store(integer(1, "i64"), requests)
    with f.until_empty(rest) as left:
        row = f.load("i64", rows, f.mul(widen(f, f.lowest_bit(left)), 8))
        same = f.and_(left, f.to_mask(f.icmp("eq", every, f.splat(row))))
        f.call("void", "count", [context, offsets, same, site, row, width, flags, f.load("i64", requests)])
        f.store(integer(0, "i64"), requests)
        f.store(f.and_(left, f.not_(same)), rest)
    f.ret()
    return f


def load_uniform() -> FunctionBuilder:
    """A load of an array whose lanes all read one address; one element comes back."""
    load = UniformLoad("load_uniform")
    f, context, active, width = load.f, load.context, load.active, load.width
    number = number_of(f, load.address)
    known = f.icmp("ult", number, get(f, context, Slot.ARRAY_COUNT))
    number = f.select(known, number, integer(0, "i64"))
    record = array_record(f, context, number)
    offset = f.sub(load.address, f.binary("shl", number, WINDOW_BITS))
    bad = outside(f, offset, width, integer(0, "i64"), field_of(f, record, ArrayField.SIZE, "i64"))
    bad = f.or_(bad, f.icmp("ne", f.and_(offset, f.sub(width, 1)), 0))
    for field in (ArrayField.WRITTEN, ArrayField.WRITER, ArrayField.READER):
        bad = f.or_(bad, exists(f, field_of(f, record, field)))
    load.require_not(bad)
    copy_bytes(f, load.data, f.at(field_of(f, record, ArrayField.BASE), offset), width)
    with unless_uncounted(f, load.flags):
        one = integer(1, "i64")
        threads = widen(f, f.popcount(active))
        add_to_tally(f, tally_of(f, context, load.site, number), one, threads, one, one, width)
    return load.end()


def careful_uniform() -> FunctionBuilder:
    """The same lane by lane, for arrays and shared memory."""
    arguments = [*UNIFORM_ARGUMENTS[:3], ("i32", "site"), ("i64", "width"), ("i32", "flags")]
    f = FunctionBuilder("careful_uniform", "void", arguments)
    context, address, active, site, width, flags = f.arguments.values()
    addresses, row = f.alloca(vector("i64"), align=64), f.alloca("i8", BYTES_OF_A_LANE * LANES, 64)
    f.store(f.splat(address), addresses, align=64)
    fill_bytes(f, row, integer(BYTES_OF_A_LANE * LANES, "i64"))
    f.call("void", "careful", [context, addresses, active, site, row, width, flags])
    first = f.mul(widen(f, f.lowest_bit(active)), width)
    copy_bytes(f, get(f, context, Slot.DATA, "ptr"), f.at(row, first), width)
    f.ret()
    return f
