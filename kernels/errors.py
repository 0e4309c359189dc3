"""The typed errors of everything that compiles or runs a kernel.

Every message says what is wrong and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Fault


class ConvladderError(Exception):
    """Base of every error that convladder raises on purpose."""


class BackendError(ConvladderError):
    """A back end is not there: no GPU, no CuPy, no compiler. The message says what to install."""


class DeviceMemoryError(BackendError):
    """The GPU has too little free memory for what was asked. The message says how much was."""


class LibraryError(ConvladderError):
    """A library is there, but has no way to do what was asked of it."""


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler, at a line of the source that was given (1 is the first)."""

    line: int
    severity: str  # "error", "warning" or "remark"
    message: str


class CompileError(ConvladderError):
    """The CUDA compiler rejected the source.

    `log` is the compiler's own text, `diagnostics` the same as a list of `Diagnostic`.
    """

    def __init__(self, message: str, log: str = "", diagnostics: tuple[Diagnostic, ...] = ()):
        super().__init__(message)
        self.log = log
        self.diagnostics = diagnostics


class KernelNameError(ConvladderError, KeyError):
    """The module has no kernel or symbol of that name; `line` is that of the `//@` line that asked for it, if any."""

    line: int | None = None

    def __str__(self) -> str:  # KeyError would quote the message
        return str(self.args[0])


class LaunchError(ConvladderError, ValueError):
    """The grid, the block or the amount of shared memory cannot be launched."""


class ArgumentError(ConvladderError, TypeError):
    """The arguments do not match the kernel's parameters in number, kind, dtype, shape or order.

    `line` is that of the `//@` line that passes them, if one does.
    """

    line: int | None = None


class GeometryError(ConvladderError, ValueError):
    """The shapes, stride, padding, dilation or groups of a convolution do not fit together,
    or the chosen method does not support them."""


class PlanError(ConvladderError, ValueError):
    """A `//@` line of a kernel file cannot be used. `line` is its line in the source (1-based)."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class FaultError(ConvladderError):
    """A kernel ran and misbehaved; `fault` says how and where."""

    def __init__(self, fault: Fault):
        super().__init__(str(fault))
        self.fault = fault


class UnsupportedPTX(FaultError):
    """The engine does not execute this instruction; `fault.kind` is "unsupported", `fault.line` its line."""
