"""A harness that runs kernels on both executors of the engine and holds them to the same answer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from convladder.kernels import sim
from convladder.kernels.compiler import compile_ptx
from convladder.kernels.result import Counters, Fault


@dataclass
class Outcome:
    """What one run left behind."""

    arrays: dict[str, np.ndarray]
    faults: list[Fault]
    counters: Counters
    symbols: dict[str, bytes] = field(default_factory=dict)

    def fault(self) -> Fault:
        """The one fault that is expected."""
        assert len(self.faults) == 1, [str(f) for f in self.faults]
        return self.faults[0]


class Engine:
    """Runs CUDA or PTX text with named arguments: arrays, scalars, and `undefined` for arrays without contents."""

    def __init__(self):
        self._ptx = {}

    def ptx(self, source: str) -> str:
        if source.lstrip().startswith(".version"):
            return source
        if source not in self._ptx:
            self._ptx[source] = compile_ptx(source)
        return self._ptx[source]

    def once(self, executor, source, grid, block, args, undefined=(), kernel=None, **options) -> Outcome:
        program = sim.load(self.ptx(source))
        arrays = {n: a.copy() for n, a in args.items() if isinstance(a, np.ndarray)}
        params = [
            sim.Buffer(n, arrays[n].reshape(-1).view(np.uint8), n not in undefined) if n in arrays else value.tobytes()
            for n, value in args.items()
        ]
        name = kernel or next(iter(program.entries))
        faults, counters = sim.run(program, name, _triple(grid), _triple(block), params, executor=executor, **options)
        return Outcome(arrays, faults, counters, {n: s.data.tobytes() for n, s in program.symbols.items()})

    def run(self, source, grid, block, args, undefined=(), **options) -> Outcome:
        """Run on both executors; their arrays, faults and counters must agree to the bit."""
        plain = self.once("numpy", source, grid, block, args, undefined, **options)
        compiled = self.once("llvm", source, grid, block, args, undefined, **options)
        for name in plain.arrays:
            assert plain.arrays[name].tobytes() == compiled.arrays[name].tobytes(), name
        assert plain.faults == compiled.faults
        assert plain.counters == compiled.counters
        assert plain.symbols == compiled.symbols
        return compiled


def _triple(size) -> tuple[int, int, int]:
    sizes = size if isinstance(size, tuple) else (size,)
    return (*sizes, 1, 1, 1)[:3]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine()
