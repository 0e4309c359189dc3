"""The compiled executor: compiles an entry once, and runs its launches."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import UnsupportedPTX
from ..result import Counters, Fault
from . import atomics, investigation, jit, parallel, pointers
from .addresses import LOCAL_WINDOW, split
from .async_copies import STORE_OPCODE
from .barriers import is_warp_barrier
from .context import Slot
from .isa import STOPS, WARP_FUNCTIONS
from .launch import Launch
from .lower import lower
from .printf import Output
from .program import Entry, Program, is_access
from .tables import Tables, Watch

#: Code up to this length fits on any thread's stack; longer code pays this much stack for an instruction.
ORDINARY_INSTRUCTIONS = 4000
FRAME_BYTES = 1024

_stack_lock = threading.Lock()
_PRINTER = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32)
_DRIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Compiled:
    """An entry's machine code, and what is known of its accesses."""

    warp: int  # address of the function that runs a warp
    frame_bytes: int
    watch: Watch


def run(launch: Launch) -> tuple[list[Fault], Counters]:
    """Execute a launch: fast at first, on all cores.

    If anything goes wrong, or what one core does may depend on another, the arrays get their contents back, and all is
    run once more from the start, in order; where threads race, a third time, taking note of everything. So a report
    never depends on the machine.
    """
    code = compiled(launch.program, launch.entry)
    if not launch.checks:
        run = _Run(launch, code, thorough=False)
        run.blocks(0, launch.blocks)
        return run.tables.result()
    before = _copies(launch, code)
    tables = parallel.run(lambda: _Run(launch, code, thorough=False), launch)
    if tables is None:
        _restore(launch, before)
        survey = _Run(launch, code, thorough=False)
        suspects = investigation.suspects(survey, launch)
        tables = survey.tables
        if tables.watched_reports:
            _restore(launch, before)
            tables = investigation.investigate(lambda: _Run(launch, code, thorough=True), launch, suspects)
    return tables.result()


def _restore(launch: Launch, before: dict[int, np.ndarray]) -> None:
    launch.output = Output()
    for number, contents in before.items():
        launch.arrays[number].data[:] = contents


def _copies(launch: Launch, code: Compiled) -> dict[int, np.ndarray]:
    """The contents of all arrays that the entry may change."""
    touched = code.watch.touched
    changed = touched.stored | touched.updated
    return {n: launch.arrays[n].data.copy() for n in range(1, len(launch.arrays)) if launch.is_among(n, changed)}


class _Run:
    """Machine code and the tables that it works on: runs any blocks of a launch, one after the other."""

    def __init__(self, launch: Launch, code: Compiled, thorough: bool):
        self.tables = Tables(launch, code.watch, code.frame_bytes, thorough)
        self.warp = code.warp
        self.threads = launch.threads_per_block
        self.instructions = len(launch.entry.function.code)
        self.printer = _PRINTER(_print_on(launch))
        self.tables.context[Slot.PRINTER] = ctypes.cast(self.printer, ctypes.c_void_p).value or 0

    def blocks(self, begin: int, end: int) -> None:
        if not self.threads:
            return
        self.tables.context[Slot.BLOCK] = begin
        self.tables.context[Slot.BLOCK_END] = end
        _call(self.tables.context, self.warp, self.instructions)


def _print_on(launch: Launch) -> Callable[[int, int, int, int], int]:
    """What printf calls, with the address of the context, those of its arguments, and the lane."""

    def printer(context: int, format_at: int, arguments_at: int, lane: int) -> int:
        slots = (ctypes.c_int64 * len(Slot)).from_address(context)
        size = slots[Slot.LOCAL_SIZE]
        local = slots[Slot.LOCAL] + slots[Slot.WARP] * slots[Slot.LOCAL_STRIDE] + lane * size

        def memory(address: int, count: int) -> bytes:
            number, offset = split(address)
            if number != LOCAL_WINDOW:
                return launch.bytes_at(address, count)
            room = max(0, min(count, size - offset)) if offset >= 0 else 0
            return ctypes.string_at(local + offset, room)

        return launch.output.call(memory, format_at, arguments_at)

    return printer


def _call(context: np.ndarray, warp: int, instructions: int) -> None:
    """Run the machine code; long code has a large frame and gets a stack of its own."""
    drive = _DRIVE(jit.drive_address())
    if instructions <= ORDINARY_INSTRUCTIONS:
        drive(context.ctypes.data, warp)
        return
    with _stack_lock:
        before = threading.stack_size(FRAME_BYTES * instructions)
        try:
            thread = threading.Thread(target=drive, args=(context.ctypes.data, warp))
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()


def compiled(program: Program, entry: Entry) -> Compiled:
    """An entry's machine code, generated at the first call."""
    found = program.prepared.get(entry.name)
    if not isinstance(found, Compiled):
        jit.drive_address()
        _require_library(entry)
        try:
            lowered = lower(program, entry)
            address = jit.address_of(lowered.ir, "warp")
        except RuntimeError as error:  # LLVM: types that do not fit, in inline assembly
            raise UnsupportedPTX(Fault("unsupported", f"the engine cannot compile {entry.name}: {error}")) from error
        found = Compiled(address, lowered.frame_bytes, Watch(entry))
        program.prepared[entry.name] = found
    return found


def _require_library(entry: Entry) -> None:
    """Load what an entry's code calls."""
    granule = pointers.granule(entry, "shared")
    for pc in entry.sites:
        ins = entry.function.code[pc]
        if ins.opcode in WARP_FUNCTIONS or is_warp_barrier(ins):
            jit.require_warp_functions()
        elif ins.opcode in STOPS or ins.opcode == STORE_OPCODE:
            continue
        elif ins.opcode in ("atom", "red"):
            jit.require_atomic(atomics.operation_of(ins), ins.type)
        elif is_access(ins) and ins.has("shared"):
            jit.require_shared_access(ins.type.size * ins.width, granule)
        elif is_access(ins):
            jit.require_access(ins.type.size * ins.width)
