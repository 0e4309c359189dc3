"""The four proofs: they hold for the labs, and each fails where its lab is broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from convladder.autograde.course import build, prove, sample
from convladder.autograde.course.build import BuildError

LAB = "01_direct"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the sources and labs with no known mistakes but those that a test adds."""
    for folder in ("solutions", "kernels/ladder", "labs"):
        shutil.copytree(build.ROOT / folder, tmp_path / folder)
    for path in (tmp_path / "solutions" / LAB / "wrong").iterdir():
        path.unlink()
    return tmp_path


def step(proof: prove.Proof, name: str) -> prove.Step:
    return next(s for s in proof.steps if s.name.startswith(name))


SLOW = [pytest.param(lab, marks=pytest.mark.full) for lab in build.labs() if lab > LAB]


@pytest.mark.parametrize("lab", [*(lab for lab in build.labs() if lab <= LAB), *SLOW])
def test_lab_is_proved(lab: str) -> None:
    proof = prove.prove(lab)
    assert [(s.name, s.details) for s in proof.steps if not s.passed] == []


def test_a_solution_that_fails_a_check_is_told(repository: Path) -> None:
    path = repository / "solutions" / LAB / f"{LAB}.py"
    path.write_text(path.read_text().replace("h = p * U - pad + r\n", "h = p * U - pad + s\n"))
    proof = prove.prove(LAB, repository)
    assert not proof.passed
    assert any(line.startswith("source_index.correct failed") for line in step(proof, "solution").details)


def test_a_stub_that_scores_is_told(repository: Path) -> None:
    right = (repository / "kernels" / "ladder" / "direct_report.cu").read_text()
    (repository / "solutions" / LAB / "direct_report.buggy.cu").write_text(right.replace("//@ needs", "// needs"))
    proof = prove.prove(LAB, repository)
    assert any("direct_report is passed by the stub" in line for line in step(proof, "stub").details)


def test_a_mistake_that_fails_nothing_is_told(repository: Path) -> None:
    (repository / "solutions" / LAB / "wrong" / "predict_right.py").write_text(
        "#! task: predict_report\n#! fails: predict_report.prediction\n#! why: it is right\npredict_report = 16\n"
    )
    proof = prove.prove(LAB, repository)
    assert step(proof, "wrong").details == ["predict_right.py: predict_report.prediction must fail and does not"]


def test_a_mistake_that_fails_another_check_is_told(repository: Path) -> None:
    (repository / "solutions" / LAB / "wrong" / "predict_wrong.py").write_text(
        "#! task: predict_report\n#! fails: predict_coalesced.prediction\n#! why: names another\npredict_report = 1\n"
    )
    details = step(prove.prove(LAB, repository), "wrong").details
    assert any("predict_report.prediction failed" in line for line in details)
    assert "predict_wrong.py: predict_coalesced.prediction must fail and does not" in details


def test_a_stale_notebook_is_told(repository: Path) -> None:
    path = build.student_path(LAB, repository)
    path.write_text(path.read_text() + "\n")
    assert "is not what the sources build" in step(prove.prove(LAB, repository), "regeneration").details[0]


@pytest.mark.parametrize("header", ["", "//! task: direct_guarded\n//! why: no check\n", "// task: direct_guarded\n"])
def test_a_mistake_without_its_header_is_refused(repository: Path, header: str) -> None:
    path = repository / "solutions" / LAB / "wrong" / "headless.cu"
    path.write_text(f"{header}__global__ void f() {{}}\n")
    with pytest.raises(BuildError, match="the header's line"):
        sample.mistakes(LAB, repository)
