"""Every solved notebook from its first cell to its last, as a student with all answers would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from convladder.autograde.course import build

SCRIPT = Path(__file__).parent / "hardware" / "notebook.py"
#: Seconds that a notebook may take on the engine.
MOST_SECONDS = 90


@pytest.mark.full
@pytest.mark.parametrize("lab", build.labs())
def test_a_solved_notebook_runs_from_top_to_bottom_in_time_and_passes_its_checks(lab: str, tmp_path: Path) -> None:
    notebook, out = tmp_path / f"{lab}.ipynb", tmp_path / "record.json"
    notebook.write_text(build.serialise(build.solved_notebook(lab)), encoding="utf-8")
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")}
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(notebook), str(out)], capture_output=True, text=True, env=environment
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record = json.loads(out.read_text())
    assert record["seconds"] <= MOST_SECONDS
    checked = [cell["passed"] for cell in record["cells"] if "passed" in cell]
    assert checked
    assert all(checked)
