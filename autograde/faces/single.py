"""Run any kernel of a CUDA file on the engine, with arguments that are described in words.

An argument is NAME=VALUE for a number, or for an array NAME=TYPE[SIZES]:CONTENTS, TYPE as in C and CONTENTS one of
random (normal, the same for the same seed), zeros, ones, arange, a number, out (undefined until the kernel writes it)
or a .npy file; NAME=FILE.npy takes type and sizes from the file: `x=float[16,16]:random`, `y=float[n*n]:out`, `n=256`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels import compile_cuda, out, plan
from ...kernels.errors import ArgumentError, CompileError, ConvladderError, LaunchError, PlanError
from ...kernels.expression import ExpressionError, evaluate
from ...kernels.module import Kernel, Module
from ...kernels.plan import Plan
from ...kernels.result import Counters, Fault, LaunchResult, WarpAccess, total
from ...kernels.signature import SCALARS

_ARRAY = re.compile(r"(?P<type>[A-Za-z_][\w ]*?)\s*\[(?P<sizes>[^\]]*)\]\s*(?::(?P<contents>.+))?")
_CONTENTS = ("random", "zeros", "ones", "arange", "a number", "out")
#: Bytes that the arrays of a run may have together: what a laptop can hold beside the engine's own books.
_MOST_BYTES = 2**31
#: Arrays up to this size are compared afterwards with what they were, to show those that changed.
_COMPARED = 2**26


@dataclass(frozen=True)
class Asked:
    """What to launch. grid and block are sizes as text, `4,4` or `cdiv(n, 256)`; "": as the file's own lines say.

    described, symbols  arguments, and contents of __constant__ and __device__ variables, as the module's docstring says
    watch               (block, warp), linear indices: also tell what each lane of that warp touches
    """

    path: Path
    kernel: str = ""
    grid: str = ""
    block: str = ""
    described: Sequence[str] = ()
    shared: str = "0"
    symbols: Sequence[str] = ()
    budget: int | None = None
    watch: tuple[int, int] | None = None
    seed: int = 0


@dataclass
class Run:
    """What went in and what came out; `lanes` are the watched warp's accesses, ready to be drawn."""

    source: str
    arguments: dict[str, Any]
    before: dict[str, np.ndarray] = field(repr=False)
    launches: list[tuple[str, LaunchResult]] = field(default_factory=list)
    lanes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def faults(self) -> list[Fault]:
        return [fault for _, result in self.launches for fault in result.faults]

    @property
    def counters(self) -> Counters:
        return total(r.counters for _, r in self.launches if r.counters is not None)

    @property
    def printed(self) -> str:
        """What the threads printed."""
        return "".join(result.output for _, result in self.launches)

    def outputs(self) -> dict[str, np.ndarray]:
        """The arrays that were outputs, and those that the launch changed."""
        found = {}
        for name, argument in self.arguments.items():
            if isinstance(argument, out):
                found[name] = argument.array
            elif name in self.before and argument.tobytes() != self.before[name].tobytes():
                found[name] = argument
        return found

    def to_json(self) -> dict[str, Any]:
        lines = self.source.split("\n")
        return {
            "launches": [name for name, _ in self.launches],
            "faults": [
                {**asdict(f), "source": lines[f.line - 1].strip() if 0 < f.line <= len(lines) else ""}
                for f in self.faults
            ],
            "printed": self.printed,
            "counters": asdict(self.counters),
            "outputs": {name: summary(array) for name, array in self.outputs().items()},
            "lanes": self.lanes,
        }

    def described_outputs(self) -> Iterator[str]:
        """Each output in a line."""
        for name, array in self.outputs().items():
            s = summary(array)
            shown = ", ".join("nan" if v is None else f"{v:g}" for v in s["first"])
            missing = f"; {s['nan']:,} of {array.size:,} are NaN (never written?)" if s["nan"] else ""
            more = ", …" if array.size > len(s["first"]) else ""
            yield f"{name}: {s['dtype']}{s['shape']} = {shown}{more}{missing}"


def save(done: Run, wanted: Sequence[str]) -> None:
    """Write arrays as they are after the run; each NAME=FILE.npy. Raises ArgumentError."""
    for text in wanted:
        name, _, file = text.partition("=")
        array = done.arguments.get(name)
        array = array.array if isinstance(array, out) else array
        if not isinstance(array, np.ndarray) or not file.endswith(".npy"):
            raise ArgumentError(f"--save {text}: write NAME=FILE.npy, NAME one of the arrays")
        try:
            np.save(file, array)
        except OSError as error:
            raise ArgumentError(f"--save {text}: {error}") from error


