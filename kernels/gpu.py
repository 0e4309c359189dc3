"""The GPU back end: the same source through CuPy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from .arguments import Argument
from .compiler import SOURCE_NAME, compile_error, standard_options
from .errors import BackendError, DeviceMemoryError
from .module import Ready
from .result import LaunchResult, Triple


@cache
def cupy_module() -> ModuleType:
    """CuPy with a GPU behind it. Raises BackendError that says which of the two is missing."""
    try:
        import cupy
    except ImportError:
        raise BackendError(
            "CuPy, which runs kernels on an NVIDIA GPU, is not installed: `pip install 'cupy-cuda13x[ctk]'` for a "
            "driver of CUDA 13, `'cupy-cuda12x[ctk]'` for CUDA 12. Without a GPU, on=\"sim\" (--on sim) runs them too"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(f"CuPy finds no usable GPU ({error}): check the driver with nvidia-smi") from None
    if count == 0:
        raise BackendError("CuPy finds no GPU: check the driver with nvidia-smi")
    return cupy


def available() -> bool:
    """Whether kernels can run on a GPU here."""
    try:
        cupy_module()
    except BackendError:
        return False
    return True


@contextlib.contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Turn CuPy's error of a full memory into a DeviceMemoryError about `what`."""
    cupy = cupy_module()
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        free, total = cupy.cuda.runtime.memGetInfo()
        raise DeviceMemoryError(
            f"{what} does not fit into the GPU's memory ({free >> 20} MiB of {total >> 20} MiB are free): use fewer "
            f"images or a smaller input. CuPy says: {error}"
        ) from None


def device_facts() -> dict[str, str]:
    """Name, compute capability, driver and library versions, for records. Raises BackendError."""
    cupy = cupy_module()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "device": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "multiprocessors": str(properties["multiProcessorCount"]),
        "memory_bytes": str(properties["totalGlobalMem"]),
        "driver_cuda": str(cupy.cuda.runtime.driverGetVersion()),
        "runtime_cuda": str(cupy.cuda.runtime.runtimeGetVersion()),
        "cupy": cupy.__version__,
    }


def device_id() -> str:
    """The bus address of the GPU that kernels run on: one name for it in every process. Raises BackendError."""
    runtime = cupy_module().cuda.runtime
    return str(runtime.deviceGetPCIBusId(runtime.getDevice()))


def cache_bytes() -> int:
    """Size of the second-level cache."""
    runtime = cupy_module().cuda.runtime
    return int(runtime.deviceGetAttribute(_L2_CACHE_SIZE, runtime.getDevice()))


def block_shared_bytes() -> int:
    """Shared memory that one block may have after opting in."""
    runtime = cupy_module().cuda.runtime
    return int(runtime.deviceGetAttribute(_BLOCK_SHARED, runtime.getDevice()))


def multiprocessors() -> int:
    runtime = cupy_module().cuda.runtime
    return int(runtime.getDeviceProperties(runtime.getDevice())["multiProcessorCount"])


def fp32_peak_gflops() -> float | None:
    """Float32 operations a nanosecond at the highest clock, a fused multiply-add being two; None where unknown."""
    runtime = cupy_module().cuda.runtime
    properties = runtime.getDeviceProperties(runtime.getDevice())
    lanes = _FP32_LANES.get((properties["major"], properties["minor"]))
    clock_khz = 0
    with contextlib.suppress(runtime.CUDARuntimeError):
        clock_khz = runtime.deviceGetAttribute(_CLOCK_RATE, runtime.getDevice())
    if lanes is None or not clock_khz:
        return None
    return 2 * lanes * properties["multiProcessorCount"] * clock_khz * 1e-6


def load_peak_gwords() -> float | None:
    """Words of four bytes that the first-level caches can deliver in a nanosecond at the highest clock; or None."""
    runtime = cupy_module().cuda.runtime
    properties = runtime.getDeviceProperties(runtime.getDevice())
    peak, lanes = fp32_peak_gflops(), _FP32_LANES.get((properties["major"], properties["minor"]))
    if peak is None or lanes is None or properties["major"] < 7:
        return None
    words = 16 if (properties["major"], properties["minor"]) == (7, 5) else 32
    return peak / (2 * lanes) * words


