"""Grades timed on a real GPU, kept and shown as what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convladder.autograde.course import recorded
from convladder.autograde.course.recorded import RecordedError
from convladder.autograde.faces import terminal
from convladder.autograde.judge import spec
from convladder.autograde.judge.record import CheckRecord, SubmissionRecord
from convladder.autograde.judge.spec import KernelTask

EVIDENCE = {
    "form": "measured", "device": {"device": "a device of tests"}, "device_before": {"clocks.sm": "1980 MHz"},
    "bandwidth_gbs": 3000.0, "peak_gflops": 60000.0,
    "medians_us": {"text": 5.0, "base": 20.0, "target": 4.0}, "times_us": {"text": [5.0]},
}  # fmt: skip


def graded(out: Path, timing: str = "measured") -> SubmissionRecord:
    target = CheckRecord("conv", "conv.target", True, 15.0, 15.0, "5 µs on a device of tests", evidence=dict(EVIDENCE))
    record = SubmissionRecord("toy", "ada", "toy.ipynb", "a", "b", "gpu", timing, [target], date="2026-11-21T00:00:00")
    (out / "records").mkdir(parents=True, exist_ok=True)
    (out / "records" / "ada.json").write_text(record.to_json())
    return record


def test_a_record_names_its_device_and_keeps_what_defends_the_points(tmp_path: Path) -> None:
    graded(tmp_path)
    kept = recorded.collect(tmp_path, "convladder grade toy")
    assert kept["device"]["device"] == "a device of tests"
    target = kept["students"]["ada"]["targets"]["conv.target"]
    assert (target["score"], target["medians_us"]) == (15.0, {"text": 5.0, "base": 20.0, "target": 4.0})
    assert "times_us" not in target
    json.dumps(kept, allow_nan=False)


def test_a_class_graded_by_counters_is_no_record_of_a_gpu(tmp_path: Path) -> None:
    graded(tmp_path, "counters")
    with pytest.raises(RecordedError, match="--timing measured"):
        recorded.collect(tmp_path, "")


def test_recorded_grades_are_shown_as_such_beside_live_ones(tmp_path: Path) -> None:
    live = graded(tmp_path)
    shown = terminal.as_text(terminal.recorded_table(recorded.collect(tmp_path, ""), {"ada": live}), 140)
    assert "Recorded, not measured here" in shown
    assert "a device of tests" in shown
    assert "15 / 15" in shown
    assert "20, 4  conv" in shown


def test_the_recorded_timing_of_lab_1_was_steady_and_is_of_its_present_rungs() -> None:
    kept = json.loads((recorded.folder() / "01_direct.timing.json").read_text())
    task = spec.load("01_direct").task("direct_coalesced")
    assert isinstance(task, KernelTask)
    assert task.target is not None
    found = kept["tasks"]["direct_coalesced"]
    assert (found["base_rung"], found["target_rung"]) == (task.target.base, task.target.target)
    assert [run["share"] for run in found["solved"]] == [1.0] * 20
    assert [run["share"] for run in found["base"]] == [0.0] * 20
    assert found["gain"]["low"] >= 1.5


def test_the_recorded_timing_is_told_in_one_line() -> None:
    (line,) = recorded.steadiness("01_direct")
    assert "all timing points 20 of 20 times, direct_report none 20 of 20 times" in line
    assert "NVIDIA H100" in line
    assert recorded.steadiness("00_start") == []
