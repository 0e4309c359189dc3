"""cuDNN's convolutions on CuPy arrays: forward, and the two gradients of training.

CuPy 14 no longer has `cupy.cudnn`. `convolution_forward` here is called as that one was and runs on NVIDIA's own
`nvidia-cudnn-frontend`. cuDNN offers dozens of *plans* for one convolution, of which some do not build and the first is
seldom the fastest: `best` builds and times all of them, once for each problem.

Precision "fp32" leaves out every plan that uses tensor cores, rounds its inputs or sums in less than float32 (Winograd
and FFT plans stay: float32 arithmetic, other rounding errors); "tf32" allows all. Layout "nhwc" means that channels lie
side by side in the memory of inputs, filters and outputs.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from types import ModuleType
from typing import Any, Literal

import numpy as np

from .errors import ArgumentError, BackendError, ConvladderError, DeviceMemoryError, GeometryError, LibraryError
from .gpu import cupy_module, enough_memory
from .layouts import ConvGeometry, strides
from .stopwatch import elapsed_us

Precision = Literal["fp32", "tf32"]
Layout = Literal["nchw", "nhwc"]
#: What is computed from what: y from x and w; dx from dy and w; dw from x and dy.
Direction = Literal["forward", "data gradient", "weight gradient"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32")
LAYOUTS: tuple[Layout, ...] = ("nchw", "nhwc")

#: Layouts as `cupy.cudnn` numbered them (CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC).
TENSOR_NCHW, TENSOR_NHWC = 0, 1

#: What a strict float32 plan must not do (cudnnBackendNumericalNote_t).
_INEXACT = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")

#: A plan that needs more scratch memory than this is left out.
MAX_WORKSPACE_BYTES = 8 << 30


def frontend() -> ModuleType:
    """NVIDIA's cuDNN front end. Raises BackendError that says what to install."""
    cupy_module()
    try:
        import cudnn
    except ImportError as error:
        raise BackendError(
            f"the library cuDNN cannot be loaded ({error}): beside CuPy, `pip install "
            "'nvidia-cudnn-frontend<1.29' nvidia-cudnn-cu13` (or -cu12, as CuPy's)"
        ) from None
    return cudnn


def version() -> str:
    """The version of cuDNN, such as "9.19.0". Raises BackendError."""
    number = frontend().backend_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@dataclass(frozen=True)
class Plan:
    """One of cuDNN's ways to compute a convolution. `name`: its engine and knobs, as cuDNN writes them."""

    index: int
    name: str
    workspace_bytes: int
    time_us: float


class Convolution:
    """A convolution, or one of its gradients, by the fastest plan that builds.

    plans    those that were built, the fastest first
    offered  how many plans cuDNN named
    most     stop after so many that build, in the order of cuDNN's heuristics; None: build all
    Raises LibraryError where none is left, BackendError without cuDNN, DeviceMemoryError.
    """

    def __init__(
        self, geometry: ConvGeometry, precision: Precision, layout: Layout, direction: Direction = "forward",
        most: int | None = None,
    ):  # fmt: skip
        self._cudnn = frontend()
        self._graph, self._tensors = _graph(geometry, precision, layout, direction)
        self.offered = self._graph.get_execution_plan_count()
        with enough_memory(f"trying cuDNN's plans for {geometry}"):
            trial = [cupy_module().zeros(shape, np.float32) for shape in _shapes(geometry, direction)]
            plans = (plan for index in range(self.offered) if (plan := self._tried(index, trial)) is not None)
            found = list(itertools.islice(plans, most))
        if not found:
            raise LibraryError(
                f"cuDNN {version()} has no {direction} plan for {geometry} in {precision} and {layout}: of "
                f"{self.offered} that it offers none is allowed and builds. Try another precision or layout"
            )
        self.plans = tuple(sorted(found, key=lambda plan: plan.time_us))
        self._workspace = self._scratch(self.best.workspace_bytes)

    @property
    def best(self) -> Plan:
        return self.plans[0]

    def enqueue(self, first: Any, second: Any, result: Any) -> None:
        """Put the work into CuPy's current stream: x, w and y, or as Direction says. Memory must have the layout."""
        self._execute(self.best.index, (first, second, result), self._workspace)

    def _tried(self, index: int, trial: list[Any]) -> Plan | None:
        """The plan, built, run and timed; None where it may not be used, does not build or does not run."""
        try:
            self._graph.build_plan_at_index(index)
            bytes_needed = self._graph.get_workspace_size_plan_at_index(index)
            if bytes_needed > MAX_WORKSPACE_BYTES:
                return None
            workspace = self._scratch(bytes_needed)
            self._execute(index, trial, workspace)
            time_us = elapsed_us(lambda: self._execute(index, trial, workspace))
            return Plan(index, self._graph.get_plan_name_at_index(index), bytes_needed, time_us)
        except (self._cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
            if isinstance(error, cupy_module().cuda.runtime.CUDARuntimeError):
                raise  # the device is in trouble, not the plan
            return None

    def _execute(self, index: int, arrays: Any, workspace: Any) -> None:
        handle = _handle(cupy_module().cuda.Device().id)
        self._cudnn.set_stream(handle=handle, stream=cupy_module().cuda.get_current_stream().ptr)
        pointers = {tensor: array.data.ptr for tensor, array in zip(self._tensors, arrays, strict=True)}
        self._graph.execute_plan_at_index(pointers, workspace.data.ptr, index, handle)

    @staticmethod
    def _scratch(size: int) -> Any:
        return cupy_module().empty(max(size, 1), np.uint8)


def best(
    geometry: ConvGeometry,
    precision: Precision = "fp32",
    layout: Layout = "nchw",
    direction: Direction = "forward",
    most: int | None = None,
) -> Convolution:
    """The fastest plan for a problem, searched for once on each device. Raises what Convolution raises."""
    if precision not in PRECISIONS or layout not in LAYOUTS:
        raise ArgumentError(
            f"cuDNN runs in {' or '.join(PRECISIONS)} and {' or '.join(LAYOUTS)}, not {precision, layout}"
        )
    frontend()
    return _searched(cupy_module().cuda.Device().id, geometry, precision, layout, direction, most)


class Converted:
    """A convolution of arrays with channels first that cuDNN runs with channels last: they are turned, y back again."""

    def __init__(self, geometry: ConvGeometry, precision: Precision):
        self._inner = best(geometry, precision, "nhwc")

    def enqueue(self, x: Any, w: Any, y: Any) -> None:
        """Put the conversions and the convolution into CuPy's current stream."""
        cupy = cupy_module()
        x_last, w_last = (cupy.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, w))
        n, k, p, q = y.shape
        result = cupy.empty((n, p, q, k), np.float32)
        self._inner.enqueue(x_last, w_last, result)
        y[...] = result.transpose(0, 3, 1, 2)


