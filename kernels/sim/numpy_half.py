"""Half precision in NumPy: f16 and bf16, alone or as pairs, by looking for the nearest of all their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np

from .ptx import Instruction
from .types import TYPES, ScalarType

Lanes = np.ndarray
F64 = np.float64

#: What GPUs make of every NaN.
NAN = 0x7FFF


def to_double(kind: ScalarType, x: Lanes) -> Lanes:
    """The values of halves."""
    if kind.name == "f16":
        values = x.astype(np.uint16).view(np.float16).astype(F64)
    else:
        values = (x.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(F64)
    return np.where(np.isnan(values), np.nan, values)


@cache
def _numbers(kind: ScalarType) -> Lanes:
    """Every number from 0 upwards, by its code; in place of infinity the power of two that would come there."""
    codes = np.arange(0x8000, dtype=np.uint16)
    values = to_double(kind, codes)
    infinity = int(np.argmax(np.isinf(values)))
    return np.append(values[:infinity], 2 * values[infinity - 1] - values[infinity - 2])


def from_double(kind: ScalarType, x: Lanes, direction: str = "rn", nan: int = NAN) -> Lanes:
    """Doubles rounded to halves: to the nearer neighbour, a tie to the even code."""
    numbers = _numbers(kind)
    infinity = len(numbers) - 1
    size = np.abs(np.where(np.isnan(x), 0, x))
    low = np.minimum(np.searchsorted(numbers, size, "right") - 1, infinity)
    high = np.minimum(low + 1, infinity)
    below, above = size - numbers[low], numbers[high] - size
    up = {
        "rn": (above < below) | ((above == below) & (low % 2 == 1)),
        "rz": np.zeros(x.shape, bool),
        "rp": (x > 0) & (below > 0),
        "rm": (x < 0) & (below > 0),
    }[direction]
    code = np.where(up, high, low)
    if direction != "rn":  # beyond the largest number only outward rounding reaches infinity
        outward = (x > 0) if direction == "rp" else (x < 0) if direction == "rm" else np.zeros(x.shape, bool)
        code = np.where((code == infinity) & ~outward, infinity - 1, code)
    code = np.where(np.isinf(x), infinity, code) | np.where(np.signbit(x), 0x8000, 0)
    return np.where(np.isnan(x), nan, code).astype(np.uint16)


def halves(pair: Lanes) -> tuple[Lanes, Lanes]:
    """The low and the high half of pairs."""
    return (pair & np.uint32(0xFFFF)).astype(np.uint16), (pair >> np.uint32(16)).astype(np.uint16)


def join(low: Lanes, high: Lanes) -> Lanes:
    return low.astype(np.uint16).astype(np.uint32) | high.astype(np.uint16).astype(np.uint32) << np.uint32(16)


def add(kind: ScalarType, a: Lanes, b: Lanes) -> Lanes:
    """Sums of halves or pairs."""
    if kind.is_pair:
        return join(*(add(kind.element, x, y) for x, y in zip(halves(a), halves(b))))
    return from_double(kind, to_double(kind, a) + to_double(kind, b))


def evaluate(ins: Instruction, s: list[Lanes], compare: Callable[..., Lanes]) -> Lanes:
    """The result of an arithmetic instruction on halves; conversions aside."""
    kind, to = ins.type, ins.types[0]
    if kind.is_pair:
        element = kind.element
        result = to.element if to.is_pair else TYPES[f"{to.kind}16"]
        parts = [_single(ins, element, result, [halves(x)[i] for x in s], compare) for i in (0, 1)]
        return join(*parts)
    return _single(ins, kind, to, s, compare)


def _single(ins: Instruction, kind: ScalarType, to: ScalarType, s: list[Lanes], compare: Callable[..., Lanes]) -> Lanes:
    if ins.opcode in ("neg", "abs"):
        result = s[0] ^ np.uint16(0x8000) if ins.opcode == "neg" else s[0] & np.uint16(0x7FFF)
        return np.where(np.isnan(to_double(kind, s[0])), NAN, result)
    values = [to_double(kind, x) for x in s]
    if ins.has("ftz"):
        values = [_flush(kind, v) for v in values]
    if ins.opcode == "set":
        found = compare(next(m for m in ins.modifiers if m != "ftz"), *values)
        one = from_double(to, np.ones(1))[0] if to.is_half else np.uint16(0xFFFF)
        return np.where(found, one, np.uint16(0))
    result = limited(ins, _OPERATIONS[ins.opcode](ins, *values))
    return from_double(kind, _flush(kind, result) if ins.has("ftz") else result)


def _flush(kind: ScalarType, x: Lanes) -> Lanes:
    least = {"f16": 2.0**-14, "bf16": 2.0**-126}[kind.name]
    return np.where(np.abs(x) < least, np.copysign(0.0, x), x)


def limited(ins: Instruction, x: Lanes) -> Lanes:
    """.sat: to [0, 1], NaN to 0. .relu: to 0 and above, NaN stays."""
    if ins.has("sat"):
        return np.where(x > 0, np.where(x < 1, x, 1.0), 0.0)
    return np.where(x <= 0, 0.0, x) if ins.has("relu") else x


def _min_max(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    least = ins.opcode == "min"
    first = (a < b) if least else (a > b)
    first |= (a == b) & (np.signbit(a) if least else ~np.signbit(a))
    result = np.where(np.isnan(a), b, np.where(np.isnan(b) | first, a, b))
    return np.where(np.isnan(a) | np.isnan(b), np.nan, result) if ins.has("NaN") else result


def _odd_fma(a: float, b: float, c: float) -> float:
    """a * b + c rounded to odd: where it is inexact, the last bit is set, so that rounding it again stays right."""
    near = a * b + c
    if not math.isfinite(near) or near == 0:
        return near
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if Fraction(near) == exact or int(math.frexp(near)[0] * 2**53) % 2:
        return near
    return math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)


_OPERATIONS: dict[str, Callable[..., Lanes]] = {
    "add": lambda ins, a, b: a + b, "sub": lambda ins, a, b: a - b, "mul": lambda ins, a, b: a * b,
    "fma": lambda ins, a, b, c: np.array([_odd_fma(*map(float, v)) for v in zip(a, b, c)]),
    "min": _min_max, "max": _min_max,
    "ex2": lambda ins, a: np.exp2(a), "tanh": lambda ins, a: np.tanh(a),
}  # fmt: skip
