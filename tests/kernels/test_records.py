"""The GPU records that are kept with the package, and what the README says of them."""

import importlib.util
from pathlib import Path

import pytest

from convladder.kernels import recorded, workloads
from convladder.kernels.bench import cases, compare, headers, results, tables, targets
from convladder.kernels.rungs import LADDER, ladder_source

README = Path(__file__).resolve().parents[2] / "README.md"
#: Suites whose run on a GPU is still to be made; the README says so.
AWAITED: set[str] = set()
#: Targets that the records miss, and where.
MISSED = {"stretch: cuDNN TF32 NHWC over weights as code, AlexNet conv3 to conv5": ["AlexNet conv3"]}
RECORDS = {suite: found[0] for suite in cases.SUITES if (found := recorded.load(suite))}


def rows(suite: str) -> list[dict]:
    return compare.rows(RECORDS[suite])


def test_every_suite_is_recorded_on_a_named_device_with_its_state():
    assert set(RECORDS) | AWAITED == set(cases.SUITES)
    for record in RECORDS.values():
        assert record["device"]["device"]
        assert record["device_state"]["before"]["driver_version"]
        assert {"CuPy", "cuDNN", "cuBLAS", "cuSPARSE"} <= set(record["versions"])
        assert all(case["clocks.sm"] for case in record["cases"])


def test_the_readme_and_the_results_page_say_what_is_recorded():
    every = {suite: found[0] for suite in results.RECORDED if (found := recorded.load(suite))}
    between = README.read_text(encoding="utf-8").partition(results.BEGIN)[2].partition(results.END)[0]
    assert between.strip() == results.summary(every).strip(), "run `make bench`"
    assert (README.parent / "docs/results.md").read_text(encoding="utf-8") == results.page(every), "run `make bench`"


@pytest.mark.parametrize("write", [results.summary, results.page])
def test_what_is_not_recorded_yet_is_named(write):
    without = {suite: record for suite, record in RECORDS.items() if suite != "gemm"}
    assert "the suite gemm" in write(without).partition("Not yet recorded: ")[2].partition(".\n")[0]


def test_every_target_is_met_but_those_that_are_known_to_be_missed():
    judged = targets.outcomes(RECORDS)
    assert {one.target for one in judged} == {t for t in targets.TARGETS if t.suite not in AWAITED}
    assert {one.target.name: [place for place, _ in one.missed] for one in judged if one.missed} == MISSED


def test_the_records_hold_every_published_layer_with_random_rows_and_the_papers_networks_with_uneven_ones_too():
    layers = {(layer.network, layer.name) for layer in workloads.layers()}
    for pattern, networks in (("random", workloads.networks()), ("uneven", cases.UNEVEN)):
        timed = {
            (row["network"], row["layer"]) for row in tables.timed(rows("sparse"), pattern=pattern) if "network" in row
        }
        assert {layer for layer in layers if layer[0] in networks} <= timed


def test_every_recorded_result_was_checked_and_only_tf32_differs_by_more_than_rounding():
    for suite in RECORDS:
        for row in tables.timed(rows(suite)):
            if row["way"].startswith("step "):
                continue
            exact = "tf32" not in row["way"]
            assert row["relative_error"] < (2e-6 if exact else 1e-3), (suite, row["case"], row["way"])


@pytest.mark.parametrize("suite", RECORDS)
def test_a_way_without_a_time_says_why(suite):
    for row in rows(suite):
        assert "us" in row or "needs" in row["refused"], (row["case"], row["way"])


def test_records_travel_with_the_package():
    folder = Path(importlib.util.find_spec("convladder.kernels").origin).parent / "records"
    assert sorted(p.name.partition(".")[0] for p in folder.glob("*.json")) == sorted(
        [*RECORDS, *results.RECORDED[len(cases.SUITES) :]]
    )


def test_rungs_of_the_records_are_rungs():
    libraries = ("cudnn", "cublas", "cusparse", "step", "codegen")
    for suite in RECORDS:
        assert {row["way"] for row in rows(suite) if row["way"].split()[0] not in libraries} <= set(LADDER)


@pytest.mark.parametrize("rung", LADDER)
def test_the_header_of_a_rung_says_what_is_recorded(rung):
    header = ladder_source(rung).partition("*/")[0]
    assert f" {headers.figures(rung, RECORDS)}\n" in header, "run `make bench`"


def test_headers_are_written_anew_from_the_records(tmp_path):
    for rung in LADDER:
        text = ladder_source(rung)
        (tmp_path / f"{rung}.cu").write_text(text.replace("ms; lowered", "ms; long ago") if rung == "csr" else text)
    assert headers.rewrite(tmp_path, RECORDS) == ["csr"]
    assert (tmp_path / "csr.cu").read_text() == ladder_source("csr")
