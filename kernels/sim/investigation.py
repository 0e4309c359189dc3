"""The second run of a launch that has something to report: in order, and knowing who touched what.

To go into every access is slow, so only the blocks that race or read what is undefined are run so. Which these are, a
fast run in order says first. After so much work of theirs without anything new, the rest is run fast and no longer
watched. The report does not depend on what was found out first: a block that is all right is so either way, and other
faults need no account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from .faults import PATIENCE
from .launch import Launch
from .tables import Tables

#: The fast run gives up where, after so much work of misbehaving blocks, they are most of what it has seen.
ENOUGH = PATIENCE // 8


class Run(Protocol):
    """Something that runs blocks on tables of its own."""

    tables: Tables

    def blocks(self, begin: int, end: int) -> None: ...


def suspects(run: Run, launch: Launch) -> np.ndarray:
    """Run a launch fast, as far as it pays: for each block whether it must be looked into."""
    tables, count = run.tables, launch.blocks
    found = tables.note_suspects()
    bad, seen, end = 0.0, 0, 0
    while end < count:
        before, begin, end = tables.work_left, end, min(end + 1 + end // 8, count)
        run.blocks(begin, end)
        work = before - tables.work_left
        seen += work
        bad += work * float(found[begin:end].mean())
        if tables.is_stopped or bad > PATIENCE or (bad > ENOUGH and 2 * bad > seen):
            found[begin if tables.is_stopped else end :] = 1
            break
    return found.astype(bool)


def investigate(start: Callable[[], Run], launch: Launch, looked_into: np.ndarray) -> Tables:
    """Run a launch in order, and go into every access of some blocks.

    start   begins a thorough run
    """
    run = start()
    tables, idle, block = run.tables, 0, 0
    while block < launch.blocks and not tables.is_stopped:
        if tables.is_watched and looked_into[block]:
            tables.be_careful(True)
            work, reports, kinds = tables.work_left, tables.watched_reports, tables.watched_kinds
            run.blocks(block, block + 1)
            block += 1
            if tables.watched_reports > reports:
                idle = 0 if tables.watched_kinds > kinds else idle + work - tables.work_left
                if idle > PATIENCE:
                    tables.stop_watching()
            continue
        ahead = np.flatnonzero(looked_into[block:]) if tables.is_watched else np.zeros(0, int)
        end = block + int(ahead[0]) if len(ahead) else launch.blocks
        tables.be_careful(False)
        run.blocks(block, end)
        block = end
    return tables