def fastest(geometry: ConvGeometry, precision: Precision = "fp32") -> Convolution | Converted:
    """The fastest way to convolve arrays with channels first, in either layout, conversions counted.

    Strict float32 plans for grouped convolutions may be several times as fast with channels last. Searched for once on
    each device. Raises what Convolution raises.
    """
    frontend()
    return _compared(cupy_module().cuda.Device().id, geometry, precision)


@lru_cache(maxsize=16)
def _compared(device: int, geometry: ConvGeometry, precision: Precision) -> Convolution | Converted:
    trial = [cupy_module().zeros(shape, np.float32) for shape in _shapes(geometry, "forward")]
    timed: list[tuple[float, Convolution | Converted]] = []
    failures: list[ConvladderError] = []
    ways: tuple[Callable[[ConvGeometry, Precision], Convolution | Converted], ...] = (best, Converted)
    for make in ways:
        try:
            with enough_memory(f"trying cuDNN's layouts for {geometry}"):
                way = make(geometry, precision)
                run = partial(way.enqueue, *trial)
                run()  # loads the code
                timed.append((elapsed_us(run), way))
        except (LibraryError, DeviceMemoryError) as error:
            failures.append(error)
    if not timed:
        raise failures[0]
    return min(timed, key=lambda pair: pair[0])[1]


@lru_cache(maxsize=48)  # each holds its scratch memory; a network in training has three for each convolution
def _searched(
    device: int, geometry: ConvGeometry, precision: Precision, layout: Layout, direction: Direction, most: int | None
) -> Convolution:
    return Convolution(geometry, precision, layout, direction, most)


def forget() -> None:
    """Give back what the convolutions found so far hold: their scratch memory."""
    _searched.cache_clear()
    _compared.cache_clear()


@cache
def _handle(device: int) -> Any:
    return frontend().create_handle()


def _shapes(g: ConvGeometry, direction: Direction) -> tuple[tuple[int, ...], ...]:
    """Of the two operands and of the result."""
    x, w, y = g.x_shape, g.w_shape, g.y_shape
    return {"forward": (x, w, y), "data gradient": (y, w, x), "weight gradient": (x, y, w)}[direction]


def _graph(
    g: ConvGeometry, precision: Precision, layout: Layout, direction: Direction
) -> tuple[Any, tuple[Any, Any, Any]]:
    """cuDNN's graph of one convolution with every plan that its heuristics know, its operands and its result."""
    cudnn = frontend()
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        handle=_handle(cupy_module().cuda.Device().id),
        io_data_type=single,
        intermediate_data_type=single,
        compute_data_type=single,
    )
    names, computes = {
        "forward": (("image", "weight"), graph.conv_fprop),
        "data gradient": (("loss", "filter"), graph.conv_dgrad),
        "weight gradient": (("image", "loss"), graph.conv_wgrad),
    }[direction]
    *shapes, result_shape = _shapes(g, direction)
    given = {
        name: graph.tensor(name=name, dim=list(shape), stride=list(strides(shape, layout)), data_type=single)
        for name, shape in zip(names, shapes, strict=True)
    }
    result = computes(**given, padding=list(g.pad), stride=list(g.stride), dilation=list(g.dilation))
    result.set_output(True).set_dim(list(result_shape)).set_stride(list(strides(result_shape, layout)))
    result.set_data_type(single)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
        raise LibraryError(
            f'cuDNN {version()} does not take {g}: {error}. Use a rung, such as method="direct"'
        ) from None
    if precision == "fp32":
        graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in _INEXACT])
    return graph, (*given.values(), result)


