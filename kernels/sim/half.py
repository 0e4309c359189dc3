"""Half precision as LLVM IR: f16 and bf16, alone or as a pair in 32 bits, for one value or the lanes of a warp.

A half is held as the integer of its bits. Every operation works on doubles and rounds once: products and sums of two
halves come out of double precision so exact that this is the correct rounding, and fused multiply-adds are rounded to
odd there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .conversion import flush as flush_single
from .conversion import like, min_max, to_integer, to_integral, two_sum
from .ir import FunctionBuilder, Value, integer, real
from .isa import half_of_nan
from .ptx import Instruction
from .types import TYPES, ScalarType


@dataclass(frozen=True)
class Format:
    """A floating-point format of 16 bits."""

    precision: int  # bits of the significand, the hidden one included
    least: int  # exponent of the smallest normal number

    @property
    def infinity(self) -> int:
        return 0x7FFF >> (self.precision - 1) << (self.precision - 1)


FORMATS = {"f16": Format(11, -14), "bf16": Format(8, -126)}

#: What GPUs make of every NaN.
NAN = 0x7FFF


#: Operations through the C library: written for one value only.
THROUGH_LIBM = {"ex2": "exp2", "tanh": "tanh"}


def is_half(ins: Instruction) -> bool:
    return any(t.is_half for t in ins.types)


def emit(f: FunctionBuilder, ins: Instruction, sources: Sequence[Value]) -> Value:
    """The result of an instruction that has a half among its types."""
    to = ins.types[0]
    if ins.opcode == "cvt":
        return _convert(f, ins, sources)
    if not ins.type.is_pair:
        return _single(f, ins, ins.type, to, sources)
    element = ins.type.element
    result = to.element if to.is_pair else TYPES[f"{to.kind}16"]
    parts = [_single(f, ins, element, result, [half_of(f, s, i) for s in sources]) for i in (0, 1)]
    return _join(f, *parts)


def to_double(f: FunctionBuilder, kind: ScalarType, x: Value) -> Value:
    """The value of a half."""
    form = FORMATS[kind.name]
    wide = f.resize(x, like(x, "i64"))
    magnitude = f.binary("shl", f.and_(wide, 0x7FFF), 53 - form.precision)
    bias = (1 << (15 - form.precision)) - 1  # of the format's exponent
    value = f.binary(
        "fmul", f.cast("bitcast", magnitude, like(x, "double")), real(2.0 ** (1023 - bias), like(x, "double"))
    )
    infinite = f.icmp("eq", f.and_(x, 0x7FFF), form.infinity)
    value = f.select(infinite, real(float("inf"), value.type), value)
    value = f.select(f.icmp("ugt", f.and_(x, 0x7FFF), form.infinity), real(float("nan"), value.type), value)
    sign = f.binary("shl", f.and_(wide, 0x8000), 48)
    return f.cast("bitcast", f.or_(f.cast("bitcast", value, wide.type), sign), value.type)


def from_double(f: FunctionBuilder, kind: ScalarType, x: Value, direction: str = "rn", nan: int = NAN) -> Value:
    """A double rounded to a half; every NaN becomes the one that GPUs write."""
    form = FORMATS[kind.name]
    i64, fraction = like(x, "i64"), form.precision - 1
    bits = f.cast("bitcast", x, i64)
    negative = f.icmp("slt", bits, 0)
    size = f.intrinsic("fabs", x)
    exponent = f.binary("lshr", f.cast("bitcast", size, i64), 52)
    exponent = f.intrinsic("umax", exponent, integer(1023 + form.least, i64))
    # In units of the last place the number is below 2**precision: round it to an integer.
    unit = f.binary("shl", f.sub(integer(2046 + fraction, i64), f.intrinsic("umin", exponent, integer(2046, i64))), 52)
    scaled = f.binary("fmul", size, f.cast("bitcast", unit, x.type))
    rounded, limit = _round(f, scaled, direction, negative, form)
    count = f.sub(f.cast("bitcast", f.binary("fadd", rounded, real(2.0**52, x.type)), i64), 0x433 << 52)
    code = f.add(f.binary("shl", f.sub(exponent, 1022 + form.least), fraction), f.sub(count, 1 << fraction))
    code = f.intrinsic("umin", code, limit)
    code = f.select(f.fcmp("oeq", size, real(float("inf"), x.type)), integer(form.infinity, i64), code)
    code = f.or_(code, f.and_(f.binary("lshr", bits, 48), 0x8000))
    code = f.select(f.fcmp("uno", x, x), integer(nan, i64), code)
    return f.resize(code, like(x, "i16"))


def half_of(f: FunctionBuilder, pair: Value, which: int) -> Value:
    """The low (0) or high (1) half of a pair."""
    return f.resize(f.binary("lshr", pair, 16 * which), like(pair, "i16"))


def add(f: FunctionBuilder, kind: ScalarType, a: Value, b: Value) -> Value:
    """The sum of two halves, or of two pairs."""
    if kind.is_pair:
        low, high = (add(f, kind.element, half_of(f, a, i), half_of(f, b, i)) for i in (0, 1))
        return _join(f, low, high)
    return from_double(f, kind, f.binary("fadd", to_double(f, kind, a), to_double(f, kind, b)))


# -- pieces ----------------------------------------------------------------------------------------


def _join(f: FunctionBuilder, low: Value, high: Value) -> Value:
    i32 = like(low, "i32")
    return f.or_(f.resize(low, i32), f.binary("shl", f.resize(high, i32), 16))


def _round(f: FunctionBuilder, x: Value, direction: str, negative: Value, form: Format) -> tuple[Value, Value]:
    """A positive number as an integer, and the code that too large numbers get."""
    i64 = like(x, "i64")
    infinity, largest = integer(form.infinity, i64), integer(form.infinity - 1, i64)
    if direction == "rn":
        return f.intrinsic("roundeven", x), infinity
    if direction == "rz":
        return f.intrinsic("floor", x), largest
    below, above = (f.intrinsic("floor", x), largest), (f.intrinsic("ceil", x), infinity)
    if direction == "rp":
        below, above = above, below
    return f.select(negative, above[0], below[0]), f.select(negative, above[1], below[1])


def flush(f: FunctionBuilder, kind: ScalarType, x: Value) -> Value:
    """A half's subnormals, as doubles, to zero of the same sign."""
    tiny = f.fcmp("olt", f.intrinsic("fabs", x), real(2.0 ** FORMATS[kind.name].least, x.type))
    return f.select(tiny, f.intrinsic("copysign", real(0.0, x.type), x), x)


