"""The GPU suites: their problems, what their records say, and a whole small run where there is a GPU."""

import json
import math

import pytest

from convladder.kernels import recorded
from convladder.kernels.activity import KernelLaunch
from convladder.kernels.bench import cases, claims, compare, launches, results, tables, targets
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.rungs import LADDER, STEPS

DEVICE = {
    "device": {"device": "Some GPU"},
    "device_state": {"before": {"driver_version": "1.2", "held_down_by": "nothing"}, "after": {}},
    "versions": {"convladder": "0", "CuPy": "14.2"},
    "date": "2026-01-02T03:04:05+00:00",
    "limits": {"empty_launch_us": 1.2, "bandwidth_gbs": 3000.0, "peak_gflops": 60_000.0, "load_peak_gwords": 8000.0},
}

GENERATED = {
    "relative_error": 1e-7, "generation_s": 0.5, "compile_s": 1.5, "kernels": 8, "code_bytes": 1_000_000,
    "choice": {"filters": 48, "points": 676, "channels": 4, "splits": 1, "rounds": 2},
}  # fmt: skip


def record(suite: str, us) -> dict:
    """What a GPU would have given if each way took us(case, way) microseconds."""
    solved = []
    for case in cases.cases(suite):
        ways = [
            {
                "way": way, "us": us(case, way), **compare._beside_limits(case, way, us(case, way), DEVICE["limits"]),
                **(GENERATED if way == "codegen" else {}),
            }
            for way in case.ways
        ]  # fmt: skip
        solved.append({"case": case.name, **case.about, "pattern": case.pattern, "nnz": case.nnz, "ways": ways})
    made = {"suite": suite, **DEVICE, "rungs": compare.digests(compare.ways_of(cases.cases(suite))), "cases": solved}
    if suite == "sparse":
        made["crossover"] = list(compare.crossovers(compare.rows(made)))
    return made


def simple(case: cases.Case, way: str) -> float:
    """Dense ways take 1 us for each million products, sparse ones 4 us for each million non-zero products."""
    g = case.geometry
    outputs = g.N * g.P * g.Q
    sparse = way.startswith(("cusparse", "codegen")) or (way in LADDER and LADDER[way].column is not None)
    products = 4 * case.nnz if sparse else math.prod(g.w_shape)
    return 1e-6 * outputs * products + 1


@pytest.mark.parametrize("suite", cases.SUITES)
def test_every_way_of_a_suite_is_a_rung_or_a_library(suite):
    for case in cases.cases(suite):
        assert case.ways
        for way in case.ways:
            assert way in LADDER or way.split()[0] in ("cudnn", "cublas", "cusparse", "step", "codegen")


def test_every_rung_is_measured_in_some_suite():
    measured = {way for suite in cases.SUITES for case in cases.cases(suite) for way in case.ways}
    assert measured >= {*LADDER, *(f"step {name}" for name in STEPS)}


def test_the_suites_hold_what_the_sources_measured():
    sizes = {case.about["size"] for case in cases.cases("direct")}
    assert sizes >= {31, 63, 127, 255, 511, 4095}
    layers = [case for case in cases.cases("sparse") if "network" in case.about]
    assert {case.pattern for case in layers} == {"random", "uneven"}
    assert {case.about["network"] for case in layers} >= {"alexnet", "googlenet", "resnet50"}
    assert {case.geometry.groups for case in layers if case.about["network"] == "alexnet"} == {1, 2}
    assert {case.about["batch"] for case in cases.cases("batch")} >= {1, 64, 192}


@pytest.mark.parametrize("suite", cases.SUITES)
def test_a_record_can_be_kept_and_shown(suite, tmp_path):
    made = record(suite, simple)
    file = recorded.path(suite, "Some GPU", tmp_path)
    recorded.save(made, file)
    assert recorded.load(suite, folder=tmp_path) == [json.loads(json.dumps(made))]
    for table in tables.tables(made):
        assert table.rows or table.title.startswith("The kernels")  # those need CUPTI
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert not any("nan" in cell for row in table.rows for cell in row)


def test_a_crossover_lies_where_the_times_meet():
    found = record("sparse", simple)["crossover"]  # 4 (1 - sparsity) = 1
    assert {row["dense"] for row in found} == {"cudnn", "cublas"}
    assert {row["layer"] for row in found} == {"conv2", "conv3", "conv4", "conv5"}
    assert all(row["sparsity"] == pytest.approx(0.75, abs=0.01) for row in found)


def test_where_sparse_is_never_faster_there_is_no_crossover():
    found = record("sparse", lambda case, way: 100.0 if way in LADDER else 1.0)["crossover"]
    assert all(row["sparsity"] is None for row in found)


