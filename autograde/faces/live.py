"""Try something on a GPU that may fail, hang or take the process with it, without harm to this process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from ...kernels.errors import BackendError


def attempt(work: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float) -> Any:
    """What work(*arguments) returns in a process of its own. Raises BackendError with the reason where it does not."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(theirs, work, arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        if not mine.poll(limit_s):
            raise BackendError(f"it took longer than {limit_s:g} s")
        worked, found = mine.recv()
    except EOFError:
        child.join(5)
        raise BackendError(f"its process ended (exit status {child.exitcode})") from None
    finally:
        child.terminate()
        child.join(5)
        if child.is_alive():
            child.kill()
        mine.close()
    if not worked:
        raise BackendError(found)
    return found


def _answer(to: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        found = (True, work(*arguments))
    except Exception as error:  # whatever it is, the caller is told and goes on without
        found = (False, f"{type(error).__name__}: {error}")
    to.send(found)
