"""Loads and stores of a whole warp at once, where there is nothing to report.

That holds where all active lanes lie inside one array, aligned, and no shadow objects; a few vector comparisons
prove it. Three shapes of access follow, the frequent ones first: a *run* (neighbouring lanes, neighbouring
elements), any other pattern of an array without shadows, any other pattern with them. All the rest goes to
`careful`, before anything has been changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .access import (
    add_to_tally,
    array_record,
    copy_bytes,
    exists,
    field_of,
    ideal_sectors,
    is_null,
    number_of,
    tally_of,
    unless_uncounted,
    widen,
)
from .addresses import WINDOW_BITS
from .context import ArrayField, Slot, get
from .ir import LANES, FunctionBuilder, Value, integer, iota, module_text, suffix, vector
from .tags import Tags
from .warp_access import WarpAccess

_TRUE = Value("i1", "true")


def access_module(width: int) -> str:
    """Functions load{width} and store{width} for addresses that differ between lanes."""
    return module_text([_FastAccess(is_load, width).function() for is_load in (True, False)])


@dataclass
class _Survey:
    """What a pass over the lanes of an access found. The counts hold only if the offsets rise."""

    rising: Value  # no lane's offset is below that of the lane before
    distinct: Value  # different offsets
    sectors: Value  # different sectors
    clean: Value  # no shadow objects


class _FastAccess(WarpAccess):
    def __init__(self, is_load: bool, width: int):
        super().__init__(f"{'load' if is_load else 'store'}{width}", is_load, width)

    def function(self) -> FunctionBuilder:
        f = self.f
        self._begin()
        labels = ("check", "run", "plain", "shadowed", "pattern", "scattered")
        check, run, plain, shadowed, pattern, scattered = map(f.label, labels)
        f.branch(self.unshadowed, plain, shadowed)
        f.place(shadowed)
        self._require_granules()
        f.branch(self.is_run, check, pattern)
        f.place(check)
        self._check_run()
        f.jump(run)
        f.place(plain)
        f.branch(self.is_run, run, scattered)
        f.place(run)
        self._copy_run()
        self._count_run()
        f.ret()
        f.place(scattered)
        self._count_survey(self._survey(self._load_lane if self.is_load else self._store_lane))
        f.ret()
        f.place(pattern)
        self._count_survey(self._load_pattern() if self.is_load else self._store_pattern())
        f.ret()
        return self.end()

    def _check_run(self) -> None:
        """A run must be clear of other threads; note me."""
        f = self.f
        if self.is_load:
            self._require_row(self.written, self._all_defined)
            self._require_row(self.writer, lambda: self._all_own(self.writer))
            with f.when(exists(f, self.reader)):
                self._mark_readers()
            return
        self._require_row(self.reader, lambda: self._all_own(self.reader))
        self._require_row(self.writer, lambda: self._all_own(self.writer))
        with f.when(exists(f, self.writer)):
            where = f.at(self.writer, f.mul(self._first_granule(), 4))
            self._store_row(self._my_tags(Tags(f, self.context, is_row=True)), where)
        with f.when(exists(f, self.written)):
            self._store_row(integer(1, vector("i8")), f.at(self.written, self._first_granule()))

    def _load_pattern(self) -> _Survey:
        f = self.f
        survey = self._survey(None, (self.writer,), defined=True)
        self.require(survey.clean)
        with f.each_lane(self.active) as lane:
            offset = self._load_lane(lane)
            with f.when(exists(f, self.reader)):
                where = f.at(self.reader, self._tag_offset(offset))
                tag, tags = f.load("i32", where), Tags(f, self.context)
                me = f.or_(tags.mine, lane)
                f.store(f.select(self._is_clean(tags, tag, me), me, tags.with_reader(tag, me)), where)
        return survey

    def _store_pattern(self) -> _Survey:
        """Lanes must not meet each other either: then each can be checked by itself."""
        f = self.f
        survey = self._survey(None, (self.writer, self.reader))
        lanes = widen(f, f.popcount(self.active))
        alone = f.and_(survey.rising, f.icmp("eq", survey.distinct, lanes))
        self.require(f.and_(alone, survey.clean))
        with f.each_lane(self.active) as lane:
            offset = self._store_lane(lane)
            with f.when(exists(f, self.writer)):
                me = f.or_(Tags(f, self.context).mine, lane)
                f.store(me, self.writer, self._tag_offset(offset))
            with f.when(exists(f, self.written)):
                f.store(integer(1, "i8"), self.written, f.binary("lshr", offset, self._log_width()))
        return survey

    # -- the shape of the access -----------------------------------------------------------------

    def _begin(self) -> None:
        """Find the array; leave for the slow path unless every active lane lies inside it, aligned."""
        f, width = self.f, self.width
        self.first = f.lowest_bit(self.active)
        address = f.extract(self.addresses, self.first)
        number = number_of(f, address)
        known = f.icmp("ult", number, get(f, self.context, Slot.ARRAY_COUNT))
        self.number = f.select(known, number, integer(0, "i64"))  # array 0 has no bytes
        self.record = array_record(f, self.context, self.number)
        start = f.binary("shl", self.number, WINDOW_BITS)
        self.offset = f.sub(address, start)
        self.offsets = f.sub(self.addresses, f.splat(start))
        size = field_of(f, self.record, ArrayField.SIZE, "i64")
        room = f.intrinsic("smax", f.sub(size, width - 1), integer(0, "i64"))
        fine = self.holds(f.icmp("ult", self.offsets, f.splat(room)))
        fine = f.and_(fine, is_null(f, field_of(f, self.record, ArrayField.AUTHORS)))
        if width > 1:
            fine = f.and_(fine, self.holds(f.icmp("eq", f.and_(self.offsets, width - 1), 0)))
        self.require(fine)
        self.base = field_of(f, self.record, ArrayField.BASE)
        self.written = field_of(f, self.record, ArrayField.WRITTEN)
        self.writer = field_of(f, self.record, ArrayField.WRITER)
        self.reader = field_of(f, self.record, ArrayField.READER)
        self.require(is_null(f, field_of(f, self.record, ArrayField.UPDATER)))
        nulls = [is_null(f, p) for p in (self.written, self.writer, self.reader)]
        self.unshadowed = f.and_(f.and_(nulls[0], nulls[1]), nulls[2])
        self._find_run()
        self.memory = f.alloca(vector("i64"), align=64)
        f.store(self.offsets, self.memory, align=64)

    def _find_run(self) -> None:
        """Are the active lanes neighbours that touch neighbouring elements? `origin`: where lane 0 would touch."""
        f = self.f
        self.origin = f.sub(self.offset, f.mul(widen(f, self.first), self.width))
        expected = f.add(f.splat(self.origin), iota("i64", self.width))
        shifted = f.binary("lshr", self.active, self.first)
        gapless = f.icmp("eq", f.and_(shifted, f.add(shifted, 1)), 0)
        self.is_run = f.and_(gapless, self.holds(f.icmp("eq", self.offsets, expected)))

    def _require_granules(self) -> None:
        f = self.f
        granule = f.binary("shl", integer(1, "i64"), field_of(f, self.record, ArrayField.SHIFT, "i64"))
        self.require(f.icmp("eq", granule, self.width))

    def _log_width(self) -> int:
        return self.width.bit_length() - 1

    # -- runs ------------------------------------------------------------------------------------

    def _first_granule(self) -> Value:
        return self.f.binary("ashr", self.origin, self._log_width())

    def _my_tags(self, tags: Tags) -> Value:
        return self.f.add(tags.mine, iota("i32"))

    def _load_row(self, element: str, pointer: Value) -> Value:
        f = self.f
        kind = vector(element)
        arguments = [pointer, integer(1), f.to_lanes(self.active), integer(0, kind)]
        return f.call(kind, f"llvm.masked.load.{suffix(kind)}.p0", arguments)

    def _store_row(self, row: Value, pointer: Value) -> None:
        f = self.f
        arguments = [row, pointer, integer(1), f.to_lanes(self.active)]
        f.call("void", f"llvm.masked.store.{suffix(row.type)}.p0", arguments)

    def _require_row(self, shadow: Value, test: Callable[[], Value]) -> None:
        """Go on only if a test of a run's shadow holds, where that shadow exists."""
        with self.f.when(exists(self.f, shadow)):
            self.require(test())

    def _all_defined(self) -> Value:
        tags = self._load_row("i8", self.f.at(self.written, self._first_granule()))
        return self.holds(self.f.icmp("ne", tags, 0))

    def _all_own(self, shadow: Value) -> Value:
        """No other thread has marked the run's granules."""
        f = self.f
        row = self._load_row("i32", f.at(shadow, f.mul(self._first_granule(), 4)))
        tags = Tags(f, self.context, is_row=True)
        return self.holds(self._is_clean(tags, row, self._my_tags(tags)))

    def _mark_readers(self) -> None:
        f = self.f
        where = f.at(self.reader, f.mul(self._first_granule(), 4))
        tags = Tags(f, self.context, is_row=True)
        row, me = self._load_row("i32", where), self._my_tags(tags)
        self._store_row(f.select(self._is_clean(tags, row, me), me, tags.with_reader(row, me)), where)

    def _is_clean(self, tags: Tags, tag: Value, me: Value) -> Value:
        """Nobody else, or somebody ordered before me by a barrier; what a __syncwarp orders is left to `careful`."""
        f = self.f
        return f.not_(f.or_(tags.is_foreign(tag, me), tags.is_elsewhere(tag)))

    def _copy_run(self) -> None:
        """Copy between the lanes' row and memory, both addressed from lane 0."""
        f = self.f
        memory = f.at(self.base, self.origin)
        to, source = (self.data, memory) if self.is_load else (memory, self.data)
        whole, part, after = f.label("whole"), f.label("part"), f.label("after")
        f.branch(f.icmp("eq", self.active, -1), whole, part)
        f.place(whole)
        copy_bytes(f, to, source, integer(LANES * self.width, "i64"))
        f.jump(after)
        f.place(part)
        start = f.mul(widen(f, self.first), self.width)
        size = f.mul(widen(f, f.popcount(self.active)), self.width)
        copy_bytes(f, f.at(to, start), f.at(source, start), size)
        f.place(after)

    def _count_run(self) -> None:
        f = self.f
        with unless_uncounted(f, self.flags):
            threads = widen(f, f.popcount(self.active))
            needed = f.mul(threads, self.width)
            last = f.binary("lshr", f.sub(f.add(self.offset, needed), 1), 5)
            sectors = f.add(f.sub(last, f.binary("lshr", self.offset, 5)), 1)
            tally = tally_of(f, self.context, self.site, self.number)
            add_to_tally(f, tally, integer(1, "i64"), threads, sectors, ideal_sectors(f, needed), needed)

    # -- other patterns --------------------------------------------------------------------------

    def _offset_of(self, lane: Value) -> Value:
        f = self.f
        return f.load("i64", self.memory, f.mul(widen(f, lane), 8))

    def _tag_offset(self, offset: Value) -> Value:
        """Where the u32 tag of an element lies."""
        f = self.f
        return f.mul(f.binary("lshr", offset, self._log_width()), 4)

    def _load_lane(self, lane: Value) -> Value:
        f = self.f
        offset = self._offset_of(lane)
        element = f.load(f"i{8 * self.width}", f.at(self.base, offset), align=1)
        f.store(element, self.data, f.mul(widen(f, lane), self.width), align=1)
        return offset

    def _store_lane(self, lane: Value) -> Value:
        f = self.f
        offset = self._offset_of(lane)
        element = f.load(f"i{8 * self.width}", self.data, f.mul(widen(f, lane), self.width), align=1)
        f.store(element, f.at(self.base, offset), align=1)
        return offset

    def _survey(self, act, shadows: tuple[Value, ...] = (), defined: bool = False) -> _Survey:
        """Pass over the active lanes: count what rises, look at shadows, and do `act`, which gives the offset."""
        f = self.f
        before, rising, clean = f.alloca("i64"), f.alloca("i1"), f.alloca("i1")
        distinct, sectors = f.alloca("i64"), f.alloca("i64")
        f.store(integer(-1, "i64"), before)
        for flag in (rising, clean):
            f.store(_TRUE, flag)
        for counter in (distinct, sectors):
            f.store(integer(0, "i64"), counter)
        with f.each_lane(self.active) as lane:
            offset = act(lane) if act else self._offset_of(lane)
            previous = f.load("i64", before)
            f.store(offset, before)
            f.store(f.and_(f.load("i1", rising), f.icmp("sge", offset, previous)), rising)
            f.increment(distinct, 0, widen(f, f.icmp("ne", offset, previous)))
            # -1, before the first lane, lies in no lane's sector
            new_sector = f.icmp("ne", f.binary("ashr", offset, 5), f.binary("ashr", previous, 5))
            f.increment(sectors, 0, widen(f, new_sector))
            for shadow in shadows:
                with f.when(exists(f, shadow)):
                    tag = f.load("i32", shadow, self._tag_offset(offset))
                    tags = Tags(f, self.context)
                    mine = self._is_clean(tags, tag, f.or_(tags.mine, lane))
                    f.store(f.and_(f.load("i1", clean), mine), clean)
            if defined:
                with f.when(exists(f, self.written)):
                    tag = f.load("i8", self.written, f.binary("lshr", offset, self._log_width()))
                    f.store(f.and_(f.load("i1", clean), f.icmp("ne", tag, 0)), clean)
        return _Survey(f.load("i1", rising), f.load("i64", distinct), f.load("i64", sectors), f.load("i1", clean))

    def _count_survey(self, survey: _Survey) -> None:
        f = self.f
        with unless_uncounted(f, self.flags):
            easy, hard, after = f.label("easy"), f.label("hard"), f.label("after")
            f.branch(survey.rising, easy, hard)
            f.place(easy)
            needed = f.mul(survey.distinct, self.width)
            tally = tally_of(f, self.context, self.site, self.number)
            threads = widen(f, f.popcount(self.active))
            ideal = ideal_sectors(f, needed)
            add_to_tally(f, tally, integer(1, "i64"), threads, survey.sectors, ideal, needed)
            f.jump(after)
            f.place(hard)
            one, width = integer(1, "i64"), integer(self.width, "i64")
            place = [self.context, self.memory, self.active, self.site, self.number]
            arguments = [*place, width, self.flags, one]
            f.call("void", "count", arguments)
            f.place(after)
