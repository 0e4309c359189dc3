"""`convladder show`: every claim from its record, the slide, the prediction, and a GPU that fails in class."""

import json
import os
import re
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from convladder.autograde.faces import live, show, slides
from convladder.autograde.faces.cli import main
from convladder.kernels import gpu, recorded
from convladder.kernels.bench import cases, charts
from convladder.kernels.errors import ArgumentError, BackendError

CLAIMS = show.claimed()
MEASURED = [name for name, claim in CLAIMS.items() if claim.can_be_measured]


@pytest.fixture(autouse=True)
def as_without_a_gpu(monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: False)


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_is_shown_without_a_gpu(name):
    claim = CLAIMS[name]
    found = show.show(claim)
    assert not found.here
    assert claim.title in found.alt
    assert found.origin in found.alt
    assert json.loads(json.dumps(found.to_json()))["claim"] == name
    if claim.drawing:
        assert "measured" in found.origin
        return
    assert found.origin.startswith("Recorded on NVIDIA")
    for series, values in found.chart.values.items():
        assert series in found.alt
        assert len(values) == len(found.chart.places)
        assert None not in values, (series, values)
    for text in claim.verdicts:
        assert any(text in verdict.claim for verdict in found.verdicts), text
    if claim.ask:
        assert claim.ask.answer(found.chart) > 0


@pytest.mark.parametrize("name", MEASURED)
def test_what_a_claim_measures_on_a_gpu_is_all_that_it_shows(name):
    claim = CLAIMS[name]
    (record,) = recorded.load(claim.suite)
    wanted = [case.name for case in cases.cases(claim.suite) if claim.view.takes(case)]
    few = [
        {**case, "ways": [way for way in case["ways"] if way["way"] in claim.view.ways]}
        for case in record["cases"]
        if case["case"] in wanted
    ]
    assert len(few) == len(wanted) > 0
    partial = {**record, "cases": few}
    assert charts.chart(partial, claim.view) == charts.chart(record, claim.view)
    assert "Measured here" in show.of_record(claim, partial, here=True).alt


def test_a_sum_over_a_network_takes_no_layer_twice():
    claim = CLAIMS["sparse-networks"]
    chart = show.show(claim).chart
    by_layer = charts.chart(
        recorded.load("sparse")[0], replace(claim.view, across="layer", only=(), measure="ms", over="",
                                            where={"network": "alexnet", "pattern": "random"})
    )  # fmt: skip
    summed = {name: sum(values) for name, values in by_layer.values.items()}
    ratio = summed["cuBLAS"] / summed["tiled rung"]
    assert chart.at("cuBLAS", "AlexNet") / chart.at("tiled rung", "AlexNet") == pytest.approx(ratio)


def test_the_direct_table_is_that_of_the_record():
    (record,) = recorded.load("direct")
    here = [c for c in record["cases"] if (c["size"], c["stride"]) == (511, 1)]
    times = {way["way"]: way["us"] for way in here[0]["ways"] if "us" in way}
    chart = show.show(CLAIMS["report"]).chart
    assert chart.at("direct_report", 511) == times["direct_report"]
    assert chart.at("best direct rung", 511) == min(us for way, us in times.items() if way.startswith("direct"))


def written(name: str, folder: Path) -> None:
    found = show.show(CLAIMS[name])
    png, svg, data = found.save(folder)
    with Image.open(png) as image:
        assert image.size == (1920, 1080)
        assert image.info["Description"] == found.alt
    root = ElementTree.parse(svg).getroot()
    assert root.get("aria-label") == found.alt
    assert json.loads(data.read_text(encoding="utf-8"))["alt"] == found.alt


@pytest.mark.parametrize("name", ["cudnn-cublas", "window"])
def test_a_slide_is_a_picture_with_its_words(name, tmp_path):
    written(name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", CLAIMS)
def test_every_slide_can_be_drawn(name, tmp_path):
    written(name, tmp_path)


@pytest.mark.parametrize("name", CLAIMS)
def test_no_series_is_told_by_its_colour_alone(name):
    chart = show.show(CLAIMS[name]).chart
    looks = slides._STYLES
    assert len({mark for _, mark, _ in looks}) == len({hatch for *_, hatch in looks}) == len(looks)
    assert chart is None or len(chart.values) <= len(looks)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.0888, "0.0888"), (1.7, "1.70"), (13.9, "13.9"), (649.2, "649"), (10541, "10,541")]
)
def test_values_have_three_digits(value, text):
    assert slides._number(value) == text


# ---- a GPU that fails in class


def test_what_a_process_of_its_own_returns_comes_back():
    assert live.attempt(divmod, (7, 2), 60) == (3, 1)


@pytest.mark.parametrize(
    ("work", "arguments", "limit_s", "reason"),
    [
        (divmod, (1, 0), 60, "ZeroDivisionError"),
        (os._exit, (3,), 60, r"ended \(exit status 3\)"),
        (time.sleep, (60,), 0.3, "longer than 0.3 s"),
    ],
    ids=["raises", "dies", "hangs"],
)
def test_whatever_befalls_the_other_process_this_one_is_told(work, arguments, limit_s, reason):
    began = time.monotonic()
    with pytest.raises(BackendError, match=reason):
        live.attempt(work, arguments, limit_s)
    assert time.monotonic() - began < 30


def test_where_the_gpu_fails_the_record_is_shown_and_the_reason_said(monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(live, "attempt", _broken)
    found = show.show(CLAIMS["gemm"])
    assert not found.here
    assert found.origin.endswith("This machine's GPU did not answer: it fell off the bus")
    assert found.to_json()["instead"] == "it fell off the bus"


def _broken(work, arguments, limit_s):
    assert (work, arguments) == (show.measure, ("gemm",))
    raise BackendError("it fell off the bus")


@pytest.mark.gpu
def test_on_a_gpu_a_claim_is_measured(monkeypatch):
    monkeypatch.undo()
    found = show.show(CLAIMS["gemm"])
    assert found.here, found.instead
    assert found.origin.startswith("Measured here and now, on ")


# ---- the command


def run(*arguments, **options):
    return CliRunner().invoke(main, ["show", *arguments], **options)


def test_the_list_names_every_claim():
    listed = run("--list").output
    assert all(re.search(rf"^ *{name} ", listed, re.MULTILINE) for name in CLAIMS)


def test_the_prediction_is_asked_first_and_set_beside_the_answer(tmp_path):
    done = run("cudnn-cublas", "--ask", "--out", str(tmp_path), input="3\n")
    assert done.exit_code == 0, done.output
    before, _, after = done.output.partition("On conv3 with 128 images")
    assert "conv3" not in before
    assert re.search(r"You said 3; recorded: \d\.\d+, \d\.\d times as much\.", after)
    assert {path.name for path in tmp_path.iterdir()} == {f"cudnn-cublas.{kind}" for kind in ("png", "svg", "json")}


def test_json_prints_the_numbers_and_writes_nothing(tmp_path):
    done = run("gemm", "--json", "--out", str(tmp_path / "none"))
    assert json.loads(done.output)["chart"]["values"]["cuBLAS"]
    assert not (tmp_path / "none").exists()


def test_an_unknown_claim_is_answered_with_those_that_there_are():
    with pytest.raises(ArgumentError, match="report, large-images"):
        show.named("nothing")
    assert run("nothing").exit_code == 2
    assert run().exit_code == 2
