"""Lab 2: what it says is what the engine counts and what is recorded; its figures; notebook functions that it uses."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.autograde.course import build
from convladder.autograde.faces import figures, runs
from convladder.autograde.judge import check_task, counting, diagnosis, spec
from convladder.autograde.judge.problems import PROBLEMS
from convladder.autograde.judge.sandbox import Worker
from convladder.autograde.judge.spec import KernelTask, NumberTask
from convladder.kernels import compile_cuda, expression, layouts, oracle, out, plan
from convladder.kernels.errors import ArgumentError, GeometryError
from convladder.kernels.methods import ladder_source

LAB = spec.load("02_im2col")
KERNELS = [t for t in LAB.tasks if isinstance(t, KernelTask)]
#: The lab's kernel tasks with a rung that solves them, and the rung before it, which must miss its thresholds.
BEFORE = {"im2col": "im2col_rows", "gemv": "gemv_rows", "gemm_coalesced": "gemm_naive", "gemm_shared": "gemm_coalesced"}
REPORT = (31, 63, 127, 255, 511)


def kernel(name: str) -> KernelTask:
    task = LAB.task(name)
    assert isinstance(task, KernelTask)
    return task


def counters(rung: str, task: str, case: str = "layer") -> counting.Numbers:
    return counting.rung_numbers(rung, kernel(task).problem, kernel(task).case(case).symbols)


def prose() -> str:
    return "\n".join(c.source for c in build.build_lab("02_im2col").cells if c.cell_type == "markdown")


# ---- the rungs and the thresholds


@pytest.mark.parametrize("task", [t for t in KERNELS if t.ladder], ids=lambda t: t.name)
def test_rung_is_right_and_without_fault_on_every_case_of_its_task(task: KernelTask) -> None:
    assert task.ladder is not None
    source = ladder_source(task.ladder)
    parsed = plan.parse(source)
    module = compile_cuda(source, on="sim", options=parsed.options())
    for case in task.cases:
        made = task.problem.instance(case.symbols, np.random.default_rng(7))
        (output,) = made.outputs
        values = np.empty(output.expected.shape, np.float32)
        for _, result in plan.run(module, parsed, made.symbols, {**made.inputs, output.name: out(values)}, task.params):
            assert result.faults == [], case.name
        assert diagnosis.compare(output, values) is None, case.name


def test_rungs_meet_the_thresholds_with_a_margin_and_the_rungs_before_miss_them() -> None:
    checked = 0
    for name, before in BEFORE.items():
        task = kernel(name)
        for threshold in task.counters:
            case = task.case(threshold.case)
            known = {**case.symbols, **made_symbols(task, threshold.case)}
            if threshold.target:
                target = counting.rung_numbers(threshold.target, task.problem, case.symbols)
                known |= {f"target_{key}": value for key, value in target.items()}
            limit = float(expression.evaluate(threshold.limit, known))
            mine = counting.rung_numbers(name, task.problem, case.symbols)
            base = counting.rung_numbers(before, task.problem, case.symbols)
            if threshold.name == "banks":  # the rung before has no shared memory at all
                assert base["shared_requests"] == 0
                assert expression.evaluate(threshold.value, {**known, **mine}) <= 0.9 * limit
                continue
            values = [float(expression.evaluate(threshold.value, {**known, **counted})) for counted in (mine, base)]
            if threshold.at_most:
                assert values[0] <= 0.9 * limit, threshold
                assert values[1] >= 1.2 * limit, threshold
            else:
                assert values[0] >= 1.1 * limit, threshold
                assert values[1] < limit, threshold
            checked += 1
    assert checked == 5


def made_symbols(task: KernelTask, case: str) -> dict[str, int | float]:
    return task.problem.instance(task.case(case).symbols, np.random.default_rng(0)).symbols


#: Accesses that nobody needs and no bank or sector is wasted by, to lower a mean: after a line of a wasteful kernel.
USELESS = {
    "turn.counters.banks": (
        "turn_banks", "__syncthreads();",
        "__shared__ volatile float more[1024]; for (int z = 0; z < 40; z++) more[threadIdx.y * 32 + threadIdx.x] = z;",
    ),
    "turn.counters.sectors": (
        "turn_without_tile", "int i = blockIdx.y * 32 + threadIdx.y;",
        "for (int z = 0; z < 40 && i < GN && l < GK; z++) *(volatile const float*)&rows[i * GK + l];",
    ),
    "gemm_coalesced.counters.loads": (
        "gemm_row_on_x", "float sum = 0.0f;",
        "for (int z = 0; z < 2 * GK; z++) *(volatile const float*)&a[z % GK];",
    ),
}  # fmt: skip


@pytest.mark.parametrize("check", USELESS)
def test_accesses_that_nobody_needs_do_not_dilute_a_waste(check: str, worker: Worker) -> None:
    wrong, after, useless = USELESS[check]
    task = check.partition(".")[0]
    text = (build.ROOT / f"solutions/02_im2col/wrong/{wrong}.cu").read_text(encoding="utf-8")
    assert text.count(after) == 1
    found = {r.check: r for r in check_task(LAB, task, text.replace(after, f"{after} {useless}"), worker, hidden=False)}
    assert found[f"{task}.correct"].passed, found[f"{task}.correct"].rationale
    assert found[check].passed is False


def test_a_guard_that_does_not_hold_says_what_to_do(worker: Worker) -> None:
    text = ladder_source("gemm_coalesced")
    for old, new in (
        ("grid=(cdiv(GN, 32), ", "grid=(cdiv(GN, 16), "),
        ("int i = blockIdx.x * blockDim.x + threadIdx.x;", "int i = blockIdx.x * 16 + threadIdx.x;"),
        ("if (m >= GM || i >= GN) return;", "if (m >= GM || i >= GN || threadIdx.x >= 16) return;"),
    ):
        assert old in text
        text = text.replace(old, new)
    (*_, target) = check_task(LAB, "gemm_coalesced", text, worker, hidden=False)
    assert target.check == "gemm_coalesced.target"
    assert target.score == 0
    assert "Not scored, because the share of a warp's lanes that work (active_lanes) is 0.5" in target.rationale
    assert "fit the block's shape to the output" in target.rationale


def test_targets_are_far_from_their_bases() -> None:
    naive, coalesced, shared = (counters(r, "gemm_shared") for r in ("gemm_naive", "gemm_coalesced", "gemm_shared"))
    assert naive["sectors"] / coalesced["sectors"] > 3
    assert coalesced["sectors"] / shared["sectors"] > 10


# ---- what the lab says


def test_the_reports_im2col_stores_in_eight_times_as_many_sectors_and_loads_as_many() -> None:
    rows, columns = (counters(r, "im2col") for r in ("im2col_rows", "im2col"))
    assert rows["store_requests"] == columns["store_requests"]
    assert rows["store_sectors"] == 8 * columns["store_sectors"]
    assert columns["store_sectors"] == 4 * columns["store_requests"]
    assert rows["load_sectors"] == columns["load_sectors"]


def test_the_product_by_columns_loads_an_eighth_of_b() -> None:
    rows = counters("gemv_rows", "gemv_rows", "one filter")
    columns = counters("gemv", "gemv", "one filter")
    of_b = [c["load_sectors"] / (c["load_requests"] / 2) - 1 for c in (rows, columns)]
    assert of_b == [32, 4]


def test_tiles_load_a_twentieth_of_the_sectors_and_multiply_zeros_too() -> None:
    coalesced, shared = (counters(r, "gemm_shared") for r in ("gemm_coalesced", "gemm_shared"))
    assert coalesced["load_sectors"] == 184_320
    assert shared["load_sectors"] == 9_216
    assert coalesced["load_sectors"] / shared["load_sectors"] == 20
    assert shared["fmas"] / coalesced["fmas"] == 96 / 72
    assert shared["wavefronts"] / shared["wavefronts_ideal"] == 1


@pytest.mark.parametrize("name", [t.name for t in LAB.tasks if isinstance(t, NumberTask)])
def test_a_prediction_of_the_solution_is_what_its_formula_gives(name: str) -> None:
    task = LAB.task(name)
    assert isinstance(task, NumberTask)
    (cell,) = (c for c in build.solved_notebook("02_im2col").cells if c.id == name)
    value = eval(cell.source.rpartition("=")[2])
    known = dict(task.symbols)
    if task.rung and task.problem and task.case:
        known = {**task.case.symbols, **counting.rung_numbers(task.rung, task.problem, task.case.symbols)}
    assert value == pytest.approx(float(expression.evaluate(task.formula, known)), rel=0.02)


def test_tiles_form_as_many_products_as_padding_to_their_multiples() -> None:
    task = LAB.task("predict_padding")
    assert isinstance(task, NumberTask)
    counted = counting.rung_numbers("gemm_shared", PROBLEMS["gemm"], task.symbols)
    products = task.symbols["GM"] * task.symbols["GN"] * task.symbols["GK"]
    assert counted["fmas"] / products == pytest.approx(float(expression.evaluate(task.formula, task.symbols)))


def test_the_example_is_the_convolution() -> None:
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    w = np.array([[1, 0], [0, -1]], dtype=np.float32).reshape(1, 1, 2, 2)
    assert (w.reshape(1, 4) @ layouts.im2col(x[0], 2, 2) == oracle.conv2d(x, w).reshape(1, 4)).all()
    assert (layouts.im2col(x[0], 2, 2) == 5).sum() == 4


def test_the_verdict_on_the_report_is_what_is_recorded() -> None:
    timed = runs.times("lowering", by="size", ways=("direct_report", "step gemv_rows", "gemv_rows", "gemv"))
    gains = {way: [timed.us(s, "direct_report") / timed.us(s, way) for s in REPORT] for way in timed.ways}
    assert 1.5 < max(gains["step gemv_rows"]) < 1.8  # "by up to some two thirds"
    assert 1 / max(gains["gemv_rows"]) > 1.5  # "between one and a half …
    assert 14 < 1 / min(gains["gemv_rows"]) < 16  # … and fifteen times slower"
    assert max(gains["gemv"]) < 1


def test_a_cache_hides_the_waste_of_loads_and_not_that_of_stores() -> None:
    ways = ("step gemv_rows", "step gemv", "step im2col_rows", "step im2col")
    timed = runs.times("lowering", by="size", ways=ways)
    for size in (1023, 2047, 4095):
        assert timed.us(size, "step gemv_rows") == pytest.approx(timed.us(size, "step gemv"), rel=0.1)
    assert timed.us(31, "step gemv_rows") < timed.us(31, "step gemv")
    for size in (511, 1023, 2047, 4095):
        assert timed.us(size, "step im2col_rows") / timed.us(size, "step im2col") == pytest.approx(10, rel=0.05)


# ---- the problems


@pytest.mark.parametrize(
    ("problem", "sizes"),
    [
        ("im2col", {"N": 2, "C": 3, "H": 7, "W": 5, "R": 3, "S": 2, "Uh": 2, "Uw": 1, "padh": 1, "padw": 2, "dilw": 2}),
        ("im2col", {"N": 1, "C": 2, "H": 5, "W": 5, "R": 2, "S": 2, "Uh": 2, "Uw": 2, "padh": 1, "padw": 1}),
        ("turned", {"GN": 3, "GK": 4, "GB": 2}),
        ("gemm", {"GM": 5, "GN": 7, "GK": 40, "GB": 4, "groups": 2}),
        ("gemm_rows", {"GM": 5, "GN": 7, "GK": 9, "GB": 2}),
    ],
)
def test_the_definition_term_by_term_and_element_by_element_gives_the_expected_values(
    problem: str, sizes: dict[str, int]
) -> None:
    made = PROBLEMS[problem].instance(sizes, np.random.default_rng(3))
    (output,) = made.outputs
    for index in np.ndindex(output.expected.shape):
        terms = PROBLEMS[problem].summands(made, output.name, index) or []
        total = sum(float(np.prod([float(made.inputs[n][i]) for n, i in t.factors])) for t in terms)
        assert total == pytest.approx(output.expected[index], abs=1e-12)
    if hasattr(PROBLEMS[problem], "expected_at"):
        elements = np.arange(output.expected.size)
        values, bounds = PROBLEMS[problem].expected_at(sizes, made.inputs, elements)
        np.testing.assert_allclose(values, output.expected.ravel(), rtol=1e-12)
        np.testing.assert_allclose(bounds, output.bound.ravel(), rtol=1e-12)
    for what, values in made.mistakes():
        assert values.shape == output.expected.shape, what
        assert not np.allclose(values, output.expected), what


def test_sizes_that_are_no_case_are_refused() -> None:
    with pytest.raises(GeometryError, match="groups must divide GB"):
        PROBLEMS["gemm"].check({"GM": 1, "GN": 1, "GK": 1, "GB": 3, "groups": 2})
    with pytest.raises(GeometryError, match="at least 1"):
        PROBLEMS["turned"].check({"GN": 0, "GK": 1})
    with pytest.raises(ValueError, match="`padw` is missing"):
        PROBLEMS["im2col"].check({"N": 1, "C": 1, "H": 1, "W": 1, "R": 1, "S": 1, "Uh": 1, "Uw": 1, "padh": 0})


# ---- figures and recorded times


def test_the_figure_of_lowering_names_the_column_of_an_output() -> None:
    picture = figures.lowering(H=3, W=3, R=2, S=2, p=0, q=1)
    assert "column 1 of the matrix, which holds its 4 elements" in picture.alt
    assert picture == figures.lowering(H=3, W=3, R=2, S=2, p=0, q=1)


@pytest.mark.parametrize(
    ("pitch", "says"), [(32, "in 1 bank and are read one after the other, 32 deep"), (33, "in 32 banks")]
)
def test_the_figure_of_banks_counts_as_the_engine_does(pitch: int, says: str) -> None:
    source = f"""__global__ void k(float* y) {{ __shared__ float t[32][{pitch}]; int i = threadIdx.x;
        for (int r = 0; r < 32; r++) t[r][i] = r; __syncthreads(); y[i] = t[i][3]; }}"""
    from convladder.kernels import launch

    counted = launch(compile_cuda(source, on="sim")["k"], 1, 32, [out(np.empty(32, np.float32))]).counters
    assert counted is not None
    assert says in figures.banks(pitch).alt
    assert counted.wavefronts("load") == (32 if pitch == 32 else 1)


def test_tiles_of_a_product_are_told_in_words() -> None:
    assert (
        "multiplies tile (1, 1) of a with tile (1, 2) of b. It takes 3 such steps"
        in figures.tiles(64, 128, 96, tile=32, row=1, column=2, step=1).alt
    )


def test_recorded_times_are_labelled_as_such_and_missing_ones_are_named() -> None:
    timed = runs.times("lowering", by="size", ways=("gemv",), only=(31, 63))
    assert timed.cases == [31, 63]
    for shown in (repr(timed), timed._repr_html_()):
        assert "Recorded on NVIDIA H100" in shown
        assert "not measured on this machine" in shown
    with pytest.raises(ArgumentError, match="there is no time of 'gemm' at size = 31: the ways are gemv"):
        timed.us(31, "gemm")
