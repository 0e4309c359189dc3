"""Pieces that the code of memory accesses is made of: flags, records, tallies."""

from __future__ import annotations

from .addresses import HALF_WINDOW, SHARED_WINDOW, WINDOW_BITS
from .context import ACCESS_FIELDS, ARRAY_FIELDS, LOCAL_ROW, MEMORY_ROWS, SHARED_ROW, AccessField, ArrayField, Slot, get
from .ir import FunctionBuilder, Value, integer

#: Flags of an access. Compiled code hands over the number of its site, and the flags above it. The last four are an
#: update's; TURNS: its lanes are not joined (see updates.Manner).
STORE, UNCOUNTED, GUESS, OVERWRITES, TURNS, SWAPS, LOOPS, UPDATE = (1 << n for n in range(8))
FLAG_SHIFT = 24


def widen(f: FunctionBuilder, a: Value) -> Value:
    return f.cast("zext", a, "i64")


def bit(f: FunctionBuilder, lane: Value) -> Value:
    """The mask of one lane."""
    return f.binary("shl", integer(1), lane)


def is_null(f: FunctionBuilder, pointer: Value) -> Value:
    return f.value("i1", f"icmp eq {pointer}, null")


def exists(f: FunctionBuilder, pointer: Value) -> Value:
    return f.value("i1", f"icmp ne {pointer}, null")


def copy_bytes(f: FunctionBuilder, to: Value, source: Value, size: Value) -> None:
    f.call("void", "llvm.memcpy.p0.p0.i64", [to, source, size, Value("i1", "false")])


def fill_bytes(f: FunctionBuilder, pointer: Value, size: Value, byte: int = 0) -> None:
    f.call("void", "llvm.memset.p0.i64", [pointer, integer(byte, "i8"), size, Value("i1", "false")])


def split_access(f: FunctionBuilder, access: Value) -> tuple[Value, Value]:
    """Site and flags of an access."""
    return f.and_(access, (1 << FLAG_SHIFT) - 1), f.binary("lshr", access, FLAG_SHIFT)


def unless_uncounted(f: FunctionBuilder, flags: Value):
    return f.when(f.icmp("eq", f.and_(flags, UNCOUNTED), 0))


# -- arrays ----------------------------------------------------------------------------------------


def number_of(f: FunctionBuilder, address: Value) -> Value:
    """The number of the window that an address lies in."""
    return f.binary("lshr", f.add(address, HALF_WINDOW), WINDOW_BITS)


def array_record(f: FunctionBuilder, context: Value, row: Value) -> Value:
    """Pointer to an array's record; the row is i64."""
    return f.at(get(f, context, Slot.ARRAYS, "ptr"), f.mul(row, 8 * ARRAY_FIELDS))


def field_of(f: FunctionBuilder, record: Value, field: ArrayField, type_name: str = "ptr") -> Value:
    return f.load(type_name, record, 8 * field)


def local_row(f: FunctionBuilder, context: Value) -> Value:
    """Local memory's number among the arrays."""
    return f.add(get(f, context, Slot.ARRAY_COUNT), LOCAL_ROW)


def shared_row(f: FunctionBuilder, context: Value) -> Value:
    """Shared memory's number among the arrays."""
    return f.add(get(f, context, Slot.ARRAY_COUNT), SHARED_ROW)


def row_of(f: FunctionBuilder, context: Value, number: Value) -> Value:
    """The row, in tables by array, of the window with a number; 0 for one that no array has."""
    known = f.and_(f.icmp("ult", number, get(f, context, Slot.ARRAY_COUNT)), f.icmp("ne", number, 0))
    row = f.select(known, number, integer(0, "i64"))
    return f.select(f.icmp("eq", number, SHARED_WINDOW), shared_row(f, context), row)


def outside(f: FunctionBuilder, offset: Value, width: Value, begin: Value, end: Value) -> Value:
    """Whether [offset, offset + width) leaves [begin, end)."""
    return f.or_(f.icmp("slt", offset, begin), f.icmp("sgt", f.add(offset, width), end))


def extent(f: FunctionBuilder, context: Value, site: Value) -> tuple[Value, Value]:
    """Begin and end of the shared array that a site is meant for, as i64."""
    place = f.at(get(f, context, Slot.EXTENTS, "ptr"), f.mul(widen(f, site), 16))
    return f.load("i64", place), f.load("i64", place, 8)


# -- tallies ---------------------------------------------------------------------------------------


def tally_of(f: FunctionBuilder, context: Value, site: Value, row: Value) -> Value:
    """Pointer to the AccessField record of a site and an array."""
    rows = f.add(get(f, context, Slot.ARRAY_COUNT), MEMORY_ROWS)
    index = f.add(f.mul(widen(f, site), rows), row)
    return f.at(get(f, context, Slot.ACCESSES, "ptr"), f.mul(index, 8 * ACCESS_FIELDS))


def add_to_tally(
    f: FunctionBuilder, record: Value, requests: Value, threads: Value, sectors: Value, ideal: Value, needed: Value
) -> None:
    for field, value in zip(AccessField, (requests, threads, sectors, ideal, needed)):
        f.increment(record, 8 * field, value)


def ideal_sectors(f: FunctionBuilder, needed: Value) -> Value:
    return f.binary("lshr", f.add(needed, 31), 5)
