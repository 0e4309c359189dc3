"""From what an executor noticed to what a student reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..result import FAULT_KINDS, Fault
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, split
from .async_copies import STORE_OPCODE
from .barriers import is_warp_barrier
from .launch import WARP, Launch
from .printf import string_at
from .ptx import Instruction

#: What an executor records. At a memory access, in the order in which it is checked; UPDATED: a plain access races
#: with an atomic update.
OUT_OF_BOUNDS, MISALIGNED, UNINITIALISED, WRITE_WRITE, READ_WRITE, UPDATED = range(6)
#: Where the lanes of a warp meet.
LANE_AWAY, LANE_MISSES_ITSELF, LANE_SILENT = range(6, 9)
#: At a barrier of a block: threads of a warp are on another path, or have ended; warps are elsewhere.
PARTED, LEFT, APART = range(9, 12)
STOPPED = 12  # the thread stopped itself
PENDING = 13  # an asynchronous copy has not been waited for
EVENT_KINDS = (
    "out-of-bounds",
    "misaligned",
    "uninitialised",
    "global-race",
    "global-race",
    "global-race",
    "divergent-barrier",  # lanes that wait for a lane that never comes
    "divergent-barrier",
    "uninitialised",  # a value that nobody gave
    "divergent-barrier",
    "divergent-barrier",
    "divergent-barrier",
    "trap",
    "shared-race",
)

#: What is looked for only as long as a launch is watched, but for undefined local memory.
WATCHED = frozenset({UNINITIALISED, WRITE_WRITE, READ_WRITE, UPDATED, PENDING})

#: A launch is watched until its blocks that misbehave have done so much work without showing anything new: about
#: 0.3 s of going into every access. The counts of races are then those until there.
PATIENCE = 1 << 22

#: `other` where nothing is known of the second party.
NOBODY = 0

_VERBS = {"ld": "reads", "st": "stores to", STORE_OPCODE: "copies to"}


@dataclass
class Event:
    """The first of `count` equal misbehaviours. `thread` is linear in its block, `block` in the grid.

    other      of a race or a barrier: 1 + the linear number of the other thread in the grid, NOBODY if not known
    other_pc   where that thread did its part; None if not known
    """

    pc: int
    code: int
    array: int
    order: int
    count: int
    thread: int
    block: int
    address: int
    other: int = NOBODY
    other_pc: int | None = None


def is_watched_for(code: int, array: int) -> bool:
    """Whether an event is one of those that are looked for only as long as a launch is watched."""
    return code in WATCHED and array != LOCAL_WINDOW


def explain(launch: Launch, events: list[Event], is_watched: bool) -> list[Fault]:
    """Faults of a launch: equal ones (kind, line, array) counted and the first kept; ranked.

    is_watched   to the end
    """
    merged: dict[tuple[str, int, str | None], Fault] = {}
    for event in sorted(events, key=lambda e: e.order):
        fault = _fault(launch, event)
        if not is_watched and is_watched_for(event.code, event.array):
            fault = replace(fault, is_counted=False)
        key = (fault.kind, fault.line, fault.array)
        first = merged.get(key)
        merged[key] = replace(first, count=first.count + fault.count) if first else fault
    # Sorting is stable: within a kind the order of execution stays.
    return _cause_first(sorted(merged.values(), key=lambda f: FAULT_KINDS.index(f.kind)), list(merged.values()))


def _cause_first(ranked: list[Fault], executed: list[Fault]) -> list[Fault]:
    """An index that nobody wrote leads anywhere: a thread's uninitialised read stands before its access elsewhere."""
    if not ranked or ranked[0].kind not in ("out-of-bounds", "misaligned"):
        return ranked
    first = ranked[0]
    for fault in executed[: executed.index(first)]:
        if fault.kind == "uninitialised" and (fault.thread, fault.block) == (first.thread, first.block):
            return [fault, *(other for other in ranked if other is not fault)]
    return ranked


def budget_fault(launch: Launch, pc: int, thread: int, block: int, executions: list[int]) -> Fault:
    """The fault of a kernel that would not end. `executions` counts each basic block's entries."""
    graph = launch.entry.graph
    code = launch.entry.function.code
    here = next(b.index for b in graph.blocks if b.start <= pc < b.end)
    around = [loop for loop in graph.loops if here in loop.blocks]
    line = code[pc].line
    if around:
        most = max(executions[loop.header] for loop in around)
        # The outermost loop that turns in earnest: an inner one with few turns an entry is not to blame.
        endless = next(loop for loop in around if 1000 * executions[loop.header] >= most)
        line = code[endless.closing].line or line
        where = f"the loop at line {line} probably never ends"
    else:
        where = "the kernel does more work than a launch may"
    who = _thread(launch, thread, block)
    message = f"{where}: {who} was stopped when the launch's budget of instructions was spent"
    return Fault("budget", message, line, launch.thread_index(thread), launch.block_index(block))


def clock_fault(launch: Launch) -> Fault:
    """The fault of a launch with more barriers than the engine can tell apart."""
    return Fault("budget", f"{launch.entry.name} was stopped: its blocks come to more barriers than a launch may")


