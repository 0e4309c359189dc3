"""Compile CUDA C++ and launch its kernels, on a GPU or on the engine: the same calls, the same source."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from . import signature
from .compiler import DEFAULT_ARCH, compile_ptx
from .errors import ArgumentError, KernelNameError, LaunchError
from .result import LaunchResult, Triple
from .signature import Parameter

if TYPE_CHECKING:
    from .sim.observer import Observer

Backend = Literal["sim", "gpu"]

MAX_GRID: Triple = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Triple = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
#: Shared memory of a block on the most generous architecture (sm_90).
MAX_SHARED_BYTES = 227 * 1024
#: Threads of one launch on the engine; a GPU takes more, a laptop would not come back.
MAX_ENGINE_THREADS = 2**28


class out:
    """Marks an array whose contents are undefined until the kernel writes them.

    The launch fills it with NaN bytes first, and on the engine a read before the first write is a fault.

    defined   a byte for each of the array's, not 0 where that one is defined already; None: nowhere. A checked launch
              on the engine sets what it writes.
    """

    def __init__(self, array: Any, defined: np.ndarray | None = None):
        self.array = array
        self.defined = defined


class _Image(Protocol):
    """A loaded module of one back end."""

    def entries(self) -> Sequence[tuple[str, tuple[int, ...]]]:
        """(name in PTX, sizes of its parameters in bytes) of every kernel."""

    def set(self, symbol: str, data: bytes) -> None: ...

    def reset(self) -> None:
        """Give every module-scope variable its first contents."""

    def symbols(self) -> dict[str, int]:
        """Size in bytes of every module-scope variable, by its name in PTX."""

    def run(
        self, entry: str, grid: Triple, block: Triple, args: Sequence[Argument], shared: int, check: bool,
        budget: int | None,
    ) -> LaunchResult: ...  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """One argument that fits its parameter: an array (undefined: marked `out`) or the bytes of a scalar."""

    name: str
    array: Any = None
    undefined: bool = False
    scalar: np.generic | None = None
    defined: np.ndarray | None = None  # as for `out`


@dataclass(frozen=True)
class Ready:
    """A launch whose sizes and arguments were found to fit: what a back end runs."""

    kernel: Kernel
    grid: Triple
    block: Triple
    args: list[Argument]
    shared: int


@dataclass(frozen=True)
class Kernel:
    """One kernel of a module. `parameters` is None where the source's declaration could not be read."""

    name: str
    entry: str
    parameters: tuple[Parameter, ...] | None
    sizes: tuple[int, ...]
    module: Module = field(repr=False)


class Module:
    """Compiled CUDA source. `module["name"]` is a kernel; `kernels` lists the names."""

    def __init__(self, source: str, on: Backend, ptx: str, image: _Image):
        self.source = source
        self.on = on
        self.ptx = ptx
        self.image = image
        declared = signature.kernels(source)
        entries = image.entries()
        plain = [base_name(entry) for entry, _ in entries]
        self._kernels = {}
        for (entry, sizes), base in zip(entries, plain, strict=True):
            name = base if plain.count(base) == 1 else entry  # overloads are told apart by their PTX name
            parameters = declared.get(base)
            if parameters is not None and len(parameters) != len(sizes):
                parameters = None
            self._kernels[name] = Kernel(name, entry, parameters, sizes, self)

    @property
    def kernels(self) -> list[str]:
        return list(self._kernels)

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._kernels:
            there = ", ".join(self._kernels) or "none; a kernel is declared `__global__ void NAME(...)`"
            raise KernelNameError(f"there is no kernel {name!r} in the source; its kernels: {there}")
        return self._kernels[name]

    def set(self, symbol: str, array: Any) -> None:
        """Write an array into a __constant__ or __device__ variable of the module.

        Raises KernelNameError for an unknown symbol, ArgumentError where the sizes differ.
        """
        sizes = {base_name(name): (name, size) for name, size in self.image.symbols().items()}
        if symbol not in sizes:
            there = ", ".join(sizes) or "none"
            raise KernelNameError(f"there is no __constant__ or __device__ variable {symbol!r}; there are: {there}")
        name, size = sizes[symbol]
        data = np.ascontiguousarray(array).tobytes()
        if len(data) != size:
            raise ArgumentError(f"{symbol} has {size} bytes, the array has {len(data)}")
        self.image.set(name, data)

    def reset(self) -> None:
        """Give every __constant__ and __device__ variable what the source says, as if just compiled."""
        self.image.reset()


