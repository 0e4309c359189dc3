"""Control flow of one function: basic blocks, where divergent lanes meet again, loops, live registers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from .barriers import is_barrier
from .ptx import Address, Function, Instruction, Name, NotPredicate, Operand, PredicatePair, Register, Vector

#: Opcodes whose first operand is a source, not a destination.
NO_DESTINATION = frozenset(
    (
        *("st", "red", "bra", "ret", "exit", "call", "bar", "barrier", "membar", "fence", "cp", "prefetch"),
        "async_store",
        *("trap", "brkpt", "assertfail", "nanosleep", "pmevent"),
    )
)

#: The register that holds a thread's carry, and the instructions that read it.
CARRY = "%cc"
TAKE_CARRY = frozenset(("addc", "subc", "madc"))

#: The virtual block that every path ends in.
EXIT = -1


@dataclass(frozen=True)
class Block:
    """Instructions [start, end); successors in the order (fall-through or only, taken)."""

    index: int
    start: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A natural loop: the block it is entered by, the blocks it holds, the pc of its closing branch."""

    header: int
    blocks: frozenset[int]
    closing: int


def is_branch(instruction: Instruction) -> bool:
    return instruction.opcode == "bra"


def is_return(instruction: Instruction) -> bool:
    return instruction.opcode in ("ret", "exit")


def registers_of(operand: Operand) -> Iterable[str]:
    """Every register that an operand names, special registers too."""
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, NotPredicate):
        yield operand.register.name
    elif isinstance(operand, PredicatePair):
        yield operand.first.name
        yield operand.second.name
    elif isinstance(operand, Vector):
        for part in operand.parts:
            yield from registers_of(part)
    elif isinstance(operand, Address) and isinstance(operand.base, Register):
        yield operand.base.name


def destinations(instruction: Instruction) -> tuple[str, ...]:
    """Registers written; a discarded destination `_` is none."""
    if instruction.opcode in NO_DESTINATION or not instruction.operands:
        return ()
    written = tuple(registers_of(instruction.operands[0]))
    return (*written, CARRY) if instruction.has("cc") else written


def sources(instruction: Instruction) -> tuple[str, ...]:
    """Registers read, the guard included."""
    operands = instruction.operands if instruction.opcode in NO_DESTINATION else instruction.operands[1:]
    read = [r for o in operands for r in registers_of(o)]
    if instruction.guard:
        read.append(instruction.guard.register)
    if instruction.opcode in TAKE_CARRY:
        read.append(CARRY)
    return tuple(read)


@dataclass
class Graph:
    """The control-flow graph of a function without calls."""

    function: Function
    blocks: list[Block] = field(default_factory=list)

    @cached_property
    def predecessors(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.blocks]
        for block in self.blocks:
            for successor in block.successors:
                if successor != EXIT:
                    found[successor].append(block.index)
        return found

    @cached_property
    def post_dominators(self) -> list[int]:
        """Immediate post-dominator of each block: where lanes that part there meet again; EXIT if only at the end."""
        return _immediate_post_dominators([b.successors for b in self.blocks])

    @cached_property
    def loops(self) -> list[Loop]:
        """Natural loops, outermost first."""
        dominators = _dominator_sets(self)
        found: dict[int, tuple[set[int], int]] = {}
        for block in self.blocks:
            for header in block.successors:
                if header == EXIT or header not in dominators[block.index]:
                    continue
                body, closing = found.setdefault(header, ({header}, block.end - 1))
                found[header] = (body, max(closing, block.end - 1))
                pending = [block.index]
                while pending:
                    b = pending.pop()
                    if b not in body:
                        body.add(b)
                        pending += self.predecessors[b]
        loops = [Loop(header, frozenset(body), closing) for header, (body, closing) in found.items()]
        return sorted(loops, key=lambda loop: (-len(loop.blocks), loop.header))

    @cached_property
    def live_in(self) -> list[frozenset[str]]:
        """Registers whose value at the start of a block may still be read."""
        reads: list[set[str]] = []
        writes: list[set[str]] = []
        for block in self.blocks:
            read: set[str] = set()
            written: set[str] = set()
            for instruction in self.code(block):
                read.update(r for r in sources(instruction) if r not in written)
                if instruction.guard is None:
                    written.update(destinations(instruction))
                else:  # a guarded write keeps the old value in the other lanes
                    read.update(r for r in destinations(instruction) if r not in written)
            reads.append(read)
            writes.append(written)
        live: list[set[str]] = [set(r) for r in reads]
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                out = set().union(*(live[s] for s in block.successors if s != EXIT))
                new = reads[block.index] | (out - writes[block.index])
                if new != live[block.index]:
                    live[block.index] = new
                    changed = True
        return [frozenset(s) for s in live]

    def live_out(self, block: Block) -> frozenset[str]:
        return frozenset().union(*(self.live_in[s] for s in block.successors if s != EXIT))

    def code(self, block: Block) -> list[Instruction]:
        return self.function.code[block.start : block.end]

    def reachable(self, start: int, stop: int) -> frozenset[int]:
        """Blocks on paths from `start` that do not pass through `stop`."""
        seen: set[int] = set()
        pending = [start]
        while pending:
            b = pending.pop()
            if b in (EXIT, stop) or b in seen:
                continue
            seen.add(b)
            pending += self.blocks[b].successors
        return frozenset(seen)


