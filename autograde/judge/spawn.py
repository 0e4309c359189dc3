"""Worker processes, each forked by one that has loaded all that it needs: starting one takes milliseconds.

A zygote (see zygote.py) is started by a command, and lives until it is closed, its grader ends, or it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

#: How long the system may take to bury a worker.
_BURIAL_S = 5.0
_MOST_STATUS = 16


class Zygote:
    """A process that forks workers of one role. Ends with this object, at the latest with this process."""

    def __init__(self, command: Sequence[str], folder: str, environment: Mapping[str, str]):
        """Start it, without waiting until it is ready. Raises OSError where the command cannot be started."""
        self._requests, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        with inside:
            self._process = subprocess.Popen(
                command, stdin=inside.fileno(), stdout=subprocess.DEVNULL, stderr=self._said, cwd=folder,
                env=environment, start_new_session=True,
            )  # fmt: skip
        self.close = weakref.finalize(self, _end, os.getpid(), self._process, self._requests, self._said)

    @property
    def pid(self) -> int:
        return self._process.pid

    def lives(self) -> bool:
        return self.close.alive and self._process.poll() is None

    def status(self, seconds: float) -> int | None:
        """Its exit status, negative for a signal, once it has ended; None where it goes on for so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode

    def said(self) -> str:
        """The end of what it wrote to standard error: why it cannot start."""
        if not self.close.alive:
            return ""
        self.status(1)
        self._said.seek(0)
        return " ".join(self._said.read().decode(errors="replace").split())[-500:]

    def fork(self, limits: Mapping[str, int], groups: Sequence[Path], folder: str = "", own_tmp: int = 0) -> Process:
        """Start a worker; the arguments are those of zygote.py, `groups` the lists of its control groups."""
        return Process(self, {"limits": limits, "folder": folder, "own_tmp": own_tmp, "alone": False}, groups)

    def become(self, limits: Mapping[str, int], groups: Sequence[Path]) -> Process:
        """Make a worker of the zygote itself: it forks none, and ends with this one."""
        return Process(self, {"limits": limits, "folder": "", "own_tmp": 0, "alone": True}, groups)


def _end(starter: int, process: subprocess.Popen[bytes], requests: socket.socket, said: IO[bytes]) -> None:
    requests.close()
    said.close()
    if os.getpid() != starter:  # in a process that was forked from the one that started it
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Process:
    """A worker's process: the ends of its pipes (descriptors, not blocking), and how it ended."""

    def __init__(self, zygote: Zygote, asked: Mapping[str, object], groups: Sequence[Path]):
        self.zygote = zygote
        self._alone = bool(asked["alone"])
        with contextlib.ExitStack() as given:

            def hand_over(descriptor: int) -> int:
                given.callback(os.close, descriptor)
                return descriptor

            theirs_in, self.stdin = os.pipe()
            self.stdout, theirs_out = os.pipe()
            self.stderr, theirs_err = os.pipe()
            self._control, control = socket.socketpair()
            theirs = [hand_over(d) for d in (theirs_in, theirs_out, theirs_err, control.detach())]
            theirs += [hand_over(os.open(group, os.O_WRONLY)) for group in groups]
            for descriptor in self.pipes():
                os.set_blocking(descriptor, False)
            with contextlib.suppress(OSError):  # a zygote that has ended: so have the pipes' other ends
                socket.send_fds(zygote._requests, [json.dumps(asked).encode()], theirs)

    def pipes(self) -> tuple[int, int, int]:
        return self.stdin, self.stdout, self.stderr

    def status(self) -> int | None:
        """Its exit status, negative for a signal, once it has ended; None where it goes on."""
        if self._alone:
            return self.zygote.status(_BURIAL_S)
        self._control.settimeout(_BURIAL_S)
        try:
            said = self._control.recv(_MOST_STATUS)
        except TimeoutError:
            return None
        except OSError:
            said = b""
        if not said:  # its keeper has been killed too
            self.zygote.close()
        return int(said) if said else -signal.SIGKILL

    def end(self) -> None:
        """End it and all that it started; nothing is left when this returns."""
        if self._alone or not self._ended():
            self.zygote.close()
        self._control.close()
        for descriptor in self.pipes():
            os.close(descriptor)

    def _ended(self) -> bool:
        """Have its keeper end it. Returns whether it did."""
        self._control.settimeout(_BURIAL_S)
        try:
            self._control.shutdown(socket.SHUT_WR)
            while self._control.recv(_MOST_STATUS):
                pass
        except TimeoutError:
            return False
        except OSError:  # the keeper is gone
            pass
        return True
