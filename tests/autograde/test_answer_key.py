"""Instructors' answer keys: complete, as their sources make them, and nowhere among what students get."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from convladder.autograde.course import answer_key, build
from convladder.autograde.course.build import BuildError
from convladder.autograde.judge import spec as specs
from convladder.kernels import recorded
from convladder.kernels.bench import training_results

LAB = "07_training"


@pytest.fixture(scope="module")
def page() -> str:
    return answer_key.page(LAB)


def section(page: str, task: str) -> str:
    """What the key says of a task."""
    return next(part for part in page.split("\n## ") if f"\n`{task}` · " in part)


@pytest.mark.parametrize("lab", build.labs())
def test_every_task_has_its_answer_and_its_reasoning(lab: str) -> None:
    page = answer_key.page(lab)
    for task in specs.load(lab).tasks:
        said = section(page, task.name)
        assert "**Model answer**" in said or "**Answer:" in said
        assert answer_key.reasoning(lab)[task.name] in said


@pytest.mark.parametrize("lab", build.labs())
def test_the_committed_key_is_what_its_sources_make(lab: str) -> None:
    committed = build.ROOT / "docs" / "answers" / f"{lab}.md"
    assert committed.read_text(encoding="utf-8") == answer_key.page(lab), "run `make build`"


def test_a_prediction_stands_with_its_value_and_what_it_is_judged_by(page: str) -> None:
    said = section(page, "predict_products")
    assert "**Answer: `64 * 224 * 224`**, that is 3211264. Expected is `N * P * Q` with N = 64" in said


def test_a_debugging_task_shows_what_changes(page: str) -> None:
    said = section(page, "data_gradient_scatter")
    assert "\n-                dx[" in said
    assert "\n+                atomicAdd(&dx[" in said


def test_an_explanation_stands_with_its_rubric(page: str) -> None:
    said = section(page, "explain_split")
    assert "> The measured layer's forward pass" in said
    assert "SOLUTION" not in said
    assert all(f"- {line}" in said for line in specs.load(LAB).task("explain_split").rubric)


def test_hidden_cases_and_bounds_are_told(page: str) -> None:
    said = section(page, "data_gradient")
    assert "- hidden cases: narrow image; wide padding" in said
    assert "- `counters.atomics`: `requests - load_requests - store_requests` at most `0`" in said


def test_each_recorded_claim_stands_with_what_the_record_says(page: str) -> None:
    (record,) = recorded.load("training")
    found = training_results.verdicts(record)
    assert len(found) == 12
    assert all(f"| {v.claim} | {v.source} | {v.measured} |" in page for v in found)


@pytest.mark.parametrize("lab", build.labs())
def test_no_line_of_the_reasoning_stands_in_a_lab(lab: str) -> None:
    lines = answer_key.written_lines(lab)
    assert len(lines) >= len(specs.load(lab).tasks)
    for path in (build.ROOT / "labs").rglob("*.ipynb"):
        text = "".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
        bare = "".join(text.split())
        assert not [line for line in lines if line in bare]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("## predict_taps\n", "## predict_tap\n", "they must be output_index, predict_taps"),
        ("## total_ms\n", "", "they must be"),
        ("## predict_disk\n", "## predict_disk\n\nText.\n\n## more\n", "they must be"),
    ],
)
def test_a_reasoning_that_is_not_the_labs_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "solutions" / LAB / "reasoning.md"
    path.parent.mkdir(parents=True)
    shutil.copy(build.ROOT / "solutions" / LAB / "reasoning.md", path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BuildError, match=said):
        answer_key.reasoning(LAB, tmp_path)


def test_an_empty_section_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "solutions" / LAB / "reasoning.md"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"## {task.name}\n\n" for task in specs.load(LAB).tasks), encoding="utf-8")
    with pytest.raises(BuildError, match="nothing is written under output_index"):
        answer_key.reasoning(LAB, tmp_path)
