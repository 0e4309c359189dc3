"""The labs as they are: up to date, free of answers, valid, and true in what they say."""

from __future__ import annotations

import html
import re

import nbformat
import numpy as np
import pytest

from convladder.autograde.course import build, sample
from convladder.autograde.faces import figures
from convladder.autograde.judge import counting, score, spec
from convladder.autograde.judge.kernel_task import case_symbols
from convladder.autograde.judge.problems import PROBLEMS
from convladder.autograde.judge.spec import ExplainTask, KernelTask, NumberTask
from convladder.kernels import compile_cuda, expression, oracle, out, plan
from convladder.kernels.methods import ladder_source

LABS = build.labs()
GRADED = [lab for lab in LABS if spec.load(lab).graded]
LAB1 = spec.load("01_direct")
KERNELS = [t for t in LAB1.tasks if isinstance(t, KernelTask)]
LAYER = KERNELS[0].case("layer").symbols


@pytest.fixture(params=LABS)
def lab(request: pytest.FixtureRequest) -> str:
    return request.param


def read(lab: str) -> nbformat.NotebookNode:
    return nbformat.read(build.student_path(lab), as_version=nbformat.NO_CONVERT)


def counters(rung: str) -> counting.Numbers:
    return counting.rung_numbers(rung, PROBLEMS["conv2d"], LAYER)


def prose(lab: str) -> str:
    return "\n".join(c.source for c in read(lab).cells if c.cell_type == "markdown")


# ---- the notebooks


def test_labs_are_up_to_date() -> None:
    assert build.stale() == []


def test_building_twice_gives_the_same_bytes(lab: str) -> None:
    assert build.serialise(build.build_lab(lab)) == build.serialise(build.build_lab(lab))


def test_notebook_is_valid_for_nbformat_and_nbgrader(lab: str) -> None:
    from nbgrader.nbgraderformat import MetadataValidator

    notebook = read(lab)
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)


def test_checksums_are_those_that_nbgrader_computes(lab: str) -> None:
    from nbgrader.utils import compute_checksum

    known = [c for c in read(lab).cells if "nbgrader" in c.metadata]
    assert known
    for cell in known:
        assert cell.metadata.nbgrader.checksum == compute_checksum(cell), cell.id


def test_notebook_has_no_outputs(lab: str) -> None:
    code = [c for c in read(lab).cells if c.cell_type == "code"]
    assert all(c.outputs == [] and c.execution_count is None for c in code)


def test_cell_ids_are_grade_ids_or_positions(lab: str) -> None:
    for position, cell in enumerate(read(lab).cells, 1):
        assert cell.id == cell.metadata.get("nbgrader", {}).get("grade_id", f"{lab}-{position:02d}")


def test_notebook_holds_no_mark_of_a_solution(lab: str) -> None:
    text = build.student_path(lab).read_text(encoding="utf-8")
    assert not re.search("BEGIN SOLUTION|END SOLUTION|//! ", text)


def test_graded_cells_are_short(lab: str) -> None:
    graded = [c for c in read(lab).cells if c.metadata.get("nbgrader", {}).get("grade") and c.cell_type == "code"]
    assert all(len(c.source.splitlines()) <= 3 for c in graded)


def test_every_task_has_three_hints_or_is_a_number(lab: str) -> None:
    counted = prose(lab).count("<summary>Hint ")
    wanted = 3 * sum(t.kind in ("kernel", "python", "generator") for t in spec.load(lab).tasks)
    assert counted == wanted


def test_minutes_of_the_lab_are_those_of_its_spec_and_cover_its_steps(lab: str) -> None:
    text, minutes = prose(lab), spec.load(lab).minutes
    assert f"**{minutes} minutes" in text
    steps = [int(m) for m in re.findall(r"^## Step .*\((\d+) minutes\)$", text, re.MULTILINE)]
    assert steps
    assert sum(steps) <= minutes


# ---- the known mistakes


def test_every_task_of_a_lab_is_checked_also_where_nothing_is_graded(lab: str) -> None:
    loaded = spec.load(lab)
    assert {c.task for c in score.planned(loaded)} == {t.name for t in loaded.tasks}


def test_every_known_mistake_names_existing_checks_of_its_task(lab: str) -> None:
    planned = {c.name for c in score.planned(spec.load(lab))}
    for wrong in sample.mistakes(lab):
        assert set(wrong.fails) <= planned, wrong.path.name
        assert {check.partition(".")[0] for check in wrong.fails} == {wrong.task}, wrong.path.name


@pytest.mark.parametrize("lab", GRADED)
def test_every_kernel_and_python_task_has_a_known_mistake(lab: str) -> None:
    covered = {wrong.task for wrong in sample.mistakes(lab)}
    assert {t.name for t in spec.load(lab).tasks if t.kind in ("kernel", "python")} <= covered


@pytest.mark.parametrize("lab", GRADED)
def test_sample_class_is_one_notebook_for_each_student(lab: str, tmp_path) -> None:
    students = sample.sample_class(lab, tmp_path)
    assert [s.path for s in students] == [tmp_path / s.name / f"{lab}.ipynb" for s in students]
    texts = [s.path.read_text(encoding="utf-8") for s in students]
    assert len(set(texts)) == len(texts) >= 8


# ---- the rungs


@pytest.mark.parametrize("task", KERNELS, ids=lambda t: t.name)
def test_rung_is_right_and_without_fault_on_every_case_of_its_task(task: KernelTask) -> None:
    assert task.ladder is not None
    source = ladder_source(task.ladder)
    parsed = plan.parse(source)
    module = compile_cuda(source, on="sim", options=parsed.options())
    for case in task.cases:
        made = task.problem.instance(case.symbols, np.random.default_rng(7))
        y = np.empty(made.outputs[0].expected.shape, np.float32)
        arrays = {**made.inputs, "y": out(y)}
        for _, result in plan.run(module, parsed, made.symbols, arrays, task.params):
            assert result.faults == [], case.name
        assert (abs(y - made.outputs[0].expected) <= made.outputs[0].bound).all(), case.name


