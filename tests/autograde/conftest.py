"""A small lab of the judge's own (`tiny/`), so that its tests depend on no lab's text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
