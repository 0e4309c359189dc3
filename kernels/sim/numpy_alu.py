"""Arithmetic of PTX in NumPy, a warp at a time: the reference for the compiled executor.

Every function takes and returns arrays of 32 lanes in the instruction's own types. Written to be obviously
right, not fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from . import numpy_half
from .isa import half_of_nan, integer_of_nan
from .ptx import Instruction
from .types import TYPES, ScalarType, bits_type

Lanes = np.ndarray
F64 = np.float64

COMPARISONS: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def compare(name: str, a: Lanes, b: Lanes, kind: ScalarType | None = None) -> Lanes:
    """setp's comparison: the plain forms are false where an operand is NaN, the forms in -u are true.

    kind   the operands' type where they are halves, which are held as bits
    """
    if kind and kind.is_half:
        a, b = numpy_half.to_double(kind, a), numpy_half.to_double(kind, b)
    if name in ("num", "nan"):
        unordered = np.isnan(a) | np.isnan(b)
        return unordered if name == "nan" else ~unordered
    ordered = COMPARISONS[name[:2]](a, b)
    if a.dtype.kind != "f":
        return ordered
    unordered = np.isnan(a) | np.isnan(b)
    return ordered | unordered if len(name) == 3 else ordered & ~unordered


def evaluate(ins: Instruction, s: list[Lanes]) -> Lanes:
    """The result of an arithmetic instruction on its sources."""
    kind = ins.type
    if ins.opcode == "cvt":
        return _convert_halves(ins, s) if any(t.is_half for t in ins.types) else convert(ins, s[0])
    if kind.is_half:
        return numpy_half.evaluate(ins, s, compare)
    if kind.is_float and ins.opcode in FLOAT:
        if ins.has("ftz"):
            s = [flush(x) if x.dtype.kind == "f" else x for x in s]
        result = FLOAT[ins.opcode](ins, *s)
        if ins.has("ftz"):
            result = flush(result)
        return saturate(result) if ins.has("sat") else result
    return INTEGER[ins.opcode](ins, *s)


def flush(x: Lanes) -> Lanes:
    """Subnormals to zero of the same sign."""
    if x.dtype != np.float32:
        return x
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def saturate(x: Lanes) -> Lanes:
    """Clamp to [0, 1]; NaN gives +0."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.where(x > zero, np.where(x < one, x, one), zero)


# -- floats ------------------------------------------------------------------------------------


def _direction(ins: Instruction) -> str:
    return next((m for m in ("rz", "rm", "rp") if ins.has(m)), "rn")


def round_to_single(high: Lanes, low: Lanes) -> Lanes:
    """The float32 nearest to the exact sum high + low, where |low| is at most half an ulp of the float64 `high`."""
    near = high.astype(np.float32)
    # Rounding twice is wrong only if `high` is a tie of two float32; then `low` decides.
    below = np.nextafter(near, np.float32(-np.inf)).astype(F64)
    above = np.nextafter(near, np.float32(np.inf)).astype(F64)
    wide = near.astype(F64)
    tie_up = (high - wide == above - high) & (low > 0)
    tie_down = (wide - high == high - below) & (low < 0)
    near = np.where(tie_up, above.astype(np.float32), near)
    return np.where(tie_down, below.astype(np.float32), near)


def two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """a + b as a rounded sum and its exact error (Knuth)."""
    total = a + b
    b_part = total - a
    error = (a - (total - b_part)) + (b - b_part)
    return total, np.where(np.isfinite(total), error, 0.0)


#: What an operation on finite numbers gives exactly; None where that is no number.
Exact = Callable[..., Fraction | None]


def _directed(ins: Instruction, exact: Exact, near: Lanes, *s: Lanes) -> Lanes:
    """The nearest results, or those in the instruction's direction."""
    direction = _direction(ins)
    if direction == "rn":
        return near
    rows = zip(near.tolist(), *(x.tolist() for x in s))
    return np.array([_in_direction(ins, exact, direction, near.dtype, n, row) for n, *row in rows], near.dtype)


def _in_direction(
    ins: Instruction, exact: Exact, direction: str, dtype: np.dtype, near: float, row: list[float]
) -> float:
    result = exact(*map(Fraction, row)) if all(map(math.isfinite, row)) else None
    if result is None:
        return near
    if result:
        return rounded(result, dtype, direction)
    if direction == "rm" and ins.opcode in ("add", "sub", "fma", "mad"):  # -0 from unlike signs
        first = math.prod(math.copysign(1, x) for x in row[:-1])
        last = math.copysign(1, row[-1]) * (-1 if ins.opcode == "sub" else 1)
        return -0.0 if first != last else near
    return near


