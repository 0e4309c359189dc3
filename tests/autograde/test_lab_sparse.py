"""Labs 4 and 5: their rungs on every case, and what their prose and figures say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from convladder.autograde.course import build
from convladder.autograde.course.recorded import folder
from convladder.autograde.course.steadiness import base_answer
from convladder.autograde.faces import figures, recorded_figures
from convladder.autograde.judge import check_task, counting, diagnosis, measure_task, open_worker, spec
from convladder.autograde.judge.kernel_task import case_symbols
from convladder.autograde.judge.sandbox import Worker
from convladder.autograde.judge.spec import ExplainTask, KernelTask, NumberTask
from convladder.kernels import compile_cuda, expression, gpu, out, plan, recorded
from convladder.kernels.bench.cases import Case, cases
from convladder.kernels.errors import BackendError
from convladder.kernels.methods import ladder_source

SPECS = {lab: spec.load(lab) for lab in ("04_sparse", "05_sparse_tiled")}
KERNELS = [(lab, t) for lab, s in SPECS.items() for t in s.tasks if isinstance(t, KernelTask) and t.ladder]


@cache
def counted(lab: str, task: str, rung: str = "") -> counting.Numbers:
    """The counters of a task's rung, or of another one, on the task's measuring case."""
    found = SPECS[lab].task(task)
    assert isinstance(found, KernelTask)
    return counting.rung_numbers(rung or task, found.problem, found.case(found.measure_case).symbols)


def expected(lab: str, task: str) -> float:
    found = SPECS[lab].task(task)
    assert isinstance(found, NumberTask)
    return float(expression.evaluate(found.formula, found.symbols))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker("none") as opened:
        yield opened


@pytest.fixture(params=SPECS)
def lab(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(("lab", "task"), KERNELS, ids=lambda p: getattr(p, "name", p))
def test_rung_is_right_and_without_fault_on_every_case_of_its_task(lab: str, task: KernelTask) -> None:
    source = ladder_source(task.ladder or "")
    parsed = plan.parse(source)
    module = compile_cuda(source, on="sim", options=parsed.options())
    for case in task.cases:
        made = task.problem.instance(case.symbols, np.random.default_rng(7))
        (output,) = made.outputs
        values = np.empty(output.expected.shape, output.dtype)
        arrays = {**made.inputs, output.name: out(values)}
        for _, result in plan.run(module, parsed, made.symbols, arrays, task.params):
            assert result.faults == [], case.name
        assert diagnosis.compare(output, values) is None, case.name


def test_solved_explanation_keeps_to_its_words(lab: str) -> None:
    cells = {c.id: c.source for c in build.solved_notebook(lab).cells}
    for task in SPECS[lab].tasks:
        if isinstance(task, ExplainTask):
            assert 20 <= len(cells[task.name].split()) <= task.words


# ---- lab 4


def test_a_long_row_keeps_the_lanes_of_a_warp_waiting_as_predicted() -> None:
    busy = expected("04_sparse", "predict_busy")
    counters = counted("04_sparse", "stretch_filter")
    assert busy < counters["active_lanes"] < 0.1  # the instructions before the loop keep all lanes busy
    assert counters["store_requests"] == 97
    assert counted("04_sparse", "stretch")["active_lanes"] > 0.99
    assert f"{busy:.1%}" in figures.row_lengths([97] + [1] * 31).alt


def test_the_balance_of_stretching_is_met_with_a_margin_and_missed_by_the_rung_before() -> None:
    task = SPECS["04_sparse"].task("stretch")
    assert isinstance(task, KernelTask)
    (threshold,) = task.counters
    limit = float(expression.evaluate(threshold.limit, task.case(threshold.case).symbols))
    assert counted("04_sparse", "stretch")["warp_instructions"] < 0.5 * limit
    assert counted("04_sparse", "stretch_filter")["warp_instructions"] > 2 * limit


def test_the_sum_in_memory_is_stored_as_often_as_predicted() -> None:
    memory, register = (counted("04_sparse", "csr", rung) for rung in ("csr_global", "csr"))
    assert memory["store_requests"] / register["store_requests"] == pytest.approx(
        expected("04_sparse", "predict_updates"), rel=0.01
    )
    assert memory["fmas"] == register["fmas"] == 645 * 169
    assert memory["requests"] > 1.5 * register["requests"]


def test_the_solved_explanation_of_lab_4_counts_right() -> None:
    cells = {c.id: c.source for c in build.solved_notebook("04_sparse").cells}
    requests, products = counted("04_sparse", "csr")["requests"], 645 * 6  # six warps a plane of 169 outputs
    for number in (requests, products):
        assert f"{number:,}".replace(",", " ") in cells["explain_crossover"]


# ---- lab 5

TILED = "05_sparse_tiled"


@pytest.fixture(scope="module")
def solved() -> dict[str, str]:
    """The cells of the solved lab 5, by their ids."""
    return {c.id: c.source for c in build.solved_notebook(TILED).cells}


def test_tiles_take_two_of_three_global_requests_away(solved: dict[str, str], worker: Worker) -> None:
    text = solved["csr_tiled"].partition("\n")[2]
    tiled = measure_task(SPECS[TILED], "csr_tiled", text, worker, secret=b"public").totals
    of_xp = 3072 * 6  # six warps a plane of 169 outputs
    assert tiled["load_requests"] == pytest.approx(18_800, abs=50)
    assert tiled["shared_requests"] == pytest.approx(2 * of_xp, rel=0.02)
    assert counted(TILED, "csr_tiled", "csr")["load_requests"] > 3 * of_xp
    assert "18 432 of some 18 800 load requests" in solved["explain_tiles"]
    assert of_xp == 18_432


def test_blocks_cut_to_the_plane_meet_the_threshold_that_blocks_of_128_miss() -> None:
    task = SPECS[TILED].task("csr_tiled")
    assert isinstance(task, KernelTask)
    limit = expression.evaluate(
        next(t.limit for t in task.counters if t.name == "surplus"), case_symbols(task.problem, task.case("layer"))
    )
    assert 0.96 * limit > 16 * 192
    assert counted(TILED, "csr_tiled")["threads"] > 1.2 * limit


#: The slips of the paper's listing that compile, in the order in which they are reported: what stands there, what must,
#: and the report of the slip.
SLIPS = (
    (
        "threadIdx.y * blockDim.y", "threadIdx.y * blockDim.x",
        "uninitialised: thread (0, 0, 0) of block (0, 0, 0) reads element 44 of col_shared",
    ),
    (
        "j < row_end - row_start;", "j < min(tile_size, row_end - tile_start);",
        "out-of-bounds: thread (0, 0, 0) of block (0, 0, 0) reads element 128 of col_shared",
    ),
    ("if (true)", "if (tile_start + t < row_end)", "reads col[3], but col has 3 elements"),
    ("[i * tile_size + t]", "[tile_start + t]", "col and val are read from their beginning"),
)  # fmt: skip
LISTING = """
    int t = threadIdx.y * blockDim.y + threadIdx.x;
    for (int i = 0; row_start + i * tile_size < row_end; i++) {
        int tile_start = row_start + i * tile_size;
        if (true) {
            col_shared[t] = col[i * tile_size + t];
            value_shared[t] = val[i * tile_size + t];
        }
        __syncthreads();
        for (int j = 0; j < row_end - row_start; j++)
            sum += value_shared[j] * input[col_shared[j]];
        __syncthreads();
    }
