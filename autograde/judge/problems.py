"""What a kernel task computes: its symbols, its arrays, the expected values and how far a kernel may be from them.

A `Problem` is known to specs by its name. From a case's symbols and a seed it makes an `Instance`: inputs to
send to the worker, and the expected outputs, which stay here. It also knows typical mistakes, as results that
a kernel with that mistake would give, so that a hint is only given where it was verified.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from convladder.kernels import oracle
from convladder.kernels.errors import GeometryError
from convladder.kernels.layouts import ConvGeometry

Symbols = Mapping[str, int | float]
Shape = tuple[int, ...]

#: Unit roundoff of float32.
_U = 2.0**-24


@dataclass
class Output:
    """An array that the kernel writes. `axes` names its indices, the last two of a picture being rows and columns."""

    name: str
    axes: tuple[str, ...]
    expected: np.ndarray  # float64
    bound: np.ndarray  # float64, the largest |value - expected| that float32 arithmetic explains

    def element(self, index: tuple[int, ...]) -> str:
        """`y[0,3,12,7]`."""
        return f"{self.name}[{','.join(map(str, index))}]"


@dataclass
class Instance:
    """One case with its data. `symbols` holds everything that expressions and launches may name."""

    symbols: dict[str, int | float]
    inputs: dict[str, np.ndarray]
    outputs: list[Output]
    #: (what the student did, the output that it gives): computed only where a result is wrong
    mistakes: Callable[[], Iterator[tuple[str, np.ndarray]]] = field(default=lambda: iter(()))


@dataclass(frozen=True)
class Summand:
    """One term of the sum that an output element is: coefficient * a[i] * b[j].

    factors  (input, index), in the order of the names
    loop     the indices of the definition's sum, for telling which are missing
    """

    factors: tuple[tuple[str, tuple[int, ...]], ...]
    loop: Mapping[str, int] = field(default_factory=dict)
    coefficient: float = 1.0


class Problem(ABC):
    """`declarations` are the C declarations of everything that a kernel of this problem may take, by name."""

    name: ClassVar[str]
    declarations: ClassVar[Mapping[str, str]]
    required: ClassVar[tuple[str, ...]]
    optional: ClassVar[Mapping[str, int]] = {}
    #: The smallest value of a symbol where that is not 1.
    least: ClassVar[Mapping[str, int]] = {}

    @property
    def symbol_names(self) -> set[str]:
        """What expressions may name."""
        return {n for n, c in self.declarations.items() if "*" not in c}

    def check(self, symbols: Symbols) -> None:
        """Raise ValueError or GeometryError where these are not a case's symbols."""
        for name, value in symbols.items():
            if name not in self.required and name not in self.optional:
                known = ", ".join((*self.required, *self.optional))
                raise ValueError(f"`{name}` is no symbol that a {self.name} case sets: those are {known}")
            if type(value) is not int:
                raise ValueError(f"`{name}` is {value!r}: it must be an integer")
        if missing := [n for n in self.required if n not in symbols]:
            raise ValueError(f"`{missing[0]}` is missing: a {self.name} case sets {', '.join(self.required)}")

    @abstractmethod
    def size(self, symbols: Symbols) -> int:
        """How much work a case is: cases are tried from the smallest to the largest."""

    @abstractmethod
    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        """The case with its data."""

    def border(self, symbols: Symbols) -> dict[str, int]:
        """How many rows and columns of zeros to think around each plane of an input; inputs without are left out."""
        return {}

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand] | None:
        """The definition of one output element, term by term; None for a problem that is no sum of products."""
        return None


