"""Every arithmetic opcode and type gives the values that the PTX manual defines, on both executors.

The expected values are computed here in Python's unbounded integers and rationals, not by the engine. Each
instruction runs twice: on lanes that differ, and on one value for a warp, which is compiled as scalar code.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest


def bits(kind: str) -> int:
    return 1 if kind == "pred" else int(kind[1:])


def dtype(kind: str) -> np.dtype:
    b = max(bits(kind), 8)
    return np.dtype({"f": f"f{b // 8}", "s": f"i{b // 8}"}.get(kind[0], f"u{b // 8}"))


EDGES = {
    "u8": [0, 1, 127, 128, 255],
    "s8": [0, 1, 127, -128, -1],
    "u16": [0, 1, 2, 7, 0x7FFF, 0x8000, 0xFFFF],
    "u32": [0, 1, 2, 3, 31, 32, 33, 255, 65535, 0x12345678, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
    "u64": [0, 1, 3, 63, 64, 2**31, 2**32, 2**33 + 5, 0x123456789ABCDEF0, 2**63 - 1, 2**63, 2**64 - 1],
}
for _width in (16, 32, 64):
    EDGES[f"s{_width}"] = [v - 2**_width if v >> (_width - 1) else v for v in EDGES[f"u{_width}"]]
    EDGES[f"b{_width}"] = EDGES[f"u{_width}"]
EDGES["f32"] = EDGES["f64"] = [
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 1e-40, -1e-40, 1e10, -1e10, 3e38, 16777217.0, 2.0**31,
    -(2.0**31), 2.0**63, 2.0**64, float("inf"), float("-inf"), float("nan"), 1 / 3, 0.1,
]  # fmt: skip


def table(kinds: tuple[str, ...], seed: int = 0) -> list[np.ndarray]:
    """Columns of operands: pairs of edge values, then random bits."""
    rng = np.random.default_rng(seed)
    rows = list(itertools.product(*(EDGES[k] for k in kinds)))
    if len(rows) > 160:
        rows = [rows[i] for i in rng.choice(len(rows), 160, replace=False)]
    columns = []
    for n, kind in enumerate(kinds):
        with np.errstate(over="ignore"):
            edge = np.array([r[n] for r in rows], dtype(kind))
        if kind[0] == "f":
            noise = (rng.standard_normal(40) * 10.0 ** rng.integers(-6, 7, 40)).astype(dtype(kind))
        else:
            noise = rng.integers(0, 256, 40 * edge.itemsize, dtype=np.uint8).view(dtype(kind))
        columns.append(np.concatenate([edge, noise]))
    return columns


def wrap(value: int, kind: str) -> int:
    value &= 2 ** bits(kind) - 1
    return value - 2 ** bits(kind) if kind[0] == "s" and value >> (bits(kind) - 1) else value


def quotient(x: int, y: int) -> int:
    return (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


# -- integers ------------------------------------------------------------------------------------

BINARY = {
    "add": lambda x, y, k: x + y,
    "sub": lambda x, y, k: x - y,
    "mul.lo": lambda x, y, k: x * y,
    "mul.hi": lambda x, y, k: (x * y) >> bits(k),
    "div": lambda x, y, k: quotient(x, y) if y else -1,
    "rem": lambda x, y, k: x - quotient(x, y) * y if y else -1,
    "min": lambda x, y, k: min(x, y),
    "max": lambda x, y, k: max(x, y),
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", BINARY)
def test_integer_arithmetic_wraps_like_the_machine(engine, op, kind):
    a, b = columns = table((kind, kind))
    got = engine.opcode(f"{op}.{kind} %out, %s0, %s1;", kind, (kind, kind), columns)
    assert got.tolist() == [wrap(BINARY[op](int(x), int(y), kind), kind) for x, y in zip(a, b)]


@pytest.mark.parametrize("op", ["mul.wide", "mad.wide"])
@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products_are_exact(engine, op, kind):
    wide = f"{kind[0]}{2 * bits(kind)}"
    kinds = (kind, kind) if op == "mul.wide" else (kind, kind, wide)
    columns = table(kinds)
    operands = ", ".join(f"%s{n}" for n in range(len(kinds)))
    got = engine.opcode(f"{op}.{kind} %out, {operands};", wide, kinds, columns)
    expected = [int(r[0]) * int(r[1]) + (int(r[2]) if len(r) == 3 else 0) for r in zip(*columns)]
    assert got.tolist() == [wrap(e, wide) for e in expected]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_mad_lo_adds_to_the_low_half(engine, kind):
    a, b, c = columns = table((kind,) * 3)
    got = engine.opcode(f"mad.lo.{kind} %out, %s0, %s1, %s2;", kind, (kind,) * 3, columns)
    assert got.tolist() == [wrap(int(x) * int(y) + int(z), kind) for x, y, z in zip(a, b, c)]


@pytest.mark.parametrize("op", ["add", "sub"])
def test_saturating_integer_sums_stay_in_range(engine, op):
    a, b = columns = table(("s32", "s32"))
    got = engine.opcode(f"{op}.sat.s32 %out, %s0, %s1;", "s32", ("s32", "s32"), columns)
    exact = [int(x) + (int(y) if op == "add" else -int(y)) for x, y in zip(a, b)]
    assert got.tolist() == [min(max(e, -(2**31)), 2**31 - 1) for e in exact]


UNARY = {
    "abs.s32": ("s32", "s32", lambda x: wrap(abs(x), "s32")),
    "abs.s64": ("s64", "s64", lambda x: wrap(abs(x), "s64")),
    "neg.s32": ("s32", "s32", lambda x: wrap(-x, "s32")),
    "neg.s16": ("s16", "s16", lambda x: wrap(-x, "s16")),
    "not.b32": ("u32", "u32", lambda x: x ^ 0xFFFFFFFF),
    "not.b64": ("u64", "u64", lambda x: x ^ (2**64 - 1)),
    "cnot.b32": ("u32", "u32", lambda x: int(x == 0)),
    "popc.b32": ("u32", "u32", lambda x: bin(x).count("1")),
    "popc.b64": ("u64", "u32", lambda x: bin(x).count("1")),
    "clz.b32": ("u32", "u32", lambda x: 32 - x.bit_length()),
    "clz.b64": ("u64", "u32", lambda x: 64 - x.bit_length()),
    "brev.b32": ("u32", "u32", lambda x: int(f"{x:032b}"[::-1], 2)),
    "brev.b64": ("u64", "u64", lambda x: int(f"{x:064b}"[::-1], 2)),
    "bfind.u32": ("u32", "u32", lambda x: (x.bit_length() - 1) & 0xFFFFFFFF),
    "bfind.s32": ("s32", "u32", lambda x: ((~x if x < 0 else x).bit_length() - 1) & 0xFFFFFFFF),
    "bfind.shiftamt.u32": ("u32", "u32", lambda x: 32 - x.bit_length() if x else 0xFFFFFFFF),
}


@pytest.mark.parametrize("op", UNARY)
def test_unary_integer_operations(engine, op):
    source, result, expected = UNARY[op]
    (a,) = columns = table((source,))
    got = engine.opcode(f"{op} %out, %s0;", result, (source,), columns)
    assert got.tolist() == [expected(int(x)) for x in a]


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_bitwise_operations(engine, op, width):
    kind = f"b{width}"
    a, b = columns = table((kind, kind))
    got = engine.opcode(f"{op}.{kind} %out, %s0, %s1;", kind, (kind, kind), columns)
    python = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[op]
    assert got.tolist() == [python(int(x), int(y)) for x, y in zip(a, b)]


SHIFTS = [("shl", k) for k in ("b16", "b32", "b64")]
SHIFTS += [("shr", k) for k in ("b16", "b32", "b64", "s16", "s32", "s64", "u32", "u64")]


@pytest.mark.parametrize(("op", "kind"), SHIFTS)
def test_shifts_beyond_the_width_give_zero_or_the_sign(engine, op, kind):
    a, n = columns = table((kind, "u32"))
    got = engine.opcode(f"{op}.{kind} %out, %s0, %s1;", kind, (kind, "u32"), columns)
    limit = 2 * bits(kind)
    exact = [int(x) << min(int(s), limit) if op == "shl" else int(x) >> min(int(s), limit) for x, s in zip(a, n)]
    assert got.tolist() == [wrap(e, kind) for e in exact]


@pytest.mark.parametrize("by", [0, 1, 31, 32, 40])
def test_shifts_by_a_literal(engine, by):
    (a,) = columns = table(("s32",))
    left = engine.opcode(f"shl.b32 %out, %s0, {by};", "u32", ("s32",), columns)
    right = engine.opcode(f"shr.s32 %out, %s0, {by};", "s32", ("s32",), columns)
    assert left.tolist() == [(int(x) << by) & 0xFFFFFFFF for x in a]
    assert right.tolist() == [int(x) >> by for x in a]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_funnel_shifts(engine, side, mode):
    low, high, n = columns = table(("u32", "u32", "u32"))
    got = engine.opcode(f"shf.{side}.{mode}.b32 %out, %s0, %s1, %s2;", "u32", ("u32",) * 3, columns)
    expected = []
    for x, y, s in zip(low, high, n):
        shift = int(s) & 31 if mode == "wrap" else min(int(s), 32)
        both = int(y) << 32 | int(x)
        expected.append((both >> shift if side == "r" else (both << shift) >> 32) & 0xFFFFFFFF)
    assert got.tolist() == expected


def extracted(x: int, at: int, length: int, kind: str) -> int:
    """bfe, bit by bit as the manual's pseudo code has it; of 32-bit fields the low byte of the numbers counts."""
    msb = bits(kind) - 1
    if msb == 31:
        at, length = at & 255, length & 255
    sign = 0 if kind[0] == "u" or length == 0 else (x >> min(at + length - 1, msb)) & 1
    value = 0
    for i in range(msb + 1):
        value |= ((x >> (at + i)) & 1 if i < length and at + i <= msb else sign) << i
    return wrap(value, kind)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(engine, kind):
    rng = np.random.default_rng(3)
    a = table((kind,))[0]
    at, length = (rng.choice([0, 1, 5, 8, 16, 31, 32, 33, 63, 64, 200, 256], len(a)).astype("u4") for _ in range(2))
    got = engine.opcode(f"bfe.{kind} %out, %s0, %s1, %s2;", kind, (kind, "u32", "u32"), [a, at, length])
    assert got.tolist() == [extracted(int(x), int(p), int(n), kind) for x, p, n in zip(a, at, length)]


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_bit_field_insert(engine, kind):
    rng = np.random.default_rng(4)
    a, b = table((kind, kind))
    at, length = (rng.choice([0, 1, 5, 8, 16, 31, 32, 33, 63, 64, 200], len(a)).astype("u4") for _ in range(2))
    got = engine.opcode(f"bfi.{kind} %out, %s0, %s1, %s2, %s3;", kind, (kind, kind, "u32", "u32"), [a, b, at, length])
    expected = []
    for x, y, p, n in zip(*(map(int, c) for c in (a, b, at, length))):
        for i in range(n):
            if p + i < bits(kind):
                y = y & ~(1 << p + i) | (x >> i & 1) << p + i
        expected.append(y)
    assert got.tolist() == expected


