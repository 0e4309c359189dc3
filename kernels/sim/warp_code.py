"""What the parts of a translation share: the function that runs a warp, as far as it is written."""

from __future__ import annotations

from .arithmetic import Arithmetic
from .context import Slot, get
from .control import Control
from .frame import PREDICATE, Frame, WarpMemory
from .ir import FunctionBuilder, Value
from .program import Entry, Program
from .ptx import Instruction


class WarpCode:
    """The function `warp(context, frame, from_block)` of an entry.

    mask   the lanes that run in the block that is being written
    """

    mask: Value

    def __init__(self, program: Program, entry: Entry):
        self.entry = entry
        self.function = entry.function
        self.graph = entry.graph
        self.sites = {pc: i for i, pc in enumerate(entry.sites)}
        self.arithmetic = Arithmetic()
        self.f = FunctionBuilder("warp", "i64", [("ptr", "context"), ("ptr", "frame"), ("i64", "from_block")])
        self.context = self.f.arguments["context"]
        uniformity = entry.uniformity
        memory = WarpMemory(self.f.arguments["frame"])
        self.control = Control(self.f, memory, entry, uniformity)
        self.frame = Frame(self.f, memory, program, entry, uniformity)

    def begin(self) -> None:
        """All that a warp does before its first block."""
        f = self.f
        with self.control.begin():
            if self.graph.blocks:
                self.frame.clear(self.graph.live_in[0])
        self.data = get(f, self.context, Slot.DATA, "ptr")
        self.params = get(f, self.context, Slot.PARAMS, "ptr")
        self.control.start()

    def predicate(self, ins: Instruction) -> Value:
        """The lanes that an instruction's own predicate lets through."""
        assert ins.guard
        predicate = self.frame.read_register(ins.guard.register, PREDICATE, False)
        return self.f.not_(predicate) if ins.guard.negated else predicate

    def guard(self, ins: Instruction) -> Value | None:
        """The lanes in which an instruction has an effect; None where all the running ones."""
        return None if ins.guard is None else self.f.and_(self.predicate(ins), self.mask)

    def active(self, guard: Value | None) -> Value:
        """The lanes in which an instruction has an effect."""
        return self.mask if guard is None else guard


class Part:
    """Writes some of the instructions."""

    def __init__(self, code: WarpCode):
        self.code = code
        self.f, self.context = code.f, code.context
        self.frame, self.control = code.frame, code.control
        self.entry, self.function, self.sites = code.entry, code.function, code.sites
