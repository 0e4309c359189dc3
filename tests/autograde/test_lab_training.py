"""Lab 7: what it says is what is counted, computed and recorded."""

from __future__ import annotations

import re

import nbformat
import pytest

from convladder.autograde.course import build
from convladder.autograde.faces import training as shown
from convladder.autograde.judge import counting, score, spec
from convladder.autograde.judge.problems import PROBLEMS
from convladder.autograde.judge.spec import ExplainTask, KernelTask, NumberTask
from convladder.kernels import expression, recorded
from convladder.kernels.bench import training, training_results
from convladder.kernels.net import networks
from convladder.kernels.net.stages import Run, Span

LAB = spec.load("07_training")
LAYER = LAB.task("weight_gradient").case("layer").symbols  # type: ignore[attr-defined]
(RECORD,) = recorded.load(training.SUITE)


def counters(rung: str) -> counting.Numbers:
    return counting.rung_numbers(
        rung, PROBLEMS["data_gradient" if rung.startswith("data") else "weight_gradient"], LAYER
    )


def prose() -> str:
    notebook = nbformat.read(build.student_path("07_training"), as_version=nbformat.NO_CONVERT)
    return "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")


def predicted(name: str) -> float:
    task = LAB.task(name)
    assert isinstance(task, NumberTask)
    return float(expression.evaluate(task.formula, task.symbols))


# ---- the kernels


@pytest.mark.parametrize("task", [t for t in LAB.tasks if isinstance(t, KernelTask)], ids=lambda t: t.name)
def test_every_kernel_task_is_that_of_its_rung(task):
    assert task.ladder == task.name
    assert len([c for c in task.cases if c.hidden]) >= 5
    assert task.case("layer").symbols == LAYER


def test_the_measured_layer_is_the_one_that_the_prose_counts():
    sums, products = LAYER["N"] * LAYER["K"] * LAYER["H"] * LAYER["W"], LAYER["C"] * LAYER["R"] * LAYER["S"]
    assert (sums, products) == (16_384, 27)
    assert LAYER["K"] * products == 216
    assert LAYER["N"] * LAYER["H"] * LAYER["W"] == 2048
    assert counters("weight_gradient_serial")["blocks"] == 2
    assert counters("weight_gradient")["blocks"] == 216
    assert counters("weight_gradient")["threads"] == 27_648


def test_splitting_doubles_the_instructions_and_shortens_the_longest_block():
    serial, split = counters("weight_gradient_serial"), counters("weight_gradient")
    assert split["warp_instructions"] / serial["warp_instructions"] == pytest.approx(2.3, abs=0.05)
    longest = [c["warp_instructions"] / c["busy_blocks"] for c in (serial, split)]
    assert longest[0] > 40 * longest[1]
    assert serial["fmas"] == split["fmas"]


def test_every_product_of_the_scattering_kernel_is_an_atomic_update():
    scatter, gather = counters("data_gradient_scatter"), counters("data_gradient")
    atomic = [c["requests"] - c["load_requests"] - c["store_requests"] for c in (scatter, gather)]
    assert atomic[0] == gather["load_requests"] / 2
    assert atomic[1] == 0


def test_reference_meets_the_thresholds_with_a_margin():
    checked = 0
    for task in LAB.tasks:
        for threshold in getattr(task, "counters", ()):
            verdict = counting.judge_threshold(
                threshold, task.problem, LAYER, {**LAYER, "P": 16, "Q": 32}, counters(task.name)
            )
            assert verdict.share == 1
            assert verdict.value <= 0.8 * verdict.evidence["limit"]
            checked += 1
    assert checked == 3


def test_solved_explanation_keeps_to_its_words():
    (task,) = (t for t in LAB.tasks if isinstance(t, ExplainTask))
    (cell,) = (c for c in build.solved_notebook("07_training").cells if c.id == task.name)
    assert 20 <= len(cell.source.split()) <= task.words


# ---- predictions


def test_predictions_are_what_the_networks_table_says():
    alexnet, vgg = networks.layers("alexnet"), {x.name: x for x in networks.layers("vgg16", 64)}
    forward, backward = sum(x.flops for x in alexnet), sum(x.backward_flops for x in alexnet)
    assert predicted("predict_backward") == pytest.approx(backward / (forward + backward), rel=1e-4)
    largest = max(vgg.values(), key=lambda x: x.map_bytes + x.weight_bytes)
    assert largest.name == "conv1_2"
    assert predicted("predict_share") == pytest.approx((largest.map_bytes + largest.weight_bytes) / 2**33)
    N, _, P, Q = vgg["conv1_1"].output
    assert predicted("predict_products") == N * P * Q
    assert vgg["conv1_1"].weights[0] == (64, 3, 3, 3)


def test_memory_in_the_prose_is_that_of_the_table():
    total = sum(x.map_bytes + x.weight_bytes for x in networks.layers("vgg16", 64))
    assert f"would need {total / 2**30:.1f} GiB" in prose()
    at_128 = next(x for x in networks.layers("vgg16", 128) if x.name == "conv1_2")
    assert f"would take {100 * (at_128.map_bytes + at_128.weight_bytes) / 2**33:.0f} %" in prose()


