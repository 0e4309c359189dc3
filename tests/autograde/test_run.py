"""`convladder run`: any kernel, with arguments described in words."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from convladder.autograde.faces import cli, single
from convladder.kernels import compiler
from convladder.kernels.errors import BackendError

SCALE = """__constant__ float factor;
__device__ int calls;
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
    if (i == 0) calls += 1;
}
"""
ARGUMENTS = ("--arg", "n=100", "--arg", "x=float[n]:arange", "--arg", "y=float[n]:out")
SIZES = ("--grid", "cdiv(n, 32)", "--block", "32")


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    return write(tmp_path, SCALE)


def write(folder: Path, source: str) -> Path:
    path = folder / "kernel.cu"
    path.write_text(source)
    return path


def run(*arguments: Any) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(cli.main, ["run", *map(str, arguments)])


def as_json(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json").output)
    return found


def test_sizes_are_expressions_and_the_only_kernel_needs_no_name(scale: Path) -> None:
    body = as_json(scale, *SIZES, *ARGUMENTS, "--set", "factor=float[1]:2")
    assert body["faults"] == []
    assert body["counters"]["blocks"] == 4
    assert body["outputs"]["y"]["first"] == [2.0 * i for i in range(8)]


def test_grids_are_written_with_commas_or_crosses(scale: Path) -> None:
    for grid in ("2,2", "2x2", "(2, 2)", "2,2,1"):
        assert as_json(scale, "--grid", grid, "--block", 32, *ARGUMENTS)["counters"]["blocks"] == 4


def test_without_sizes_the_files_own_launch_lines_are_run(tmp_path: Path) -> None:
    lines = "//@ const TILE = 16\n//@ temp t float[n]\n//@ launch f grid=cdiv(n, TILE) block=TILE args=(x, t)\n"
    lines += "//@ launch f grid=cdiv(n, TILE) block=TILE args=(t, y)\n"
    path = write(tmp_path, lines + "__global__ void f(const float* a, float* b) {\n"
                 "int i = blockIdx.x * blockDim.x + threadIdx.x; b[i] = 1 + a[i]; }")  # fmt: skip
    body = as_json(path, "--arg", "n=32", "--arg", "x=float[n]:0.5", "--arg", "y=float[n]:out")
    assert body["launches"] == ["f", "f"]
    assert body["outputs"]["y"]["max"] == body["outputs"]["y"]["min"] == 2.5


def test_an_array_that_changed_is_an_output_too(tmp_path: Path) -> None:
    path = write(tmp_path, "__global__ void f(const int* a, int* b) { b[threadIdx.x] += a[threadIdx.x]; }")
    arguments = ("--grid", 1, "--block", 4, "--arg", "a=int[4]:arange", "--arg", "b=int[4]:7")
    assert list(as_json(path, *arguments)["outputs"]) == ["b"]
    assert "b: int32[4] = 7, 8, 9, 10" in run(path, *arguments).output


def test_arrays_come_from_files_and_are_saved_to_files(scale: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(100, 3, np.float32))
    arguments = ("--arg", "n=100", "--arg", f"x={tmp_path / 'x.npy'}", "--arg", "y=float[n]:out")
    shown = run(scale, *SIZES, *arguments, "--set", "factor=float[1]:2", "--save", f"y={tmp_path / 'y.npy'}")
    assert shown.exit_code == 0, shown.output
    assert (np.load(tmp_path / "y.npy") == 6).all()


def test_a_traced_warp_is_drawn_and_changes_nothing(scale: Path) -> None:
    shown = run(scale, *SIZES, *ARGUMENTS, "--trace", "3,0")
    assert "line 5, store of y: 4 lanes touch 1 sector (warp 0 of block 3)" in shown.output
    traced, plain = (as_json(scale, *SIZES, *ARGUMENTS, *more) for more in (["--trace", "0"], []))
    assert {a["array"] for a in traced.pop("lanes")} == {"x", "y", "factor", "calls"}
    assert plain.pop("lanes") == []
    assert traced == plain


def test_seeds_choose_other_random_numbers(scale: Path) -> None:
    firsts = [
        as_json(scale, *SIZES, *ARGUMENTS[:2], "--arg", "x=float[n]:random", "--arg", "y=float[n]:out",
                "--set", "factor=float[1]:1", "--seed", seed)["outputs"]["y"]["first"]
        for seed in (0, 0, 1)
    ]  # fmt: skip
    assert firsts[0] == firsts[1] != firsts[2]


def test_an_endless_loop_ends_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "__global__ void f(int* a) {\n    while (true)\n        a[0] += 1;\n}")
    shown = run(path, "--grid", 1, "--block", 1, "--arg", "a=int[1]", "--budget", 10000)
    assert shown.exit_code == 1
    assert "budget: the loop at line" in shown.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grid", "1"], "--grid and --block go together"),
        ([], "no `//@ launch` line"),
        (["--grid", "1", "--block", "0"], "a size must be at least 1"),
        (["--grid", "1", "--block", "1,1,1,1"], "one, two or three"),
        (["--grid", "1", "--block", "2000"], "between 1 and 1024"),
        (["--grid", "2**31", "--block", "1"], "must be between 1 and"),
        (["--grid", "2**30", "--block", "1024"], "the engine runs at most"),
        (["--grid", "__import__('os')", "--block", "1"], "is not allowed here"),
        (["--grid", "n)) block=(1", "--block", "1"], "--grid"),
        (["--grid", "9**9**9", "--block", "1"], ""),
        (["--grid", "n.5", "--block", "1"], "--grid n.5"),
        ([*SIZES, "--shared", "-1"], "shared"),
        ([*SIZES, "--shared", "10**9"], "shared"),
        ([*SIZES, "--set", "factor=2"], "say type and size"),
        ([*SIZES, "--set", "factor=float[2]:0"], "factor has 4 bytes"),
        ([*SIZES, "--set", "none=float[1]:0"], "no __constant__ or __device__ variable 'none'"),
        ([*SIZES, "--kernel", "scales"], "no kernel 'scales'"),
        ([*SIZES, "--arg", "z=int[4]:one"], "contents are random"),
        ([*SIZES, "--arg", "z=int[2]:1e99"], "contents are random"),
        ([*SIZES, "--arg", "z=float[2**28,2]", "--arg", "w=float[4]"], "larger than 2 GiB together"),
        ([*SIZES, "--save", "n=n.npy"], "--save n=n.npy"),
        ([*SIZES, "--save", "y=none/y.npy"], "--save y=none/y.npy"),
    ],
)
def test_what_cannot_be_run_is_told_with_exit_code_2(scale: Path, arguments: list[str], said: str) -> None:
    shown = run(scale, *arguments, *ARGUMENTS)
    assert shown.exit_code == 2, shown.output
    assert said in " ".join(shown.output.split())
    assert "Traceback" not in shown.output


def test_a_file_that_is_no_array_is_told(scale: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY nonsense")
    shown = run(scale, *SIZES, "--arg", "n=1", "--arg", f"x={tmp_path / 'x.npy'}", "--arg", "y=float[1]")
    assert shown.exit_code == 2
    assert "cannot be read" in " ".join(shown.output.split())


def test_of_several_kernels_one_must_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "__global__ void f() {}\n__global__ void g() {}")
    assert "with --kernel: f, g" in run(path, "--grid", 1, "--block", 1).output
    assert run(path, "--grid", 1, "--block", 1, "--kernel", "g").exit_code == 0


def test_errors_are_json_where_json_was_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "__global__ void f() {\n    int i = foo;\n}")
    error = as_json(path, "--grid", 1, "--block", 1)["error"]
    assert error["type"] == "CompileError"
    assert error["diagnostics"][0]["line"] == 2


def test_without_a_compiler_the_way_out_is_told_with_exit_code_3(scale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise BackendError("the CUDA compiler NVRTC cannot be loaded. Install it with `pip install nvidia-cuda-nvrtc`")

    monkeypatch.setattr(compiler, "_nvrtc", missing)
    shown = run(scale, *SIZES, *ARGUMENTS)
    assert shown.exit_code == 3
    assert "pip install nvidia-cuda-nvrtc" in " ".join(shown.output.split())


def test_the_students_pages_examples_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = (Path(__file__).parents[2] / "docs" / "students.md").read_text(encoding="utf-8").split("```\n")[1::2]
    sources = {s.split("(")[0].split()[-1]: s for s in blocks if s.startswith("__global__")}
    shown = [b.splitlines() for b in blocks if b.startswith("$ convladder run ")]
    assert len(shown) == 2
    for command, *lines in shown:
        _, _, _, file, *arguments = shlex.split(command)
        Path(file).write_text(sources[Path(file).stem])
        printed = {line.rstrip() for line in run(file, *arguments).output.splitlines()}
        assert {line for line in lines if line != "…"} <= printed


def test_arguments_without_end_stay_small() -> None:
    with pytest.raises(single.ArgumentError, match="2 GiB"):
        single.parse_arguments([f"a{i}=float[2**28]:zeros" for i in range(3)])
