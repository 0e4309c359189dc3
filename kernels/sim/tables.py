"""The memory behind a context: the tables that an entry's machine code works on, set up for a launch and read back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..result import Counters, Fault
from . import counters, faults, pointers, shared_groups, tags
from .addresses import LOCAL_WINDOW, SHARED_WINDOW
from .async_copies import QueueField
from .context import (
    ACCESS_FIELDS,
    ARRAY_FIELDS,
    AUTHOR_FIELDS,
    BLOCK_FIELDS,
    EVENT_CODES,
    EVENT_FIELDS,
    LOCAL_ROW,
    MEMORY_ROWS,
    NO_SITE,
    PATTERN_BYTES,
    SHARED_ROW,
    WARP_FIELDS,
    AccessField,
    ArrayField,
    BlockField,
    EventField,
    Pattern,
    Slot,
    Stop,
)
from .counters import AccessTally, Tally
from .faults import Event
from .launch import WARP, Buffer, Launch
from .program import Entry
from .shared_groups import GroupField


class Watch:
    """What the accesses of an entry ask for: granules, and which arrays can race."""

    def __init__(self, entry: Entry):
        self.granule = pointers.granule(entry, "global")
        self.shared_granule = pointers.granule(entry, "shared")
        self.touched = pointers.touched(entry)
        self.updates_shared = pointers.updates_shared(entry)
        heads, members = shared_groups.tables(entry, shared_groups.find(entry))
        self.groups, self.group_members = np.array(heads, np.int64), np.array(members, np.int64)


class Shadow(NamedTuple):
    """The tags of an array's last writers and, if the entry loads from it, readers."""

    writer: np.ndarray
    reader: np.ndarray | None


