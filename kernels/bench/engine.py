"""What the engine costs: wall time on this machine.

A suite is a list of rows, each the median over repetitions; the command line prints and keeps them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from .. import plan, sim
from ..arguments import out
from ..compiler import compile_ptx
from ..launch import compile_cuda, launch
from ..layouts import ConvGeometry
from ..methods import conv2d, ladder_source
from ..module import Module

#: One filter over a photograph of three channels, and the smallest case of a lab.
PHOTOGRAPH = ConvGeometry(N=1, C=3, H=256, W=256, K=1, R=3, S=3, pad=(1, 1))
TINY = ConvGeometry(N=1, C=1, H=5, W=5, K=1, R=3, S=3, pad=(1, 1))


#: Products of square matrices; a layer as those of the sparse networks, and one of them (AlexNet's conv3).
PRODUCTS = {128: 10e-3, 512: 0.4}
SMALL_LAYER = ConvGeometry(N=4, C=64, H=13, W=13, K=64, R=3, S=3, pad=(1, 1))
CONV3 = ConvGeometry(N=1, C=256, H=13, W=13, K=384, R=3, S=3, pad=(1, 1))
CONV3_SPARSITY = 0.9309

#: Edges of ever larger pictures.
GROWTH = (16, 32, 64, 128, 256, 512)

#: What Numba's simulator can do in some seconds: the edge of its matrices and of its picture.
NUMBA_EDGE, NUMBA_IMAGE = 32, 48

DIVERGENCE = """
extern "C" __global__ void k(float* y, int spread) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = spread ? threadIdx.x % 32 : 5;
    float v = i;
    for (int j = 0; j < 32; j++)
        switch ((first + j) % 32) { CASES }
    y[i] = v;
}
""".replace("CASES", " ".join(f"case {n}: v = v * 1.{n:02}f + y[i]; y[i] = v; break;" for n in range(32)))


@dataclass(frozen=True)
class Row:
    """One measured fact: `seconds` is a median of wall time, `spread` the lowest and the highest.

    cpu_seconds  the median of processor time, of all cores together; it says more than wall time on a busy machine
    at_most      what the engine is held to, in seconds; None where there is no such figure
    ratio        how many times as long another simulator takes for the same work, or a kernel as its twin
    """

    what: str
    seconds: float
    spread: tuple[float, float]
    repetitions: int
    cpu_seconds: float | None = None
    at_most: float | None = None
    ratio: float | None = None


def measure(what: str, work: Callable[[], object], repetitions: int = 7, at_most: float | None = None) -> Row:
    """Wall time of `work`, once left out as warm-up."""
    work()
    times, cpu = [], []
    for _ in range(repetitions):
        started, spent = time.perf_counter(), time.process_time()
        work()
        times.append(time.perf_counter() - started)
        cpu.append(time.process_time() - spent)
    return replace(summary(what, times), cpu_seconds=statistics.median(cpu), at_most=at_most)


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
    """Compiling, starting and running kernels on all cores, every check on."""
    source = ladder_source("direct_coalesced")
    options = plan.parse(source).options()
    yield measure("CUDA C++ to PTX (NVRTC): direct_coalesced", partial(compile_ptx, source, options=options))
    yield from _starts(source, options)
    for method in ("direct_report", "direct_coalesced", "direct"):
        module = compile_cuda(ladder_source(method), options=plan.parse(ladder_source(method)).options())
        at_most = None if method == "direct_report" else 10e-3
        yield measure(f"{method}: 3x256x256, one 3x3 filter", _convolution(module, PHOTOGRAPH), at_most=at_most)
    yield measure("direct: 5x5, one 3x3 filter", _convolution(module, TINY))
    for edge, at_most in PRODUCTS.items():
        yield measure(f"gemm_shared: {edge}x{edge}x{edge}", _product(edge), 5, at_most)
    yield measure("csr_tiled: N=4, 64x13x13, 64 filters, 90% zeros", _layer(SMALL_LAYER, 0.9), 5, 50e-3)
    yield measure("csr_tiled: AlexNet's conv3, N=1, 93% zeros", _layer(CONV3, CONV3_SPARSITY), 3, 2.0)
    together = measure("a switch of 32 cases, every warp in one of them", _switch(0))
    apart = measure("the same, every lane in a case of its own", _switch(1), at_most=20 * together.seconds)
    yield together
    yield replace(apart, ratio=apart.seconds / together.seconds)
    yield from _beside_numba()


def growth() -> list[Row]:
    """What a launch costs against its threads: direct convolution of ever larger pictures."""
    source = ladder_source("direct_coalesced")
    module = compile_cuda(source, options=plan.parse(source).options())
    sizes = [ConvGeometry(N=1, C=3, H=e, W=e, K=1, R=3, S=3, pad=(1, 1)) for e in GROWTH]
    return [measure(f"{g.P * g.Q}", _convolution(module, g), 5) for g in sizes]


def draw(rows: list[Row], path: Path) -> None:
    """Draw the cost against the threads; the file's ending says in which form."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    threads = [int(row.what) for row in rows]
    axes.loglog(threads, [1e3 * row.seconds for row in rows], "o-", label="wall time")
    axes.loglog(threads, [1e3 * (row.cpu_seconds or 0) for row in rows], "s--", label="processor time, all cores")
    axes.set(xlabel="threads (direct_coalesced, 3 channels, one 3x3 filter)", ylabel="ms, all checks on")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def _starts(source: str, options: tuple[str, ...]) -> Iterator[Row]:
    """From PTX to the first result: compiled, and in a new process from the objects that another one kept."""
    # Code once compiled stays in memory, so each repetition compiles a kernel of its own: another constant in the sum.
    variants = [compile_ptx(source.replace("= 0.0f", f"= {i}e-30f"), options=options) for i in range(8)]
    with _empty_cache() as folder:
        rest = iter(variants)
        cold = "PTX to machine code, cold, and one tiny launch"
        yield measure(cold, lambda: _launch_once(next(rest)), at_most=0.3)
        text = Path(folder, "kernel.ptx")
        text.write_text(variants[0])
        code = f"from {__name__} import start_once; start_once({str(text)!r})"
        times = [float(_python("-c", code)) for _ in range(5)]
        yield replace(summary("the same in a new process, from the object cache", times), at_most=40e-3)