def build(function: Function) -> Graph:
    """Cut a function into basic blocks."""
    code = function.code
    leaders = {0, *function.labels.values()}
    leaders.update(i + 1 for i, ins in enumerate(code) if is_branch(ins) or is_return(ins) or is_barrier(ins))
    starts = sorted(s for s in leaders if s < len(code))
    number = {start: i for i, start in enumerate(starts)}
    # A jump to a bare return ends the thread there and then: nobody waits for it, as on the hardware.
    number.update({start: EXIT for start in starts if is_return(code[start]) and code[start].guard is None})
    graph = Graph(function)
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(code)
        graph.blocks.append(Block(i, start, end, _successors(function, end, number)))
    return graph


def ends_in_barrier(graph: Graph, block: Block) -> bool:
    """Whether the warp waits for its block at the end of a basic block."""
    return is_barrier(graph.function.code[block.end - 1])


def _successors(function: Function, end: int, number: dict[int, int]) -> tuple[int, ...]:
    last = function.code[end - 1]
    following = number.get(end, EXIT)
    if is_branch(last):
        target = last.operands[0]
        assert isinstance(target, Name)
        taken = number.get(function.labels[target.name], EXIT)
        return (following, taken) if last.guard else (taken,)
    if is_return(last):
        return (following, EXIT) if last.guard else (EXIT,)
    return (following,)


def _immediate_post_dominators(successors: list[tuple[int, ...]]) -> list[int]:
    """Dominators of the reversed graph, by the iteration of Cooper, Harvey and Kennedy."""
    count = exit_node = len(successors)
    edges = [[s if s != EXIT else exit_node for s in succ] for succ in successors] + [[]]
    into: list[list[int]] = [[] for _ in edges]
    for node, succ in enumerate(edges):
        for s in succ:
            into[s].append(node)
    order = _postorder(into, exit_node)
    rank = {node: i for i, node in enumerate(order)}
    immediate: dict[int, int] = {exit_node: exit_node}
    changed = True
    while changed:
        changed = False
        for node in reversed(order):
            if node == exit_node:
                continue
            known = [s for s in edges[node] if s in immediate]
            if not known:
                continue
            meet = known[0]
            for other in known[1:]:
                meet = _intersect(meet, other, immediate, rank)
            if immediate.get(node) != meet:
                immediate[node] = meet
                changed = True
    # A block that cannot reach the end (an endless loop) has nowhere to meet.
    return [EXIT if immediate.get(n, exit_node) == exit_node else immediate[n] for n in range(count)]


def _intersect(a: int, b: int, immediate: dict[int, int], rank: dict[int, int]) -> int:
    while a != b:
        while rank[a] < rank[b]:
            a = immediate[a]
        while rank[b] < rank[a]:
            b = immediate[b]
    return a


def _postorder(edges: list[list[int]], root: int) -> list[int]:
    order: list[int] = []
    seen = {root}
    stack = [(root, iter(edges[root]))]
    while stack:
        node, children = stack[-1]
        for child in children:
            if child not in seen:
                seen.add(child)
                stack.append((child, iter(edges[child])))
                break
        else:
            order.append(node)
            stack.pop()
    return order


def _dominator_sets(graph: Graph) -> list[set[int]]:
    everything = set(range(len(graph.blocks)))
    dominators = [set(everything) for _ in graph.blocks]
    if graph.blocks:
        dominators[0] = {0}
    changed = True
    while changed:
        changed = False
        for block in graph.blocks[1:]:
            before = [dominators[p] for p in graph.predecessors[block.index]]
            new = (set.intersection(*before) if before else set()) | {block.index}
            if new != dominators[block.index]:
                dominators[block.index] = new
                changed = True
    return dominators
