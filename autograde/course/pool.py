"""Do jobs in processes that may crash, hang or be killed without taking anything but their job with them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Generic, TypeVar

J = TypeVar("J")


@dataclass(frozen=True)
class Broken:
    """Why a job has no result.

    reason   "died", "late" or "raised"
    how      in a few words: the signal, the limit, the error
    details  all that is known, for whoever looks into it
    """

    reason: str
    how: str
    details: str = ""


def run(
    jobs: Sequence[J], work: Callable[[J], str], workers: int, limit_s: float, preload: Sequence[str] = ()
) -> Iterator[tuple[J, str | Broken]]:
    """Yield each job with `work(job)` or why there is none, in order of completion.

    work     a module's function, called in one of `workers` processes, which do one job at a time
    limit_s  wall-clock of one job; its process is killed then
    preload  modules that every process has loaded from its start
    Closing the iterator kills what still runs.
    """
    # Forked from a server that has everything loaded: a process more costs milliseconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*preload, __name__])
    waiting = deque(jobs)
    busy: list[_Process[J]] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < max(1, workers):
                busy.append(_Process(context, work))
                busy[-1].give(waiting.popleft(), limit_s)
            ready = connection.wait([p.pipe for p in busy], timeout=0.2)
            for process in tuple(busy):
                if process.pipe in ready:
                    job, result = process.take()
                elif time.monotonic() > process.deadline:
                    job, result = process.job, Broken("late", f"{limit_s:g} s")
                else:
                    continue
                if waiting and process.lives(result):
                    process.give(waiting.popleft(), limit_s)
                else:
                    busy.remove(process)
                    process.kill()
                yield job, result
    finally:
        for process in busy:
            process.kill()


class _Process(Generic[J]):
    """One process, its pipe and the job that it is at."""

    job: J
    deadline: float

    def __init__(self, context: Any, work: Callable[[J], str]):
        self.pipe, inside = context.Pipe()
        self._process = context.Process(target=_serve, args=(inside, work), daemon=True)
        self._process.start()
        inside.close()

    def give(self, job: J, limit_s: float) -> None:
        self.job = job
        self.deadline = time.monotonic() + limit_s
        with suppress(OSError):  # a process that is gone already shows as one that died at this job
            self.pipe.send(job)

    def take(self) -> tuple[J, str | Broken]:
        try:
            answer = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError, ValueError):
            self._process.join(5)
            return self.job, Broken("died", _ending(self._process.exitcode))
        if "error" in answer:
            return self.job, Broken("raised", answer["error"], answer["details"])
        return self.job, answer["result"]

    @staticmethod
    def lives(result: str | Broken) -> bool:
        return not isinstance(result, Broken) or result.reason == "raised"

    def kill(self) -> None:
        """End the process and what it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _ending(code: int | None) -> str:
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"


def _end_with_parent() -> None:
    """End this session when the parent is gone: nobody is left to stop a job that takes too long."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def _serve(pipe: connection.Connection, work: Callable[[Any], str]) -> None:
    # A session of its own: Ctrl-C reaches the parent alone, which then ends the whole session.
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            job = pipe.recv()
            try:
                answer = {"result": work(job)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}", "details": traceback.format_exc()}
            pipe.send_bytes(json.dumps(answer).encode())
