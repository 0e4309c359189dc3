"""The PTX engine: runs compiled CUDA C++ without a GPU, and accounts for every access.

The way of a kernel through this folder: `ptx` parses the compiler's text, `calls` inlines device functions, `isa`
says what is supported, `cfg` finds blocks and meeting points, `uniformity` which registers are one value for a warp.
`lower`, its three parts and `arithmetic` write LLVM IR with `ir`, `half` that of half precision, `control` what
stands between the instructions, `frame` a warp's registers, all in one `warp_code`. `jit` compiles it through
`objectcache`; `llvm_executor` runs it on the `tables` of `context`. `driver` takes the warps from barrier to barrier,
`touch` knows every rule of an access and `tags` those of a race; `fast_access`, `shared_access` and `shared_groups`,
on `warp_access`, prove for whole warps that there is nothing to report; `async_copies` are cp.async; `parallel` runs
the blocks on all cores, `investigation` a launch with anything to report once more in order; `atomics` and
`warp_functions` are what their names say, `updates` what an assembler makes of the former. `launch` numbers the
arrays in the space of `addresses`, `pointers` says which of them need watching; `faults` and `counters` make the
report, `printf` what threads print. The modules in `numpy_` do the same plainly and slowly: the reference. An
`observer` may watch it: `provenance` follows where values come from, `lanes` what a warp touches.

What it does not do (the error is UnsupportedPTX, with the line): whatever `isa` does not list; barriers for some
threads of a block; asynchronous copies in bulk, or of a part of their bytes; calls through pointers; recursion; an
index into a struct passed by value that the compiler does not copy (of 128 bytes it does, of 256 not). What differs
from a GPU: approximate functions are correctly rounded; NaN keep their payload; warps run one after the other, so a
lane never waits for another one in a loop (a spin lock ends as an endless loop does); a fault never stops a launch.
Races are judged by barriers, __syncwarp and atomic functions on the input at hand; what a kernel orders by fences and
flags in global memory is reported as a race. A launch that races all over is no longer watched for races once its
blocks have shown nothing new for long (faults.PATIENCE): their counts are then "at least".

Memory, beside the arrays: a copy of each that the kernel stores to, and on each core (8 at most), for each element of
those, 4 bytes of who stored, 4 of who loaded and 4 of who updated it, as far as the kernel does so; a byte for an
element that began undefined; one block's shared memory and frames. It does not grow with the grid: a float array of
256 MB stored to by two million warps took 0.86 GB more on 2 cores. A launch that races runs again, in order, with 48
bytes more for each element.

program = sim.load(ptx)
faults, counters = sim.run(program, "saxpy", grid, block, [sim.Buffer("x", data, True), ...])
"""

from __future__ import annotations

from collections.abc import Sequence

from ..result import Counters, Fault, Triple
from . import llvm_executor, numpy_executor
from .launch import Buffer, prepare
from .observer import Observer
from .program import Entry, Program, Symbol, load
from .ptx import ParamSlot

EXECUTORS = {"llvm": llvm_executor.run, "numpy": numpy_executor.run}

__all__ = ["Buffer", "Entry", "Observer", "ParamSlot", "Program", "Symbol", "load", "run"]


def run(
    program: Program,
    entry_name: str,
    grid: Triple,
    block: Triple,
    params: Sequence[Buffer | bytes],
    shared: int = 0,
    checks: bool = True,
    budget: int | None = None,
    executor: str = "llvm",
    observer: Observer | None = None,
    printed: list[str] | None = None,
) -> tuple[list[Fault], Counters]:
    """Run an entry once.

    params    one for each parameter: a Buffer for a pointer to an array, else the parameter's bytes
    shared    bytes of dynamic shared memory
    checks    False: no faults and no counters, but accesses still stay inside their arrays
    budget    work that the launch may do: 1 for an instruction of a warp, and program.ACCESS_PRICE more for a load
              or store; None: a rule that stops an endless loop within a fraction of a second (launch.WARP_BUDGET)
    executor  "llvm", or "numpy" for the plain reference executor
    observer  watches the plain executor, which runs the launch then
    printed   takes up what the threads print
    returns   faults, ranked, and counters
    raises    UnsupportedPTX, LaunchError
    """
    launch = prepare(program, entry_name, grid, block, params, shared, checks, budget)
    result = numpy_executor.run(launch, observer) if observer else EXECUTORS[executor](launch)
    if printed is not None:
        printed.append(launch.output.text())
    return result
