"""PTX arithmetic as LLVM IR, for one value or for the 32 lanes of a warp.

Frequent operations are written once for both. Rare ones (`LANEWISE`) are written for one value; for a warp
they become a loop over the lanes in a function of their own, which keeps the code small and fast to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import half
from .conversion import flush, like, min_max, to_integer, to_integral
from .ir import FunctionBuilder, Value, bits_of, element_of, integer, is_vector, real, suffix, vector
from .isa import result_type
from .ptx import Immediate, Instruction
from .types import ScalarType


def llvm_type(kind: ScalarType) -> str:
    """The LLVM type of one value; a predicate is the i32 mask of its lanes."""
    if kind.is_float:
        return "float" if kind.bits == 32 else "double"
    return "i32" if kind.kind == "p" else f"i{kind.bits}"


class Arithmetic:
    """Emits arithmetic into functions; owns the out-of-line functions that it needs."""

    def __init__(self) -> None:
        self.functions: dict[str, FunctionBuilder] = {}

    def emit(self, f: FunctionBuilder, ins: Instruction, sources: Sequence[Value]) -> Value:
        """The result of an instruction on sources of its types, all scalar or all vectors."""
        if half.is_half(ins):
            if not is_vector(sources[0].type):
                return half.emit(f, ins, sources)
            if ins.opcode not in half.THROUGH_LIBM:
                return self._out_of_line(f, ins, sources)
            return self._lane_by_lane(f, ins, sources)
        if ins.opcode in LANEWISE or _needs_lanes(ins):
            if not is_vector(sources[0].type):
                return self._one(f, ins, sources)
            return self._lane_by_lane(f, ins, sources)
        return _emit(f, ins, sources)

    def _out_of_line(self, f: FunctionBuilder, ins: Instruction, sources: Sequence[Value]) -> Value:
        """Half precision on vectors: many instructions, so written once for a kernel."""
        name = "half." + ".".join((ins.opcode, *ins.modifiers))
        result = vector(_result_llvm(ins))
        if name not in self.functions:
            g = FunctionBuilder(name, result, [(s.type, f"a{i}") for i, s in enumerate(sources)], "internal")
            g.ret(half.emit(g, ins, list(g.arguments.values())))
            self.functions[name] = g
        return f.call(result, name, sources)

    def _lane_by_lane(self, f: FunctionBuilder, ins: Instruction, sources: Sequence[Value]) -> Value:
        name = "lanes." + ".".join((ins.opcode, *ins.modifiers))
        result = vector(_result_llvm(ins))
        if name not in self.functions:
            self.functions[name] = self._lane_loop(name, ins, [s.type for s in sources], result)
        return f.call(result, name, sources)

    def _lane_loop(self, name: str, ins: Instruction, types: Sequence[str], result: str) -> FunctionBuilder:
        g = FunctionBuilder(name, result, [(t, f"a{i}") for i, t in enumerate(types)], "internal")
        slots = [g.alloca(t, align=64) for t in types]
        for slot, value in zip(slots, g.arguments.values()):
            g.store(value, slot, align=64)
        element = element_of(result)
        stored = "i8" if element == "i1" else element
        out = g.alloca(vector(stored), align=64)
        with g.each_lane(integer(-1)) as lane:
            index = g.cast("zext", lane, "i64")
            scalars = [g.load(element_of(t), slot, g.mul(index, bits_of(t) // 8)) for slot, t in zip(slots, types)]
            value = self._one(g, ins, scalars)
            if element == "i1":
                value = g.cast("zext", value, "i8")
            g.store(value, out, g.mul(index, bits_of(stored) // 8))
        whole = g.load(vector(stored), out, align=64)
        g.ret(g.cast("trunc", whole, result) if element == "i1" else whole)
        return g

    def _one(self, f: FunctionBuilder, ins: Instruction, s: Sequence[Value]) -> Value:
        """A rare operation, or a rare form of one, on one value."""
        if not _directed(ins):
            return _scalar(f, ins, s)
        if ins.has("ftz"):
            s = [flush(f, x) for x in s]
        result = llvm_type(result_type(ins))
        name = "rounding." + ".".join((ins.opcode, *(m for m in ins.modifiers if m not in ("ftz", "sat"))))
        if name not in self.functions:
            self.functions[name] = _rounding_function(name, ins, [x.type for x in s], result)
        value = f.call(result, name, s)
        value = flush(f, value) if ins.has("ftz") else value
        return _saturate(f, value) if ins.has("sat") else value


def _result_llvm(ins: Instruction) -> str:
    return "i1" if ins.opcode == "testp" else llvm_type(result_type(ins))


def _needs_lanes(ins: Instruction) -> bool:
    """Forms of frequent operations that are rare, or that LLVM expands badly as vectors."""
    if ins.opcode == "mul" or ins.opcode == "mad":
        return (ins.has("hi") and ins.type.bits == 64) or _directed(ins)
    if ins.opcode == "div":
        return _directed(ins) or not ins.type.is_float
    if ins.opcode == "cvt":
        to, source = ins.types[-2:]
        return _directed(ins) or (ins.has("sat") and not to.is_float and not source.is_float)
    return _directed(ins)


def _direction(ins: Instruction) -> str:
    return next(m for m in ("rz", "rm", "rp", "rn") if ins.has(m))


def _directed(ins: Instruction) -> bool:
    return any(ins.has(m) for m in ("rz", "rm", "rp"))


# -- frequent operations, scalar or vector ---------------------------------------------------------


def _emit(f: FunctionBuilder, ins: Instruction, s: Sequence[Value]) -> Value:
    if ins.opcode == "cvt":
        return _convert(f, ins, s[0])
    if not ins.type.is_float:
        return INTEGER[ins.opcode](f, ins, *s)
    if ins.has("ftz"):
        s = [flush(f, x) for x in s]
    result = FLOAT[ins.opcode](f, ins, *s)
    if ins.has("ftz"):
        result = flush(f, result)
    return _saturate(f, result) if ins.has("sat") else result


def _saturate(f: FunctionBuilder, x: Value) -> Value:
    zero, one = real(0.0, x.type), real(1.0, x.type)
    below = f.select(f.fcmp("olt", x, one), x, one)
    return f.select(f.fcmp("ogt", x, zero), below, zero)


def _double_width(type_name: str) -> str:
    wide = f"i{2 * bits_of(type_name)}"
    return vector(wide) if is_vector(type_name) else wide


def _product(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    if not (ins.has("wide") or ins.has("hi")):
        return f.mul(a, b)
    wide = _double_width(a.type)
    signed = ins.type.is_signed
    product = f.mul(f.resize(a, wide, signed), f.resize(b, wide, signed))
    if ins.has("wide"):
        return product
    return f.resize(f.binary("lshr", product, bits_of(a.type)), a.type)


def _shift(f: FunctionBuilder, ins: Instruction, a: Value, by: Value) -> Value:
    """Shift amounts beyond the width give 0, or the sign."""
    bits = ins.type.bits
    op = "shl" if ins.opcode == "shl" else "ashr" if ins.type.is_signed else "lshr"
    limit = f.intrinsic("umin", by, integer(bits - 1, by.type))
    shifted = f.binary(op, a, f.resize(limit, a.type))
    if op == "ashr" or by.text in _small_literals(bits, by.type):
        return shifted
    return f.select(f.icmp("ult", by, bits), shifted, integer(0, a.type))


def _small_literals(bits: int, type_name: str) -> set[str]:
    return {integer(i, type_name).text for i in range(bits)}


def _add(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    return f.intrinsic("sadd.sat", a, b) if ins.has("sat") else f.add(a, b)


def _sub(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    return f.intrinsic("ssub.sat", a, b) if ins.has("sat") else f.sub(a, b)


def _lop3(f: FunctionBuilder, ins: Instruction, a: Value, b: Value, c: Value, table: Value) -> Value:
    """Any function of three bits, as the sum of its minterms."""
    literal = ins.operands[-1]
    assert isinstance(literal, Immediate)
    result = integer(0, a.type)
    for i in range(8):
        if literal.value >> i & 1:
            x = a if i & 4 else f.not_(a)
            y = b if i & 2 else f.not_(b)
            z = c if i & 1 else f.not_(c)
            result = f.or_(result, f.and_(f.and_(x, y), z))
    return result


def _count(name: str, extra: Sequence[Value] = ()) -> Callable[..., Value]:
    def emit(f: FunctionBuilder, ins: Instruction, a: Value) -> Value:
        counted = f.intrinsic(name, a, extra=extra)
        return f.resize(counted, vector("i32") if is_vector(a.type) else "i32")

    return emit


def _min_max(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    return f.intrinsic(("s" if ins.type.is_signed else "u") + ins.opcode, a, b)


_ZERO_IS_DEFINED = Value("i1", "false")

INTEGER: dict[str, Callable[..., Value]] = {
    "add": _add,
    "sub": _sub,
    "mul": _product,
    "mad": lambda f, ins, a, b, c: f.add(_product(f, ins, a, b), c),
    "min": _min_max,
    "max": _min_max,
    "abs": lambda f, ins, a: f.intrinsic("abs", a, extra=[_ZERO_IS_DEFINED]),
    "neg": lambda f, ins, a: f.sub(integer(0, a.type), a),
    "and": lambda f, ins, a, b: f.and_(a, b),
    "or": lambda f, ins, a, b: f.or_(a, b),
    "xor": lambda f, ins, a, b: f.xor(a, b),
    "not": lambda f, ins, a: f.not_(a),
    "shl": _shift,
    "shr": _shift,
    "lop3": _lop3,
    "popc": _count("ctpop"),
    "clz": _count("ctlz", [_ZERO_IS_DEFINED]),
    "brev": lambda f, ins, a: f.intrinsic("bitreverse", a),
}


def _reciprocal_root(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
    """Through double precision, so that it rounds as the exact value would."""
    wide = vector("double") if is_vector(x.type) else "double"
    root = f.intrinsic("sqrt", f.cast("fpext", x, wide))
    return f.cast("fptrunc", f.binary("fdiv", real(1.0, wide), root), x.type)


def _quotient(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    """div.approx multiplies by a reciprocal, which is flushed to 0 where the divisor is above 2**126."""
    quotient = f.binary("fdiv", a, b)
    if not ins.has("approx"):
        return quotient
    size = f.intrinsic("fabs", b)
    huge = f.and_(f.fcmp("ogt", size, real(2.0**126, b.type)), f.fcmp("olt", size, real(float("inf"), b.type)))
    return f.select(huge, f.binary("fmul", a, f.intrinsic("copysign", real(0.0, b.type), b)), quotient)


FLOAT: dict[str, Callable[..., Value]] = {
    "add": lambda f, ins, a, b: f.binary("fadd", a, b),
    "sub": lambda f, ins, a, b: f.binary("fsub", a, b),
    "mul": lambda f, ins, a, b: f.binary("fmul", a, b),
    "fma": lambda f, ins, a, b, c: f.intrinsic("fma", a, b, c),
    "mad": lambda f, ins, a, b, c: f.intrinsic("fma", a, b, c),
    "div": _quotient,
    "min": min_max,
    "max": min_max,
    "abs": lambda f, ins, x: f.intrinsic("fabs", x),
    "neg": lambda f, ins, x: f.value(x.type, f"fneg {x}"),
    "sqrt": lambda f, ins, x: f.intrinsic("sqrt", x),
    "rcp": lambda f, ins, x: f.binary("fdiv", real(1.0, x.type), x),
    "rsqrt": _reciprocal_root,
    "copysign": lambda f, ins, sign, x: f.intrinsic("copysign", x, sign),
}


def carry_chain(f: FunctionBuilder, ins: Instruction, s: Sequence[Value], carry: Value | None) -> tuple[Value, Value]:
    """Result and carry (or borrow) out of add, sub, mad with .cc and of addc, subc, madc; `carry` comes in."""
    if ins.opcode.startswith("mad"):
        s = [_product(f, ins, s[0], s[1]), s[2]]
    wide = _double_width(s[0].type)
    a, b = (f.resize(x, wide) for x in s)
    op = "sub" if ins.opcode.startswith("sub") else "add"
    total = f.binary(op, a, b)
    if carry is not None:
        total = f.binary(op, total, f.resize(carry, wide))
    out = f.and_(f.binary("lshr", total, ins.type.bits), 1)
    return f.resize(total, s[0].type), f.resize(out, like(out, "i32"))


# -- comparisons -----------------------------------------------------------------------------------

_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno"}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}


def compare(f: FunctionBuilder, name: str, kind: ScalarType, a: Value, b: Value) -> Value:
    """setp's comparison, as the i32 mask of the lanes where it holds; all ones or 0 for scalars."""
    if kind.is_half:
        a, b = half.to_double(f, kind, a), half.to_double(f, kind, b)
    if kind.is_float or kind.is_half:
        found = f.fcmp(_ORDERED.get(name) or _UNORDERED[name], a, b)
    elif name in _UNSIGNED:
        found = f.icmp(_UNSIGNED[name], a, b)
    else:
        found = f.icmp(("s" if kind.is_signed else "u") + name, a, b)
    return f.to_mask(found) if is_vector(found.type) else f.cast("sext", found, "i32")


