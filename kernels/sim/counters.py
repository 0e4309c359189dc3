"""From an executor's raw tallies to the counters of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..result import Access, Branch, Counters
from .cfg import is_branch
from .launch import Launch
from .ptx import Instruction

#: Floating-point operations in one execution of an instruction on a float type.
FLOPS = {"fma": 2, "mad": 2} | dict.fromkeys(
    ("add", "sub", "mul", "div", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), 1
)

SECTOR = 32


@dataclass
class AccessTally:
    """Totals of one load or store instruction on one array."""

    requests: int = 0
    threads: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    bytes_needed: int = 0


@dataclass
class Tally:
    """What an executor counts while it runs. The lists are indexed by basic block."""

    executions: list[int]
    lanes: list[int]
    divergent: list[int]
    accesses: dict[tuple[int, int], AccessTally] = field(default_factory=dict)  # by (pc, array number)


def flops(instruction: Instruction) -> int:
    """Floating-point operations in a lane."""
    return FLOPS.get(instruction.opcode, 0) if any(t.is_float for t in instruction.types) else 0


def fmas(instruction: Instruction) -> int:
    return 1 if flops(instruction) == 2 else 0


def report(launch: Launch, tally: Tally) -> Counters:
    """The counters of a launch. Instructions and lanes follow from how often each basic block ran."""
    counters = Counters(blocks=launch.blocks, threads=launch.blocks * launch.threads_per_block)
    graph = launch.entry.graph
    for block in graph.blocks:
        code = graph.code(block)
        runs, lanes = tally.executions[block.index], tally.lanes[block.index]
        counters.warp_instructions += runs * len(code)
        counters.thread_instructions += lanes * len(code)
        counters.fmas += lanes * sum(map(fmas, code))
        counters.flops += lanes * sum(map(flops, code))
        last = code[-1]
        if is_branch(last) and last.guard and runs:
            counters.branches.append(Branch(last.line, block.end - 1, runs, tally.divergent[block.index]))
    for (pc, number), t in sorted(tally.accesses.items()):
        instruction = launch.entry.function.code[pc]
        op = "store" if instruction.opcode == "st" else "load"
        counters.accesses.append(
            Access(
                instruction.line,
                launch.arrays[number].name,
                op,
                pc,
                t.requests,
                t.threads,
                t.sectors,
                t.sectors_ideal,
                t.bytes_needed,
            )
        )
    return counters
