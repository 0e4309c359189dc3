"""The memory that compiled code and the driver share: one record of 8-byte slots, and the tables it points to."""

from __future__ import annotations

from enum import IntEnum, auto

from .ir import FunctionBuilder, Value


class Slot(IntEnum):
    """Slots of the context, in the order in which they lie."""

    # Set once for a launch.
    ARRAYS = 0  # table of ArrayField records; record 0 is the null pointer's
    ARRAY_COUNT = auto()
    EVENTS = auto()  # table of EventField records: see event_index
    ACCESSES = auto()  # table of AccessField records, by access, then by array
    BLOCKS = auto()  # table of BlockField records
    PARAMS = auto()  # the parameter block
    THREADS = auto()  # for each warp of a block: tid.x, tid.y, tid.z of its lanes, as i32
    MASKS = auto()  # for each warp of a block: the lanes that exist, as i32
    DATA = auto()  # what the lanes of an access load or store, lane after lane
    LOCAL = auto()  # local memory of a warp, lane after lane
    LOCAL_WRITTEN = auto()  # one byte for each byte of it: written?
    LOCAL_SIZE = auto()  # bytes for a lane
    GRANULE_SHIFT = auto()  # log2 of the bytes that one entry of an array's shadow stands for
    WARPS = auto()
    BLOCK_COUNT = auto()
    THREADS_PER_BLOCK = auto()
    BLOCK_X = auto()
    BLOCK_Y = auto()
    BLOCK_Z = auto()
    GRID_X = auto()
    GRID_Y = auto()
    GRID_Z = auto()
    WARP_BUDGET = auto()
    # Change while it runs.
    LAUNCH_BUDGET = auto()  # what is left
    ORDER = auto()  # number of the next event
    BLOCK = auto()  # linear index of the running block
    INDEX_X = auto()  # its coordinates
    INDEX_Y = auto()
    INDEX_Z = auto()
    WARP = auto()
    THREAD = auto()  # linear index in the block of the warp's first thread
    GLOBAL_THREAD = auto()  # 1 + linear index in the grid of the warp's first thread
    STOPPED = auto()  # 1 once the budget is spent
    STOPPED_AT = auto()  # the pc
    STOPPED_LANES = auto()  # the mask
    PRINTER = auto()  # i32 (context, format, arguments, lane): what printf calls


class ArrayField(IntEnum):
    """An array's record. A shadow that is not needed is null."""

    BASE = 0
    SIZE = 1
    WRITTEN = 2  # u8 for each granule: has it a defined value?
    WRITER = 3  # u32 for each granule: 1 + the thread that stored last, 0 if none
    READER = 4  # u32 for each granule: 1 + the thread that loaded, SEVERAL if more than one


class EventField(IntEnum):
    """The first of `COUNT` equal events."""

    COUNT = 0
    ORDER = 1
    THREAD = 2
    BLOCK = 3
    ADDRESS = 4
    OTHER = 5


class AccessField(IntEnum):
    REQUESTS = 0
    THREADS = 1
    SECTORS = 2
    SECTORS_IDEAL = 3
    BYTES_NEEDED = 4


class BlockField(IntEnum):
    EXECUTIONS = 0
    LANES = 1
    DIVERGENT = 2


ARRAY_FIELDS, EVENT_FIELDS, ACCESS_FIELDS, BLOCK_FIELDS = 8, 8, 8, 4
EVENT_CODES = 9


def get(f: FunctionBuilder, context: Value, slot: Slot, type_name: str = "i64") -> Value:
    """The value of a slot; an i32 is its low half."""
    return f.load(type_name, context, 8 * slot)


def put(f: FunctionBuilder, context: Value, slot: Slot, value: Value) -> None:
    f.store(value, context, 8 * slot)