def limited(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
    """.sat: to [0, 1], NaN to 0. .relu: to 0 and above, NaN stays."""
    zero, one = real(0.0, x.type), real(1.0, x.type)
    if ins.has("sat"):
        return f.select(f.fcmp("ogt", x, zero), f.select(f.fcmp("olt", x, one), x, one), zero)
    return f.select(f.fcmp("ole", x, zero), zero, x) if ins.has("relu") else x


def _single(f: FunctionBuilder, ins: Instruction, kind: ScalarType, to: ScalarType, sources: Sequence[Value]) -> Value:
    """An operation on halves of one kind."""
    if ins.opcode in ("neg", "abs"):
        (x,) = sources
        result = f.xor(x, 0x8000) if ins.opcode == "neg" else f.and_(x, 0x7FFF)
        missing = f.icmp("ugt", f.and_(x, 0x7FFF), FORMATS[kind.name].infinity)
        return f.select(missing, integer(NAN, x.type), result)
    values = [to_double(f, kind, s) for s in sources]
    if ins.has("ftz"):
        values = [flush(f, kind, v) for v in values]
    if ins.opcode == "set":
        found = f.fcmp(comparison(ins), *values)
        yes = _one(to) if to.is_half else -1
        return f.select(found, integer(yes, like(sources[0], "i16")), integer(0, like(sources[0], "i16")))
    if ins.opcode in THROUGH_LIBM:
        result = f.call("double", THROUGH_LIBM[ins.opcode], values)
    else:
        result = _OPERATIONS[ins.opcode](f, ins, *values)
    result = limited(f, ins, result)
    if ins.has("ftz"):
        result = flush(f, kind, result)
    return from_double(f, kind, result)


def _one(kind: ScalarType) -> int:
    """The bits of 1.0."""
    form = FORMATS[kind.name]
    return (1 - form.least) << (form.precision - 1)


def comparison(ins: Instruction) -> str:
    """LLVM's name of setp's or set's comparison."""
    name = next(m for m in ins.modifiers if m in _COMPARISONS)
    return _COMPARISONS[name]


_COMPARISONS = {c: f"o{c}" for c in ("eq", "lt", "le", "gt", "ge")} | {"ne": "one", "num": "ord", "nan": "uno"}
_COMPARISONS |= {f"{c}u": f"u{c}" for c in ("eq", "lt", "le", "gt", "ge")} | {"neu": "une"}


def _odd_sum(f: FunctionBuilder, a: Value, b: Value) -> Value:
    """A sum rounded to odd: what is lost leaves its trace in the last bit, so that rounding it again stays right."""
    total, error = two_sum(f, a, b)
    bits, i64 = f.cast("bitcast", total, like(a, "i64")), like(a, "i64")
    outward = f.icmp("sge", f.xor(bits, f.cast("bitcast", error, i64)), 0)
    step = f.select(outward, integer(1, i64), integer(-1, i64))
    needed = f.and_(f.fcmp("one", error, real(0.0, a.type)), f.icmp("eq", f.and_(bits, 1), 0))
    return f.cast("bitcast", f.select(needed, f.add(bits, step), bits), a.type)


_OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": lambda f, ins, a, b: f.binary("fadd", a, b),
    "sub": lambda f, ins, a, b: f.binary("fsub", a, b),
    "mul": lambda f, ins, a, b: f.binary("fmul", a, b),
    "fma": lambda f, ins, a, b, c: _odd_sum(f, f.binary("fmul", a, b), c),  # the product is exact
    "min": min_max,
    "max": min_max,
}