@runtime_checkable
class TimedProblem(Protocol):
    """What a problem has besides if it can be timed, on cases too large for the engine."""

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        """The shapes of inputs and outputs."""

    def all_symbols(self, symbols: Symbols) -> dict[str, int | float]:
        """A case's symbols and those that follow from them."""

    def work(self, symbols: Symbols) -> tuple[float, float]:
        """The fewest bytes that must be moved, and the operations that the definition asks for."""

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        """Every expected output for these inputs, whose values have mean zero."""

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Expected values and bounds of some elements (flat indices) of the only output."""


def timed(problem: Problem) -> TimedProblem:
    """The same problem, as one that can be timed. Raises ValueError where it cannot."""
    if not isinstance(problem, TimedProblem):
        raise ValueError(f"a {problem.name} task is not timed")
    return problem


def _zero_mean(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


class _Conv2d(Problem):
    """y[n,k,p,q] = sum over c, r, s of x[n, c, p U - pad + r dil, q U - pad + s dil] * w[k,c,r,s]."""

    name = "conv2d"
    declarations: ClassVar = {
        "x": "const float* x",
        "w": "const float* w",
        "y": "float* y",
        **{n: f"int {n}" for n in ("N", "C", "H", "W", "K", "R", "S", "P", "Q", "U", "pad", "dil", "groups")},
    }
    required = ("N", "C", "H", "W", "K", "R", "S", "U", "pad")
    optional: ClassVar = {"dil": 1, "groups": 1}
    least: ClassVar = {"pad": 0}

    def border(self, symbols: Symbols) -> dict[str, int]:
        return {"x": int(symbols["pad"])} if symbols["pad"] else {}

    def geometry(self, symbols: Symbols) -> ConvGeometry:
        s: dict[str, Any] = {**self.optional, **symbols}
        sizes = {n: s[n] for n in ("N", "C", "H", "W", "K", "R", "S", "groups")}
        stride, pad, dilation = ((s[n], s[n]) for n in ("U", "pad", "dil"))
        return ConvGeometry(**sizes, stride=stride, pad=pad, dilation=dilation)

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if min(symbols["U"], symbols.get("dil", 1), symbols.get("groups", 1), symbols["N"]) < 1 or symbols["pad"] < 0:
            raise GeometryError("N, U, dil and groups must be at least 1, pad at least 0")
        self.geometry(symbols)

    def size(self, symbols: Symbols) -> int:
        return int(np.prod(self.geometry(symbols).y_shape, dtype=object)) * self.geometry(symbols).products

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        g = self.geometry(symbols)
        x, w = _zero_mean(rng, *g.x_shape), _zero_mean(rng, *g.w_shape)
        inputs = {"x": x, "w": w}
        outputs = self.expected(symbols, inputs)
        return Instance(self.all_symbols(symbols), inputs, outputs, lambda: _conv_mistakes(x, w, g))

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        g = self.geometry({k: v for k, v in instance.symbols.items() if k in self.required or k in self.optional})
        n, k, p, q = index
        channels = g.C // g.groups
        found = []
        for c, r, s in np.ndindex(channels, g.R, g.S):
            row, column = p * g.stride[0] - g.pad[0] + r * g.dilation[0], q * g.stride[1] - g.pad[1] + s * g.dilation[1]
            if 0 <= row < g.H and 0 <= column < g.W:
                of_x = (n, k // (g.K // g.groups) * channels + c, row, column)
                found.append(Summand((("w", (k, c, r, s)), ("x", of_x)), {"c": c, "r": r, "s": s}))
        return found

    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        g = self.geometry(symbols)
        return {"x": g.x_shape, "w": g.w_shape}, {"y": g.y_shape}

    def all_symbols(self, symbols: Symbols) -> dict[str, int | float]:
        return {n: v for n, v in self.geometry(symbols).symbols().items() if n in self.declarations}

    def work(self, symbols: Symbols) -> tuple[float, float]:
        """Products with the padding are not asked for."""
        g = self.geometry(symbols)
        moved = sum(math.prod(shape) for shape in (g.x_shape, g.w_shape, g.y_shape))
        rows, columns = (
            sum(0 <= p * g.stride[a] - g.pad[a] + r * g.dilation[a] < size for p in range(many) for r in range(taps))
            for a, (many, taps, size) in enumerate(((g.P, g.R, g.H), (g.Q, g.S, g.W)))
        )
        return 4.0 * moved, 2.0 * g.N * g.K * (g.C // g.groups) * rows * columns

    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        g = self.geometry(symbols)
        x, w = inputs["x"], inputs["w"]
        how = (g.stride, g.pad, g.dilation, g.groups)
        return [Output("y", ("n", "k", "p", "q"), oracle.conv2d(x, w, *how), oracle.bound(x, w, *how))]

    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        g = self.geometry(symbols)
        return oracle.at(elements, inputs["x"], inputs["w"], g.stride, g.pad, g.dilation, g.groups)


def _conv_mistakes(x: np.ndarray, w: np.ndarray, g: ConvGeometry) -> Iterator[tuple[str, np.ndarray]]:
    """What a convolution gives that was programmed with one typical mistake, as (mistake, y)."""
    U, pad, dil = g.stride[0], g.pad[0], g.dilation[0]

    def conv(x: np.ndarray = x, w: np.ndarray = w, U: int = U, pad: int = pad, dil: int = dil) -> np.ndarray:
        """The first P x Q outputs; where the changed convolution has fewer, the input is zero beyond its end."""
        need_h = max(0, (g.P - 1) * U + (g.R - 1) * dil + 1 - pad - g.H)
        need_w = max(0, (g.Q - 1) * U + (g.S - 1) * dil + 1 - pad - g.W)
        before, cut = max(pad, 0), max(-pad, 0)
        wide = np.pad(x, ((0, 0), (0, 0), (before, need_h), (before, need_w)))[..., cut:, cut:]
        return oracle.conv2d(wide, w, U, 0, dil, g.groups)[:, :, : g.P, : g.Q]

    if U > 1:
        yield "the stride U is not used (p and q step by 1)", conv(U=1)
    if pad:
        yield "pad is not subtracted from the input's index", conv(pad=0)
        yield "pad is added to the input's index instead of subtracted", conv(pad=-pad)
        yield (
            "the padding repeats the input's border instead of being zero",
            oracle.conv2d(np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="edge"), w, U, 0, dil, g.groups),
        )
    if dil > 1:
        yield "the dilation dil is not used", conv(dil=1)
    if g.R * g.S > 1:
        yield "the filter is flipped (r and s run the wrong way)", conv(w=w[:, :, ::-1, ::-1])
    if g.R == g.S > 1:
        yield "r and s are swapped in the filter's index", conv(w=w.swapaxes(2, 3))
    if g.H == g.W > 1:
        yield "the rows and columns of the input are swapped", conv(x=x.swapaxes(2, 3))
    if g.P == g.Q > 1:
        yield "the rows and columns of the output are swapped", conv().swapaxes(2, 3)
    for name, axis, size in (("c", 1, g.C // g.groups), ("r", 2, g.R), ("s", 3, g.S)):
        if size > 1:
            limit = {"c": "C", "r": "R", "s": "S"}[name]
            yield f"only the last {name} = {limit} - 1 is summed", conv(w=_keep(w, axis, slice(size - 1, size)))
            yield f"the sum leaves out the last {name} = {limit} - 1", conv(w=_keep(w, axis, slice(0, size - 1)))
            yield f"the sum leaves out {name} = 0", conv(w=_keep(w, axis, slice(1, size)))
    for what, rows, columns in (("row and column", True, True), ("row", True, False), ("column", False, True)):
        first = (slice(int(rows), None), slice(int(columns), None))
        last = (slice(0, g.H - rows), slice(0, g.W - columns))
        yield f"the input's first {what} (index 0) is taken for padding", conv(x=_keep_inner(x, *first))
        yield f"the input's last {what} is taken for padding", conv(x=_keep_inner(x, *last))


def _keep(w: np.ndarray, axis: int, kept: slice) -> np.ndarray:
    """A copy with zeros but for a slice along one axis."""
    index = tuple(kept if a == axis else slice(None) for a in range(w.ndim))
    copy = np.zeros_like(w)
    copy[index] = w[index]
    return copy


def _keep_inner(x: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
    copy = np.zeros_like(x)
    copy[:, :, rows, columns] = x[:, :, rows, columns]
    return copy


class _Saxpy(Problem):
    """z[i] = a x[i] + y[i]."""

    name = "saxpy"
    declarations: ClassVar = {
        "x": "const float* x", "y": "const float* y", "z": "float* z", "n": "int n", "a": "float a",
    }  # fmt: skip
    required = ("n",)

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if symbols["n"] < 1:
            raise ValueError("`n` must be at least 1")

    def size(self, symbols: Symbols) -> int:
        return int(symbols["n"])

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        x, y = _zero_mean(rng, int(symbols["n"])), _zero_mean(rng, int(symbols["n"]))
        a = float(np.float32(rng.uniform(0.5, 2)))
        product = a * x.astype(np.float64)
        expected = product + y
        bound = 2 * _U * (abs(product) + abs(expected))

        def mistakes() -> Iterator[tuple[str, np.ndarray]]:
            yield "x and y are swapped", a * y.astype(np.float64) + x
            yield "a is not used", x.astype(np.float64) + y
            yield "y is not added", product

        output = Output("z", ("i",), expected, bound)
        return Instance({"n": symbols["n"], "a": a}, {"x": x, "y": y}, [output], mistakes)

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        return [Summand((("x", index),), coefficient=float(instance.symbols["a"])), Summand((("y", index),))]


class _Mirror(Problem):
    """y[i,j] = x[i, W-1-j]: a first two-dimensional index."""

    name = "mirror"
    declarations: ClassVar = {"x": "const float* x", "y": "float* y", "H": "int H", "W": "int W"}
    required = ("H", "W")

    def check(self, symbols: Symbols) -> None:
        super().check(symbols)
        if min(symbols["H"], symbols["W"]) < 1:
            raise ValueError("`H` and `W` must be at least 1")

    def size(self, symbols: Symbols) -> int:
        return int(symbols["H"] * symbols["W"])

    def instance(self, symbols: Symbols, rng: np.random.Generator) -> Instance:
        x = _zero_mean(rng, int(symbols["H"]), int(symbols["W"]))
        expected = x[:, ::-1].astype(np.float64)

        def mistakes() -> Iterator[tuple[str, np.ndarray]]:
            yield "nothing is mirrored: y is a copy of x", x
            yield "the rows are mirrored, not the columns", x[::-1]
            yield "the column is W - j instead of W - 1 - j", np.roll(x[:, ::-1], 1, axis=1)

        output = Output("y", ("i", "j"), expected, np.zeros_like(expected))
        return Instance({"H": symbols["H"], "W": symbols["W"]}, {"x": x}, [output], mistakes)

    def summands(self, instance: Instance, output: str, index: tuple[int, ...]) -> list[Summand]:
        i, j = index
        return [Summand((("x", (i, int(instance.symbols["W"]) - 1 - j)),))]


PROBLEMS: dict[str, Problem] = {p.name: p for p in (_Conv2d(), _Saxpy(), _Mirror())}
