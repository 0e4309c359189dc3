"""The blocks of a launch on all cores: each core has tables and shadows of its own, which are put together at the end.

Compiled code holds no lock of Python's. Blocks are independent unless the kernel is wrong or uses atomic functions on
arrays: then nothing of this counts, and the launch is run in order.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from .investigation import Run
from .launch import Launch
from .tables import Tables

#: A launch is cut into so many pieces for each core; a core takes the next one when it is done with one.
PIECES = 8
#: More cores than this would only cost memory: each has shadows of its own, 4 bytes or 8 for each element stored to.
MOST_CORES = 8
#: A launch that one core ends within this time has nothing to gain from others.
WORTHWHILE_SECONDS = 1e-3


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(start: Callable[[], Run], launch: Launch) -> Tables | None:
    """Run all blocks. None if anything went wrong, or the order of blocks may have mattered."""

    def begin() -> Run:
        run = start()
        run.tables.be_hasty()
        return run

    first = begin()
    count = launch.blocks if launch.threads_per_block else 0
    workers = min(cores(), MOST_CORES, count) if _is_divisible(launch) else 1
    step = max(1, -(-count // (PIECES * workers)))
    pieces = [(b, min(b + step, count)) for b in range(0, count, step)][::-1]
    began = time.perf_counter()
    if workers > 1:
        first.blocks(*pieces.pop())
    remaining = (time.perf_counter() - began) * len(pieces)
    if workers == 1 or remaining < WORTHWHILE_SECONDS:
        while pieces and not first.tables.has_report:
            first.blocks(*pieces.pop())
        return None if first.tables.has_report else first.tables
    others = [begin() for _ in range(workers - 1)]
    threads = [threading.Thread(target=_work, args=(other, pieces)) for other in others]
    for thread in threads:
        thread.start()
    _work(first, pieces)
    for thread in threads:
        thread.join()
    return _together([first.tables, *(other.tables for other in others)])


def _is_divisible(launch: Launch) -> bool:
    """Whether the blocks may run in any order: no atomic updates of arrays, and nothing is printed."""
    code = launch.entry.function.code
    ordered = any(i.opcode == "printf" or (i.opcode in ("atom", "red") and not i.has("shared")) for i in code)
    return not ordered


def _work(run: Run, pieces: list[tuple[int, int]]) -> None:
    while not run.tables.has_report:
        try:
            piece = pieces.pop()
        except IndexError:
            return
        run.blocks(*piece)


def _together(all_tables: list[Tables]) -> Tables | None:
    """One account of all; None if they do not fit together."""
    total = all_tables[0]
    if any(tables.has_report for tables in all_tables) or total.overlaps(all_tables[1:]):
        return None
    for tables in all_tables[1:]:
        total.add(tables)
    return None if total.is_over_budget else total
