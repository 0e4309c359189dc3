"""Which kernels some work launches, a library's too: grid, block, registers and shared memory, from CUPTI's records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import BackendError
from .gpu import cupy_module

_BUFFER_BYTES = 1 << 20
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

#: CUPTI takes one subscriber a process.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class KernelLaunch:
    """One launch: registers a thread, shared bytes a block."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared_bytes: int
    dynamic_shared_bytes: int


def launches(work: Callable[[], object]) -> list[KernelLaunch]:
    """Run some work and wait for it: the kernels that it launched, in order.

    Raises BackendError without a GPU, or where CUPTI for Python is not installed.
    """
    cupy = cupy_module()
    cupti = _cupti()
    records: list[KernelLaunch] = []

    def completed(activities: list[Any]) -> None:
        records.extend(_launch(a) for a in activities)

    with _LOCK:
        cupy.cuda.Device().synchronize()
        kinds = cupti.ActivityKind
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), completed)
        cupti.activity_enable(kinds.CONCURRENT_KERNEL)
        try:
            work()
            cupy.cuda.Device().synchronize()
            cupti.activity_flush_all(_FORCED)
        finally:
            cupti.activity_disable(kinds.CONCURRENT_KERNEL)
    return records


def _launch(a: Any) -> KernelLaunch:
    return KernelLaunch(
        a.name, (a.grid_x, a.grid_y, a.grid_z), (a.block_x, a.block_y, a.block_z),
        a.registers_per_thread, a.static_shared_memory, a.dynamic_shared_memory,
    )  # fmt: skip


def _cupti() -> Any:
    try:
        from cupti import cupti
    except ImportError as error:
        raise BackendError(
            f"what a library launches is read through CUPTI, which cannot be loaded ({error}): "
            "`pip install cupti-python pyelftools`, for CUDA 13"
        ) from None
    return cupti
