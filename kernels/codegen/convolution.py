"""A convolution whose weights are code, ready to run: on a GPU, or small ones on the engine."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiler import compiler_version
from ..errors import ArgumentError, BackendError, FaultError, GeometryError
from ..gpu import allow_shared, block_shared_bytes, cupy_module, device_facts, device_id, multiprocessors
from ..launch import MAX_SHARED_BYTES, compile_cuda, launch
from ..layouts import ConvGeometry
from .assembler import Built, Progress, build
from .generator import KERNEL, Part, generate
from .kept import kept_choice
from .model import default_choice
from .tiling import Choice, Tiling

#: More code than this is refused: 16 bytes for each weight that is not zero.
MOST_CODE_BYTES = 32 << 20

_BYTES_A_WEIGHT = 16


@dataclass(frozen=True)
class Facts:
    """What a convolution cost to make, and what was made.

    tuned          whether the tuner had found the choice
    generation_s   weights to source;  compile_s  source to machine code, as long as one waited for it
    compile_cpu_s  of all processes together, when the code was made
    kernels        cached  of them were there already
    code_bytes     machine code, ptx_bytes of PTX before;  nnz weights are in it
    registers      of the kernel that has most; spill_bytes of all
    """

    choice: Choice
    tuned: bool
    kernels: int
    cached: int
    nnz: int
    generation_s: float
    compile_s: float
    compile_cpu_s: float
    code_bytes: int
    ptx_bytes: int
    cubin_bytes: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    blocks: int


def check(geometry: ConvGeometry, w: np.ndarray, choice: Choice, shared_bytes: int = MAX_SHARED_BYTES) -> None:
    """Raise GeometryError where the code would be too large, or the input under a block too wide for its memory."""
    nnz = int(np.count_nonzero(w))
    if (code := nnz * _BYTES_A_WEIGHT) > MOST_CODE_BYTES:
        raise GeometryError(
            f"{nnz} of the weights are not zero: as code that is {code >> 20} MiB, and codegen makes at most "
            f'{MOST_CODE_BYTES >> 20}. Use method="csr_staged", or a dense method for dense weights'
        )
    needed = Tiling(geometry, choice).shared_bytes
    if needed > shared_bytes:
        raise GeometryError(
            f"codegen keeps whole rows of the input under a block in shared memory: {choice} takes {needed} bytes, "
            f'there are {shared_bytes}. Use method="direct" for wide images'
        )
    if geometry.N * geometry.P * geometry.Q >= 2**31 - 1024:
        raise GeometryError("codegen counts output points in 31 bits: give it fewer images at a time")


class Convolution:
    """The kernels of one convolution on the GPU at hand.

    w         (K, C/groups, R, S) float32, NumPy: its values are compiled in
    choice    how the code is cut; None: what the tuner recorded, else the model's default
    workers   processes that compile;  progress  is told of every kernel that is there
    Raises GeometryError (check), CompileError, BackendError.
    """

    def __init__(
        self,
        geometry: ConvGeometry,
        w: np.ndarray,
        choice: Choice | None = None,
        workers: int | None = None,
        progress: Progress = lambda *_: None,
    ):
        self._cupy = cupy_module()
        require_weights(geometry, w)
        self.geometry = geometry
        kept = None if choice else kept_choice(geometry, w)
        self.choice = choice or kept or default_choice(geometry, w, multiprocessors())
        check(geometry, w, self.choice, block_shared_bytes())
        self._tiling = Tiling(geometry, self.choice)
        started = time.perf_counter()
        self._parts = generate(geometry, w, self.choice)
        generated = time.perf_counter()
        built = build([part.source for part in self._parts], architecture(), workers, progress)
        seconds = generated - started, time.perf_counter() - generated
        self.facts = _facts(self._tiling, self._parts, built, *seconds, tuned=kept is not None)
        self._kernels = [self._loaded(one.cubin) for one in built]
        self._streams: list[Any] = []

    def _loaded(self, cubin: bytes) -> Any:
        module = self._cupy.cuda.function.Module()
        module.load(cubin)
        function = module.get_function(KERNEL)
        allow_shared(function, self._tiling.shared_bytes)
        return function

    def enqueue(self, x: Any, y: Any) -> None:
        """Put y = convolution of x, contiguous float32 arrays on the device, into CuPy's current stream.

        The number of images may be any. The kernels run beside each other, in streams that part from the current one
        and join it again; a graph can hold them. Raises ArgumentError for other shapes, types or orders.
        """
        require_arrays(self.geometry, x, y)
        if y.size == 0:
            return
        first, *others = self._kernels
        current = self._cupy.cuda.get_current_stream()
        if self.choice.splits > 1:
            self._cupy.cuda.runtime.memsetAsync(y.data.ptr, 0, y.nbytes, current.ptr)
        while len(self._streams) < len(others):
            self._streams.append(self._cupy.cuda.Stream(non_blocking=True))
        begun = current.record(self._cupy.cuda.Event(disable_timing=True)) if others else None
        for kernel, stream in zip(others, self._streams, strict=False):
            stream.wait_event(begun)
            with stream:
                self._launch(kernel, x, y)
        self._launch(first, x, y)
        for stream in self._streams[: len(others)]:
            current.wait_event(stream.record(self._cupy.cuda.Event(disable_timing=True)))

    def _launch(self, kernel: Any, x: Any, y: Any) -> None:
        blocks = self._tiling.blocks(x.shape[0])
        arguments = (x, y, np.int32(x.shape[0]))
        kernel((blocks,), (self.choice.threads,), arguments, shared_mem=self._tiling.shared_bytes)


def architecture() -> str:
    """What the GPU at hand runs: "sm_90". Raises BackendError where its driver is older than our compiler."""
    facts = device_facts()
    require_driver(int(facts["driver_cuda"]) // 1000)
    return f"sm_{facts['compute_capability'].replace('.', '')}"


def require_driver(major: int) -> None:
    """Raise BackendError where a driver of CUDA `major` cannot load what the compiler makes."""
    if major < int(compiler_version().split(".")[0]):
        raise BackendError(
            f"the driver is of CUDA {major}, the compiler of CUDA {compiler_version()}: the driver cannot load "
            'its code. Update the driver, or use method="csr_staged"'
        )


def _facts(
    tiling: Tiling, parts: list[Part], built: list[Built], generation_s: float, compile_s: float, tuned: bool
) -> Facts:
    return Facts(
        choice=tiling.choice,
        tuned=tuned,
        kernels=len(parts),
        cached=sum(one.cached for one in built),
        nnz=sum(part.nnz for part in parts),
        generation_s=generation_s,
        compile_s=compile_s,
        compile_cpu_s=sum(one.compile_s for one in built),
        code_bytes=sum(one.code_bytes for one in built),
        ptx_bytes=sum(one.ptx_bytes for one in built),
        cubin_bytes=sum(len(one.cubin) for one in built),
        registers=max(one.registers for one in built),
        spill_bytes=sum(one.spill_bytes for one in built),
        shared_bytes=tiling.shared_bytes,
        blocks=len(parts) * tiling.blocks(tiling.geometry.N),
    )


def require_weights(geometry: ConvGeometry, w: np.ndarray) -> None:
    """Raise ArgumentError where w is not float32 of the geometry's shape."""
    if w.dtype != np.float32 or w.shape != geometry.w_shape:
        raise ArgumentError(f"w is {w.dtype} {w.shape}: codegen takes float32 {geometry.w_shape}")


