"""The access of one lane, with every rule that it can break: the slow and exact way.

`touch` looks at bounds, alignment, undefined contents and races, reports, and moves the bytes. A faulting access
out of bounds or misaligned does not happen: a load gives 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .access import (
    GUESS,
    OVERWRITES,
    STORE,
    array_record,
    bit,
    copy_bytes,
    exists,
    extent,
    field_of,
    local_row,
    number_of,
    outside,
    row_of,
    widen,
)
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BITS
from .context import (
    AUTHOR_FIELDS,
    EVENT_CODES,
    EVENT_FIELDS,
    MEMORY_ROWS,
    NO_SITE,
    ArrayField,
    AuthorField,
    EventField,
    Slot,
    get,
)
from .faults import MISALIGNED, NOBODY, OUT_OF_BOUNDS, PENDING, READ_WRITE, UNINITIALISED, UPDATED, WATCHED, WRITE_WRITE
from .ir import FunctionBuilder, Value, integer
from .tags import Tags

_ZERO = integer(0, "i64")
_NULL = Value("ptr", "null")

#: Where the lanes of readers or updaters stand behind the first of their author's fields.
_LANES = AuthorField.READER_LANES - AuthorField.READER


def record() -> FunctionBuilder:
    """Note a fault of one lane; only the first of its kind at a site and array is kept, with a count."""
    f = FunctionBuilder(
        "record",
        "void",
        [
            ("ptr", "context"),
            ("i32", "site"),
            ("i32", "code"),
            ("i64", "row"),
            ("i32", "lane"),
            ("i64", "address"),
            ("i32", "other"),
            ("i32", "other_site"),
        ],
    )
    context, site, code, row, lane, address, other, other_site = f.arguments.values()
    rows = f.add(get(f, context, Slot.ARRAY_COUNT), MEMORY_ROWS)
    index = f.add(f.mul(widen(f, site), rows), row)
    index = f.add(f.mul(index, EVENT_CODES), widen(f, code))
    event = f.at(get(f, context, Slot.EVENTS, "ptr"), f.mul(index, 8 * EVENT_FIELDS))
    with f.when(f.icmp("eq", f.load("i64", event, 8 * EventField.COUNT), 0)):
        f.store(get(f, context, Slot.ORDER), event, 8 * EventField.ORDER)
        f.store(f.add(get(f, context, Slot.THREAD), widen(f, lane)), event, 8 * EventField.THREAD)
        f.store(get(f, context, Slot.BLOCK), event, 8 * EventField.BLOCK)
        f.store(address, event, 8 * EventField.ADDRESS)
        f.store(widen(f, other), event, 8 * EventField.OTHER)
        f.store(widen(f, other_site), event, 8 * EventField.OTHER_SITE)
    f.increment(event, 8 * EventField.COUNT, 1)
    f.increment(context, 8 * Slot.ORDER, 1)
    codes = integer(sum(1 << code for code in WATCHED))
    is_watched = f.and_(widen(f, f.binary("lshr", codes, code)), 1)
    elsewhere = widen(f, f.icmp("ne", row, local_row(f, context)))
    f.increment(context, 8 * Slot.WATCHED, f.and_(is_watched, elsewhere))
    f.ret()
    return f


def touch() -> FunctionBuilder:
    """Check and perform a load or store of one lane. Returns the array's row, 0 where there is nothing to count."""
    return _Touch().function()


def reach() -> FunctionBuilder:
    """Check an atomic update of one lane. Returns the memory to update, null where there is none."""
    return _Reach().function()


Signature = tuple[Value, Value]  # a thread, 1 + its number in the grid, and a site


_NOBODY: Signature = (integer(NOBODY), integer(NO_SITE))