def test_byte_permute(engine):
    a, b, s = columns = table(("u32",) * 3, seed=5)
    got = engine.opcode("prmt.b32 %out, %s0, %s1, %s2;", "u32", ("u32",) * 3, columns)
    expected = []
    for x, y, selector in zip(*(map(int, c) for c in (a, b, s))):
        pool = (y << 32 | x).to_bytes(8, "little")
        picked = []
        for i in range(4):
            nibble = selector >> 4 * i & 15
            byte = pool[nibble & 7]
            picked.append((255 if byte > 127 else 0) if nibble & 8 else byte)
        expected.append(int.from_bytes(bytes(picked), "little"))
    assert got.tolist() == expected


@pytest.mark.parametrize("lut", [0x00, 0x80, 0xE8, 0x96, 0xFE, 0x3C, 0xFF])
def test_three_input_logic(engine, lut):
    a, b, c = columns = table(("u32",) * 3, seed=6)
    got = engine.opcode(f"lop3.b32 %out, %s0, %s1, %s2, {lut};", "u32", ("u32",) * 3, columns)
    expected = []
    for x, y, z in zip(*(map(int, k) for k in (a, b, c))):
        expected.append(sum((lut >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1) & 1) << i for i in range(32)))
    assert got.tolist() == expected


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("op", ["mul24.lo", "mul24.hi", "sad"])
def test_rare_integer_operations(engine, op, kind):
    count = 3 if op == "sad" else 2
    columns = table((kind,) * count, seed=7)
    operands = ", ".join(f"%s{n}" for n in range(count))
    got = engine.opcode(f"{op}.{kind} %out, {operands};", kind, (kind,) * count, columns)

    def low24(x: int) -> int:
        x &= 0xFFFFFF
        return x - 2**24 if kind == "s32" and x >> 23 else x

    rows = [tuple(map(int, r)) for r in zip(*columns)]
    if op == "sad":
        expected = [wrap(abs(r[0] - r[1]) + r[2], kind) for r in rows]
    else:
        expected = [wrap(low24(r[0]) * low24(r[1]) >> (16 if op == "mul24.hi" else 0), kind) for r in rows]
    assert got.tolist() == expected