def error_json(error: ConvladderError) -> dict[str, Any]:
    """What went wrong, for programs: the error's type and message, its line, and what the compiler said."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    fault = getattr(error, "fault", None)
    found["line"] = fault.line if fault else getattr(error, "line", None)
    if isinstance(error, CompileError):
        found |= {"diagnostics": [asdict(d) for d in error.diagnostics], "log": error.log}
    return found


def summary(array: np.ndarray) -> dict[str, Any]:
    """An output in a few numbers; what was never written is still NaN."""
    flat = array.reshape(-1)
    floating = array.dtype.kind == "f"
    finite = flat[np.isfinite(flat)] if floating else flat
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "nan": int(np.isnan(flat).sum()) if floating else 0,
        "min": finite.min().item() if finite.size else None,
        "max": finite.max().item() if finite.size else None,
        "first": [v if np.isfinite(v) else None for v in flat[:8].tolist()],
    }


def run(asked: Asked) -> Run:
    """Compile a CUDA file and launch a kernel of it, or all that its own lines launch, on the engine.

    Raises ConvladderError of any kind; what a kernel does wrong is in the faults.
    """
    try:
        source = asked.path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{asked.path} is not a text file in UTF-8 ({error.reason})") from error
    parsed = plan.parse(source)
    arguments = parse_arguments(asked.described, asked.seed)
    module = compile_cuda(source, on="sim", options=parsed.options())
    variables = parse_arguments(asked.symbols, asked.seed, option="--set")
    parsed = _planned(asked, module, parsed, arguments)
    numbers = {name: value for name, value in arguments.items() if isinstance(value, int | float)}
    arrays = {name: value for name, value in arguments.items() if name not in numbers}
    inputs = {name: array for name, array in arrays.items() if not isinstance(array, out)}
    small = sum(array.nbytes for array in inputs.values()) <= _COMPARED
    done = Run(source, arguments, {name: array.copy() for name, array in inputs.items()} if small else {})
    try:
        if asked.watch:
            _set(module, variables)
            done.lanes = _lanes(asked.watch, module, parsed, numbers, arrays)
        _set(module, variables)
        done.launches = plan.run(module, parsed, numbers, arrays, budget=asked.budget)
    except PlanError as error:
        if not asked.grid:
            raise
        raise LaunchError(_unplaced(error)) from None
    return done


def _set(module: Module, variables: Mapping[str, Any]) -> None:
    """Give the module's variables their first contents, then those that were asked for."""
    module.reset()
    for name, value in variables.items():
        if not isinstance(value, np.ndarray):
            raise ArgumentError(f"--set {name}: say type and size, as {name}=float[1]:0.5 or {name}=int[4]:arange")
        module.set(name, value)


def _planned(asked: Asked, module: Module, parsed: Plan, arguments: Mapping[str, Any]) -> Plan:
    """The launch that was asked for, else those of the file's own `//@ launch` lines."""
    if not asked.grid and not asked.block:
        own = tuple(line for line in parsed.launches if asked.kernel in ("", line.kernel))
        if not own:
            raise ArgumentError("say --grid and --block: the file has no `//@ launch` line for that kernel")
        return replace(parsed, launches=own)
    if not (asked.grid and asked.block):
        raise ArgumentError("--grid and --block go together: say both, or neither for the file's own launch lines")
    if not asked.kernel and len(module.kernels) != 1:
        raise ArgumentError(f"say which kernel with --kernel: {', '.join(module.kernels) or 'the file has none'}")
    kernel = module[asked.kernel or module.kernels[0]]
    args = ", ".join(_ordered(kernel, arguments))
    grid, block = (re.sub(r"(?<=\d)x(?=\d)", ",", sizes) for sizes in (asked.grid, asked.block))
    line = f"//@ launch kernel grid=({grid}) block=({block}) shared={asked.shared} args=({args},)"
    try:
        (launch,) = plan.parse(line if args else line.partition(" args=")[0]).launches
    except PlanError as error:
        raise ArgumentError(f"--grid {asked.grid} --block {asked.block}: {_unplaced(error)}") from None
    return replace(plan.parse(""), consts=parsed.consts, launches=(replace(launch, kernel=kernel.name),))


def _unplaced(error: PlanError) -> str:
    """The message without its line, which is none of the file's."""
    return str(error).removeprefix(f"line {error.line}: ")


