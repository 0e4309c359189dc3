"""Loads of shared memory that belong together: off one address, with nothing in between that could change anything.

An unrolled loop reads s[i], s[i + 1], … : the same lanes, at distances that the compiler knows. Such a group is checked
once, for all words that it touches. Which words these are, in runs of neighbours, and which lane reads each of them,
follows from the pattern of the lanes; it is worked out when the pattern changes and kept in the group's record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .access import (
    add_to_tally,
    array_record,
    exists,
    extent,
    field_of,
    fill_bytes,
    shared_row,
    tally_of,
    widen,
)
from .addresses import SHARED_WINDOW, window
from .async_copies import STORE_OPCODE
from .barriers import is_warp_barrier
from .cfg import destinations
from .context import ArrayField, Slot, get
from .ir import LANES, FunctionBuilder, Value, integer, iota, suffix, vector
from .program import Entry, is_access
from .ptx import Address, Instruction, Register, Vector
from .requests import BANKS, WORD
from .shared_access import gather, pointers
from .tags import SEVERAL_LANES, Tags
from .warp_access import Prover

#: Words from the lowest to the highest that a group may touch, and runs of neighbouring words.
MOST_WORDS, MOST_RUNS = 4096, 256
#: Patterns in a row that soon changed again: then the loads are better off one by one.
MOST_MISSES = 16
#: A pattern that lasts for so many executions was worth its study.
WORTHWHILE_REPEATS = 4

_ROW = vector("i32")
_ONE = integer(1, "i64")


class GroupField:
    """Where the parts of a group's record stand, in bytes."""

    OFFSETS = 0  # <32 x i32>: bytes from the first lane's word; 0 in lanes that did not run
    LANES = 128  # i32: those that ran
    USABLE = 132  # i32: 1 if the runs below are known
    REPEATS = 136  # i64: executions that are not yet counted
    TALLY = 144  # five i64: AccessField of one load
    MISSES = 184  # i64: patterns studied
    FIRST_WORD = 192  # i64: the lowest word, from the first lane's
    RUN_COUNT = 200  # i64
    RUNS = 208  # pairs of i32: first word from FIRST_WORD, and words
    READERS = RUNS + 8 * MOST_RUNS  # i32 for each word: the lane that reads it, or SEVERAL_LANES
    BYTES = -(-(READERS + 4 * (MOST_WORDS + LANES)) // 64) * 64


@dataclass(frozen=True)
class Group:
    """Loads of 4 bytes off one register: their pcs, and what is added to the register for each."""

    pcs: tuple[int, ...]
    offsets: tuple[int, ...]


def find(entry: Entry) -> list[Group]:
    """The groups of an entry's blocks."""
    found = []
    for block in entry.graph.blocks:
        open_groups: dict[str, list[tuple[int, int]]] = {}
        closed: list[list[tuple[int, int]]] = []

        def close(name: str, open_groups=open_groups, closed=closed) -> None:
            closed.append(open_groups.pop(name))

        for pc, ins in enumerate(entry.graph.code(block), block.start):
            place = None if pc in entry.guesses else _groupable(ins)
            if place is not None:
                open_groups.setdefault(place.base.name, []).append((pc, place.offset))  # type: ignore[union-attr]
            elif _changes_shared(ins):
                for name in list(open_groups):
                    close(name)
            for name in destinations(ins):
                if name in open_groups:
                    close(name)
        closed += open_groups.values()
        found += [Group(*(tuple(part) for part in zip(*loads))) for loads in closed if len(loads) > 1]
    return found


def _groupable(ins: Instruction) -> Address | None:
    if ins.opcode != "ld" or not ins.has("shared") or ins.guard:
        return None
    to, place = ins.operands
    fits = ins.type.size == WORD and ins.width == 1 and not isinstance(to, Vector)
    if not fits or not isinstance(place, Address) or place.offset % WORD or not isinstance(place.base, Register):
        return None
    return place


def _changes_shared(ins: Instruction) -> bool:
    """Whether what an instruction does may matter to a load of shared memory."""
    if is_warp_barrier(ins):
        return True
    if ins.opcode == "cp" or ins.opcode == STORE_OPCODE:
        return True
    return is_access(ins) and ins.opcode != "ld" and not ins.has("global") and not ins.has("local")


# -- in compiled code ------------------------------------------------------------------------------


def tables(entry: Entry, groups: list[Group]) -> tuple[list[list[int]], list[list[int]]]:
    """For each group its first member, their number, its lowest offset and the span to its highest; then all members:
    offset and site."""
    site_of = {pc: site for site, pc in enumerate(entry.sites)}
    heads: list[list[int]] = []
    members: list[list[int]] = []
    for group in groups:
        lowest = min(group.offsets)
        heads.append([len(members), len(group.pcs), lowest, max(group.offsets) - lowest])
        members += [[offset, site_of[pc]] for pc, offset in zip(group.pcs, group.offsets)]
    return heads, members


def _record(f: FunctionBuilder, context: Value, group: Value) -> Value:
    return f.at(get(f, context, Slot.GROUP_RECORDS, "ptr"), f.mul(widen(f, group), GroupField.BYTES))


def _head(f: FunctionBuilder, context: Value, group: Value) -> Value:
    return f.at(get(f, context, Slot.GROUPS, "ptr"), f.mul(widen(f, group), 4 * 8))


def _member(f: FunctionBuilder, context: Value, index: Value) -> tuple[Value, Value]:
    """Offset and site of a member."""
    place = f.at(get(f, context, Slot.GROUP_MEMBERS, "ptr"), f.mul(index, 2 * 8))
    return f.load("i64", place), f.load("i64", place, 8)


def fetch() -> FunctionBuilder:
    """Words of shared memory at the lanes' offsets, which were checked before."""
    f = FunctionBuilder("fetch_shared", _ROW, [("ptr", "context"), (_ROW, "offsets"), ("i32", "active")])
    context, offsets, active = f.arguments.values()
    f.ret(gather(f, _ROW, pointers(f, get(f, context, Slot.SHARED, "ptr"), offsets), active))
    return f


def check() -> FunctionBuilder:
    """Whether all loads of a group have nothing to report; then they are counted, and the lanes noted as readers."""
    return _Check().function()


class _Check(Prover):
    def __init__(self) -> None:
        arguments = [("ptr", "context"), (vector("i64"), "addresses"), ("i32", "active"), ("i32", "group")]
        self.f = FunctionBuilder("check_group", "i1", arguments)
        self.context, self.addresses, self.active, self.group = self.f.arguments.values()
        self.slow = self.f.label("no")

    def function(self) -> FunctionBuilder:
        f, context = self.f, self.context
        self.record = _record(f, context, self.group)
        shared = array_record(f, context, shared_row(f, context))
        self.require(f.icmp("eq", get(f, context, Slot.CAREFUL), 0))
        self.require(f.icmp("ne", self.active, 0))
        self.require(f.icmp("ult", f.load("i64", self.record, GroupField.MISSES), MOST_MISSES))
        first = self._find()
        self.require(f.icmp("eq", f.load("i32", self.record, GroupField.USABLE), 1))
        word = f.binary("ashr", f.cast("sext", first, "i64"), 2)
        start = f.mul(f.add(word, f.load("i64", self.record, GroupField.FIRST_WORD)), WORD)
        writer, reader = (field_of(f, shared, field) for field in (ArrayField.WRITER, ArrayField.READER))
        pending, updater = (field_of(f, shared, field) for field in (ArrayField.PENDING, ArrayField.UPDATER))
        with f.when(exists(f, pending)):
            self._check_pending(f.at(pending, start))
        with f.when(exists(f, writer)):
            self.require(f.icmp("eq", field_of(f, shared, ArrayField.SHIFT, "i64"), 2))
            self._require_words(f.at(writer, start), Tags.is_unreadable)
            with f.when(exists(f, updater)):
                self._require_words(f.at(updater, start), Tags.is_foreign)
            self._note_readers(f.at(reader, start))
        f.increment(self.record, GroupField.REPEATS, 1)
        f.ret(Value("i1", "true"))
        f.place(self.slow)
        f.ret(Value("i1", "false"))
        return f

    def _find(self) -> Value:
        """The first lane's offset, once all loads lie inside the array that is meant and the pattern is known."""
        f, context = self.f, self.context
        head = _head(f, context, self.group)
        lowest, span = f.load("i64", head, 16), f.load("i64", head, 24)
        _, site = _member(f, context, f.load("i64", head))
        begin, end = extent(f, context, f.cast("trunc", site, "i32"))
        exact = f.sub(self.addresses, f.splat(integer(window(SHARED_WINDOW), "i64")))
        room = f.intrinsic("smax", f.sub(f.sub(f.sub(end, begin), span), WORD - 1), integer(0, "i64"))
        from_begin = f.add(exact, f.splat(f.sub(lowest, begin)))
        self.require(self.holds(f.icmp("ult", from_begin, f.splat(room))))
        low = f.cast("trunc", exact, _ROW)
        self.require(self.holds(f.icmp("eq", f.and_(low, WORD - 1), 0)))
        first = f.extract(low, f.lowest_bit(self.active))
        relative = f.select(f.to_lanes(self.active), f.sub(low, f.splat(first)), integer(0, _ROW))
        same = f.to_mask(f.icmp("eq", f.load(_ROW, self.record, GroupField.OFFSETS, align=64), relative))
        lanes = f.load("i32", self.record, GroupField.LANES)
        known = f.and_(f.icmp("eq", same, -1), f.icmp("eq", lanes, self.active))
        with f.when(f.not_(known)):
            offsets = f.alloca(_ROW, align=64)
            f.store(relative, offsets, align=64)
            f.call("void", "study_group", [context, self.group, offsets, self.active])
        return first

    @contextmanager
    def _words(self) -> Iterator[tuple[Value, Value, Value]]:
        """Code that runs for up to 32 neighbouring words at a time: where their tags stand, a mask, their readers."""
        f = self.f
        position = f.alloca("i64")
        f.store(integer(0, "i64"), position)
        with f.repeat(f.load("i64", self.record, GroupField.RUN_COUNT)) as run:
            place = f.at(f.at(self.record, GroupField.RUNS), f.mul(run, 8))
            begin, length = (widen(f, f.load("i32", place, at)) for at in (0, 4))
            with f.repeat(f.binary("lshr", f.add(length, LANES - 1), 5)) as step:
                done = f.mul(step, LANES)
                left = f.cast("trunc", f.sub(length, done), "i32")
                mask = f.icmp("slt", iota("i32"), f.splat(left))
                at = f.mul(f.add(f.load("i64", position), done), 4)
                readers = f.load(_ROW, f.at(self.record, GroupField.READERS), at, align=4)
                yield f.mul(f.add(begin, done), 4), mask, readers
            f.increment(position, 0, length)

    def _check_pending(self, pending: Value) -> None:
        """No asynchronous copy has yet to fill a word."""
        f = self.f
        marks = f.alloca(_ROW, align=64)
        f.store(integer(0, _ROW), marks, align=64)
        with self._words() as (place, mask, _):
            row = _load_row(f, f.at(pending, place), mask)
            f.store(f.or_(f.load(_ROW, marks, align=64), row), marks, align=64)
        none = f.icmp("eq", f.load(_ROW, marks, align=64), 0)
        self.require(f.icmp("eq", f.to_mask(none), -1))

    def _require_words(self, shadow: Value, is_unclear: Callable[[Tags, Value, Value], Value]) -> None:
        """No word's tag is unclear to its reader."""
        f = self.f
        bad = f.alloca("i32")
        f.store(integer(0), bad)
        tags = Tags(f, self.context, is_row=True)
        with self._words() as (place, mask, readers):
            tag = _load_row(f, f.at(shadow, place), mask)
            unclear = f.and_(is_unclear(tags, tag, f.or_(tags.mine, readers)), mask)
            f.store(f.or_(f.load("i32", bad), f.to_mask(unclear)), bad)
        self.require(f.icmp("eq", f.load("i32", bad), 0))

    def _note_readers(self, reader: Value) -> None:
        f = self.f
        tags = Tags(f, self.context, is_row=True)
        with self._words() as (place, mask, readers):
            tag = _load_row(f, f.at(reader, place), mask)
            me = f.or_(tags.mine, readers)
            joined = f.select(tags.is_foreign(tag, me), tags.with_reader(tag, me), me)
            arguments = [joined, f.at(reader, place), integer(4), mask]
            f.call("void", f"llvm.masked.store.{suffix(_ROW)}.p0", arguments)


def _load_row(f: FunctionBuilder, place: Value, mask: Value) -> Value:
    arguments = [place, integer(4), mask, integer(0, _ROW)]
    return f.call(_ROW, f"llvm.masked.load.{suffix(_ROW)}.p0", arguments)


def study() -> FunctionBuilder:
    """Learn a group's new pattern: count what is known of the old one, and find the words and their readers."""
    arguments = [("ptr", "context"), ("i32", "group"), ("ptr", "offsets"), ("i32", "lanes")]
    f = FunctionBuilder("study_group", "void", arguments)
    context, group, offsets, lanes = f.arguments.values()
    record, head = _record(f, context, group), _head(f, context, group)
    first_member, count = f.load("i64", head), f.load("i64", head, 8)
    lowest, span = f.load("i64", head, 16), f.load("i64", head, 24)
    _settle(f, context, record, first_member, count)
    relative = f.load(_ROW, offsets, align=64)
    f.store(relative, record, GroupField.OFFSETS, align=64)
    f.store(lanes, record, GroupField.LANES)
    f.store(integer(0), record, GroupField.USABLE)
    wide, result = f.alloca(vector("i64"), align=64), f.alloca("i64", 2)
    f.store(f.cast("sext", relative, vector("i64")), wide, align=64)
    f.call("void", "count_banks", [wide, lanes, integer(WORD, "i64"), Value("i1", "true"), result])
    words = f.load("i64", result, 8)
    ideal = f.binary("lshr", f.add(words, BANKS - 1), (BANKS - 1).bit_length())
    tally = f.at(record, GroupField.TALLY)
    for slot in range(5):
        f.store(integer(0, "i64"), tally, 8 * slot)
    add_to_tally(f, tally, _ONE, widen(f, f.popcount(lanes)), f.load("i64", result), ideal, f.mul(words, WORD))
    least, most = (f.alloca("i64") for _ in range(2))
    f.store(integer(1 << 62, "i64"), least)
    f.store(integer(-(1 << 62), "i64"), most)
    with f.each_lane(lanes) as lane:
        offset = f.load("i64", wide, f.mul(widen(f, lane), 8))
        f.store(f.intrinsic("smin", f.load("i64", least), offset), least)
        f.store(f.intrinsic("smax", f.load("i64", most), offset), most)
    begin = f.binary("ashr", f.add(f.load("i64", least), lowest), 2)
    end = f.add(f.binary("ashr", f.add(f.add(f.load("i64", most), lowest), span), 2), 1)
    f.store(begin, record, GroupField.FIRST_WORD)
    length = f.sub(end, begin)
    with f.when(f.icmp("ugt", length, MOST_WORDS)):
        f.store(integer(MOST_MISSES, "i64"), record, GroupField.MISSES)
        f.ret()
    readers = f.alloca("i32", MOST_WORDS)
    fill_bytes(f, readers, f.mul(length, 4), 0xFF)
    with f.each_lane(lanes) as lane:
        offset = f.load("i64", wide, f.mul(widen(f, lane), 8))
        with f.repeat(count) as index:
            more, _ = _member(f, context, f.add(first_member, index))
            word = f.at(readers, f.mul(f.sub(f.binary("ashr", f.add(offset, more), 2), begin), 4))
            known = f.load("i32", word)
            alone = f.or_(f.icmp("eq", known, -1), f.icmp("eq", known, lane))
            f.store(f.select(alone, lane, integer(SEVERAL_LANES)), word)
    _write_runs(f, record, readers, length)
    f.ret()
    return f


def _settle(f: FunctionBuilder, context: Value, record: Value, first_member: Value, count: Value) -> None:
    """Count the executions of the pattern that ends now, for each load; was it worth its study?"""
    repeats = f.load("i64", record, GroupField.REPEATS)
    with f.repeat(count) as index:
        _, site = _member(f, context, f.add(first_member, index))
        tally = tally_of(f, context, f.cast("trunc", site, "i32"), shared_row(f, context))
        for slot in range(5):
            f.increment(tally, 8 * slot, f.mul(f.load("i64", record, GroupField.TALLY + 8 * slot), repeats))
    f.store(integer(0, "i64"), record, GroupField.REPEATS)
    misses = f.add(f.load("i64", record, GroupField.MISSES), 1)
    soon = f.icmp("ult", repeats, WORTHWHILE_REPEATS)
    f.store(f.select(soon, misses, integer(0, "i64")), record, GroupField.MISSES)


def _write_runs(f: FunctionBuilder, record: Value, readers: Value, length: Value) -> None:
    """The runs of words that have readers, and the readers side by side."""
    runs, position, inside = f.alloca("i64"), f.alloca("i64"), f.alloca("i1")
    f.store(integer(0, "i64"), runs)
    f.store(integer(0, "i64"), position)
    f.store(Value("i1", "false"), inside)
    with f.repeat(length) as word:
        reader = f.load("i32", readers, f.mul(word, 4))
        is_read = f.icmp("ne", reader, -1)
        with f.when(is_read):
            with f.when(f.not_(f.load("i1", inside))):
                with f.when(f.icmp("eq", f.load("i64", runs), MOST_RUNS)):
                    f.store(integer(MOST_MISSES, "i64"), record, GroupField.MISSES)
                    f.ret()
                place = f.at(f.at(record, GroupField.RUNS), f.mul(f.load("i64", runs), 8))
                f.store(f.cast("trunc", word, "i32"), place)
                f.store(integer(0), place, 4)
                f.increment(runs, 0, 1)
            place = f.at(f.at(record, GroupField.RUNS), f.mul(f.sub(f.load("i64", runs), 1), 8))
            f.store(f.add(f.load("i32", place, 4), 1), place, 4)
            f.store(reader, f.at(record, GroupField.READERS), f.mul(f.load("i64", position), 4))
            f.increment(position, 0, 1)
        f.store(is_read, inside)
    f.store(f.load("i64", runs), record, GroupField.RUN_COUNT)
    f.store(integer(1), record, GroupField.USABLE)
