"""What this machine can do, found out by doing it, and what to install for more."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ... import __version__
from ...kernels import compile_cuda, launch, out
from ...kernels.errors import ConvladderError
from ..judge import cgroup, escape, sandbox

_SOURCE = """
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""


@dataclass(frozen=True)
class Finding:
    """One ability of the machine.

    ok      whether it is there
    needed  without it convladder is of no use here; the others only give more
    says    what was found
    advice  what to do to have it, where it is missing
    """

    name: str
    ok: bool
    needed: bool
    says: str
    advice: str = ""


def examine() -> list[Finding]:
    """Try every part. Never raises: what goes wrong is the finding."""
    return [_python(), _compiler(), _engine(), _notebooks(), _gpu(), _cudnn(), _sandbox(), _escape(), _groups()]


def _python() -> Finding:
    system = f"{platform.system()} {platform.machine()}"
    says = f"Python {platform.python_version()}, convladder {__version__}, {system}"
    return Finding("Python", sys.version_info >= (3, 11), True, says, "Install Python 3.11 or newer.")


def _compiler() -> Finding:
    def compiled() -> str:
        started = time.perf_counter()
        compile_cuda(_SOURCE)
        return f"compiles CUDA C++ ({_version('nvidia-cuda-nvrtc')}, {_since(started)})"

    return _tried("CUDA compiler", True, compiled, "pip install nvidia-cuda-nvrtc cuda-bindings")


def _engine() -> Finding:
    def ran() -> str:
        started = time.perf_counter()
        _saxpy("sim")
        return f"runs, checks and counts kernels without a GPU (llvmlite {_version('llvmlite')}, {_since(started)})"

    return _tried("engine", True, ran, "pip install llvmlite")


def _notebooks() -> Finding:
    def installed() -> str:
        return f"JupyterLab {_version('jupyterlab')}, nbgrader {_version('nbgrader')}"

    return _tried("notebooks", False, installed, "pip install jupyterlab nbgrader==0.9.6")


def _gpu() -> Finding:
    def ran() -> str:
        from ...kernels import gpu

        facts = gpu.device_facts()
        _saxpy("gpu")
        return f"{facts['device']}, compute capability {facts['compute_capability']}, CuPy {facts['cupy']}"

    advice = "With an NVIDIA GPU and its driver: pip install 'convladder[cuda13]' (or [cuda12])."
    return _tried("GPU", False, ran, advice)


def _cudnn() -> Finding:
    def found() -> str:
        import cudnn  # type: ignore[import-not-found,unused-ignore]

        return f"cuDNN {cudnn.backend_version()}, frontend {_version('nvidia-cudnn-frontend')}"

    return _tried("cuDNN", False, found, "With an NVIDIA GPU: pip install nvidia-cudnn-frontend and a cuDNN wheel.")


def _sandbox() -> Finding:
    def started() -> str:
        there, reason = sandbox.available()
        if not there:
            raise ConvladderError(reason)
        begun = time.perf_counter()
        request = {"op": "python", "source": "def f():\n    return 1", "function": "f", "calls": [{}], "seconds": 5.0}
        with sandbox.open_worker("bwrap") as worker:
            worker.request("python", request, reply_bytes=0)
        return f"bubblewrap isolates students' work (a worker starts and answers in {_since(begun)})"

    advice = (
        "Only grading other people's work needs it. Where namespaces are forbidden, grade in a container that allows "
        "them (README, Without user namespaces)."
    )
    return _tried("sandbox", False, started, advice)


def _escape() -> Finding:
    def tried() -> str:
        if not sandbox.available()[0]:
            raise ConvladderError("not tried: there is no sandbox")
        if ways := escape.open_ways():
            raise ConvladderError(f"a submission can {', '.join(ways)}")
        return f"none of {len(escape.attempts())} ways out of the sandbox is open"

    advice = "Do not grade other people's work here before this is closed: report it with `convladder doctor --json`."
    return _tried("escape", False, tried, advice)


def _groups() -> Finding:
    found = cgroup.hierarchy()
    if found is None:
        says = "none: limits hold for each process of a submission, not for all of them together"
        return Finding("control groups", False, False, says, f"For one limit of both, {cgroup.advice()}")
    says = f"version {found.version}: memory and processes of a submission are limited as a whole"
    return Finding("control groups", True, False, says)


def _tried(name: str, needed: bool, attempt: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(name, True, needed, attempt())
    except ImportError as error:
        return Finding(name, False, needed, f"not installed ({error.name or error})", advice)
    except Exception as error:  # a broken installation fails in any way; all of them are findings
        return Finding(name, False, needed, str(error) or type(error).__name__, advice)


def _saxpy(on: str) -> None:
    x, y = np.arange(100, dtype=np.float32), np.empty(100, np.float32)
    kernel = compile_cuda(_SOURCE, on=on)["saxpy"]  # type: ignore[arg-type]
    result = launch(kernel, 4, 32, [x, out(y), 2.0, 100])
    if result.faults or not np.array_equal(y, 2 * x):
        raise ConvladderError(f"a small kernel gave a wrong result: {result.faults or y[:4]}")


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _since(started: float) -> str:
    return f"{time.perf_counter() - started:.2f} s"
