"""What a warp of the plain executor loads, stores and updates: every rule of an access, lane after lane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import numpy_alu
from .addresses import LOCAL_WINDOW, SHARED_WINDOW, split, window
from .async_copies import MOST_COPIES, waits
from .faults import (
    MISALIGNED,
    OUT_OF_BOUNDS,
    PENDING,
    READ_WRITE,
    UNINITIALISED,
    UPDATED,
    WRITE_WRITE,
)
from .launch import WARP
from .numpy_account import Account
from .numpy_memory import Mark, Sync
from .numpy_registers import Lanes, Registers
from .numpy_requests import Offsets, count
from .ptx import Address, Immediate, Instruction, Operand, Register, Vector
from .types import TYPES, bits_type


@dataclass
class _Copy:
    """An asynchronous copy under way: its instruction, and for each lane whether, in which group, whereto and what."""

    pc: int
    lanes: Lanes
    groups: np.ndarray
    addresses: list[int]
    data: np.ndarray


class Accesses(Registers):
    """A warp with its local memory and its asynchronous copies."""

    def __init__(self, owner: Account, block: int, warp: int):
        super().__init__(owner.launch, block, warp)
        self.owner = owner
        size = self.launch.entry.local_layout[1]
        self.local = np.zeros((WARP, size), np.uint8)
        self.local_written = np.zeros((WARP, size), bool)
        self.synced = [Sync(0, 0)] * WARP
        self.copies: list[_Copy] = []
        self.groups = np.zeros(WARP, int)

    def access(self, pc: int, ins: Instruction, active: Lanes) -> None:
        at = 1 if ins.opcode == "ld" else 0
        address = ins.operands[at]
        value = ins.operands[1 - at]
        assert isinstance(address, Address)
        parts = value.parts if isinstance(value, Vector) else (value,)
        if ins.has("param"):
            self._load_param(ins, parts, active)
            return
        addresses = self.addresses(ins, address)
        size = ins.type.size
        data = self._data(ins, value) if ins.opcode == "st" else np.zeros((WARP, size * ins.width), np.uint8)
        self.touch(pc, ins, addresses, data, active)
        if ins.opcode == "ld":
            for i, part in enumerate(parts):
                raw = np.ascontiguousarray(data[:, i * size : (i + 1) * size])
                self.write(part, raw.view(ins.type.dtype).reshape(WARP), active)

    def start_copy(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """What was loaded is queued until the thread waits for it."""
        if not active.any():
            return
        if len(self.copies) == MOST_COPIES:
            self._finish(self.copies[:1], np.ones(WARP, bool))
        place, value = ins.operands
        assert isinstance(place, Address)
        copy = _Copy(pc, active.copy(), self.groups.copy(), self.addresses(ins, place), self._data(ins, value))
        self.copies.append(copy)
        self.owner.memory[SHARED_WINDOW].pending.update(
            *(self._words(copy, int(lane)) for lane in np.flatnonzero(active))
        )

    def _words(self, copy: _Copy, lane: int) -> range:
        """The words that a lane's copy fills; none if they do not lie in shared memory."""
        offset, width = copy.addresses[lane] - window(SHARED_WINDOW), copy.data.shape[1]
        fits = 0 <= offset <= self.launch.shared_bytes - width
        return range(offset // 4, offset // 4 + width // 4) if fits else range(0)

    def end_copies(self, ins: Instruction, active: Lanes) -> None:
        """commit_group, wait_group and wait_all."""
        if not waits(ins):
            self.groups[active] += 1
            return
        last = ins.operands[0] if ins.operands else Immediate(0)
        assert isinstance(last, Immediate)
        for copy in list(self.copies):
            due = ins.has("wait_all") | (copy.groups < self.groups - last.value)
            self._finish([copy], active & due)

    def _finish(self, copies: list[_Copy], lanes: Lanes) -> None:
        for copy in copies:
            ready = copy.lanes & lanes
            words = (self._words(copy, int(lane)) for lane in np.flatnonzero(ready))
            self.owner.memory[SHARED_WINDOW].pending.difference_update(*words)
            if ready.any():
                self.touch(copy.pc, self.launch.entry.function.code[copy.pc], copy.addresses, copy.data, ready)
            copy.lanes = copy.lanes & ~ready
        self.copies = [copy for copy in self.copies if copy.lanes.any()]

    def _data(self, ins: Instruction, value: Operand) -> np.ndarray:
        """What each lane stores, as bytes."""
        size = ins.type.size
        data = np.zeros((WARP, size * ins.width), np.uint8)
        for i, part in enumerate(value.parts if isinstance(value, Vector) else (value,)):
            lanes = self.read(part, bits_type(ins.type.bits))
            data[:, i * size : (i + 1) * size] = lanes.reshape(WARP, 1).view(np.uint8)
        return data

    def addresses(self, ins: Instruction, address: Address) -> list[int]:
        """The generic address of each lane."""
        start = address.offset + (window(SHARED_WINDOW) if ins.has("shared") else 0)
        if address.base is None:
            return [start] * WARP
        kind = "s" if ins.has("shared") else "u"  # a 32-bit address of shared memory may be below 0
        bits = 64
        if isinstance(address.base, Register):
            bits = self.launch.entry.function.register_type(address.base.name).bits
        base = self.read(address.base, TYPES[f"{kind}{bits}"])
        return [(int(b) + start) & (2**64 - 1) for b in base]

    def _load_param(self, ins: Instruction, parts: tuple[Operand, ...], active: Lanes) -> None:
        at = self.launch.entry.param_place(ins)
        for i, part in enumerate(parts):
            raw = self.launch.params[at + i * ins.type.size : at + (i + 1) * ins.type.size]
            self.write(part, np.full(WARP, np.frombuffer(raw, ins.type.dtype)[0]), active)

    def touch(self, pc: int, ins: Instruction, addresses: list[int], data: np.ndarray, active: Lanes) -> None:
        """Check and perform the access of each active lane; count the warp's request."""
        total = data.shape[1]
        touched: dict[int, Offsets] = {}
        for lane in np.flatnonzero(active):
            number, offset = split(addresses[lane])
            if number == LOCAL_WINDOW:
                self._touch_local(pc, ins, addresses[lane], offset, int(lane), data[lane])
            elif self._is_inside(pc, addresses[lane], total, int(lane)):
                touched.setdefault(number, {})[int(lane)] = offset
                self._touch_array(pc, ins, addresses[lane], data[lane], int(lane))
        if not ins.has("const"):  # constant memory has a cache and units of its own
            count(self.owner.tally, self.launch.entry, pc, touched, total, bool(active.all()))

    def _is_inside(self, pc: int, address: int, size: int, lane: int) -> bool:
        """Whether an access lies in an array, aligned; if not, say so."""
        number, offset = split(address)
        memory = self.owner.memory.get(number)
        thread = self.first_thread + lane
        begin, end = (0, len(memory.data)) if memory else (0, 0)
        if number == SHARED_WINDOW:
            meant = self.launch.shared_arrays(pc)
            begin, end = min((a.begin for a in meant), default=0), max((a.end for a in meant), default=0)
        if memory is None or offset < begin or offset + size > end:
            self.owner.record(pc, OUT_OF_BOUNDS, number if memory else 0, thread, self.block, address)
            return False
        if offset % size:
            self.owner.record(pc, MISALIGNED, number, thread, self.block, address)
            return False
        return True

    def _mark(self, pc: int, lane: int) -> Mark:
        """Who does something now, where in the program, and what is known to have been before."""
        thread = self.block * self.launch.threads_per_block + self.first_thread + lane
        own = (self.block, self.first_thread // WARP, lane)
        return Mark(thread, *own, self.owner.epoch, self.owner.now(), pc, self.synced[lane])

    def _record_race(self, code: int, me: Mark, address: int, other: Mark | None) -> None:
        if other is not None:
            thread = self.first_thread + me.lane
            number = split(address)[0]
            self.owner.record(me.pc, code, number, thread, self.block, address, 1 + other.thread, other.pc)

    def _touch_array(self, pc: int, ins: Instruction, address: int, data: np.ndarray, lane: int) -> None:
        number, offset = split(address)
        memory = self.owner.memory[number]
        span = range(offset, offset + len(data))
        place = memory.data[offset : offset + len(data)]
        me = self._mark(pc, lane)
        if memory.is_pending(span):
            self.owner.record(pc, PENDING, number, self.first_thread + lane, self.block, address)
        if ins.opcode == "ld":
            if not memory.written[offset : offset + len(data)].all():
                self.owner.record(pc, UNINITIALISED, number, self.first_thread + lane, self.block, address)
            self._record_race(READ_WRITE, me, address, memory.racing_writer(span, me))
            if pc not in self.launch.entry.guesses:
                self._record_race(UPDATED, me, address, memory.racing(memory.updaters, span, me))
                memory.note(memory.readers, span, me)
            data[:] = place
            return
        if (data != place).any():
            self._record_race(WRITE_WRITE, me, address, memory.racing_writer(span, me))
            self._record_race(READ_WRITE, me, address, memory.racing(memory.readers, span, me))
            self._record_race(UPDATED, me, address, memory.racing(memory.updaters, span, me))
        memory.note_writer(span, me)
        place[:] = data

    def update(self, pc: int, ins: Instruction, active: Lanes) -> None:
        """An atomic update: the lanes take turns."""
        to = ins.operands[0] if ins.opcode == "atom" else None
        place, *operands = ins.operands[to is not None :]
        assert isinstance(place, Address)
        addresses = self.addresses(ins, place)
        values = [self.read(o, ins.type) for o in operands]
        old = np.zeros(WARP, ins.type.dtype)
        size = ins.type.size
        touched: dict[int, Offsets] = {}
        for lane in np.flatnonzero(active):
            number, offset = split(addresses[lane])
            if self._reach(pc, ins, addresses[lane], int(lane)):
                touched.setdefault(number, {})[int(lane)] = offset
                memory = self.owner.memory[number].data[offset : offset + size]
                old[lane] = memory.view(ins.type.dtype)[0]
                new = numpy_alu.update(ins, number == SHARED_WINDOW, old[lane], *(v[lane] for v in values))
                memory[:] = np.array([new], ins.type.dtype).view(np.uint8)
        count(self.owner.tally, self.launch.entry, pc, touched, size, bool(active.all()))
        if to is not None:
            self.write(to, old, active)

    def _reach(self, pc: int, ins: Instruction, address: int, lane: int) -> bool:
        """Check an atomic update of one lane: it races with loads and stores of others, not with their updates."""
        if not self._is_inside(pc, address, ins.type.size, lane):
            return False
        number, offset = split(address)
        memory = self.owner.memory[number]
        span = range(offset, offset + ins.type.size)
        me = self._mark(pc, lane)
        if memory.is_pending(span):
            self.owner.record(pc, PENDING, number, self.first_thread + lane, self.block, address)
        written = memory.written[span.start : span.stop]
        reads = not ins.has("exch") or self.launch.entry.uses_result(ins)
        if reads and not written.all():
            self.owner.record(pc, UNINITIALISED, number, self.first_thread + lane, self.block, address)
        written[:] = True
        self._record_race(READ_WRITE, me, address, memory.racing(memory.readers, span, me))
        self._record_race(WRITE_WRITE, me, address, memory.racing_writer(span, me))
        memory.note(memory.updaters, span, me)
        return True

    def _touch_local(self, pc: int, ins: Instruction, address: int, offset: int, lane: int, data: np.ndarray) -> None:
        thread = self.first_thread + lane
        size = self.local.shape[1]
        if offset < 0 or offset + len(data) > size:
            self.owner.record(pc, OUT_OF_BOUNDS, LOCAL_WINDOW, thread, self.block, address)
            return
        if offset % len(data):
            self.owner.record(pc, MISALIGNED, LOCAL_WINDOW, thread, self.block, address)
            return
        span = slice(offset, offset + len(data))
        if ins.opcode == "st":
            self.local[lane, span] = data
            self.local_written[lane, span] = True
            return
        if not self.local_written[lane, span].all():
            self.owner.record(pc, UNINITIALISED, LOCAL_WINDOW, thread, self.block, address)
        data[:] = self.local[lane, span]
