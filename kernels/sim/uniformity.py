"""Which registers hold one value for a whole warp, and which must keep the values of lanes that wait.

A *uniform* register is the same in all lanes that can read it, so scalar code computes it. Inside divergent
code that still holds for registers that only the running lanes look at. A *kept* register is written on one
side of a divergent branch and read by lanes of the other side later, there or after both have met: its writes
must leave the waiting lanes alone, and it is varying.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cfg import EXIT, Graph, destinations, is_branch, is_return, sources
from .ptx import Instruction

#: Special registers that differ between the lanes of a warp.
_LANE_REGISTERS = frozenset(
    {"%tid.x", "%tid.y", "%tid.z", "%laneid", *(f"%lanemask_{m}" for m in ("eq", "lt", "le", "gt", "ge"))}
)


@dataclass(frozen=True)
class Uniformity:
    """varying and kept registers; blocks that may run with lanes waiting; blocks that end in a divergent branch."""

    varying: frozenset[str]
    kept: frozenset[str]
    divergent_blocks: frozenset[int]
    divergent_branches: frozenset[int]


def analyse(graph: Graph) -> Uniformity:
    """Iterate from "all uniform" until nothing changes; varying only ever grows."""
    varying = set(_LANE_REGISTERS)
    kept: set[str] = set()
    branches: set[int] = set()
    blocks: set[int] = set()
    while True:
        _propagate(graph, varying)
        found = {
            b.index
            for b in graph.blocks
            if len(b.successors) == 2 and _guard(graph.function.code[b.end - 1]) in varying
        } - branches
        if not found:
            return Uniformity(frozenset(varying), frozenset(kept), frozenset(blocks), frozenset(branches))
        for index in found:
            region, held = _influence(graph, index)
            blocks |= region
            kept |= held
            varying |= held
        branches |= found


def _guard(instruction: Instruction) -> str | None:
    return instruction.guard.register if instruction.guard else None


def _propagate(graph: Graph, varying: set[str]) -> None:
    changed = True
    while changed:
        changed = False
        for instruction in graph.function.code:
            if is_branch(instruction) or is_return(instruction):
                continue
            written = [d for d in destinations(instruction) if d not in varying]
            if written and (differs_by_lane(instruction) or any(s in varying for s in sources(instruction))):
                varying.update(written)
                changed = True


def differs_by_lane(instruction: Instruction) -> bool:
    """Whether lanes with equal sources may get different results.

    Atomic updates and what lanes learn from each other; loads from memory of the thread itself, where a generic
    address may point.
    """
    if instruction.opcode in ("atom", "shfl", "match", "redux", "elect", "printf"):
        return True
    if instruction.opcode != "ld":
        return False
    return not any(instruction.has(space) for space in ("global", "const", "param", "shared"))


def _influence(graph: Graph, branch: int) -> tuple[set[int], set[str]]:
    """The blocks between a divergent branch and its meeting point, and the registers kept because of it.

    The taken side runs first, to the meeting point; then the other side; then all together.
    """
    block = graph.blocks[branch]
    following, taken = block.successors
    meet = graph.post_dominators[branch]
    first = graph.reachable(taken, meet)
    second = graph.reachable(following, meet)
    written_first = _written(graph, first)
    written = written_first | _written(graph, second)
    held: set[str] = set()
    if following not in (EXIT, meet):
        held |= written_first & graph.live_in[following]
    if meet != EXIT:
        held |= written & graph.live_in[meet]
    return set(first | second), held


def _written(graph: Graph, blocks: frozenset[int]) -> set[str]:
    return {d for b in blocks for instruction in graph.code(graph.blocks[b]) for d in destinations(instruction)}
