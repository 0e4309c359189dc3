"""The plain executor: one warp after the other, one instruction after the other, in NumPy.

It is the oracle of the compiled executor and states the engine's meaning:

- Blocks run in order of their linear index. Warps run in order within a block, each to its end or to a barrier; when
  all that are left wait, they go on in the same order.
- At a conditional branch whose lanes disagree, those that take it go first; the others follow; both meet
  again at the immediate post-dominator of the branch.
- An access of a faulting lane does not happen: a load gives 0. Execution goes on.
- Registers that were never written hold 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..result import Counters, Fault
from . import counters, faults
from .addresses import SHARED_WINDOW
from .faults import APART, PATIENCE
from .launch import WARP, Launch
from .numpy_account import Account
from .numpy_memory import Memory
from .numpy_warp import OutOfBudget, Wait, Warp
from .observer import Observer


def run(launch: Launch, observer: Observer | None = None) -> tuple[list[Fault], Counters]:
    """Execute a launch; an observer sees every instruction, and may ask for one block alone."""
    with np.errstate(all="ignore"):
        return _Executor(launch, observer).run()


class _Executor(Account):
    def run(self) -> tuple[list[Fault], Counters]:
        found: list[Fault] = []
        idle = 0  # work of misbehaving blocks since the last that showed something new
        try:
            for block in self._blocks():
                budget, reports, kinds = self.budget, self.watched_reports, self.watched_kinds()
                self._run_block(block)
                work = budget - self.budget
                self.tally.longest_block = max(self.tally.longest_block, work)
                if self.watched_reports > reports:
                    idle = 0 if self.watched_kinds() > kinds else idle + work
                    self.is_watched = self.is_watched and idle <= PATIENCE
        except OutOfBudget as stop:
            executions = self.tally.executions
            found.append(faults.budget_fault(self.launch, stop.pc, stop.thread, stop.block, executions))
        for number, array in enumerate(self.launch.arrays):
            if array.defined is not None:
                array.defined[:] = self.memory[number].written if self.launch.checks and self.is_watched else 1
        if not self.launch.checks:
            return [], Counters()
        found = faults.explain(self.launch, list(self.events.values()), self.is_watched) + found
        self.tally.work = self.launch.launch_budget - self.budget
        return found, counters.report(self.launch, self.tally)

    def _blocks(self) -> Iterable[int]:
        only = self.observer.only_block if self.observer else None
        every = range(self.launch.blocks)
        return every if only is None else [only] if only in every else []

    def _run_block(self, block: int) -> None:
        """Each warp runs to its end or to a barrier; when all that are left wait, they go on."""
        self.memory[SHARED_WINDOW] = Memory(np.full(self.launch.shared_bytes, 0xFF, np.uint8), False)
        self.epoch = 0
        warps = [Warp(self, block, w) for w in range(self.launch.warps_per_block)]
        runs = [warp.run() for warp in warps]
        waiting: dict[int, Wait] = {}
        running = list(range(len(warps)))
        while running:
            for w in running:
                wait = next(runs[w], None)
                if wait is None:
                    waiting.pop(w, None)
                else:
                    waiting[w] = wait
            running = sorted(waiting)
            if running:
                self._meet(block, warps, waiting)

    def _meet(self, block: int, warps: list[Warp], waiting: dict[int, Wait]) -> None:
        """All warps that are left wait: they should wait at the same barrier, and none should have ended."""
        first, (pc, _) = min(waiting.items())
        apart = [(w, wait.pc) for w, wait in sorted(waiting.items()) if wait.pc != pc]
        ended: list[tuple[int, int | None]] = [(w, None) for w in range(len(warps)) if w not in waiting]
        for other, other_pc in [*apart, *ended][:1]:
            who = 1 + block * self.launch.threads_per_block + other * WARP
            self.record(pc, APART, 0, first * WARP, block, 0, who, other_pc)
        self.votes = sum(wait.votes for wait in waiting.values())
        self.voters = sum(int(warps[w].initial.sum()) for w in waiting)
        self.epoch += 1