#: cudaDevAttrClockRate, cudaDevAttrL2CacheSize and cudaDevAttrMaxSharedMemoryPerBlockOptin; CuPy has no names for them.
_CLOCK_RATE, _L2_CACHE_SIZE, _BLOCK_SHARED = 13, 38, 97

#: FP32 lanes of one multiprocessor, by compute capability (CUDA C++ programming guide, "Arithmetic instructions").
_FP32_LANES = {
    (6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128,
    (9, 0): 128, (10, 0): 128, (10, 3): 128, (12, 0): 128,
}  # fmt: skip


def allow_shared(function: Any, shared: int) -> None:
    """Let a kernel have `shared` bytes of dynamic shared memory: above 48 KiB, static too, the driver must be asked."""
    if shared:
        from cupy_backends.cuda.api import driver

        driver.funcSetAttribute(function.ptr, _MAX_DYNAMIC_SHARED, shared)


#: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_MAX_DYNAMIC_SHARED = 8


class GpuImage:
    """A module compiled by CuPy's NVRTC for the GPU at hand and loaded there."""

    def __init__(self, source: str, arch: str | None, options: Sequence[str]):
        self._cupy = cupy_module()
        target = arch or f"sm_{self._cupy.cuda.Device().compute_capability}"
        self.ptx, self._binary = self._compile(source, target, options)
        self.reset()
        from . import sim

        self._program = sim.load(self.ptx)  # names and sizes; the engine runs none of it

    def reset(self) -> None:
        """Load the module anew: its variables have their first contents."""
        self._module = self._cupy.cuda.function.Module()
        self._module.load(self._binary)

    def _compile(self, source: str, arch: str, options: Sequence[str]) -> tuple[str, bytes]:
        from cupy_backends.cuda.libs import nvrtc

        program = nvrtc.createProgram(source, SOURCE_NAME, (), ())
        try:
            try:
                nvrtc.compileProgram(program, (*standard_options(arch), *options))
            except nvrtc.NVRTCError:
                raise compile_error(nvrtc.getProgramLog(program)) from None
            ptx = nvrtc.getPTX(program)
            text = ptx.decode() if isinstance(ptx, bytes) else ptx
            image = nvrtc.getCUBIN(program) if arch.startswith("sm_") else text.encode()
            return text.rstrip("\0"), image
        finally:
            nvrtc.destroyProgram(program)

    def entries(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, tuple(p.size for p in entry.params)) for name, entry in self._program.entries.items()]

    def symbols(self) -> dict[str, int]:
        return {name: symbol.size for name, symbol in self._program.symbols.items()}

    def set(self, symbol: str, data: bytes) -> None:
        address = int(self._module.get_global_var(symbol))
        memory = self._cupy.cuda.UnownedMemory(address, len(data), self)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        self._cupy.ndarray(len(data), np.uint8, pointer).set(np.frombuffer(data, np.uint8))

    def run(
        self, entry: str, grid: Triple, block: Triple, args: Sequence[Argument], shared: int, check: bool,
        budget: int | None,
    ) -> LaunchResult:  # fmt: skip
        """Run once and wait. The hardware neither checks nor counts: `check` and `budget` change nothing here."""
        cupy = self._cupy
        function = self._module.get_function(entry)
        allow_shared(function, shared)
        staged = [self._to_device(a) for a in args]
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        function(grid, block, tuple(staged), shared_mem=shared)
        after.record()
        after.synchronize()
        for argument, device in zip(args, staged, strict=True):
            if isinstance(argument.array, np.ndarray):
                device.get(out=argument.array)
        return LaunchResult([], None, cupy.cuda.get_elapsed_time(before, after) * 1e3)

    def enqueue(self, launch: Ready) -> None:
        """Put a launch into CuPy's current stream and do not wait. Its arrays must be on the device already."""
        function = self._module.get_function(launch.kernel.entry)
        allow_shared(function, launch.shared)
        values = tuple(a.scalar if a.array is None else a.array for a in launch.args)
        function(launch.grid, launch.block, values, shared_mem=launch.shared)

    def _to_device(self, argument: Argument) -> Any:
        """The array on the device (a copy of a NumPy array), or the scalar; undefined contents become NaN bytes."""
        if argument.array is None:
            return argument.scalar
        device = self._cupy.asarray(argument.array)
        if argument.undefined and argument.defined is None:
            device.reshape(-1).view(np.uint8).fill(0xFF)
        return device
