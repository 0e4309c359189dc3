"""Why an element is wrong: the products that its thread formed against those of the definition, by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .problem import Instance, Problem, Summand

#: Products that a sentence names, and that a record keeps of each sort.
_NAMED, _KEPT = 2, 24

Factors = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Formed:
    """A term that the kernel formed: coefficient * elements (array, flat index), at a line (0: only copied)."""

    coefficient: float
    factors: Factors
    line: int


@dataclass
class Why:
    """One element's sum, compared. Texts name elements as `x[0,0,1,2]`.

    expected  how many terms the definition has; right: how many of them were formed, once and as they should be
    missing, repeated, foreign  terms, as text; repeated and foreign ones with their line
    """

    element: str
    expected: int
    right: int
    missing: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    sentence: str = ""

    def evidence(self) -> dict[str, Any]:
        kept = {name: getattr(self, name)[:_KEPT] for name in ("missing", "repeated", "foreign")}
        return {
            "element": self.element, "expected": self.expected, "right": self.right,
            "sentence": self.sentence, **kept,
        }  # fmt: skip


def explain(
    problem: Problem, instance: Instance, output: str, index: tuple[int, ...], value: float, formed: Sequence[Formed]
) -> Why | None:
    """Compare the terms of a wrong element. None where they do not explain the value, or the problem is no sum."""
    definition = problem.summands(instance, output, index)
    if definition is None or not _explains(formed, instance, value):
        return None
    wanted = {_flat(s, instance): s for s in definition}
    if len(wanted) < len(definition):  # a term that stands twice in the definition cannot be told from its twin
        return None
    account = _Account(instance, wanted, formed)
    element = f"{output}[{','.join(map(str, index))}]"
    why = Why(element, len(wanted), account.right, account.missing(), account.repeated(), account.foreign())
    why.sentence = account.sentence(element)
    return why


def _flat(summand: Summand, instance: Instance) -> Factors:
    return tuple(
        sorted((name, int(np.ravel_multi_index(i, instance.inputs[name].shape))) for name, i in summand.factors)
    )


def _explains(formed: Sequence[Formed], instance: Instance, value: float) -> bool:
    """Whether the terms give the value that the kernel gave, but for rounding: else something else took part."""
    terms = []
    for term in formed:
        product = term.coefficient
        for name, i in term.factors:
            array = instance.inputs.get(name)
            if array is None or not 0 <= i < array.size:
                return False
            product *= float(array.reshape(-1)[i])
        terms.append(product)
    return bool(abs(sum(terms) - value) <= 2e-3 * sum(map(abs, terms)) + 1e-30)


@dataclass(frozen=True)
class _Swap:
    """A product of the definition in which one element met another partner."""

    missing: Factors
    formed: Formed
    kept: tuple[str, int]
    got: tuple[str, int]
    due: tuple[str, int]


class _Account:
    """The terms of one element, sorted into right, missing, repeated, scaled and foreign ones."""

    def __init__(self, instance: Instance, wanted: Mapping[Factors, Summand], formed: Sequence[Formed]):
        self._inputs = instance.inputs
        self._wanted = wanted
        self._formed = [t for t in formed if t.coefficient != 0]
        self._count = Counter(t.factors for t in self._formed)
        self._missing = [f for f in wanted if not self._count[f]]
        self._again = [f for f in wanted if self._count[f] > 1]
        self._scaled = [
            t for t in self._formed
            if t.factors in wanted and self._count[t.factors] == 1
            and abs(t.coefficient - wanted[t.factors].coefficient) > 1e-6 * abs(t.coefficient)
        ]  # fmt: skip
        self._foreign = [t for t in self._formed if t.factors not in wanted]
        self._swaps = self._best_swaps()
        self.right = len(wanted) - len(self._missing) - len(self._again) - len(self._scaled)

    def missing(self) -> list[str]:
        return [self._text(f, self._wanted[f].coefficient) for f in self._missing]

    def repeated(self) -> list[str]:
        return [f"{self._text(f)} {_times(self._count[f])}{_at(self._lines(f))}" for f in self._again]

    def foreign(self) -> list[str]:
        wrong = [*self._foreign, *self._scaled]
        return [f"{self._text(t.factors, t.coefficient)}{_at([t.line])}" for t in wrong]

    def sentence(self, element: str) -> str:
        """`y[0,0,1,1] got 6 of its 9 products: those with r = 2 are missing (line 23)`."""
        size = len(self._wanted)
        noun = "term" if any(len(f) < 2 for f in self._wanted) else "product"
        wrong = (
            self._said_swapped(), self._said_missing(), self._said_again(), self._said_scaled(), self._said_foreign()
        )  # fmt: skip
        said = "; ".join(w for w in wrong if w)
        if not said:
            return f"{element} got exactly its {size} {noun}{'s' * (size > 1)}: what is wrong is their precision"
        if not size:
            return f"{element} should get no {noun} at all: {said}"
        if size == 1:
            return f"{element} {'got' if self.right else 'did not get'} its one {noun}: {said}"
        return f"{element} got {self.right} of its {size} {noun}s: {said}"

    # -- what is said of each sort ---------------------------------------------------------------

    def _said_swapped(self) -> str:
        if not self._swaps:
            return ""
        first = self._swaps[0]
        lines = sorted({s.formed.line for s in self._swaps})
        example = f"{self._name(*first.kept)} meets {self._name(*first.got)} instead of {self._name(*first.due)}"
        if len(self._swaps) == 1:
            return f"{example}{_at(lines)}"
        if (offset := self._common_offset(self._swaps)) is not None:
            far = ",".join(f"{d:+d}" if d else "0" for d in offset)
            return f"{first.got[0]} is read off by [{far}]{_at(lines)}: {example}"
        return f"{example}{_at(lines)}, and {len(self._swaps) - 1} more like this"

    def _said_missing(self) -> str:
        """By the index of the sum that the missing ones have in common."""
        swapped = {s.missing for s in self._swaps}
        lost = [f for f in self._missing if f not in swapped]
        if not lost:
            return ""
        where = "" if swapped else _at(sorted({t.line for t in self._formed}))
        if len(lost) == len(self._wanted) > 1:
            return f"all are missing{where}"
        for name, value, together in _slices(self._wanted):
            if together == set(lost) and len(together) > 1:
                return f"those with {name} = {value} are missing{where}"
        texts = [self._text(f, self._wanted[f].coefficient) for f in lost]
        return f"{_listed(texts)} {'is' if len(lost) == 1 else 'are'} missing{where}"

    def _said_again(self) -> str:
        if not self._again:
            return ""
        counts = {self._count[f] for f in self._again}
        if len(self._again) == len(self._wanted) > 1 and len(counts) == 1:
            return (
                f"each is added {_times(counts.pop())}{_at(sorted({n for f in self._again for n in self._lines(f)}))}"
            )
        return f"added more than once: {_listed(self.repeated())}"

    def _said_scaled(self) -> str:
        if not self._scaled:
            return ""
        first = self._scaled[0]
        wanted, got = self._wanted[first.factors].coefficient, first.coefficient
        one = len(self._scaled) == 1
        what = f"{self._text(first.factors)} is" if one else f"{len(self._scaled)} are"
        how = "subtracted instead of added" if got == -wanted else f"taken {got:g} times instead of {wanted:g}"
        return f"{what} {how}{_at([first.line])}"

    def _said_foreign(self) -> str:
        swapped = {s.formed for s in self._swaps}
        strangers = [t for t in self._foreign if t not in swapped]
        if not strangers:
            return ""
        texts = [f"{self._text(t.factors, t.coefficient)}{_at([t.line])}" for t in strangers]
        return f"{_listed(texts)} {'does' if len(texts) == 1 else 'do'} not belong to it"

    # -- elements that met a wrong partner -------------------------------------------------------

    def _best_swaps(self) -> list[_Swap]:
        """With whichever factor kept the others' index is off by one and the same, else that which explains most."""
        names = sorted({name for f in self._missing for name, _ in f})
        tried = [self._swaps_around(name) for name in names]
        return max(tried, key=lambda s: (len(s) > 1 and self._common_offset(s) is not None, len(s)), default=[])

    def _swaps_around(self, kept_name: str) -> list[_Swap]:
        """Missing products whose element of this array is in one product of the definition and in one foreign one."""

        def of_array(factors: Factors) -> tuple[str, int] | None:
            found = [f for f in factors if f[0] == kept_name]
            return found[0] if len(factors) == 2 and len(found) == 1 else None

        due = Counter(of_array(f) for f in self._wanted)
        met: dict[tuple[str, int] | None, list[Formed]] = {}
        for term in self._foreign:
            met.setdefault(of_array(term.factors), []).append(term)
        swaps = []
        for missing in self._missing:
            kept = of_array(missing)
            if kept is None or due[kept] != 1 or len(met.get(kept, [])) != 1:
                continue
            (term,) = met[kept]
            got, wanted = _other(term.factors, kept), _other(missing, kept)
            if got[0] == wanted[0]:
                swaps.append(_Swap(missing, term, kept, got, wanted))
        return swaps

    def _common_offset(self, swaps: Sequence[_Swap]) -> tuple[int, ...] | None:
        """How far the index of each partner is from that of the right one, where that is the same for all."""
        offsets = {
            tuple(int(g) - int(d) for g, d in zip(self._index(*s.got), self._index(*s.due), strict=True)) for s in swaps
        }  # fmt: skip
        return offsets.pop() if len(offsets) == 1 else None

    # -- names -----------------------------------------------------------------------------------

    def _lines(self, factors: Factors) -> list[int]:
        return sorted({t.line for t in self._formed if t.factors == factors and t.line})

    def _text(self, factors: Factors, coefficient: float = 1.0) -> str:
        names = [self._name(*f) for f in factors[::-1]]  # x·w, as in the definition
        number = [] if abs(coefficient) == 1 and names else [f"{abs(coefficient):g}"]
        return f"{'-' if coefficient < 0 else ''}{'·'.join([*number, *names])}"

    def _index(self, array: str, element: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(element, self._inputs[array].shape))

    def _name(self, array: str, element: int) -> str:
        return f"{array}[{','.join(map(str, self._index(array, element)))}]"


def _other(factors: Factors, one: tuple[str, int]) -> tuple[str, int]:
    return factors[1] if factors[0] == one else factors[0]


def _slices(wanted: Mapping[Factors, Summand]) -> list[tuple[str, int, set[Factors]]]:
    """Every index of the sum with every value, and the products that have it."""
    found: dict[tuple[str, int], set[Factors]] = {}
    for factors, summand in wanted.items():
        for name, value in summand.loop.items():
            found.setdefault((name, value), set()).add(factors)
    return [(name, value, together) for (name, value), together in found.items() if len(together) < len(wanted)]


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{', '.join(texts[:_NAMED])}{more}"


def _times(count: int) -> str:
    return {2: "twice", 3: "three times"}.get(count, f"{count} times")


def _at(lines: Sequence[int]) -> str:
    known = [str(n) for n in lines if n]
    return f" (line{'s' * (len(known) > 1)} {', '.join(known)})" if known else ""