def _fault(launch: Launch, event: Event) -> Fault:
    instruction = launch.entry.function.code[event.pc]
    who = _thread(launch, event.thread, event.block)
    kind = EVENT_KINDS[event.code]
    array = None
    if event.code == STOPPED:
        message = _stop_message(launch, event, instruction)
    elif event.code in (PARTED, LEFT, APART):
        message = _barrier_message(launch, event)
    elif event.code in (LANE_AWAY, LANE_MISSES_ITSELF, LANE_SILENT):
        message = _meeting_message(launch, event, instruction)
    else:
        place = _place(launch, event, instruction)
        array, message = place.array, _message(launch, event, instruction, place)
        if place.is_shared and kind == "global-race":
            kind = "shared-race"
    return Fault(
        kind,
        f"{who} {message}",
        instruction.line,
        launch.thread_index(event.thread),
        launch.block_index(event.block),
        array,
        event.count,
    )


@dataclass(frozen=True)
class _Place:
    """What an access is meant for: the array, and where in it; `size` is None where there is no such array."""

    array: str | None
    offset: int
    size: int | None
    is_shared: bool = False

    def element(self, instruction: Instruction) -> str:
        size, width = instruction.type.size, instruction.width
        if self.offset % size:
            return f"byte {self.offset} of {self.array}"
        first = self.offset // size
        last = first + width - 1
        if self.is_shared:
            return f"element {first} of {self.array}" if width == 1 else f"elements {first} to {last} of {self.array}"
        return f"{self.array}[{first}]" if width == 1 else f"{self.array}[{first}] to {self.array}[{last}]"


def _place(launch: Launch, event: Event, instruction: Instruction) -> _Place:
    number, offset = split(event.address)
    if number == LOCAL_WINDOW:
        return _Place("local memory", offset, launch.entry.local_layout[1])
    if number == SHARED_WINDOW:
        return _shared_place(launch, event, offset)
    if 0 < number < len(launch.arrays):
        array = launch.arrays[number]
        return _Place(array.name, offset, len(array.data))
    return _Place(None, event.address, None)


def _shared_place(launch: Launch, event: Event, offset: int) -> _Place:
    if offset >= 1 << 31:  # a 32-bit address below 0
        offset -= 1 << 32
    meant = launch.shared_arrays(event.pc)
    inside = [a for a in meant if a.begin <= offset < a.end]
    if not inside and len(meant) != 1:
        return _Place("shared memory", offset, launch.shared_bytes, True)
    array = (inside or meant)[0]
    return _Place(array.name, offset - array.begin, array.end - array.begin, True)


def _thread(launch: Launch, thread: int, block: int) -> str:
    return f"thread {launch.thread_index(thread)} of block {launch.block_index(block)}"


def _message(launch: Launch, event: Event, instruction: Instruction, place: _Place) -> str:
    verb = _VERBS.get(instruction.opcode, "atomically updates")
    total = instruction.type.size * instruction.width
    if place.array == "local memory":
        return _local_message(launch, event, verb, place.offset, total)
    if place.size is None:
        where = "is close to the null pointer" if split(event.address)[0] == 0 else "belongs to no array"
        return f"{verb} address {event.address:#x}, which {where}"
    element = place.element(instruction)
    count = place.size // instruction.type.size
    if event.code == OUT_OF_BOUNDS:
        if place.offset < 0:
            first = f"element 0 of {place.array}" if place.is_shared else f"{place.array}[0]"
            return f"{verb} {element}, but {place.array} begins at {first}"
        return f"{verb} {element}, but {place.array} has {count} element{'s' * (count != 1)}"
    if event.code == MISALIGNED:
        return (
            f"{verb.removesuffix(' to')} {total} bytes at byte {place.offset} of {place.array}, but an access of "
            f"{total} bytes must begin at a multiple of {total}"
        )
    if event.code == UNINITIALISED:
        return f"reads {element}, which has not been written yet"
    if event.code == PENDING:
        return (
            f"{verb} {element}, which an asynchronous copy has yet to fill: wait for the copy first, with "
            "__pipeline_wait_prior (cp.async.wait_group), then with __syncthreads() for those of the other threads"
        )
    return _race_message(launch, event, instruction, element)


def _race_message(launch: Launch, event: Event, instruction: Instruction, element: str) -> str:
    other = _other(launch, event.other)
    at = "" if event.other_pc is None else f" at line {launch.entry.function.code[event.other_pc].line}"
    verb = _VERBS.get(instruction.opcode, "atomically updates")
    if event.code == UPDATED:
        what = f"{verb} {element}, which {other} updates atomically{at}; which comes first is undefined"
    elif instruction.opcode in ("atom", "red"):
        does = "stores to it" if event.code == WRITE_WRITE else "reads it"
        what = f"{verb} {element}, but {other} {does}{at} without an atomic function; which comes first is undefined"
    elif event.code == WRITE_WRITE:
        what = f"stores to {element}, and {other} stores a different value there{at}; which one stays is undefined"
    elif instruction.opcode != "ld":
        what = f"stores to {element}, which {other} reads{at}; which comes first is undefined"
    else:
        what = f"reads {element}, which {other} stores to{at}; which comes first is undefined"
    cure = _cure(launch, event, instruction.line)
    return f"{what}: {cure}" if cure else what


