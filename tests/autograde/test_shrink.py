"""The search for the smallest failing case, on failures that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from convladder.autograde.judge.shrink import smallest

Fails = Callable[[Mapping[str, int]], bool]


def search(symbols: dict[str, int], fails: Fails, trials: int = 100, fits: Fails = lambda s: True) -> tuple[dict, int]:
    tried = 0

    def first_failing(cases: Sequence[Mapping[str, int]]) -> int | None:
        nonlocal tried
        for i, case in enumerate(cases):
            tried += 1
            if fails(case):
                return i
        return None

    return smallest(symbols, dict.fromkeys(symbols, 1), fits, first_failing, trials), tried


@pytest.mark.parametrize("threshold", [1, 2, 5, 17, 31, 32, 999])
def test_a_case_that_fails_from_a_size_on_shrinks_to_that_size(threshold: int) -> None:
    found, _ = search({"n": 1000, "m": 8}, lambda s: s["n"] >= threshold)
    assert found == {"n": threshold, "m": 1}


def test_symbols_that_hang_together_shrink_together() -> None:
    found, _ = search({"H": 9, "R": 7}, lambda s: s["R"] >= 3, fits=lambda s: s["H"] >= s["R"])
    assert found == {"H": 3, "R": 3}


def test_a_case_that_fails_alone_stays_as_it_is() -> None:
    case = {"a": 3, "b": 4}
    assert search(case, lambda s: dict(s) == case)[0] == case


def test_no_more_cases_are_tried_than_allowed() -> None:
    found, tried = search({"a": 10**6, "b": 10**6}, lambda s: s["a"] * s["b"] >= 10**5, trials=20)
    assert tried <= 20
    assert found["a"] * found["b"] >= 10**5
