"""What all warps of the plain executor share: memory, budget, and the account of what happened."""

from __future__ import annotations

from .counters import Tally
from .faults import NOBODY, Event, is_watched_for
from .launch import Launch
from .numpy_memory import Memory
from .observer import Observer


class Account:
    """The account of a launch; `epoch`, `votes` and `voters` are those of the running block's last barrier."""

    def __init__(self, launch: Launch, observer: Observer | None):
        self.launch = launch
        self.observer = observer
        count = len(launch.entry.graph.blocks)
        self.tally = Tally([0] * count, [0] * count, [0] * count)
        self.events: dict[tuple[int, int, int], Event] = {}
        self.order = 0
        self.time = 0
        self.memory = {n: Memory(b.data, b.initialised, b.defined) for n, b in enumerate(launch.arrays) if n}
        self.budget = launch.launch_budget
        self.is_watched = True
        self.watched_reports = 0
        self.epoch = self.votes = self.voters = 0

    def watched_kinds(self) -> int:
        return sum(is_watched_for(code, array) for _, code, array in self.events)

    def now(self) -> int:
        """Counts up: each call is later than the one before."""
        self.time += 1
        return self.time

    def record(
        self,
        pc: int,
        code: int,
        array: int,
        thread: int,
        block: int,
        address: int,
        other: int = NOBODY,
        other_pc: int | None = None,
    ) -> None:
        """Note a misbehaviour; only the first of its kind at an instruction and array is kept."""
        if is_watched_for(code, array):
            if not self.is_watched:
                return
            self.watched_reports += 1
        event = self.events.get((pc, code, array))
        if event:
            event.count += 1
        else:
            self.events[pc, code, array] = Event(
                pc, code, array, self.order, 1, thread, block, address, other, other_pc
            )
        self.order += 1
