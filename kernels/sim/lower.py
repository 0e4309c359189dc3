"""One PTX entry as LLVM IR: the function that runs a warp of it from beginning to end, instruction by instruction."""

from __future__ import annotations

from dataclasses import dataclass

from .async_copies import STORE_OPCODE
from .barriers import RESULT, is_barrier, is_warp_barrier, vote_of
from .cfg import TAKE_CARRY, Block, destinations, is_branch, is_return
from .frame import PREDICATE
from .ir import module_text
from .isa import CLOCKS, STOPS, WARP_FUNCTIONS
from .lower_meetings import MeetingCode
from .lower_memory import MemoryCode
from .lower_values import ValueCode
from .program import Entry, Program
from .ptx import Instruction, Register, unsupported
from .types import TYPES
from .warp_code import WarpCode


@dataclass(frozen=True)
class Lowered:
    """The LLVM IR of an entry: a function `warp(context, frame, from_block)`; frame_bytes: what a warp keeps."""

    ir: str
    frame_bytes: int


def lower(program: Program, entry: Entry) -> Lowered:
    """Translate an entry. Raises UnsupportedPTX."""
    return _Lowering(program, entry).lowered()


def _clock(ins: Instruction) -> bool:
    """Whether an instruction reads a clock."""
    return any(isinstance(o, Register) and o.name in CLOCKS for o in ins.operands)


class _Lowering:
    def __init__(self, program: Program, entry: Entry):
        self.code = WarpCode(program, entry)
        self.values, self.memory, self.meetings = ValueCode(self.code), MemoryCode(self.code), MeetingCode(self.code)

    def lowered(self) -> Lowered:
        code = self.code
        code.begin()
        for block in code.graph.blocks:
            self._block(block)
        code.control.end()
        text = module_text([code.f, *code.arithmetic.functions.values()])
        return Lowered(text, code.frame.memory.reserve(0, 64))

    def _block(self, block: Block) -> None:
        code = self.code
        code.mask = code.control.enter(block)
        code.frame.start_block(block.index, code.mask)
        for pc, ins in enumerate(code.graph.code(block), block.start):
            if not (is_branch(ins) or is_return(ins) or is_barrier(ins)):
                self._try(pc, ins)
        last = code.function.code[block.end - 1]
        wanted = code.predicate(last) if len(block.successors) == 2 else None
        if is_barrier(last):
            vote = vote_of(last)
            votes = code.mask if vote is None else code.frame.read(vote, PREDICATE, False)
            arriving = code.active(code.guard(last))
            code.frame.write_back(code.graph.live_out(block))
            code.control.wait(block, code.sites[code.entry.barrier_at(block.end - 1)], arriving, votes)
            return
        code.frame.write_back(code.graph.live_out(block))
        code.control.leave(block, wanted)

    # -- instructions ----------------------------------------------------------------------------

    def _try(self, pc: int, ins: Instruction) -> None:
        """Write an instruction; inline assembly, which nobody has checked, may hold anything."""
        try:
            self._instruction(pc, ins)
        except (KeyError, IndexError, TypeError, ValueError, AssertionError) as error:
            raise unsupported(ins, "the engine cannot make sense of this instruction") from error

    def _instruction(self, pc: int, ins: Instruction) -> None:
        guard = self.code.guard(ins)
        opcode = ins.opcode
        if opcode == "ld":
            self.memory.load(pc, ins, guard)
        elif opcode in ("st", STORE_OPCODE):
            self.memory.store(pc, ins, guard)
        elif opcode == "cp":
            self.memory.end_copies(ins, guard)
        elif opcode in ("atom", "red"):
            self.memory.atomic(pc, ins, guard)
        elif opcode == "vote":
            self.meetings.vote(pc, ins, guard)
        elif opcode == "activemask":
            self.code.frame.write(ins.operands[0], self.code.active(guard), TYPES["b32"], guard)
        elif opcode in WARP_FUNCTIONS:
            self.meetings.warp_function(pc, ins, guard)
        elif is_warp_barrier(ins):
            self.meetings.sync_warp(pc, ins, guard)
        elif opcode == RESULT:
            self.meetings.barrier_result(ins, guard)
        elif opcode == "mov" and _clock(ins):
            self.meetings.read_clock(pc, ins, guard)
        elif opcode in STOPS:
            self.meetings.stop(pc, ins, guard)
        elif opcode == "printf":
            self.meetings.print(ins, guard)
        elif opcode == "isspacep":
            self.memory.is_space(ins, guard)
        elif opcode in TAKE_CARRY or ins.has("cc"):
            self.values.carry(ins, guard)
        elif opcode == "mov":
            self.values.move(ins, guard)
        elif opcode == "cvta":
            self.values.change_window(ins, guard)
        elif opcode in ("setp", "set") and not (opcode == "set" and ins.type.is_half):
            self.values.set(ins, guard)
        elif opcode in ("selp", "slct"):
            self.values.select(ins, guard)
        elif ins.operands and opcode in ("and", "or", "xor", "not") and ins.type is PREDICATE:
            self.values.logic(ins, guard)
        elif destinations(ins):
            self.values.compute(ins, guard)
