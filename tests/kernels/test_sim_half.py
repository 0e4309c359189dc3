"""Half precision rounds once and correctly: f16 and bf16, single and in pairs, on both executors.

The expected bits are computed here from exact rationals, not by the engine.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

#: Format -> bits of the significand (with the hidden one), exponent of the smallest normal number.
FORMATS = {"f16": (11, -14), "bf16": (8, -126)}
NAN = 0x7FFF

#: Where the code is the same for both formats, bf16 waits for the full tier.
KINDS = ["f16", pytest.param("bf16", marks=pytest.mark.full)]
DIRECTIONS = ["rn", "rz", "rm", "rp"]


def value(kind: str, code: int) -> Fraction | float:
    """What the bits mean; infinities and NaN as floats."""
    precision, least = FORMATS[kind]
    field, fraction = (code & 0x7FFF) >> (precision - 1), code & (1 << precision - 1) - 1
    sign = -1 if code & 0x8000 else 1
    if field == 0x7FFF >> (precision - 1):
        return math.nan if fraction else sign * math.inf
    whole = fraction + (1 << precision - 1 if field else 0)
    return sign * Fraction(whole) * Fraction(2) ** (max(field, 1) - 1 + least - precision + 1)


def code(kind: str, x: Fraction | float, direction: str = "rn", negative: bool | None = None) -> int:
    """The bits of an exact number, rounded; `negative` tells the sign of a zero."""
    precision, least = FORMATS[kind]
    infinity = 0x7FFF >> (precision - 1) << (precision - 1)
    if isinstance(x, float):
        if math.isnan(x):
            return NAN
        if math.isinf(x):
            return infinity | (0x8000 if x < 0 else 0)
    below_zero = x < 0 if negative is None or x else negative
    sign, size = (0x8000 if below_zero else 0), abs(Fraction(x))
    exponent = least
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - precision + 1)
    whole, rest = divmod(size, unit)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
        "rz": False,
        "rp": rest > 0 and not below_zero,
        "rm": rest > 0 and below_zero,
    }[direction]
    bits = ((exponent - least) << precision - 1) + int(whole) + up
    if bits >= infinity:
        outward = direction == "rn" or direction == ("rm" if below_zero else "rp")
        bits = infinity if outward else infinity - 1
    return sign | bits


EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x03FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x3F80, 0xBF80, 0x3C01]
EDGES += [0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7E00, 0xFFFF, 0x4000, 0x3555]


def codes(count: int, seed: int = 0) -> list[np.ndarray]:
    """Columns of operands: edge values against each other, then random bits, as many near each other as far apart."""
    rng = np.random.default_rng(seed)
    rows = list(itertools.product(EDGES, repeat=min(count, 2)))
    rows = np.array([rows[i] for i in rng.permutation(len(rows))[:250]], np.uint16).reshape(-1, min(count, 2))
    rows = np.concatenate([rows] + [rows[rng.permutation(len(rows)), :1]] * (count - rows.shape[1]), axis=1)
    noise = rng.integers(0, 2**16, (200, count))
    near = rng.integers(0x3000, 0x4800, (100, count)) | rng.integers(0, 2, (100, count)) << 15
    return list(np.concatenate([rows, noise, near]).astype(np.uint16).T)


def product(x, y):
    return float(x) * float(y) if isinstance(x, float) or isinstance(y, float) else x * y


def total(x, y):
    return float(x) + float(y) if isinstance(x, float) or isinstance(y, float) else x + y


def negative_sum(x: int, y: int) -> bool:
    """Whether a sum that is exactly zero is -0: only where both parts are -0."""
    return bool(x & 0x8000 and y & 0x8000)


def arithmetic(op: str, kind: str, x: int, y: int, z: int = 0) -> int:
    a, b, c = value(kind, x), value(kind, y), value(kind, z)
    if op == "add":
        return code(kind, total(a, b), negative=negative_sum(x, y))
    if op == "sub":
        return code(kind, total(a, -b), negative=negative_sum(x, y ^ 0x8000))
    if op == "mul":
        return code(kind, product(a, b), negative=bool((x ^ y) & 0x8000))
    both = product(a, b)
    if both == 0 and c == 0:
        return code(kind, Fraction(0), negative=negative_sum(x ^ y, z))
    # A product that is not zero but cancels gives +0.
    return code(kind, total(both, c), negative=False)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma.rn"])
def test_arithmetic_rounds_once(engine, op, kind):
    count = 3 if op == "fma.rn" else 2
    columns = codes(count)
    operands = ", ".join(f"%s{i}" for i in range(count))
    got = engine.opcode(f"{op}.{kind} %out, {operands};", "b16", ("b16",) * count, columns)
    expected = [arithmetic(op.split(".")[0], kind, *(int(v) for v in row)) for row in zip(*columns)]
    assert got.tolist() == expected


@pytest.mark.parametrize("kind", FORMATS)
def test_fma_decides_ties_by_the_whole_product(engine, kind):
    """Sums that lie on a tie, or just beside it by what the product's low bits say."""
    precision, _ = FORMATS[kind]
    one = code(kind, Fraction(1))
    x = [one + i for i in range(1 << precision - 1)]
    y = [one + (i * 37) % (1 << precision - 1) for i in range(len(x))]
    z = [code(kind, Fraction(2) ** (precision + i % 3 - 1) * (1 if i % 2 else -1)) for i in range(len(x))]
    columns = [np.array(c, np.uint16)[:900] for c in (x, y, z)]
    got = engine.opcode(f"fma.rn.{kind} %out, %s0, %s1, %s2;", "b16", ("b16",) * 3, columns)
    assert got.tolist() == [arithmetic("fma", kind, *(int(v) for v in row)) for row in zip(*columns)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["add", "fma.rn", "max", "neg", "abs"])
