"""Notebooks: answers are found as text, and every fault of the file itself is named with its fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from convladder.autograde.judge import spec, submission
from convladder.autograde.judge.submission import Submission, SubmissionError, read

TINY = Path(__file__).parent / "tiny"
CONV = (TINY / "conv.cu").read_text()
INDEX = (TINY / "index.py").read_text()


def explain(text: str) -> Any:
    return new_markdown_cell(text, metadata={"nbgrader": {"grade_id": "why", "grade": True, "points": 5}})


def solved() -> list[Any]:
    return [
        new_markdown_cell("# A lab"),
        new_code_cell("from convladder.autograde import check"),
        new_code_cell("%%answer index\n" + INDEX),
        new_code_cell("%%cuda conv\n" + CONV),
        new_code_cell("%%answer guess\nguess = R * S / 2"),
        explain("Because of the sectors."),
        new_code_cell("check('conv')"),
    ]


def written(folder: Path, cells: list[Any]) -> Path:
    path = folder / "tiny.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.fixture
def read_cells(tmp_path: Path, tiny: spec.Spec):
    def go(cells: list[Any]) -> Submission:
        return read(written(tmp_path, cells), tiny)

    return go


def test_every_answer_is_found_with_its_cell(read_cells) -> None:
    found = read_cells(solved())
    assert {n: a.cell for n, a in found.answers.items()} == {"index": 3, "conv": 4, "guess": 5, "why": 6}
    assert found.answers["conv"].text == CONV
    assert found.problems == []


def test_lines_of_an_answer_are_lines_of_its_cell(read_cells) -> None:
    cells = solved()
    cells[3].source = "\n\n%%cuda conv\nfirst\nsecond"
    answer = read_cells(cells).answers["conv"]
    assert answer.line(4) == "first"
    assert answer.source().split("\n")[4] == "second"
    assert answer.line(3) == answer.line(99) == ""


def test_the_rest_of_the_notebook_does_not_matter(read_cells) -> None:
    cells = solved()
    del cells[6], cells[1]
    cells.insert(0, new_code_cell("raise SystemExit\n%%cuda conv"))
    cells.append(new_code_cell("import os; os.abort()"))
    assert read_cells(cells).problems == []


def test_an_explanation_is_found_by_its_cell_id_too(read_cells) -> None:
    cells = solved()
    cells[5] = new_markdown_cell("By id.")
    cells[5]["id"] = "why"
    assert read_cells(cells).answers["why"].text == "By id."


@pytest.mark.parametrize(
    "text", ["*Your answer.*", "", "<!-- at most 80 words -->\n*Your answer here*\n", "Your answer"]
)
def test_a_placeholder_is_no_answer(text: str) -> None:
    assert submission.written(text) == ""


def test_what_stands_behind_a_placeholder_is_the_answer() -> None:
    assert submission.written("*Your answer.* Lanes are neighbours.") == "Lanes are neighbours."
    assert submission.written("Your answers are sectors.") != ""


def problems(found: Submission) -> str:
    return "\n".join(found.problems)


def test_two_cells_of_a_task_are_named_and_the_last_one_counts(read_cells) -> None:
    cells = solved()
    cells.append(new_code_cell("%%answer guess\nguess = 9"))
    found = read_cells(cells)
    assert "guess has two cells, cell 5 and cell 8: delete one" in problems(found)
    assert found.answers["guess"].text == "guess = 9"


def test_a_missing_cell_is_named(read_cells) -> None:
    cells = solved()
    del cells[3]
    assert "there is no cell for conv: take the cell `%%cuda conv`" in problems(read_cells(cells))


def test_an_unknown_task_is_named_with_the_closest_one(read_cells) -> None:
    cells = solved()
    cells[4].source = "%%answer gues\ngues = 1"
    assert "cell 5 begins with `%%answer gues`, which names no such task: did you mean guess?" in problems(
        read_cells(cells)
    )


def test_the_wrong_magic_is_named(read_cells) -> None:
    cells = solved()
    cells[3].source = "%%answer conv\n" + CONV
    found = read_cells(cells)
    assert "cell 4 begins with `%%answer conv`: its first line must be `%%cuda conv`" in problems(found)
    assert "conv" not in found.answers


def test_an_answer_without_end_is_not_judged(read_cells) -> None:
    cells = solved()
    cells[3].source = "%%cuda conv\n" + "x" * 200_000
    found = read_cells(cells)
    assert "conv" not in found.answers
    assert "at most 100000 are judged" in problems(found)


def test_text_that_is_not_unicode_becomes_text(tmp_path: Path, tiny: spec.Spec) -> None:
    path = tmp_path / "tiny.ipynb"
    cells = [{"cell_type": "code", "source": ["%%cuda conv\r\n", "x\ud800y"], "metadata": None}]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    assert read(path, tiny).answers["conv"].text == "x?y"


def test_an_older_notebook_is_upgraded(tmp_path: Path, tiny: spec.Spec) -> None:
    path = tmp_path / "tiny.ipynb"
    old = nbformat.convert(new_notebook(cells=[c for c in solved() if c.cell_type == "code"]), 3)
    path.write_text(json.dumps(old))
    assert set(read(path, tiny).answers) == {"index", "conv", "guess"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not a text file in UTF-8"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "not a notebook"),
        (b'{"cells": []}', "no `nbformat`"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b'{"nbformat": 9, "cells": []}', "format 9"),
        (b'{"nbformat": 2, "cells": 3}', "format"),
        (b'{"nbformat": 4, "cells": []}', "has no answer cell of tiny"),
        (b'{"nbformat": 4, "cells": [1, null, {"source": 5}, {"cell_type": "code"}]}', "has no answer cell"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": "%%cuda other"}]}', "names no such task"),
    ],
)
def test_a_file_that_cannot_be_judged_says_why(tmp_path: Path, tiny: spec.Spec, content: bytes, says: str) -> None:
    path = tmp_path / "tiny.ipynb"
    path.write_bytes(content)
    with pytest.raises(SubmissionError, match=says):
        read(path, tiny)


def test_a_file_that_is_not_there_is_a_submission_error(tmp_path: Path, tiny: spec.Spec) -> None:
    for path in (tmp_path / "none.ipynb", tmp_path):
        with pytest.raises(SubmissionError, match="cannot be read"):
            read(path, tiny)


def test_a_huge_file_is_refused(tmp_path: Path, tiny: spec.Spec) -> None:
    path = tmp_path / "tiny.ipynb"
    with path.open("wb") as file:
        file.truncate(submission.MAX_BYTES + 1)
    with pytest.raises(SubmissionError, match="clear its outputs"):
        read(path, tiny)
