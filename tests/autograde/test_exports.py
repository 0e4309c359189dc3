"""Grades for learning platforms, and answers that are alike."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from convladder.autograde.course import build, compare, exports, similarity
from convladder.autograde.course import course as courses
from convladder.autograde.course import grade as grading
from convladder.autograde.course.grade import Settings
from convladder.autograde.course.grades import GradingError
from convladder.autograde.faces.cli import main
from convladder.kernels.methods import ladder_source


@pytest.fixture
def out(tmp_path: Path, toy: Any) -> Path:
    """A graded class of two, one of them late."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "toy.toml").write_text(toy.spec)
    (tmp_path / "roster.csv").write_text('student,name\nada,"Lovelace, Ada"\n=bob,\n')
    path = tmp_path / "course.toml"
    late = "deadline = 2026-10-01T00:00:00Z\nlate = {percent_a_day = 10}\n"
    path.write_text(f'semester = "autumn"\nlabs = "own"\nroster = "roster.csv"\n[lab.toy]\n{late}')
    folder = tmp_path / "in"
    toy.hand_in(folder, "ada", toy.notebook())
    stamp = toy.hand_in(folder, "=bob", toy.notebook(triple="0")).parent / "timestamp.txt"
    stamp.write_text("2026-10-01 12:00:00 UTC")
    (folder / "ada" / "timestamp.txt").write_text("2026-09-30 12:00:00 UTC")
    grading.grade_class("toy", folder, tmp_path / "out", Settings(sandbox="none"), course=courses.load(path))
    return tmp_path / "out"


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_canvas_gets_its_columns_the_most_points_and_names_that_are_quoted(out: Path) -> None:
    shown = CliRunner().invoke(main, ["export", "toy", "--form", "canvas", "--out", str(out)])
    assert rows(shown.output) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "toy"],
        ["    Points Possible", "", "", "", "", "90"],
        ["'=bob", "", "", "'=bob", "", "54"],
        ["Lovelace, Ada", "", "", "ada", "", "90"],
    ]


def test_moodle_gets_names_points_and_why(out: Path, tmp_path: Path) -> None:
    file = tmp_path / "moodle.csv"
    assert (
        CliRunner()
        .invoke(main, ["export", "toy", "--form", "moodle", "--out", str(out), "--file", str(file)])
        .exit_code
        == 0
    )
    assert rows(file.read_text()) == [
        ["username", "toy", "toy feedback"],
        ["'=bob", "54", "12.0 hours late: 6 points off"],
        ["ada", "90", ""],
    ]


def test_the_generic_table_has_points_and_their_maximum(out: Path) -> None:
    assert rows(exports.table("generic", exports.records(out), {}))[1:] == [["'=bob", "54", "90"], ["ada", "90", "90"]]


def test_a_class_that_is_not_graded_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(GradingError, match="grade the class first"):
        exports.records(tmp_path)


# ---- likeness

KERNEL = ladder_source("direct_coalesced")


def renamed(text: str) -> str:
    for old, new in (("sum", "total"), ("top", "first_row"), ("left", "first_column"), ("row", "yy"), ("col", "xx")):
        text = text.replace(old, new)
    return "// my own work\n" + text.replace("    ", "\t")


def test_renaming_comments_and_spaces_hide_nothing() -> None:
    (pair,) = similarity.alike("t", {"ada": KERNEL, "bob": renamed(KERNEL)})
    assert (pair.one, pair.other, pair.likeness) == ("ada", "bob", 1.0)


def test_what_the_task_hands_out_explains_what_is_like_it() -> None:
    assert list(similarity.alike("t", {"ada": KERNEL, "bob": renamed(KERNEL)}, [KERNEL])) == []


def test_what_most_of_a_class_has_is_no_sign() -> None:
    assert list(similarity.alike("t", {f"s{n}": KERNEL for n in range(10)})) == []


def test_other_kernels_are_not_alike() -> None:
    other = ladder_source("gemm_shared")
    assert list(similarity.alike("t", {"ada": KERNEL, "bob": other})) == []


def test_classes_are_compared_with_each_other_and_with_the_ladder(tmp_path: Path) -> None:
    solved = json.loads(build.serialise(build.solved_notebook("01_direct")))
    own = "int u = 7; for (int z = 0; z < u; z++) if (z % 3 == u) u += z * z - 2; while (u > 40) { u /= 2; u -= 1; }\n"
    for semester, student in (("spring", "ada"), ("autumn", "bob")):
        for cell in solved["cells"]:
            if cell["id"] == "direct_clipped":
                text = "".join(cell["source"])
                cell["source"] = text if own in text else text.replace("    float sum", f"    {own}    float sum", 1)
        path = tmp_path / semester / student / "01_direct.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(solved))
    pairs = list(compare.classes("01_direct", [tmp_path / "spring", tmp_path / "autumn"]))
    assert ("direct_clipped", "autumn/bob", "spring/ada") in [(p.task, p.one, p.other) for p in pairs]
    command = ["similar", "01_direct", *(f"--submissions={tmp_path / s}" for s in ("spring", "autumn"))]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0
    assert "Likeness proves nothing" in shown.output
