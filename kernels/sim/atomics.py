"""Atomic read-modify-writes in compiled code: one function for each operation and type, compiled when first needed.

The lanes of a warp take turns in their order, so results are the same on every run. Operands come, and old values
go, through the context's DATA: a row of the first operand, then one of the second.
"""

from __future__ import annotations

from collections.abc import Callable

from . import half
from .addresses import WINDOW_BITS
from .arithmetic import llvm_type
from .context import ArrayField, Slot, get
from .conversion import flush
from .faults import ATOMIC, MISALIGNED, NOBODY, OUT_OF_BOUNDS, READ_WRITE, SEVERAL, UNINITIALISED, WRITE_WRITE
from .ir import LANES, FunctionBuilder, Value, bits_of, integer, module_text, vector
from .library import (
    OVERWRITES,
    array_record,
    exists,
    field_of,
    foreign,
    granules,
    number_of,
    outside,
    scan,
    split_access,
    widen,
)
from .ptx import Instruction
from .types import ScalarType

#: Where the row of second operands lies in DATA.
SECOND_AT = 8 * LANES

_ARGUMENTS = [
    ("ptr", "context"),
    (vector("i64"), "addresses"),
    ("i64", "offset"),
    ("i32", "active"),
    ("i32", "access"),
]


Operation = Callable[[FunctionBuilder, ScalarType, Value, Value, Value], Value]


def _add(f: FunctionBuilder, kind: ScalarType, old: Value, b: Value, c: Value) -> Value:
    """In single precision, GPUs flush subnormals of updates in global memory."""
    if kind.is_half:
        return half.add(f, kind, old, b)
    if not kind.is_float:
        return f.add(old, b)
    if kind.bits == 64:
        return f.binary("fadd", old, b)
    return flush(f, f.binary("fadd", flush(f, old), flush(f, b)))


def _extreme(op: str) -> Operation:
    return lambda f, kind, old, b, c: f.intrinsic(("s" if kind.is_signed else "u") + op, old, b)


def _increment(f: FunctionBuilder, kind: ScalarType, old: Value, b: Value, c: Value) -> Value:
    return f.select(f.icmp("uge", old, b), integer(0, old.type), f.add(old, 1))


def _decrement(f: FunctionBuilder, kind: ScalarType, old: Value, b: Value, c: Value) -> Value:
    return f.select(f.or_(f.icmp("eq", old, 0), f.icmp("ugt", old, b)), b, f.sub(old, 1))


#: New contents of the memory from the old and the operands.
OPERATIONS: dict[str, Operation] = {
    "add": _add,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "and": lambda f, kind, old, b, c: f.and_(old, b),
    "or": lambda f, kind, old, b, c: f.or_(old, b),
    "xor": lambda f, kind, old, b, c: f.xor(old, b),
    "inc": _increment,
    "dec": _decrement,
    "exch": lambda f, kind, old, b, c: b,
    "cas": lambda f, kind, old, b, c: f.select(f.icmp("eq", old, b), c, old),
}


def operation_of(ins: Instruction) -> str:
    """The operation of an atom or red, such as "add"."""
    return next(m for m in ins.modifiers if m in OPERATIONS)


def name_of(ins: Instruction) -> str:
    """The function that executes an atom or red."""
    return f"atomic.{operation_of(ins)}.{ins.type.name}"


def atomic_module(operation: str, kind: ScalarType) -> str:
    """Function atomic.OPERATION.TYPE."""
    return module_text([_reach(), _atomic(operation, kind)])


