"""A class that is graded while its graders are killed; `make soak` does the same with 500 submissions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.full
def test_a_class_whose_graders_are_killed_gets_the_grades_of_an_undisturbed_one(bwrap: str) -> None:
    command = [sys.executable, str(Path(__file__).parent / "soak.py"), "--count", "12", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Every submission has exactly one grade" in done.stdout
