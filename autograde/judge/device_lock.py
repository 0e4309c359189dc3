"""Keeps everything else off a GPU while a kernel is timed on it.

Runs that are only checked share the device; a timing has it alone. It first waits for a pause, so that shared work
goes on side by side; if none comes, it closes the gate, through which newcomers must pass, so that a busy class
cannot keep a timing waiting forever.
The locks are the system's: they end with the process that holds them, and hold between users too.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convladder.kernels.errors import BackendError

try:
    import fcntl
except ImportError:  # Windows: there one process grades at a time
    fcntl = None  # type: ignore[assignment]

#: How long a timing waits for a pause before it closes the gate, and how often it looks.
_PATIENCE_S = 20.0
_LOOK_S = 0.05


@contextmanager
def held(device: str, *, alone: bool) -> Iterator[None]:
    """Hold a device, named by its bus address: alone, to time on it, or together with others."""
    if fcntl is None:
        yield
        return
    gate, lock = _open(device, "gate"), _open(device, "lock")
    try:
        if not (alone and _in_a_pause(lock)):
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield
    finally:
        os.close(lock)
        os.close(gate)


def _in_a_pause(lock: int) -> bool:
    """Whether the device came free by itself, and is held now."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
        else:
            return True
    return False


def _open(device: str, what: str) -> int:
    """A file to lock. It may be another user's: it is only read."""
    path = Path(tempfile.gettempdir(), f"convladder-gpu-{re.sub(r'[^A-Za-z0-9]+', '-', device)}.{what}")
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError:
            continue
    raise BackendError(
        f"{path} cannot be opened: it is the lock that keeps other work off the GPU during a timing. Let its owner "
        "remove it, or make it readable"
    )
