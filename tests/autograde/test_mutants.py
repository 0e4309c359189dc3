"""Solutions with one small change: the check that found each, when mutate.py wrote mutants.json, finds it still.

The known mistakes of students, solutions/LAB/wrong, are held by `convladder prove` and test_labs.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.judge import check, open_worker, spec
from convladder.autograde.judge.sandbox import SandboxPolicy, Worker

sys.path.insert(0, str(Path(__file__).parent))
import mutate

RECORD: dict[str, list[dict[str, Any]]] = json.loads(mutate.RECORD.read_text(encoding="utf-8"))
MUTANTS = [(lab, mutant) for lab, found in RECORD.items() for mutant in found]
#: One in so many is tried in the fast tier.
FAST = 24


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker(SandboxPolicy("none", seconds=10)) as w:
        yield w


def test_there_are_at_least_sixty_and_each_is_found_by_a_check() -> None:
    assert len(MUTANTS) >= 60
    assert [(lab, m["task"], m["line"], m["new"]) for lab, m in MUTANTS if not m["fails"]] == []


@pytest.mark.parametrize(
    ("lab", "mutant"),
    [
        pytest.param(lab, m, id=f"{m['task']}-{m['line']}-{n}", marks=[] if n % FAST == 0 else [pytest.mark.full])
        for n, (lab, m) in enumerate(MUTANTS)
    ],
)
def test_a_mutant_fails_its_check(lab: str, mutant: dict[str, Any], worker: Worker) -> None:
    loaded = spec.load(lab)
    task = loaded.task(mutant["task"])
    text = mutate.applied(lab, task, mutant["line"], mutant["old"], mutant["new"])
    found = check.check_task(loaded, task, text, worker, secret=b"mutants")
    assert [c.check for c in found if c.passed is False] == mutant["fails"]
