"""From what an executor noticed to what a student reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..result import FAULT_KINDS, Fault
from .addresses import LOCAL_WINDOW, split
from .launch import Launch
from .ptx import Instruction

#: What can go wrong at a memory access, in the order in which an access is checked. The index is the code
#: that the executors record.
OUT_OF_BOUNDS, MISALIGNED, UNINITIALISED, WRITE_WRITE, READ_WRITE = range(5)
EVENT_KINDS = ("out-of-bounds", "misaligned", "uninitialised", "global-race", "global-race")

#: `other` where the second party of a race is not one thread.
NOBODY, SEVERAL = 0, 0xFFFFFFFF


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
    known = 0 < number < len(launch.arrays)
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
    verb = "stores to" if instruction.opcode == "st" else "reads"
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


def _other(launch: Launch, other: int) -> str:
    if other in (NOBODY, SEVERAL):
        return "another thread"
    block, thread = divmod(other - 1, launch.threads_per_block)
    return _thread(launch, thread, block)
