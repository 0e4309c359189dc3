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

    def ptx(self, source: str, options: tuple[str, ...] = ()) -> str:
        if source.lstrip().startswith((".version", "//")):
            return source
        if (source, options) not in self._ptx:
            self._ptx[source, options] = compile_ptx(source, options=options)
        return self._ptx[source, options]

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

    def opcode(self, instruction: str, result: str, kinds: tuple[str, ...], columns: list[np.ndarray]) -> np.ndarray:
        """instruction(columns[0][i], columns[1][i], …) for each i, from both executors and both forms of code.

        The instruction reads %s0, %s1, … and writes %out; it runs on lanes that differ and on one value for a warp.
        """
        count = len(columns[0])
        args = {"out": np.zeros(count, _dtype(result))}
        args |= {f"in{n}": np.ascontiguousarray(c) for n, c in enumerate(columns)}
        varying = self.run(opcode_kernel(instruction, result, kinds, "tid"), 1, count, args)
        few = {n: a[:12] for n, a in args.items()}
        uniform = self.run(opcode_kernel(instruction, result, kinds, "ctaid"), min(count, 12), 1, few)
        assert varying.faults == uniform.faults == []
        assert varying.arrays["out"][:12].tobytes() == uniform.arrays["out"].tobytes()
        return varying.arrays["out"]

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


def opcode_kernel(instruction: str, result: str, kinds: tuple[str, ...], index: str) -> str:
    """A kernel that computes out[i] = instruction(in0[i], in1[i], …); index "tid" or "ctaid"."""
    loads = []
    for n, kind in enumerate(kinds):
        b = max(_bits(kind), 8)
        loads.append(
            f"ld.param.u64 %rd1, [p{n + 1}]; mad.wide.u32 %rd2, %i, {b // 8}, %rd1;"
            f" ld.global.{'u8' if b == 8 else f'b{b}'} %s{n}, [%rd2];"
        )
    declared = " ".join(f".reg .b{max(_bits(k), 16)} %s{n};" for n, k in enumerate(kinds))
    width = max(_bits(result), 8)
    params = ", ".join(f".param .u64 p{n}" for n in range(len(kinds) + 1))
    return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k({params}) {{
  .reg .b64 %rd<5>; .reg .b32 %i; .reg .pred %p<4>; .reg .b{max(width, 16)} %out; {declared}
  mov.u32 %i, %{index}.x;
  {" ".join(loads)}
  {instruction}
  ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd2, %i, {width // 8}, %rd1;
  st.global.b{width} [%rd2], %out;
  ret;
}}
"""


def _bits(kind: str) -> int:
    return 1 if kind == "pred" else int(kind[1:])


def _dtype(kind: str) -> np.dtype:
    b = max(_bits(kind), 8)
    return np.dtype({"f": f"f{b // 8}", "s": f"i{b // 8}"}.get(kind[0], f"u{b // 8}"))


def _triple(size) -> tuple[int, int, int]:
    sizes = size if isinstance(size, tuple) else (size,)
    return (*sizes, 1, 1, 1)[:3]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine()
