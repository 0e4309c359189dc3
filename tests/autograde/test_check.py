"""The checks of a task: right answers get their points, each mistake costs its own check, and says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from convladder.autograde.judge import check_task, judge, measure_task, open_worker, python_task, read
from convladder.autograde.judge.record import CheckRecord, SubmissionRecord
from convladder.autograde.judge.sandbox import SandboxError, SandboxPolicy, Worker
from convladder.autograde.judge.spec import Spec, SpecError, load
from convladder.autograde.judge.submission import Answer, Submission
from convladder.autograde.judge.values import Other


def check(tiny: Spec, task: str, text: str | None, worker: Worker, **how: object) -> dict[str, CheckRecord]:
    records = check_task(tiny, task, text, worker, secret=b"secret", **how)  # type: ignore[arg-type]
    json.dumps([r.__dict__ for r in records], allow_nan=False)
    return {r.check.removeprefix(f"{task}."): r for r in records}


def only_failure(found: dict[str, CheckRecord]) -> tuple[str, CheckRecord]:
    """The one check that failed; those that need it are skipped."""
    ((name, record),) = [(n, r) for n, r in found.items() if r.passed is False]
    for other in found.values():
        if other.passed is None:
            assert other.rationale == f"skipped: needs {record.check}"
            assert other.score == 0
    return name, record


# ---- kernels


def test_a_right_kernel_gets_every_point_in_order(tiny: Spec, conv: str, worker: Worker) -> None:
    found = check(tiny, "conv", conv, worker)
    assert list(found) == ["compiles", "runs", "correct", "hidden", "counters.stores", "target"]
    assert all(r.passed for r in found.values())
    assert sum(r.score for r in found.values()) == pytest.approx(75)


def test_the_same_text_gives_the_same_records(tiny: Spec, conv: str, worker: Worker) -> None:
    assert check(tiny, "conv", conv, worker) == check(tiny, "conv", conv, worker)


KERNELS = {
    # name: (old, new, check that fails, what it says)
    "a missing semicolon": ("sum = 0.0f;", "sum = 0.0f", "compiles", 'expected a ";", line 10: `for (int c = 0'),
    "an unknown name": ("sum += x", "summ += x", "compiles", '"summ" is undefined, line 15: `summ += x'),
    "a header of the host": ("__global__", "#include <stdio.h>\n__global__", "compiles", "printf is built in: remove"),
    "a parameter less": ("int U, int pad)", "int U)", "compiles", '"pad" is undefined'),
    "a parameter more": ("int pad)", "int pad, int more)", "compiles", "has 15 parameters, but the launch passes 14"),
    "an array for a number": ("int N, int C", "float* N, int C", "compiles", "The task passes (const float* x, const"),
    "a wrong name in the launch": ("launch conv", "launch konv", "compiles", "there is no kernel 'konv'"),
    "no launch line": ("//@", "//", "compiles", "such as `//@ launch NAME grid=(cdiv(Q, 128), P, N) block=128`"),
    "a launch line with code": ("grid=(N*K)", "grid=(__import__('os').getpid())", "compiles", "is not allowed here"),
    "a launch line with its dots": ("grid=(N*K)", "grid=(..., N*K)", "compiles", "still has its dots"),
    "a launch line with an unknown name": ("grid=(N*K)", "grid=(N*J)", "compiles", "there is no symbol J"),
    "a grid of zero": ("grid=(N*K)", "grid=(N*K-1)", "compiles", "N * K - 1 is 0"),
    "a negative grid": ("grid=(N*K)", "grid=(0-N)", "compiles", "a size must be at least 1"),
    "a huge grid": ("grid=(N*K)", "grid=(2**40)", "compiles", "must be between 1 and"),
    "a huge block": ("block=32", "block=4096", "compiles", "line 2: `//@ launch"),
    "a launch with chevrons": ("__global__", "conv<<<N, 32>>>(x);\n__global__", "compiles", "//@ launch conv grid="),
    "a launch in a kernel": ("sum = 0.0f;", "sum = 0.0f; conv<<<1, 1>>>(x);", "compiles", "in place of <<<…>>> write"),
    "a program of the host": ("__global__", "int main() { return 0; }\n__global__", "compiles", "main too: arrays"),
    "too much shared memory": ("block=32", "block=32 shared=300000", "compiles", "can have 0 to 232448 bytes"),
    "a file that is not there": ("//@ l", '#include "/no/such"\n//@ l', "compiles", "cannot open source file"),
    "a read beyond the end": ("h < H", "h <= H", "runs", "line 15: `sum += x[((n * C + c) * H + h) * W + v]"),
    "a store beyond the end": ("* Q + q] = sum", "* Q + q + 1] = sum", "runs", "out-of-bounds"),
    "an endless loop": ("c++", "c += 0", "runs", "probably never ends"),
    "a changed input": ("const float* x", "float* x", "runs", "writes to x, which is an input"),
    "nothing written": ("= sum;", "+ 0;", "runs", "the kernel writes nothing to y"),
    "a wrong stride": ("q * U - pad", "q - pad", "correct", "elements are wrong"),
    "a flipped filter": ("* R + r) * S + s]", "* R + R - 1 - r) * S + S - 1 - s]", "correct", "the filter is flipped"),
    "the last row left out": ("r < R", "r < R - 1", "correct", "the sum leaves out the last r = R - 1"),
    "an element never written": ("i < P * Q", "i < P * Q - 1", "correct", "was never written"),
    "not a number": ("= sum;", "= sqrtf(-1.0f - sum * sum);", "correct", "is nan, expected"),
    "half precision": ("sum += x[", "sum += 1.001f * x[", "correct", "expected"),
    "right only where it was seen": ("float sum = 0.0f;", "float sum = pad == 2;", "hidden", "y[0,0,0,0] is 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_wrong_kernel_fails_exactly_its_check(tiny: Spec, conv: str, worker: Worker, name: str) -> None:
    old, new, fails, says = KERNELS[name]
    assert old in conv
    text = conv.replace(old, new, 1)
    if name == "a changed input":
        text = text.replace("] = sum;", "] = sum; if (i == 0 && blockIdx.x == 0) x[0] = x[0] + 1;")
        text = text.replace("x[((n", "(n + c + h + v) == 0 ? 0.0f : x[((n")  # or the race would be found first
    failed, record = only_failure(check(tiny, "conv", text, worker))
    assert failed == fails
    assert says in record.rationale
    assert record.score == 0
    assert record.help == "Step 2"


def test_variables_of_the_module_begin_anew_in_every_case(tiny: Spec, conv: str, worker: Worker) -> None:
    count = "__device__ int runs = 0;\n__global__ void count(int* t) { t[0] = ++runs; }\n//@ temp t int[1]\n"
    text = conv.replace("//@ launch conv", "//@ launch count grid=1 block=1 args=t\n//@ launch conv")
    text = count + text.replace("= sum;", "= runs == 1 ? sum : -1.0f;")
    found = check(tiny, "conv", text, worker)
    assert found["correct"].passed, found["correct"].rationale
    assert found["hidden"].passed


def test_an_output_that_no_launch_gets_holds_nothing_of_another_run(tiny: Spec, conv: str, worker: Worker) -> None:
    """Memory that is used again may hold the right values of the case before."""
    assert check(tiny, "conv", conv, worker)["hidden"].passed
    elsewhere = conv.replace("block=32", "block=32 args=(x, w, t, N, C, H, W, K, R, S, P, Q, U, pad)")
    name, record = only_failure(check(tiny, "conv", "//@ temp t float[N*K*P*Q]\n" + elsewhere, worker))
    assert (name, record.rationale) == ("runs", "the kernel writes nothing to y")


def test_a_constant_with_a_name_of_the_task_is_told_so(tiny: Spec, conv: str, worker: Worker) -> None:
    name, record = only_failure(check(tiny, "conv", "//@ const P = 4\n" + conv, worker))
    assert name == "compiles"
    assert "P is a name of the task already: choose another one, line 2: `//@ const P = 4`" in record.rationale


def test_a_fault_comes_with_its_evidence(tiny: Spec, conv: str, worker: Worker) -> None:
    record = check(tiny, "conv", conv.replace("h < H", "h <= H"), worker)["runs"]
    assert record.evidence["case"] == "one"
    assert record.evidence["fault"]["kind"] == "out-of-bounds"
    assert record.evidence["fault"]["array"] == "x"
    assert record.evidence["fault"]["line"] == 15
    assert record.evidence["source"].startswith("sum += x[")


def test_of_a_hidden_case_a_student_sees_the_category_only(tiny: Spec, conv: str, worker: Worker) -> None:
    for text, category in (
        (conv.replace("float sum = 0.0f;", "float sum = pad == 2;"), "wrong values on a hidden case"),
        (conv.replace("* Q + q] = sum;", "* Q + q + (pad == 2 ? 9999 : 0)] = sum;"), "out-of-bounds on a hidden case"),
    ):
        record = check(tiny, "conv", text, worker)["hidden"]
        assert "secret" in record.rationale
        view = record.student_view()
        assert view.rationale == category
        assert view.evidence == {}


def test_a_kernel_that_wastes_traffic_loses_counters_and_target_only(tiny: Spec, conv: str, worker: Worker) -> None:
    text = conv.replace("block=32", "block=1").replace("threadIdx.x", "0").replace("i += 32", "i += 1")
    found = check(tiny, "conv", text, worker)
    assert [n for n, r in found.items() if not r.passed] == ["counters.stores", "target"]
    assert "Counted: store_requests is 48 on case 'larger', asked at most 4" in found["counters.stores"].rationale
    assert found["counters.stores"].help == "Step 3"
    assert found["target"].score == 0


def test_a_counter_of_something_that_the_kernel_does_not_do_is_told_as_such(
    specs_dir: Path, tmp_path: Path, conv: str, worker: Worker
) -> None:
    text = (specs_dir / "tiny.toml").read_text()
    (tmp_path / "tiny.toml").write_text(text.replace('value = "store_requests"', 'value = "wavefronts / barriers"'))
    record = check(load("tiny", tmp_path), "conv", conv, worker)["counters.stores"]
    assert record.rationale == (
        "the kernel does nothing of what is counted here: wavefronts / barriers has no value on case 'larger'"
    )
    assert record.passed is False


def test_the_target_scores_between_base_and_target_on_a_logarithmic_scale(tiny: Spec, worker: Worker) -> None:
    from convladder.autograde.judge import counting
    from convladder.autograde.judge.spec import KernelTask

    task = tiny.task("conv")
    assert isinstance(task, KernelTask)
    assert task.target is not None
    case = task.case("larger")
    goal = counting.rung_numbers("direct_coalesced", task.problem, case.symbols)
    base = counting.rung_numbers("direct_report", task.problem, case.symbols)
    middle = {**goal, "sectors": (goal["sectors"] * base["sectors"]) ** 0.5}
    for counted, share in (
        (goal, 1.0),
        (base, 0.0),
        (middle, 0.5),
        ({**goal, "sectors": 1}, 1.0),
        ({**goal, "sectors": 0}, 0.0),
    ):
        counted = {**counted, "blocks": 4}
        verdict = counting.judge_target(
            task.target, task.problem, case.symbols, {**case.symbols, "P": 3, "Q": 4}, counted
        )
        assert verdict.share == pytest.approx(share)


def test_a_broken_guard_keeps_a_good_ratio_from_scoring(tiny: Spec, conv: str, worker: Worker) -> None:
    text = conv.replace("grid=(N*K)", "grid=1").replace(
        "int n = blockIdx.x / K, k = blockIdx.x % K;", "for (int n = 0; n < N; n++) for (int k = 0; k < K; k++)"
    )
    record = check(tiny, "conv", text, worker)["target"]
    assert record.score == 0
    assert "Not scored, because blocks is 1, asked at least 4" in record.rationale


def test_without_a_cell_the_first_check_says_so(tiny: Spec, worker: Worker) -> None:
    for text in (None, "", " \n\t\n"):
        failed, record = only_failure(check(tiny, "conv", text, worker))
        assert failed == "compiles"
        assert "there is no cell for conv" in record.rationale or "is empty" in record.rationale


def test_what_is_off_is_not_checked(tiny: Spec, conv: str, worker: Worker) -> None:
    found = check(tiny, "conv", conv, worker, timing="off", hidden=False)
    assert list(found) == ["compiles", "runs", "correct", "counters.stores"]
    assert check(tiny, "why", "because", worker, explain=False) == {}


def test_a_kernel_that_does_not_come_back_names_its_case(
    tiny: Spec, conv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convladder.autograde.judge import kernel_task

    monkeypatch.setattr(kernel_task, "BUDGET", 10**12)
    with open_worker(SandboxPolicy("none", seconds=2)) as impatient:
        failed, record = only_failure(check(tiny, "conv", conv.replace("c++", "c += 0"), impatient))
        assert failed == "runs"
        assert "did not come to an end within 2 s. Case 'one'" in record.rationale
        assert check(tiny, "conv", conv, impatient)["correct"].passed


def test_measuring_gives_counters_by_line_of_the_cell(tiny: Spec, conv: str, worker: Worker) -> None:
    measured = measure_task(tiny, "conv", conv, worker)
    assert measured.problem == ""
    assert measured.case == "larger"
    assert measured.symbols["P"] == 3
    ((kernel, counters),) = measured.launches
    assert kernel == "conv"
    lines = {a.array: a.line for a in counters.accesses}
    assert lines == {"x": 15, "w": 15, "y": 17}
    json.dumps(measured.as_dict(), allow_nan=False)
    assert measured.totals["store_requests"] == 4


def test_measuring_what_cannot_run_says_why(tiny: Spec, conv: str, worker: Worker) -> None:
    assert "does not compile" in measure_task(tiny, "conv", conv.replace("float sum", "float"), worker).problem
    assert "out-of-bounds" in measure_task(tiny, "conv", conv.replace("h < H", "h <= H"), worker, case="one").problem
    with pytest.raises(SpecError, match="only kernels"):
        measure_task(tiny, "guess", "1", worker)
    with pytest.raises(SpecError, match="its cases are one, larger"):
        measure_task(tiny, "conv", conv, worker, case="secret")


# ---- functions


def test_a_right_function_gets_every_point(tiny: Spec, index: str, worker: Worker) -> None:
    found = check(tiny, "index", index, worker)
    assert [(n, r.passed) for n, r in found.items()] == [("correct", True), ("hidden", True)]
    assert found["correct"].rationale == "right in 55 calls"


HEAD = "def source_index(p, q, r, s, U, pad, H, W):\n"
FUNCTIONS = {
    "the stub": (HEAD + "    raise NotImplementedError", "(p=1, q=1, r=0, s=1, U=1, pad=0, H=4, W=4) is not written"),
    "no function": ("x = 1", "defines no function source_index"),
    "another signature": ("def source_index(p):\n    return p", "raised TypeError"),
    "a syntax error": (HEAD + "    return (", "does not run: SyntaxError"),
    "an error in the cell": ("import nothing_of_this_name\n" + HEAD, "does not run: "),
    "an error in a call": (HEAD + "    return 1 // 0", "or modulo by zero (line 3 of the cell: `return 1 // 0`)"),
    "a list": (HEAD + "    return [p * U - pad + r, q * U - pad + s]", "a list, where a tuple is asked for"),
    "floats": (HEAD + "    return (p * U / 1 - pad + r, q * U - pad + s)", "a float, where an int is asked for"),
    "a bool": (HEAD + "    return (p == 9, q * U - pad + s)", "a bool, where an int is asked for"),
    "one value": (HEAD + "    return p * U - pad + r", "returned 1, expected (1, 2)"),
    "three values": (HEAD + "    return (1, 2, 3)", "3 values instead of 2"),
    "no padding": (HEAD + "    return (p * U - pad + r, q * U - pad + s)", "expected None"),
    "None": (HEAD + "    pass", "returned None, expected (1, 2)"),
    "a string": (HEAD + "    return '(1, 2)'", "returned '(1, 2)', expected (1, 2)"),
    "something odd": (HEAD + "    return {1, 2}", "returned a set, expected (1, 2)"),
    "something huge": (HEAD + "    return [0] * 10**7", "a list that is too large"),
    "endless": (HEAD + "    while True: pass", "did not return within 2 s (line 3 of the cell"),
    "talkative": (HEAD + "    print('x' * 10**7)\n    return 1", "prints more than 1024 KiB"),
    "gone": ("import os\n" + HEAD + "    os._exit(0)", "the process that ran it has ended"),
    "forging": (
        HEAD + "    import os\n    for fd in range(3, 20):\n        try: os.write(fd, b'CVF1' * 99)\n"
        "        except OSError: pass", "it disturbed the process",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_function_says_what_it_does(tiny: Spec, worker: Worker, name: str) -> None:
    text, says = FUNCTIONS[name]
    failed, record = only_failure(check(tiny, "index", text, worker))
    assert failed == "correct"
    assert says in record.rationale


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.float32(1 / 3), ""),
        (np.float32(1 / 3) * np.float32(3) / np.float32(3), ""),
        (1 / 3, ""),
        (0.33333, "returned 0.33333, expected 0.333"),
        (np.float32(0.33333), "returned np.float32(0.33333), expected 0.333"),
        (Other("float16"), "returned a float16, expected 0.333"),
    ],
)
def test_a_float_is_compared_with_the_tolerance_of_its_type(value: object, says: str) -> None:
    assert python_task.difference(1 / 3, value).startswith(says)
    assert bool(python_task.difference(1 / 3, value)) == bool(says)


@pytest.mark.parametrize(
    ("expected", "value", "says"),
    [
        (0.5, np.array(0.5), "expected 0.5: an array of shape (), where a float is asked for"),
        (3, np.array([3]), "an array of shape (1,), where an int is asked for"),
        (np.ones(2), np.array([1, 2]), "1 of 2 elements differ. It is an array of int64, where floats are asked for"),
        (np.ones(2), Other("array of complex128"), "returned an array of complex128, expected [1., 1.]"),
    ],
)
def test_a_value_of_another_kind_is_told_as_such(expected: object, value: object, says: str) -> None:
    assert says in python_task.difference(expected, value)


def test_a_float32_is_no_int() -> None:
    assert "a float, where an int is asked for" in python_task.difference(3, np.float32(3))


def test_a_function_that_fails_only_hidden_calls(tiny: Spec, index: str, worker: Worker) -> None:
    text = index.replace("    h, w", "    if p == 9:\n        return (0, 0)\n    h, w")
    failed, record = only_failure(check(tiny, "index", text, worker))
    assert failed == "hidden"
    assert record.student_view().rationale == "wrong value in a hidden call"


def test_a_function_cannot_show_its_author_the_hidden_calls(tiny: Spec, worker: Worker) -> None:
    spy = (
        "import sys\n" + HEAD + "    frame = sys._getframe()\n    while 'request' not in frame.f_locals:\n"
        "        frame = frame.f_back\n    raise ValueError([c['p'] for c in frame.f_locals['request']['calls']][-3:])"
    )  # fmt: skip
    _, record = only_failure(check(tiny, "index", spy, worker))
    assert "raised ValueError: [1, 1, 1]" in record.rationale  # the last public calls; the hidden one has p = 9


def test_a_function_that_dies_in_a_hidden_call_loses_the_hidden_points_only(
    tiny: Spec, index: str, worker: Worker
) -> None:
    text = index.replace("    h, w", "    if p == 9:\n        __import__('os')._exit(0)\n    h, w")
    failed, record = only_failure(check(tiny, "index", text, worker))
    assert failed == "hidden"
    assert record.student_view().rationale == "wrong value in a hidden call"


UNROLL = """
import numpy as np