class _Lane:
    """The access of one lane: where it goes, and what the shadows there say."""

    def __init__(self, f: FunctionBuilder, nothing: Value):
        self.f = f
        self.context, self.address, self.lane, self.site, self.width, self.flags = (
            f.arguments[name] for name in ("context", "address", "lane", "site", "width", "flags")
        )
        self.nothing = nothing  # what the function returns if the access does not happen

    def find(self) -> None:
        """The array, its record and shadows; returns from the function if the access does not fit into it."""
        f, context = self.f, self.context
        number = number_of(f, self.address)
        self.offset = f.sub(self.address, f.binary("shl", number, WINDOW_BITS))
        with f.when(f.icmp("eq", number, LOCAL_WINDOW), unlikely=True):
            self.touch_local()
        self.is_shared = f.icmp("eq", number, SHARED_WINDOW)
        self.row = row_of(f, context, number)
        record = array_record(f, context, self.row)
        begin, end = extent(f, context, self.site)
        begin = f.select(self.is_shared, begin, _ZERO)
        end = f.select(self.is_shared, end, field_of(f, record, ArrayField.SIZE, "i64"))
        self.require_place(begin, end)
        self.memory = f.at(field_of(f, record, ArrayField.BASE), self.offset)
        shift = field_of(f, record, ArrayField.SHIFT, "i64")
        self.first, self.count = f.binary("lshr", self.offset, shift), f.binary("lshr", self.width, shift)
        self.written, self.writer, self.reader, self.updater, self.authors = (
            field_of(f, record, ArrayField[name]) for name in ("WRITTEN", "WRITER", "READER", "UPDATER", "AUTHORS")
        )
        self.tags = Tags(f, context)
        self.me = f.or_(self.tags.mine, self.lane)

    def touch_local(self) -> None:
        """An access to the thread's own memory."""
        raise NotImplementedError

    def require_place(self, begin: Value, end: Value) -> None:
        """Return unless the access lies inside its array, aligned."""
        f = self.f
        with f.when(outside(f, self.offset, self.width, begin, end), unlikely=True):
            self.report(OUT_OF_BOUNDS)
            f.ret(self.nothing)
        with f.when(f.icmp("ne", f.and_(self.offset, f.sub(self.width, 1)), 0), unlikely=True):
            self.report(MISALIGNED)
            f.ret(self.nothing)

    @contextmanager
    def granules(self) -> Iterator[Value]:
        """Code that runs for each granule of the access; gives its index."""
        with self.f.repeat(self.count) as turn:
            yield self.f.add(self.first, turn)

    # -- reports ---------------------------------------------------------------------------------

    def report(self, code: int, other: Signature = _NOBODY) -> None:
        arguments = [self.context, self.site, integer(code), self.row, self.lane, self.address, *other]
        self.f.call("void", "record", arguments)

    def report_race(self, shadow: Value, code: int, party: AuthorField) -> None:
        """Report the first granule on which nothing orders another thread before me, where there is such a shadow."""
        with self.f.when(exists(self.f, shadow)):
            self.report_if(shadow, "i32", lambda tag, g: self._races(tag, g, party), code, party)

    def report_if(
        self,
        shadow: Value,
        type_name: str,
        test: Callable[[Value, Value], Value],
        code: int,
        party: AuthorField | None = None,
    ) -> None:
        """Report the first granule whose tag passes a test, with who else is to blame if that is known."""
        f = self.f
        found = f.alloca("i1")
        f.store(Value("i1", "false"), found)
        with self.granules() as g:
            tag = f.load(type_name, shadow, f.mul(g, int(type_name[1:]) // 8))
            with f.when(f.and_(test(tag, g), f.not_(f.load("i1", found)))):
                f.store(Value("i1", "true"), found)
                known, unknown, after = f.label("known"), f.label("unknown"), f.label("reported")
                if party is not None:
                    f.branch(exists(f, self.authors), known, unknown)
                    f.place(known)
                    self.report(code, self._last_other(g, party))
                    f.jump(after)
                f.place(unknown)
                self.report(code)
                f.place(after)

    def _races(self, tag: Value, granule: Value, party: AuthorField) -> Value:
        """Whether nothing orders what the tag stands for before me."""
        f, tags = self.f, self.tags
        several = self._lanes(granule, party)
        foreign = f.and_(tags.is_foreign(tag, self.me), f.not_(tags.is_synced(tag, self.me, self.lane, several)))
        elsewhere = f.and_(tags.is_elsewhere(tag), f.not_(self.is_shared))
        return f.or_(foreign, elsewhere)

    def report_pending(self) -> None:
        """Report a word that an asynchronous copy has still to fill."""
        f = self.f
        record = array_record(f, self.context, self.row)
        pending = field_of(f, record, ArrayField.PENDING)
        with f.when(exists(f, pending)):
            first, last = (
                f.binary("lshr", self.offset, 2),
                f.binary("lshr", f.add(self.offset, f.sub(self.width, 1)), 2),
            )
            marks = f.alloca("i32")
            f.store(integer(0), marks)
            with f.repeat(f.add(f.sub(last, first), 1)) as word:
                mark = f.load("i32", pending, f.mul(f.add(first, word), 4))
                f.store(f.or_(f.load("i32", marks), mark), marks)
            with f.when(f.icmp("ne", f.load("i32", marks), 0)):
                self.report(PENDING)

    # -- marks -----------------------------------------------------------------------------------

    def mark_defined(self) -> None:
        f = self.f
        with f.when(exists(f, self.written)), self.granules() as g:
            f.store(integer(1, "i8"), self.written, g)

    def join(self, shadow: Value, party: AuthorField) -> None:
        """Tag the granules with me and with those who were there before, if they are not ordered."""
        f = self.f
        with f.when(exists(f, shadow)), self.granules() as g:
            where = f.at(shadow, f.mul(g, 4))
            tag = f.load("i32", where)
            races = self._races(tag, g, party)
            f.store(f.select(races, self.tags.with_reader(tag, self.me), self.me), where)
            with f.when(exists(f, self.authors)):
                before = f.select(races, self._lanes(g, party), integer(0))
                f.store(f.or_(before, bit(f, self.lane)), self._author(g), 4 * (party + _LANES))

    def sign(self, party: AuthorField) -> None:
        """Note myself as the last writer, reader or updater; of the latter two the one before stays known."""
        f = self.f
        with f.when(exists(f, self.authors)), self.granules() as g:
            author = self._author(g)
            last, site = self._signature(author, party)
            if party is not AuthorField.WRITER:
                with f.when(f.icmp("ne", last, self._me_in_grid())):
                    f.store(last, author, 4 * (party + 2))
                    f.store(site, author, 4 * (party + 3))
            f.store(self._me_in_grid(), author, 4 * party)
            f.store(self.site, author, 4 * (party + 1))

    def _me_in_grid(self) -> Value:
        return self.f.add(get(self.f, self.context, Slot.GLOBAL_THREAD, "i32"), self.lane)

    def _author(self, granule: Value) -> Value:
        return self.f.at(self.authors, self.f.mul(granule, 4 * AUTHOR_FIELDS))

    def _signature(self, author: Value, party: int) -> Signature:
        return self.f.load("i32", author, 4 * party), self.f.load("i32", author, 4 * (party + 1))

    def _lanes(self, granule: Value, party: AuthorField) -> Value:
        """The lanes that a tag of several lanes stands for; all of them where that is not known."""
        f = self.f
        if party is AuthorField.WRITER:
            return integer(-1)
        return f.value_if(
            exists(f, self.authors), lambda: f.load("i32", self._author(granule), 4 * (party + _LANES)), -1
        )

    def _last_other(self, granule: Value, party: AuthorField) -> Signature:
        """The last thread that did something and is not me."""
        f = self.f
        author = self._author(granule)
        last = self._signature(author, party)
        if party is AuthorField.WRITER:
            return last
        before = self._signature(author, party + 2)
        is_mine = f.icmp("eq", last[0], self._me_in_grid())
        return f.select(is_mine, before[0], last[0]), f.select(is_mine, before[1], last[1])


class _Touch(_Lane):
    """A load or a store."""

    def __init__(self) -> None:
        arguments = [("ptr", "context"), ("i64", "address"), ("i32", "lane"), ("i32", "site"), ("ptr", "data")]
        f = FunctionBuilder("touch", "i64", [*arguments, ("i64", "width"), ("i32", "flags")])
        super().__init__(f, _ZERO)
        self.data = f.arguments["data"]
        self.is_store = f.icmp("ne", f.and_(self.flags, STORE), 0)

    def function(self) -> FunctionBuilder:
        f = self.f
        self.find()
        with f.when(self.is_store):
            self._store()
            f.ret(self.row)
        self._load()
        f.ret(self.row)
        return f

    def _load(self) -> None:
        f = self.f
        self.report_pending()
        with f.when(exists(f, self.written)):
            self.report_if(self.written, "i8", lambda tag, g: f.icmp("eq", tag, 0), UNINITIALISED)
        with f.when(f.and_(self.is_shared, exists(f, self.writer))):
            self.report_if(self.writer, "i32", lambda tag, g: self.tags.is_void(tag), UNINITIALISED)
        self.report_race(self.writer, READ_WRITE, AuthorField.WRITER)
        with f.when(f.icmp("eq", f.and_(self.flags, GUESS), 0)):
            self.report_race(self.updater, UPDATED, AuthorField.UPDATER)
            self.join(self.reader, AuthorField.READER)
            self.sign(AuthorField.READER)
        copy_bytes(f, self.data, self.memory, self.width)

    def _store(self) -> None:
        f = self.f
        self.report_pending()
        with f.when(exists(f, self.writer)):
            # Storing the value that is there already disturbs nobody.
            changes = f.icmp("ne", f.call("i32", "memcmp", [self.data, self.memory, self.width]), 0)
            with f.when(changes):
                self.report_race(self.writer, WRITE_WRITE, AuthorField.WRITER)
                self.report_race(self.reader, READ_WRITE, AuthorField.READER)
                self.report_race(self.updater, UPDATED, AuthorField.UPDATER)
            with self.granules() as g:
                f.store(self.me, self.writer, f.mul(g, 4))
        self.sign(AuthorField.WRITER)
        self.mark_defined()
        copy_bytes(f, self.memory, self.data, self.width)

    def touch_local(self) -> None:
        """Nobody else's business, so no races and no counters."""
        f, context = self.f, self.context
        size = get(f, context, Slot.LOCAL_SIZE)
        self.row = local_row(f, context)
        self.require_place(_ZERO, size)
        start = f.add(
            f.mul(get(f, context, Slot.WARP), get(f, context, Slot.LOCAL_STRIDE)),
            f.add(f.mul(widen(f, self.lane), size), self.offset),
        )
        memory = f.at(get(f, context, Slot.LOCAL, "ptr"), start)
        written = f.at(get(f, context, Slot.LOCAL_WRITTEN, "ptr"), start)
        self.first, self.count = _ZERO, self.width
        with f.when(self.is_store):
            copy_bytes(f, memory, self.data, self.width)
            with self.granules() as g:
                f.store(integer(1, "i8"), written, g)
            f.ret(_ZERO)
        self.report_if(written, "i8", lambda tag, g: f.icmp("eq", tag, 0), UNINITIALISED)
        copy_bytes(f, self.data, memory, self.width)
        f.ret(_ZERO)


class _Reach(_Lane):
    """An atomic update: it races with loads and stores of other threads, not with their updates."""

    def __init__(self) -> None:
        arguments = [("ptr", "context"), ("i64", "address"), ("i32", "lane"), ("i32", "site")]
        super().__init__(FunctionBuilder("reach", "ptr", [*arguments, ("i64", "width"), ("i32", "flags")]), _NULL)

    def function(self) -> FunctionBuilder:
        f = self.f
        self.find()
        reads = f.icmp("eq", f.and_(self.flags, OVERWRITES), 0)
        self.report_pending()
        with f.when(f.and_(reads, exists(f, self.written))):
            self.report_if(self.written, "i8", lambda tag, g: f.icmp("eq", tag, 0), UNINITIALISED)
        self.mark_defined()
        with f.when(f.and_(self.is_shared, exists(f, self.writer))):
            with f.when(reads):
                self.report_if(self.writer, "i32", lambda tag, g: self.tags.is_void(tag), UNINITIALISED)
            with self.granules() as g:
                where = f.at(self.writer, f.mul(g, 4))
                tag = f.load("i32", where)
                f.store(f.select(self.tags.is_void(tag), self.tags.block, tag), where)
        self.report_race(self.reader, READ_WRITE, AuthorField.READER)
        self.report_race(self.writer, WRITE_WRITE, AuthorField.WRITER)
        self.join(self.updater, AuthorField.UPDATER)
        self.sign(AuthorField.UPDATER)
        f.ret(self.memory)
        return f

    def touch_local(self) -> None:
        """Local memory has no atomic updates: no array is meant."""
        self.row = _ZERO
        self.report(OUT_OF_BOUNDS)
        self.f.ret(_NULL)