def _cure(launch: Launch, event: Event, line: int) -> str:
    """What would order the two threads of a race."""
    if event.other == NOBODY or event.other_pc is None:
        return ""
    if (event.other - 1) // launch.threads_per_block != event.block:
        return "blocks run in any order, and no barrier orders them"
    other_line = launch.entry.function.code[event.other_pc].line
    barrier = "__syncthreads()" if launch.warps_per_block > 1 else "__syncthreads() (or, in one warp, __syncwarp())"
    is_update = event.code == UPDATED or launch.entry.function.code[event.pc].opcode in ("atom", "red")
    if event.code == WRITE_WRITE and other_line == line and not is_update:
        return "each thread needs an element of its own"
    if other_line == line and is_update:
        return f"a {barrier} is missing between the two"
    if other_line == line:
        return (
            f"a {barrier} is missing between what this line reads and what it stores; or, where threads add to one "
            "element, an atomic function"
        )
    first, last = sorted((line, other_line))
    if other_line > line and _in_one_loop(launch, event.other_pc, event.pc):
        return f"a {barrier} is missing between line {last} and line {first} in the loop's next turn"
    return f"a {barrier} is missing between line {first} and line {last}"


def _in_one_loop(launch: Launch, *pcs: int) -> bool:
    graph = launch.entry.graph
    blocks = {block.index for block in graph.blocks for pc in pcs if block.start <= pc < block.end}
    return any(blocks <= loop.blocks for loop in graph.loops)


def _barrier_message(launch: Launch, event: Event) -> str:
    other = _other(launch, event.other)
    if event.code == PARTED:
        what = f"waits at this barrier, but {other} of its warp is on another path"
        return f"{what}: move the barrier out of the branch, so that all threads come to it"
    ended = event.code == LEFT or event.other_pc is None
    if ended:
        what = f"waits at this barrier, but {other} has already returned"
        return f"{what}: all threads must come to it, so put the work under a condition in place of the return"
    assert event.other_pc is not None
    line = launch.entry.function.code[event.other_pc].line
    return f"waits at this barrier, but {other} waits at the one in line {line}: all must wait at the same barrier"


def _local_message(launch: Launch, event: Event, verb: str, offset: int, total: int) -> str:
    size = launch.entry.local_layout[1]
    place = f"{verb} bytes {offset} to {offset + total - 1} of its local arrays"
    if event.code == OUT_OF_BOUNDS:
        return f"{place}, which have {size} bytes in all"
    if event.code == MISALIGNED:
        return f"{place}, but an access of {total} bytes must begin at a multiple of {total}"
    return f"{place}, which have not been written yet"


def _meeting_message(launch: Launch, event: Event, instruction: Instruction) -> str:
    """What is wrong where the lanes of a warp meet; `address` holds the mask of lanes that the thread names."""
    function, mask = _cuda_function(instruction), event.address
    lane = event.thread % WARP
    if event.code == LANE_MISSES_ITSELF:
        return f"calls {function} with the mask {mask:#010x}, in which its own lane {lane} is missing"
    thread = event.thread - lane + event.other
    if event.code == LANE_AWAY:
        return (
            f"waits in {function} for lane {event.other}, {_thread(launch, thread, event.block)}, which its mask "
            f"{mask:#010x} names but which does not come here with the same mask; name only lanes that do, or call "
            "it where the warp is together"
        )
    why = "takes no part in it" if thread < launch.threads_per_block else "does not exist in this block"
    return (
        f"reads from lane {event.other} in {function}, but that lane {why} (mask {mask:#010x}): the value is undefined"
    )


def _stop_message(launch: Launch, event: Event, instruction: Instruction) -> str:
    """Why a thread stopped itself; `address` of an assertion points to its text."""
    if instruction.opcode != "assertfail":
        return f"stops itself with __{instruction.opcode}()"
    return f"finds its assertion wrong: {string_at(launch.bytes_at, event.address)}"


def _cuda_function(instruction: Instruction) -> str:
    """The function of CUDA C++ behind an instruction in which lanes meet."""
    names = {"up": "up_", "down": "down_", "bfly": "xor_", "idx": ""}
    if instruction.opcode == "shfl":
        return f"__shfl_{next(names[m] for m in instruction.modifiers if m in names)}sync"
    if is_warp_barrier(instruction):
        return "__syncwarp"
    form = next((m for m in instruction.modifiers if m not in ("sync", "pred", "b32")), "")
    stem = {"vote": "__", "match": "__match_", "redux": "__reduce_"}.get(instruction.opcode, "elect_")
    return f"{stem}{form}{'_' if form else ''}sync"


def _other(launch: Launch, other: int) -> str:
    if other == NOBODY:
        return "another thread"
    block, thread = divmod(other - 1, launch.threads_per_block)
    return _thread(launch, thread, block)
