"""What single and half precision share: flushing, exact sums, minima, rounding to integral values, clamping."""

from __future__ import annotations

from .ir import FunctionBuilder, Value, bits_of, element_of, integer, is_vector, real, suffix, vector
from .isa import integer_of_nan
from .ptx import Instruction
from .types import ScalarType

SMALLEST_NORMAL = 2.0**-126

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def like(x: Value, element: str) -> str:
    """A type with as many elements as a value."""
    return vector(element) if is_vector(x.type) else element


def flush(f: FunctionBuilder, x: Value) -> Value:
    """Subnormal float32 to zero of the same sign."""
    if element_of(x.type) != "float":
        return x
    tiny = f.fcmp("olt", f.intrinsic("fabs", x), real(SMALLEST_NORMAL, x.type))
    return f.select(tiny, f.intrinsic("copysign", real(0.0, x.type), x), x)


def to_integral(f: FunctionBuilder, ins: Instruction, x: Value) -> Value:
    """The integral float that .rni, .rzi, .rmi or .rpi asks for."""
    name = next((_INTEGRAL[m] for m in _INTEGRAL if ins.has(m)), None)
    return f.intrinsic(name, x) if name else x


def to_integer(f: FunctionBuilder, x: Value, to: ScalarType, source: ScalarType) -> Value:
    """A float as an integer, rounded towards zero and clamped to the range of the type."""
    target = like(x, f"i{to.bits}")
    op = "fptosi" if to.is_signed else "fptoui"
    clamped = f.call(target, f"llvm.{op}.sat.{suffix(target)}.{suffix(x.type)}", [x])
    if nan := integer_of_nan(to, source):
        return f.select(f.fcmp("uno", x, x), integer(nan, target), clamped)
    return clamped


def two_sum(f: FunctionBuilder, a: Value, b: Value) -> tuple[Value, Value]:
    """a + b in double precision as a rounded sum and its exact error (Knuth)."""
    total = f.binary("fadd", a, b)
    b_part = f.binary("fsub", total, a)
    a_error = f.binary("fsub", a, f.binary("fsub", total, b_part))
    error = f.binary("fadd", a_error, f.binary("fsub", b, b_part))
    finite = f.fcmp("olt", f.intrinsic("fabs", total), real(float("inf"), total.type))
    return total, f.select(finite, error, real(0.0, total.type))


def min_max(f: FunctionBuilder, ins: Instruction, a: Value, b: Value) -> Value:
    """-0 is less than +0; a NaN gives way to a number, unless .NaN asks for it.

    Spelt out, because LLVM 20 expands `minimumnum` wrongly on vectors wider than the machine's.
    """
    least = ins.opcode == "min"
    bits = like(a, f"i{bits_of(a.type)}")
    # Equal operands differ at most in the sign of a zero.
    merged = f.binary("or" if least else "and", f.cast("bitcast", a, bits), f.cast("bitcast", b, bits))
    result = f.select(f.fcmp("olt" if least else "ogt", a, b), a, b)
    result = f.select(f.fcmp("oeq", a, b), f.cast("bitcast", merged, a.type), result)
    if ins.has("NaN"):
        return f.select(f.fcmp("uno", a, b), real(float("nan"), a.type), result)
    result = f.select(f.fcmp("uno", b, b), a, result)
    return f.select(f.fcmp("uno", a, a), b, result)
