"""Memory that threads share, byte by byte, and who touched it: the plain executor's judge of races."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Sync(NamedTuple):
    """A lane's last __syncwarp: when, and the lanes that took part (all ones: every lane that lived)."""

    time: int
    lanes: int


@dataclass(frozen=True)
class Mark:
    """Somebody did something: who, when, and at which instruction. `thread` is linear in the grid."""

    thread: int
    block: int
    warp: int
    lane: int
    epoch: int  # barriers of the block before it
    time: int
    pc: int
    synced: Sync

    def is_ordered_after(self, earlier: Mark) -> bool:
        """Whether something makes what was done earlier come first."""
        if self.block != earlier.block:
            return False
        if self.thread == earlier.thread or earlier.epoch < self.epoch:
            return True
        together = self.warp == earlier.warp and self.synced.lanes >> earlier.lane & 1
        return bool(together) and earlier.time < self.synced.time


#: For each byte, the last mark of each thread.
Marks = dict[int, dict[int, Mark]]


class Memory:
    """An array, or the shared memory of a block: its bytes, which of them are defined, and who touched them."""

    def __init__(self, data: np.ndarray, initialised: bool, defined: np.ndarray | None = None):
        self.data = data
        self.written = np.full(len(data), initialised) if initialised or defined is None else defined.astype(bool)
        self.writer: dict[int, Mark] = {}
        self.readers: Marks = {}
        self.updaters: Marks = {}
        self.pending: set[int] = set()  # words that asynchronous copies have yet to fill

    def is_pending(self, span: range) -> bool:
        return any(byte // 4 in self.pending for byte in span)

    def note_writer(self, span: range, me: Mark) -> None:
        self.written[span.start : span.stop] = True
        self.writer.update(dict.fromkeys(span, me))

    def note(self, marks: Marks, span: range, me: Mark) -> None:
        for byte in span:
            marks.setdefault(byte, {})[me.thread] = me

    def racing_writer(self, span: range, me: Mark) -> Mark | None:
        """The last writer of the first byte on which nothing orders the two of us."""
        found = (self.writer[b] for b in span if b in self.writer)
        return next((w for w in found if not me.is_ordered_after(w)), None)

    def racing(self, marks: Marks, span: range, me: Mark) -> Mark | None:
        """Of the first byte that others touched with nothing to order them before me: the last of all others."""
        for byte in span:
            others = [m for m in marks.get(byte, {}).values() if m.thread != me.thread]
            if any(not me.is_ordered_after(m) for m in others):
                return _last(others)
        return None


def _last(marks: Iterable[Mark]) -> Mark:
    return max(marks, key=lambda m: m.time)
