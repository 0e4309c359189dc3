"""Loads and stores of shared memory by whole warps, where there is nothing to report.

How the lanes of an instruction lie to each other rarely changes from one execution to the next. So each site keeps
its last pattern, with what follows from it: wavefronts, which lanes have a word for themselves, and whether they
are neighbours. Only where the pattern is new is it studied.

What a shadow does not clearly allow goes to `careful`, before anything has been changed.
"""

from __future__ import annotations

from .access import (
    add_to_tally,
    array_record,
    copy_bytes,
    exists,
    extent,
    field_of,
    outside,
    shared_row,
    tally_of,
    widen,
)
from .addresses import SHARED_WINDOW, window
from .context import PATTERN_BYTES, AccessField, ArrayField, Pattern, Shape, Slot, get
from .ir import LANES, FunctionBuilder, Value, constants, integer, iota, module_text, suffix, vector
from .requests import BANKS, WORD
from .tags import Tags
from .warp_access import UniformLoad, WarpAccess

_ROW = vector("i32")
_ONE = integer(1, "i64")


def name_of(op: str, width: int, granule: int) -> str:
    return f"{op}_shared{width}_{granule}"


def access_module(width: int, granule: int) -> str:
    """Functions load_sharedWIDTH_GRANULE and store_sharedWIDTH_GRANULE."""
    return module_text([_SharedAccess(op, width, granule).function() for op in ("load", "store")])


def pattern_of(f: FunctionBuilder, context: Value, site: Value) -> Value:
    """Pointer to a site's Pattern record."""
    return f.at(get(f, context, Slot.PATTERNS, "ptr"), f.mul(widen(f, site), PATTERN_BYTES))


class _Scattered:
    """Any lanes at any words: one tag for each lane and part."""

    def __init__(self, access: _SharedAccess):
        self.access = access
        self.f = access.f

    def _where(self, base: Value, part: int) -> Value:
        f, access = self.f, self.access
        index = f.binary("lshr", access.low, access.granule.bit_length() - 1)
        return pointers(f, base, f.binary("shl", f.add(index, part), 2))

    def load(self, base: Value, part: int) -> Value:
        return gather(self.f, _ROW, self._where(base, part), self.access.active)

    def store(self, row: Value, base: Value, part: int) -> None:
        scatter(self.f, row, self._where(base, part), self.access.active)

    def me(self, tags: Tags, part: int) -> Value:
        return self.f.or_(tags.mine, iota("i32"))

    def holds(self, condition: Value) -> Value:
        return self.access.holds(condition)

    def move(self) -> None:
        """Move the lanes' bytes between memory and DATA."""
        f, access = self.f, self.access
        if access.width == WORD:
            where = pointers(f, access.base, access.low)
            if access.is_load:
                f.store(gather(f, _ROW, where, access.active), access.data, align=64)
            else:
                scatter(f, f.load(_ROW, access.data, align=64), where, access.active)
            return
        element = f"i{8 * access.width}"
        offsets = f.alloca(_ROW, align=64)
        f.store(access.low, offsets, align=64)
        with f.each_lane(access.active) as lane:
            place = widen(f, f.load("i32", offsets, f.mul(widen(f, lane), 4)))
            memory, mine = f.at(access.base, place), f.at(access.data, f.mul(widen(f, lane), access.width))
            source, to = (memory, mine) if access.is_load else (mine, memory)
            f.store(f.load(element, source, align=1), to, align=1)


