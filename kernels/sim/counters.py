"""From an executor's raw tallies to the counters of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..result import Access, Branch, Counters, SharedAccess
from .addresses import SHARED_WINDOW
from .async_copies import STORE_OPCODE
from .barriers import is_barrier
from .cfg import is_branch
from .launch import Launch
from .program import Entry
from .ptx import Instruction

SECTOR = 32


@dataclass
class AccessTally:
    """Totals of one load or store instruction on one array; of shared memory `sectors` are wavefronts."""

    requests: int = 0
    threads: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    bytes_needed: int = 0


@dataclass
class Tally:
    """What an executor counts while it runs. The lists are indexed by basic block.

    work, longest_block   what all blocks spent of the budget, and what the one did that spent most
    """

    executions: list[int]
    lanes: list[int]
    divergent: list[int]
    accesses: dict[tuple[int, int], AccessTally] = field(default_factory=dict)  # by (pc, array number)
    work: int = 0
    longest_block: int = 0


def operation(entry: Entry, instruction: Instruction) -> str:
    """What an access does, in Nsight Compute's terms.

    An update whose old value nobody reads is a reduction: it needs no answer. The assembler makes it one.
    """
    if instruction.opcode in ("ld", "st", STORE_OPCODE):
        return "load" if instruction.opcode == "ld" else "store"
    needs_answer = entry.uses_result(instruction) or instruction.has("exch") or instruction.has("cas")
    return "atomic" if needs_answer else "reduction"


def report(launch: Launch, tally: Tally) -> Counters:
    """The counters of a launch. Instructions and lanes follow from how often each basic block ran."""
    counters = Counters(blocks=launch.blocks, threads=launch.blocks * launch.threads_per_block)
    counters.work, counters.longest_block = tally.work, tally.longest_block
    graph = launch.entry.graph
    for block in graph.blocks:
        work = launch.entry.work[block.index]
        runs, lanes = tally.executions[block.index], tally.lanes[block.index]
        counters.warp_instructions += runs * work.instructions
        counters.thread_instructions += lanes * work.instructions
        counters.fmas += lanes * work.fmas
        counters.flops += lanes * work.flops
        last = launch.entry.function.code[block.end - 1]
        if is_branch(last) and last.guard and runs:
            counters.branches.append(Branch(last.line, block.end - 1, runs, tally.divergent[block.index]))
        counters.barriers += runs * is_barrier(last)
    for (pc, number), t in sorted(tally.accesses.items()):
        instruction = launch.entry.function.code[pc]
        op = operation(launch.entry, instruction)
        place = (instruction.line, _array_name(launch, pc, number), op, pc)
        if number == SHARED_WINDOW:
            counters.shared.append(SharedAccess(*place, t.requests, t.threads, t.sectors, t.sectors_ideal))
        else:
            counts = (t.requests, t.threads, t.sectors, t.sectors_ideal, t.bytes_needed)
            counters.accesses.append(Access(*place, *counts))
    return counters


def _array_name(launch: Launch, pc: int, number: int) -> str:
    if number != SHARED_WINDOW:
        return launch.arrays[number].name
    return " or ".join(dict.fromkeys(a.name for a in launch.shared_arrays(pc)))
