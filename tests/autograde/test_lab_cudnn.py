"""Lab 3: what it says is what is recorded and what the sources' equations give; the functions that it compares with."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from convladder.autograde.course import build
from convladder.autograde.faces import runs
from convladder.autograde.judge import spec
from convladder.autograde.judge.spec import NumberTask, PythonTask
from convladder.kernels import cudnn, expression, layouts, occupancy, oracle, recorded
from convladder.kernels.layouts import ConvGeometry

LAB = spec.load("03_cudnn")
FUNCTIONS = [task for task in LAB.tasks if isinstance(task, PythonTask)]
RUNGS = ("direct_report", "direct_coalesced", "direct_unrolled", "direct_registers")
FP32 = ("cudnn fp32 nchw", "cudnn fp32 nhwc")


def solved(task: PythonTask) -> Any:
    """The solution's function."""
    (cell,) = (c for c in build.solved_notebook("03_cudnn").cells if c.id == task.name)
    names: dict[str, Any] = {"np": np}
    exec(cell.source.partition("\n")[2], names)
    return names[task.function]


@pytest.mark.parametrize("task", FUNCTIONS, ids=lambda t: t.name)
def test_the_solution_of_a_function_gives_what_the_reference_gives(task: PythonTask) -> None:
    function, reference = solved(task), task.expected()
    for case in task.cases:
        for call in case.calls:
            np.testing.assert_equal(function(**call), reference(**call), err_msg=case.name)


@pytest.mark.parametrize("name", [t.name for t in LAB.tasks if isinstance(t, NumberTask)])
def test_a_prediction_of_the_solution_is_what_its_formula_gives(name: str) -> None:
    task = LAB.task(name)
    assert isinstance(task, NumberTask)
    (cell,) = (c for c in build.solved_notebook("03_cudnn").cells if c.id == name)
    value = eval(cell.source.rpartition("=")[2])
    assert value == pytest.approx(float(expression.evaluate(task.formula, task.symbols)), rel=0.002)


