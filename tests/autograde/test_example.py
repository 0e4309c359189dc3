"""The smallest failing case as grids of numbers, in text and on pages."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convladder.autograde.faces import report, terminal
from convladder.autograde.faces.example import example
from convladder.autograde.judge.record import CheckRecord

NUMBERS: dict[str, Any] = {
    "counterexample": {
        "symbols": {"C": 2, "H": 1, "W": 2, "pad": 1},
        "array": "y",
        "inputs": {"x": {"shape": [1, 2, 1, 2], "values": [3.0, 4.0, 5.0, 6.0]},
                   "w": {"shape": [3], "values": [7, 8, 9]}},
        "border": {"x": 1},
        "expected": {"shape": [1, 1, 1, 3], "values": [10.0, 20.0, 30.0]},
        "got": {"shape": [1, 1, 1, 3], "values": [10.0, None, "nan"]},
        "wrong": [[0, 0, 0, 1], [0, 0, 0, 2]],
        "why": {"sentence": "y[0,0,0,1] got 1 of its 2 products"},
    }
}  # fmt: skip


def record(evidence: dict[str, Any]) -> CheckRecord:
    return CheckRecord("t", "t.correct", False, 0, 1, "wrong", evidence=evidence)


def test_every_number_is_shown_with_the_border_and_what_is_wrong() -> None:
    shown = example(NUMBERS)
    assert shown is not None
    assert shown.sizes == "C=2, H=1, W=2, pad=1"
    assert shown.text(200).splitlines() == [
        "x[0,0]         x[0,1]         w           y[0,0] expected   y[0,0] of your kernel",
        "  ·  ·  ·  ·     ·  ·  ·  ·     7  8  9     10  20  30         10    –! nan!",
        "  ·  3  4  ·     ·  5  6  ·",
        "  ·  ·  ·  ·     ·  ·  ·  ·",
    ]


def test_grids_wrap_where_the_terminal_is_narrow() -> None:
    shown = example(NUMBERS)
    assert shown is not None
    assert max(map(len, shown.text(40).splitlines())) <= 40


def test_text_and_page_tell_the_case_its_reason_and_its_numbers() -> None:
    text = terminal.as_text(terminal.checks([record(NUMBERS)], {}))
    page = report.cell_html([record(NUMBERS)], {}, {})
    for shown in (text, page):
        assert "smallest case that fails like this" in shown
        assert "got 1 of its 2 products" in shown
    assert page.count('aria-label="wrong"') == 2
    assert page.count('class="cvl-border"') == 2 * (3 * 4 - 2)


def test_a_reason_that_was_told_is_not_repeated() -> None:
    evidence = NUMBERS | {"why": NUMBERS["counterexample"]["why"]}
    assert terminal.as_text(terminal.checks([record(evidence)], {})).count("1 of its 2 products") == 1


def test_a_fault_is_shown_without_numbers() -> None:
    evidence = {"counterexample": {"symbols": {"n": 1}, "fault": {"message": "thread reads x[1]"}}}
    shown = example(evidence)
    assert shown is not None
    assert (shown.sizes, shown.sentence, shown.grids) == ("n=1", "thread reads x[1]", [])


@pytest.mark.parametrize("key", ["symbols", "inputs", "border", "got", "wrong", "array"])
def test_evidence_that_is_no_case_shows_none(key: str) -> None:
    broken = copy.deepcopy(NUMBERS)
    del broken["counterexample"][key]
    assert example(broken) is None


def test_what_a_case_says_is_escaped() -> None:
    hostile = copy.deepcopy(NUMBERS)
    hostile["counterexample"]["why"]["sentence"] = hostile["counterexample"]["array"] = "<script>\x1b[31m"
    assert "<script>" not in report.cell_html([record(hostile)], {}, {})
    assert "\x1b" not in terminal.as_text(terminal.checks([record(hostile)], {}))