def test_no_mean_number_of_taps_but_the_predicted_one():
    problem = PROBLEMS["data_gradient"]
    sizes = {"N": 1, "C": 1, "H": 16, "W": 16, "K": 1, "R": 3, "S": 3, "U": 2, "pad": 1}
    import numpy as np

    made = problem.instance(sizes, np.random.default_rng(0))
    inner = [(0, 0, h, w) for h in range(4, 12) for w in range(4, 12)]
    mean = np.mean([len(problem.summands(made, "dx", i)) for i in inner])
    assert mean == predicted("predict_taps")


# ---- the record


def test_the_record_holds_the_papers_networks_and_stages():
    measured = {(case["network"], case["batch"]) for case in training_results.networks(RECORD)}
    assert measured == set(training.NETWORKS)
    assert len(training_results.runs(RECORD)) == len(training.STAGED)
    assert len(training_results.verdicts(RECORD)) == 12


def test_recorded_convolutions_were_compared_with_matrix_products():
    errors = {
        (case["network"], way["layer"], way["direction"]): way["relative_error"]
        for case in training_results.networks(RECORD)
        for way in case["ways"]
        if way["way"] == "cudnn"
    }
    assert max(errors.values()) < 1e-3
    conv2 = errors.pop(("alexnet", "conv2", "weight gradient"))
    assert f"{1e4 * conv2:.0f} parts in 10 000" in prose()
    assert sorted(errors.values())[-4] < 2e-5


def test_verdicts_of_the_prose_are_those_of_the_record():
    verdicts = {v.claim: v.measured for v in training_results.verdicts(RECORD)}
    assert verdicts["of the computation 40 % is the forward pass and 60 % the backward pass"].startswith("holds")
    assert verdicts["no layer takes more than 20 % of the memory"].startswith("holds")
    conv2 = {
        way["direction"]: way["us"]
        for way in training_results.network(RECORD, *training.PAPER)["ways"]
        if (way["way"], way["layer"]) == ("cudnn", "conv2")
    }
    assert conv2["weight gradient"] < 0.3 * min(conv2["forward"], conv2["data gradient"])


@pytest.mark.parametrize("number", range(5))
def test_recorded_tables_name_their_device_and_say_that_they_are_recorded(number):
    page = shown.record(number)
    assert "recorded on NVIDIA H100" in page.text
    assert "not measured here" in page._repr_html_()
    assert page.text.count("\n") >= 4


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN5cudnn6detail12dgrad_engineIfLi512ELi6E", "cudnn::detail::dgrad_engine"),
        ("_Z23implicit_convolve_sgemmIffLi1024E", "implicit_convolve_sgemm"),
        ("sm80_xmma_gemm_f32f32", "sm80_xmma_gemm_f32f32"),
    ],
)
def test_kernels_are_named_as_in_cpp(mangled, name):
    assert training_results.readable(mangled) == name


def test_claims_of_a_section_are_its_own():
    assert shown.claims("5.4").text.count("\n") == 2
    assert shown.claims().text.count("\n") == 13


# ---- the figures


def run(overlapped: bool) -> Run:
    spans = [Span(s, n, 10.0 * i + 70 * n, 10.0 * i + 70 * n + 9) for n in range(3) for i, s in enumerate(shown.STAGES)]
    return Run(overlapped, spans)


@pytest.mark.parametrize("overlapped", [False, True])
def test_timeline_says_how_long_an_iteration_takes_and_is_the_same_bytes_each_time(overlapped):
    first, second = (shown.timeline(run(overlapped)) for _ in range(2))
    assert first == second
    assert re.search(r"61\.0 ms an iteration", first.alt)
    assert "currentColor" in first.svg


def test_figures_of_one_page_share_no_id():
    pictures = [shown.layer_memory("alexnet", 512), shown.layer_memory("vgg16", 64), shown.timeline(run(True))]
    ids = [set(re.findall(r'\bid="([^"]+)"', picture.svg)) for picture in pictures]
    assert sum(map(len, ids)) == len(set().union(*ids))
    for own, picture in zip(ids, pictures):
        assert {*re.findall(r"url\(#([^)]+)\)", picture.svg)} <= own


def test_recorded_figures_say_what_they_draw():
    assert "conv2 5.2 and 6.0" in shown.layer_times().alt
    assert shown.layer_times().alt.endswith(f"{RECORD['date'][:10]}.")
    for measure, name in (("ce", "Compute efficiency"), ("ru", "Resource utilisation")):
        picture = shown.efficiencies(measure)  # type: ignore[arg-type]
        assert picture.alt.startswith(name)
        assert picture.alt.count("batch ") == 3
        assert "w conv5" in picture.alt


def test_memory_figure_names_the_largest_layer():
    picture = shown.layer_memory("vgg16", 64)
    assert "most in conv1_2 (1,568 MiB)" in picture.alt
    assert "relu" not in picture.alt


def test_points_of_the_lab_add_up():
    assert sum(c.max for c in score.planned(LAB)) == pytest.approx(100)
