"""The builder of the labs: what it makes of a source, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest

from convladder.autograde.course import build
from convladder.autograde.course.build import BuildError

LAB = "01_direct"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the sources, to be changed."""
    for folder in ("solutions", "kernels/ladder"):
        shutil.copytree(build.ROOT / folder, tmp_path / folder)
    return tmp_path


def edit(path: Path, old: str, new: str, count: int = 1) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")


def source(repository: Path) -> Path:
    return repository / "solutions" / LAB / f"{LAB}.py"


def rung(repository: Path, name: str) -> Path:
    return repository / "kernels" / "ladder" / f"{name}.cu"


def line_of(path: Path, text: str) -> int:
    return next(n for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if text in line)


def cell(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    return next(c for c in notebook.cells if c.id == name)


def test_kernel_stub_is_a_cuda_comment_in_place_of_the_answer() -> None:
    text = cell(build.build_lab(LAB), "direct_guarded").source
    assert text.startswith("%%cuda direct_guarded\n")
    assert "    // YOUR CODE HERE: about 12 lines" in text
    assert "for (int c" not in text
    assert "//@ launch direct_guarded" in text


def test_python_stub_raises_until_it_is_written() -> None:
    text = cell(build.build_lab(LAB), "source_index").source
    names: dict = {}
    exec(text.partition("\n")[2], names)
    with pytest.raises(NotImplementedError):
        names["source_index"](0, 0, 0, 0, 1, 0, 1, 1)


def test_number_stub_leaves_the_number_open() -> None:
    text = cell(build.build_lab(LAB), "predict_report").source
    names: dict = {}
    exec(text.partition("\n")[2], names)
    assert names["predict_report"] is ...


def test_debugging_task_starts_from_the_kernel_with_the_mistake() -> None:
    student, solved = build.build_lab(LAB), build.solved_notebook(LAB)
    mistake = "y[((n * K + k + c) * P + p) * Q + q] = sum;"
    assert mistake in cell(student, "direct_report").source
    assert mistake not in cell(solved, "direct_report").source


def test_header_of_a_rung_loses_what_gives_the_answer_away() -> None:
    text = cell(build.build_lab(LAB), "direct_coalesced").source
    assert "y[n,k,p,q] = sum_" in text
    assert "cdiv(Q" not in text
    assert "over direct_report" not in text


def test_solved_notebook_differs_from_the_students_in_task_cells_only() -> None:
    student, solved = build.build_lab(LAB), build.solved_notebook(LAB)
    changed = [a.id for a, b in zip(student.cells, solved.cells, strict=True) if a.source != b.source]
    tasks = [c.id for c in student.cells if c.metadata.get("nbgrader", {}).get("solution")]
    assert changed == tasks
    assert [c.metadata for c in student.cells] == [c.metadata for c in solved.cells]


def test_cells_are_locked_but_for_the_answers() -> None:
    for c in build.build_lab(LAB).cells:
        is_answer = c.metadata.get("nbgrader", {}).get("solution", False)
        assert c.metadata.get("editable", True) == is_answer, c.id
        assert c.metadata["deletable"] is False, c.id


def test_points_of_the_cells_are_those_of_the_spec() -> None:
    points = [c.metadata.get("nbgrader", {}).get("points", 0) for c in build.build_lab(LAB).cells]
    assert sum(points) == pytest.approx(100)


def test_a_stale_and_a_missing_lab_are_reported(repository: Path) -> None:
    labs = build.labs(repository)
    build.write([LAB], repository)
    edit(build.student_path(LAB, repository), "Direct convolution", "Direct Convolution")
    demos = [repository / "labs" / "demos" / f"{name}.ipynb" for name in build.demos(repository)]
    syllabus = repository / "labs" / "syllabus.md"
    assert build.stale(repository) == [*(build.student_path(lab, repository) for lab in labs), *demos, syllabus]
    build.write(root=repository)
    assert build.stale(repository) == []


def test_an_answer_in_the_prose_is_refused(repository: Path) -> None:
    edit(source(repository), "# ## Step 3", "# Like `int r_begin = max(0, pad - p*U);`\n#\n# ## Step 3")
    answer = rung(repository, "direct_clipped")
    with pytest.raises(BuildError, match="in the student's cell") as error:
        build.build_lab(LAB, repository)
    assert (error.value.path, error.value.line) == (answer, line_of(answer, "int r_begin"))


def test_an_answer_in_a_later_given_kernel_is_refused(repository: Path) -> None:
    leak = "    int s_end = min(S, W + pad - q * U);\n    float sum = 0.0f;"
    edit(repository / "solutions" / LAB / "direct_report.buggy.cu", "    float sum = 0.0f;", leak)
    with pytest.raises(BuildError, match="student's cell direct_report"):
        build.build_lab(LAB, repository)


def test_an_answer_that_is_never_closed_is_refused(repository: Path) -> None:
    path = rung(repository, "direct_guarded")
    edit(path, "    // END SOLUTION\n", "")
    with pytest.raises(BuildError, match="without an END SOLUTION") as error:
        build.build_lab(LAB, repository)
    assert (error.value.path, error.value.line) == (path, line_of(path, "BEGIN SOLUTION"))


def test_a_mark_with_a_typing_error_is_refused(repository: Path) -> None:
    path = rung(repository, "direct_guarded")
    edit(path, "// BEGIN SOLUTION", "// BEGIN SOLUTON")
    with pytest.raises(BuildError, match="END SOLUTION without a BEGIN") as error:
        build.build_lab(LAB, repository)
    assert error.value.line == line_of(path, "END SOLUTION")


def test_a_mark_that_is_no_comment_of_its_own_is_refused(repository: Path) -> None:
    edit(rung(repository, "direct_guarded"), "int k = blockIdx.y;", "int k = blockIdx.y; // END SOLUTION")
    with pytest.raises(BuildError, match="END SOLUTION` is left in the student's cell direct_guarded"):
        build.build_lab(LAB, repository)


def test_a_task_without_a_marked_answer_is_refused(repository: Path) -> None:
    path = rung(repository, "direct_clipped")
    edit(path, "    // BEGIN SOLUTION", "    // the answer")
    edit(path, "    // END SOLUTION\n", "")
    with pytest.raises(BuildError, match="students would get all of it") as error:
        build.build_lab(LAB, repository)
    assert (error.value.path, error.value.line) == (
        source(repository),
        line_of(source(repository), "%%cuda direct_clipped") - 1,
    )


def test_an_unknown_rung_is_named(repository: Path) -> None:
    edit(source(repository), "//! ladder/direct_guarded.cu", "//! ladder/direct_gaurded.cu")
    with pytest.raises(BuildError, match=r"there is no file .*direct_gaurded\.cu") as error:
        build.build_lab(LAB, repository)
    assert error.value.line == line_of(source(repository), "direct_gaurded")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# %%answer source_index", "# %%answer source_indices", "the spec has no task source_indices"),
        ('# %%\ncheck("source_index")\n', "", "no cell `check\\('source_index'\\)`"),
        ('check("direct_report")', 'check("direct_guarded")', "belongs once, after the cell"),
        ('explain="explain_mapping"', 'explain="direct_report"', "is of kind kernel|stands in line"),
    ],
)
def test_a_source_that_does_not_fit_its_spec_is_refused(repository: Path, old: str, new: str, message: str) -> None:
    edit(source(repository), old, new)
    with pytest.raises(BuildError, match=message):
        build.build_lab(LAB, repository)


def test_an_unknown_lab_is_refused_with_the_list_of_labs() -> None:
    with pytest.raises(BuildError, match="there is no lab 09_none; there are: 00_start, 01_direct"):
        build.build_lab("09_none")
