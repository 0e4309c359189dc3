"""Grades timed on a real GPU, kept and shown as what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.course import recorded, sample
from convladder.autograde.course.recorded import RecordedError
from convladder.autograde.faces import terminal
from convladder.autograde.judge import spec
from convladder.autograde.judge.record import CheckRecord, SubmissionRecord
from convladder.autograde.judge.spec import ExplainTask, KernelTask

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


def of_labs(what: str) -> list[Any]:
    """Every committed record of this kind, by its lab."""
    kept = {path.name.removesuffix(f".{what}.json"): path for path in sorted(recorded.folder().glob(f"*.{what}.json"))}
    return [pytest.param(lab, json.loads(path.read_text(encoding="utf-8")), id=lab) for lab, path in kept.items()]


@pytest.mark.parametrize(("lab", "kept"), of_labs("timing"))
def test_a_recorded_timing_was_steady_and_is_of_the_present_targets(lab: str, kept: dict[str, Any]) -> None:
    targets = {t.name: t.target for t in spec.load(lab).tasks if isinstance(t, KernelTask) and t.target}
    assert "NVIDIA" in kept["device"]["device"]
    for task, found in kept["tasks"].items():
        assert (found["base_rung"], found["target_rung"]) == (targets[task].base, targets[task].target)
        if found["gain"]["timed"]:
            assert found["gain"]["low"] >= 1.5
            assert {run["share"] for run in found["solved"]} == {1.0}
            assert {run["share"] for run in found["base"]} == {0.0}


@pytest.mark.parametrize(("lab", "kept"), of_labs("notebook"))
def test_a_recorded_notebook_ran_through_and_passed_every_check(lab: str, kept: dict[str, Any]) -> None:
    assert "NVIDIA" in kept["device"]["device"]
    assert kept["seconds"] <= 90
    assert [cell["id"] for cell in kept["cells"] if "error" in cell] == []
    tasks = [task.name for task in spec.load(lab).tasks if not isinstance(task, ExplainTask)]
    passed = [cell["id"] for cell in kept["cells"] if cell.get("passed")]
    assert sorted(passed) == sorted(f"{task}-check" for task in tasks)


@pytest.mark.parametrize(("lab", "kept"), of_labs("class"))
def test_a_class_on_a_gpu_failed_what_its_mistakes_fail_on_the_engine(lab: str, kept: dict[str, Any]) -> None:
    """Targets apart: they are scored by times there, by counters here."""
    known = {name: wrong.fails for name, wrong in zip(sample.NAMES, sample.mistakes(lab))}
    assert kept["sandbox"] == "bwrap"
    assert kept["students"].keys() >= {sample.SOLVED, sample.STUB}
    for name in kept["students"].keys() - {sample.STUB}:
        failed = {check for check, (_, _, passed) in kept["students"][name]["checks"].items() if passed is False}
        fails = set(known.get(name, ()))
        assert {c for c in failed ^ fails if not c.endswith(".target")} == set()


@pytest.mark.parametrize("lab", ["01_direct", "04_sparse", "05_sparse_tiled", "07_training"])
def test_every_timed_task_of_a_lab_got_all_of_its_points_twenty_times(lab: str) -> None:
    kept = json.loads((recorded.folder() / f"{lab}.timing.json").read_text(encoding="utf-8"))
    tasks = [t for t in spec.load(lab).tasks if isinstance(t, KernelTask) and t.target and t.target.measured]
    assert {name: len(found["solved"]) for name, found in kept["tasks"].items()} == {t.name: 20 for t in tasks}
    assert kept["sandbox"] == "bwrap"


def test_the_recorded_timing_is_told_in_one_line() -> None:
    (line,) = recorded.steadiness("01_direct")
    assert "all timing points 20 of 20 times, direct_report none 20 of 20 times" in line
    assert "NVIDIA H100" in line
    assert recorded.steadiness("00_start") == []
