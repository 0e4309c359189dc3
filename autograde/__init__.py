"""Everything that judges a kernel: the labs' notebooks, their checks, and the grading of a class.

In a lab notebook: `from convladder.autograde import open_lab, check, measure, time_kernel`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .faces.magic import check, measure, open_lab, time_kernel

__all__ = ["check", "measure", "open_lab", "time_kernel"]


def __getattr__(name: str) -> Any:
    # Loaded at first use: the worker that runs student text imports this package too, and must start fast.
    if name in __all__:
        return getattr(import_module(".faces.magic", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