# ---- as cupy.cudnn is called


def convolution_forward(
    x: Any,
    W: Any,
    b: Any,
    y: Any,
    pad: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    *,
    auto_tune: bool = True,
    tensor_core: str = "never",
    d_layout: int = TENSOR_NCHW,
    w_layout: int = TENSOR_NCHW,
) -> None:
    """y = x * W + b, called as CuPy 13's `cupy.cudnn.convolution_forward` was; y is written in place.

    x, W, y      CuPy float32, C-contiguous: (N, C, H, W), (K, C/groups, R, S), (N, K, P, Q); with TENSOR_NHWC
                 (N, H, W, C), (K, R, S, C/groups), (N, P, Q, K)
    b            (K,) float32, or None
    tensor_core  "never": strict float32; "auto" or "always": TF32 is allowed
    auto_tune    all plans are always tried, once for each problem; there only for the calling form
    Where the installed CuPy still has `cupy.cudnn`, that runs instead (untried).
    Raises ArgumentError, GeometryError, BackendError without cuDNN or a GPU, LibraryError, DeviceMemoryError.
    """
    if (original := _cupys_own()) is not None:
        original(
            x, W, b, y, pad, stride, dilation, groups,
            auto_tune=auto_tune, tensor_core=tensor_core, d_layout=d_layout, w_layout=w_layout,
        )  # fmt: skip
        return
    layout = _layout(d_layout, w_layout)
    precisions: dict[str, Precision] = {"never": "fp32", "auto": "tf32", "always": "tf32"}
    if tensor_core not in precisions:
        raise ArgumentError(f'tensor_core = {tensor_core!r}: it must be "never", "auto" or "always"')
    for name, array in (("x", x), ("W", W), ("y", y)):
        _require_device_array(name, array)
    x_shape, w_shape, y_shape = (_logical(a.shape, layout) for a in (x, W, y))
    geometry = ConvGeometry.of(x_shape, w_shape, stride, pad, dilation, groups)
    if y_shape != geometry.y_shape:
        raise GeometryError(f"y has the shape {y.shape}, but the result has N, K, P, Q = {geometry.y_shape}")
    if y.size:
        best(geometry, precisions[tensor_core], layout).enqueue(x, W, y)
    if b is not None:
        y += b.reshape((1, -1, 1, 1) if layout == "nchw" else (1, 1, 1, -1))


def forward_arguments(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: int, pad: int, layout: Layout, tf32: bool
) -> tuple[Any, ...]:
    """What `convolution_forward` takes besides x, W and b, for shapes (N, C, H, W) and (K, C, R, S).

    returns (the shape of y's array in memory, pad, stride, dilation, groups, tensor_core, d_layout, w_layout), the
    second to the fourth as pairs, tensor_core "never" or "always". Raises GeometryError.
    """
    n, k, p, q = ConvGeometry.of(tuple(x_shape), tuple(w_shape), stride, pad).y_shape
    shape, number = ((n, k, p, q), TENSOR_NCHW) if layout == "nchw" else ((n, p, q, k), TENSOR_NHWC)
    return shape, (pad, pad), (stride, stride), (1, 1), 1, "always" if tf32 else "never", number, number


def fastest_plan(plans: Sequence[Sequence[float]], most_bytes: int) -> int | None:
    """The index of the fastest plan whose scratch memory is at most so large; None where there is none.

    plans  [index, bytes of scratch memory, microseconds] of each
    """
    allowed = [(us, index) for index, size, us in plans if size <= most_bytes]
    return int(min(allowed)[1]) if allowed else None


def _cupys_own() -> Callable[..., None] | None:
    """`cupy.cudnn.convolution_forward` where CuPy still has it."""
    with contextlib.suppress(ImportError):
        from cupy import cudnn  # CuPy 13 and older

        return cudnn.convolution_forward
    return None


def _layout(d_layout: int, w_layout: int) -> Layout:
    if d_layout != w_layout or d_layout not in (TENSOR_NCHW, TENSOR_NHWC):
        raise ArgumentError(
            f"d_layout = {d_layout}, w_layout = {w_layout}: both must be TENSOR_NCHW (0) or both TENSOR_NHWC (1)"
        )
    return "nhwc" if d_layout == TENSOR_NHWC else "nchw"


def _logical(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    if len(shape) != 4 or layout == "nchw":
        return shape
    n, h, w, c = shape
    return n, c, h, w


def _require_device_array(name: str, array: Any) -> None:
    cupy = cupy_module()
    if not isinstance(array, cupy.ndarray):
        raise ArgumentError(
            f"{name} is a {type(array).__name__}: cuDNN takes CuPy arrays, such as cupy.asarray({name})"
        )
    if array.dtype != np.float32:
        raise ArgumentError(f"{name} is {array.dtype}: convert it with .astype('float32')")
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{name} is not C-contiguous: convert it with cupy.ascontiguousarray({name})")
