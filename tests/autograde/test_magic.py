"""The notebook's side: cells are run in a real IPython shell, kernels in the real worker."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from markupsafe import escape

from convladder.autograde.course import build
from convladder.autograde.faces import magic

LAB = "01_direct"


class Notebook:
    """Runs cells and keeps what they show: printed text, and the text form of rich output."""

    def __init__(self, shell: Any):
        self.shell = shell
        self.errors: list[str] = []

    def run(self, cell: str) -> str:
        with capture_output() as captured:
            self.result = self.shell.run_cell(cell)
        shown = [output.data for output in captured.outputs]
        self.html = "\n".join(data["text/html"] for data in shown if "text/html" in data)
        return captured.stdout + "\n".join(data.get("text/plain", "") for data in shown)


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    main = sys.modules["__main__"]  # IPython puts its own in this place
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = main


@pytest.fixture
def notebook(shell: Any) -> Iterator[Notebook]:
    shell.reset(new_session=False)
    opened = Notebook(shell)
    opened.run("from convladder.autograde import check, measure, open_lab, time_kernel")
    yield opened
    magic._close()
    magic._lab = None


@pytest.fixture
def lab(notebook: Notebook) -> Notebook:
    notebook.run(f"open_lab({LAB!r})")
    return notebook


@pytest.fixture(scope="module")
def solved() -> dict[str, str]:
    """The solved cell of every task."""
    cells = build.solved_notebook(LAB).cells
    return {cell.id: cell.source for cell in cells if cell.source.startswith("%%")}


def test_opening_a_lab_names_lab_version_and_back_end(notebook: Notebook) -> None:
    first, second = notebook.run(f"open_lab({LAB!r})").strip().splitlines()
    assert first.startswith("01_direct: Direct convolution")
    assert "convladder" in first
    assert "engine" in second


def test_an_unknown_lab_is_an_error_that_names_the_labs(notebook: Notebook) -> None:
    said = notebook.run("open_lab('10_direct')")
    assert "there is no lab '10_direct'" in said
    assert "01_direct" in said
    assert "Traceback" not in said
    assert not notebook.result.success


@pytest.mark.parametrize("cell", ["check('direct_guarded')", "measure('direct_guarded')", "check()"])
def test_before_a_lab_is_open_every_call_says_what_to_run(notebook: Notebook, cell: str) -> None:
    notebook.run("open_lab('01_direct')")  # registers how errors are shown
    magic._lab = None
    said = notebook.run(cell)
    assert "No lab is open" in said
    assert "Traceback" not in said
    assert not notebook.result.success


def test_a_kernel_that_compiles_is_shown_with_its_parameters(lab: Notebook, solved: dict[str, str]) -> None:
    said = lab.run(solved["direct_guarded"])
    assert said.startswith("compiles: kernel direct_guarded(const float* x, const float* w, float* y, int N")
    assert "direct_guarded" in lab.html


def test_a_compiler_error_stands_at_the_cells_own_line_with_a_caret(lab: Notebook) -> None:
    said = lab.run("%%cuda direct_guarded\n//@ launch f grid=1 block=1\n__global__ void f(float* y)\n{ y[0] = foo; }")
    assert 'line 4: identifier "foo" is undefined' in said
    source, caret = said.splitlines()[1:3]
    assert source.strip() == "4 │ { y[0] = foo; }"
    assert source[caret.index("^") :] == "foo; }"
    assert "line 4" in lab.html


def test_a_plan_error_stands_at_the_cells_own_line(lab: Notebook) -> None:
    said = lab.run("%%cuda direct_guarded\n\n//@ lunch f\n__global__ void f() {}")
    assert "line 3: " in said
    assert "//@ lunch f" in said


KERNEL = "%%cuda direct_guarded\n//@ launch f grid=1 block=32 args=y\n__global__ void f(float* y)\n{ y[0] = 1; }"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("launch f", "launch g", "there is no kernel 'g' in the source; its kernels: f"),
        ("block=32", "block=2048", "block.x = 2048: it must be between 1 and 1024"),
        ("block=32", "block=(64, 32)", "block (64, 32, 1) has 2048 threads: at most 1024 are allowed"),
        ("block=32", "block=32 shared=300000", "shared = 300000: a block can have 0 to 232448 bytes"),
        ("y[0] = 1;", "__shared__ float t[20000]; t[threadIdx.x] = 1; y[0] = t[9];", "arrays declare 80000 bytes of"),
        ("grid=1", "grid=(0 * K)", "0 * K is 0, and a size must be at least 1"),
        ("float* y", "float* y, int more", "f(float* y, int more) has 2 parameters, but its args= line passes 1: (y)"),
        ("args=y", "args=N", "got 1; a pointer takes an array. The task passes (const float* x, "),
    ],
)
def test_a_launch_that_cannot_be_is_told_at_once_at_the_cells_own_line(
    lab: Notebook, old: str, new: str, says: str
) -> None:
    said = " ".join(lab.run(KERNEL.replace(old, new, 1)).split())
    assert said.startswith("compiles: kernel f(float* y")
    assert "✗ line 2: " in said
    assert says in said
    assert "2 │ //@ launch " in said
    assert "line 2: " in lab.html


def test_a_kernel_that_only_misbehaves_when_it_runs_is_left_to_check(lab: Notebook) -> None:
    assert lab.run(KERNEL.replace("y[0]", "y[-1]")) == "compiles: kernel f(float* y)"
    assert lab.run(KERNEL.replace("y[0] = 1;", "for (;;) y[0] = 1;")) == "compiles: kernel f(float* y)"


def test_a_cell_without_a_launch_line_is_told_how_to_write_one(lab: Notebook) -> None:
    said = lab.run("%%cuda direct_guarded\n__global__ void f(float* y) { y[0] = 1; }")
    assert "compiles: kernel f(float* y)" in said
    assert "//@ launch f grid=" in said


def test_a_cell_without_a_kernel_says_so(lab: Notebook) -> None:
    assert "no kernel in this cell" in lab.run("%%cuda direct_guarded\n// later")


def test_a_solved_kernel_passes_and_says_so_in_text_and_html(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["direct_guarded"])
    lab.run("result = check('direct_guarded')")
    result = lab.shell.user_ns["result"]
    assert result.passed
    assert [c.check for c in result.checks][:3] == [f"direct_guarded.{c}" for c in ("compiles", "runs", "correct")]
    assert "✓" in repr(result)
    assert "<script" not in result._repr_html_()


def test_a_wrong_kernel_shows_reason_and_map(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["direct_guarded"].replace("p * U", "p"))
    lab.run("result = check('direct_guarded')")
    result = lab.shell.user_ns["result"]
    assert not result.passed
    assert "✗ correct" in repr(result)
    assert "expected" in repr(result)
    assert "<svg" in result._repr_html_()


def test_a_fault_shows_the_cells_line(lab: Notebook, solved: dict[str, str]) -> None:
    text = solved["direct_guarded"].replace("] = sum;", " + 1000000] = sum;")
    assert text != solved["direct_guarded"]
    lab.run(text)
    lab.run("result = check('direct_guarded')")
    shown = repr(lab.shell.user_ns["result"])
    number = 1 + next(i for i, line in enumerate(text.splitlines()) if "1000000" in line)
    assert "out-of-bounds" in shown
    assert f"{number} │" in shown


def test_a_worker_that_died_is_replaced(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["direct_guarded"])
    opened = magic._lab
    assert opened is not None
    for child in opened.worker._children.values():
        os.killpg(child._process.zygote.pid, signal.SIGKILL)
    lab.run("check('direct_guarded')")
    lab.run("result = check('direct_guarded')")
    assert lab.shell.user_ns["result"].passed


def test_an_answer_cell_is_kept_and_runs_in_the_notebook(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["source_index"])
    assert callable(lab.shell.user_ns["source_index"])
    lab.run("result = check('source_index')")
    assert lab.shell.user_ns["result"].passed


def test_an_error_in_an_answer_cell_has_the_line_number_that_check_gives_it(lab: Notebook) -> None:
    function = "def source_index(p, q, r, s, U, pad, H, W):\n    return nowhere\n"
    said = lab.run(f"%%answer source_index\n\n{function}source_index(*range(8))")
    assert "line 4" in said
    assert "line 5" in said
    (first, *_) = magic.check("source_index").checks
    assert "(line 4 of the cell: `return nowhere`)" in first.rationale


def test_an_answer_cell_that_raises_is_kept_all_the_same(lab: Notebook) -> None:
    lab.run("%%answer source_index\ndef source_index(p, q, r, s, U, pad, H, W):\n    return 1\nundefined_name")
    lab.run("result = check('source_index')")
    result = lab.shell.user_ns["result"]
    assert not result.passed
    assert "undefined_name" in repr(result)


def test_a_number_is_checked(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["predict_padding"])
    lab.run("result = check('predict_padding')")
    assert lab.shell.user_ns["result"].passed


def test_check_without_a_name_checks_what_was_run_and_names_the_rest(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["source_index"])
    lab.run("result = check()")
    result = lab.shell.user_ns["result"]
    assert {c.task for c in result.checks} == {"source_index"}
    assert any(note.startswith("direct_guarded: its cell has not been run") for note in result.notes)
    assert "direct_guarded: its cell has not been run" in repr(result)
    assert "direct_guarded: its cell has not been run" in result._repr_html_()
    assert not result.passed


def test_a_cell_that_was_not_run_is_named_with_its_first_line(lab: Notebook) -> None:
    lab.run("result = check('direct_guarded')")
    assert "%%cuda direct_guarded" in repr(lab.shell.user_ns["result"])
    said = lab.run("measure('direct_guarded')")
    assert "%%cuda direct_guarded" in said
    assert not lab.result.success


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("check('direct_gaurded')", "did you mean 'direct_guarded'"),
        ("%%cuda direct_gaurded\nx", "did you mean 'direct_guarded'"),
        ("%%cuda source_index\nx", "begins with %%answer source_index"),
        ("%%answer direct_guarded\nx", "begins with %%cuda direct_guarded"),
        ("%%cuda\nx", "%%cuda TASK"),
        ("%%cuda explain_mapping\nx", "answered in words"),
        ("measure('source_index')", "no kernel task"),
    ],
)
def test_a_wrong_name_is_told_with_its_fix_and_without_a_traceback(lab: Notebook, cell: str, said: str) -> None:
    shown = lab.run(cell)
    assert said in shown
    assert "Traceback" not in shown
    assert not lab.result.success


def test_measuring_shows_each_line_with_its_traffic(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["direct_coalesced"])
    lab.run("result = measure('direct_coalesced')")
    result = lab.shell.user_ns["result"]
    stores = [row for row in result.seen.rows if row.op == "store"]
    assert [row.array for row in stores] == ["y"]
    assert "y[" in stores[0].text
    assert result.counters["store_requests"] == stores[0].requests
    assert "lanes active" in repr(result)
    assert "sectors per request" in result._repr_html_()


def test_measuring_shows_what_the_threads_printed(lab: Notebook, solved: dict[str, str]) -> None:
    said = 'if (threadIdx.x + blockIdx.x + blockIdx.y + blockIdx.z == 0) printf("<b>%d\\x1b[2J", H);'
    lab.run(solved["direct_guarded"].replace("] = sum;", f"] = sum; {said}"))
    lab.run("result = measure('direct_guarded')")
    result = lab.shell.user_ns["result"]
    assert "printed:\n<b>" in repr(result)
    assert "&lt;b&gt;" in result._repr_html_()
    assert "\x1b" not in repr(result) + result._repr_html_()


def test_timing_a_kernel_without_a_gpu_tells_what_is_recorded_of_its_rungs(
    lab: Notebook, solved: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(magic.gpu, "available", lambda: False)
    lab.run(solved["direct_coalesced"])
    said = lab.run("time_kernel('direct_coalesced')")
    assert "Not measured here (N=16, C=3, H=224" in said
    assert "recorded on NVIDIA H100 80GB HBM3" in said
    assert "direct_report 40" in said
    assert "direct_coalesced 827 µs" in said


def test_without_the_rungs_a_kernel_is_timed_alone_and_that_is_said(
    lab: Notebook, solved: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(magic.gpu, "available", lambda: True)
    monkeypatch.setattr(magic.rungs, "with_sources", lambda: False)
    monkeypatch.setattr(magic.timing, "alone", lambda *_: "830 µs on a device of tests")
    lab.run(solved["direct_coalesced"])
    said = lab.run("time_kernel('direct_coalesced')")
    assert "Measured here (N=16, C=3, H=224" in said
    assert "830 µs on a device of tests. The rungs that it is scored between are answers" in said
    assert "direct_coalesced 827 µs" in said


@pytest.mark.gpu
def test_without_the_rungs_a_kernel_is_timed_alone_on_a_gpu(
    lab: Notebook, solved: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not magic.gpu.available():
        pytest.skip("needs a GPU")
    monkeypatch.setattr(magic.rungs, "with_sources", lambda: False)
    lab.run(solved["direct_coalesced"])
    said = lab.run("time_kernel('direct_coalesced')")
    assert "Measured here (N=16" in said
    assert "s on NVIDIA" in said


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("time_kernel('direct_guarded')", "has no target to be timed against"),
        ("time_kernel('source_index')", "has no target to be timed against"),
    ],
)
def test_what_has_no_target_is_not_timed(lab: Notebook, call: str, says: str) -> None:
    assert says in lab.run(call)


@pytest.mark.gpu
def test_a_kernel_is_timed_between_its_rungs_on_a_gpu(lab: Notebook, solved: dict[str, str]) -> None:
    if not magic.gpu.available():
        pytest.skip("needs a GPU")
    lab.run(solved["direct_coalesced"])
    said = lab.run("time_kernel('direct_coalesced')")
    assert "Measured here (N=16" in said
    assert "direct_report takes" in said


def test_a_kernel_with_a_fault_is_not_measured(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["direct_guarded"].replace("] = sum;", " + 1000000] = sum;"))
    said = lab.run("measure('direct_guarded')")
    assert "cannot be measured" in said
    assert "out-of-bounds" in said


def test_a_lab_opened_twice_starts_afresh(lab: Notebook, solved: dict[str, str]) -> None:
    lab.run(solved["source_index"])
    lab.run(f"open_lab({LAB!r})")
    lab.run("result = check('source_index')")
    assert "has not been run" in repr(lab.shell.user_ns["result"])


def test_the_notebook_and_the_command_line_say_the_same(lab: Notebook, solved: dict[str, str], tmp_path: Path) -> None:
    import json

    from click.testing import CliRunner

    from convladder.autograde.faces.cli import main

    path = tmp_path / f"{LAB}.ipynb"
    path.write_text(build.serialise(build.solved_notebook(LAB)))
    lab.run(solved["direct_report"])
    lab.run("result = check('direct_report')")
    here = [(c.check, c.passed, c.score, c.rationale) for c in lab.shell.user_ns["result"].checks]
    shown = CliRunner().invoke(main, ["check", str(path), "--json"])
    there = json.loads(shown.output)["checks"]
    assert here == [
        (c["check"], c["passed"], c["score"], c["rationale"]) for c in there if c["task"] == "direct_report"
    ]


def test_in_a_real_jupyter_kernel_each_cell_shows_one_thing(solved: dict[str, str]) -> None:
    import nbformat
    from nbclient import NotebookClient

    sources = [
        f"from convladder.autograde import check, measure, open_lab\nopen_lab({LAB!r})",
        solved["direct_guarded"],
        "check('direct_guarded')",
        "measure('direct_guarded')",
        "%%cuda direct_guarded\n__global__ void f() { foo; }",
        "check('no_task')",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(
        nbformat.v4.new_notebook(cells=cells),
        timeout=60,
        allow_errors=True,
        kernel_name="python3",
        coalesce_streams=True,  # one print may arrive in two messages
    ).execute()
    shown = [cell.outputs for cell in cells]
    assert [len(outputs) for outputs in shown] == [1] * len(cells)
    assert all({"text/html", "text/plain"} <= set(outputs[0].data) for outputs in shown[1:5])
    assert shown[5][0].output_type == "error"
    assert shown[5][0].traceback == [shown[5][0].evalue]


def test_measure_sets_traffic_target_roofline_and_predictions_beside_the_kernel(
    lab: Notebook, solved: dict[str, str]
) -> None:
    for task in ("direct_coalesced", "predict_coalesced"):
        lab.run(solved[task])
    said = lab.run("measure('direct_coalesced')")
    assert "you predicted 4, your kernel has 4." in said
    assert re.search(r"direct_report \(base\) +█+ +65,572\n.*\ndirect_coalesced \(target\) +█+ +19,624", said)
    assert "roofline: operations for each byte moved. Recorded on NVIDIA" in said
    measured = lab.result.result
    assert len(measured.bars) == 3
    assert all(f'aria-label="{escape(drawn.alt)}"' in measured._repr_html_() for drawn in measured.bars)


@pytest.mark.parametrize(("fixed", "fails"), [(True, False), (False, True)])
def test_while_nbgrader_validates_a_check_that_loses_points_is_an_error(
    lab: Notebook, solved: dict[str, str], monkeypatch: pytest.MonkeyPatch, fixed: bool, fails: bool
) -> None:
    monkeypatch.setenv("NBGRADER_VALIDATING", "1")
    lab.run(solved["predict_report"] if fixed else "%%answer predict_report\npredict_report = 5")
    said = lab.run("check('predict_report')")
    assert lab.result.success is not fails
    assert ("5 is too small" in said) is fails
    lab.run("check('predict_coalesced')")  # whose cell has not been run
    assert not lab.result.success
    lab.run("%%cuda direct_guarded\n__global__ void broken(")
    lab.run("check('direct_guarded')")  # whose first check is worth no points
    assert not lab.result.success
