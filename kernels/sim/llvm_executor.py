"""The compiled executor: sets up the tables that an entry's machine code works on, runs it, reads them back."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass

import numpy as np

from ..errors import UnsupportedPTX
from ..result import Counters, Fault
from . import atomics, counters, faults, jit, pointers
from .addresses import LOCAL_WINDOW, split
from .context import (
    ACCESS_FIELDS,
    ARRAY_FIELDS,
    BLOCK_FIELDS,
    EVENT_CODES,
    EVENT_FIELDS,
    AccessField,
    ArrayField,
    BlockField,
    EventField,
    Slot,
)
from .counters import AccessTally, Tally
from .faults import Event
from .isa import STOPS, WARP_FUNCTIONS
from .launch import WARP, Buffer, Launch
from .lower import lower
from .program import Entry, Program

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
    granule: int
    touched: pointers.Touched


def run(launch: Launch) -> tuple[list[Fault], Counters]:
    """Execute a launch."""
    code = compiled(launch.program, launch.entry)
    tables = _Tables(launch, code)
    if launch.blocks and launch.threads_per_block:
        _call(tables.context, code.warp, len(launch.entry.function.code))
    return tables.result()


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
            address = jit.address_of(lower(program, entry), "warp")
        except RuntimeError as error:  # LLVM: types that do not fit, in inline assembly
            raise UnsupportedPTX(Fault("unsupported", f"the engine cannot compile {entry.name}: {error}")) from error
        found = Compiled(address, pointers.granule(entry), pointers.touched(entry))
        program.prepared[entry.name] = found
    return found


def _require_library(entry: Entry) -> None:
    """Load what an entry's code calls."""
    for pc in entry.accesses:
        ins = entry.function.code[pc]
        if ins.opcode in WARP_FUNCTIONS:
            jit.require_warp_functions()
        elif ins.opcode in STOPS:
            continue
        elif ins.opcode in ("atom", "red"):
            jit.require_atomic(atomics.operation_of(ins), ins.type)
        else:
            jit.require_access(ins.type.size * ins.width)