def base_name(entry: str) -> str:
    """The C++ name behind a PTX name: `_Z6directPKfPf` is direct, `_ZN3lab6directEv` is direct too."""
    text, name = entry, ""
    if text.startswith("_Z"):
        nested = text.startswith("_ZN")  # namespaces before the name; elsewhere what follows it are types
        text = text[2:].lstrip("NL")
        while text[:1].isdigit() and (nested or not name):
            digits = len(text) - len(text.lstrip("0123456789"))
            end = digits + int(text[:digits])
            name, text = text[digits:end], text[end:].lstrip("L")
    return name or entry


def compile_cuda(source: str, on: Backend = "sim", arch: str | None = None, options: Sequence[str] = ()) -> Module:
    """Compile CUDA C++ source.

    on       "sim" (the engine, no GPU needed) or "gpu" (CuPy)
    arch     what to compile for: "compute_80" on the engine, the GPU's own architecture on a GPU, unless given
    options  further NVRTC options, such as ("-DTILE=16",)
    Raises CompileError with the compiler's log, BackendError where the compiler or the GPU cannot be had.
    """
    if on == "sim":
        ptx = compile_ptx(source, arch or DEFAULT_ARCH, options)
        return Module(source, on, ptx, _EngineImage(ptx))
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
    if not isinstance(image, _EngineImage):
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
        raise LaunchError(f"block {block3} has {threads} threads: at most {MAX_BLOCK_THREADS} are allowed")
    total = grid3[0] * grid3[1] * grid3[2] * threads
    if kernel.module.on == "sim" and total > MAX_ENGINE_THREADS:
        raise LaunchError(
            f"grid {grid3} of blocks {block3} has {total} threads: the engine runs at most {MAX_ENGINE_THREADS}"
        )
    if not 0 <= shared <= MAX_SHARED_BYTES:
        raise LaunchError(f"shared = {shared}: a block can have 0 to {MAX_SHARED_BYTES} bytes of shared memory")
    return Ready(kernel, grid3, block3, _fit(kernel, args), shared)


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


# ---- arguments against parameters


def _fit(kernel: Kernel, args: Sequence[Any]) -> list[Argument]:
    declared = kernel.parameters
    if len(args) != len(kernel.sizes):
        listed = f"({', '.join(map(str, declared))})" if declared is not None else ""
        raise ArgumentError(f"{kernel.name}{listed} takes {len(kernel.sizes)} arguments, got {len(args)}")
    parameters = declared or tuple(Parameter("", f"argument {i}") for i in range(1, len(args) + 1))
    fitted = [
        _fit_one(f"{kernel.name}, parameter {i} ({p})" if p.type else f"{kernel.name}, {p.name}", p, size, arg)
        for i, (p, size, arg) in enumerate(zip(parameters, kernel.sizes, args, strict=True), 1)
    ]
    _require_apart(kernel, fitted)
    return fitted


def _require_apart(kernel: Kernel, args: Sequence[Argument]) -> None:
    """Two arrays are the same memory or have none in common; what is undefined before is an input nowhere."""
    arrays = [(a, *_extent(a.array)) for a in args if a.array is not None and a.array.nbytes]
    for i, (a, begin, end) in enumerate(arrays):
        for b, other_begin, other_end in arrays[:i]:
            if begin >= other_end or other_begin >= end:
                continue
            if (begin, end) != (other_begin, other_end):
                raise ArgumentError(
                    f"{kernel.name}: the arrays {b.name} and {a.name} overlap in part. Pass a copy of one"
                )
            if any(each.undefined and each.defined is None for each in (a, b)):
                raise ArgumentError(
                    f"{kernel.name}: {b.name} and {a.name} are the same array, and out() says that its contents are "
                    "undefined. Pass a copy, or leave out() away"
                )


def _extent(array: Any) -> tuple[int, int]:
    """First address of an array and the one behind it, on the host or on a device."""
    begin = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return begin, begin + array.nbytes


def _fit_one(where: str, parameter: Parameter, size: int, arg: Any) -> Argument:
    undefined = isinstance(arg, out)
    value = arg.array if isinstance(arg, out) else arg
    name = parameter.name or "argument"
    if isinstance(value, np.void):
        return Argument(name, scalar=_fit_struct(where, size, value))
    if hasattr(value, "shape") and not isinstance(value, np.generic) and not parameter.is_reference:
        array, defined = _fit_array(where, parameter, size, value), arg.defined if isinstance(arg, out) else None
        return Argument(name, array=array, undefined=undefined, defined=defined)
    if parameter.is_pointer:
        raise ArgumentError(f"{where}: got {value!r}; a pointer takes an array")
    if parameter.is_reference:
        raise ArgumentError(
            f"{where}: a kernel cannot take a reference, as host memory is out of its reach; drop the &"
        )
    return Argument(name, scalar=_fit_scalar(where, parameter, size, value))