class _Run:
    """All 32 lanes side by side: the tags of all parts lie in one row."""

    def __init__(self, access: _SharedAccess):
        self.access = access
        self.f = access.f

    def _where(self, base: Value, part: int) -> Value:
        f, access = self.f, self.access
        index = f.binary("lshr", access.origin, access.granule.bit_length() - 1)
        return f.at(base, f.add(f.mul(index, 4), 4 * LANES * part))

    def load(self, base: Value, part: int) -> Value:
        return self.f.load(_ROW, self._where(base, part), align=4)

    def store(self, row: Value, base: Value, part: int) -> None:
        self.f.store(row, self._where(base, part), align=4)

    def me(self, tags: Tags, part: int) -> Value:
        lanes = [(LANES * part + i) // self.access.parts for i in range(LANES)]
        return self.f.or_(tags.mine, constants(lanes, "i32"))

    def holds(self, condition: Value) -> Value:
        return self.f.icmp("eq", self.f.to_mask(condition), -1)

    def move(self) -> None:
        """Move the lanes' bytes between memory and DATA."""
        f, access = self.f, self.access
        memory = f.at(access.base, access.origin)
        source, to = (memory, access.data) if access.is_load else (access.data, memory)
        copy_bytes(f, to, source, integer(LANES * access.width, "i64"))


class _SharedAccess(WarpAccess):
    def __init__(self, op: str, width: int, granule: int):
        super().__init__(name_of(op, width, granule), op == "load", width)
        self.granule, self.parts = granule, width // granule

    def function(self) -> FunctionBuilder:
        f = self.f
        self._find()
        pattern = self._recognise()
        run, scattered = f.label("run"), f.label("scattered")
        self.alone = f.load("i32", pattern, Pattern.ALONE)
        f.branch(f.icmp("eq", f.load("i64", pattern, Pattern.SHAPE), Shape.RUN), run, scattered)
        for label, shape in ((run, _Run(self)), (scattered, _Scattered(self))):
            f.place(label)
            with f.when(exists(f, self.pending)):
                self._check_pending(shape)
            with f.when(exists(f, self.updater)):
                self._check_updaters(shape)
            with f.when(exists(f, self.writer)):
                self._check_load(shape) if self.is_load else self._check_store(shape)
            shape.move()
            f.increment(pattern, Pattern.REPEATS, 1)
            f.ret()
        return self.end()

    def _find(self) -> None:
        """Leave for the slow path unless every active lane lies inside the array that is meant, aligned."""
        f, width = self.f, self.width
        record = array_record(f, self.context, shared_row(f, self.context))
        exact = f.sub(self.addresses, f.splat(integer(window(SHARED_WINDOW), "i64")))
        begin, end = extent(f, self.context, self.site)
        room = f.intrinsic("smax", f.sub(f.sub(end, begin), width - 1), integer(0, "i64"))
        fine = self.holds(f.icmp("ult", f.sub(exact, f.splat(begin)), f.splat(room)))
        self.low = f.cast("trunc", exact, _ROW)
        if width > 1:
            fine = f.and_(fine, self.holds(f.icmp("eq", f.and_(self.low, width - 1), 0)))
        fine = f.and_(fine, f.icmp("eq", get(f, self.context, Slot.CAREFUL), 0))
        self.require(fine)
        self.base = field_of(f, record, ArrayField.BASE)
        self.writer = field_of(f, record, ArrayField.WRITER)
        self.reader = field_of(f, record, ArrayField.READER)
        self.updater = field_of(f, record, ArrayField.UPDATER)
        self.pending = field_of(f, record, ArrayField.PENDING)
        first = f.lowest_bit(self.active)
        self.origin = widen(f, f.extract(self.low, first))

    def _recognise(self) -> Value:
        """The site's Pattern record, brought up to date."""
        f = self.f
        word = f.and_(f.cast("trunc", self.origin, "i32"), ~(WORD - 1))
        relative = f.select(f.to_lanes(self.active), f.sub(self.low, f.splat(word)), integer(0, _ROW))
        pattern = pattern_of(f, self.context, self.site)
        same = f.icmp("eq", f.load(_ROW, pattern, Pattern.OFFSETS, align=64), relative)
        known = f.icmp("eq", f.to_mask(same), -1)
        known = f.and_(known, f.icmp("eq", f.load("i32", pattern, Pattern.LANES), self.active))
        with f.when(f.not_(known)):
            offsets = f.alloca(_ROW, align=64)
            f.store(relative, offsets, align=64)
            is_load = Value("i1", str(self.is_load).lower())
            width = integer(self.width, "i64")
            f.call("void", "study", [self.context, self.site, offsets, self.active, width, is_load])
        return pattern

    def _check_pending(self, shape: _Run | _Scattered) -> None:
        """No asynchronous copy has yet to fill what the lanes touch."""
        f = self.f
        if self.granule != WORD:
            self.require(Value("i1", "false"))
            return
        for part in range(self.parts):
            self.require(shape.holds(f.icmp("eq", shape.load(self.pending, part), 0)))

    def _check_updaters(self, shape: _Run | _Scattered) -> None:
        """Nobody whom nothing orders before me has updated it."""
        f = self.f
        tags = Tags(f, self.context, is_row=True)
        for part in range(self.parts):
            foreign = tags.is_foreign(shape.load(self.updater, part), shape.me(tags, part))
            self.require(shape.holds(f.not_(foreign)))

    def _check_load(self, shape: _Run | _Scattered) -> None:
        """Everything was written, and by nobody whom nothing orders before me; note me as a reader."""
        f = self.f
        tags = Tags(f, self.context, is_row=True)
        for part in range(self.parts):
            tag, me = shape.load(self.writer, part), shape.me(tags, part)
            self.require(shape.holds(f.not_(tags.is_unreadable(tag, me))))
        with f.when(exists(f, self.reader)):
            for part in range(self.parts):
                tag, me = shape.load(self.reader, part), shape.me(tags, part)
                together = f.select(f.to_lanes(self.alone), me, tags.several_lanes(me))
                joined = f.select(tags.is_foreign(tag, me), tags.with_reader(tag, me), together)
                shape.store(joined, self.reader, part)

    def _check_store(self, shape: _Run | _Scattered) -> None:
        """Nobody else wrote or read, and no two lanes write the same; note me as the writer."""
        f = self.f
        tags = Tags(f, self.context, is_row=True)
        self.require(f.icmp("eq", self.alone, self.active))
        for part in range(self.parts):
            me = shape.me(tags, part)
            self.require(shape.holds(f.not_(tags.is_foreign(shape.load(self.writer, part), me))))
            with f.when(exists(f, self.reader)):
                self.require(shape.holds(f.not_(tags.is_foreign(shape.load(self.reader, part), me))))
        for part in range(self.parts):
            shape.store(shape.me(tags, part), self.writer, part)


def study() -> FunctionBuilder:
    """Learn a site's new pattern: count what is known of the old one, and work out what follows from the new."""
    f = FunctionBuilder(
        "study",
        "void",
        [
            ("ptr", "context"),
            ("i32", "site"),
            ("ptr", "offsets"),
            ("i32", "lanes"),
            ("i64", "width"),
            ("i1", "is_load"),
        ],
    )
    context, site, offsets, lanes, width, is_load = f.arguments.values()
    pattern = pattern_of(f, context, site)
    tally = tally_of(f, context, site, shared_row(f, context))
    repeats = f.load("i64", pattern, Pattern.REPEATS)
    for field in AccessField:
        each = f.load("i64", pattern, Pattern.TALLY + 8 * field)
        f.increment(tally, 8 * field, f.mul(each, repeats))
    relative = f.load(_ROW, offsets, align=64)
    f.store(relative, pattern, Pattern.OFFSETS, align=64)
    f.store(lanes, pattern, Pattern.LANES)
    f.store(integer(0, "i64"), pattern, Pattern.REPEATS)
    wide, result = f.alloca(vector("i64"), align=64), f.alloca("i64", 2)
    f.store(f.cast("sext", relative, vector("i64")), wide, align=64)
    f.call("void", "count_banks", [wide, lanes, width, is_load, result])
    words = f.load("i64", result, 8)
    ideal = f.binary("lshr", f.add(words, BANKS - 1), (BANKS - 1).bit_length())
    counts = (_ONE, widen(f, f.popcount(lanes)), f.load("i64", result), ideal, f.mul(words, WORD))
    for field, value in zip(AccessField, counts):
        f.store(value, pattern, Pattern.TALLY + 8 * field)
    f.store(_lanes_alone(f, relative, lanes), pattern, Pattern.ALONE)
    step = f.splat(f.cast("trunc", width, "i32"))
    is_run = f.icmp("eq", f.to_mask(f.icmp("eq", relative, f.mul(iota("i32"), step))), -1)
    is_run = f.and_(is_run, f.icmp("eq", lanes, -1))
    f.store(f.select(is_run, integer(Shape.RUN, "i64"), integer(Shape.SCATTERED, "i64")), pattern, Pattern.SHAPE)
    f.ret()
    return f


def _lanes_alone(f: FunctionBuilder, offsets: Value, lanes: Value) -> Value:
    """The lanes whose first word no other lane's access begins in."""
    alone, memory = f.alloca("i32"), f.alloca(_ROW, align=64)
    words = f.binary("ashr", offsets, integer(2, _ROW))
    f.store(words, memory, align=64)
    f.store(integer(0), alone)
    with f.each_lane(lanes) as lane:
        word = f.load("i32", memory, f.mul(widen(f, lane), 4))
        equal = f.and_(f.to_mask(f.icmp("eq", words, f.splat(word))), lanes)
        single = f.icmp("eq", f.popcount(equal), 1)
        mine = f.select(single, equal, integer(0))
        f.store(f.or_(f.load("i32", alone), mine), alone)
    return f.load("i32", alone)


def load_uniform() -> FunctionBuilder:
    """A load whose lanes all read one address; one element comes back."""
    load = UniformLoad("load_shared_uniform")
    f, context, active, width = load.f, load.context, load.active, load.width
    record = array_record(f, context, shared_row(f, context))
    exact = f.sub(load.address, window(SHARED_WINDOW))
    bad = outside(f, exact, width, *extent(f, context, load.site))
    bad = f.or_(bad, f.icmp("ne", f.and_(exact, f.sub(width, 1)), 0))
    bad = f.or_(bad, f.icmp("ne", get(f, context, Slot.CAREFUL), 0))
    bad = f.or_(bad, exists(f, field_of(f, record, ArrayField.PENDING)))
    load.require_not(bad)
    fields = (ArrayField.WRITER, ArrayField.READER, ArrayField.UPDATER)
    writer, reader, updater = (field_of(f, record, field) for field in fields)
    with f.when(exists(f, writer)):
        tags = Tags(f, context)
        shift = field_of(f, record, ArrayField.SHIFT, "i64")
        is_single = f.icmp("eq", f.popcount(active), 1)
        first = f.or_(tags.mine, f.lowest_bit(active))
        me = f.select(is_single, first, tags.several_lanes(first))
        count, granule = f.binary("lshr", width, shift), f.binary("lshr", exact, shift)
        with f.repeat(count) as part:
            tag = f.load("i32", writer, f.mul(f.add(granule, part), 4))
            with f.when(tags.is_unreadable(tag, me), unlikely=True):
                f.jump(load.slow)
            with f.when(exists(f, updater)):
                tag = f.load("i32", updater, f.mul(f.add(granule, part), 4))
                with f.when(tags.is_foreign(tag, me), unlikely=True):
                    f.jump(load.slow)
        with f.when(exists(f, reader)), f.repeat(count) as part:
            where = f.at(reader, f.mul(f.add(granule, part), 4))
            tag = f.load("i32", where)
            f.store(f.select(tags.is_foreign(tag, me), tags.with_reader(tag, me), me), where)
    copy_bytes(f, load.data, f.at(field_of(f, record, ArrayField.BASE), exact), width)
    _count_one_place(f, tally_of(f, context, load.site, shared_row(f, context)), active, width)
    return load.end()


def _count_one_place(f: FunctionBuilder, tally: Value, active: Value, width: Value) -> None:
    """A load of one place takes one wavefront; one for each half of the warp if it has 16 bytes."""
    halves = [widen(f, f.icmp("ne", f.and_(active, mask), 0)) for mask in (0xFFFF, 0xFFFF << 16)]
    both = f.add(*halves)
    waves = f.select(f.icmp("ugt", width, BANKS * WORD // LANES * 2), both, _ONE)
    words = f.binary("lshr", f.add(width, WORD - 1), 2)
    add_to_tally(f, tally, _ONE, widen(f, f.popcount(active)), waves, _ONE, f.mul(words, WORD))


# -- rows of pointers ------------------------------------------------------------------------------


def pointers(f: FunctionBuilder, base: Value, offsets: Value) -> Value:
    return f.value(f"<{LANES} x ptr>", f"getelementptr i8, {base}, {offsets}")


def gather(f: FunctionBuilder, row: str, pointers: Value, active: Value) -> Value:
    arguments = [pointers, integer(1), f.to_lanes(active), integer(0, row)]
    return f.call(row, f"llvm.masked.gather.{suffix(row)}.v{LANES}p0", arguments)


def scatter(f: FunctionBuilder, row: Value, pointers: Value, active: Value) -> None:
    arguments = [row, pointers, integer(1), f.to_lanes(active)]
    f.call("void", f"llvm.masked.scatter.{suffix(row.type)}.v{LANES}p0", arguments)
