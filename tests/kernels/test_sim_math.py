"""CUDA's mathematical functions on the engine stay within the errors that CUDA states, against mpmath.

The bounds are those of the CUDA C++ Programming Guide 13.0, "Mathematical Functions Appendix", in units in the last
place (ULP) of the result.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

mpmath.mp.prec = 120

#: Function -> (exact function, stated error in single and in double precision, range of arguments).
WIDE, POSITIVE, UNIT, SMALL = (-1e30, 1e30), (1e-30, 1e30), (-1.0, 1.0), (-80.0, 80.0)
FUNCTIONS = {
    "sqrt": (mpmath.sqrt, 0, 0, POSITIVE),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), 2, 1, POSITIVE),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), 1, 1, WIDE),
    "exp": (mpmath.exp, 1, 1, SMALL),
    "exp2": (lambda x: mpmath.power(2, x), 2, 1, (-120.0, 120.0)),
    "exp10": (lambda x: mpmath.power(10, x), 2, 1, (-36.0, 36.0)),
    "expm1": (mpmath.expm1, 1, 1, (-50.0, 80.0)),
    "log": (mpmath.log, 1, 1, POSITIVE),
    "log2": (lambda x: mpmath.log(x, 2), 1, 1, POSITIVE),
    "log10": (lambda x: mpmath.log(x, 10), 2, 1, POSITIVE),
    "log1p": (mpmath.log1p, 1, 1, (-0.99, 1e20)),
    "sin": (mpmath.sin, 2, 2, WIDE),
    "cos": (mpmath.cos, 2, 2, WIDE),
    "tan": (mpmath.tan, 4, 2, WIDE),
    "sinpi": (mpmath.sinpi, 1, 2, (-1e4, 1e4)),
    "cospi": (mpmath.cospi, 1, 2, (-1e4, 1e4)),
    "asin": (mpmath.asin, 2, 2, UNIT),
    "acos": (mpmath.acos, 2, 2, UNIT),
    "atan": (mpmath.atan, 2, 2, WIDE),
    "sinh": (mpmath.sinh, 3, 2, SMALL),
    "cosh": (mpmath.cosh, 2, 1, SMALL),
    "tanh": (mpmath.tanh, 2, 1, (-30.0, 30.0)),
    "asinh": (mpmath.asinh, 3, 3, WIDE),
    "acosh": (mpmath.acosh, 4, 3, (1.0, 1e20)),
    "atanh": (mpmath.atanh, 3, 2, (-0.999, 0.999)),
    "erf": (mpmath.erf, 2, 2, (-6.0, 6.0)),
    "erfc": (mpmath.erfc, 4, 5, (-5.0, 9.0)),
    "normcdf": (mpmath.ncdf, 5, 5, (-12.0, 6.0)),
    "tgamma": (mpmath.gamma, 5, 10, (0.01, 33.0)),
    "lgamma": (mpmath.loggamma, 6, 4, (0.01, 1e10)),
}
BINARY = {
    "pow": (mpmath.power, 4, 2, (1e-6, 1e6), (-5.0, 5.0)),
    "atan2": (mpmath.atan2, 3, 2, WIDE, WIDE),
    "hypot": (mpmath.hypot, 3, 2, (-1e15, 1e15), (-1e15, 1e15)),
    "fmod": (lambda x, y: mpmath.mpf(math.fmod(x, y)), 0, 0, (-1e6, 1e6), (1e-3, 1e3)),
    "remainder": (lambda x, y: mpmath.mpf(math.remainder(x, y)), 0, 0, (-1e6, 1e6), (1e-3, 1e3)),
}

#: What --use_fast_math makes of functions: stated as an absolute error, or in ULP.
FAST = {
    "sinf": (mpmath.sin, (-3.14, 3.14), lambda x, y: 2.0**-21.41),
    "cosf": (mpmath.cos, (-3.14, 3.14), lambda x, y: 2.0**-21.19),
    "expf": (mpmath.exp, (-80.0, 80.0), lambda x, y: (2 + abs(1.173 * x)) * ulp(y, np.float32)),
    "logf": (mpmath.log, (0.5, 2.0), lambda x, y: 2.0**-21.41),
    "log2f": (lambda x: mpmath.log(x, 2), (0.5, 2.0), lambda x, y: 2.0**-22),
    "sqrtf": (mpmath.sqrt, (1e-20, 1e20), lambda x, y: 2 * ulp(y, np.float32)),
    "rsqrtf": (lambda x: 1 / mpmath.sqrt(x), (1e-20, 1e20), lambda x, y: 2 * ulp(y, np.float32)),
    "tanhf": (mpmath.tanh, (-9.0, 9.0), lambda x, y: 2.0**-10.987 * abs(y)),
}


def ulp(exact: float, dtype) -> float:
    """Distance of the floats around a number; subnormals have that of the smallest normal one."""
    info = np.finfo(dtype)
    exponent = max(math.frexp(float(exact))[1] - 1, int(info.minexp))
    return math.ldexp(1.0, exponent - info.nmant)


def arguments(low: float, high: float, count: int, dtype, seed: int) -> np.ndarray:
    """Numbers of every magnitude in a range, and some spread evenly."""
    rng = np.random.default_rng(seed)
    least = max(low, 1e-30) if low > 0 else 1e-8
    sizes = np.exp(rng.uniform(math.log(least), math.log(max(abs(low), high)), count))
    signs = rng.choice([-1.0, 1.0], count) if low < 0 else np.ones(count)
    even = rng.uniform(max(low, -1e4), min(high, 1e4), count)
    x = np.where(rng.random(count) < 0.5, sizes * signs, even)
    return np.clip(x, low, high).astype(dtype)


def kernel(function: str, c_type: str, arity: int) -> str:
    inputs = ", ".join(f"const {c_type}* x{i}" for i in range(arity))
    values = ", ".join(f"x{i}[i]" for i in range(arity))
    return f"""extern "C" __global__ void k({c_type}* y, {inputs}) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = {function}({values});
}}"""


def values(engine, function: str, dtype, columns: list[np.ndarray], options=()) -> np.ndarray:
    """The function on every row: all of them in compiled code, the first warp on both executors."""
    c_type = "float" if dtype is np.float32 else "double"
    source = engine.ptx(kernel(function, c_type, len(columns)), options)
    args = {"y": np.zeros(len(columns[0]), dtype)} | {f"x{i}": c for i, c in enumerate(columns)}
    few = {n: a[:32] for n, a in args.items()}
    out = engine.once("llvm", source, len(columns[0]) // 32, 32, args)
    first = engine.run(source, 1, 32, few)
    assert out.faults == first.faults == []
    assert first.arrays["y"].tobytes() == out.arrays["y"][:32].tobytes()
    return out.arrays["y"]


def worst_error(got: np.ndarray, exact: list, dtype) -> float:
    """The largest difference from the correctly rounded results, in ULP: how CUDA states errors."""
    rounded = np.array([float(e) for e in exact]).astype(dtype)
    finite = np.isfinite(rounded)
    return max(abs(float(g) - float(r)) / ulp(float(r), dtype) for g, r in zip(got[finite], rounded[finite]))


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_stay_within_the_stated_error(engine, name, dtype):
    exact, *bounds, (low, high) = FUNCTIONS[name]
    x = arguments(low, high, 320, dtype, seed=1)
    got = values(engine, name + ("f" if dtype is np.float32 else ""), dtype, [x])
    wanted = [exact(mpmath.mpf(float(v))) for v in x]
    assert worst_error(got, wanted, dtype) <= bounds[dtype is np.float64]


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments_stay_within_the_stated_error(engine, name, dtype):
    exact, *bounds, first, second = BINARY[name]
    x, y = arguments(*first, 320, dtype, seed=2), arguments(*second, 320, dtype, seed=3)
    got = values(engine, name + ("f" if dtype is np.float32 else ""), dtype, [x, y])
    wanted = [exact(float(a), float(b)) for a, b in zip(x, y)]
    assert worst_error(got, wanted, dtype) <= bounds[dtype is np.float64]


@pytest.mark.parametrize("name", FAST)
def test_fast_math_stays_within_its_stated_error(engine, name):
    exact, (low, high), bound = FAST[name]
    x = arguments(low, high, 320, np.float32, seed=4)
    got = values(engine, name, np.float32, [x], ("--use_fast_math",))
    for v, g in zip(x, got):
        wanted = exact(mpmath.mpf(float(v)))
        assert abs(mpmath.mpf(float(g)) - wanted) <= bound(float(v), float(wanted)), v
