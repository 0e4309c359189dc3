"""The GPU back end: the same source through CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .compiler import SOURCE_NAME, compile_error, standard_options
from .errors import BackendError
from .result import LaunchResult, Triple

if TYPE_CHECKING:
    from .launch import Argument


@cache
def cupy_module() -> ModuleType:
    """CuPy with a GPU behind it. Raises BackendError that says which of the two is missing."""
    try:
        import cupy
    except ImportError:
        raise BackendError(
            "CuPy is not installed: `pip install convladder[cuda13]` for a driver of CUDA 13, `[cuda12]` for CUDA 12"
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


class GpuImage:
    """A module compiled by CuPy's NVRTC for the GPU at hand and loaded there."""

    def __init__(self, source: str, arch: str | None, options: Sequence[str]):
        self._cupy = cupy_module()
        target = arch or f"sm_{self._cupy.cuda.Device().compute_capability}"
        self.ptx, image = self._compile(source, target, options)
        self._module = self._cupy.cuda.function.Module()
        self._module.load(image)
        from . import sim

        self._program = sim.load(self.ptx)  # names and sizes; the engine runs none of it

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
        if shared > 48 * 1024:
            function.max_dynamic_shared_size_bytes = shared
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

    def _to_device(self, argument: Argument) -> Any:
        """The array on the device (a copy of a NumPy array), or the scalar; undefined contents become NaN bytes."""
        if argument.array is None:
            return argument.scalar
        device = self._cupy.asarray(argument.array)
        if argument.undefined:
            device.reshape(-1).view(np.uint8).fill(0xFF)
        return device
