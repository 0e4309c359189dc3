"""Atomic read-modify-writes in compiled code: one function for each operation and type, compiled when first needed.

The lanes of a warp take turns in their order, so results are the same on every run. Operands come, and old values
go, through the context's DATA: a row of the first operand, then one of the second.
"""

from __future__ import annotations

from collections.abc import Callable

from . import half
from .access import exists, number_of, row_of, split_access, widen
from .addresses import SHARED_WINDOW, WINDOW_BITS
from .arithmetic import llvm_type
from .context import Slot, get
from .conversion import flush
from .ir import LANES, FunctionBuilder, Value, bits_of, integer, module_text, vector
from .ptx import Instruction
from .types import ScalarType
from .warp_access import ROW_ARGUMENTS

#: Where the row of second operands lies in DATA.
SECOND_AT = 8 * LANES

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
    return module_text([_atomic(operation, kind)])


def _atomic(operation: str, kind: ScalarType) -> FunctionBuilder:
    f = FunctionBuilder(f"atomic.{operation}.{kind.name}", "void", ROW_ARGUMENTS)
    context, addresses, offset, active, access = f.arguments.values()
    data = get(f, context, Slot.DATA, "ptr")
    element = llvm_type(kind)
    size = bits_of(element) // 8
    where = f.alloca(vector("i64"), align=64)
    rows, offsets = f.alloca("i64", LANES, 64), f.alloca("i64", LANES, 64)
    site, flags = split_access(f, access)
    f.store(f.add(addresses, f.splat(offset)), where, align=64)
    f.store(integer(0, vector("i64")), rows, align=64)
    with f.each_lane(active) as lane:
        index = widen(f, lane)
        address = f.load("i64", where, f.mul(index, 8))
        number = number_of(f, address)
        f.store(f.sub(address, f.binary("shl", number, WINDOW_BITS)), offsets, f.mul(index, 8))
        first, second = f.at(data, f.mul(index, size)), f.at(data, f.add(f.mul(index, size), SECOND_AT))
        memory = f.call("ptr", "reach", [context, address, lane, site, integer(size, "i64"), flags])
        found, lost, after = f.label("found"), f.label("lost"), f.label("after")
        f.branch(exists(f, memory), found, lost)
        f.place(found)
        old = f.load(element, memory, align=1)
        operands = f.load(element, first, align=1), f.load(element, second, align=1)
        new = OPERATIONS[operation](f, kind, old, *operands)
        if operation == "add" and kind.name == "f32":  # shared memory keeps subnormals
            is_shared = f.icmp("eq", number, SHARED_WINDOW)
            new = f.select(is_shared, f.binary("fadd", old, operands[0]), new)
        f.store(new, memory, align=1)
        f.store(old, first, align=1)
        f.store(row_of(f, context, number), rows, f.mul(index, 8))
        f.jump(after)
        f.place(lost)
        f.store(integer(0, f"i{8 * size}"), first, align=1)
        f.place(after)
    f.call("void", "count_by_array", [context, rows, offsets, active, site, integer(size, "i64"), flags])
    f.ret()
    return f