def start_once(path: str) -> None:
    """Print the seconds from PTX to the first result in this process, imports aside."""
    ptx = Path(path).read_text()
    started = time.perf_counter()
    _launch_once(ptx)
    print(time.perf_counter() - started)


def _python(*arguments: str, **environment: str) -> str:
    """What a Python process of its own prints."""
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


def has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _beside_numba() -> Iterator[Row]:
    """The same work in Numba's CUDA simulator, at sizes that it ends with; nothing where Numba is not installed."""
    if not has_numba():
        return
    program = f"{__package__}.numba_simulator"
    sizes = (str(NUMBA_EDGE), str(NUMBA_IMAGE))
    theirs = json.loads(_python("-m", program, *sizes, NUMBA_ENABLE_CUDASIM="1"))
    module = compile_cuda(ladder_source("direct"), options=plan.parse(ladder_source("direct")).options())
    picture = ConvGeometry(N=1, C=3, H=NUMBA_IMAGE, W=NUMBA_IMAGE, K=1, R=3, S=3, pad=(1, 1))
    for name, what, work in (
        ("gemm", f"tiled product, {NUMBA_EDGE}x{NUMBA_EDGE}x{NUMBA_EDGE}", _product(NUMBA_EDGE)),
        ("direct", f"direct: 3x{NUMBA_IMAGE}x{NUMBA_IMAGE}, one 3x3 filter", _convolution(module, picture)),
    ):
        ours = measure(what, work)
        yield replace(ours, ratio=theirs[name] / ours.seconds)
        yield summary(f"{what}, in Numba's CUDA simulator", [theirs[name]])


def _product(edge: int) -> Callable[[], None]:
    """A product of square matrices made beforehand."""
    source = ladder_source("gemm_shared")
    text = plan.parse(source)
    module = compile_cuda(source, options=text.options())
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((edge, edge), np.float32) for _ in range(2))
    arrays = {"a": a, "b": b, "c": out(np.empty((edge, edge), np.float32))}
    symbols = {"GM": edge, "GN": edge, "GK": edge, "GB": 1, "groups": 1}

    def run() -> None:
        for _, result in plan.run(module, text, symbols, arrays):
            if result.faults:
                raise AssertionError(str(result.faults[0]))

    return run


def _layer(geometry: ConvGeometry, sparsity: float) -> Callable[[], object]:
    """A sparse layer through conv2d: with the stretching of its weights."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(geometry.x_shape, np.float32)
    w = rng.standard_normal(geometry.w_shape, np.float32) * (rng.random(geometry.w_shape) >= sparsity)
    return lambda: conv2d(x, w.astype(np.float32), pad=geometry.pad, method="csr_tiled", on="sim")


def _switch(spread: int) -> Callable[[], None]:
    module = compile_cuda(DIVERGENCE)
    y = np.zeros(1 << 14, np.float32)

    def run() -> None:
        y[:] = 1
        faults = launch(module["k"], len(y) // 256, 256, [y, np.int32(spread)]).faults
        if faults:
            raise AssertionError(str(faults[0]))

    return run


@contextmanager
def _empty_cache() -> Iterator[str]:
    """An object cache of this suite's own, and its folder."""
    kept = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield folder
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
