"""The engine as a back end: PTX of a module, run by kernels.sim on arrays of the host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import sim
from .arguments import Argument
from .result import LaunchResult, Triple

if TYPE_CHECKING:
    from .sim.observer import Observer


class EngineImage:
    def __init__(self, ptx: str):
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
            sim.Buffer(a.name, host.reshape(-1).view(np.uint8), not a.undefined, a.defined)
            if host is not None
            else np.asarray(a.scalar).tobytes()
            for a, host in zip(args, staged, strict=True)
        ]
        printed: list[str] = []
        started = time.perf_counter()
        faults, counters = sim.run(
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
