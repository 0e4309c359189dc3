"""What this machine can do, found out by doing it, and what to install for more."""

from __future__ import annotations

import importlib
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


LABS, GPU, GRADING = "labs", "gpu", "grading"

#: What somebody may want to do here, and how it is called.
USES = {
    LABS: "To do the labs",
    GPU: "With an NVIDIA GPU, to time kernels too (no lab needs one)",
    GRADING: "To grade other people's work (instructors)",
}


@dataclass(frozen=True)
class Finding:
    """One ability of the machine.

    use     what it is there for, one of USES
    ok      whether it is there
    needed  without it convladder is of no use here; the others only give more
    says    what was found
    advice  what to do to have it, where it is missing
    """

    use: str
    name: str
    ok: bool
    needed: bool
    says: str
    advice: str = ""


def examine() -> list[Finding]:
    """Try every part. Never raises: what goes wrong is the finding."""
    return [_python(), _compiler(), _engine(), _notebooks(), _gpu(), _cudnn(), _sandbox(), _escape(), _groups()]


def _python() -> Finding:
    says = f"{platform.python_version()}, on {platform.system()} {platform.machine()}, convladder {__version__}"
    return Finding(LABS, "Python", sys.version_info >= (3, 11), True, says, "install Python 3.11 or newer")


def _compiler() -> Finding:
    def compiled() -> str:
        started = time.perf_counter()
        compile_cuda(_SOURCE)
        return f"compiles CUDA C++, a small kernel in {_since(started)} (NVRTC {_version('nvidia-cuda-nvrtc')})"

    return _tried(LABS, "compiler", True, compiled, "pip install nvidia-cuda-nvrtc cuda-bindings")


def _engine() -> Finding:
    def ran() -> str:
        started = time.perf_counter()
        _saxpy("sim")
        return (
            f"runs and checks kernels without a GPU, a small one in {_since(started)} (llvmlite {_version('llvmlite')})"
        )

    return _tried(LABS, "engine", True, ran, "pip install llvmlite")


def _notebooks() -> Finding:
    def installed() -> str:
        return f"JupyterLab {_version('jupyterlab')}, nbgrader {_version('nbgrader')}"

    return _tried(LABS, "notebooks", False, installed, "pip install jupyterlab nbgrader==0.9.6")


def _gpu() -> Finding:
    def ran() -> str:
        importlib.import_module("cupy")  # what is missing is told in one word here
        from ...kernels import gpu

        facts = gpu.device_facts()
        _saxpy("gpu")
        return f"{facts['device']}, compute capability {facts['compute_capability']}, CuPy {facts['cupy']}"

    advice = (
        "where there is an NVIDIA GPU, `nvidia-smi` shows the CUDA version of its driver: for 13 pip install "
        "'cupy-cuda13x[ctk]', for 12 pip install 'cupy-cuda12x[ctk]'. Without one there is nothing to do"
    )
    return _tried(GPU, "GPU", False, ran, advice)


def _cudnn() -> Finding:
    def found() -> str:
        import cudnn  # type: ignore[import-not-found,unused-ignore]

        return f"{cudnn.backend_version()}, frontend {_version('nvidia-cudnn-frontend')}"

    advice = "beside CuPy: pip install 'nvidia-cudnn-frontend<1.29' nvidia-cudnn-cu13 (or nvidia-cudnn-cu12)"
    return _tried(GPU, "cuDNN", False, found, advice)


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
        "nobody else's work is graded without it. Where namespaces are forbidden, grade in a container that allows "
        'them ("How grading is made safe" in the documentation)'
    )
    return _tried(GRADING, "sandbox", False, started, advice)


def _escape() -> Finding:
    def tried() -> str:
        if not sandbox.available()[0]:
            raise ConvladderError("not tried: there is no sandbox")
        if ways := escape.open_ways():
            raise ConvladderError(f"a submission can {', '.join(ways)}")
        return f"none of {len(escape.attempts())} ways out of the sandbox is open"

    advice = "do not grade other people's work here before this is closed: report it with `convladder doctor --json`"
    return _tried(GRADING, "escape", False, tried, advice)


def _groups() -> Finding:
    found = cgroup.hierarchy()
    if found is None:
        says = "none: limits hold for each process of a submission, not for all of them together"
        return Finding(GRADING, "control groups", False, False, says, f"for one limit of both, {cgroup.advice()}")
    says = f"version {found.version}: memory and processes of a submission are limited as a whole"
    return Finding(GRADING, "control groups", True, False, says)


def _tried(use: str, name: str, needed: bool, attempt: Callable[[], str], advice: str) -> Finding:
    try:
        return Finding(use, name, True, needed, attempt())
    except ImportError as error:
        return Finding(use, name, False, needed, f"not installed ({error.name or error})", advice)
    except Exception as error:  # a broken installation fails in any way; all of them are findings
        return Finding(use, name, False, needed, str(error) or type(error).__name__, advice)


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
