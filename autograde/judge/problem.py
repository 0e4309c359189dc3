"""What a kernel task computes: its symbols, its arrays, the expected values and how far a kernel may be from them.

A `Problem` is known to specs by its name (`problems` lists them). From a case's symbols and a seed it makes an
`Instance`: inputs to send to the worker, and the expected outputs, which stay here. It also knows typical mistakes, as
results that a kernel with that mistake would give, so that a hint is only given where it was verified.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

Symbols = Mapping[str, int | float]
Shape = tuple[int, ...]

#: Unit roundoff of float32.
UNIT_ROUNDOFF = 2.0**-24


@dataclass
class Output:
    """An array that the kernel writes. `axes` names its indices, the last two of a picture being rows and columns.

    dtype  "<f4", or "<i4" for indices, which are right or wrong and have no bound
    """

    name: str
    axes: tuple[str, ...]
    expected: np.ndarray  # float64
    bound: np.ndarray  # float64, the largest |value - expected| that float32 arithmetic explains
    dtype: str = "<f4"
    #: How near a known mistake's values must be for it to be named, relative to the largest expected one, at least 1
    likeness: float = 1e-4

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
    #: What a generator is called with, by name: it makes the kernel of this case from it
    given: dict[str, Any] = field(default_factory=dict)


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
    #: What a generator of this problem is called with: the names of Instance.given.
    given: ClassVar[tuple[str, ...]] = ()
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

    def all_symbols(self, symbols: Symbols) -> dict[str, int | float]:
        """A case's symbols and those that follow from them."""
        return {**self.optional, **symbols}

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


class TimedProblem(Problem):
    """A problem that can be timed, on cases too large for the engine."""

    @abstractmethod
    def timed_shapes(self, symbols: Symbols) -> tuple[dict[str, Shape], dict[str, Shape]]:
        """The shapes of the inputs whose float32 values are new in each run, and of the outputs."""

    def timed_constants(self, symbols: Symbols) -> dict[str, np.ndarray]:
        """Inputs that are the same in each run: where the non-zeros of sparse weights stand."""
        return {}

    @abstractmethod
    def work(self, symbols: Symbols) -> tuple[float, float]:
        """The fewest bytes that must be moved, and the operations that the definition asks for."""

    @abstractmethod
    def expected(self, symbols: Symbols, inputs: Mapping[str, np.ndarray]) -> list[Output]:
        """Every expected output for these inputs, whose values have mean zero."""

    @abstractmethod
    def expected_at(
        self, symbols: Symbols, inputs: Mapping[str, np.ndarray], elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Expected values and bounds of some elements (flat indices) of the only output."""


def as_timed(problem: Problem) -> TimedProblem:
    """The same problem, as one that can be timed. Raises ValueError where it cannot."""
    if not isinstance(problem, TimedProblem):
        raise ValueError(f"a {problem.name} task is not timed")
    return problem


def zero_mean(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 values in [-1, 1)."""
    return rng.uniform(-1, 1, shape).astype(np.float32)