# ---- the functions that students are compared with


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_strides_are_those_of_an_array_in_that_layout(layout: str) -> None:
    shape = (2, 3, 4, 5)
    array = np.empty(shape, np.float32)
    if layout == "nhwc":
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert layouts.strides(shape, layout) == tuple(step // 4 for step in array.strides)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_arguments_of_a_call_are_taken_by_the_call(layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to where the library itself would begin: shapes, layouts and precision are accepted as they are."""
    asked: list[Any] = []

    class Fake:
        def enqueue(self, *arrays: Any) -> None:
            asked.append([a.shape for a in arrays])

    monkeypatch.setattr(cudnn, "_cupys_own", lambda: None)
    monkeypatch.setattr(cudnn, "_require_device_array", lambda name, array: None)
    monkeypatch.setattr(cudnn, "best", lambda g, precision, layout: asked.append((g, precision, layout)) or Fake())
    x_shape, w_shape = (2, 3, 9, 7), (4, 3, 3, 2)
    shape, pad, stride, dilation, groups, tensor_core, d_layout, w_layout = cudnn.forward_arguments(
        x_shape, w_shape, 2, 1, layout, True
    )
    turned = [(s if layout == "nchw" else (s[0], s[2], s[3], s[1])) for s in (x_shape, w_shape)]
    x, w = (np.zeros(s, np.float32) for s in turned)
    y = np.zeros(shape, np.float32)
    cudnn.convolution_forward(
        x, w, None, y, pad, stride, dilation, groups, tensor_core=tensor_core, d_layout=d_layout, w_layout=w_layout
    )  # fmt: skip
    geometry = ConvGeometry(N=2, C=3, H=9, W=7, K=4, R=3, S=2, stride=(2, 2), pad=(1, 1))
    assert asked == [(geometry, "tf32", layout), [x.shape, w.shape, y.shape]]


def test_tf32_keeps_ten_bits_of_fraction_and_rounds_to_the_nearest() -> None:
    x = np.random.default_rng(1).uniform(-100, 100, 10_000).astype(np.float32)
    rounded = oracle.tf32(x)
    assert not (rounded.view(np.uint32) & 0x1FFF).any()
    assert (oracle.tf32(rounded) == rounded).all()
    assert abs(rounded / x - 1).max() <= 2.0**-11
    neighbours = [(rounded.view(np.uint32) + np.uint32(step)).view(np.float32) for step in (0x2000, -0x2000 % 2**32)]
    assert all((abs(rounded - x) <= abs(n - x)).all() for n in neighbours)


def test_the_training_papers_means_of_utilisation_come_out() -> None:
    """Table 4, cuBLAS: grid size, registers and threads a block on 20 multiprocessors."""
    convolutions = ((24, 116, 256), (36, 120, 128), (60, 120, 128), (24, 120, 128), (16, 120, 128))
    others = ((64, 116, 256), (64, 116, 256), (256, 120, 128))
    means = [
        np.mean([occupancy.resource_utilisation(grid, occupancy.max_blocks(20, r, b)) for grid, r, b in rows])
        for rows in (convolutions, others)
    ]
    assert means == pytest.approx([0.46, 0.80], abs=0.005)


def test_efficiency_is_the_share_of_the_peak() -> None:
    peak = 2 * 1980e6 * 132 * 128
    assert occupancy.compute_efficiency(peak, 1e6, 132, 128, 1980) == pytest.approx(1)
    row = runs.times("cudnn", by="layer", ways=FP32, live=False).row("conv3", "cudnn fp32 nchw")
    ce = occupancy.compute_efficiency(38_277_218_304, row["us"], 132, 128, 1980)
    assert ce == pytest.approx(row["ce"], rel=0.01)


# ---- what the lab says of the recorded runs


def test_with_one_filter_the_library_is_ahead_at_no_size_and_the_best_rung_is_near_the_limit() -> None:
    timed = runs.times("direct", by="size", stride=1, ways=(*RUNGS, *FP32))
    for size in timed.cases:
        rung, library = (min(timed.us(size, way) for way in ways) for ways in (RUNGS, FP32))
        assert rung < library
    assert 3 < min(timed.us(4095, w) for w in FP32) / timed.us(4095, "direct_registers") < 3.6
    assert timed.us(4095, "direct_registers") / (4 * 4 * 4095**2 / 3e6) == pytest.approx(2, abs=0.3)


def test_with_256_filters_the_library_wins_by_four_and_with_tf32_by_more_than_ten() -> None:
    ways = ("direct_unrolled", "direct_registers", *FP32, "cudnn tf32 nhwc")
    timed = runs.times("lowering", by="filters", ways=ways)
    direct = min(timed.us(256, way) for way in ways[:2])
    assert direct / min(timed.us(256, way) for way in FP32) == pytest.approx(4, abs=0.3)
    assert direct / timed.us(256, "cudnn tf32 nhwc") > 10


def test_without_a_workspace_the_best_strict_plan_takes_about_twice_as_long() -> None:
    row = runs.times("plans", by="layer", ways=FP32, live=False).row("conv3", "cudnn fp32 nchw")
    listed = [[index, size, us] for index, _, size, us in row["every_plan"]]
    times = {index: us for index, _, us in listed}
    ratio = times[cudnn.fastest_plan(listed, 0)] / times[cudnn.fastest_plan(listed, 10**9)]
    assert ratio == pytest.approx(1.9, abs=0.2)
    assert max(size for _, size, _ in listed) > 300e6


def test_batches_help_the_library_and_not_lowering_by_image() -> None:
    for layer in ("conv2", "conv3", "conv4", "conv5"):
        timed = runs.times("batch", by="batch", layer=layer, ways=("cudnn fp32 nchw", "cublas image"), live=False)
        per_image = {way: [timed.us(n, way) / n for n in timed.cases] for way in timed.ways}
        library, by_image = per_image["cudnn fp32 nchw"], per_image["cublas image"]
        assert library[0] / library[-1] > 2.5
        assert max(by_image) / min(by_image) < 1.5


@pytest.mark.parametrize("layer", ["conv2", "conv4", "conv5"])
def test_the_layout_is_worth_two_to_four_times_where_a_layer_has_groups(layer: str) -> None:
    timed = runs.times("batch", by="batch", layer=layer, ways=(*FP32, "cublas batched"), live=False)
    for images in (64, 128, 192):
        nchw, nhwc = (timed.us(images, way) for way in FP32)
        assert 1.5 < nchw / nhwc < 4.2
        assert timed.us(images, "cublas batched") < 1.2 * nchw  # "lowering the whole batch keeps up"


def test_without_groups_the_layouts_are_level() -> None:
    timed = runs.times("batch", by="batch", layer="conv3", ways=FP32, live=False)
    for images in (64, 128, 192):
        nchw, nhwc = (timed.us(images, way) for way in FP32)
        assert nchw == pytest.approx(nhwc, rel=0.15)


def test_recorded_grids_by_image_fill_a_fraction_of_a_wave() -> None:
    timed = runs.times("cudnn", by="layer", ways=("cublas image",), live=False)
    shares = []
    for layer in timed.cases:
        longest = timed.row(layer, "cublas image")["launches"][0]
        grid, block = (int(np.prod(longest[size])) for size in ("grid", "block"))
        shares.append(occupancy.resource_utilisation(grid, occupancy.max_blocks(132, longest["registers"], block)))
        assert shares[-1] == pytest.approx(longest["ru_real"], abs=0.001)  # "equation (10) is exact"
    assert np.mean(shares) == pytest.approx(0.44, abs=0.01)


def test_rounding_the_inputs_explains_the_error_of_tf32() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (1, 64, 14, 14)).astype(np.float32)
    w = rng.uniform(-1, 1, (32, 64, 3, 3)).astype(np.float32)
    exact = oracle.conv2d(x, w, 1, 1)
    mine = np.linalg.norm(oracle.conv2d(oracle.tf32(x), oracle.tf32(w), 1, 1) - exact) / np.linalg.norm(exact)
    kept = runs.times("plans", by="layer", ways=("cudnn tf32 nchw", "cudnn fp32 nchw"), live=False)
    tf32, fp32 = (kept.row("conv3", f"cudnn {p} nchw")["relative_error"] for p in ("tf32", "fp32"))
    assert mine == pytest.approx(tf32, rel=0.2)
    assert tf32 / fp32 > 300  # "hundreds of times"


def test_the_recorded_device_forms_22_operations_in_the_time_of_a_byte() -> None:
    limits = recorded.load("direct")[0]["limits"]
    assert limits["peak_gflops"] / limits["bandwidth_gbs"] == pytest.approx(22, abs=1)
    assert limits["bandwidth_gbs"] == pytest.approx(3000, rel=0.02)


# ---- pictures of times


def test_a_picture_of_times_says_every_point_in_words() -> None:
    timed = runs.times("batch", by="batch", layer="conv3", ways=("cudnn fp32 nchw",), only=(1, 64), live=False)
    picture = timed.picture(per=True)
    (first, second) = ((n, timed.us(n, "cudnn fp32 nchw") / n) for n in (1, 64))
    assert picture.alt.startswith("µs / batch against batch. cudnn fp32 nchw: ")
    for case, us in (first, second):
        assert f"{us:.1f} at {case}" in picture.alt
    assert "not measured on this machine" in picture.alt
    assert picture == timed.picture(per=True)
    assert all(a != b for a, b in itertools.combinations([picture.svg, timed.picture().svg], 2))