def test_pairs_are_two_halves(engine, op, kind):
    count = {"fma.rn": 3, "neg": 1, "abs": 1}.get(op, 2)
    low, high = codes(count, seed=1), codes(count, seed=2)
    pairs = [a.astype(np.uint32) | b.astype(np.uint32) << np.uint32(16) for a, b in zip(low, high)]
    operands = ", ".join(f"%s{i}" for i in range(count))
    got = engine.opcode(f"{op}.{kind}x2 %out, {operands};", "b32", ("b32",) * count, pairs)
    single = [engine.opcode(f"{op}.{kind} %out, {operands};", "b16", ("b16",) * count, c) for c in (low, high)]
    assert (got & 0xFFFF).tolist() == single[0].tolist()
    assert (got >> 16).tolist() == single[1].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ["min", "max", "min.NaN", "max.NaN"])
def test_min_and_max_know_nan_and_the_sign_of_zero(engine, op, kind):
    columns = codes(2)
    got = engine.opcode(f"{op}.{kind} %out, %s0, %s1;", "b16", ("b16",) * 2, columns)

    def expected(x: int, y: int) -> int:
        a, b = value(kind, x), value(kind, y)
        missing = [math.isnan(v) for v in (a, b)]
        if all(missing) or (any(missing) and "NaN" in op):
            return NAN
        if any(missing):
            return y if missing[0] else x
        order = sorted((x, y), key=lambda code: (value(kind, code), not code & 0x8000))
        return order[0] if "min" in op else order[1]

    assert got.tolist() == [expected(int(x), int(y)) for x, y in zip(*columns)]


@pytest.mark.parametrize("kind", FORMATS)
def test_sign_operations_touch_no_other_bit_of_a_number(engine, kind):
    (x,) = codes(1)
    missing = np.array([math.isnan(value(kind, int(c))) for c in x])
    negated = engine.opcode(f"neg.{kind} %out, %s0;", "b16", ("b16",), [x])
    assert (negated == np.where(missing, NAN, x ^ 0x8000)).all()
    size = engine.opcode(f"abs.{kind} %out, %s0;", "b16", ("b16",), [x])
    assert (size == np.where(missing, NAN, x & 0x7FFF)).all()


