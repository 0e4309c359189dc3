"""CUDA C++ to PTX with NVRTC, which needs neither a GPU nor a driver.

The wheels `nvidia-cuda-nvrtc` (the compiler), `nvidia-cuda-runtime` and `nvidia-cuda-cccl` (headers) come with the
package. The GPU back end compiles with CuPy's own NVRTC instead, whose version fits the driver.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .errors import ArgumentError, BackendError, CompileError, Diagnostic

#: The name that a student's text has in the compiler's messages.
SOURCE_NAME = "kernel.cu"

#: What the engine compiles for unless told otherwise: old enough for every course GPU since 2020.
DEFAULT_ARCH = "compute_80"

_MESSAGE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning|remark)"
    r"(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)


def standard_options(arch: str) -> list[str]:
    """The options of every compilation, on either back end, so that both see the same program."""
    return [f"--gpu-architecture={arch}", "--std=c++17", "-lineinfo", *(f"-I{p}" for p in header_paths())]


@cache
def header_paths() -> tuple[str, ...]:
    """The include folders of the wheels with CUDA's headers; empty where they are not installed."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    places = ("cu13/include", "cu13/include/cccl", "cuda_runtime/include")
    found = [Path(root, place) for root in roots for place in places]
    return tuple(str(p) for p in found if p.is_dir())


def diagnostics(log: str) -> tuple[Diagnostic, ...]:
    """The messages of an NVRTC log, each with its line in the student's text.

    A message about an included file keeps line 0: its line number would point at the wrong text.
    """
    found: list[Diagnostic] = []
    hints = {""}
    for m in _MESSAGE.finditer(log):
        hint = _hint(m["text"], _quoted(log, m))
        found.append(
            Diagnostic(
                line=int(m["line"]) if m["file"].endswith(SOURCE_NAME) else 0,
                severity="error" if "error" in m["severity"] else m["severity"],
                message=m["text"].strip() + (f" ({hint})" if hint not in hints else ""),
            )
        )
        hints.add(hint)  # one mistake makes several complaints: say what to do once
    return tuple(found)


#: What to write instead of a header of the host's C or C++ library, by what it is included for.
_INSTEAD = {
    "printf is built in: remove this line": "stdio.h cstdio iostream",
    "math functions are built in: remove this line": "math.h cmath",
    "assert is built in: remove this line": "assert.h cassert",
    "use <cuda/std/cstdint> or int, unsigned, long long": "stdint.h cstdint inttypes.h stddef.h cstddef",
    "use <cuda/std/climits>, <cuda/std/limits> or <cuda/std/cfloat>": "limits.h climits float.h cfloat limits",
    "use <cuda/std/type_traits>": "type_traits",
    "a kernel has no host library: remove this line": "stdlib.h cstdlib string.h cstring time.h ctime vector string "
    "algorithm iomanip fstream random chrono memory thread",
}
_HOST_HEADERS = {header: advice for advice, headers in _INSTEAD.items() for header in headers.split()}


#: What to do about a complaint that a text for nvcc meets here, by words of it.
_HOST_PARTS = {
    "considered a host function": "write __global__ before a kernel, __device__ before a function that one calls; "
    "leave the host's functions out, main too: arrays are made and copied for you, and a launch is a line "
    "//@ launch NAME grid=(…) block=(…)",
    "considered a host variable": "write __device__ or __constant__ before it, or constexpr for a constant",
}
#: A launch as CUDA C++ has it: its kernel.
_CHEVRONS = re.compile(r"(\w+)\s*(?:<\w+>\s*)?<<<")


def _hint(message: str, quoted: str) -> str:
    """What to do about an error that students meet, or "". quoted: the line of the text that it is about."""
    if launched := _CHEVRONS.search(quoted):
        return f"in place of <<<…>>> write a line //@ launch {launched[1]} grid=(…) block=(…)"
    if missing := re.search(r'cannot open source file "([^"]+)"', message):
        return _HOST_HEADERS.get(missing[1], "")
    return next((what for words, what in _HOST_PARTS.items() if words in message), "")


def _quoted(log: str, message: re.Match[str]) -> str:
    """The line of the source that the compiler quotes below a message."""
    return log[message.end() + 1 :].partition("\n")[0]