def rounded(exact: Fraction, dtype: np.dtype, direction: str) -> float:
    """The float of a type next to a number that is not 0, in a direction; doubles hold every float32."""
    info = np.finfo(dtype)
    size, negative = abs(exact), exact < 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - info.nmant)
    whole, rest = divmod(size, unit)
    outward = direction == ("rm" if negative else "rp")
    up = (outward and rest > 0) or (direction == "rn" and (rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1)))
    value = (whole + up) * unit
    if value > Fraction(float(info.max)):
        return math.copysign(math.inf if outward or direction == "rn" else float(info.max), -negative)
    return math.copysign(float(value), -negative)


def _fma(ins: Instruction, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    if a.dtype == np.float32:
        near = round_to_single(*two_sum(a.astype(F64) * b.astype(F64), c.astype(F64)))  # the product is exact
    else:
        near = np.array([_fma64(float(x), float(y), float(z)) for x, y, z in zip(a, b, c)], F64)
    return _directed(ins, lambda x, y, z: x * y + z, near, a, b, c)


def _fma64(a: float, b: float, c: float) -> float:
    """Fused multiply-add in double precision, through exact rational arithmetic."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(F64(a) * F64(b) + F64(c))
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:  # -0 only where both parts are -0
        negative = math.copysign(1.0, a) * math.copysign(1.0, b) < 0 and math.copysign(1.0, c) < 0
        return -0.0 if negative and c == 0 else 0.0
    try:
        return float(exact)  # correctly rounded
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _add(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    return _directed(ins, lambda x, y: x + y, a + b, a, b)


def _sub(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    return _directed(ins, lambda x, y: x - y, a - b, a, b)


def _mul(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    return _directed(ins, lambda x, y: x * y, a * b, a, b)


def _divide(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    """div.approx multiplies by a reciprocal, which is flushed to 0 where the divisor is above 2**126."""
    if ins.has("approx") and ins.opcode == "div":
        huge = np.isfinite(b) & (np.abs(b) > 2.0**126)
        return np.where(huge, a * np.copysign(np.float32(0), b), a / b)
    return _directed(ins, lambda x, y: x / y if y else None, a / b, a, b)


def _root(ins: Instruction, x: Lanes) -> Lanes:
    return _directed(ins, lambda v: _exact_root(v) if v >= 0 else None, np.sqrt(x), x)


def _exact_root(x: Fraction) -> Fraction:
    """A square root to 128 bits; what is cut off leaves its trace in one bit more."""
    shift = 256 + 2 * max(x.denominator.bit_length(), x.numerator.bit_length())
    whole = math.isqrt((x.numerator << shift) // x.denominator)
    remains = whole * whole * x.denominator != x.numerator << shift
    return Fraction(2 * whole + remains, 1 << shift // 2 + 1)


def _min_max(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    least = ins.opcode == "min"
    take_a = (a < b) if least else (a > b)
    equal = a == b  # -0 is less than +0
    take_a |= equal & (np.signbit(a) if least else ~np.signbit(a))
    result = np.where(take_a, a, b)
    result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
    if ins.has("NaN"):
        result = np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), result)
    return result


def _through_double(function: Callable[[Lanes], Lanes]) -> Callable[..., Lanes]:
    def apply(ins: Instruction, x: Lanes) -> Lanes:
        return function(x.astype(F64)).astype(x.dtype)

    return apply


def _testp(ins: Instruction, x: Lanes) -> Lanes:
    tiny = np.finfo(x.dtype).tiny
    tests = {
        "finite": np.isfinite(x), "infinite": np.isinf(x), "number": ~np.isnan(x), "notanumber": np.isnan(x),
        "normal": np.isfinite(x) & ((np.abs(x) >= tiny) | (x == 0)), "subnormal": (np.abs(x) < tiny) & (x != 0),
    }  # fmt: skip
    return next(tests[m] for m in ins.modifiers if m in tests)


def _clear_sign(ins: Instruction, x: Lanes) -> Lanes:
    return np.abs(x)


FLOAT: dict[str, Callable[..., Lanes]] = {
    "add": _add, "sub": _sub, "mul": _mul, "fma": _fma, "mad": _fma,
    "div": _divide,
    "min": _min_max, "max": _min_max,
    "abs": _clear_sign,
    "neg": lambda ins, x: -x,
    "sqrt": _root,
    "rcp": lambda ins, x: _divide(ins, np.ones_like(x), x),
    "rsqrt": _through_double(lambda x: 1.0 / np.sqrt(x)),
    "ex2": _through_double(np.exp2), "lg2": _through_double(np.log2),
    "sin": _through_double(np.sin), "cos": _through_double(np.cos), "tanh": _through_double(np.tanh),
    "copysign": lambda ins, a, b: np.copysign(b, a),
    "testp": _testp,
}  # fmt: skip


# -- integers ----------------------------------------------------------------------------------


def _wide(kind: ScalarType) -> np.dtype:
    return np.dtype(f"{'i' if kind.is_signed else 'u'}{2 * kind.size}")


def _product(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    kind = ins.type
    if ins.has("wide"):
        return a.astype(_wide(kind)) * b.astype(_wide(kind))
    if not ins.has("hi"):
        return a * b
    exact = [(int(x) * int(y)) >> kind.bits for x, y in zip(a, b)]
    return np.array([e & (2**kind.bits - 1) for e in exact], bits_type(kind.bits).dtype).view(kind.dtype)


def _product24(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    def low24(x: int) -> int:
        x &= 0xFFFFFF
        return x - (1 << 24) if ins.type.is_signed and x >> 23 else x

    shift = 16 if ins.has("hi") else 0
    exact = [(low24(int(x)) * low24(int(y))) >> shift for x, y in zip(a, b)]
    return np.array([e & 0xFFFFFFFF for e in exact], np.uint32).view(ins.type.dtype)


def _quotient(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    """Truncated; division by zero gives all ones, as GPUs do."""
    bits = ins.type.bits
    out = []
    for x, y in zip(map(int, a), map(int, b)):
        q = -1 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
        out.append(q & (2**bits - 1))
    return np.array(out, bits_type(bits).dtype).view(ins.type.dtype)


def _remainder(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    """Sign of the dividend; the remainder by zero is all ones."""
    return np.where(b == 0, np.array(-1).astype(a.dtype), a - _quotient(ins, a, b) * b)


def _shift_left(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    bits = ins.type.bits
    return np.where(b >= bits, a.dtype.type(0), a << np.minimum(b, bits - 1).astype(a.dtype))


def _shift_right(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    bits = ins.type.bits
    shifted = a >> np.minimum(b, bits - 1).astype(a.dtype)
    return shifted if ins.type.is_signed else np.where(b >= bits, a.dtype.type(0), shifted)


def _funnel(ins: Instruction, low: Lanes, high: Lanes, by: Lanes) -> Lanes:
    by = by & np.uint32(31) if ins.has("wrap") else np.minimum(by, np.uint32(32))
    both = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    if ins.has("r"):
        return (both >> by.astype(np.uint64)).astype(np.uint32)
    return ((both << by.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def _place(ins: Instruction, position: np.generic, length: np.generic) -> tuple[int, int]:
    """Position and length of a field; of 32-bit fields the hardware looks at the low byte only."""
    if ins.type.bits == 32:
        return int(position) & 0xFF, int(length) & 0xFF
    return min(int(position), 64), min(int(length), 64)


def _extract(ins: Instruction, a: Lanes, position: Lanes, length: Lanes) -> Lanes:
    kind = ins.type
    out = []
    for x, p, n in zip(a, position, length):
        value, p, n = int(x) & (2**kind.bits - 1), *_place(ins, p, n)
        signed = kind.is_signed and n > 0
        sign = (value >> min(p + n - 1, kind.bits - 1)) & 1 if signed else 0
        field = (value >> p) & (2**n - 1) if p < kind.bits else 0
        kept = max(0, min(n, kind.bits - p))
        if sign:
            field |= (2**kind.bits - 1) & ~(2**kept - 1)
        out.append(field & (2**kind.bits - 1))
    return np.array(out, bits_type(kind.bits).dtype).view(kind.dtype)


def _insert(ins: Instruction, a: Lanes, b: Lanes, position: Lanes, length: Lanes) -> Lanes:
    bits = ins.type.bits
    out = []
    for x, y, p, n in zip(a, b, position, length):
        p, n = _place(ins, p, n)
        field = ((2**n - 1) << p) & (2**bits - 1)
        out.append((int(y) & ~field) | ((int(x) << p) & field))
    return np.array(out, ins.type.dtype)


def _find_leading(ins: Instruction, a: Lanes) -> Lanes:
    bits = ins.type.bits
    out = []
    for x in map(int, a):
        value = ~x if x < 0 else x
        found = value.bit_length() - 1
        if ins.has("shiftamt") and found >= 0:
            found = bits - 1 - found
        out.append(found & 0xFFFFFFFF)
    return np.array(out, np.uint32)


def _permute(ins: Instruction, a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
    out = []
    for x, y, s in zip(map(int, a), map(int, b), map(int, selector)):
        pool = [(x >> 8 * i) & 0xFF for i in range(4)] + [(y >> 8 * i) & 0xFF for i in range(4)]
        value = 0
        for i in range(4):
            nibble = (s >> 4 * i) & 0xF
            byte = pool[nibble & 7]
            value |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * i
        out.append(value)
    return np.array(out, np.uint32)


def _lookup3(ins: Instruction, a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
    result = np.zeros_like(a)
    for i in range(8):
        if (int(table[0]) >> i) & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result


def _per_lane(function: Callable[[int, int], int], dtype: np.dtype | None = None) -> Callable[..., Lanes]:
    def apply(ins: Instruction, a: Lanes) -> Lanes:
        return np.array([function(int(x), ins.type.bits) for x in a], dtype or a.dtype)

    return apply


def _reverse(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def carry_chain(ins: Instruction, s: list[Lanes], carry: Lanes) -> tuple[Lanes, Lanes]:
    """Result and carry (or borrow) out of add, sub, mad with .cc and of addc, subc, madc; `carry` comes in."""
    unsigned = bits_type(ins.type.bits).dtype
    if ins.opcode.startswith("mad"):
        s = [_product(ins, s[0], s[1]), s[2]]
    sign = -1 if ins.opcode.startswith("sub") else 1
    a, b = ([int(v) for v in x.view(unsigned)] for x in s)
    totals = [x + sign * (y + int(c)) for x, y, c in zip(a, b, carry)]
    limit = 2**ins.type.bits
    out = [t < 0 or t >= limit for t in totals]
    return np.array([t % limit for t in totals], unsigned), np.array(out, np.uint32)


def _dot_product(ins: Instruction, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """dp4a: four products of bytes; dp2a: two of a half of `a` and a byte of `b`'s low or high half."""
    first, second = ("i" if t.is_signed else "u" for t in ins.types[-2:])
    size = 1 if ins.opcode == "dp4a" else 2
    x = a.view(np.uint32).reshape(-1, 1).view(f"{first}{size}").astype(np.int64)
    y = b.view(np.uint32).reshape(-1, 1).view(f"{second}1").astype(np.int64)
    y = y[:, 2:] if ins.has("hi") else y[:, : x.shape[1]]
    total = (x * y).sum(axis=1) + c.astype(np.int64)
    return (total & 0xFFFFFFFF).astype(np.uint32)


U32 = np.dtype(np.uint32)

INTEGER: dict[str, Callable[..., Lanes]] = {
    "add": lambda ins, a, b: saturating(ins, a, b, 1) if ins.has("sat") else a + b,
    "sub": lambda ins, a, b: saturating(ins, a, b, -1) if ins.has("sat") else a - b,
    "mul": _product, "mad": lambda ins, a, b, c: _product(ins, a, b) + c,
    "dp4a": _dot_product, "dp2a": _dot_product,
    "mul24": _product24, "mad24": lambda ins, a, b, c: _product24(ins, a, b) + c,
    "div": _quotient, "rem": _remainder,
    "sad": lambda ins, a, b, c: c + np.where(a > b, a - b, b - a),
    "min": lambda ins, a, b: np.minimum(a, b), "max": lambda ins, a, b: np.maximum(a, b),
    "abs": lambda ins, a: np.where(a < 0, -a, a), "neg": lambda ins, a: -a,
    "and": lambda ins, a, b: a & b, "or": lambda ins, a, b: a | b, "xor": lambda ins, a, b: a ^ b,
    "not": lambda ins, a: ~a, "cnot": lambda ins, a: (a == 0).astype(a.dtype),
    "lop3": _lookup3,
    "shl": _shift_left, "shr": _shift_right, "shf": _funnel,
    "bfe": _extract, "bfi": _insert, "bfind": _find_leading, "prmt": _permute,
    "brev": _per_lane(_reverse),
    "popc": _per_lane(lambda x, bits: x.bit_count(), U32),
    "clz": _per_lane(lambda x, bits: bits - x.bit_length(), U32),
}  # fmt: skip


def saturating(ins: Instruction, a: Lanes, b: Lanes, sign: int) -> Lanes:
    """add.sat and sub.sat of s32."""
    exact = a.astype(np.int64) + sign * b.astype(np.int64)
    limits = np.iinfo(a.dtype)
    return np.clip(exact, limits.min, limits.max).astype(a.dtype)


# -- atomic updates ----------------------------------------------------------------------------


def update(
    ins: Instruction, is_shared: bool, old: np.generic, b: np.generic, c: np.generic | None = None
) -> np.generic:
    """What atom or red leaves in memory, for one lane; in single precision GPUs flush subnormals in global memory."""
    if ins.has("add"):
        if ins.type.is_half:
            return numpy_half.add(ins.type, np.array([old]), np.array([b]))[0]
        if ins.type is TYPES["f32"] and not is_shared:
            return flush(flush(np.array([old])) + flush(np.array([b])))[0]
        return np.add(old, b)
    operation = next(UPDATES[m] for m in ins.modifiers if m in UPDATES)
    return operation(old, b, c)


UPDATES: dict[str, Callable[..., np.generic]] = {
    "min": lambda old, b, c: min(old, b), "max": lambda old, b, c: max(old, b),
    "and": lambda old, b, c: old & b, "or": lambda old, b, c: old | b, "xor": lambda old, b, c: old ^ b,
    "inc": lambda old, b, c: np.uint32(0) if old >= b else old + np.uint32(1),
    "dec": lambda old, b, c: b if old == 0 or old > b else old - np.uint32(1),
    "exch": lambda old, b, c: b,
    "cas": lambda old, b, c: c if old == b else old,
}  # fmt: skip


# -- conversions -------------------------------------------------------------------------------

_INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def convert(ins: Instruction, x: Lanes) -> Lanes:
    """cvt: to[, from] are the last two types of the opcode."""
    to, source = ins.types[-2:]
    if source.is_float:
        if ins.has("ftz"):
            x = flush(x)
        integral = next((_INTEGRAL[m] for m in _INTEGRAL if ins.has(m)), None)
        if integral:
            x = integral(x)
        if not to.is_float:
            return _to_integer(x, to, integer_of_nan(to, source))
        if to.bits == 32 and source.bits == 64:
            x = _directed(ins, lambda v: v, x.astype(np.float32), x)
        x = x.astype(to.dtype)
        x = flush(x) if ins.has("ftz") else x
        return saturate(x) if ins.has("sat") else x
    if to.is_float:
        return _directed(ins, lambda v: v, x.astype(to.dtype), x)
    if ins.has("sat"):
        limits = np.iinfo(to.dtype)
        return np.array([min(max(int(v), limits.min), limits.max) for v in x], to.dtype)
    return x.astype(to.dtype)


def _convert_halves(ins: Instruction, s: list[Lanes]) -> Lanes:
    """cvt from or to half precision; two numbers become a pair, the first its high half."""
    to, source = ins.types[-2:]
    if to.is_pair:
        high, low = (_convert_half(ins, to.element, source, x) for x in s)
        return numpy_half.join(low, high)
    return _convert_half(ins, to, source, s[0])


def _convert_half(ins: Instruction, to: ScalarType, source: ScalarType, x: Lanes) -> Lanes:
    if source.is_half:
        value = numpy_half.to_double(source, x)
    elif source.bits == 64 and not source.is_float:
        value = np.array([_odd_double(int(v)) for v in x])
    else:
        value = (flush(x) if ins.has("ftz") else x).astype(F64)
    integral = next((_INTEGRAL[m] for m in _INTEGRAL if ins.has(m)), None)
    if integral:
        value = integral(value)
    if to.is_half:
        return numpy_half.from_double(to, numpy_half.limited(ins, value), _direction(ins), half_of_nan(to, source))
    if not to.is_float:
        return _to_integer(value, to, integer_of_nan(to, source))
    result = numpy_half.limited(ins, value).astype(to.dtype)
    return flush(result) if ins.has("ftz") else result


def _odd_double(value: int) -> float:
    """An integer in double precision, the last bit set where bits were lost: rounding it again then stays right."""
    lost = max(abs(value).bit_length() - 53, 0)
    size = abs(value) >> lost
    if size << lost != abs(value):
        size |= 1
    return math.copysign(math.ldexp(size, lost), value)


def _to_integer(x: Lanes, to: ScalarType, nan: int) -> Lanes:
    """Clamped to the range of the type; `nan` are the bits that NaN gives."""
    limits = np.iinfo(to.dtype)
    values = []
    for v in x:
        if np.isnan(v):
            values.append(nan - (1 << to.bits) if to.is_signed and nan else nan)
        elif np.isinf(v):
            values.append(limits.max if v > 0 else limits.min)
        else:
            values.append(min(max(int(v), limits.min), limits.max))
    return np.array(values, to.dtype)
