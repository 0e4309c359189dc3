"""Where wrong elements lie, in words."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.autograde.judge.diagnosis import Wrong, compare, where
from convladder.autograde.judge.problem import Output

AXES = ("n", "k", "p", "q")
SHAPE = (2, 3, 5, 6)


def mask(**at: object) -> np.ndarray:
    """True where every named index equals, or satisfies, what is given."""
    found = np.ones(SHAPE, bool)
    for axis, index in zip(AXES, np.indices(SHAPE), strict=True):
        if axis in at:
            condition = at[axis]
            found &= condition(index) if callable(condition) else index == condition
    return found


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (mask(q=5), "every wrong element lies in the last column (q = 5), the right border"),
        (mask(q=0), "in the first column (q = 0), the left border"),
        (mask(p=4), "in the last row (p = 4), the bottom border"),
        (mask(p=0, k=1), "in the first row (p = 0), the top border"),
        (
            mask(p=0) | mask(q=0),
            "in the first column (q = 0), the left border or the first row (p = 0), the top border",
        ),
        (mask(p=0) | mask(q=0) | mask(p=4) | mask(q=5), "on the border of an image"),
        (mask(p=lambda p: (p > 0) & (p < 4), q=lambda q: (q > 0) & (q < 5)), "every element inside is wrong"),
        (mask(k=2), "every wrong element has k = 2"),
        (mask(n=1), "every wrong element has n = 1"),
        (mask(k=lambda k: k != 0), "only the elements with k = 0 are right"),
        (mask(q=lambda q: q % 2 == 1), "every wrong element has an odd q"),
        (mask(q=lambda q: q >= 4), "exactly the elements with q from 4 to 5 are wrong"),
        (np.arange(180).reshape(SHAPE) % 30 >= 13, "only the first 13 elements of each image plane are right"),
        (np.ones(SHAPE, bool), "every element is wrong"),
    ],
)
def test_a_pattern_is_named(wrong: np.ndarray, says: str) -> None:
    assert says in where(wrong, AXES)


def test_no_pattern_is_made_up() -> None:
    scattered = np.zeros(SHAPE, bool)
    scattered[0, 0, 1, 1] = scattered[1, 2, 2, 4] = scattered[1, 1, 3, 3] = True
    assert where(scattered, AXES) == ""


def output(values: np.ndarray) -> Output:
    return Output("y", AXES[-values.ndim :], values.astype(np.float64), np.full(values.shape, 1e-6))


def test_the_first_wrong_element_is_named_with_both_values() -> None:
    right = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = right.copy()
    given[1, 3] = 9.5
    found = compare(output(right), given)
    assert isinstance(found, Wrong)
    assert found.sentences() == ["y[1,3] is 9.5, expected 7", "all others are right"]


def test_elements_that_were_never_written_are_told_from_wrong_ones() -> None:
    right = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = right.copy()
    given.view(np.uint32)[2] = 0xFFFFFFFF
    found = compare(output(right), given)
    assert found is not None
    said = found.sentences()
    assert said[0] == "y[2,0] was never written; expected 8"
    assert said[1] == "4 of 12 elements were never written"
    assert "the bottom border" in said[2]
    given.view(np.uint32)[:] = 0xFFFFFFFF
    found = compare(output(right), given)
    assert found is not None
    assert found.sentences() == ["no element of y was written"]


def test_a_nan_that_was_computed_counts_as_written() -> None:
    given = np.full((2, 2), np.nan, np.float32)
    found = compare(output(np.zeros((2, 2))), given)
    assert found is not None
    assert not found.unwritten.any()


def test_evidence_is_bounded() -> None:
    found = compare(output(np.zeros((300, 300))), np.ones((300, 300), np.float32))
    assert found is not None
    evidence = found.evidence()
    assert evidence["wrong"] == 90_000
    assert len(evidence["wrong_elements"]) <= 4096
    assert "values" not in evidence