@pytest.mark.parametrize("kind", FORMATS)
def test_saturation_and_relu_limit_the_result(engine, kind):
    x, y = codes(2)
    saturated = engine.opcode(f"add.sat.{kind} %out, %s0, %s1;", "b16", ("b16",) * 2, [x, y])
    positive = engine.opcode(f"fma.rn.relu.{kind} %out, %s0, %s1, %s0;", "b16", ("b16",) * 2, [x, y])
    for a, b, sat, relu in zip(x, y, saturated, positive):
        exact = value(kind, arithmetic("add", kind, int(a), int(b)))
        clamped = 0 if math.isnan(exact) else min(max(exact, 0), 1)
        assert int(sat) == code(kind, Fraction(clamped))
        exact = arithmetic("fma", kind, int(a), int(b), int(a))
        assert int(relu) == (exact if exact == NAN or not exact & 0x8000 else 0)


COMPARISONS = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*COMPARISONS, *(f"{c}u" for c in COMPARISONS), "num", "nan"])
def test_comparisons_know_nan(engine, name, kind):
    name = {"neu": "neu", "equ": "equ"}.get(name, name)
    x, y = codes(2)
    operands = f"setp.{name}.{kind} %p0, %s0, %s1; selp.b16 %out, 1, 0, %p0;"
    got = engine.opcode(operands, "b16", ("b16",) * 2, [x, y])
    one = code(kind, Fraction(1))
    numbers = engine.opcode(f"set.{name}.{kind}.{kind} %out, %s0, %s1;", "b16", ("b16",) * 2, [x, y])

    def holds(a, b) -> bool:
        unordered = math.isnan(a) or math.isnan(b)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        return len(name) == 3 if unordered else COMPARISONS[name[:2]](a, b)

    expected = [holds(value(kind, int(a)), value(kind, int(b))) for a, b in zip(x, y)]
    assert got.tolist() == [int(e) for e in expected]
    assert numbers.tolist() == [one if e else 0 for e in expected]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_compared_half_by_half(engine, kind):
    low, high = codes(2, seed=3), codes(2, seed=4)
    pairs = [a.astype(np.uint32) | b.astype(np.uint32) << np.uint32(16) for a, b in zip(low, high)]
    both = f"setp.lt.{kind}x2 %p0|%p1, %s0, %s1; selp.b32 %out, 1, 0, %p0; @%p1 add.u32 %out, %out, 2;"
    got = engine.opcode(both, "b32", ("b32",) * 2, pairs)
    less = [[value(kind, int(a)) < value(kind, int(b)) for a, b in zip(*half)] for half in (low, high)]
    assert got.tolist() == [a + 2 * b for a, b in zip(*less)]
    masks = engine.opcode(f"set.lt.u32.{kind}x2 %out, %s0, %s1;", "b32", ("b32",) * 2, pairs)
    assert masks.tolist() == [0xFFFF * a + 0xFFFF0000 * b for a, b in zip(*less)]


def nan_from(source: str, kind: str) -> int:
    """What an H100 makes of NaN: from double precision another one."""
    return {"f16": 0x7E00, "bf16": 0x7FC0}[kind] if source == "f64" else NAN


# -- conversions -----------------------------------------------------------------------------------


