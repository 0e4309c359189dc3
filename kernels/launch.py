"""Compile CUDA C++ and launch its kernels, on a GPU or on the engine: the same calls, the same source."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .arguments import fit
from .compiler import DEFAULT_ARCH, compile_ptx
from .errors import ArgumentError, LaunchError
from .module import Backend, Kernel, Module, Ready
from .result import LaunchResult, Triple

if TYPE_CHECKING:
    from .sim.observer import Observer

MAX_GRID: Triple = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Triple = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
#: Shared memory of a block on the most generous architecture (sm_90).
MAX_SHARED_BYTES = 227 * 1024
#: Threads of one launch on the engine; a GPU takes more, a laptop would not come back.
MAX_ENGINE_THREADS = 2**28


def compile_cuda(source: str, on: Backend = "sim", arch: str | None = None, options: Sequence[str] = ()) -> Module:
    """Compile CUDA C++ source.

    on       "sim" (the engine, no GPU needed) or "gpu" (CuPy)
    arch     what to compile for: "compute_80" on the engine, the GPU's own architecture on a GPU, unless given
    options  further NVRTC options, such as ("-DTILE=16",)
    Raises CompileError with the compiler's log, BackendError where the compiler or the GPU cannot be had.
    """
    if on == "sim":
        from .engine import EngineImage

        ptx = compile_ptx(source, arch or DEFAULT_ARCH, options)
        return Module(source, on, ptx, EngineImage(ptx))
    if on == "gpu":
        from .gpu import GpuImage

        image = GpuImage(source, arch, options)
        return Module(source, on, image.ptx, image)
    raise ArgumentError(f'on = {on!r}: it must be "sim" or "gpu"')


def launch(
    kernel: Kernel,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    shared: int = 0,
    check: bool = True,
    budget: int | None = None,
    observer: Observer | None = None,
) -> LaunchResult:
    """Run a kernel once and wait for it.

    grid, block  one to three sizes
    args         one for each parameter: a C-contiguous NumPy or CuPy array (written in place), out(array),
                 a number, a NumPy scalar, or a np.void for a struct by value
    shared       bytes of dynamic shared memory
    check        on the engine: find faults and count; without it only memory safety stays
    budget       on the engine: the work after which the run is ended with a "budget" fault: 1 for an instruction of
                 a warp, a few more for a load or store; None: what an endless loop spends in a fraction of a second
    observer     on the engine: watches every instruction of a plain, slow run (kernels.trace)
    Raises ArgumentError, LaunchError, UnsupportedPTX. What the kernel itself does wrong is in the result's faults.
    """
    ready = prepare(kernel, grid, block, args, shared)
    image = kernel.module.image
    how = (kernel.entry, ready.grid, ready.block, ready.args, ready.shared, check, budget)
    if observer is None:
        return image.run(*how)
    from .engine import EngineImage

    if not isinstance(image, EngineImage):
        raise ArgumentError("an observer watches the engine: compile the kernel with on='sim'")
    return image.run(*how, observer)


def prepare(
    kernel: Kernel, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared: int = 0
) -> Ready:
    """Check a launch without running it. Arguments and errors are those of `launch`."""
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"launch needs a kernel, such as module['name'], not {type(kernel).__name__}")
    grid3 = _triple("grid", grid, MAX_GRID)
    block3 = _triple("block", block, MAX_BLOCK)
    threads = block3[0] * block3[1] * block3[2]
    if threads > MAX_BLOCK_THREADS:
        raise LaunchError(
            f"block {block3} has {threads} threads: at most {MAX_BLOCK_THREADS} are allowed. Make the block smaller "
            "and the grid larger"
        )
    total = grid3[0] * grid3[1] * grid3[2] * threads
    if kernel.module.on == "sim" and total > MAX_ENGINE_THREADS:
        raise LaunchError(
            f"grid {grid3} of blocks {block3} has {total} threads: the engine runs at most "
            f"{MAX_ENGINE_THREADS}. Take a smaller case, or a GPU"
        )
    if not 0 <= shared <= MAX_SHARED_BYTES:
        raise LaunchError(f"shared = {shared}: a block can have 0 to {MAX_SHARED_BYTES} bytes of shared memory")
    return Ready(kernel, grid3, block3, fit(kernel.name, kernel.parameters, kernel.sizes, args), shared)


def _triple(what: str, sizes: int | Sequence[int], limits: Triple) -> Triple:
    try:
        given = [operator.index(s) for s in (sizes if isinstance(sizes, tuple | list) else (sizes,))]
    except TypeError:
        raise LaunchError(f"{what} = {sizes!r}: it takes one to three whole numbers") from None
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"{what} = {sizes!r}: it takes one to three sizes")
    x, y, z = (*given, 1, 1)[:3]
    for axis, size, most in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= size <= most:
            raise LaunchError(f"{what}.{axis} = {size}: it must be between 1 and {most}")
    return x, y, z
