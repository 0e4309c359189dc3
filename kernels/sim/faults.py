"""From what an executor noticed to what a student reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..result import FAULT_KINDS, Fault
from .addresses import LOCAL_WINDOW, split
from .launch import WARP, Launch
from .printf import string_at
from .ptx import Instruction

#: What can go wrong at a memory access, in the order in which an access is checked, then where the lanes of a
#: warp meet. The index is the code that the executors record.
OUT_OF_BOUNDS, MISALIGNED, UNINITIALISED, WRITE_WRITE, READ_WRITE, LANE_AWAY, LANE_MISSES_ITSELF, LANE_SILENT = range(8)
STOPPED = 8  # the thread stopped itself
EVENT_KINDS = (
    "out-of-bounds",
    "misaligned",
    "uninitialised",
    "global-race",
    "global-race",
    "divergent-barrier",  # lanes that wait for a lane that never comes
    "divergent-barrier",
    "uninitialised",  # a value that nobody gave
    "trap",
)

#: `other` where the second party of a race is not one thread.
NOBODY, SEVERAL = 0, 0xFFFFFFFF

#: In the tag of the thread that stored last: it did so by atomic updates only.
ATOMIC = 1 << 31


@dataclass
class Event:
    """The first of `count` equal misbehaviours. `thread` is linear in its block, `block` in the grid.

    other   for a race: 1 + the linear number of the other thread in the grid, or SEVERAL
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


def explain(launch: Launch, events: list[Event]) -> list[Fault]:
    """Faults of a launch: equal ones (kind, line, array) counted and the first kept; ranked."""
    merged: dict[tuple[str, int, str | None], Fault] = {}
    for fault in (_fault(launch, e) for e in sorted(events, key=lambda e: e.order)):
        key = (fault.kind, fault.line, fault.array)
        first = merged.get(key)
        merged[key] = replace(first, count=first.count + fault.count) if first else fault
    # Sorting is stable: within a kind the order of execution stays.
    return sorted(merged.values(), key=lambda f: FAULT_KINDS.index(f.kind))


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


def _fault(launch: Launch, event: Event) -> Fault:
    instruction = launch.entry.function.code[event.pc]
    number, offset = split(event.address)
    known = 0 < number < len(launch.arrays) and event.code != STOPPED
    array = launch.arrays[number].name if known else "local memory" if number == LOCAL_WINDOW else None
    return Fault(
        EVENT_KINDS[event.code],
        f"{_thread(launch, event.thread, event.block)} {_message(launch, event, instruction, number, offset)}",
        instruction.line,
        launch.thread_index(event.thread),
        launch.block_index(event.block),
        array,
        event.count,
    )


def _thread(launch: Launch, thread: int, block: int) -> str:
    return f"thread {launch.thread_index(thread)} of block {launch.block_index(block)}"


def _message(launch: Launch, event: Event, instruction: Instruction, number: int, offset: int) -> str:
    if event.code == STOPPED:
        return _stop_message(launch, event, instruction)
    if event.code in (LANE_AWAY, LANE_MISSES_ITSELF, LANE_SILENT):
        return _meeting_message(launch, event, instruction)
    verb = {"ld": "reads", "st": "stores to"}.get(instruction.opcode, "atomically updates")
    size = instruction.type.size
    total = size * instruction.width
    if number == LOCAL_WINDOW:
        return _local_message(launch, event, verb, offset, total)
    if not 0 < number < len(launch.arrays):
        where = "is close to the null pointer" if number == 0 else "belongs to no array"
        return f"{verb} address {event.address:#x}, which {where}"
    array = launch.arrays[number]
    element = _element(array.name, offset, size, instruction.width)
    count = len(array.data) // size
    if event.code == OUT_OF_BOUNDS:
        if offset < 0:
            return f"{verb} {element}, but {array.name} begins at {array.name}[0]"
        return f"{verb} {element}, but {array.name} has {count} element{'s' * (count != 1)}"
    if event.code == MISALIGNED:
        return (
            f"{verb.removesuffix(' to')} {total} bytes at byte {offset} of {array.name}, but an access of "
            f"{total} bytes must begin at a multiple of {total}"
        )
    if event.code == UNINITIALISED:
        return f"reads {element}, which has not been written yet"
    other = _other(launch, event.other)
    if _is_update(event, instruction):
        return f"{verb} {element}, which {other} updates atomically in the same launch; which comes first is undefined"
    if instruction.opcode in ("atom", "red"):
        does = "stores to it" if event.code == WRITE_WRITE else "reads it"
        return f"{verb} {element}, but {other} {does} without an atomic function; which comes first is undefined"
    if event.code == WRITE_WRITE:
        return f"stores to {element}, and {other} stores a different value there; which one stays is undefined"
    if instruction.opcode == "st":
        return f"stores to {element}, which {other} reads in the same launch; which comes first is undefined"
    return f"reads {element}, which {other} stores to in the same launch; which comes first is undefined"


def _element(name: str, offset: int, size: int, width: int) -> str:
    if offset % size:
        return f"byte {offset} of {name}"
    first = offset // size
    return f"{name}[{first}]" if width == 1 else f"{name}[{first}] to {name}[{first + width - 1}]"


def _local_message(launch: Launch, event: Event, verb: str, offset: int, total: int) -> str:
    size = launch.entry.local_layout[1]
    place = f"{verb} bytes {offset} to {offset + total - 1} of its local arrays"
    if event.code == OUT_OF_BOUNDS:
        return f"{place}, which have {size} bytes in all"
    if event.code == MISALIGNED:
        return f"{place}, but an access of {total} bytes must begin at a multiple of {total}"
    return f"{place}, which have not been written yet"


def _is_update(event: Event, instruction: Instruction) -> bool:
    """Whether the other party of a race made an atomic update. Several threads store only so, but may read."""
    if event.other == SEVERAL:
        return event.code == WRITE_WRITE or instruction.opcode == "ld"
    return bool(event.other & ATOMIC)


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
    form = next((m for m in instruction.modifiers if m not in ("sync", "pred", "b32")), "")
    stem = {"vote": "__", "match": "__match_", "redux": "__reduce_"}.get(instruction.opcode, "elect_")
    return f"{stem}{form}{'_' if form else ''}sync"


def _other(launch: Launch, other: int) -> str:
    if other in (NOBODY, SEVERAL):
        return "another thread"
    block, thread = divmod((other & ~ATOMIC) - 1, launch.threads_per_block)
    return _thread(launch, thread, block)
