"""Points: they always add up to 100, and what is off is spread in proportion."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convladder.autograde.judge import score, spec


def points(tiny: spec.Spec, **how: object) -> dict[str, float]:
    return {c.name: c.max for c in score.planned(tiny, **how)}  # type: ignore[arg-type]


def test_a_category_is_divided_by_shares_and_a_tasks_part_over_its_checks(tiny: spec.Spec) -> None:
    assert points(tiny) == pytest.approx(
        {
            "index.correct": 7.5, "index.hidden": 7.5,
            "conv.compiles": 0, "conv.runs": 9, "conv.correct": 18, "conv.hidden": 18,
            "conv.counters.stores": 15, "conv.target": 15,
            "guess.prediction": 5, "why.explanation": 5,
        }
    )  # fmt: skip


def test_without_hidden_cases_runs_and_correct_share_one_to_two(tiny: spec.Spec) -> None:
    found = points(tiny, hidden=False)
    assert "conv.hidden" not in found
    assert found["conv.runs"] == pytest.approx(15)
    assert found["conv.correct"] == pytest.approx(30)
    assert found["index.correct"] == pytest.approx(15)


def test_points_of_what_is_off_go_to_the_rest_in_proportion(tiny: spec.Spec) -> None:
    found = points(tiny, timing="off", explain=False)
    assert "conv.target" not in found
    assert "why.explanation" not in found
    assert found["guess.prediction"] == pytest.approx(5 * 100 / 80)
    assert found["conv.counters.stores"] == pytest.approx(15 * 100 / 80)


@pytest.mark.parametrize("timing", ["counters", "off"])
@pytest.mark.parametrize("explain", [True, False])
@pytest.mark.parametrize("hidden", [True, False])
def test_points_add_up_to_exactly_100(timing: score.Timing, explain: bool, hidden: bool) -> None:
    for lab in spec.names():
        loaded = spec.load(lab)
        total = math.fsum(c.max for c in score.planned(loaded, timing=timing, explain=explain, hidden=hidden))
        assert total == (100 if loaded.graded else 0)


@given(st.lists(st.integers(0, 20).map(float), min_size=4, max_size=4))
def test_odd_shares_add_up_to_exactly_100_too(shares: list[float]) -> None:
    tasks = [
        replace(spec.ExplainTask(f"t{i}", "", "", {"explanation": share}, 1, ()))
        for i, share in enumerate([*shares, 1.0])
    ]
    lab = spec.Spec("x", "", 1, True, {"explanation": 100.0}, tuple(tasks), "", spec.specs_folder())
    assert math.fsum(c.max for c in score.planned(lab)) == 100


def test_a_tasks_check_cell_is_worth_its_checks(tiny: spec.Spec) -> None:
    assert score.task_points(tiny, "conv") == pytest.approx(75)
    assert score.manual_points(tiny, "conv") == 0
    assert (score.task_points(tiny, "why"), score.manual_points(tiny, "why")) == (0, pytest.approx(5))