"""


@pytest.mark.parametrize(
    "repaired",
    [
        pytest.param(some, id=f"{some:04b}", marks=[] if some & (some + 1) == 0 else [pytest.mark.full])
        for some in range(2 ** len(SLIPS))
    ],
)
def test_the_listing_shows_one_slip_at_a_time_whichever_are_repaired(repaired: int, worker: Worker) -> None:
    """Bit i of `repaired` says whether slip i is; the fast ones are repaired in the order of the reports."""
    body, left = LISTING, []
    for number, (slip, right, report) in enumerate(SLIPS):
        assert slip in body
        if repaired >> number & 1:
            body = body.replace(slip, right)
        else:
            left.append(report)
    given = (build.ROOT / "solutions" / TILED / "csr_paper.buggy.cu").read_text()
    text = "".join([given.partition("// from the paper")[0], body, given.partition("// until here")[2]])
    found = check_task(SPECS[TILED], "csr_paper", text, worker, hidden=False, secret=b"public")
    failed = [c.rationale for c in found if c.passed is False]
    if left:
        assert left[0] in failed[0]
    else:
        assert failed == []


def test_larger_blocks_multiply_more_because_surplus_threads_do() -> None:
    source = ladder_source("csr_tiled")
    task = SPECS[TILED].task("csr_tiled")
    assert isinstance(task, KernelTask)
    made = task.problem.instance(task.case("layer").symbols, np.random.default_rng(0))
    fmas = {}
    for tile in (128, 1024):
        text = source.replace("TILE = 128", f"TILE = {tile}")
        parsed = plan.parse(text)
        arrays = {**made.inputs, "y": out(np.empty(made.outputs[0].expected.shape, np.float32))}
        module = compile_cuda(text, options=parsed.options())
        ((_, result),) = plan.run(module, parsed, made.symbols, arrays, task.params)
        fmas[tile] = result.counters.fmas
    assert 3072 * 169 / fmas[1024] == pytest.approx(expected(TILED, "predict_useful_1024"), rel=0.01)
    assert 3072 * 169 / fmas[128] == pytest.approx(expected(TILED, "predict_useful_128"), rel=0.01)


@pytest.mark.parametrize(
    ("task", "name", "before"),
    [("csr_tiled", "loads", "csr"), ("csr_spanning", "surplus", "csr_tiled"), ("csr_free", "requests", "csr_spanning")],
)
def test_rung_meets_its_threshold_with_a_margin_and_the_one_before_misses_it(task: str, name: str, before: str) -> None:
    found = SPECS[TILED].task(task)
    assert isinstance(found, KernelTask)
    threshold = next(t for t in found.counters if t.name == name)
    symbols = case_symbols(found.problem, found.case(threshold.case))
    limit = float(expression.evaluate(threshold.limit, symbols))
    assert expression.evaluate(threshold.value, counted(TILED, task, found.ladder or "")) < 0.9 * limit
    assert expression.evaluate(threshold.value, counted(TILED, task, before)) > 1.2 * limit


def test_eight_images_ask_memory_about_as_often_as_predicted() -> None:
    images = counted(TILED, "csr_free", "csr_images")
    products = 16 * 320 * 8  # images, non-zeros, warps a plane of 256 outputs
    asked = (images["requests"] + images["shared_requests"]) / products
    assert asked == pytest.approx(expected(TILED, "predict_requests"), rel=0.05)


# ---- figures


def test_stretched_figure_says_where_the_weights_stand() -> None:
    picture = figures.stretched(4, 4, 1, [(0, 1), (1, 1), (2, 2)], p=2, q=1)
    assert "begins at element 13" in picture.alt
    assert "13 + 1 = 14, 13 + 7 = 20, 13 + 14 = 27" in picture.alt


def test_figure_of_useful_threads_counts_whole_blocks() -> None:
    picture = figures.useful_threads([169], [128, 1024])
    assert "128 threads: 66%" in picture.alt
    assert "1024 threads: 17%" in picture.alt


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda: recorded_figures.steps("conv3"), "pad: "),
        (lambda: recorded_figures.crossover("conv3"), "crosses cuBLAS lowering: at 0."),
        (recorded_figures.base_and_tiled, "sum in a register: conv2 "),
        (recorded_figures.layer_times, "cuSPARSE: conv2 "),
        (recorded_figures.batch_speedups, "cuBLAS by image / tiled: "),
        (lambda: recorded_figures.network_speedups("googlenet"), "of 19 layers"),
        (lambda: recorded_figures.network_speedups("resnet50"), "of 16 layers"),
    ],
    ids=["steps", "crossover", "base_and_tiled", "layer_times", "batch", "googlenet", "resnet50"],
)
def test_figure_of_times_names_its_numbers_and_its_device(draw, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "available", lambda: False)
    picture = draw()
    assert says in picture.alt
    assert "Recorded: NVIDIA" in picture.alt
    assert "currentColor" in picture.svg


def test_verdicts_are_those_of_the_record() -> None:
    found = recorded_figures.verdicts("sparse", "where more than 0.6 of the weights are zero")
    assert len(found.found) == 2
    assert "cuBLAS lowering" in repr(found)
    assert repr(found).count("Recorded: NVIDIA") == 1


def test_a_base_rung_with_other_parameters_is_a_right_answer_to_its_task(worker: Worker) -> None:
    task = SPECS[TILED].task("csr_spanning")
    assert isinstance(task, KernelTask)
    assert task.target is not None
    found = check_task(SPECS[TILED], task, base_answer(task.target.base), worker, hidden=False, secret=b"public")
    assert {c.check: c.passed for c in found if c.check.endswith((".runs", ".correct"))} == {
        "csr_spanning.runs": True, "csr_spanning.correct": True,
    }  # fmt: skip
    assert next(c.score for c in found if c.check.endswith(".target")) == 0


def test_crossover_is_measured_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measure(suite: str, only: Callable[[Case], bool]) -> dict[str, Any]:
        asked.extend(case.name for case in cases(suite) if only(case))
        return recorded.load(suite)[0]

    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(recorded_figures.compare, "measure", measure)
    assert "Measured here: NVIDIA" in recorded_figures.crossover("conv3").alt
    assert len(asked) >= 4
    assert all(name.startswith("sweep of conv3 at ") for name in asked)


@pytest.mark.parametrize(("lab", "cells"), [("04_sparse", 2), ("05_sparse_tiled", 2)])
def test_the_solved_notebook_on_a_gpu_measured_there(lab: str, cells: int) -> None:
    """The timed kernels, and in lab 4 the crossover."""
    kept = json.loads((folder() / f"{lab}.notebook.json").read_text(encoding="utf-8"))
    assert len([c for c in kept["cells"] if "Measured here" in c["text"]]) == cells


def test_crossover_is_shown_as_recorded_where_the_rungs_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object, **__: object) -> None:
        raise BackendError("the source of csr does not come with this installation")

    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(recorded_figures.compare, "measure", measure)
    assert "Recorded: NVIDIA" in recorded_figures.crossover("conv3").alt


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("None", "returned None, expected ([0, 2, 2, 4], [1, 3, 0, 2], [3.0, 1.0, 2.0, 5.0])"),
        ("[0, 1], [0]", "2 values instead of 3"),
        (
            "np.array([0.0, 2.0, 2.0, 4.0]), [0], [7.0]",
            "returned, as value 1 of 3, an array of floats, where integers are asked for",
        ),
        ("[0, 2, 2, 4], [[0], [1, 2]], [7.0]", "returned, as value 2 of 3, lists of unequal lengths"),
        ("np.zeros(10**6), [0], [7.0]", "too large to compare"),
        ("print('x' * 10**7)", "prints more than"),
    ],
)
def test_a_matrix_in_another_form_is_refused_in_words(returned: str, says: str, worker: Worker) -> None:
    text = f"import numpy as np\ndef to_csr(a):\n    return {returned}\n"
    first = check_task(SPECS["04_sparse"], "to_csr", text, worker, hidden=False)[0]
    assert first.passed is False
    assert says in first.rationale
