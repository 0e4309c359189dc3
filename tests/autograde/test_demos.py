"""The lectures' notebooks: each runs from top to bottom without a GPU, and gives no answer away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from convladder.autograde.course import build
from convladder.autograde.faces import demo

SCRIPT = Path(__file__).parent / "hardware" / "notebook.py"
#: Seconds that a lecture's notebook may take without a GPU.
MOST_SECONDS = 180


@pytest.mark.full
@pytest.mark.parametrize("name", build.demos())
def test_a_demo_runs_from_top_to_bottom_in_time(name: str, tmp_path: Path) -> None:
    notebook, out = tmp_path / f"{name}.ipynb", tmp_path / "record.json"
    notebook.write_text(build.serialise(build.build_demo(name)), encoding="utf-8")
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(notebook), str(out)], capture_output=True, text=True, env=environment
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(out.read_text())["seconds"] <= MOST_SECONDS


def cells(name: str) -> str:
    """A notebook's code without its questions to the audience."""
    return "\n".join(cell.source for cell in build.build_demo(name).cells if cell.cell_type == "code")


def test_a_missing_barrier_is_a_race_and_both_together_are_none() -> None:
    told: dict[str, object] = {}
    exec(cells("two_barriers").partition("\nwithout()")[0], told)  # the text and `without` of the lecture itself
    without = told["without"]
    assert without().done.faults == []  # type: ignore[operator]
    for barriers in (("FIRST",), ("SECOND",), ("FIRST", "SECOND")):
        kinds = {fault.kind for fault in without(*barriers).done.faults}  # type: ignore[operator]
        assert "shared-race" in kinds
        assert ("uninitialised" in kinds) == ("FIRST" in barriers)


@pytest.mark.parametrize(
    ("s", "first", "sectors"), [(1, 0, 4), (2, 0, 8), (8, 0, 32), (16, 0, 32), (1, 3, 5), (0, 5, 1)]
)
def test_the_lecture_on_accesses_has_these_sectors(s: int, first: int, sectors: int) -> None:
    told: dict[str, object] = {}
    exec(cells("warp_accesses").partition("\nstep(1)")[0], told)
    ran = told["step"](s, first)  # type: ignore[operator]
    (load,) = [access for access in ran.done.counters.accesses if access.op == "load"]
    assert load.sectors == sectors
    assert "<svg" in ran._repr_html_()
    assert "load of x" in repr(ran)


def test_what_goes_wrong_is_told_and_what_is_printed_is_escaped() -> None:
    text = '//@ launch k grid=1 block=1\n__global__ void k(float* y) { printf("<i>"); y[9] = 1; }'
    shown = str(demo.run(text, "y=float[4]:out")._repr_html_())
    assert "✗ line 2: out-of-bounds" in shown
    assert "&lt;i&gt;" in shown
    assert "<i>" not in shown


def test_no_demo_gives_an_answer_away() -> None:
    answers = {lab: build.answer_lines(lab) for lab in build.labs()}
    assert min(map(len, answers.values())) > 0
    for name in build.demos():
        text = build._bare("\n".join(cell.source for cell in build.build_demo(name).cells))
        given_away = [(lab, line) for lab, lines in answers.items() for line in lines if line in text]
        assert not given_away, name
