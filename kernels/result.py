"""What a launch gives back: faults, counters and time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Triple = tuple[int, int, int]

#: Every kind of fault, in the order in which they are ranked: a cause before its consequences.
FAULT_KINDS = (
    "unsupported",
    "out-of-bounds",
    "misaligned",
    "divergent-barrier",
    "shared-race",
    "global-race",
    "uninitialised",
    "trap",
    "budget",
)


@dataclass(frozen=True)
class Fault:
    """One misbehaviour of a kernel, at its first occurrence in execution order.

    kind     one of FAULT_KINDS
    message  one sentence in the student's terms, without the line number
    line     line of the CUDA source, 1-based; 0 where the compiler gave none
    thread   (x, y, z) of threadIdx, or None where no single thread is to blame
    block    (x, y, z) of blockIdx, or None
    array    name of the array, or None
    count    how often it happened at this line, with this kind and array (this one included)
    is_counted  to the end; False where a launch raced so often that nobody watched it any more
    """

    kind: str
    message: str
    line: int = 0
    thread: Triple | None = None
    block: Triple | None = None
    array: str | None = None
    count: int = 1
    is_counted: bool = True

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        times = f"{self.count} times in all" if self.is_counted else f"at least {self.count} times"
        more = f" ({times})" if self.count > 1 else ""
        return f"{where}{self.kind}: {self.message}{more}"


@dataclass
class Access:
    """Global-memory traffic of one load, store or atomic instruction.

    op             "load", "store", "atomic", or "reduction": an atomic update whose old value nobody reads
    requests       warp-wide executions with at least one active lane
    threads        active lanes, summed over the requests
    sectors        32-byte sectors touched, summed over the requests; atomic updates of one address by several lanes
                   touch its sector once for each of them
    sectors_ideal  sectors that the same distinct bytes would fill if they lay side by side
    bytes_needed   distinct bytes touched, summed over the requests
    """

    line: int
    array: str
    op: str
    pc: int  # index of the instruction in the kernel
    requests: int = 0
    threads: int = 0
    sectors: int = 0
    sectors_ideal: int = 0
    bytes_needed: int = 0

    @property
    def bytes_moved(self) -> int:
        return 32 * self.sectors


@dataclass
class SharedAccess:
    """Shared-memory traffic of one load, store or atomic instruction.

    op                as for Access
    requests          warp-wide executions with at least one active lane
    threads           active lanes, summed over the requests
    wavefronts        passes through the 32 banks, summed over the requests; of updates each bank takes one lane a pass
    wavefronts_ideal  passes that the same distinct words need where no two of them share a bank
    """

    line: int
    array: str  # "A or B" where the instruction may touch either
    op: str
    pc: int
    requests: int = 0
    threads: int = 0
    wavefronts: int = 0
    wavefronts_ideal: int = 0

    @property
    def conflicts(self) -> int:
        """Passes that bank conflicts cost."""
        return self.wavefronts - self.wavefronts_ideal


@dataclass
class Branch:
    """Executions of one conditional branch: `divergent` counts those whose lanes disagreed."""

    line: int
    pc: int
    executed: int = 0
    divergent: int = 0


@dataclass(frozen=True)
class WarpAccess:
    """One execution of a load, store or atomic instruction by one warp.

    op       as in Access
    array    "" where it is none of the arguments
    space    "global" or "shared"
    size     bytes that each lane touches
    offsets  each lane's byte offset in the array, or in the block's shared memory; None for a lane that takes no part
    """

    line: int
    pc: int
    op: str
    array: str
    space: str
    size: int
    offsets: tuple[int | None, ...]


@dataclass
class Counters:
    """The deterministic account of one launch on the engine.

    accesses             global memory, by instruction and array
    shared               shared memory, by instruction
    barriers             barriers of a block, counted once for each warp that waits
    warp_instructions    instructions issued, one for each warp that executes it
    thread_instructions  the same, counted once for each active lane
    fmas                 fused multiply-adds, in lanes
    flops                floating-point operations in lanes (a fused multiply-add is two)
    work                 what all blocks cost on the engine's clock, which gives each kind of instruction a price
    longest_block        what the most expensive block cost; of several launches, their sum: one runs after the other
    """

    accesses: list[Access] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    warp_instructions: int = 0
    thread_instructions: int = 0
    fmas: int = 0
    flops: int = 0
    blocks: int = 0
    threads: int = 0
    shared: list[SharedAccess] = field(default_factory=list)
    barriers: int = 0
    work: int = 0
    longest_block: int = 0

    def _sum_shared(self, name: str, op: str | None, array: str | None) -> int:
        chosen = [a for a in self.shared if op in (None, a.op) and array in (None, a.array)]
        return sum(getattr(a, name) for a in chosen)

    def shared_requests(self, op: str | None = None, array: str | None = None) -> int:
        """Warp-wide requests on shared memory, of one op ("load", "store") or array if named."""
        return self._sum_shared("requests", op, array)

    def wavefronts(self, op: str | None = None, array: str | None = None) -> int:
        """Passes of shared-memory requests through the banks."""
        return self._sum_shared("wavefronts", op, array)

    def wavefronts_ideal(self, op: str | None = None, array: str | None = None) -> int:
        """Passes that the same words would need without bank conflicts."""
        return self._sum_shared("wavefronts_ideal", op, array)

    def _sum(self, name: str, op: str | None = None, array: str | None = None) -> int:
        return sum(
            getattr(a, name)
            for a in self.accesses
            if (op is None or a.op == op) and (array is None or a.array == array)
        )

    def requests(self, op: str | None = None, array: str | None = None) -> int:
        """Warp-wide global requests, of one op ("load", "store", "atomic", "reduction") or array if named."""
        return self._sum("requests", op, array)

    def sectors(self, op: str | None = None, array: str | None = None) -> int:
        return self._sum("sectors", op, array)

    def sectors_ideal(self, op: str | None = None, array: str | None = None) -> int:
        return self._sum("sectors_ideal", op, array)

    def bytes_moved(self, op: str | None = None, array: str | None = None) -> int:
        """Bytes of all the sectors touched: what the memory system moves."""
        return 32 * self.sectors(op, array)

    def bytes_needed(self, op: str | None = None, array: str | None = None) -> int:
        """Distinct bytes of each request: what the threads asked for."""
        return self._sum("bytes_needed", op, array)

    @property
    def divergent_branches(self) -> int:
        return sum(b.divergent for b in self.branches)

    @property
    def executed_branches(self) -> int:
        return sum(b.executed for b in self.branches)

    @property
    def active_lanes(self) -> float:
        """Mean share of a warp's 32 lanes that were active, 0 to 1."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else 0.0

    @property
    def busy_blocks(self) -> float:
        """How many blocks share the work, if each took as much of it as the longest one: `blocks` where all are equal.

        Blocks that do nothing, and launches that add nothing but blocks, do not raise it.
        """
        return self.work / self.longest_block if self.longest_block else 0.0


def total(launches: Iterable[Counters]) -> Counters:
    """The account of several launches together; accesses and branches of all of them, in order."""
    result = Counters()
    for c in launches:
        result.accesses += c.accesses
        result.shared += c.shared
        result.branches += c.branches
        for name in (
            "warp_instructions", "thread_instructions", "fmas", "flops", "barriers", "blocks", "threads", "work",
            "longest_block",
        ):  # fmt: skip
            setattr(result, name, getattr(result, name) + getattr(c, name))
    return result


@dataclass
class LaunchResult:
    """faults are ranked, first cause first; counters is None on a GPU, where the hardware counts.

    output is what the threads printed; on a GPU it goes to the process's own standard output instead.

    time_us on a GPU: device time between two CUDA events. On the engine: wall time of the
    execution, which says nothing about any GPU.
    """

    faults: list[Fault]
    counters: Counters | None
    time_us: float
    output: str = ""
