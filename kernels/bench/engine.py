"""What the engine costs: wall time on this machine.

A suite is a list of rows, each the median over repetitions; the command line prints and keeps them.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import plan, sim
from ..compiler import compile_ptx
from ..launch import Module, compile_cuda, out
from ..layouts import ConvGeometry
from ..methods import ladder_source

#: One filter over a photograph of three channels, and the smallest case of a lab.
PHOTOGRAPH = ConvGeometry(N=1, C=3, H=256, W=256, K=1, R=3, S=3, pad=(1, 1))
TINY = ConvGeometry(N=1, C=1, H=5, W=5, K=1, R=3, S=3, pad=(1, 1))


@dataclass(frozen=True)
class Row:
    """One measured fact: `seconds` is a median, `spread` the lowest and the highest."""

    what: str
    seconds: float
    spread: tuple[float, float]
    repetitions: int


def measure(what: str, work: Callable[[], object], repetitions: int = 7) -> Row:
    """Wall time of `work`, once left out as warm-up."""
    work()
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return summary(what, times)


def summary(what: str, times: list[float]) -> Row:
    return Row(what, statistics.median(times), (min(times), max(times)), len(times))


def machine() -> dict[str, str]:
    """What the figures depend on."""
    model = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as facts:
            model = next((line.split(":", 1)[1].strip() for line in facts if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def suite() -> Iterator[Row]:
    """Compiling and running direct convolution, every check on, one core."""
    source = ladder_source("direct_coalesced")
    options = plan.parse(source).options()
    yield measure("CUDA C++ to PTX (NVRTC): direct_coalesced", partial(compile_ptx, source, options=options))
    # Code once compiled stays in memory, so each repetition compiles a kernel of its own: another constant in the sum.
    variants = iter([compile_ptx(source.replace("= 0.0f", f"= {i}e-30f"), options=options) for i in range(8)])
    with _empty_cache():
        yield measure("PTX to machine code, cold, and one tiny launch", lambda: _launch_once(next(variants)))
    for method in ("direct_report", "direct_coalesced", "direct"):
        module = compile_cuda(ladder_source(method), options=plan.parse(ladder_source(method)).options())
        yield measure(f"{method}: 3x256x256, one 3x3 filter", _convolution(module, PHOTOGRAPH))
    yield measure("direct: 5x5, one 3x3 filter", _convolution(module, TINY))


@contextmanager
def _empty_cache() -> Iterator[None]:
    """An object cache of this suite's own."""
    kept = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if kept is not None:
                os.environ["XDG_CACHE_HOME"] = kept


def _launch_once(ptx: str) -> None:
    program = sim.load(ptx)
    (entry,) = program.entries
    x, w, y = (np.ones(n, np.float32).view(np.uint8) for n in (25, 9, 25))
    sizes = (TINY.N, TINY.C, TINY.H, TINY.W, TINY.K, TINY.R, TINY.S, TINY.P, TINY.Q, 1, 1)
    arrays = [sim.Buffer("x", x), sim.Buffer("w", w), sim.Buffer("y", y, initialised=False)]
    faults, _ = sim.run(program, entry, (1, 1, 1), (16, 16, 1), [*arrays, *(np.int32(s).tobytes() for s in sizes)])
    if faults:
        raise AssertionError(str(faults[0]))


def _convolution(module: Module, geometry: ConvGeometry) -> Callable[[], None]:
    """One convolution on data made beforehand."""
    rng = np.random.default_rng(0)
    text = plan.parse(module.source)
    arrays = {
        "x": rng.standard_normal(geometry.x_shape, np.float32),
        "w": rng.standard_normal(geometry.w_shape, np.float32),
        "y": out(np.empty(geometry.y_shape, np.float32)),
    }

    def run() -> None:
        for _, result in plan.run(module, text, geometry.symbols(), arrays):
            if result.faults:
                raise AssertionError(str(result.faults[0]))

    return run
