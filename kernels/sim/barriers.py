"""Barriers in PTX: which instructions wait for a whole block, and which for lanes of a warp.

`bar.red` both waits and gives every thread what all threads voted. Here it becomes two instructions: a barrier that
takes the vote, and `barrier_result`, which stands behind it and writes the outcome.
"""

from __future__ import annotations

from dataclasses import replace

from .ptx import Function, Immediate, Instruction, Operand

RESULT = "barrier_result"

#: Barriers of a block, by number.
BARRIERS = 16


def is_barrier(instruction: Instruction) -> bool:
    """Whether an instruction waits for all threads of its block."""
    return instruction.opcode in ("bar", "barrier") and not instruction.has("warp")


def is_warp_barrier(instruction: Instruction) -> bool:
    """Whether an instruction waits for lanes of its warp: __syncwarp."""
    return instruction.opcode in ("bar", "barrier") and instruction.has("warp")


def vote_of(barrier: Instruction) -> Operand | None:
    """The predicate of a voting barrier, once its result stands apart."""
    return barrier.operands[1] if barrier.has("red") else None


def number_of(barrier: Instruction) -> int | None:
    """Which of the block's barriers an instruction waits at; None if only the run can tell."""
    operands = barrier.operands[1:] if barrier.has("red") else barrier.operands
    return operands[0].value if operands and isinstance(operands[0], Immediate) else None


def is_for_all(barrier: Instruction) -> bool:
    """Whether a barrier, as the compiler writes it, waits for all threads; with a number of threads it does not."""
    return len(barrier.operands) == (3 if barrier.has("red") else 1)


def split_votes(function: Function) -> Function:
    """The function with the result of each voting barrier apart from it."""
    if not any(is_barrier(ins) and ins.has("red") for ins in function.code):
        return function
    code: list[Instruction] = []
    moved = []  # where each instruction went
    for ins in function.code:
        moved.append(len(code))
        if is_barrier(ins) and ins.has("red"):
            to, number, vote = ins.operands
            code.append(replace(ins, operands=(number, vote)))
            code.append(replace(ins, opcode=RESULT, operands=(to,)))
        else:
            code.append(ins)
    moved.append(len(code))
    return replace(function, code=code, labels={name: moved[at] for name, at in function.labels.items()})
