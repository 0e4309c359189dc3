"""Which kernels some work launches, a library's too: grid, block, registers and shared memory, from CUPTI's records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .errors import BackendError
from .gpu import cupy_module

_BUFFER_BYTES = 1 << 20
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

#: CUPTI takes one subscriber a process.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class KernelLaunch:
    """One launch: registers a thread, shared bytes a block, microseconds that it ran (no part of what it is)."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    us: float = field(default=0.0, compare=False)


def launches(work: Callable[[], object]) -> list[KernelLaunch]:
    """Run some work and wait for it: the kernels that it launched, in order.

    Raises BackendError without a GPU, or where CUPTI for Python is not installed.
    """
    cupy = cupy_module()
    cupti = _cupti()
    with _LOCK:
        cupy.cuda.Device().synchronize()
        cupti.activity_flush_all(_FORCED)
        _records.clear()
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
        try:
            work()
            cupy.cuda.Device().synchronize()
            cupti.activity_flush_all(_FORCED)
        finally:
            cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
        return list(_records)


_records: list[KernelLaunch] = []


# CUPTI calls these two for as long as the process lives, from threads of its own.
def _buffer() -> tuple[int, int]:
    return _BUFFER_BYTES, 0


def _completed(activities: list[Any]) -> None:
    """Keep what the records say: their memory is CUPTI's again afterwards."""
    _records.extend(_launch(a) for a in activities)


def _launch(a: Any) -> KernelLaunch:
    return KernelLaunch(
        a.name, (a.grid_x, a.grid_y, a.grid_z), (a.block_x, a.block_y, a.block_z),
        a.registers_per_thread, a.static_shared_memory, a.dynamic_shared_memory, (a.end - a.start) * 1e-3,
    )  # fmt: skip


@cache
def _cupti() -> Any:
    """CUPTI, told where its records go."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise BackendError(
            f"what a library launches is read through CUPTI, which cannot be loaded ({error}): "
            "`pip install cupti-python pyelftools`, for CUDA 13"
        ) from None
    cupti.activity_register_callbacks(_buffer, _completed)
    return cupti
