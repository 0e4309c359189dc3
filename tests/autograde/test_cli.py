"""The command line as people use it: what it prints, what it writes, how it exits."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from convladder import __version__
from convladder.autograde.course import answer_key, build, mistakes
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import sandbox
from convladder.kernels import gpu

LAB = "01_direct"
SAXPY = """
//@ const SCALE = 2
extern "C" __global__ void saxpy(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = SCALE * x[i];
}
__global__ void broken(float* y, int n)
{
    y[threadIdx.x + n] = 1;
}
"""


def convladder(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def assert_told(result: Result, code: int = 2) -> str:
    """The command failed as expected errors do: one paragraph on stderr, no traceback. Gives the paragraph."""
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert "\n\n" not in result.stderr.strip()
    assert result.stderr.strip()
    return " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def solved() -> str:
    return build.serialise(build.solved_notebook(LAB))


def changed(notebook: str, cell: str, old: str, new: str) -> str:
    """A notebook with a text replaced in one cell."""
    body = json.loads(notebook)
    for c in body["cells"]:
        if c["id"] == cell:
            source = "".join(c["source"])
            assert old in source
            c["source"] = source.replace(old, new)
    return json.dumps(body)


@pytest.fixture
def notebook(tmp_path: Path, solved: str) -> Path:
    path = tmp_path / f"{LAB}.ipynb"
    path.write_text(solved)
    return path


# --- help, version, doctor -----------------------------------------------------------------------


def test_every_command_has_help() -> None:
    shown = convladder("--help")
    assert shown.exit_code == 0
    for name, command in main.commands.items():
        assert name in shown.output
        assert command.help
        assert convladder(name, "--help").exit_code == 0


def test_the_program_says_its_version() -> None:
    assert __version__ in convladder("--version").output


def test_the_installed_program_starts() -> None:
    script = Path(sys.executable).with_name("convladder")
    if not script.exists():
        pytest.skip("convladder is not installed beside this Python")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert __version__ in shown.stdout


def test_doctor_finds_compiler_and_engine_by_running_them() -> None:
    shown = convladder("doctor", "--json")
    findings = {f["name"]: f for f in json.loads(shown.output)}
    assert shown.exit_code == 0
    assert findings["compiler"]["ok"]
    assert findings["engine"]["ok"]
    assert findings["sandbox"]["ok"] is sandbox.available()[0]
    assert all(f["ok"] or f["advice"] for f in findings.values())


def test_doctor_tells_in_words_what_is_there_and_what_to_install() -> None:
    shown = convladder("doctor")
    assert "Ready" in shown.output
    for part in ("To do the labs", "With an NVIDIA GPU", "To grade other people's work"):
        assert part in shown.output
    if "– GPU" in shown.output:
        assert "pip install" in shown.output


def test_doctor_fails_where_the_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from convladder.autograde.course import doctor

    monkeypatch.setattr(doctor, "launch", lambda *a, **k: 1 / 0)
    shown = convladder("doctor")
    assert shown.exit_code == 1
    assert "Not ready: engine" in shown.output


# --- check ---------------------------------------------------------------------------------------


def test_a_solved_notebook_passes(notebook: Path) -> None:
    shown = convladder("check", notebook)
    assert shown.exit_code == 0, shown.output
    assert "✗" not in shown.output
    assert re.search(r"95 of 95 points, and 5 given by hand", shown.output)


def test_a_wrong_notebook_fails_with_its_reason(notebook: Path, solved: str) -> None:
    notebook.write_text(changed(solved, "direct_guarded", "p * U", "p"))
    shown = convladder("check", notebook)
    assert shown.exit_code == 1
    assert "✗ correct" in shown.output
    assert "expected" in shown.output
    assert "x x" in shown.output  # the map of wrong elements


def test_a_record_can_be_had_as_json(notebook: Path, solved: str) -> None:
    notebook.write_text(changed(solved, "predict_padding", "predict_padding =", "predict_padding = 1000 *"))
    shown = convladder("check", notebook, "--json")
    record = json.loads(shown.stdout)
    assert shown.exit_code == 1
    assert record["lab"] == LAB
    assert [c["check"] for c in record["checks"] if c["passed"] is False] == ["predict_padding.prediction"]


def test_the_lab_is_read_from_the_notebook_else_from_its_name_else_asked_for(tmp_path: Path, solved: str) -> None:
    renamed = tmp_path / "mine.ipynb"
    renamed.write_text(solved)
    assert json.loads(convladder("check", renamed, "--json").stdout)["lab"] == LAB
    unnamed = solved.replace("open_lab(", "# open_lab(")
    assert unnamed != solved
    renamed.write_text(unnamed)
    assert "--lab" in assert_told(convladder("check", renamed), 2)
    assert convladder("check", renamed, "--lab", LAB).exit_code == 0
    named = tmp_path / f"{LAB}.ipynb"
    named.write_text(unnamed)
    assert convladder("check", named).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "empty"), ("no json", "not JSON"), ("{}", "not a notebook"), ('{"nbformat": 4}', "no list of cells"),
     ('{"nbformat": 4, "cells": []}', "no answer cell")],
)  # fmt: skip
def test_a_file_that_is_no_lab_is_told_in_a_paragraph(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / f"{LAB}.ipynb"
    path.write_text(text)
    assert said in assert_told(convladder("check", path))


def test_a_missing_notebook_and_an_unknown_lab_are_told_in_a_paragraph(tmp_path: Path, notebook: Path) -> None:
    assert "cannot be read" in assert_told(convladder("check", tmp_path / f"{LAB}.ipynb.bak", "--lab", LAB))
    assert "the labs are" in assert_told(convladder("check", notebook, "--lab", "99_none"))


# --- grade ---------------------------------------------------------------------------------------


class Text(HTMLParser):
    """The words of a page."""

    def __init__(self, html: str):
        super().__init__()
        self.words = ""
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def submissions(tmp_path: Path, solved: str) -> Path:
    """A small class with hostile names: solved, wrong, and no notebook at all."""
    folder = tmp_path / "submitted"
    texts = {
        "ada": solved,
        "<script>alert(1)": changed(solved, "direct_guarded", "] = sum;", " + 1000000] = sum; // <img src=x>"),
        "=cmd()": "not a notebook",
        "ev\x1b[31mil": changed(solved, "direct_guarded", "__global__", '#error "\x1b[31m<b>"\n__global__'),
    }
    for student, text in texts.items():
        path = folder / student / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return folder


def test_a_class_is_graded_with_reasons_files_and_nothing_that_acts(submissions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = convladder("grade", LAB, "--submissions", submissions, "--out", out, "--no-sandbox")
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "95 / 95" in words
    assert "out-of-bounds" in words
    assert "not JSON" in words
    assert "\x1b" not in shown.output
    assert str(out / "index.html") in shown.output
    rows = {row["student"]: row for row in csv.DictReader(io.StringIO((out / "grades.csv").read_text()))}
    assert rows["ada"]["total"] == rows["ada"]["max"] == "95"
    assert rows["'=cmd()"]["total"] == "0"
    page = Text((out / "index.html").read_text())
    assert "<script>alert(1)" in page.words
    assert not {"script", "img"} & set(page.tags)
    feedback = [Text(p.read_text()) for p in (out / "feedback").glob("*.html")]
    assert len(feedback) == 4
    assert not any({"script", "img"} & set(p.tags) or "\x1b" in p.words for p in feedback)
    again = convladder("grade", LAB, "--submissions", submissions, "--out", out, "--no-sandbox")
    assert "kept from an earlier run" in again.output


def test_without_a_sandbox_a_class_is_refused_in_so_many_words(
    submissions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: (False, "bubblewrap is not installed."))
    said = assert_told(convladder("grade", LAB, "--submissions", submissions, "--out", tmp_path / "out"))
    assert "--no-sandbox" in said
    assert "bubblewrap is not installed" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not sandbox.available()[0], reason=f"no sandbox here: {sandbox.available()[1]}")
def test_a_class_is_graded_in_the_sandbox_where_there_is_one(submissions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert convladder("grade", LAB, "--submissions", submissions, "--out", out).exit_code == 0
    assert json.loads((out / "records" / "ada.json").read_text())["sandbox"] == "bwrap"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["99_none", "--submissions", "{folder}"], "the labs are"),
        ([LAB, "--submissions", "{folder}/none"], "cannot be read"),
        ([LAB, "--submissions", "{empty}"], "No submission of 01_direct"),
        ([LAB, "--submissions", "{folder}", "--out", "{file}/out"], "cannot be written"),
    ],
)
def test_a_class_that_cannot_be_graded_is_told_in_a_paragraph(
    submissions: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    places = {"folder": submissions, "empty": tmp_path / "empty", "file": tmp_path / "file"}
    filled = [a.format(**places) for a in arguments]
    filled += [] if "--out" in filled else ["--out", str(tmp_path / "out")]
    if arguments[0] == "99_none":
        filled[2] = str(submissions)
    result = convladder("grade", *filled, "--no-sandbox")
    shown = assert_told(result)
    assert said in shown or "99_none" in shown


@pytest.mark.skipif(gpu.available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_graded_on_one(submissions: Path, notebook: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--submissions", submissions, "--out", out, "--no-sandbox", "--on", "gpu"]
    assert "CuPy" in assert_told(convladder("grade", LAB, *arguments))
    assert not out.exists()
    assert "CuPy" in assert_told(convladder("check", notebook, "--on", "gpu"))


def test_two_graders_of_one_class_leave_one_whole_class(submissions: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "convladder.autograde.faces.cli", "grade", LAB, "--submissions", str(submissions),
               "--out", str(out), "--no-sandbox", "--force"]  # fmt: skip
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    ended = [p.communicate(timeout=120) for p in both]
    codes = sorted(p.returncode for p in both)
    assert codes in ([0, 2], [0, 0]), ended  # [0, 0] where the first had ended before the second began
    if codes == [0, 2]:
        assert "is in use" in " ".join(" ".join(stderr for _, stderr in ended).split())
    assert len(list((out / "records").glob("*.json"))) == 4
    assert len((out / "grades.csv").read_text().splitlines()) == 5


def test_an_interrupted_grader_says_how_to_go_on(submissions: Path, tmp_path: Path) -> None:
    for i in range(20):  # more than can be judged before the interrupt, however busy the machine is
        shutil.copytree(submissions / "ada", submissions / f"ada{i}")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "convladder.autograde.faces.cli", "grade", LAB, "--submissions", str(submissions),
               "--out", str(out), "--no-sandbox", "--workers", "1"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as grader:
        while not (out / "records").exists() or not list((out / "records").glob("*.json")):
            assert grader.poll() is None
            time.sleep(0.01)
        grader.send_signal(signal.SIGINT)
        _, stderr = grader.communicate(timeout=60)
    assert grader.returncode == 130
    assert "the same command goes on from there" in " ".join(stderr.split())
    assert "Traceback" not in stderr
    for path in (out / "records").glob("*.json"):
        json.loads(path.read_text())


@pytest.mark.full
def test_the_demo_grades_the_sample_class_and_tells_each_lost_point(tmp_path: Path) -> None:
    from convladder.autograde.course import sample

    shown = convladder("demo", "--out", tmp_path / "demo")
    assert shown.exit_code == 0, shown.output
    assert str(tmp_path / "demo" / "index.html") in shown.output
    rows = {row["student"]: row for row in csv.DictReader(io.StringIO((tmp_path / "demo" / "grades.csv").read_text()))}
    assert rows[sample.SOLVED]["total"] == rows[sample.SOLVED]["max"]
    assert rows[sample.STUB]["total"] == "0"
    assert len(rows) == 2 + len(sample.mistakes(LAB))
    for student, row in rows.items():
        page = Text((tmp_path / "demo" / "feedback" / f"{student}.html").read_text())
        assert (row["total"] == row["max"]) == ("✗" not in page.words and "◐" not in page.words)


# --- build and prove -----------------------------------------------------------------------------


def test_a_stale_lab_is_named_and_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "stale", lambda: [Path("labs/x.ipynb")])
    shown = convladder("build", "--check")
    assert shown.exit_code == 1
    assert "stale: labs/x.ipynb" in shown.output
    monkeypatch.setattr(build, "stale", list)
    monkeypatch.setattr(mistakes, "stale", list)
    monkeypatch.setattr(answer_key, "stale", list)
    assert convladder("build", "--check").exit_code == 0


@pytest.mark.parametrize("details", [[], ["the stub scores 3"]])
def test_a_proof_that_fails_is_named_and_fails_the_command(monkeypatch: pytest.MonkeyPatch, details: list[str]) -> None:
    from convladder.autograde.course import prove

    monkeypatch.setattr(prove, "prove", lambda lab, course: prove.Proof(lab, [prove.Step("stub", details)]))
    shown = convladder("prove", LAB)
    assert shown.exit_code == (1 if details else 0)
    assert "\n".join(details) in shown.output


# --- run -----------------------------------------------------------------------------------------


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY)
    return path


GOOD = ["--kernel", "saxpy", "--grid", "4", "--block", "32", "--arg", "n=100", "--arg", "y=float[n]:out"]


def test_any_kernel_runs_and_reports_its_traffic_by_line(saxpy: Path) -> None:
    shown = convladder("run", saxpy, *GOOD, "--arg", "x=float[n]:arange")
    assert shown.exit_code == 0, shown.output
    assert "saxpy ran without faults" in shown.output
    assert "if (i < n) y[i]" in shown.output
    assert "0, 2, 4, 6, 8, 10, 12, 14" in shown.output


def test_a_run_can_be_had_as_json(saxpy: Path) -> None:
    shown = convladder("run", saxpy, *GOOD, "--arg", "x=float[n]:ones", "--json")
    body = json.loads(shown.output)
    assert body["faults"] == []
    assert body["outputs"]["y"]["first"] == [2.0] * 8
    assert body["outputs"]["y"]["nan"] == 0
    assert {a["array"] for a in body["counters"]["accesses"]} == {"x", "y"}


def test_a_fault_is_shown_with_its_line_and_fails_the_command(saxpy: Path) -> None:
    arguments = [
        "run",
        saxpy,
        "--kernel",
        "broken",
        "--grid",
        1,
        "--block",
        32,
        "--arg",
        "y=float[32]:out",
        "--arg",
        "n=8",
    ]
    shown = convladder(*arguments)
    assert shown.exit_code == 1
    assert "out-of-bounds" in shown.output
    assert "y[threadIdx.x + n] = 1;" in shown.output
    fault = json.loads(convladder(*arguments, "--json").output)["faults"][0]
    assert (fault["line"], fault["source"]) == (10, "y[threadIdx.x + n] = 1;")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*GOOD], "--arg is missing for x"),
        ([*GOOD, "--arg", "x=float[n]", "--arg", "z=float[3]"], "no parameter is called z"),
        ([*GOOD, "--arg", "x=flot[n]"], "type 'flot' is not known"),
        ([*GOOD, "--arg", "x=float[m]"], "m"),
        ([*GOOD, "--arg", "x=float[0]"], "at least 1"),
        ([*GOOD, "--arg", "x=float[n]:sevens"], "contents are random"),
        ([*GOOD, "--arg", "x=float[n]:none.npy"], "cannot be read"),
        ([*GOOD, "--arg", "x=float[99999999999]"], "larger than 2 GiB"),
        ([*GOOD, "--arg", "x"], "NAME=VALUE"),
        ([*GOOD, "--arg", "n=3"], "given twice"),
        ([*GOOD, "--arg", "x=int[n]"], "float32"),
        (["--kernel", "nope", "--grid", "1", "--block", "1"], "no kernel 'nope'"),
        (["--kernel", "saxpy", "--grid", "0", "--block", "1", "--arg", "x=float[1]", "--arg", "y=float[1]",
          "--arg", "n=1"], "a size must be at least 1"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_made_is_told_in_a_paragraph(saxpy: Path, arguments: list[str], said: str) -> None:
    assert said in assert_told(convladder("run", saxpy, *arguments))


def test_a_file_that_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.cu"
    path.write_text("__global__ void f() { int i = foo; }")
    said = assert_told(convladder("run", path, "--kernel", "f", "--grid", 1, "--block", 1))
    assert 'line 1: identifier "foo" is undefined' in said


def test_sizes_that_are_none_are_a_usage_error(saxpy: Path) -> None:
    shown = convladder("run", saxpy, *GOOD, "--arg", "x=float[n]", "--grid", "a")
    assert shown.exit_code == 2
    assert "there is no symbol a" in shown.output


def test_a_message_keeps_no_terminal_escape(tmp_path: Path) -> None:
    path = tmp_path / "bad.cu"
    path.write_text('#error "\x1b[31mred"')
    assert "\x1b" not in convladder("run", path, "--kernel", "f", "--grid", 1, "--block", 1).output


def test_output_into_a_closed_pipe_is_no_traceback(saxpy: Path) -> None:
    command = [sys.executable, "-m", "convladder.autograde.faces.cli", "run", str(saxpy), *GOOD, "--arg", "x=float[n]"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_bench_prints_and_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from convladder.kernels.bench import engine

    monkeypatch.setattr(engine, "PRODUCTS", {32: 1.0})
    monkeypatch.setattr(engine, "has_numba", lambda: False)
    monkeypatch.setattr(engine, "GROWTH", (16, 32))
    out = tmp_path / "engine.json"
    shown = convladder("bench", "engine", "--out", out)
    assert shown.exit_code == 0, shown.output
    kept = json.loads(out.read_text())
    assert kept["machine"]["cores"]
    assert len(kept["rows"]) > 3
    for row in kept["rows"]:
        assert 0 < row["spread"][0] <= row["seconds"] <= row["spread"][1]
        assert row["what"] in shown.output or row["what"][:20] in shown.output