def test_verdicts_follow_the_figures():
    slow = {"csr_global": 8.0, "csr": 4.0, "csr_tiled": 2.0}
    made = record("sparse", lambda case, way: slow.get(way, 1.0) if way in LADDER else 3.0)
    steps = [v.measured for v in claims.verdicts(made) if "46.7" in v.claim]
    assert [text.partition(":")[0] for text in steps] == ["AlexNet with groups", "AlexNet ungrouped"]
    doubled = "+100 %, +100 %, +100 %, +100 %"
    cut = "blocks cut to the output"
    said = f"gives {doubled}; tiles {doubled}; {cut} {doubled}; tiles in {cut} +300 %"
    assert all(said in text for text in steps)
    direct = record("direct", lambda case, way: 1.0 if way in LADDER else 2.0)
    told = {v.claim: v.measured for v in claims.verdicts(direct)}
    assert told["hand-written kernels are faster than cuDNN on inputs of 31 to 511"].startswith("holds")
    assert told["cuDNN is about 6 times as fast on large inputs"].startswith("does not hold")


def test_layers_on_which_cudnn_is_faster_are_named():
    made = record("sparse", lambda case, way: 2.0 if way in LADDER and case.about.get("layer") == "conv3" else 1.5)
    assert tables.losses(made) == "AlexNet: conv3"


def test_code_pays_after_as_many_images_as_its_making_takes_longer():
    made = record("codegen", lambda case, way: 1000.0 if way == "codegen" else 2000.0 + 280 * ("tf32" in way))
    layers = tables.code_of_layers(made, "alexnet")
    conv3 = dict(zip(layers.columns, next(row for row in layers.rows if row[0] == "conv3"), strict=True))
    assert conv3["pays after images, against FP32"] == "256,000"  # 2 s, won back by 1 ms every 128 images
    assert (conv3["FP32 / code"], conv3["TF32 NHWC / code"]) == ("2.00", "2.28")
    networks, *_ = tables.tables(made)
    found = {row[0]: dict(zip(networks.columns, row, strict=True)) for row in networks.rows}
    mostly_zero = found["layers with 90% zeros or more"]
    assert mostly_zero["cuDNN FP32"] == f"{2 * int(mostly_zero['layers'])}.00 (2.00)"
    assert found["AlexNet, ungrouped"]["layers"] == "4"


def test_code_that_is_slower_never_pays():
    made = record("codegen", lambda case, way: 1000.0)
    assert {row[-1] for row in tables.code_of_layers(made, "resnet50").rows} == {"never"}


def test_limits_follow_from_bytes_and_operations():
    g = ConvGeometry(N=1, C=1, H=1, W=1000, K=1000, R=1, S=1)
    limits = {"bandwidth_gbs": 1.0, "peak_gflops": 1.0, "load_peak_gwords": 1.0}
    case = cases.Case("tall", g, (), nnz=500)
    dense = compare._beside_limits(case, "cublas batched", 2000.0, limits)
    assert dense["limit_us"] == pytest.approx(4 * (1000 + 1000 + 1000 * 1000) * 1e-3, rel=1e-3)  # the bytes
    sparse = compare._beside_limits(case, "csr", 1000.0, limits)
    assert sparse["loads_us"] == 500 * 1000 * 1e-3
    assert sparse["percent_of_loads"] == 50.0
    assert dense["ce"] == pytest.approx(2 * 1000 * 1000 / 2e6, rel=1e-3)


def test_the_readmes_results_are_written_between_its_markers(tmp_path):
    file = tmp_path / "README.md"
    file.write_text(f"above\n{results.BEGIN}\nout of date\n{results.END}\nbelow\n")
    records = {suite: record(suite, simple) for suite in cases.SUITES}
    assert results.rewrite(file, records)
    assert not results.rewrite(file, records)  # the same again
    text = file.read_text()
    assert text.startswith(f"above\n{results.BEGIN}\nRecorded on Some GPU, driver 1.2, CuPy 14.2, 2026-01-02")
    assert text.endswith(f"{results.END}\nbelow\n")
    assert "out of date" not in text
    assert all(f"| {suite} |" in text for suite in ("direct", "gemm", "cudnn", "sparse", "batch", "codegen"))


def test_a_target_is_missed_where_a_record_falls_short_of_it():
    half = record("gemm", lambda case, way: 1.0 if way.startswith("cublas") else 1.25 + (case.about["size"] == 4096))
    (outcome,) = targets.outcomes({"gemm": half})
    assert outcome.found == (("2048³", 0.8), ("4096³", pytest.approx(1 / 2.25)))
    assert [place for place, _ in outcome.missed] == ["4096³", "2048³"]
    assert outcome.worst[0] == "4096³"
    (line,) = targets.table({"gemm": half}).rows
    assert line[1:] == ("at least 0.90", "0.44 (4096³)", "missed: 4096³ 0.44; 2048³ 0.80")