class Tables:
    """All tables of one run. The arrays are kept here as long as machine code may use them.

    thorough   who touched what is known by line: every access to arrays that can race is taken lane by lane, and
               those to shared memory while `is_careful`
    """

    def __init__(self, launch: Launch, watch: Watch, frame_bytes: int, thorough: bool):
        self.launch = launch
        self.watch = watch
        self.thorough = thorough
        self.is_watched = True
        self.sites = launch.entry.sites
        self.arrays = len(launch.arrays)
        self.kept: list[np.ndarray] = []
        self.shadows: list[Shadow] = []
        self.written: dict[int, np.ndarray] = {}  # arrays that began undefined: granules that are defined
        self.context = np.zeros(len(Slot), np.int64)
        rows = self.arrays + MEMORY_ROWS
        self.events = np.zeros((len(self.sites), rows, EVENT_CODES, EVENT_FIELDS), np.int64)
        self.tallies = np.zeros((len(self.sites), rows, ACCESS_FIELDS), np.int64)
        self.blocks = np.zeros((len(launch.entry.graph.blocks), BLOCK_FIELDS), np.int64)
        self.patterns = aligned_zeros(PATTERN_BYTES * len(self.sites))
        self.groups = aligned_zeros(GroupField.BYTES * len(watch.groups))
        self._fill_numbers()
        self._fill_pointers(frame_bytes)

    # -- setting up ------------------------------------------------------------------------------

    def _fill_numbers(self) -> None:
        launch, context = self.launch, self.context
        context[Slot.ARRAY_COUNT] = self.arrays
        context[Slot.LOCAL_SIZE] = launch.entry.local_layout[1]
        context[Slot.SHARED_BYTES] = launch.shared_bytes
        context[Slot.FIELD_BITS] = tags.field_bits(launch.warps_per_block)
        context[Slot.CAREFUL] = self.thorough
        context[Slot.WARPS] = launch.warps_per_block
        context[Slot.BLOCK_END] = launch.blocks
        context[Slot.THREADS_PER_BLOCK] = launch.threads_per_block
        context[Slot.BLOCK_X : Slot.BLOCK_Z + 1] = launch.block
        context[Slot.GRID_X : Slot.GRID_Z + 1] = launch.grid
        context[Slot.WARP_BUDGET] = launch.warp_budget
        context[Slot.LAUNCH_BUDGET] = launch.launch_budget

    def _fill_pointers(self, frame_bytes: int) -> None:
        launch = self.launch
        waits = launch.entry.has_barriers
        places = launch.warps_per_block if waits else 1  # warps that never wait may share theirs
        local = WARP * launch.entry.local_layout[1]
        self.context[Slot.FRAME_STRIDE] = frame_bytes if waits else 0
        self.context[Slot.LOCAL_STRIDE] = local if waits else 0
        if launch.entry.has_copies:
            self.context[Slot.QUEUES] = self._keep(aligned_zeros(launch.warps_per_block * QueueField.BYTES))
        shared = aligned_zeros(launch.shared_bytes)
        self.records = self._records(shared)
        for slot, table in {
            Slot.ARRAYS: self.records,
            Slot.SHARED: shared,
            Slot.EVENTS: self.events,
            Slot.ACCESSES: self.tallies,
            Slot.BLOCKS: self.blocks,
            Slot.PATTERNS: self.patterns,
            Slot.GROUPS: self.watch.groups,
            Slot.GROUP_MEMBERS: self.watch.group_members,
            Slot.GROUP_RECORDS: self.groups,
            Slot.PARAMS: np.frombuffer(launch.params + bytes(8), np.uint8),
            Slot.THREADS: self._threads(),
            Slot.DATA: aligned_zeros(16 * WARP),
            Slot.MASKS: self._masks(),
            Slot.WARP_RECORDS: np.zeros((launch.warps_per_block, WARP_FIELDS), np.int64),
            Slot.EXTENTS: self._extents(),
            Slot.FRAMES: aligned_zeros(places * frame_bytes),
            Slot.SYNC_TAGS: np.zeros(WARP, np.uint32),
            Slot.SYNC_LANES: np.zeros(WARP, np.uint32),
            Slot.LOCAL: np.zeros(max(places * local, 1), np.uint8),
            Slot.LOCAL_WRITTEN: np.zeros(max(places * local, 1), np.uint8),
        }.items():
            self.context[slot] = self._keep(table)

    def _keep(self, table: np.ndarray) -> int:
        self.kept.append(table)
        return table.ctypes.data

    def _records(self, shared: np.ndarray) -> np.ndarray:
        records = np.zeros((self.arrays + MEMORY_ROWS, ARRAY_FIELDS), np.int64)
        for number, array in enumerate(self.launch.arrays):
            records[number, ArrayField.BASE] = self._keep(array.data)
            records[number, ArrayField.SIZE] = len(array.data)
            records[number, ArrayField.SHIFT] = self.watch.granule.bit_length() - 1
            if number and self.launch.checks:
                self._add_shadows(records[number], number, array)
        record = records[self.arrays + SHARED_ROW]
        record[ArrayField.BASE] = shared.ctypes.data
        record[ArrayField.SIZE] = len(shared)
        record[ArrayField.SHIFT] = self.watch.shared_granule.bit_length() - 1
        if self.launch.checks:
            fields = [ArrayField.WRITER, ArrayField.READER]
            fields += [ArrayField.UPDATER] if self.watch.updates_shared else []
            self._add_tags(record, len(shared) // self.watch.shared_granule + 1, *fields)
            if self.launch.entry.has_copies:
                record[ArrayField.PENDING] = self._keep(np.zeros(len(shared) // 4 + 1, np.uint32))
        return records

    def _add_shadows(self, record: np.ndarray, number: int, array: Buffer) -> None:
        """Shadows for what can go wrong with an array: undefined contents, and races if it is stored to."""
        count = len(array.data) // self.watch.granule + 1
        touched = self.watch.touched
        if not array.initialised:
            self.written[number] = self._written(array, count)
            record[ArrayField.WRITTEN] = self._keep(self.written[number])
        is_stored, is_loaded, is_updated = (
            self.launch.is_among(number, names) for names in (touched.stored, touched.loaded, touched.updated)
        )
        fields = [ArrayField.WRITER] if is_stored or is_updated else []
        fields += [ArrayField.READER] if fields and is_loaded else []
        fields += [ArrayField.UPDATER] if is_updated else []
        if fields:
            made = self._add_tags(record, count, *fields)
            self.shadows.append(Shadow(made[0], made[1] if len(made) > 1 else None))

    def _written(self, array: Buffer, count: int) -> np.ndarray:
        """For each granule whether all of its bytes are defined."""
        written = np.zeros(count, np.uint8)
        if array.defined is not None and array.defined.any():
            granule = self.watch.granule
            whole = array.defined[: len(array.data) // granule * granule]
            written[: count - 1] = 1
            for byte in range(granule):  # in long strides: much faster than granule by granule
                written[: count - 1] &= whole[byte::granule]
        return written

    def _add_tags(self, record: np.ndarray, count: int, *fields: ArrayField) -> list[np.ndarray]:
        made = [np.zeros(count, np.uint32) for _ in fields]
        for field, tags_of_field in zip(fields, made):
            record[field] = self._keep(tags_of_field)
        if self.thorough:
            record[ArrayField.AUTHORS] = self._keep(np.zeros((count, AUTHOR_FIELDS), np.uint32))
        return made

    def _extents(self) -> np.ndarray:
        extents = np.zeros((len(self.sites), 2), np.int64)
        for site, pc in enumerate(self.sites):
            meant = self.launch.shared_arrays(pc)
            if meant:
                extents[site] = min(a.begin for a in meant), max(a.end for a in meant)
        return extents

    def _threads(self) -> np.ndarray:
        """tid of every lane of a block, in 64-byte aligned rows."""
        linear = np.arange(self.launch.warps_per_block * WARP).reshape(-1, WARP)
        x, y, _ = self.launch.block
        coordinates = np.stack([linear % x, linear // x % y, linear // (x * y)], axis=1).astype(np.int32)
        return aligned(coordinates.reshape(-1).view(np.uint8))

    def _masks(self) -> np.ndarray:
        linear = np.arange(self.launch.warps_per_block * WARP).reshape(-1, WARP)
        exists = linear < self.launch.threads_per_block
        return (exists.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1).astype(np.uint32)

    # -- while it runs ---------------------------------------------------------------------------

    def be_careful(self, is_careful: bool) -> None:
        """Whether to take accesses to shared memory lane by lane from now on, between blocks."""
        self.context[Slot.CAREFUL] = is_careful

    def be_hasty(self) -> None:
        """End each run after the first block that has anything to report."""
        self.context[Slot.HASTY] = True

    def note_suspects(self) -> np.ndarray:
        """A byte for each block of the grid, which becomes 1 where anything happens that is watched for."""
        suspects = np.zeros(self.launch.blocks, np.uint8)
        self.context[Slot.SUSPECTS] = self._keep(suspects)
        return suspects

    def stop_watching(self) -> None:
        """Look no more for races and undefined contents of arrays and shared memory."""
        self.is_watched = False
        fields = ("WRITTEN", "WRITER", "READER", "UPDATER", "AUTHORS", "PENDING")
        self.records[:, [ArrayField[name] for name in fields]] = 0
        self.be_careful(False)

    @property
    def work_left(self) -> int:
        return int(self.context[Slot.LAUNCH_BUDGET])

    @property
    def watched_reports(self) -> int:
        """How often anything happened that is watched for."""
        return int(self.context[Slot.WATCHED])

    @property
    def watched_kinds(self) -> int:
        """In how many ways."""
        rows = np.arange(self.arrays + MEMORY_ROWS) != self.arrays + LOCAL_ROW
        return int(np.count_nonzero(self.events[:, rows][:, :, sorted(faults.WATCHED), EventField.COUNT]))

    # -- reading back ----------------------------------------------------------------------------

    @property
    def has_report(self) -> bool:
        """Whether anything went wrong."""
        return bool(self.context[Slot.ORDER] or self.context[Slot.STOPPED])

    @property
    def is_stopped(self) -> bool:
        """Whether the run ended before its last block."""
        return bool(self.context[Slot.STOPPED])

    @property
    def is_over_budget(self) -> bool:
        return bool(self.context[Slot.LAUNCH_BUDGET] < 0)

    def overlaps(self, others: list[Tables]) -> bool:
        """Whether any array element was stored to by one run and touched by another."""
        for shadows in zip(*(t.shadows for t in [self, *others])):
            written = np.zeros(len(shadows[0].writer), bool)
            touched = written.copy()
            for shadow in shadows:
                here = shadow.writer != 0
                there = here | (shadow.reader != 0) if shadow.reader is not None else here
                if (here & touched).any() or (there & written).any():
                    return True
                written |= here
                touched |= there
        return False

    def add(self, other: Tables) -> None:
        """Put another run's account to this one's."""
        for tables in (self, other):
            tables.count_patterns()
        for number, written in other.written.items():
            self.written[number] |= written
        self.tallies += other.tallies
        self.blocks += other.blocks
        self.context[Slot.LAUNCH_BUDGET] -= self.launch.launch_budget - other.context[Slot.LAUNCH_BUDGET]
        longest = max(t.context[Slot.LONGEST_BLOCK] for t in (self, other))
        self.context[Slot.LONGEST_BLOCK] = longest

    def note_defined(self) -> None:
        """Tell arrays that began undefined what the launch has written."""
        granule = self.watch.granule
        for number, array in enumerate(self.launch.arrays):
            if array.defined is None:
                continue
            known = self.written.get(number) if self.is_watched else None
            if known is None or known[: -(-len(array.data) // granule)].all():
                array.defined[:] = 1
            else:
                array.defined[:] |= np.repeat(known, granule)[: len(array.data)]

    def result(self) -> tuple[list[Fault], Counters]:
        self.note_defined()
        if not self.launch.checks:
            return [], Counters()
        found = faults.explain(self.launch, self._recorded_events(), self.is_watched) + self._budget_faults()
        return found, counters.report(self.launch, self._tally())

    def _recorded_events(self) -> list[Event]:
        found = []
        numbers = {self.arrays + LOCAL_ROW: LOCAL_WINDOW, self.arrays + SHARED_ROW: SHARED_WINDOW}
        for site, row, code in np.argwhere(self.events[..., EventField.COUNT]):
            fields = [int(v) for v in self.events[site, row, code]]
            other_site = fields[EventField.OTHER_SITE]
            found.append(
                Event(
                    self.sites[site],
                    int(code),
                    numbers.get(int(row), int(row)),
                    fields[EventField.ORDER],
                    fields[EventField.COUNT],
                    fields[EventField.THREAD],
                    fields[EventField.BLOCK],
                    fields[EventField.ADDRESS] & (2**64 - 1),
                    fields[EventField.OTHER],
                    None if other_site == NO_SITE else self.sites[other_site],
                )
            )
        return found

    def _budget_faults(self) -> list[Fault]:
        stopped = self.context[Slot.STOPPED]
        if stopped == Stop.CLOCK:
            return [faults.clock_fault(self.launch)]
        if not stopped:
            return []
        lanes = int(self.context[Slot.STOPPED_LANES])
        thread = int(self.context[Slot.THREAD]) + (lanes & -lanes).bit_length() - 1
        block = int(self.context[Slot.BLOCK])
        executions = [int(n) for n in self.blocks[:, BlockField.EXECUTIONS]]
        return [faults.budget_fault(self.launch, int(self.context[Slot.STOPPED_AT]), thread, block, executions)]

    def _tally(self) -> Tally:
        executions, lanes, divergent = (
            [int(n) for n in self.blocks[:, c]] for c in (BlockField.EXECUTIONS, BlockField.LANES, BlockField.DIVERGENT)
        )
        tally = Tally(executions, lanes, divergent)
        tally.work = self.launch.launch_budget - int(self.context[Slot.LAUNCH_BUDGET])
        tally.longest_block = int(self.context[Slot.LONGEST_BLOCK])
        self.count_patterns()
        numbers = {self.arrays + SHARED_ROW: SHARED_WINDOW}
        for site, row in np.argwhere(self.tallies[..., AccessField.THREADS]):
            fields = [int(v) for v in self.tallies[site, row, : len(AccessField)]]
            tally.accesses[self.sites[site], numbers.get(int(row), int(row))] = AccessTally(*fields)
        return tally

    def count_patterns(self) -> None:
        """Count the requests on shared memory whose pattern is the last that its site has seen."""
        words = self.patterns.view(np.int64).reshape(-1, PATTERN_BYTES // 8)
        first = Pattern.TALLY // 8
        each = words[:, first : first + len(AccessField)] * words[:, [Pattern.REPEATS // 8]]
        self.tallies[:, self.arrays + SHARED_ROW, : len(AccessField)] += each
        words[:, Pattern.REPEATS // 8] = 0
        for group, (first, count, *_) in enumerate(self.watch.groups):
            record = self.groups[group * GroupField.BYTES : (group + 1) * GroupField.BYTES].view(np.int64)
            tally = record[GroupField.TALLY // 8 :][: len(AccessField)] * record[GroupField.REPEATS // 8]
            sites = self.watch.group_members[first : first + count, 1]
            self.tallies[sites, self.arrays + SHARED_ROW, : len(AccessField)] += tally
            record[GroupField.REPEATS // 8] = 0


def aligned_zeros(size: int) -> np.ndarray:
    """Bytes that begin at a multiple of 64; pages that nobody writes cost nothing."""
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]  # keeps `room` alive


def aligned(data: np.ndarray) -> np.ndarray:
    """A copy of some bytes that begins at a multiple of 64."""
    copy = aligned_zeros(data.nbytes)
    copy[:] = data
    return copy
