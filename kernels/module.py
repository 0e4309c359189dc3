"""A compiled module and its kernels, whichever back end holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from . import signature
from .arguments import Argument
from .errors import ArgumentError, KernelNameError
from .result import LaunchResult, Triple
from .signature import Parameter

Backend = Literal["sim", "gpu"]


class Image(Protocol):
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
class Kernel:
    """One kernel of a module. `parameters` is None where the source's declaration could not be read."""

    name: str
    entry: str
    parameters: tuple[Parameter, ...] | None
    sizes: tuple[int, ...]
    module: Module = field(repr=False)


class Module:
    """Compiled CUDA source. `module["name"]` is a kernel; `kernels` lists the names."""

    def __init__(self, source: str, on: Backend, ptx: str, image: Image):
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


@dataclass(frozen=True)
class Ready:
    """A launch whose sizes and arguments were found to fit: what a back end runs."""

    kernel: Kernel
    grid: Triple
    block: Triple
    args: list[Argument]
    shared: int


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