def test_the_targets_of_code_are_for_layers_that_are_mostly_zero():
    slow = record("codegen", lambda case, way: 1.0 if case.about["sparsity"] >= 0.9 or way != "codegen" else 100.0)
    means = {one.target.name: one for one in targets.outcomes({"codegen": slow}) if "mean" in one.target.name}
    assert len(means) == 2
    assert all(one.found == (("", pytest.approx(1.0)),) for one in means.values())
    errors = next(one for one in targets.outcomes({"codegen": slow}) if one.target.at_most)
    assert not errors.missed


def test_a_readme_without_markers_is_left_alone(tmp_path):
    file = tmp_path / "README.md"
    file.write_text("nothing here\n")
    with pytest.raises(results.MarkerError, match="needs the line"):
        results.rewrite(file, {})
    assert file.read_text() == "nothing here\n"


def test_clocks_that_were_held_down_are_told():
    made = record("gemm", simple)
    assert tables.held_down(made) == ""
    made["device_state"] = {"before": {"held_down_by": "nothing"}, "after": {"held_down_by": "power cap"}}
    assert "power cap" in results.page({"gemm": made})


H100 = {"compute_capability": "9.0", "multiprocessors": "132"}


def test_launches_of_one_kernel_are_one_line_with_its_utilisation():
    short = KernelLaunch("short", (4, 1, 1), (128, 1, 1), 32, 0, 0, us=1.0)
    long = [KernelLaunch("long", (100, 2, 1), (256, 1, 1), 128, 0, 0, us=us) for us in (2.0, 3.0)]
    first, second = launches.distinct([short, *long], H100)
    assert (first["name"], first["times"], first["us"]) == ("long", 2, 5.0)
    # 65536 / (256 * 128) = 2 blocks on each of 132 multiprocessors: 200 blocks of 264 places
    assert first["ru"] == first["ru_real"] == round(200 / 264, 3)
    assert first["occupancy"] == 16 / 64
    assert second["ru"] == round(4 / (132 * 16), 3)


def test_of_an_unknown_architecture_only_the_papers_utilisation_is_told():
    launch = KernelLaunch("k", (1, 1, 1), (32, 1, 1), 32, 0, 0)
    assert set(launches.utilisation(launch, {**H100, "compute_capability": "6.1"})) == {"ru"}


def test_a_rung_whose_text_is_not_the_measured_one_is_named():
    made = record("gemm", simple)
    assert compare.changed(made) == []
    made["rungs"]["gemm_naive"] = "another"
    assert compare.changed(made) == ["gemm_naive"]


# ---- on a GPU


@pytest.mark.gpu
def test_a_small_case_is_checked_and_timed_in_every_way(monkeypatch):
    g = ConvGeometry(N=3, C=4, H=10, W=9, K=6, R=3, S=3, pad=(1, 1), groups=2)
    ways = ("direct", "gemm_coalesced", *cases.SPARSE_RUNGS, *cases.CUDNN, *cases.LOWERED_DENSE, "cublas converted",
            *cases.LOWERED_SPARSE, cases.CODEGEN, *cases.STEP_WAYS, "direct_guarded")  # fmt: skip
    monkeypatch.setattr(compare, "cases", lambda suite: [cases.Case("small", g, ways, nnz=40, pattern="uneven")])
    made = compare.measure("direct", rounds=5)
    solved = {row["way"]: row for row in compare.rows(made)}
    for way in ("direct_guarded", "step im2col_rows"):
        assert "needs" in solved.pop(way)["refused"]  # groups
    for row in solved.values():
        assert row["us"] > 0
        assert row["us_quartiles"][0] <= row["us"] <= row["us_quartiles"][1]
    assert solved["cublas batched"]["how"] == "queue"
    assert solved["direct"]["how"] == "graph"
    assert solved["cudnn fp32 nchw"]["plan"]
    assert solved["codegen"]["nnz"] == 40
    assert solved["codegen"]["code_bytes"] > 40 * 16  # an instruction for each
    assert made["limits"]["bandwidth_gbs"] > 10
    assert {"CuPy", "cuDNN", "cuBLAS", "cuSPARSE"} <= set(made["versions"])


@pytest.mark.gpu
def test_the_kernels_of_a_library_can_be_told():
    import cupy

    from convladder.kernels import activity

    pytest.importorskip("cupti", reason="needs cupti-python")
    a = cupy.ones((256, 256), cupy.float32)
    cupy.matmul(a, a)
    found = activity.launches(lambda: cupy.matmul(a, a))
    assert found
    assert all(math.prod(k.block) % 32 == 0 and k.registers > 0 for k in found)
