"""The process that has loaded all that workers of one role need, and forks one whenever it is asked to.

`spawn.py` starts it, with a socket as its standard input, and asks: a message is JSON, and with it come the ends of the
pipes that are the worker's standard input, output and error, the worker's control socket, and the lists of the control
groups that it belongs to. Student text never runs here, and what is forked cannot reach back.

    {limits, folder, own_tmp, alone}    limits   of the worker, by the names of `resource.RLIMIT_*`
                                        folder   where it begins, or ""
                                        own_tmp  bytes of its own /tmp, in namespaces of its own; 0: it stays in these
                                        alone    fork nothing, be the worker: the only one

Of each worker one process, its keeper, stays outside of its namespaces. When the control socket's other end closes, it
ends the worker and all that the worker started; when the worker ends, it sends the exit status (negative: the signal)
there. The socket's end means that nothing is left. A worker that is alone has no keeper, and closes the socket at once.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from . import namespaces, worker

_MOST_BYTES, _MOST_DESCRIPTORS = 1 << 16, 16


def main(role: str) -> None:
    requests = socket.socket(fileno=os.dup(0))
    worker.prepare(role)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
    gc.collect()
    gc.freeze()  # or collections in the children would copy what they share
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, _MOST_DESCRIPTORS)
        if not message:
            return
        asked = json.loads(message)
        if asked["alone"] or os.fork() == 0:
            requests.close()
            control = _enter(descriptors)
            if asked["alone"]:
                os.close(control)
                worker.serve(role, asked["limits"])
                return
            _keep_one(role, asked, control)
        for descriptor in descriptors:
            os.close(descriptor)


def _enter(descriptors: list[int]) -> int:
    """Take the given ends for standard input, output and error, and enter the groups; returns the control socket."""
    for number, stream in enumerate(descriptors[:3]):
        os.dup2(stream, number)
        os.close(stream)
    for group in descriptors[4:]:
        os.write(group, b"0")
        os.close(group)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    namespaces.leave_keys()
    return descriptors[3]


def _keep_one(role: str, asked: dict[str, Any], control: int) -> NoReturn:
    """Start a worker, and be its keeper."""
    own_tmp = asked["own_tmp"]
    if own_tmp:
        namespaces.leave()
    ends, tells_end = os.pipe()
    os.set_blocking(tells_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tells_end)  # no thread could wait: the next process is the first of other namespaces
    first = os.fork()
    if first == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.closerange(3, max(ends, tells_end, control) + 1)
        os.setsid()
        namespaces.end_with_parent()
        if own_tmp:
            namespaces.settle(own_tmp)
            _be_first(os.fork())
        if asked["folder"]:
            os.chdir(asked["folder"])
        worker.serve(role, asked["limits"])
        os._exit(0)
    os.closerange(0, 3)
    while not (ended := os.waitpid(first, os.WNOHANG))[0]:
        ready, _, _ = select.select([control, ends], [], [])
        if control in ready:
            for kill in os.killpg, os.kill:  # it may not have its session yet
                with suppress(ProcessLookupError, PermissionError):
                    kill(first, signal.SIGKILL)
            ended = os.waitpid(first, 0)
            break
        os.read(ends, 1)
    with suppress(OSError):
        os.write(control, str(os.waitstatus_to_exitcode(ended[1])).encode())
    os._exit(0)


def _be_first(pid: int) -> None:
    """In the worker, nothing; before it, be the first process of its namespace, with whose end all others end."""
    if pid == 0:
        return
    os.closerange(0, 3)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # for a first process: ignored
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1])
