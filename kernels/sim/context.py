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
    WARP_RECORDS = auto()  # table of WarpField records, by warp of a block
    EXTENTS = auto()  # for each site: begin and end of the shared array that it is meant for
    PATTERNS = auto()  # table of Pattern records, by site: the last pattern of lanes in shared memory
    GROUPS = auto()  # for each group of loads of shared memory: see shared_groups.tables
    GROUP_MEMBERS = auto()
    GROUP_RECORDS = auto()  # table of GroupField records
    QUEUES = auto()  # for each warp of a block its asynchronous copies; null if the entry has none
    SHARED = auto()  # shared memory of the running block
    SHARED_BYTES = auto()
    DATA = auto()  # what the lanes of an access load or store, lane after lane
    LOCAL = auto()  # local memory, warp after warp, lane after lane
    LOCAL_WRITTEN = auto()  # one byte for each byte of it: written?
    LOCAL_SIZE = auto()  # bytes for a lane
    LOCAL_STRIDE = auto()  # from a warp's local memory to the next one's; 0 where warps never wait for each other
    FRAMES = auto()  # what the warps keep while they wait
    FRAME_STRIDE = auto()
    FIELD_BITS = auto()  # of a shadow's tag, those that name lanes: see tags
    CAREFUL = auto()  # 1: every access to shared memory lane by lane
    HASTY = auto()  # 1: end after the first block that has anything to report
    SUSPECTS = auto()  # u8 for each block of the grid: has it events that are WATCHED? Null if nobody asks
    WARPS = auto()
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
    BLOCK_BUDGET = auto()  # what was left when the running block began
    BLOCK_WATCHED = auto()  # WATCHED when it began
    LONGEST_BLOCK = auto()  # the most that any block spent
    ORDER = auto()  # number of the next event
    WATCHED = auto()  # events so far that faults.is_watched_for
    LAST_CLOCK = auto()  # the number of the last epoch that began
    VOTES = auto()  # at the last barrier: threads whose predicate held
    VOTERS = auto()  # and threads that were there
    BLOCK_TAG = auto()  # tags below this one are of earlier blocks
    EPOCH_TAG = auto()  # tags below this one are of earlier epochs
    MY_TAG = auto()  # the tag of the running warp's first lane
    SYNC_TAGS = auto()  # for each lane, as i32: what is tagged lower was seen before its last __syncwarp
    SYNC_LANES = auto()  # for each lane, as i32: the lanes that took part in that
    BLOCK = auto()  # linear index of the running block
    BLOCK_END = auto()  # the block to stop before
    INDEX_X = auto()  # its coordinates
    INDEX_Y = auto()
    INDEX_Z = auto()
    WARP = auto()
    THREAD = auto()  # linear index in the block of the warp's first thread
    GLOBAL_THREAD = auto()  # 1 + linear index in the grid of the warp's first thread
    STOPPED = auto()  # a Stop
    STOPPED_AT = auto()  # the pc
    STOPPED_LANES = auto()  # the mask
    PRINTER = auto()  # i32 (context, format, arguments, lane): what printf calls


class Stop(IntEnum):
    """Why a run ended before its last block."""

    BUDGET = 1
    CLOCK = 2  # more barriers than tags can tell apart


class ArrayField(IntEnum):
    """An array's record; the last two records are those of local and of shared memory.

    A shadow that is not needed is null.
    """

    BASE = 0
    SIZE = 1
    SHIFT = 2  # log2 of the bytes that one entry of a shadow stands for: a granule
    WRITTEN = 3  # u8 for each granule: has it a defined value?
    WRITER = 4  # u32 for each granule: the tag of the thread that stored last, 0 if none
    READER = 5  # u32 for each granule: the tag of the threads that loaded, 0 if none
    UPDATER = 6  # u32 for each granule: the tag of the threads that updated it atomically, 0 if none
    AUTHORS = 7  # AuthorField records of u32 for each granule
    PENDING = 8  # u32 for each word of shared memory: does an asynchronous copy still have to fill it?


class AuthorField(IntEnum):
    """Who touched a granule, 1 + the number in the grid, and at which site; the same five for readers and updaters."""

    WRITER = 0
    WRITER_SITE = 1
    READER = 2
    READER_SITE = 3
    READER_BEFORE = 4  # the last reader that is not READER
    READER_BEFORE_SITE = 5
    READER_LANES = 6  # the lanes that a tag of several lanes stands for
    UPDATER = 7
    UPDATER_SITE = 8
    UPDATER_BEFORE = 9
    UPDATER_BEFORE_SITE = 10
    UPDATER_LANES = 11


class WarpField(IntEnum):
    RESUME = 0  # the block to go on with; FINISHED
    SITE = 1  # of the barrier at which it waits
    VOTE = 2  # the lanes whose predicate holds there


class EventField(IntEnum):
    """The first of `COUNT` equal events."""

    COUNT = 0
    ORDER = 1
    THREAD = 2
    BLOCK = 3
    ADDRESS = 4
    OTHER = 5
    OTHER_SITE = 6


class AccessField(IntEnum):
    REQUESTS = 0
    THREADS = 1
    SECTORS = 2  # shared memory: wavefronts
    SECTORS_IDEAL = 3  # shared memory: the wavefronts that the same words need at least
    BYTES_NEEDED = 4


class Pattern(IntEnum):
    """How the lanes of a site's last request lay to each other, in bytes from the start of the record."""

    OFFSETS = 0  # <32 x i32>: bytes from the first lane's word; 0 in lanes that did not run
    LANES = 128  # i32: those that ran
    ALONE = 132  # i32: lanes no other lane of which touches a word
    SHAPE = 136  # i64: a Shape
    REPEATS = 144  # i64: requests of this pattern that are not yet counted
    TALLY = 152  # five i64: AccessField of one such request


class Shape(IntEnum):
    SCATTERED = 0
    RUN = 1  # all 32 lanes, side by side


class BlockField(IntEnum):
    EXECUTIONS = 0
    LANES = 1
    DIVERGENT = 2


ARRAY_FIELDS, AUTHOR_FIELDS, EVENT_FIELDS, ACCESS_FIELDS, BLOCK_FIELDS, WARP_FIELDS = 10, 12, 8, 8, 4, 4
PATTERN_BYTES = 192
EVENT_CODES = 14

#: What a warp's function returns at its end, in place of the block to go on with.
FINISHED = -1

#: In place of a site: none.
NO_SITE = 0xFFFFFFFF

#: Local and shared memory stand behind the arrays in every table that is indexed by array.
LOCAL_ROW, SHARED_ROW, MEMORY_ROWS = 0, 1, 2


def get(f: FunctionBuilder, context: Value, slot: Slot, type_name: str = "i64") -> Value:
    """The value of a slot; an i32 is its low half."""
    return f.load(type_name, context, 8 * slot)


def put(f: FunctionBuilder, context: Value, slot: Slot, value: Value) -> None:
    f.store(value, context, 8 * slot)