# -- comparisons and selection -------------------------------------------------------------------

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def holds(sign: str, x, y) -> bool:
    return {"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[sign]


INTEGER_COMPARISONS = [(name, kind) for name in COMPARE for kind in ("u16", "s16", "u32", "s32", "u64", "s64")]
INTEGER_COMPARISONS += [(name, kind) for name in UNSIGNED for kind in ("u16", "u32", "u64")]
INTEGER_COMPARISONS += [(name, f"b{width}") for name in ("eq", "ne") for width in (16, 32, 64)]


@pytest.mark.parametrize(("name", "kind"), INTEGER_COMPARISONS)
def test_integer_comparisons(engine, name, kind):
    a, b = columns = table((kind, kind))
    code = f"setp.{name}.{kind} %p0, %s0, %s1; selp.b32 %out, 1, 0, %p0;"
    got = engine.opcode(code, "u32", (kind, kind), columns)
    sign = (COMPARE | UNSIGNED)[name]
    assert got.tolist() == [int(holds(sign, int(x), int(y))) for x, y in zip(a, b)]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", [*COMPARE, *(f"{c}u" for c in COMPARE), "num", "nan"])
def test_float_comparisons_know_nan(engine, name, kind):
    a, b = columns = table((kind, kind))
    code = f"setp.{name}.{kind} %p0, %s0, %s1; selp.b32 %out, 1, 0, %p0;"
    got = engine.opcode(code, "u32", (kind, kind), columns)
    expected = []
    for x, y in zip(a, b):
        unordered = bool(np.isnan(x) or np.isnan(y))
        if name in ("num", "nan"):
            expected.append(unordered == (name == "nan"))
        elif unordered:
            expected.append(name.endswith("u"))
        else:
            expected.append(holds(COMPARE[name[:2]], x, y))
    assert got.tolist() == [int(e) for e in expected]


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
def test_setp_with_two_results_and_a_third_predicate(engine, combine):
    a, b, c = columns = table(("s32",) * 3)
    code = (
        f"setp.gt.s32 %p2, %s2, 0; setp.lt.{combine}.s32 %p0|%p1, %s0, %s1, !%p2;"
        " selp.b32 %out, 1, 0, %p0; @%p1 add.s32 %out, %out, 2;"
    )
    got = engine.opcode(code, "u32", ("s32",) * 3, columns)
    python = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[combine]
    expected = []
    for x, y, z in zip(a, b, c):
        third, less = int(z <= 0), int(x < y)
        expected.append(python(less, third) + 2 * python(1 - less, third))
    assert got.tolist() == expected


@pytest.mark.parametrize("result", ["u32", "s32", "f32"])
def test_set_gives_all_ones_or_one(engine, result):
    a, b = columns = table(("s32", "s32"))
    got = engine.opcode(f"set.ge.{result}.s32 %out, %s0, %s1;", result, ("s32", "s32"), columns)
    true = {"u32": 0xFFFFFFFF, "s32": -1, "f32": 1.0}[result]
    assert got.tolist() == [true if x >= y else 0 for x, y in zip(a, b)]


def test_slct_chooses_by_sign(engine):
    a, b, c = columns = table(("u32", "u32", "s32"))
    got = engine.opcode("slct.u32.s32 %out, %s0, %s1, %s2;", "u32", ("u32", "u32", "s32"), columns)
    assert got.tolist() == [int(x if z >= 0 else y) for x, y, z in zip(a, b, c)]


def test_predicate_logic(engine):
    a, b = columns = table(("s32", "s32"))
    code = """setp.lt.s32 %p0, %s0, 3; setp.lt.s32 %p1, %s1, 3; and.pred %p2, %p0, %p1; selp.b32 %out, 1, 0, %p2;
    or.pred %p2, %p0, %p1; @%p2 add.s32 %out, %out, 2; xor.pred %p2, %p0, %p1; @%p2 add.s32 %out, %out, 4;
    not.pred %p2, %p0; @%p2 add.s32 %out, %out, 8; mov.pred %p3, %p1; @!%p3 add.s32 %out, %out, 16;"""
    got = engine.opcode(code, "u32", ("s32", "s32"), columns)
    expected = []
    for x, y in zip(a < 3, b < 3):
        expected.append(1 * (x & y) + 2 * (x | y) + 4 * (x ^ y) + 8 * (not x) + 16 * (not y))
    assert got.tolist() == [int(e) for e in expected]


def test_moves_pack_and_unpack(engine):
    a, b = columns = table(("u32", "u32"))
    code = """.reg .b32 %lo, %hi; .reg .b16 %q<2>; mov.b64 %out, {%s0, %s1}; mov.b64 {%lo, %hi}, %out;
    mov.b32 {%q0, %q1}, %lo; mov.b32 %lo, {%q1, %q0}; mov.b64 %out, {%hi, %lo};"""
    got = engine.opcode(code, "u64", ("u32", "u32"), columns)
    swapped = [(int(x) >> 16 | int(x) << 16) & 0xFFFFFFFF for x in a]
    assert got.tolist() == [s << 32 | int(y) for s, y in zip(swapped, b)]


# -- floats --------------------------------------------------------------------------------------


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, except that any NaN is as good as another."""
    assert got.dtype == expected.dtype
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(got), nan)
    unsigned = f"u{got.itemsize}"
    assert np.array_equal(got[~nan].view(unsigned), expected[~nan].view(unsigned))


def lesser(x, y):
    """The number where one is NaN; -0 below +0."""
    if np.isnan(x) or np.isnan(y):
        return y if np.isnan(x) else x
    return min(x, y, key=lambda v: (v, not np.signbit(v)))


FLOAT_BINARY = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div.rn": lambda x, y: x / y,
    "min": lambda x, y: np.array([lesser(p, q) for p, q in zip(x, y)], x.dtype),
    "max": lambda x, y: -np.array([lesser(-p, -q) for p, q in zip(x, y)], x.dtype),
    "copysign": lambda x, y: np.copysign(y, x),
}


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_float_arithmetic_rounds_to_nearest(engine, op, kind):
    a, b = columns = table((kind, kind))
    got = engine.opcode(f"{op}.{kind} %out, %s0, %s1;", kind, (kind, kind), columns)
    with np.errstate(all="ignore"):
        same(got, FLOAT_BINARY[op](a, b))


@pytest.mark.parametrize("op", ["div.approx.f32", "div.full.f32"])
def test_approximate_division_is_the_rounded_one(engine, op):
    a, b = columns = table(("f32", "f32"))
    with np.errstate(all="ignore"):
        quotients = a / b
        if "approx" in op:  # its reciprocal is flushed to 0 where the divisor is huge
            quotients = np.where(np.isfinite(b) & (abs(b) > 2.0**126), a * np.copysign(np.float32(0), b), quotients)
    same(engine.opcode(f"{op} %out, %s0, %s1;", "f32", ("f32", "f32"), columns), quotients)


FLOAT_UNARY = {
    "abs": np.abs,
    "neg": np.negative,
    "sqrt.rn": np.sqrt,
    "rcp.rn": lambda x: x.dtype.type(1) / x,
}


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", FLOAT_UNARY)
def test_unary_float_operations(engine, op, kind):
    (a,) = columns = table((kind,))
    with np.errstate(all="ignore"):
        same(engine.opcode(f"{op}.{kind} %out, %s0;", kind, (kind,), columns), FLOAT_UNARY[op](a))


APPROXIMATE = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("op", APPROXIMATE)
def test_approximate_functions_are_within_half_an_ulp(engine, op):
    a = np.concatenate([np.linspace(-20, 20, 81), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-3]]).astype(np.float32)
    got = engine.opcode(f"{op}.approx.f32 %out, %s0;", "f32", ("f32",), [a])
    with np.errstate(all="ignore"):
        exact = APPROXIMATE[op](a.astype(np.float64))
    finite = np.isfinite(exact)
    assert np.array_equal(np.isnan(got), np.isnan(exact))
    error = np.abs(got[finite].astype(np.float64) - exact[finite])
    assert np.all(error <= 0.50001 * np.spacing(np.abs(got[finite])))


def rounded(exact: Fraction, direction: str, kind: type = np.float32) -> np.floating:
    """An exact value as a float, rounded in a direction, by searching the neighbours of the nearest."""
    near = kind(float(exact))
    candidates = sorted({np.nextafter(near, kind(-np.inf)), near, np.nextafter(near, kind(np.inf))})
    below = [c for c in candidates if Fraction(float(c)) <= exact]
    above = [c for c in candidates if Fraction(float(c)) >= exact]
    if direction == "rm" or (direction == "rz" and exact > 0):
        return below[-1]
    if direction in ("rp", "rz"):
        return above[0]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(f"u{c.nbytes}")) & 1))


def test_fma_overflows_to_infinity_of_its_sign(engine):
    columns = [np.array(c, "f8") for c in ([1e200, -1e200, 1e308], [1e200, 1e200, 1.0], [1.0, 1.0, 1.5e308])]
    got = engine.opcode("fma.rn.f64 %out, %s0, %s1, %s2;", "f64", ("f64",) * 3, columns)
    assert got.tolist() == [math.inf, -math.inf, math.inf]


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "rcp": lambda x: 1 / x,
}


@pytest.mark.parametrize("kind", ["f32", pytest.param("f64", marks=pytest.mark.full)])
@pytest.mark.parametrize("direction", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("op", EXACT)
def test_directed_rounding_is_exact(engine, op, direction, kind):
    rng = np.random.default_rng(8)
    count = EXACT[op].__code__.co_argcount
    columns = [(rng.standard_normal(200) * 2.0 ** rng.integers(-30, 30, 200)).astype(dtype(kind)) for _ in range(count)]
    operands = ", ".join(f"%s{n}" for n in range(count))
    got = engine.opcode(f"{op}.{direction}.{kind} %out, {operands};", kind, (kind,) * count, columns)
    for row, value in zip(zip(*columns), got):
        exact = EXACT[op](*(Fraction(float(v)) for v in row))
        assert value == rounded(exact, direction, dtype(kind).type)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("direction", ["rz", "rm", "rp"])
def test_directed_square_roots_are_next_to_the_exact_one(engine, direction, kind):
    real = dtype(kind).type
    x = abs(table((kind,), seed=5)[0])
    x = np.concatenate([x[np.isfinite(x)], np.arange(30, dtype=x.dtype) ** 2])
    got = engine.opcode(f"sqrt.{direction}.{kind} %out, %s0;", kind, (kind,), [x])
    for v, root in zip(x, got):
        square, exact = Fraction(float(root)) ** 2, Fraction(float(v))
        if direction == "rp":
            assert square >= exact
            assert square == exact or Fraction(float(np.nextafter(root, real(0)))) ** 2 < exact
        else:
            assert square <= exact
            assert square == exact or Fraction(float(np.nextafter(root, real(np.inf)))) ** 2 > exact


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(("direction", "expected"), [("rm", -0.0), ("rp", 0.0), ("rz", 0.0)])
def test_an_exact_zero_has_the_sign_of_its_direction(engine, direction, expected, kind):
    x = np.array([1.5, -2.0, 0.0, -0.0], dtype(kind))
    zero = engine.opcode(f"sub.{direction}.{kind} %out, %s0, %s0;", kind, (kind,), [x])
    assert zero.tobytes() == np.full(4, expected, dtype(kind)).tobytes()
    largest = np.full(1, np.finfo(dtype(kind)).max)
    beyond = engine.opcode(f"add.{direction}.{kind} %out, %s0, %s0;", kind, (kind,), [largest])
    assert beyond[0] == (np.inf if direction == "rp" else largest[0])


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fma_rounds_once(engine, kind):
    a, b, c = columns = table((kind,) * 3, seed=9)
    got = engine.opcode(f"fma.rn.{kind} %out, %s0, %s1, %s2;", kind, (kind,) * 3, columns)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    with np.errstate(all="ignore"):
        product = np.isfinite(a * b) & (a * b != 0) & np.isfinite(a * b + c)
    checked = 0
    for x, y, z, value in zip(a[finite & product], b[finite & product], c[finite & product], got[finite & product]):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if exact:
            assert value == (rounded(exact, "rn") if kind == "f32" else np.float64(float(exact)))
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("op", ["add.ftz", "mul.ftz"])
def test_flush_to_zero_drops_subnormals(engine, op):
    a, b = columns = table(("f32", "f32"))
    got = engine.opcode(f"{op}.f32 %out, %s0, %s1;", "f32", ("f32", "f32"), columns)
    tiny = np.finfo(np.float32).tiny

    def flush(x):
        return np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x)

    with np.errstate(all="ignore"):
        x, y = flush(a), flush(b)
        same(got, flush(x + y if op == "add.ftz" else x * y))


def test_saturation_clamps_to_the_unit_interval(engine):
    a, b = columns = table(("f32", "f32"))
    got = engine.opcode("add.sat.f32 %out, %s0, %s1;", "f32", ("f32", "f32"), columns)
    with np.errstate(all="ignore"):
        total = a + b
    expected = np.where(np.isnan(total) | (total <= 0), np.float32(0), np.minimum(total, np.float32(1)))
    same(got, expected.astype(np.float32))


CLASSES = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & ((np.abs(x) >= np.finfo(x.dtype).tiny) | (x == 0)),
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
}


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", CLASSES)
def test_testp_classifies(engine, name, kind):
    (a,) = columns = table((kind,))
    got = engine.opcode(f"testp.{name}.{kind} %p0, %s0; selp.b32 %out, 1, 0, %p0;", "u32", (kind,), columns)
    assert got.tolist() == CLASSES[name](a).astype(int).tolist()


# -- conversions ---------------------------------------------------------------------------------

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_integer_conversions_wrap_or_saturate(engine, to, source):
    (a,) = columns = table((source,))
    got = engine.opcode(f"cvt.{to}.{source} %out, %s0;", to, (source,), columns)
    assert got.tolist() == [wrap(int(x), to) for x in a]
    got = engine.opcode(f"cvt.sat.{to}.{source} %out, %s0;", to, (source,), columns)
    low = -(2 ** (bits(to) - 1)) if to[0] == "s" else 0
    high = 2 ** (bits(to) - (to[0] == "s")) - 1
    assert got.tolist() == [min(max(int(x), low), high) for x in a]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", ["f32", "f64"])
def test_integers_become_the_nearest_float(engine, to, source):
    (a,) = columns = table((source,))
    got = engine.opcode(f"cvt.rn.{to}.{source} %out, %s0;", to, (source,), columns)
    exact = [Fraction(int(x)) for x in a]
    expected = [rounded(e, "rn") if to == "f32" else np.float64(float(e)) for e in exact]
    same(got, np.array(expected, dtype(to)))


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("direction", ["rz", "rm", "rp"])
@pytest.mark.parametrize("to", ["f32", pytest.param("f64", marks=pytest.mark.full)])
def test_integers_become_floats_in_every_direction(engine, to, direction, source):
    (a,) = columns = table((source,))
    got = engine.opcode(f"cvt.{direction}.{to}.{source} %out, %s0;", to, (source,), columns)
    same(got, np.array([rounded(Fraction(int(x)), direction, dtype(to).type) for x in a], dtype(to)))


def test_flushed_comparisons_take_subnormals_for_zero(engine):
    x, y = np.array([[-1e-40, 1e-40, 1e-40, -1.0], [0.0, 0.0, 2e-40, -1e-40]], np.float32)
    less = engine.opcode("setp.lt.ftz.f32 %p0, %s0, %s1; selp.u32 %out, 1, 0, %p0;", "u32", ("f32", "f32"), [x, y])
    assert less.tolist() == [0, 0, 0, 1]
    chosen = engine.opcode("slct.ftz.u32.f32 %out, 1, 0, %s0;", "u32", ("f32",), [x])
    assert chosen.tolist() == [1, 1, 1, 0]


ROUND = {"rni": lambda x: round(Fraction(x)), "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("mode", ROUND)
def test_floats_become_clamped_integers(engine, mode, to, source):
    (a,) = columns = table((source,))
    got = engine.opcode(f"cvt.{mode}.{to}.{source} %out, %s0;", to, (source,), columns)
    low = -(2 ** (bits(to) - 1)) if to[0] == "s" else 0
    high = 2 ** (bits(to) - (to[0] == "s")) - 1
    expected = []
    for x in map(float, a):
        if math.isnan(x):  # the manual: zero, but the highest bit where either side has 64 bits
            wide = source == "f64" or bits(to) == 64
            expected.append((low if to[0] == "s" else 2 ** (bits(to) - 1)) if wide else 0)
        elif math.isinf(x):
            expected.append(high if x > 0 else low)
        else:
            expected.append(min(max(ROUND[mode](x), low), high))
    assert got.tolist() == expected


@pytest.mark.parametrize("mode", ROUND)
def test_floats_are_rounded_to_integral_floats(engine, mode):
    (a,) = columns = table(("f32",))
    numpy = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    same(engine.opcode(f"cvt.{mode}.f32.f32 %out, %s0;", "f32", ("f32",), columns), numpy(a))


@pytest.mark.parametrize("direction", ["rn", "rz", "rm", "rp"])
def test_doubles_become_floats_in_every_direction(engine, direction):
    a = np.random.default_rng(10).standard_normal(100) * 1e3
    got = engine.opcode(f"cvt.{direction}.f32.f64 %out, %s0;", "f32", ("f64",), [a])
    same(got, np.array([rounded(Fraction(x), direction) for x in a.tolist()], np.float32))


def test_floats_become_doubles_exactly(engine):
    (a,) = columns = table(("f32",))
    same(engine.opcode("cvt.f64.f32 %out, %s0;", "f64", ("f32",), columns), a.astype(np.float64))


# -- chains of carries, sums of products -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", ["add", "sub"])
def test_carries_chain_into_wider_sums(engine, op, kind):
    b = bits(kind)
    a, c = table((kind, kind))
    high_a, high_c = a[::-1].copy(), np.roll(c, 3)
    chain = f"{op}.cc.{kind} %s0, %s0, %s1; {op}c.cc.{kind} %s2, %s2, %s3; {op}c.{kind} %out, 0, 0;"
    results = [
        engine.opcode(f"{chain} mov.b{b} %out, %{r};", kind, (kind,) * 4, [a, c, high_a, high_c]) for r in ("s0", "s2")
    ]
    top = engine.opcode(chain, kind, (kind,) * 4, [a, c, high_a, high_c])
    whole = 2**b
    for i in range(len(a)):
        x, y = (int(h[i]) % whole * whole + int(l[i]) % whole for h, l in ((high_a, a), (high_c, c)))
        total = x + y if op == "add" else x - y
        got = (int(results[0][i]) % whole) + (int(results[1][i]) % whole) * whole
        assert got == total % whole**2
        assert wrap(int(top[i]), kind) == wrap(total // whole**2, kind)


@pytest.mark.parametrize("kind", ["u32", "u64"])
def test_multiply_add_carries_give_wide_products(engine, kind):
    b = bits(kind)
    kinds = (kind,) * 3
    columns = table(kinds)
    chain = f"mad.lo.cc.{kind} %s2, %s0, %s1, %s2; madc.hi.{kind} %out, %s0, %s1, 0;"
    high = engine.opcode(chain, kind, kinds, columns)
    low = engine.opcode(f"{chain} mov.b{b} %out, %s2;", kind, kinds, columns)
    for x, y, z, h, l in zip(*columns, high, low):
        assert int(h) << b | int(l) == int(x) * int(y) + int(z)


@pytest.mark.parametrize("second", ["u32", "s32"])
@pytest.mark.parametrize("first", ["u32", "s32"])
@pytest.mark.parametrize("op", ["dp4a", "dp2a.lo", "dp2a.hi"])
def test_dot_products_of_bytes(engine, op, first, second):
    columns = table((first, second, "u32"))
    got = engine.opcode(f"{op}.{first}.{second} %out, %s0, %s1, %s2;", "u32", (first, second, "u32"), columns)

    def part(value: int, at: int, size: int, kind: str) -> int:
        field = int(value) >> at & 2**size - 1
        return field - 2**size if kind[0] == "s" and field >> (size - 1) else field

    size, count = (8, 4) if op == "dp4a" else (16, 2)
    start = 16 if op == "dp2a.hi" else 0
    expected = [
        (sum(part(x, size * i, size, first) * part(y, start + 8 * i, 8, second) for i in range(count)) + int(z)) % 2**32
        for x, y, z in zip(*columns)
    ]
    assert got.tolist() == expected