def singles() -> np.ndarray:
    """float32: around every border of both formats, and random bits."""
    rng = np.random.default_rng(5)
    borders = [2.0**e for e in (-150, -149, -134, -133, -126, -26, -25, -24, -15, -14, 0, 10, 11, 15, 16, 127)]
    borders += [65504.0, 65519.996, 65520.0, 3.38953139e38, 3.3961775e38, 1 / 3, 0.1, 0.0]
    x = np.array(borders, np.float32)
    around = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    noise = rng.integers(0, 2**32, 150, dtype=np.uint32).view(np.float32)
    middle = (rng.standard_normal(100) * 10.0 ** rng.integers(-6, 6, 100)).astype(np.float32)
    special = np.array([np.inf, -np.inf, np.nan], np.float32)
    return np.concatenate([around, -around, noise, middle, special])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_floats_become_halves_in_every_direction(engine, kind, direction, source):
    x = singles()
    if source == "f64":
        with np.errstate(invalid="ignore"):
            x = np.concatenate([x.astype(np.float64), x[:40].astype(np.float64) * (1 + 2.0**-52)])
    got = engine.opcode(f"cvt.{direction}.{kind}.{source} %out, %s0;", "b16", (source,), [x])

    def expected(v) -> int:
        if np.isnan(v):
            return nan_from(source, kind)
        exact = Fraction(float(v)) if np.isfinite(v) else float(v)
        return code(kind, exact, direction, negative=bool(np.signbit(v)))

    assert got.tolist() == [expected(v) for v in x]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_half_becomes_its_float_and_back(engine, kind):
    every = np.arange(0, 2**16, 67, dtype=np.uint16)[:960]
    for to in ("f32", "f64"):
        got = engine.opcode(f"cvt.{to}.{kind} %out, %s0;", to, ("b16",), [every])
        wanted = [value(kind, int(c)) for c in every]
        assert all(g == w or (math.isnan(g) and math.isnan(w)) for g, w in zip(got.tolist(), wanted))
        back = engine.opcode(f"cvt.rn.{kind}.{to} %out, %s0;", "b16", (to,), [got])
        assert back.tolist() == [nan_from(to, kind) if math.isnan(w) else int(c) for c, w in zip(every, wanted)]


@pytest.mark.parametrize("kind", FORMATS)
def test_two_floats_become_a_pair_the_first_on_top(engine, kind):
    x, y = singles(), singles()[::-1]
    got = engine.opcode(f"cvt.rn.{kind}x2.f32 %out, %s0, %s1;", "b32", ("f32", "f32"), [x, y])
    high, low = (engine.opcode(f"cvt.rn.{kind}.f32 %out, %s0;", "b16", ("f32",), [v]) for v in (x, y))
    assert (got >> 16).tolist() == high.tolist()
    assert (got & 0xFFFF).tolist() == low.tolist()


INTEGERS = {"s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_become_the_nearest_half(engine, kind, source):
    bits = INTEGERS[source]
    rng = np.random.default_rng(6)
    x = [int(v) >> int(s) for v, s in zip(rng.integers(0, 2**63, 150), rng.integers(0, bits, 150))]
    x += [2**e + d for e in range(bits - 1) for d in (-1, 0, 1)]
    # Just above a tie: what rounding to double first would get wrong.
    x += [2**e + 2 ** (e - 8) + 1 for e in range(9, bits - 1)]
    x = [v % 2**bits for v in x] + [2**bits - v for v in x[:100] if 0 < v < 2 ** (bits - 1)]
    columns = [np.array(x, np.uint64).astype(f"u{bits // 8}").view(f"{'i' if source[0] == 's' else 'u'}{bits // 8}")]
    got = engine.opcode(f"cvt.rn.{kind}.{source} %out, %s0;", "b16", (source,), columns)
    assert got.tolist() == [code(kind, Fraction(int(v)), negative=False) for v in columns[0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_halves_become_clamped_integers(engine, kind, to, mode):
    (x,) = codes(1)
    got = engine.opcode(f"cvt.{mode}.{to}.{kind} %out, %s0;", to, ("b16",), [x])
    limits = np.iinfo(f"{'i' if to[0] == 's' else 'u'}{INTEGERS[to] // 8}")
    rounding = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]

    def expected(v) -> int:
        if isinstance(v, float) and math.isnan(v):
            return 0 if INTEGERS[to] < 64 else (limits.min if to[0] == "s" else 2**63)
        whole = v if isinstance(v, float) else rounding(v)
        return int(min(max(whole, limits.min), limits.max))

    assert got.tolist() == [expected(value(kind, int(c))) for c in x]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_halves_are_rounded_to_integral_halves(engine, kind, mode):
    (x,) = codes(1)
    got = engine.opcode(f"cvt.{mode}.{kind}.{kind} %out, %s0;", "b16", ("b16",), [x])
    rounding = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]

    def expected(c: int) -> int:
        v = value(kind, c)
        return code(kind, v if isinstance(v, float) else Fraction(rounding(v)), negative=bool(c & 0x8000))

    assert got.tolist() == [expected(int(c)) for c in x]


@pytest.mark.parametrize(("op", "function"), [("ex2.approx", lambda v: 2.0**v), ("tanh.approx", math.tanh)])
def test_approximate_functions_of_halves_are_the_rounded_ones(engine, op, function):
    x = np.arange(0x2000, 0x4800, 29, dtype=np.uint16)[:400]
    x = np.concatenate([x, x | 0x8000])
    got = engine.opcode(f"{op}.f16 %out, %s0;", "b16", ("b16",), [x])
    assert got.tolist() == [code("f16", Fraction(function(float(value("f16", int(c)))))) for c in x]


# -- CUDA C++ --------------------------------------------------------------------------------------


def test_a_half_precision_saxpy(engine):
    source = """
#include <cuda_fp16.h>
extern "C" __global__ void k(__half a, const __half* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hfma(a, x[i], y[i]);
}"""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 70)).astype(np.float16)
    out = engine.run(source, 2, 40, {"a": np.float16(1.5), "x": x, "y": y, "n": np.int32(70)})
    exact = np.float64(1.5) * x.astype(np.float64) + y.astype(np.float64)
    assert out.faults == []
    assert (out.arrays["y"] == exact.astype(np.float16)).all()


