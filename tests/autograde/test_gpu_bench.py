"""`convladder bench` without a GPU: what is recorded is told whole, and what needs a GPU says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from convladder.autograde.faces.cli import main
from convladder.kernels import recorded
from convladder.kernels.bench import codesize, results
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


def test_the_picture_of_a_suite_is_the_slide_of_its_first_claim(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["bench", "gemm", "--recorded", "--plot", str(tmp_path / "gemm.png")])
    assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "gemm.png") as image:
        assert "Recorded on NVIDIA" in image.info["Description"]


def test_a_suite_without_a_claim_has_no_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["bench", "plans", "--recorded", "--plot", str(tmp_path / "plans.png")])
    assert result.exit_code != 0
    assert "no claim of show.toml draws the suite plans" in result.output


def test_what_is_recorded_is_written_into_a_readme_and_the_page_beside_it(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{results.BEGIN}\n{results.END}\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    result = CliRunner().invoke(main, ["bench", "--readme", str(readme)])
    assert result.exit_code == 0, result.output
    assert "| gemm |" in readme.read_text(encoding="utf-8")
    assert "## gemm" in (tmp_path / "docs/results.md").read_text(encoding="utf-8")
