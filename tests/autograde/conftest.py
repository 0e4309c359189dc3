"""Labs of the tests' own, so that they depend on no lab's text: `tiny/` for the judge, `Toy` for classes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.judge import sandbox, spec
from convladder.autograde.judge.sandbox import Worker

TINY = Path(__file__).parent / "tiny"


@pytest.fixture(scope="session")
def specs_dir() -> Path:
    return TINY


@pytest.fixture(scope="session")
def tiny(specs_dir: Path) -> spec.Spec:
    return spec.load("tiny", specs_dir)


@pytest.fixture(scope="session")
def conv() -> str:
    """A kernel that gets full marks: every image plane by one block of one warp, so with the fewest stores."""
    return (TINY / "conv.cu").read_text()


@pytest.fixture(scope="session")
def index() -> str:
    """A function that gets full marks."""
    return (TINY / "index.py").read_text()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A worker without isolation: what these tests ask is not whether the sandbox holds."""
    with sandbox.open_worker("none") as w:
        yield w


@pytest.fixture(params=["bwrap", "none"])
def policy(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture
def bwrap() -> str:
    return require("bwrap")


def require(kind: str) -> str:
    if kind == "bwrap":
        there, reason = sandbox.available()
        if not there:
            pytest.skip(reason)
    return kind


class Toy:
    """A lab without kernels: what its tests ask is about the class, not about the engine."""

    spec = """
lab = "toy"
title = "A toy lab"
minutes = 5
points = {prediction = 90, explanation = 10}
[[task]]
name = "double"
title = "Twice N"
kind = "number"
formula = "2*N"
symbols = {N = 21}
share = {prediction = 2}
[[task]]
name = "triple"
title = "Three times N"
kind = "number"
formula = "3*N"
symbols = {N = 21}
share = {prediction = 1}
[[task]]
name = "words"
title = "Why"
kind = "explain"
words = 10
rubric = ["0: nothing", "1: some", "2: all"]
share = {explanation = 1}
"""

    @staticmethod
    def notebook(double: str = "42", triple: str = "63") -> str:
        """A student's notebook; as it is, it gets the 90 points that the machine gives."""

        def cell(kind: str, source: str, name: str) -> dict[str, Any]:
            extra = {"outputs": [], "execution_count": None} if kind == "code" else {}
            return {"cell_type": kind, "id": name, "metadata": {}, "source": source, **extra}

        cells = [
            cell("code", f"%%answer double\ndouble = {double}", "double"),
            cell("code", f"%%answer triple\ntriple = {triple}", "triple"),
            cell("markdown", "Because.", "words"),
        ]
        return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})

    @staticmethod
    def hand_in(folder: Path, student: str, text: str) -> Path:
        path = folder / student / "toy.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @staticmethod
    def rows(out: Path) -> dict[str, dict[str, str]]:
        """grades.csv, by student."""
        return {row["student"]: row for row in csv.DictReader(io.StringIO((out / "grades.csv").read_text()))}


@pytest.fixture(scope="session")
def toy() -> Toy:
    return Toy()
