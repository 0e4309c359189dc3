"""Record what a GPU makes of every opcode and type, bit for bit.

    python tests/kernels/hardware/opcodes.py           # on a machine with a GPU of sm_90 or later; writes opcodes.json

Each case is one instruction on edge values and noise. What is kept of its results is a digest; NaN count as equal.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from conftest import opcode_kernel  # noqa: E402

ROWS = 640
ROUNDING = ("rn", "rz", "rm", "rp")
INTEGRAL = ("rni", "rzi", "rmi", "rpi")
WIDE = ("s16", "u16", "s32", "u32", "s64", "u64")
INTEGERS = ("s8", "u8", *WIDE)
HALVES = ("f16", "bf16")
ORDERS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


class Case(NamedTuple):
    """An instruction that reads %s0, %s1, … and writes %out; halves are held as bits, as registers hold them."""

    instruction: str
    result: str
    sources: tuple[str, ...]

    def ptx(self) -> str:
        text = opcode_kernel(self.instruction, _held(self.result), tuple(map(_held, self.sources)), "tid")
        return text.replace(".version 8.0", ".version 8.6").replace("sm_80", "sm_90")

    def columns(self) -> list[np.ndarray]:
        return [_column(kind, seed) for seed, kind in enumerate(self.sources)]

    def output(self) -> np.ndarray:
        return np.zeros(ROWS, _dtype(self.result))

    def digest(self, results: np.ndarray) -> str:
        if results.dtype.kind == "f":
            results = np.where(np.isnan(results), results.dtype.type(np.nan), results)
        return hashlib.sha256(results.tobytes()).hexdigest()[:16]


def cases() -> Iterator[Case]:
    """Every opcode and type whose result PTX defines to the last bit."""
    yield from _floats()
    yield from _halves()
    yield from _conversions()
    yield from _integers()


def _case(opcode: str, result: str, *sources: str) -> Case:
    operands = "".join(f", %s{i}" for i in range(len(sources)))
    return Case(f"{opcode} %out{operands};", result, sources)


def _asks(comparison: str, *sources: str) -> Case:
    return Case(f"{comparison} %p0, %s0, %s1; selp.u32 %out, 1, 0, %p0;", "u32", sources)


def _floats() -> Iterator[Case]:
    for kind, mode in product(("f32", "f64"), ROUNDING):
        for op in ("add", "sub", "mul", "div"):
            yield _case(f"{op}.{mode}.{kind}", kind, kind, kind)
        yield _case(f"fma.{mode}.{kind}", kind, kind, kind, kind)
        for op in ("sqrt", "rcp"):
            yield _case(f"{op}.{mode}.{kind}", kind, kind)
    for mode, more in product(ROUNDING, (".ftz", ".sat", ".ftz.sat")):
        yield from (_case(f"{op}.{mode}{more}.f32", "f32", "f32", "f32") for op in ("add", "sub", "mul"))
        yield _case(f"fma.{mode}{more}.f32", "f32", "f32", "f32", "f32")
    for kind in ("f32", "f64"):
        yield from (_case(f"{op}.{kind}", kind, kind, kind) for op in ("min", "max", "copysign"))
        yield from (_case(f"{op}.{kind}", kind, kind) for op in ("abs", "neg"))
        yield from (_asks(f"setp.{order}.{kind}", kind, kind) for order in ORDERS)
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Case(f"testp.{test}.{kind} %p0, %s0; selp.u32 %out, 1, 0, %p0;", "u32", (kind,))
    yield from (_case(f"{op}.NaN.f32", "f32", "f32", "f32") for op in ("min", "max"))
    yield from (_asks(f"setp.{order}.ftz.f32", "f32", "f32") for order in ORDERS)
    yield _case("set.lt.ftz.f32.f32", "f32", "f32", "f32")
    yield from (_case(f"slct{more}.s32.f32", "s32", "s32", "s32", "f32") for more in ("", ".ftz"))


def _halves() -> Iterator[Case]:
    for kind in (*HALVES, "f16x2", "bf16x2"):
        for op in ("add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN"):
            yield _case(f"{op}.{kind}", kind, kind, kind)
        yield from (_case(f"fma.rn{more}.{kind}", kind, kind, kind, kind) for more in ("", ".relu"))
        yield from (_case(f"{op}.{kind}", kind, kind) for op in ("abs", "neg"))
        if kind.startswith("f16"):
            yield from (_case(f"{op}.{m}.{kind}", kind, kind, kind) for op in ("add", "mul") for m in ("sat", "ftz"))
            yield _case(f"fma.rn.sat.{kind}", kind, kind, kind, kind)
        if kind.endswith("x2"):
            yield from (_case(f"set.{order}.u32.{kind}", "u32", kind, kind) for order in ("lt", "neu"))
            yield _case(f"set.ge.{kind}.{kind}", kind, kind, kind)
            both = f"setp.geu.{kind} %p0|%p1, %s0, %s1; selp.u32 %out, 1, 0, %p0; @%p1 add.u32 %out, %out, 2;"
            yield Case(both, "u32", (kind, kind))
            yield from (_case(f"cvt.{mode}.{kind}.f32", kind, "f32", "f32") for mode in ("rn", "rz", "rz.relu"))
        else:
            yield from (_case(f"set.{order}.{kind}.{kind}", kind, kind, kind) for order in ORDERS if order != "ne")
            yield from (_asks(f"setp.{order}.{kind}", kind, kind) for order in ORDERS)


def _conversions() -> Iterator[Case]:
    for to, source in product(INTEGERS, INTEGERS):
        yield _case(f"cvt.{to}.{source}", to, source)
        wide, other = (np.iinfo(_dtype(kind)) for kind in (to, source))
        if wide.min > other.min or wide.max < other.max:
            yield _case(f"cvt.sat.{to}.{source}", to, source)
    for mode, to, source in product(ROUNDING, ("f32", "f64", *HALVES), WIDE):
        yield _case(f"cvt.{mode}.{to}.{source}", to, source)
    for mode, to, source in product(INTEGRAL, WIDE, ("f32", "f64", *HALVES)):
        yield _case(f"cvt.{mode}.{to}.{source}", to, source)
    for mode, kind in product(INTEGRAL, ("f32", "f64", *HALVES)):
        yield _case(f"cvt.{mode}.{kind}.{kind}", kind, kind)
    for mode, source in product(ROUNDING, ("f32", "f64")):
        yield from (_case(f"cvt.{mode}.{kind}.{source}", kind, source) for kind in HALVES)
    yield from (_case(f"cvt.{mode}{more}.f32.f64", "f32", "f64") for mode in ROUNDING for more in ("", ".ftz"))
    yield from (_case(f"cvt.{to}.{kind}", to, kind) for kind in HALVES for to in ("f32", "f64"))
    yield from (_case(f"cvt.rn.relu.{kind}.f32", kind, "f32") for kind in HALVES)
    yield _case("cvt.f64.f32", "f64", "f32")


def _integers() -> Iterator[Case]:
    for kind in WIDE:
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield _case(f"{op}.{kind}", kind, kind, kind)
        yield from (_case(f"{op}.{kind}", kind, kind, kind, kind) for op in ("mad.lo", "mad.hi", "sad"))
        yield _case(f"shr.{kind}", kind, kind, "u32")
        yield from (_asks(f"setp.{order}.{kind}", kind, kind) for order in ORDERS[:6])
        if kind[0] == "s":
            yield from (_case(f"{op}.{kind}", kind, kind) for op in ("abs", "neg"))
    for kind in ("s16", "u16", "s32", "u32"):
        double = f"{kind[0]}{2 * int(kind[1:])}"
        yield _case(f"mul.wide.{kind}", double, kind, kind)
        yield _case(f"mad.wide.{kind}", double, kind, kind, double)
    for kind in WIDE[2:]:
        bits = kind[1:]
        yield _case(f"bfe.{kind}", kind, kind, "u32", "u32")
        yield from (_case(f"bfind{more}.{kind}", "u32", kind) for more in ("", ".shiftamt"))
        for op in ("add", "sub"):
            chain = f"{op}.cc.{kind} %s0, %s0, %s1; {op}c.cc.{kind} %s2, %s2, %s3; {op}c.{kind} %out, 0, 0;"
            yield Case(f"{chain} mad.lo.{kind} %out, %s2, 3, %out; xor.b{bits} %out, %out, %s0;", kind, (kind,) * 4)
        for part in ("lo", "hi"):
            chain = f"mad.{part}.cc.{kind} %s2, %s0, %s1, %s2; madc.hi.{kind} %out, %s0, %s1, 0;"
            yield Case(f"{chain} xor.b{bits} %out, %out, %s2;", kind, (kind,) * 3)
    yield from (_case(f"{op}.sat.s32", "s32", "s32", "s32") for op in ("add", "sub"))
    for kind in ("b16", "b32", "b64"):
        yield from (_case(f"{op}.{kind}", kind, kind, kind) for op in ("and", "or", "xor"))
        yield from (_case(f"{op}.{kind}", kind, kind) for op in ("not", "cnot"))
        yield _case(f"shl.{kind}", kind, kind, "u32")
    for kind in ("b32", "b64"):
        yield from (_case(f"{op}.{kind}", "u32", kind) for op in ("popc", "clz"))
        yield _case(f"brev.{kind}", kind, kind)
        yield _case(f"bfi.{kind}", kind, kind, kind, "u32", "u32")
    yield _case("prmt.b32", "b32", "b32", "b32", "b32")
    yield from (Case(f"lop3.b32 %out, %s0, %s1, %s2, {t};", "b32", ("b32",) * 3) for t in (0x80, 0x96, 0xE8, 0x1B))
    for side, mode in product("lr", ("clamp", "wrap")):
        yield _case(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", "u32")
    for kind in ("u32", "s32"):
        yield from (_case(f"mul24.{part}.{kind}", kind, kind, kind) for part in ("lo", "hi"))
        yield _case(f"mad24.lo.{kind}", kind, kind, kind, kind)
    for first, second, op in product(("u32", "s32"), ("u32", "s32"), ("dp4a", "dp2a.lo", "dp2a.hi")):
        total = "s32" if "s32" in (first, second) else "u32"
        yield _case(f"{op}.{first}.{second}", total, first, second, total)


# -- operands ----------------------------------------------------------------------------------------

EDGES = {
    "f16": [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3800],
    "bf16": [0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0xBF80, 0x3F81, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x3F00],
    "f32": [
        *(
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            1e-45,
            -1e-40,
            1.1754944e-38,
            3.4028235e38,
            np.inf,
            -np.inf,
            np.nan,
        ),
        *(2.0**31, -(2.0**31), 2.0**63, 2.0**64, 65504.0, 65520.0, 2.0**-24, 2.0**-25, 1 / 3, 16777217.0),
    ],
    "f64": [
        *(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 5e-324, -1e-310, 2.2250738585072014e-308, 1.7976931348623157e308),
        *(
            np.inf,
            -np.inf,
            np.nan,
            2.0**31,
            2.0**63,
            2.0**64,
            65520.0,
            2.0**-25,
            1 + 2.0**-24,
            1e-45,
            3.4028235677973366e38,
        ),
    ],
}


def _held(kind: str) -> str:
    """The type of the register that holds a value."""
    return {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}.get(kind, kind)


def _dtype(kind: str) -> np.dtype:
    held = _held(kind)
    return np.dtype(f"{ {'f': 'f', 's': 'i'}.get(held[0], 'u') }{int(held[1:]) // 8}")


def _column(kind: str, seed: int) -> np.ndarray:
    """Noise, numbers around 1, and edge values, the same on every machine."""
    if kind.endswith("x2"):
        low, high = (_column(kind.removesuffix("x2"), seed + 10 * i).astype(np.uint32) for i in (1, 2))
        return low | high << np.uint32(16)
    dtype = _dtype(kind)
    bits = _noise(seed).astype(f"u{dtype.itemsize}")
    edges = EDGES.get(kind)
    if edges is None:
        info = np.iinfo(dtype)
        top = info.max // 2 + 1
        edges = [
            0,
            1,
            2,
            3,
            5,
            8,
            31 % top,
            32,
            33,
            63,
            64,
            255 % top,
            info.max,
            info.max - 1,
            info.min,
            top,
            info.min // 2,
        ]
    column = bits.view(dtype).copy()
    if dtype.kind == "f":
        fraction, around = (23, 127) if dtype.itemsize == 4 else (52, 1023)
        shift = np.array(fraction, bits.dtype)
        kept = bits & np.array((1 << fraction) - 1 | 1 << 8 * dtype.itemsize - 1, bits.dtype)
        exponent = (bits >> shift & np.array(15, bits.dtype)) + np.array(around - 8, bits.dtype)
        column[1::3] = (kept | exponent << shift).view(dtype)[1::3]
    choice = _noise(seed + 100)
    picked = choice % np.uint64(3) == 0
    column[picked] = np.array(edges, dtype)[(choice[picked] >> np.uint64(8)) % np.uint64(len(edges))]
    return column


def _noise(seed: int) -> np.ndarray:
    """64 random bits a row: the generator splitmix64, spelt out so that it never changes."""
    z = (np.arange(ROWS, dtype=np.uint64) + np.uint64(1 + 1000 * seed)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def main() -> None:
    from convladder.kernels import gpu

    cupy = gpu.cupy_module()
    digests = {}
    for case in cases():
        module = cupy.cuda.function.Module()
        module.load(case.ptx().encode())
        out = cupy.asarray(case.output())
        module.get_function("k")((1,), (ROWS,), (out, *map(cupy.asarray, case.columns())))
        digests[case.instruction] = case.digest(out.get())
    record = {
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.device_facts(),
        "command": "python tests/kernels/hardware/opcodes.py",
        "digests": digests,
    }
    (HERE / "opcodes.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