def require_arrays(geometry: ConvGeometry, x: Any, y: Any) -> None:
    """Raise ArgumentError where x or y is not contiguous float32 of the geometry's shape, whatever their images."""
    for name, array, shape in (("x", x, geometry.x_shape), ("y", y, geometry.y_shape)):
        if array.dtype != np.float32 or array.shape[1:] != shape[1:] or not array.flags.c_contiguous:
            order = "" if array.flags.c_contiguous else ", not contiguous"
            raise ArgumentError(
                f"{name} is {array.dtype} {array.shape}{order}: it must be contiguous float32 (N, {str(shape[1:])[1:]}"
            )
    if len(x) != len(y):
        raise ArgumentError(f"x has {len(x)} images, y has {len(y)}")


def run_on_engine(
    geometry: ConvGeometry, x: np.ndarray, w: np.ndarray, y: np.ndarray, choice: Choice | None = None
) -> None:
    """y = convolution of x on the engine, with every check on. Raises GeometryError, CompileError, FaultError."""
    require_weights(geometry, w)
    choice = choice or default_choice(geometry, w, multiprocessors=1)
    check(geometry, w, choice)
    tiling = Tiling(geometry, choice)
    y.fill(0 if choice.splits > 1 else np.nan)
    for part in generate(geometry, w, choice):
        kernel = compile_cuda(part.source, "sim")[KERNEL]
        result = launch(kernel, tiling.blocks(geometry.N), choice.threads, [x, y, geometry.N], tiling.shared_bytes)
        if result.faults:
            raise FaultError(result.faults[0])


#: Convolutions that `prepared` keeps, the latest last.
_KEPT: dict[tuple[Any, ...], Convolution] = {}
_MOST_KEPT = 16


def prepared(geometry: ConvGeometry, w: np.ndarray) -> Convolution:
    """The convolution of these weights on the GPU at hand, made once. Arguments and errors are those of Convolution."""
    require_weights(geometry, w)
    digest = hashlib.sha256(np.ascontiguousarray(w).data).digest()
    key = (device_id(), geometry, digest)
    found = _KEPT.pop(key, None) or Convolution(geometry, w)
    _KEPT[key] = found
    while len(_KEPT) > _MOST_KEPT:
        del _KEPT[next(iter(_KEPT))]
    return found