def _atomic(operation: str, kind: ScalarType) -> FunctionBuilder:
    f = FunctionBuilder(f"atomic.{operation}.{kind.name}", "void", _ARGUMENTS)
    context, addresses, offset, active, access = f.arguments.values()
    data = get(f, context, Slot.DATA, "ptr")
    element = llvm_type(kind)
    size = bits_of(element) // 8
    where = f.alloca(vector("i64"), align=64)
    numbers, offsets = f.alloca("i64", LANES, 64), f.alloca("i64", LANES, 64)
    f.store(f.add(addresses, f.splat(offset)), where, align=64)
    f.store(integer(0, vector("i64")), numbers, align=64)
    with f.each_lane(active) as lane:
        index = widen(f, lane)
        address = f.load("i64", where, f.mul(index, 8))
        number = number_of(f, address)
        f.store(f.sub(address, f.binary("shl", number, WINDOW_BITS)), offsets, f.mul(index, 8))
        first, second = f.at(data, f.mul(index, size)), f.at(data, f.add(f.mul(index, size), SECOND_AT))
        memory = f.call("ptr", "reach", [context, address, lane, access, integer(size, "i64")])
        found, lost, after = f.label("found"), f.label("lost"), f.label("after")
        f.branch(exists(f, memory), found, lost)
        f.place(found)
        old = f.load(element, memory, align=1)
        new = OPERATIONS[operation](f, kind, old, f.load(element, first, align=1), f.load(element, second, align=1))
        f.store(new, memory, align=1)
        f.store(old, first, align=1)
        f.store(number, numbers, f.mul(index, 8))
        f.jump(after)
        f.place(lost)
        f.store(integer(0, f"i{8 * size}"), first, align=1)
        f.place(after)
    number, _ = split_access(f, access)
    f.call("void", "count_by_array", [context, numbers, offsets, active, number, integer(size, "i64")])
    f.ret()
    return f


def _reach() -> FunctionBuilder:
    """The memory that one lane updates, after all checks; null where they forbid it.

    An update races with loads and stores of other threads, not with their updates.
    """
    arguments = [("ptr", "context"), ("i64", "address"), ("i32", "lane"), ("i32", "access"), ("i64", "width")]
    f = FunctionBuilder("reach", "ptr", arguments, "internal")
    context, address, lane, access, width = f.arguments.values()
    access, flags = split_access(f, access)
    number = number_of(f, address)
    offset = f.sub(address, f.binary("shl", number, WINDOW_BITS))
    me = f.add(get(f, context, Slot.GLOBAL_THREAD, "i32"), lane)
    null = Value("ptr", "null")

    def report(code: int, row: Value, other: Value | None = None) -> None:
        f.call("void", "record", [context, access, integer(code), row, lane, address, other or integer(NOBODY)])

    known = f.and_(f.icmp("ult", number, get(f, context, Slot.ARRAY_COUNT)), f.icmp("ne", number, 0))
    number = f.select(known, number, integer(0, "i64"))
    record = array_record(f, context, number)
    with f.when(outside(f, offset, width, field_of(f, record, ArrayField.SIZE, "i64")), unlikely=True):
        report(OUT_OF_BOUNDS, number)
        f.ret(null)
    with f.when(f.icmp("ne", f.and_(offset, f.sub(width, 1)), 0), unlikely=True):
        report(MISALIGNED, number)
        f.ret(null)
    shift = get(f, context, Slot.GRANULE_SHIFT)
    first, count = f.binary("lshr", offset, shift), f.binary("lshr", width, shift)
    written = field_of(f, record, ArrayField.WRITTEN)
    with f.when(exists(f, written)):
        undefined, _ = scan(f, written, first, count, "i8", lambda tag: f.icmp("eq", tag, 0))
        with f.when(f.and_(undefined, f.icmp("eq", f.and_(flags, OVERWRITES), 0))):
            report(UNINITIALISED, number)
        with granules(f, first, count) as g:
            f.store(integer(1, "i8"), written, g)
    reader = field_of(f, record, ArrayField.READER)
    with f.when(exists(f, reader)):
        found, other = scan(f, reader, first, count, "i32", lambda tag: foreign(f, tag, me))
        with f.when(found):
            report(READ_WRITE, number, other)
    writer = field_of(f, record, ArrayField.WRITER)
    with f.when(exists(f, writer)):
        found, other = scan(
            f, writer, first, count, "i32", lambda tag: f.and_(foreign(f, tag, me), f.icmp("sgt", tag, 0))
        )
        with f.when(found):
            report(WRITE_WRITE, number, other)
        with granules(f, first, count) as g:
            where = f.at(writer, f.mul(g, 4))
            tag = f.load("i32", where)
            mine = f.or_(me, ATOMIC)
            alone = f.or_(f.icmp("eq", tag, NOBODY), f.icmp("eq", tag, mine))
            updated = f.select(alone, mine, integer(SEVERAL))
            # What was stored plainly stays so marked: the next thread's update races with it.
            f.store(f.select(f.icmp("sgt", tag, 0), tag, updated), where)
    f.ret(f.at(field_of(f, record, ArrayField.BASE), offset))
    return f
