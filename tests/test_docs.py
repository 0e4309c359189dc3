"""The pages in docs/ name what is there: labs and their steps, rungs, records, files, functions; no row is empty."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from convladder.autograde.course import build, mistakes, sample
from convladder.autograde.judge import spec
from convladder.kernels import expression, recorded
from convladder.kernels.rungs import RUNGS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FACES = ("figures", "recorded_figures", "training")


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of each row of each table, without heads and rules."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for before, line in itertools.pairwise(lines):
        if line.startswith("|") and not line.startswith("| ---") and before.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


SOURCES = list(rows(ROOT / "docs" / "sources.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_every_row_has_as_many_cells_as_its_table(page):
    text = page.read_text(encoding="utf-8")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        widths = {line.count("|") for line in table.splitlines()}
        assert len(widths) == 1, table[:200]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_no_row_of_the_map_is_empty_and_each_names_something_of_ours():
    assert len(SOURCES) >= 35
    for row in SOURCES:
        assert all(row), row
        assert "`" in row[2] or "README" in row[2] or "nothing to recreate" in row[2], row


@pytest.mark.parametrize("row", SOURCES, ids=lambda row: row[0])
def test_what_the_map_names_is_there(row):
    here = row[2]
    for lab, steps in re.findall(r"`(\d\d_\w+)`((?:, (?:the idea|steps? \d+(?: (?:and|to) \d+)?))*)", here):
        text = (ROOT / "solutions" / lab / f"{lab}.py").read_text(encoding="utf-8")
        for number in re.findall(r"\d+", steps):
            assert f"## Step {number} · " in text, (lab, number)
    for name in re.findall(r"`(\w+(?:[/.]\w+)+)`", here):
        module, _, attribute = name.rpartition(".")
        if "/" in name:
            assert (ROOT / name).exists(), name
        else:
            package = "autograde.faces" if module in FACES else "kernels"
            assert callable(getattr(importlib.import_module(f"convladder.{package}.{module}"), attribute)), name
    for kind, known in (("rungs?", RUNGS), ("records?", {p.name.partition(".")[0] for p in records()})):
        for names in re.findall(rf"\b{kind} ((?:`\w+`(?: and | to |, )?)+)", here):
            for name in re.findall(r"`(\w+)`", names):
                assert name in known or re.match(r"\d\d_", name), name


def records() -> list[Path]:
    return sorted(recorded.path("x", "y").parent.glob("*.json"))


def test_the_map_holds_every_numbered_figure_and_table_of_the_papers():
    told = " ".join(row[0] for row in SOURCES)
    numbers = {
        kind: sum(_span(text) for text in re.findall(rf"\b{kind}s? (\d+(?:(?: to | and )\d+)?)", told))
        for kind in ("figure", "table")
    }
    assert (
        numbers["figure"] >= 4 - 1 + 10 + 16
    )  # mobile-GPU paper without the lost figure 3, sparse paper, training paper
    assert numbers["table"] >= 1 + 2 + 4


def _span(text: str) -> int:
    first, *last = map(int, re.findall(r"\d+", text))
    return (last[0] if last else first) - first + 1


# ---- the lectures


LECTURES = sorted((ROOT / "docs" / "lectures").glob("*.md"))


def test_each_graded_lab_has_a_lecture():
    assert [page.stem for page in LECTURES] == [lab for lab in spec.names() if spec.load(lab).graded]


@pytest.fixture(params=LECTURES, ids=lambda p: p.stem)
def lecture(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_a_lecture_takes_fifty_minutes_in_order(lecture):
    minutes = [int(row[0]) for row in rows(lecture) if row[0].isdigit()]
    assert minutes == sorted(minutes)
    assert minutes[0] == 0
    assert minutes[-1] < 50


def test_a_lecture_has_the_polls_that_it_announces_each_with_an_answer(lecture):
    text = lecture.read_text(encoding="utf-8")
    announced = [int(n) for n in re.findall(r"\*\*Poll (\d)\.\*\*", text)]
    polls = re.findall(r"^(\d)\. \*(.*)$", text, re.MULTILINE)
    assert announced == [int(n) for n, _ in polls] == [1, 2, 3, 4]
    assert all("**" in options for _, options in polls)


def test_a_lecture_leads_to_the_answer_key_or_gives_the_answers_of_the_spec(lecture):
    text = lecture.read_text(encoding="utf-8")
    if f"(../answers/{lecture.stem}.md)" in text:
        return  # made from the spec, and that the link leads to a file is tested above
    for task in spec.load(lecture.stem).tasks:
        if task.kind == "number":
            assert f"| `{task.name}` |" in text
            if task.rung is None:  # type: ignore[attr-defined]
                value = expression.evaluate(task.formula, task.symbols)  # type: ignore[attr-defined]
                assert value > 100 or re.search(rf"\b{value:.3g}\b", text), (task.name, value)


def test_the_lecture_speaks_of_mistakes_that_are_known():
    known = " ".join(wrong.why for wrong in sample.mistakes("07_training"))
    for word in ("rounds the quotient down", "volatile", "barrier", "flips the filter", "slowest stage"):
        assert word in known
    assert "07_training" in build.labs()


def test_the_quiz_has_ten_questions_and_an_answer_to_each():
    text = (ROOT / "docs" / "quiz.md").read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r"^(\d+)\. ", text, re.MULTILINE)] == list(range(1, 11))
    assert [row[0] for row in rows(ROOT / "docs" / "quiz.md")] == [str(n) for n in range(1, 11)]


# ---- the syllabus


def test_the_syllabus_says_what_the_specs_say():
    told = {row[0].strip("`"): row for row in rows(ROOT / "docs" / "syllabus.md") if re.match(r"`\d\d_", row[0])}
    assert sorted(told) == spec.names()
    for lab, row in told.items():
        found = spec.load(lab)
        assert row[1] == str(found.minutes), lab
        assert all(needed in told for needed in re.findall(r"`(\w+)`", row[2])), lab
    hours = sum(spec.load(lab).minutes for lab in told if lab != "00_start") / 60
    assert f"{hours:.0f} hours of work" in (ROOT / "docs" / "syllabus.md").read_text(encoding="utf-8")


# ---- what students get wrong


def test_the_page_of_mistakes_is_made_from_the_labs():
    assert mistakes.stale() == [], "run `make build`"


def test_the_page_of_mistakes_tells_every_one():
    told = {row[3] for row in rows(ROOT / "docs" / "mistakes.md")}
    assert len(told) == sum(len(sample.mistakes(lab)) for lab in build.labs())