def _fit_struct(where: str, size: int, value: np.void) -> np.void:
    if value.nbytes != size:
        raise ArgumentError(f"{where}: the struct has {size} bytes, the np.void has {value.nbytes}")
    return value


def _fit_array(where: str, parameter: Parameter, size: int, array: Any) -> Any:
    if size != 8 or (parameter.type and not parameter.is_pointer):
        raise ArgumentError(f"{where}: got an array; the parameter is not a pointer")
    wanted = parameter.dtype
    if wanted is not None and array.dtype != wanted:
        raise ArgumentError(
            f"{where}: got an array of {array.dtype}; it takes {wanted}. Convert it with .astype('{wanted}')"
        )
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{where}: the array is not C-contiguous. Convert it with np.ascontiguousarray(...)")
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        if not parameter.const:
            raise ArgumentError(f"{where}: the array is read-only and the kernel may write to it. Pass a copy")
        array = array.copy()
    return array


def _fit_scalar(where: str, parameter: Parameter, size: int, value: Any) -> np.generic:
    dtype = parameter.dtype
    if dtype is None or dtype.itemsize != size:
        if isinstance(value, np.generic) and value.nbytes == size:
            return value
        raise ArgumentError(
            f"{where}: cannot tell how to pass {value!r} to a parameter of this type; declare it as int, float or "
            f"another type of C's own, or give a NumPy scalar or np.void of {size} bytes"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.kind == "f" and isinstance(value, int | float):
        return dtype.type(value)
    if dtype.kind in "iub" and isinstance(value, int):
        if dtype.kind != "b" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise ArgumentError(f"{where}: {value} does not fit into {dtype}")
        return dtype.type(value)
    raise ArgumentError(f"{where}: got {value!r}; it takes a number of type {dtype}")


# ---- the engine as a back end


class _EngineImage:
    def __init__(self, ptx: str):
        from . import sim

        self._sim = sim
        self._program = sim.load(ptx)
        self._first = {name: symbol.data.copy() for name, symbol in self._program.symbols.items()}

    def entries(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, tuple(p.size for p in entry.params)) for name, entry in self._program.entries.items()]

    def symbols(self) -> dict[str, int]:
        return {name: symbol.size for name, symbol in self._program.symbols.items()}

    def set(self, symbol: str, data: bytes) -> None:
        self._program.symbols[symbol].data[:] = np.frombuffer(data, np.uint8)

    def reset(self) -> None:
        for name, data in self._first.items():
            self._program.symbols[name].data[:] = data

    def run(
        self, entry: str, grid: Triple, block: Triple, args: Sequence[Argument], shared: int, check: bool,
        budget: int | None, observer: Observer | None = None,
    ) -> LaunchResult:  # fmt: skip
        staged = [_to_host(a) for a in args]
        params = [
            self._sim.Buffer(a.name, host.reshape(-1).view(np.uint8), not a.undefined, a.defined)
            if host is not None
            else np.asarray(a.scalar).tobytes()
            for a, host in zip(args, staged, strict=True)
        ]
        printed: list[str] = []
        started = time.perf_counter()
        faults, counters = self._sim.run(
            self._program, entry, grid, block, params,
            shared=shared, checks=check, budget=budget, observer=observer, printed=printed,
        )  # fmt: skip
        elapsed = (time.perf_counter() - started) * 1e6
        for a, host in zip(args, staged, strict=True):
            if host is not None and not isinstance(a.array, np.ndarray):
                a.array.set(host)
        return LaunchResult(faults, counters if check else None, elapsed, "".join(printed))


def _to_host(argument: Argument) -> np.ndarray | None:
    """The array itself, or the host's copy of a CuPy array; undefined contents become NaN bytes."""
    if argument.array is None:
        return None
    host = argument.array if isinstance(argument.array, np.ndarray) else argument.array.get()
    if argument.undefined:
        contents = host.reshape(-1).view(np.uint8)
        if argument.defined is None or not argument.defined.any():
            contents[:] = 0xFF
        else:
            np.putmask(contents, argument.defined == 0, 0xFF)
    return host