# ---- what lab 1 says


def test_reference_meets_the_thresholds_with_a_margin_and_the_rung_before_misses_them() -> None:
    before = {"direct_clipped": "direct_guarded", "direct_coalesced": "direct_report"}
    checked = 0
    for task in KERNELS:
        for threshold in task.counters:
            limit = float(expression.evaluate(threshold.limit, case_symbols(task.problem, task.case(threshold.case))))
            assert expression.evaluate(threshold.value, counters(task.name)) <= 0.9 * limit
            assert expression.evaluate(threshold.value, counters(before[task.name])) >= 1.2 * limit
            checked += 1
    assert checked == 2


def test_target_is_far_from_its_base() -> None:
    assert counters("direct_report")["sectors"] / counters("direct_coalesced")["sectors"] > 3


def test_predicted_share_of_padding_is_what_the_multiply_adds_leave() -> None:
    task = LAB1.task("predict_padding")
    assert isinstance(task, NumberTask)
    taps = 4 * 3 * 32 * 32 * 9
    assert "110\\,592" in prose("01_direct")
    assert taps == 110_592
    assert expression.evaluate(task.formula, task.symbols) == pytest.approx(
        1 - counters("direct_guarded")["fmas"] / taps
    )


def test_clipped_bounds_halve_the_divergent_branches() -> None:
    guarded, clipped = counters("direct_guarded"), counters("direct_clipped")
    inside_rows = 3 * 32 - 2  # rows of the filter inside the image, summed over the output's rows
    assert guarded["divergent_branches"] == 2 * 4 * 3 * inside_rows
    assert clipped["divergent_branches"] == guarded["divergent_branches"] / 2
    assert clipped["fmas"] == guarded["fmas"]


def test_clipped_bounds_issue_about_a_quarter_fewer_instructions() -> None:
    ratio = counters("direct_clipped")["warp_instructions"] / counters("direct_guarded")["warp_instructions"]
    assert ratio == pytest.approx(0.75, abs=0.03)


def test_a_store_takes_16_sectors_along_the_rows_and_4_along_the_columns() -> None:
    per_store = {
        r: counters(r)["store_sectors"] / counters(r)["store_requests"] for r in ("direct_report", "direct_coalesced")
    }
    assert per_store == {"direct_report": 16, "direct_coalesced": 4}
    assert counters("direct_report")["fmas"] == counters("direct_coalesced")["fmas"]


def test_columns_on_the_lanes_more_than_double_the_divergent_branches() -> None:
    assert counters("direct_coalesced")["divergent_branches"] > 2 * counters("direct_report")["divergent_branches"]


def test_a_stride_spreads_the_loads_of_the_coalesced_rung() -> None:
    def sectors(U: int) -> float:
        sizes = {"N": 1, "C": 1, "H": 32 * U, "W": 32 * U, "K": 1, "R": 1, "S": 1, "U": U, "pad": 0}
        counted = counting.rung_numbers("direct_coalesced", PROBLEMS["conv2d"], sizes)
        return counted["load_sectors"] / counted["store_requests"] - 1  # the filter's single weight is one sector

    assert [sectors(U) for U in (1, 2, 8)] == [4, 8, 32]


def test_each_element_is_loaded_some_35_times() -> None:
    assert counters("direct_coalesced")["fmas"] / (3 * 32 * 32) == pytest.approx(35, abs=0.6)


def test_example_of_the_lab_is_zero_inside_and_not_on_the_border() -> None:
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    w = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=np.float32).reshape(1, 1, 3, 3)
    y = oracle.conv2d(x, w, stride=1, pad=1)[0, 0]
    assert (y[1:-1, 1:-1] == 0).all()
    assert np.count_nonzero(y) == 12
    assert y[0, 0] == 3


def test_solved_explanation_keeps_to_its_words(lab: str) -> None:
    for task in spec.load(lab).tasks:
        if isinstance(task, ExplainTask):
            (cell,) = (c for c in build.solved_notebook(lab).cells if c.id == task.name)
            assert 20 <= len(cell.source.split()) <= task.words


# ---- the figures


def test_warp_figure_counts_the_sectors_that_the_engine_counts() -> None:
    for along, rung in (("rows", "direct_report"), ("columns", "direct_coalesced")):
        sectors = counters(rung)["store_sectors"] / counters(rung)["store_requests"]
        picture = figures.warp(32, 32, (16, 16), along)  # type: ignore[arg-type]
        assert f"lie in {sectors:.0f} sectors" in picture.alt


def test_uncounted_warp_figure_leaves_the_number_to_the_reader() -> None:
    picture = figures.warp(32, 32, (16, 16), "rows", counted=False)
    assert "16 sectors" not in picture.alt + picture.svg


def test_window_figure_tells_read_taps_from_padding() -> None:
    picture = figures.window(H=4, W=4, R=3, S=3, U=1, pad=1, p=0, q=0)
    assert "Of its 9 taps 4 read the image (solid cells) and 5 fall into the padding" in picture.alt


def test_figures_are_the_same_bytes_each_time_and_take_the_pages_colour() -> None:
    first, second = (figures.window(5, 4, 3, 2, 2, 1, 1, 1) for _ in range(2))
    assert first == second
    assert "currentColor" in first.svg
    assert f'aria-label="{first.alt}"' in html.unescape(first._repr_html_())
