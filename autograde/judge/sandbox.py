"""Starts the processes in which student text runs, and talks to them.

Two policies. `bwrap`: bubblewrap gives the worker a read-only system, a private /tmp, no network, no other
process, an empty environment, and of all our files only those that it needs: no course tree, no hidden
cases, no ladder, no gradebook. `none`: a plain child process, for a student's own machine and for text that
the grader wrote himself. Under both, text is compiled and run in the child only, requests have a wall-clock
limit, replies and output a size limit, and a worker that dies is that task's failure and nobody else's.

Never as root: to the kernel, user 0 inside a user namespace is still user 0 outside of it, whom limits do not
bind. Where the grader is root, the sandbox is started as an unprivileged user, out of a private mount
namespace that shows this user the interpreter and the packages, which may lie in root's closed home.

Starting Python with all that a worker needs takes longer than most judging. So workers are forked by processes that
have loaded it, the zygotes, of which a thread has one for each kind of worker. Under bwrap a zygote lives in a sandbox,
and each worker in namespaces of its own within that (namespaces.py). Where the system makes none there, and where a GPU
is shown, each worker has a sandbox of its own.

A worker dies with the *thread* that first needed its zygote (that is how bubblewrap's --die-with-parent works in
Linux), so open workers in a thread that lives as long as they are needed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from convladder.kernels.errors import ConvladderError

from . import bubblewrap, cgroup
from .bubblewrap import Role
from .frames import Decoder, Frame, FrameError, encode
from .spawn import Zygote

_READ = 1 << 20
_START_SECONDS = 60.0
#: Processes that are killed at one request before the text is held to do it.
_MOST_DEATHS = 4


class SandboxError(ConvladderError):
    """The sandbox cannot be had, or a worker does not start. The message says what to install or to allow."""


class WorkerError(ConvladderError):
    """A worker did not answer a request; it has been ended, and the next request gets a fresh one.

    reason  "time"      the wall-clock limit was over
            "output"    it printed more than allowed
            "died"      the process ended: crashed, ran out of memory, was killed, or called exit
            "protocol"  what it sent is not a reply
    frames  what it had answered before that
    """

    def __init__(self, reason: str, detail: str, frames: Sequence[Frame] = (), printed: str = ""):
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.frames = list(frames)
        self.printed = printed


@dataclass(frozen=True)
class SandboxPolicy:
    """How student text is run. Sizes in bytes; a limit holds for one process of a worker, from its start to its end.

    kind     "bwrap", or "none": no isolation but a separate process
    gpu      show the NVIDIA devices to the kernel worker; its address space is unlimited then, because
             CUDA reserves more of it than any machine has memory
    seconds  wall-clock limit of one request
    processes         of the kernel worker: the compiler and CUDA start threads, and no student text does
    python_processes  of the Python worker, itself counted: `memory` bounds each, so several would have as much together
    whole_memory, whole_processes   of both workers of a submission together, compiler, CUDA and files in /tmp included,
             where the system has control groups (cgroup.hierarchy)
    """

    kind: Literal["bwrap", "none"] = "bwrap"
    gpu: bool = False
    seconds: float = 20.0
    memory: int = 4 << 30
    processes: int = 64
    python_processes: int = 1
    file_size: int = 64 << 20
    cpu_seconds: int = 600
    tmp_size: int = 256 << 20
    printed: int = 1 << 20
    whole_memory: int = 8 << 30
    whole_processes: int = 160

    def __post_init__(self) -> None:
        if self.kind not in ("bwrap", "none"):
            raise SandboxError(f'a sandbox is "bwrap" or "none", not {self.kind!r}')

    @classmethod
    def of(cls, policy: SandboxPolicy | str) -> SandboxPolicy:
        """A policy, or the name of one with its usual limits."""
        return policy if isinstance(policy, SandboxPolicy) else cls(kind=policy)  # type: ignore[arg-type]

    def limits(self, role: Role) -> dict[str, int]:
        """What the worker sets on itself before it takes a request, by the names of `resource.RLIMIT_*`."""
        found = {"CPU": self.cpu_seconds, "FSIZE": self.file_size, "NOFILE": 256}
        if not (self.gpu and role == "kernel"):
            found["AS"] = self.memory
        if self.kind == "bwrap":  # elsewhere the limit would count the user's other processes
            found["NPROC"] = self.python_processes if role == "python" else self.processes
        return found


@functools.cache
def available() -> tuple[bool, str]:
    """Whether student text can be sandboxed on this machine, and if not, why and what to do. Tried for real, once."""
    if sys.platform != "linux":
        return False, f"the sandbox is bubblewrap, which needs Linux; this is {sys.platform}"
    if shutil.which("bwrap") is None:
        return False, "bubblewrap is not installed. On Debian and Ubuntu: apt install bubblewrap"
    if os.geteuid() == 0:
        missing = [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]
        if missing:
            return False, f"{', '.join(missing)} is missing, which a grader that is root needs: apt install util-linux"
    try:
        command = bubblewrap.probe("python")
        tried = subprocess.run(command, capture_output=True, timeout=30, cwd="/", env=_outer_environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"bubblewrap does not start: {error}"
    if tried.returncode or tried.stdout.strip() != b"inside":
        return False, _start_advice(tried.stderr.decode(errors="replace"))
    return True, "bubblewrap"


def _start_advice(stderr: str) -> str:
    said = " ".join(stderr.split())[-300:] or "it says nothing"
    advice = "try it by hand: bwrap --unshare-all --ro-bind / / true"
    if "namespace" in stderr or "Operation not permitted" in stderr or "setting up uid map" in stderr:
        advice = (
            "this system forbids user namespaces to ordinary users; allow them with sysctl "
            "kernel.unprivileged_userns_clone=1, on Ubuntu 24.04 also kernel.apparmor_restrict_unprivileged_userns=0; "
            "in a container give it CAP_SYS_ADMIN"
        )
    return f"bubblewrap cannot make a sandbox here ({said}): {advice}"


def _outer_environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def open_worker(policy: SandboxPolicy | str = "bwrap") -> Worker:
    """A worker under a policy. Raises SandboxError where the policy cannot be had. A context manager."""
    policy = SandboxPolicy.of(policy)
    if policy.kind == "bwrap":
        there, reason = available()
        if not there:
            raise SandboxError(f"student text cannot be sandboxed: {reason}")
    if sys.platform != "linux":
        raise SandboxError(
            "kernels are compiled and run in processes of their own, in ways that only Linux has: on Windows use WSL2, "
            "elsewhere a Linux container. convladder.kernels itself, compile_cuda and launch, works on Windows"
        )
    return Worker(policy)


class Worker:
    """Runs the text of one student: kernels in one child process, Python functions in another, each when needed.

    The two never share a process, so that no student Python stands beside what reports of a kernel. The
    Python process serves one request and is replaced; the kernel process stays, and is replaced when it dies.
    """

    def __init__(self, policy: SandboxPolicy):
        self.policy = policy
        self._children: dict[Role, _Child] = {}
        self._group = cgroup.make(policy.whole_memory, policy.whole_processes) if policy.kind == "bwrap" else None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *roles: Role) -> None:
        """Start processes that will be needed, without waiting for them."""
        for role in roles:
            if role not in self._children:
                group = self._group.within() if self._group is not None else None
                self._children[role] = _Child(self.policy, role, group)

    def request(
        self,
        role: Role,
        header: dict[str, Any],
        arrays: Sequence[np.ndarray] = (),
        *,
        reply_bytes: int,
        seconds: float | None = None,
    ) -> list[Frame]:
        """Send a request and collect its reply: frames up to one whose event ends it.

        reply_bytes  the most that the arrays of one frame may hold
        A process that dies is asked once more, afresh, and one that is killed several times: what happens to it from
        outside (a machine out of memory, a kill) is not the student's doing; what the text does to it, it does again.
        Raises WorkerError where no whole reply came, SandboxError where no worker starts.
        """
        deaths: list[WorkerError] = []
        while True:
            try:
                return self._request(role, header, arrays, reply_bytes, seconds)
            except WorkerError as error:
                if error.reason != "died":
                    raise
                deaths.append(error)
                of_itself = [death for death in deaths if death.detail != _ending(signal.SIGKILL)]
                if len(of_itself) == 2 or len(deaths) == _MOST_DEATHS:
                    raise (of_itself or deaths)[-1] from None

    def _request(
        self, role: Role, header: dict[str, Any], arrays: Sequence[np.ndarray], reply_bytes: int, seconds: float | None
    ) -> list[Frame]:
        child = self._ready(role)
        try:
            frames = child.exchange(encode(header, arrays), reply_bytes, seconds or self.policy.seconds)
        except BaseException:  # also an interrupt in the middle of a reply: that process cannot be talked to any more
            self._drop(role)
            raise
        if role == "python" or frames[-1].header.get("stage") == "gpu":  # a failed CUDA context does not recover
            self._drop(role)
        return frames

    def _ready(self, role: Role) -> _Child:
        """A process that waits for requests. If one does not start, its zygote may have been killed: one more try."""
        for more in (True, False):
            self.start(role)
            try:
                self._children[role].wait_until_ready()
                break
            except SandboxError:
                self._drop(role)
                if not more:
                    raise
            except BaseException:  # an interrupt
                self._drop(role)
                raise
        return self._children[role]

    def _drop(self, role: Role) -> None:
        self._children.pop(role).close()

    def close(self) -> None:
        for role in tuple(self._children):
            self._drop(role)
        if self._group is not None:
            self._group.close()


class _Zygotes(threading.local):
    """The zygotes that a thread has started, each for all workers of its kind."""

    def __init__(self) -> None:
        self._started: dict[tuple[Role, str], Zygote] = {}

    def of(self, policy: SandboxPolicy, role: Role) -> Zygote:
        known = self._started.get((role, policy.kind))
        if known is None or not known.lives():
            known = self._started[role, policy.kind] = _started(policy, role, divided=policy.kind == "bwrap")
        return known


_zygotes = _Zygotes()


def _started(policy: SandboxPolicy, role: Role, *, divided: bool) -> Zygote:
    if policy.kind == "bwrap":
        command = bubblewrap.command(role, policy.gpu, policy.tmp_size, divided)
        folder, environment = "/", _outer_environment()
    else:
        command = [sys.executable, "-m", "convladder.autograde.judge.zygote", role]
        folder, environment = tempfile.gettempdir(), {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        return Zygote(command, folder, environment)
    except OSError as error:
        raise SandboxError(f"a worker cannot be started: {error}") from None


@functools.cache
def divisible() -> bool:
    """Whether this system makes namespaces within a sandbox. Tried for real, once."""
    policy = SandboxPolicy()
    zygote = _zygotes.of(policy, "python")
    process = zygote.fork(policy.limits("python"), (), own_tmp=policy.tmp_size)
    try:
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        return bool(ready) and os.read(process.stdout, 1) != b""
    finally:
        process.end()


#: Events that end a reply.
_LAST_EVENTS = frozenset({"end", "error", "results"})


def _ending(by: signal.Signals) -> str:
    return f"ended by {by.name}"


@dataclass
class _Printed:
    """What the worker wrote to standard error: the beginning, and how much."""

    limit: int
    size: int = 0
    text: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.text += data[: max(0, 4000 - len(self.text))]

    def __str__(self) -> str:
        return self.text.decode(errors="replace")


class _Child:
    """One child process, and the talk with it."""

    def __init__(self, policy: SandboxPolicy, role: Role, group: cgroup.Group | None):
        self._policy = policy
        self._group = group
        self._printed = _Printed(policy.printed)
        self._ready = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        limits, groups = policy.limits(role), group.lists() if group is not None else []
        if policy.kind == "none":
            self._folder = tempfile.TemporaryDirectory(prefix="convladder-", ignore_cleanup_errors=True)
            self._process = _zygotes.of(policy, role).fork(limits, groups, self._folder.name)
        # Of CUDA we know that it runs inside bubblewrap, not that it runs in namespaces within that.
        elif (policy.gpu and role == "kernel") or not divisible():
            self._process = _started(policy, role, divided=False).become(limits, groups)
        else:
            self._process = _zygotes.of(policy, role).fork(limits, groups, own_tmp=policy.tmp_size)

    def exchange(self, request: bytes, reply_bytes: int, seconds: float) -> list[Frame]:
        self._printed = _Printed(self._policy.printed)
        return self._talk(request, reply_bytes, seconds)

    def wait_until_ready(self) -> None:
        """Wait for its first words. Raises SandboxError where they do not come; the next process gets a new zygote."""
        if self._ready:
            return
        try:
            (frame,) = self._talk(b"", 0, _START_SECONDS, first=True)
        except WorkerError as error:
            said = " ".join(error.printed.split())[-500:] or self._process.zygote.said()
            self._process.zygote.close()
            raise SandboxError(
                f"a worker did not start ({error.detail}): {said or 'it said nothing'}. "
                "`convladder doctor` tries every part by itself"
            ) from None
        if self._policy.kind == "bwrap" and frame.header.get("uid") == 0:
            raise SandboxError(
                "the sandboxed worker runs as root: it is given no student text. Start the grader as an ordinary user"
            )
        self._ready = True

    def _talk(self, request: bytes, reply_bytes: int, seconds: float, first: bool = False) -> list[Frame]:
        """Write the request while reading replies and output; neither side can block the other."""
        to_child, from_child, printed = self._process.pipes()
        deadline = time.monotonic() + seconds
        decoder = Decoder(reply_bytes)
        frames: list[Frame] = []
        left = memoryview(request)

        def failed(reason: str, detail: str) -> WorkerError:
            return WorkerError(reason, detail, frames, str(self._printed))

        with selectors.DefaultSelector() as selector:
            selector.register(from_child, selectors.EVENT_READ)
            selector.register(printed, selectors.EVENT_READ)
            if left:
                selector.register(to_child, selectors.EVENT_WRITE)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready and time.monotonic() >= deadline:
                    raise failed("time", f"no answer within {seconds:g} s")
                for key, _ in ready:
                    if key.fd == to_child:
                        try:
                            left = left[os.write(to_child, left[:_READ]) :]
                        except BlockingIOError:
                            pass
                        except BrokenPipeError:
                            left = left[len(left) :]  # its death shows on the other pipe
                        if not left:
                            selector.unregister(to_child)
                    elif key.fd == printed:
                        data = os.read(printed, _READ)
                        self._printed.add(data)
                        if self._printed.size > self._printed.limit:
                            raise failed("output", f"more than {self._printed.limit >> 10} KiB were printed")
                        if not data:
                            selector.unregister(printed)
                    else:
                        data = os.read(from_child, _READ)
                        if not data:
                            self._printed.add(self._rest_of(printed))
                            raise failed("died", self._how_it_ended())
                        try:
                            frames += decoder.feed(data)
                        except FrameError as error:
                            raise failed("protocol", str(error)) from None
                        if frames and (first or frames[-1].header.get("event") in _LAST_EVENTS):
                            if decoder.pending or (first and len(frames) > 1):
                                raise failed("protocol", "it sent more than the reply")
                            return frames

    def _rest_of(self, pipe: int) -> bytes:
        with contextlib.suppress(BlockingIOError, OSError):
            return os.read(pipe, _READ)
        return b""

    def _how_it_ended(self) -> str:
        code = self._process.status()
        if code is None:
            return "it closed its pipe"
        # The first process inside a sandbox reports the signal of the worker as 128 + its number.
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number:
            with contextlib.suppress(ValueError):
                return _ending(signal.Signals(number))
        return f"ended with exit status {code}{self._last_words()}"

    def _last_words(self) -> str:
        """The last line that a process without a sandbox printed: there the text is the user's own."""
        lines = str(self._printed).strip().splitlines() if self._policy.kind == "none" else []
        return f": {lines[-1][:200]}" if lines else ""

    def close(self) -> None:
        """End the process and all that it started."""
        self._process.end()
        if self._group is not None:
            self._group.close()
        if self._folder is not None:
            self._folder.cleanup()