# -- conversions -----------------------------------------------------------------------------------


def _convert(f: FunctionBuilder, ins: Instruction, sources: Sequence[Value]) -> Value:
    to, source = ins.types[-2:]
    if to.is_pair:  # of two numbers the first goes into the high half
        high, low = (_convert_one(f, ins, to.element, source, s) for s in sources)
        return _join(f, low, high)
    return _convert_one(f, ins, to, source, sources[0])


def _convert_one(f: FunctionBuilder, ins: Instruction, to: ScalarType, source: ScalarType, x: Value) -> Value:
    double = like(x, "double")
    if source.is_half:
        value = to_double(f, source, x)
    elif source.is_float:
        value = f.cast("fpext", flush_single(f, x) if ins.has("ftz") else x, double)
    else:
        value = f.cast("sitofp" if source.is_signed else "uitofp", _sticky(f, source, x), double)
    value = to_integral(f, ins, value)
    if to.is_half:
        direction = next((m for m in ("rz", "rm", "rp") if ins.has(m)), "rn")
        return from_double(f, to, limited(f, ins, value), direction, half_of_nan(to, source))
    if to.is_float:
        narrow = f.cast("fptrunc", limited(f, ins, value), like(x, "float")) if to.bits == 32 else value
        return flush_single(f, narrow) if ins.has("ftz") else narrow
    return to_integer(f, value, to, source)


def _sticky(f: FunctionBuilder, source: ScalarType, x: Value) -> Value:
    """An integer of 64 bits in 53: what is cut off leaves its trace in the last bit, so that rounding stays right."""
    if source.bits < 64:
        return x
    high = f.binary("ashr" if source.is_signed else "lshr", x, 53)
    small = f.or_(f.icmp("eq", high, 0), f.icmp("eq", high, -1) if source.is_signed else f.icmp("eq", high, 0))
    rest = f.and_(x, 0x7FF)
    trace = f.select(f.icmp("ne", rest, 0), integer(0x800, x.type), integer(0, x.type))
    return f.select(small, x, f.or_(f.and_(x, ~0x7FF), trace))
