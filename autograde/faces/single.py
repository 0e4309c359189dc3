"""Run any kernel of a CUDA file on the engine, with arguments that are described in words.

An argument is NAME=VALUE for a number, or NAME=TYPE[SIZES]:CONTENTS for an array, TYPE as in C and CONTENTS
one of random (normal, the same every time), zeros, ones, arange, out (undefined until the kernel writes it)
or a .npy file: `x=float[16,16]:random`, `y=float[n*n]:out`, `n=256`, `a=0.5`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels import compile_cuda, launch, out, plan
from ...kernels.errors import ArgumentError
from ...kernels.expression import ExpressionError, evaluate
from ...kernels.launch import Kernel
from ...kernels.result import LaunchResult
from ...kernels.signature import SCALARS

_ARRAY = re.compile(r"(?P<type>[A-Za-z_][\w ]*?)\s*\[(?P<sizes>[^\]]*)\]\s*(?::(?P<contents>.+))?")
_CONTENTS = ("random", "zeros", "ones", "arange", "out")
#: Bytes that one array may have: what a laptop can hold beside the engine's own books.
_MOST_BYTES = 2**31


@dataclass
class Run:
    """One launch: what went in and what came out."""

    source: str
    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: dict[str, Any]
    result: LaunchResult

    def to_json(self) -> dict[str, Any]:
        lines = self.source.splitlines()
        counters = self.result.counters
        return {
            "kernel": self.kernel.name,
            "grid": self.grid,
            "block": self.block,
            "faults": [
                {**asdict(f), "source": lines[f.line - 1].strip() if 0 < f.line <= len(lines) else ""}
                for f in self.result.faults
            ],
            "printed": self.result.output,
            "counters": asdict(counters) if counters else None,
            "outputs": {name: summary(a.array) for name, a in self.arguments.items() if isinstance(a, out)},
        }

    def outputs(self) -> Iterator[str]:
        """Each output in a line."""
        for name, argument in self.arguments.items():
            if isinstance(argument, out):
                s = summary(argument.array)
                shown = ", ".join("nan" if v is None else f"{v:g}" for v in s["first"])
                missing = f"; {s['nan']:,} of {argument.array.size:,} are NaN (never written?)" if s["nan"] else ""
                more = ", …" if argument.array.size > len(s["first"]) else ""
                yield f"{name}: {s['dtype']}{s['shape']} = {shown}{more}{missing}"


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


def run(
    path: Path, kernel_name: str, grid: Sequence[int], block: Sequence[int], described: Sequence[str], shared: int = 0
) -> Run:
    """Compile a CUDA file and launch one of its kernels on the engine. Raises ConvladderError of any kind."""
    try:
        source = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not a text file in UTF-8 ({error.reason})") from error
    module = compile_cuda(source, on="sim", options=plan.parse(source).options())
    kernel = module[kernel_name]
    arguments = parse_arguments(described)
    result = launch(kernel, tuple(grid), tuple(block), _ordered(kernel, arguments), shared=shared)
    return Run(source, kernel, tuple(grid), tuple(block), arguments, result)


def _ordered(kernel: Kernel, arguments: Mapping[str, Any]) -> list[Any]:
    """In the order of the declaration where the names are its own, else as given."""
    names = [p.name for p in kernel.parameters or ()]
    if sorted(names) == sorted(arguments):
        return [arguments[name] for name in names]
    unknown = sorted(set(arguments) - set(names))
    missing = [name for name in names if name not in arguments]
    if kernel.parameters is not None and all(names) and (unknown or missing):
        declared = ", ".join(map(str, kernel.parameters))
        wrong = [f"no parameter is called {', '.join(unknown)}"] if unknown else []
        wrong += [f"--arg is missing for {', '.join(missing)}"] if missing else []
        raise ArgumentError(f"{kernel.name}({declared}): {'; '.join(wrong)}")
    return list(arguments.values())


def parse_arguments(described: Sequence[str]) -> dict[str, Any]:
    """Arguments by name; a size may name numbers given before it. Raises ArgumentError."""
    found: dict[str, Any] = {}
    numbers: dict[str, int | float] = {}
    generator = np.random.default_rng(0)
    for text in described:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise ArgumentError(f"--arg {text}: write NAME=VALUE or NAME=TYPE[SIZES]:CONTENTS, as x=float[256]:random")
        if name in found:
            raise ArgumentError(f"--arg {name} is given twice")
        array = _ARRAY.fullmatch(value)
        if array:
            found[name] = _array(text, array, numbers, generator)
        else:
            found[name] = numbers[name] = _number(text, value, numbers)
    return found


def _number(text: str, value: str, numbers: Mapping[str, int | float]) -> int | float:
    try:
        return evaluate(value, numbers)
    except ExpressionError as error:
        raise ArgumentError(f"--arg {text}: {error}") from None


def _array(text: str, match: re.Match[str], numbers: Mapping[str, int | float], generator: np.random.Generator) -> Any:
    dtype = SCALARS.get(match["type"])
    if dtype is None:
        raise ArgumentError(f"--arg {text}: the type {match['type']!r} is not known; {', '.join(SCALARS)} are")
    shape = tuple(_number(text, size, numbers) for size in match["sizes"].split(","))
    sizes = [size for size in shape if isinstance(size, int) and size > 0]
    if len(sizes) < len(shape):
        raise ArgumentError(f"--arg {text}: every size must be a whole number of at least 1")
    if int(np.prod(sizes, dtype=object)) * dtype.itemsize > _MOST_BYTES:
        raise ArgumentError(f"--arg {text}: the array would be larger than {_MOST_BYTES >> 30} GiB")
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
    return _from_file(text, Path(contents), dtype, tuple(sizes))


def _from_file(text: str, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if path.suffix != ".npy":
        raise ArgumentError(f"--arg {text}: contents are {', '.join(_CONTENTS)} or a .npy file")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"--arg {text}: {path} cannot be read: {error}") from error
    if array.shape != shape or array.dtype != dtype:
        raise ArgumentError(f"--arg {text}: {path} holds {array.dtype}{list(array.shape)}, not {dtype}{list(shape)}")
    return np.ascontiguousarray(array)
