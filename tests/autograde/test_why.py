"""A wrong element's products against those of its definition, in a sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from convladder.autograde.judge.problem import Instance, Summand
from convladder.autograde.judge.problems import PROBLEMS
from convladder.autograde.judge.why import Formed, explain

SIZES = {"N": 1, "C": 2, "H": 4, "W": 5, "K": 2, "R": 3, "S": 3, "U": 1, "pad": 1}
ELEMENT = (0, 1, 1, 2)  # away from the border: 18 products


def instance(problem: str, **symbols: int) -> Instance:
    return PROBLEMS[problem].instance(symbols, np.random.default_rng(3))


def formed(case: Instance, summand: Summand, line: int = 9) -> Formed:
    """A summand as a kernel forms it."""
    factors = sorted((name, int(np.ravel_multi_index(i, case.inputs[name].shape))) for name, i in summand.factors)
    return Formed(summand.coefficient, tuple(factors), line)


def value(case: Instance, terms: list[Formed]) -> float:
    return sum(t.coefficient * np.prod([float(case.inputs[n].reshape(-1)[i]) for n, i in t.factors]) for t in terms)


def said(change: Callable[[list[Formed]], list[Formed]]) -> str:
    """The sentence on a convolution's element whose terms were changed."""
    case = instance("conv2d", **SIZES)
    terms = change([formed(case, s) for s in PROBLEMS["conv2d"].summands(case, "y", ELEMENT) or []])
    found = explain(PROBLEMS["conv2d"], case, "y", ELEMENT, value(case, terms), terms)
    assert found is not None
    assert found.sentence.startswith("y[0,1,1,2] got ")
    return found.sentence.removeprefix("y[0,1,1,2] got ")


def moved(terms: list[Formed], name: str, by: int) -> list[Formed]:
    return [Formed(t.coefficient, tuple((n, i + by if n == name else i) for n, i in t.factors), t.line) for t in terms]


def of_w(term: Formed) -> int:
    return dict(term.factors)["w"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: [f for f in t if of_w(f) % 9 < 6], "12 of its 18 products: those with r = 2 are missing (line 9)"),
        (lambda t: t[9:], "9 of its 18 products: those with c = 0 are missing (line 9)"),
        (lambda t: t[1:], "17 of its 18 products: x[0,0,0,1]·w[1,0,0,0] is missing (line 9)"),
        (lambda t: t[:-4], "14 of its 18 products: x[0,1,1,3]·w[1,1,1,2], x[0,1,2,1]·w[1,1,2,0] and 2 more are missing"
                           " (line 9)"),
        (lambda t: [*t, t[0]], "17 of its 18 products: added more than once: x[0,0,0,1]·w[1,0,0,0] twice (line 9)"),
        (lambda t: t * 3, "0 of its 18 products: each is added three times (line 9)"),
        (lambda t: [Formed(-1.0, t[0].factors, 12), *t[1:]],
         "17 of its 18 products: x[0,0,0,1]·w[1,0,0,0] is subtracted instead of added (line 12)"),
        (lambda t: moved(t, "x", 1), "0 of its 18 products: x is read off by [0,0,0,+1] (line 9): "
                                     "w[1,0,0,0] meets x[0,0,0,2] instead of x[0,0,0,1]"),
        (lambda t: [*t, Formed(1.0, (("x", 0),), 14)], "18 of its 18 products: x[0,0,0,0] (line 14) does not belong to"
                                                       " it"),
        (lambda t: [*moved(t[:1], "w", 5), *t[1:]], "17 of its 18 products: x[0,0,0,1] meets w[1,0,1,2] instead of "
                                                    "w[1,0,0,0] (line 9)"),
        (lambda t: t, "exactly its 18 products: what is wrong is their precision"),
    ],
)  # fmt: skip
def test_a_sentence_says_what_became_of_the_products(
    change: Callable[[list[Formed]], list[Formed]], sentence: str
) -> None:
    assert said(change) == sentence


def test_terms_that_do_not_give_the_value_explain_nothing() -> None:
    case = instance("conv2d", **SIZES)
    terms = [formed(case, s) for s in PROBLEMS["conv2d"].summands(case, "y", ELEMENT) or []][1:]
    assert explain(PROBLEMS["conv2d"], case, "y", ELEMENT, value(case, terms) + 1.0, terms) is None
    assert explain(PROBLEMS["conv2d"], case, "y", ELEMENT, float("nan"), terms) is None


@pytest.mark.parametrize("factors", [(("temp", 0),), (("x", 10**9),), (("x", -1),)])
def test_terms_of_something_else_explain_nothing(factors: tuple[tuple[str, int], ...]) -> None:
    case = instance("conv2d", **SIZES)
    assert explain(PROBLEMS["conv2d"], case, "y", ELEMENT, 0.0, [Formed(1.0, factors, 1)]) is None


@pytest.mark.parametrize(
    ("problem", "symbols", "index", "terms", "sentence"),
    [
        ("saxpy", {"n": 4}, (1,), [(("x", 1),), (("y", 1),)], "z[1] got 1 of its 2 terms: x[1] is taken 1 times"),
        ("saxpy", {"n": 4}, (1,), [(("y", 1),)], "z[1] got 1 of its 2 terms: "),
        ("mirror", {"H": 2, "W": 3}, (0, 0), [(("x", 0),)],
         "y[0,0] did not get its one term: x[0,2] is missing; x[0,0] does not belong to it"),
    ],
)  # fmt: skip
def test_every_problem_is_explained_by_its_own_definition(
    problem: str, symbols: dict[str, int], index: tuple[int, ...], terms: list[tuple[tuple[str, int], ...]],
    sentence: str,
) -> None:  # fmt: skip
    case = instance(problem, **symbols)
    made = [Formed(1.0, factors, 0) for factors in terms]
    found = explain(PROBLEMS[problem], case, case.outputs[0].name, index, value(case, made), made)
    assert found is not None
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("problem", "symbols"),
    [
        ("conv2d", {**SIZES, "U": 2, "groups": 2, "dil": 2, "pad": 2}),
        ("saxpy", {"n": 3}),
        ("mirror", {"H": 2, "W": 3}),
    ],
)
def test_the_definition_of_every_element_sums_up_to_what_is_expected(problem: str, symbols: dict[str, int]) -> None:
    case = instance(problem, **symbols)
    (output,) = case.outputs
    for index in np.ndindex(output.expected.shape):
        terms = [formed(case, s) for s in PROBLEMS[problem].summands(case, output.name, index) or []]
        assert abs(value(case, terms) - output.expected[index]) < 1e-12