def _lanes(
    watch: tuple[int, int], module: Module, parsed: Plan, numbers: Mapping[str, Any], arrays: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What a warp touches, found on copies of the arrays."""
    from ...kernels import trace  # loads the engine, which a notebook that only draws has no use for

    block, warp = watch
    copies = {n: out(a.array.copy()) if isinstance(a, out) else a.copy() for n, a in arrays.items()}
    seen = trace.lanes(module, parsed, numbers, copies, block=block, warp=warp)
    return [_placed(access, block, warp, arrays) for access in seen]


def _placed(access: WarpAccess, block: int, warp: int, arrays: Mapping[str, Any]) -> dict[str, Any]:
    array = arrays.get(access.array)
    shape = getattr(array, "array", array).shape if array is not None else ()
    return {**asdict(access), "block": block, "warp": warp, "shape": list(shape), "border": 0}


def _ordered(kernel: Kernel, arguments: Mapping[str, Any]) -> list[str]:
    """The arguments' names in the order of the declaration; as given where that cannot be read."""
    names = [p.name for p in kernel.parameters or ()]
    if not names or not all(names):
        return list(arguments)
    missing = [name for name in names if name not in arguments]
    # A number may be there for the sizes' sake alone.
    unknown = [n for n, value in arguments.items() if n not in names and not isinstance(value, int | float)]
    if missing or unknown:
        declared = ", ".join(map(str, kernel.parameters or ()))
        wrong = [f"no parameter is called {', '.join(unknown)}"] if unknown else []
        wrong += [f"--arg is missing for {', '.join(missing)}"] if missing else []
        raise ArgumentError(f"{kernel.name}({declared}): {'; '.join(wrong)}")
    return names


def parse_arguments(described: Sequence[str], seed: int = 0, option: str = "--arg") -> dict[str, Any]:
    """Arguments by name; a size may name numbers given before it. Raises ArgumentError."""
    found: dict[str, Any] = {}
    numbers: dict[str, int | float] = {}
    generator = np.random.default_rng(seed)
    left = _MOST_BYTES
    for text in described:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise ArgumentError(
                f"{option} {text}: write NAME=VALUE or NAME=TYPE[SIZES]:CONTENTS, as x=float[256]:random"
            )
        if name in found:
            raise ArgumentError(f"{option} {name} is given twice")
        try:
            if match := _ARRAY.fullmatch(value):
                found[name] = _array(match, numbers, generator, left)
            elif value.endswith(".npy"):
                found[name] = _from_file(Path(value), left)
            else:
                found[name] = numbers[name] = _number(value, numbers)
        except ArgumentError as error:
            raise ArgumentError(f"{option} {text}: {error}") from None
        if name not in numbers:
            left -= getattr(found[name], "array", found[name]).nbytes
    return found


def _number(value: str, numbers: Mapping[str, int | float]) -> int | float:
    try:
        found = evaluate(value, numbers)
    except ExpressionError as error:
        raise ArgumentError(str(error)) from None
    return int(found) if isinstance(found, bool) else found


def _array(match: re.Match[str], numbers: Mapping[str, int | float], generator: np.random.Generator, left: int) -> Any:
    dtype = SCALARS.get(match["type"])
    if dtype is None:
        raise ArgumentError(f"the type {match['type']!r} is not known; {', '.join(SCALARS)} are")
    shape = tuple(_number(size, numbers) for size in match["sizes"].split(","))
    sizes = [size for size in shape if isinstance(size, int) and size > 0]
    if len(sizes) < len(shape):
        raise ArgumentError("every size must be a whole number of at least 1")
    if int(np.prod(sizes, dtype=object)) * dtype.itemsize > left:
        raise ArgumentError(f"the arrays would be larger than {_MOST_BYTES >> 30} GiB together")
    contents = (match["contents"] or "zeros").strip()
    if contents == "out":
        return out(np.empty(sizes, dtype))
    if contents in ("zeros", "ones"):
        return np.full(sizes, contents == "ones", dtype)
    if contents == "arange":
        return np.arange(np.prod(sizes)).astype(dtype).reshape(sizes)
    if contents == "random":
        values = generator.standard_normal(sizes) if dtype.kind == "f" else generator.integers(0, 100, sizes)
        return values.astype(dtype)
    if contents.endswith(".npy"):
        return _of_this_kind(_from_file(Path(contents), left), contents, dtype, tuple(sizes))
    try:
        value = evaluate(contents, numbers)
        if dtype.kind == "f" or isinstance(value, int):
            return np.full(sizes, value, dtype)
    except (ExpressionError, OverflowError):
        pass
    raise ArgumentError(f"contents are {', '.join(_CONTENTS)} or a .npy file, and fit {match['type']}")


def _from_file(path: Path, left: int) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise ArgumentError(f"{path} cannot be read: {error}") from error
    if array.nbytes > left:
        raise ArgumentError(f"the arrays would be larger than {_MOST_BYTES >> 30} GiB together")
    return np.array(array, order="C")


def _of_this_kind(array: np.ndarray, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape != shape or array.dtype != dtype:
        raise ArgumentError(f"{name} holds {array.dtype}{list(array.shape)}, not {dtype}{list(shape)}")
    return array