def compile_error(log: str) -> CompileError:
    """A CompileError that leads with the first error of the log."""
    found = diagnostics(log)
    errors = [d for d in found if d.severity == "error"]
    if errors:
        first = errors[0]
        where = f"line {first.line}: " if first.line else ""
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        message = f"{where}{first.message}{more}"
    else:
        message = log.strip() or "the compiler rejected the source without a message"
    return CompileError(message, log, found)


def compile_ptx(source: str, arch: str = DEFAULT_ARCH, options: Sequence[str] = ()) -> str:
    """Compile CUDA C++ to PTX with line information.

    arch     "compute_80" (virtual) or "sm_80" (the same PTX)
    options  further NVRTC options, such as "-DTILE=16"
    Raises CompileError with the compiler's log, BackendError where NVRTC cannot be had.
    """
    with _compiled(source, [*standard_options(arch.replace("sm_", "compute_")), *options]) as (nvrtc, program, _):
        return _text(nvrtc, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)


@dataclass(frozen=True)
class Assembled:
    """What the compiler makes for one architecture: PTX, machine code (an ELF file), and the assembler's report."""

    ptx: str
    cubin: bytes
    log: str


def assemble(source: str, arch: str, options: Sequence[str] = ()) -> Assembled:
    """Compile CUDA C++ down to the machine code of an architecture, without a GPU.

    arch     "sm_75", "sm_80", …: one of `architectures()`
    options  further NVRTC options
    Raises CompileError with the compiler's log, ArgumentError for another architecture, BackendError without NVRTC.
    """
    if arch not in architectures():
        raise ArgumentError(f"arch = {arch!r}: the compiler knows {', '.join(architectures())}")
    # Without line information, which would be most of the file. What NVRTC keeps from another time has no report.
    flags = [f for f in standard_options(arch) if f != "-lineinfo"] + ["--no-cache", "--ptxas-options=-v", *options]
    with _compiled(source, flags) as (nvrtc, program, log):
        ptx = _text(nvrtc, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        return Assembled(ptx, _bytes(nvrtc, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)


@cache
def compiler_version() -> str:
    """The version of NVRTC: "13.0". Raises BackendError without it."""
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    _require(nvrtc, status)
    return f"{major}.{minor}"


@cache
def architectures() -> tuple[str, ...]:
    """The architectures that the compiler makes machine code for. Raises BackendError without NVRTC."""
    nvrtc = _nvrtc()
    status, numbers = nvrtc.nvrtcGetSupportedArchs()
    _require(nvrtc, status)
    return tuple(f"sm_{n}" for n in numbers)


def _nvrtc():
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # a missing wheel, a missing library or a broken one: all mean the same here
        raise BackendError(
            "the CUDA compiler NVRTC cannot be loaded. Install it with `pip install nvidia-cuda-nvrtc cuda-bindings` "
            "(Linux and Windows; on macOS use a Linux container). The cause: " + str(error)
        ) from None
    return nvrtc


@contextmanager
def _compiled(source: str, flags: Sequence[str]) -> Iterator[tuple[Any, Any, str]]:
    """NVRTC, the program that it compiled, and its log."""
    nvrtc = _nvrtc()
    if "\0" in source:
        raise CompileError("the source contains a NUL character: remove it")
    try:
        text = source.encode()
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        raise CompileError(f"line {line} contains half of a character, which is no text: remove it") from None
    status, program = nvrtc.nvrtcCreateProgram(text, SOURCE_NAME.encode(), 0, [], [])
    _require(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _text(nvrtc, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            raise compile_error(log)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            raise CompileError(f"the compiler does not take these options: {log.strip()}", log)
        _require(nvrtc, status)
        yield nvrtc, program, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _text(nvrtc, size_of, get, program) -> str:
    return _bytes(nvrtc, size_of, get, program).decode(errors="replace").rstrip("\0 \n")


def _bytes(nvrtc, size_of, get, program) -> bytes:
    status, size = size_of(program)
    _require(nvrtc, status)
    # NVRTC writes into this object. Two bytes at least: Python shares one object among all bytes of length one.
    buffer = bytes(size + 2)
    (status,) = get(program, buffer)
    _require(nvrtc, status)
    return buffer[:size]


def _require(nvrtc, status) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BackendError(
            f"NVRTC failed with {status.name}, which is no fault of the source. Run it again; if that does not help: "
            "`pip install --force-reinstall nvidia-cuda-nvrtc`"
        )