class _Tables:
    """The memory behind a context. The arrays are kept here as long as machine code may use them."""

    def __init__(self, launch: Launch, code: Compiled):
        self.launch = launch
        self.code = code
        self.accesses = launch.entry.accesses
        self.rows = len(launch.arrays)
        self.kept: list[np.ndarray] = []
        self.context = np.zeros(len(Slot), np.int64)
        self.events = np.zeros((len(self.accesses), self.rows + 1, EVENT_CODES, EVENT_FIELDS), np.int64)
        self.tallies = np.zeros((len(self.accesses), self.rows, ACCESS_FIELDS), np.int64)
        self.blocks = np.zeros((len(launch.entry.graph.blocks), BLOCK_FIELDS), np.int64)
        self._fill_numbers()
        self._fill_pointers()

    def _fill_numbers(self) -> None:
        launch, context = self.launch, self.context
        context[Slot.ARRAY_COUNT] = self.rows
        context[Slot.LOCAL_SIZE] = launch.entry.local_layout[1]
        context[Slot.GRANULE_SHIFT] = self.code.granule.bit_length() - 1
        context[Slot.WARPS] = launch.warps_per_block
        context[Slot.BLOCK_COUNT] = launch.blocks
        context[Slot.THREADS_PER_BLOCK] = launch.threads_per_block
        context[Slot.BLOCK_X : Slot.BLOCK_Z + 1] = launch.block
        context[Slot.GRID_X : Slot.GRID_Z + 1] = launch.grid
        context[Slot.WARP_BUDGET] = launch.warp_budget
        context[Slot.LAUNCH_BUDGET] = launch.launch_budget

    def _fill_pointers(self) -> None:
        launch = self.launch
        local = max(WARP * launch.entry.local_layout[1], 1)
        for slot, table in {
            Slot.ARRAYS: self._arrays(),
            Slot.EVENTS: self.events,
            Slot.ACCESSES: self.tallies,
            Slot.BLOCKS: self.blocks,
            Slot.PARAMS: np.frombuffer(launch.params + bytes(8), np.uint8),
            Slot.THREADS: self._threads(),
            Slot.DATA: _aligned(np.zeros(16 * WARP, np.uint8)),
            Slot.MASKS: self._masks(),
            Slot.LOCAL: np.zeros(local, np.uint8),
            Slot.LOCAL_WRITTEN: np.zeros(local, np.uint8),
        }.items():
            self.context[slot] = self._keep(table)
        self.context[Slot.PRINTER] = self._printer()

    def _printer(self) -> int:
        """The address of what printf calls."""
        launch = self.launch

        def printer(context: int, format_at: int, arguments_at: int, lane: int) -> int:
            slots = (ctypes.c_int64 * len(Slot)).from_address(context)

            def memory(address: int, size: int) -> bytes:
                number, offset = split(address)
                if number != LOCAL_WINDOW:
                    return launch.bytes_at(address, size)
                room = max(0, min(size, slots[Slot.LOCAL_SIZE] - offset)) if offset >= 0 else 0
                return ctypes.string_at(slots[Slot.LOCAL] + lane * slots[Slot.LOCAL_SIZE] + offset, room)

            return launch.output.call(memory, format_at, arguments_at)

        self.callback = _PRINTER(printer)
        return ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def _keep(self, table: np.ndarray) -> int:
        self.kept.append(table)
        return table.ctypes.data

    def _arrays(self) -> np.ndarray:
        records = np.zeros((self.rows, ARRAY_FIELDS), np.int64)
        for number, array in enumerate(self.launch.arrays):
            records[number, ArrayField.BASE] = self._keep(array.data)
            records[number, ArrayField.SIZE] = len(array.data)
            if number and self.launch.checks:
                self._add_shadows(records[number], number, array)
        return records

    def _add_shadows(self, record: np.ndarray, number: int, array: Buffer) -> None:
        """Shadows for what can go wrong with an array: undefined contents, and races if it is stored to."""
        count = len(array.data) // self.code.granule + 1
        touched = self.code.touched
        if not array.initialised:
            record[ArrayField.WRITTEN] = self._keep(np.zeros(count, np.uint8))
        if pointers.is_among(self.launch, array, number, touched.stored):
            record[ArrayField.WRITER] = self._keep(np.zeros(count, np.uint32))
            if pointers.is_among(self.launch, array, number, touched.loaded):
                record[ArrayField.READER] = self._keep(np.zeros(count, np.uint32))

    def _threads(self) -> np.ndarray:
        """tid of every lane of a block, in 64-byte aligned rows."""
        linear = np.arange(self.launch.warps_per_block * WARP).reshape(-1, WARP)
        x, y, _ = self.launch.block
        coordinates = np.stack([linear % x, linear // x % y, linear // (x * y)], axis=1).astype(np.int32)
        return _aligned(coordinates.reshape(-1).view(np.uint8))

    def _masks(self) -> np.ndarray:
        linear = np.arange(self.launch.warps_per_block * WARP).reshape(-1, WARP)
        exists = linear < self.launch.threads_per_block
        return (exists.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1).astype(np.uint32)

    # -- reading back ----------------------------------------------------------------------------

    def result(self) -> tuple[list[Fault], Counters]:
        if not self.launch.checks:
            return [], Counters()
        found = faults.explain(self.launch, self._recorded_events()) + self._budget_faults()
        return found, counters.report(self.launch, self._tally())

    def _recorded_events(self) -> list[Event]:
        found = []
        for access, row, code in np.argwhere(self.events[..., EventField.COUNT]):
            fields = [int(v) for v in self.events[access, row, code]]
            address = fields[EventField.ADDRESS] & (2**64 - 1)
            number = LOCAL_WINDOW if row == self.rows else int(row)
            found.append(
                Event(
                    self.accesses[access],
                    int(code),
                    number,
                    fields[EventField.ORDER],
                    fields[EventField.COUNT],
                    fields[EventField.THREAD],
                    fields[EventField.BLOCK],
                    address,
                    fields[EventField.OTHER],
                )
            )
        return found

    def _budget_faults(self) -> list[Fault]:
        if not self.context[Slot.STOPPED]:
            return []
        lanes = int(self.context[Slot.STOPPED_LANES])
        thread = int(self.context[Slot.THREAD]) + (lanes & -lanes).bit_length() - 1
        block = int(self.context[Slot.BLOCK])
        executions = [int(n) for n in self.blocks[:, BlockField.EXECUTIONS]]
        return [faults.budget_fault(self.launch, int(self.context[Slot.STOPPED_AT]), thread, block, executions)]

    def _tally(self) -> Tally:
        executions, lanes, divergent = (
            [int(n) for n in self.blocks[:, c]] for c in (BlockField.EXECUTIONS, BlockField.LANES, BlockField.DIVERGENT)
        )
        tally = Tally(executions, lanes, divergent)
        for access, number in np.argwhere(self.tallies[..., AccessField.THREADS]):
            fields = [int(v) for v in self.tallies[access, number, : len(AccessField)]]
            tally.accesses[self.accesses[access], int(number)] = AccessTally(*fields)
        return tally


def _aligned(data: np.ndarray) -> np.ndarray:
    """A copy of some bytes that begins at a multiple of 64."""
    room = np.zeros(data.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + data.nbytes] = data
    return room[start : start + data.nbytes]  # keeps `room` alive
