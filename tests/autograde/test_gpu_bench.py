"""`convladder bench` without a GPU: what is recorded is told whole, and what needs a GPU says so."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from convladder.autograde.faces.cli import main
from convladder.kernels import recorded
from convladder.kernels.bench import codesize
from convladder.kernels.bench.cases import SUITES


@pytest.mark.parametrize("suite", [suite for suite in (*SUITES, codesize.SUITE) if recorded.load(suite)])
def test_a_recorded_suite_is_printed_with_every_digit_on_a_narrow_screen(suite: str) -> None:
    result = CliRunner().invoke(main, ["bench", suite, "--recorded"], env={"COLUMNS": "60"})
    assert result.exit_code == 0, result.output
    device = recorded.load(suite)[0]["device"]["device"]
    assert result.output.startswith(f"recorded on {device}")
    assert not re.search(r"(?<!\S)[\d.]+…", result.output)


def test_a_suite_without_a_record_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "load", lambda suite: [])
    result = CliRunner().invoke(main, ["bench", "gemm", "--recorded"])
    assert result.exit_code != 0
    assert "run `convladder bench gemm --keep` on a GPU" in result.output


def test_an_installation_keeps_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "is_repository", lambda: False)
    result = CliRunner().invoke(main, ["bench", "gemm", "--keep"])
    assert result.exit_code != 0
    assert "take --out FILE" in result.output