@pytest.mark.parametrize("header", ["cuda_fp16.h", "cuda_bf16.h"])
def test_the_headers_functions_agree_on_both_executors(engine, header):
    kind, convert = ("__half", "half") if "fp16" in header else ("__nv_bfloat16", "bfloat16")
    source = f"""
#include <{header}>
extern "C" __global__ void k(const {kind}* x, const {kind}* w, {kind}* y, float* f, int* n) {{
    int i = threadIdx.x;
    {kind} a = x[i], b = w[i], c = __hadd(a, b);
    c = __hsub(__hmul(c, b), a);
    c = __hfma(__hdiv(a, b), __hneg(b), __habs(c));
    if (__hlt(a, b) && !__hisnan(c)) c = __hmax(c, hsqrt(__habs(a)));
    c = __hmin(c, hexp(hfloor(a)));
    y[i] = c;
    f[i] = __{convert}2float(c) + __{convert}2float(__float2{convert}_rn(f[i]));
    n[i] = __{convert}2int_rz(c);
}}"""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((2, 40)) + 2).astype(np.float32)
    if "fp16" in header:
        x, w = x.astype(np.float16).view(np.uint16), w.astype(np.float16).view(np.uint16)
    else:
        x, w = (v.view(np.uint32) >> 16 for v in (x, w))
    args = {"x": x.astype(np.uint16), "w": w.astype(np.uint16), "y": np.zeros(40, np.uint16)}
    args |= {"f": rng.standard_normal(40).astype(np.float32), "n": np.zeros(40, np.int32)}
    out = engine.run(source, 1, 40, args)
    assert out.faults == []
    assert len(set(out.arrays["y"].tolist())) > 20


@pytest.mark.parametrize("kind", ["f16", "f16x2", "bf16"])
def test_atomic_sums_of_halves_round_each_turn(engine, kind):
    bits = 32 if kind.endswith("x2") else 16
    source = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q) {{
  .reg .b64 %rd<5>; .reg .b32 %r<3>; .reg .b{bits} %h<3>;
  ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
  mov.u32 %r1, %tid.x; mad.wide.u32 %rd3, %r1, {bits // 8}, %rd2;
  ld.global.b{bits} %h1, [%rd3];
  atom.global.add.noftz.{kind} %h2, [%rd1], %h1;
  ret;
}}
"""
    rng = np.random.default_rng(2)
    element = kind.removesuffix("x2")
    q = rng.integers(0x3000, 0x4400, (40, bits // 16)).astype(np.uint16)
    out = engine.run(source, 1, 40, {"p": np.zeros(bits // 16, np.uint16), "q": q})
    total = [0] * (bits // 16)
    for row in q:
        total = [arithmetic("add", element, t, int(v)) for t, v in zip(total, row)]
    assert out.faults == []
    assert out.arrays["p"].tolist() == total