def lower(x, R, S, U, pad):
    C = x.shape[0]
    padded = np.zeros((C, x.shape[1] + 2 * pad, x.shape[2] + 2 * pad), np.float32)
    padded[:, pad : pad + x.shape[1], pad : pad + x.shape[2]] = x
    P, Q = (padded.shape[1] - R) // U + 1, (padded.shape[2] - S) // U + 1
    taps = [padded[c, r : r + P * U : U, s : s + Q * U : U] for c in range(C) for r in range(R) for s in range(S)]
    return np.stack([t.reshape(-1) for t in taps])
"""
ARRAY_TASK = """
[[task]]
name = "lower"
kind = "python"
title = "Arrays"
function = "lower"
reference = "layouts.im2col"
case = [
  {name = "by hand", args = {x = {values = [[[1.0, 2.0], [3.0, 4.0]]]}, R = 1, S = 2, U = 1, pad = 0}},
  {name = "drawn", args = {x = {whole = [2, 5, 4], zeros = 0.3}, R = 3, S = 2, U = 2, pad = 1}},
]
share = {correctness = 1}
"""


@pytest.fixture(scope="module")
def arrays(specs_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Spec:
    folder = tmp_path_factory.mktemp("specs")
    (folder / "tiny.toml").write_text((specs_dir / "tiny.toml").read_text() + ARRAY_TASK)
    return load("tiny", folder)


def test_a_function_takes_arrays_and_returns_one(arrays: Spec, worker: Worker) -> None:
    found = check(arrays, "lower", UNROLL, worker)
    assert found["correct"].passed, found["correct"].rationale
    first, again = (load("tiny", arrays.path.parent).task("lower") for _ in range(2))
    drawn = [task.cases[1].calls[0]["x"] for task in (first, again)]  # type: ignore[union-attr]
    assert drawn[0].tobytes() == drawn[1].tobytes()
    assert {0.0} < set(drawn[0].ravel()) <= set(range(10))


ARRAYS = {
    "the sign": ("return np.stack", "return -np.stack", "element [0,0] is -1.0, expected 1.0; 4 of 4"),
    "another shape": ("for t in taps])", "for t in taps]).ravel()", "returned an array of shape (4,), expected (2, 2)"),
    "rows of unequal length": ("return np.stack(", "return [[1], [2, 3]] or (", "returned lists of unequal lengths"),
    "None": ("return np.stack(", "np.stack(", "returned None, expected an array of shape (2, 2)"),
    "half precision": ("return np.stack(", "return np.float16(0.1) + np.stack(", "element [0,0] is 1.09997"),
    "text": ("return np.stack(", "return str(", "expected an array of shape (2, 2)"),
    "a huge array": ("return np.stack(", "return np.zeros(10**7) if R else np.stack(", "(10000000,) that is too large"),
    "too much memory": ("return np.stack(", "return np.zeros(10**12) + np.stack(", "needs more memory than there is"),
    "megabytes of text": ("return np.stack(", "print('x' * 10**7)\n    return np.stack(", "prints more than 1024 KiB"),
    "a changed argument": ("C = x.shape[0]", "x += 1; C = x.shape[0]", "[[[1., 2.], [3., 4.]]]"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_a_wrong_array_is_told_by_what_is_wrong_with_it(arrays: Spec, worker: Worker, name: str) -> None:
    old, new, says = ARRAYS[name]
    failed, record = only_failure(check(arrays, "lower", UNROLL.replace(old, new, 1), worker))
    assert failed == "correct"
    assert says in record.rationale


@pytest.mark.parametrize("depth", [900, 1500])
def test_a_deeply_nested_prediction_is_a_wrong_one(tiny: Spec, worker: Worker, depth: int) -> None:
    record = check(tiny, "guess", f"guess = {'-' * depth}1", worker)["prediction"]
    assert record.passed is False


# ---- numbers and explanations


@pytest.mark.parametrize(
    "text", ["guess = 4.5", "guess = R * S / 2  # half", "\nguess = (R**2 + 0) / 2\n", "guess = 4.54"]
)
def test_a_right_prediction_may_be_written_in_any_way(tiny: Spec, worker: Worker, text: str) -> None:
    assert check(tiny, "guess", text, worker)["prediction"].score == pytest.approx(5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("guess = ...  # YOUR NUMBER HERE", "no number yet"),
        ("guess = 9", "9 is too large"),
        ("guess = 4", "4 is too small"),
        ("guess =", "is not Python"),
        ("4.5", "does not set guess"),
        ("guess = 1\nguess = 4.5", "sets guess 2 times"),
        ("guess = __import__('os').system('true')", "is not allowed here"),
        ("guess = [9]", "is not allowed here"),
        ("guess = 7,1", "is two numbers, where one is asked for"),
        ("guess = Z", "there is no symbol Z"),
        ("guess = 1 / 0", "divides by zero"),
        ("guess = 9**9**9**9", "has no value"),
        ("guess = 1e400", "is not a number"),
        ("guess = " + "(" * 900 + "1" + ")" * 900, "is not Python"),
        ("guess = 1" + " " * 3000, "it takes one line"),
    ],
)
def test_a_wrong_prediction_says_why_and_not_the_answer(tiny: Spec, worker: Worker, text: str, says: str) -> None:
    record = check(tiny, "guess", text, worker)["prediction"]
    assert record.passed is False
    assert says in record.rationale
    assert "4.5" not in record.rationale.replace(text, "")


def test_an_explanation_waits_for_a_person(tiny: Spec, worker: Worker) -> None:
    record = check(tiny, "why", "one two three four five six", worker)["explanation"]
    assert (record.passed, record.manual, record.score) == (None, True, 0)
    assert record.evidence["words"] == 6
    assert "1 more than asked" in record.rationale


@pytest.mark.parametrize("text", ["", "*Your answer.*", "<!-- nothing -->"])
def test_an_empty_explanation_is_worth_nothing(tiny: Spec, worker: Worker, text: str) -> None:
    record = check(tiny, "why", text, worker)["explanation"]
    assert (record.passed, record.manual) == (False, False)
    assert "has no answer" in record.rationale


# ---- a whole submission


def submission(tiny: Spec, conv: str, index: str) -> Submission:
    answers = {
        "index": Answer(index, 1), "conv": Answer(conv, 2), "guess": Answer("guess = 4.5", 3),
        "why": Answer("Because.", 4, 1),
    }  # fmt: skip
    return Submission(Path("tiny.ipynb"), "0" * 64, answers, [])


def test_a_submission_gets_full_marks_under_every_policy(tiny: Spec, conv: str, index: str, policy: str) -> None:
    record = judge(tiny, submission(tiny, conv, index), student="ada", secret=b"s", sandbox=policy)
    assert record.score == record.max == pytest.approx(95)
    assert record.manual_max == pytest.approx(5)
    assert record.sandbox == policy
    again = SubmissionRecord.from_json(record.to_json())
    assert again == record


def test_a_worker_may_be_started_before_the_submission_is_read(tiny: Spec, conv: str, index: str) -> None:
    early = open_worker("none")
    early.start("kernel", "python")
    assert judge(tiny, submission(tiny, conv, index), student="a", secret=b"s", worker=early).score == pytest.approx(95)
    assert early._children == {}


def test_one_hostile_answer_does_not_harm_the_others(tiny: Spec, conv: str, index: str) -> None:
    found = submission(tiny, conv, index)
    found.answers["index"] = Answer("import os\nos.kill(os.getpid(), 9)", 1)
    record = judge(tiny, found, student="eve", secret=b"s", sandbox="none")
    assert [c.check for c in record.checks if c.passed is False] == ["index.correct"]
    assert record.score == pytest.approx(80)


def test_without_a_sandbox_nothing_is_judged(
    tiny: Spec, conv: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convladder.autograde.judge import sandbox

    monkeypatch.setattr(sandbox, "available", lambda: (False, "there is none"))
    with pytest.raises(SandboxError, match="there is none"):
        judge(tiny, submission(tiny, conv, index), student="a", secret=b"s")


def test_another_secret_gives_other_data(tiny: Spec, conv: str, worker: Worker) -> None:
    wrong = conv.replace("= sum;", "= sum + 1;")
    a, b = (check_task(tiny, "conv", wrong, worker, secret=s)[2].evidence["expected"] for s in (b"1", b"2"))
    assert a != b


def test_a_notebook_file_is_judged(tiny: Spec, conv: str, index: str, tmp_path: Path, worker: Worker) -> None:
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    path = tmp_path / "tiny.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("%%cuda conv\n" + conv.replace("h < H", "h <= H"))]), path)
    record = judge(tiny, read(path, tiny), student="a", secret=b"s", sandbox="none")
    runs = next(c for c in record.checks if c.check == "conv.runs")
    assert runs.rationale.startswith("cell 1, line 15: `sum += x[")
    assert len(record.problems) == 3


def test_values_from_a_gpu_count_only_after_the_engine_found_no_fault(
    tiny: Spec, conv: str, worker: Worker
) -> None:  # fmt: skip
    """Without a GPU the judge says that this machine cannot judge, and blames no student."""
    from convladder.kernels.errors import BackendError

    if _has_gpu():
        assert check(tiny, "conv", conv, worker, on="gpu")["correct"].passed
        assert check(tiny, "conv", conv.replace("h < H", "h <= H"), worker, on="gpu")["runs"].passed is False
    else:
        with pytest.raises(BackendError):
            check(tiny, "conv", conv, worker, on="gpu")


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))