# -- conversions -----------------------------------------------------------------------------------


def _convert(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
    to, source = ins.types[-2:]
    target = vector(llvm_type(to)) if is_vector(x.type) else llvm_type(to)
    if not source.is_float:
        if to.is_float:
            return f.cast("sitofp" if source.is_signed else "uitofp", x, target)
        return f.resize(x, target, source.is_signed)
    if ins.has("ftz"):
        x = flush(f, x)
    if to.is_float or not ins.has("rzi"):
        x = to_integral(f, ins, x)
    if not to.is_float:
        return to_integer(f, x, to, source)
    x = f.cast("fpext" if to.bits > source.bits else "fptrunc", x, target)
    x = flush(f, x) if ins.has("ftz") else x
    return _saturate(f, x) if ins.has("sat") else x


# -- rare operations, one value --------------------------------------------------------------------


def _scalar(f: FunctionBuilder, ins: Instruction, s: Sequence[Value]) -> Value:
    if half.is_half(ins):
        return half.emit(f, ins, s)
    if ins.opcode in LANEWISE:
        if ins.has("ftz"):
            s = [flush(f, x) if x.type == "float" else x for x in s]
        result = LANEWISE[ins.opcode](f, ins, *s)
        return flush(f, result) if ins.has("ftz") and result.type == "float" else result
    if ins.opcode == "div":
        return _divide(f, ins, *s)
    if ins.opcode == "cvt":
        return _clamp(f, ins, *s)
    return _emit(f, ins, s)


def _divide(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    """Quotient or remainder. By zero GPUs give all ones; the machine would trap."""
    signed = ins.type.is_signed
    zero = f.icmp("eq", b, 0)
    divisor = f.select(zero, integer(1, a.type), b)
    if signed:  # the least integer by -1 would trap as well: as by 1, negated
        minus = f.icmp("eq", divisor, -1)
        divisor = f.select(minus, integer(1, a.type), divisor)
        quotient = f.binary("sdiv", a, divisor)
        quotient = f.select(minus, f.sub(integer(0, a.type), quotient), quotient)
    else:
        quotient = f.binary("udiv", a, divisor)
    result = quotient if ins.opcode == "div" else f.sub(a, f.mul(quotient, b))
    return f.select(zero, integer(-1, a.type), result)


def _clamp(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
    """Integer to integer with saturation: in 128 bits every pair of types is alike."""
    to, source = ins.types[-2:]
    wide = f.resize(x, "i128", source.is_signed)
    low = -(1 << to.bits - 1) if to.is_signed else 0
    high = (1 << to.bits - to.is_signed) - 1
    wide = f.intrinsic("smax", wide, integer(low, "i128"))
    return f.resize(f.intrinsic("smin", wide, integer(high, "i128")), llvm_type(to))


#: Rounding direction -> its number for llvm.set.rounding.
_DIRECTIONS = {"rz": 0, "rp": 2, "rm": 3}
_TO_NEAREST = 1


def _rounding_function(name: str, ins: Instruction, types: Sequence[str], result: str) -> FunctionBuilder:
    """An operation on one value under another rounding direction of the machine."""
    g = FunctionBuilder(name, result, [(t, f"a{i}") for i, t in enumerate(types)], "internal")
    g.attributes = "strictfp"
    g.call("void", "llvm.set.rounding", [integer(_DIRECTIONS[_direction(ins)])])
    value = _constrained(g, ins, list(g.arguments.values()), result)
    g.call("void", "llvm.set.rounding", [integer(_TO_NEAREST)])
    g.ret(value)
    return g


def _constrained(g: FunctionBuilder, ins: Instruction, s: Sequence[Value], result: str) -> Value:
    """The operation in a form that LLVM leaves between the changes of direction."""
    mode = [Value("metadata", '!"round.dynamic"'), Value("metadata", '!"fpexcept.strict"')]
    kind = suffix(result)
    if ins.opcode == "rcp":
        s = [real(1.0, result), *s]
    if ins.opcode != "cvt":
        name = {"fma": "fma", "mad": "fma", "sqrt": "sqrt", "rcp": "fdiv"}.get(ins.opcode, f"f{ins.opcode}")
        return g.call(result, f"llvm.experimental.constrained.{name}.{kind}", [*s, *mode])
    (x,) = s
    if ins.types[-1].is_float:
        return g.call(result, f"llvm.experimental.constrained.fptrunc.{kind}.f64", [x, *mode])
    wide = g.resize(x, "i64", ins.types[-1].is_signed)
    # An unsigned number beyond the signed ones: halved, its last bit kept in sight, and doubled again.
    too_large = Value("i1", "false") if ins.types[-1].is_signed else g.icmp("slt", wide, 0)
    halved = g.or_(g.binary("lshr", wide, 1), g.and_(wide, 1))
    number = g.select(too_large, halved, wide)
    value = g.call(result, f"llvm.experimental.constrained.sitofp.{kind}.i64", [number, *mode])
    return g.select(
        too_large, g.call(result, f"llvm.experimental.constrained.fadd.{kind}", [value, value, *mode]), value
    )


def _through_libm(name: str) -> Callable[..., Value]:
    def emit(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
        return f.cast("fptrunc", f.call("double", name, [f.cast("fpext", x, "double")]), "float")

    return emit


def _limited(f: FunctionBuilder, ins: Instruction, x: Value, most: int, type_name: str) -> Value:
    """A field's position or length, at most `most`; of 32-bit fields the hardware looks at the low byte only."""
    number = f.and_(x, 255) if ins.type.bits == 32 else x
    return f.resize(f.intrinsic("umin", number, integer(most)), type_name)


def _extract(f: FunctionBuilder, ins: Instruction, a: Value, position: Value, length: Value) -> Value:
    bits, signed = ins.type.bits, ins.type.is_signed
    wide = f"i{2 * bits}"
    shifted = f.binary(
        "ashr" if signed else "lshr", f.resize(a, wide, signed), _limited(f, ins, position, 2 * bits - 1, wide)
    )
    unused = f.sub(integer(2 * bits, wide), _limited(f, ins, length, bits, wide))
    nothing = f.icmp("eq", unused, 2 * bits)
    unused = f.select(nothing, integer(0, wide), unused)
    field = f.binary("ashr" if signed else "lshr", f.binary("shl", shifted, unused), unused)
    # A field as long as the register needs no cut: its sign already stands above it.
    return f.select(nothing, integer(0, a.type), f.resize(field, a.type))


def _insert(f: FunctionBuilder, ins: Instruction, a: Value, b: Value, position: Value, length: Value) -> Value:
    bits = ins.type.bits
    wide = f"i{2 * bits}"
    at = _limited(f, ins, position, bits, wide)
    ones = f.sub(f.binary("shl", integer(1, wide), _limited(f, ins, length, bits, wide)), 1)
    mask = f.resize(f.binary("shl", ones, at), a.type)
    moved = f.resize(f.binary("shl", f.resize(a, wide), at), a.type)
    return f.or_(f.and_(b, f.not_(mask)), f.and_(moved, mask))


def _find_leading(f: FunctionBuilder, ins: Instruction, a: Value) -> Value:
    bits = ins.type.bits
    if ins.type.is_signed:
        a = f.xor(a, f.binary("ashr", a, bits - 1))
    zeros = f.resize(f.intrinsic("ctlz", a, extra=[_ZERO_IS_DEFINED]), "i32")
    found = zeros if ins.has("shiftamt") else f.sub(integer(bits - 1), zeros)
    return f.select(f.icmp("eq", a, 0), integer(-1), found)


def _permute(f: FunctionBuilder, ins: Instruction, a: Value, b: Value, selector: Value) -> Value:
    pool = f.or_(f.binary("shl", f.resize(b, "i64"), 32), f.resize(a, "i64"))
    result = integer(0)
    for i in range(4):
        nibble = f.and_(f.binary("lshr", selector, 4 * i), 15)
        shift = f.resize(f.mul(f.and_(nibble, 7), 8), "i64")
        byte = f.and_(f.resize(f.binary("lshr", pool, shift), "i32"), 255)
        sign = f.select(f.icmp("ugt", byte, 127), integer(255), integer(0))
        byte = f.select(f.icmp("ugt", nibble, 7), sign, byte)
        result = f.or_(result, f.binary("shl", byte, 8 * i))
    return result


def _funnel(f: FunctionBuilder, ins: Instruction, low: Value, high: Value, by: Value) -> Value:
    by = f.and_(by, 31) if ins.has("wrap") else f.intrinsic("umin", by, integer(32))
    both = f.or_(f.binary("shl", f.resize(high, "i64"), 32), f.resize(low, "i64"))
    amount = f.resize(by, "i64")
    if ins.has("r"):
        return f.resize(f.binary("lshr", both, amount), "i32")
    return f.resize(f.binary("lshr", f.binary("shl", both, amount), 32), "i32")


def _product24(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    shift = "ashr" if ins.type.is_signed else "lshr"
    x, y = (f.resize(f.binary(shift, f.binary("shl", v, 8), 8), "i64", ins.type.is_signed) for v in (a, b))
    return f.resize(f.binary("lshr", f.mul(x, y), 16 if ins.has("hi") else 0), "i32")


def _distance(f: FunctionBuilder, ins: Instruction, a: Value, b: Value, c: Value) -> Value:
    greater = f.icmp("sgt" if ins.type.is_signed else "ugt", a, b)
    return f.add(c, f.select(greater, f.sub(a, b), f.sub(b, a)))


def _test(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
    classes = {
        "finite": 0x1F8,
        "infinite": 0x204,
        "number": 0x3FC,
        "notanumber": 0x3,
        "normal": 0x168,  # zero is
        "subnormal": 0x90,
    }
    wanted = next(classes[m] for m in ins.modifiers if m in classes)
    return f.call("i1", f"llvm.is.fpclass.{suffix(x.type)}", [x, integer(wanted)])


def _dot_product(f: FunctionBuilder, ins: Instruction, a: Value, b: Value, c: Value) -> Value:
    """dp4a: four products of bytes; dp2a: two of a half of `a` and a byte of `b`'s low or high half."""
    first, second = (t.is_signed for t in ins.types[-2:])
    parts = 4 if ins.opcode == "dp4a" else 2
    start = 16 if ins.has("hi") else 0
    for i in range(parts):
        x = f.resize(f.resize(f.binary("lshr", a, 32 // parts * i), f"i{32 // parts}"), "i32", first)
        y = f.resize(f.resize(f.binary("lshr", b, start + 8 * i), "i8"), "i32", second)
        c = f.add(c, f.mul(x, y))
    return c


#: Written for one value only.
LANEWISE: dict[str, Callable[..., Value]] = {
    "rem": _divide,
    "sad": _distance,
    "cnot": lambda f, ins, a: f.cast("zext", f.icmp("eq", a, 0), a.type),
    "bfe": _extract,
    "bfi": _insert,
    "bfind": _find_leading,
    "prmt": _permute,
    "shf": _funnel,
    "dp4a": _dot_product,
    "dp2a": _dot_product,
    "mul24": _product24,
    "mad24": lambda f, ins, a, b, c: f.add(_product24(f, ins, a, b), c),
    "testp": _test,
    "ex2": _through_libm("exp2"),
    "lg2": _through_libm("log2"),
    "sin": _through_libm("sin"),
    "cos": _through_libm("cos"),
    "tanh": _through_libm("tanh"),
}
