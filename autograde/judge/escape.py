"""Tries to get out of the sandbox, from within, and says which way is open: what `convladder doctor` runs."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .sandbox import SandboxPolicy, open_worker
from .values import unpack

#: Each line: a way out, and an expression or statements that come to a true `out` where it is open. FILE, PORT and
#: PID are a file of the grader's, a port on which it listens, and its process.
_ATTEMPTS = {
    "read a file of the grader's": "out = open(FILE).read()",
    "write beside a file of the grader's": "open(os.path.dirname(FILE) + '/x', 'w').close(); out = True",
    "read the machine's passwords": "out = open('/etc/shadow').read()",
    "read the machine's accounts": "out = open('/etc/passwd').read()",
    "list the users' homes": "out = os.listdir('/home') + os.listdir('/root')",
    "write to the system": "open('/usr/lib/x', 'w').close(); out = True",
    "change a setting of the kernel": "open('/proc/sys/kernel/core_pattern', 'a').close(); out = True",
    "connect to the grader": "out = socket.create_connection(('127.0.0.1', PORT), 1)",
    "reach a network": "out = [name for _, name in socket.if_nameindex() if name != 'lo']",
    "see another process": "out = set(filter(str.isdigit, os.listdir('/proc'))) - {'1', '2', str(os.getpid())}",
    "signal the grader": "os.kill(PID, 0); out = True",
    "be root": "out = os.geteuid() == 0",
    "have a capability": "out = int(status()['CapEff'], 16) or int(status()['CapBnd'], 16)",
    "gain rights by a program that gives them": "out = status()['NoNewPrivs'] != '1'",
    "make a namespace, and be root in it": "out = ctypes.CDLL(None).unshare(0x10000000) == 0",
    "raise the limit of memory": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); out = True",
    "raise the limit of processes": "resource.setrlimit(resource.RLIMIT_NPROC, (-1, -1)); out = True",
    "take a terabyte": "out = bytearray(1 << 40)",
    "start a process": "out = os.fork()\n    if not out:\n        os._exit(0)",
    "fill /tmp": "out = fill()",
    "read the environment of the grader": "out = 'CONVLADDER_ESCAPE' in os.environ",
}

_TEXT = """
import ctypes, os, resource, socket

def status():
    return dict(line.strip().split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)

def fill():
    names = [f'/tmp/convladder-{{os.getpid()}}-{{n}}' for n in range(64)]
    try:
        return all(open(name, 'wb').write(bytes(1 << 20)) for name in names)
    finally:
        for name in filter(os.path.exists, names):
            os.remove(name)

{functions}
ATTEMPTS = [{names}]

def f(FILE, PORT, PID):
    open_ways = []
    for number in range(len(ATTEMPTS)):
        try:
            if ATTEMPTS[number](FILE, PORT, PID):
                open_ways.append(number)
        except (Exception, SystemExit):
            pass
    return open_ways
"""

#: Small, so that filling it takes no time.
_POLICY = SandboxPolicy("bwrap", seconds=20, tmp_size=8 << 20)


def attempts() -> list[str]:
    """The ways that are tried."""
    return list(_ATTEMPTS)


def open_ways(policy: SandboxPolicy = _POLICY) -> list[str]:
    """The ways out that are open under a policy. Raises SandboxError, WorkerError where nothing could be tried."""
    functions = "".join(
        f"def attempt_{n}(FILE, PORT, PID):\n    {body}\n    return out\n" for n, body in enumerate(_ATTEMPTS.values())
    )
    names = ", ".join(f"attempt_{n}" for n in range(len(_ATTEMPTS)))
    # A thread of its own starts sandboxes of its own, now that there is something to find.
    with _something_to_find() as (path, port), ThreadPoolExecutor(1) as thread:
        call = {"FILE": str(path), "PORT": port, "PID": os.getpid()}
        text = _TEXT.format(functions=functions, names=names)
        found = thread.submit(_tried, policy, text, call).result()
    ways = attempts()
    return [ways[number] for number in found]


def _tried(policy: SandboxPolicy, text: str, call: dict[str, object]) -> Any:
    request = {"op": "python", "source": text, "function": "f", "calls": [call], "seconds": 15.0}
    with open_worker(policy) as worker:
        (frame,) = worker.request("python", request, reply_bytes=0)
    return unpack(frame.header["results"][0]["value"], frame.arrays)


@contextmanager
def _something_to_find() -> Iterator[tuple[Path, int]]:
    """A file that anybody may read, a port that anybody may connect to, and a name in the environment."""
    os.environ["CONVLADDER_ESCAPE"] = "1"
    try:
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
            path = Path(folder, "grades.csv")
            path.write_text("student,total\n")
            for place, mode in ((Path(folder), 0o777), (path, 0o644)):
                place.chmod(mode)
            yield path, server.getsockname()[1]
    finally:
        del os.environ["CONVLADDER_ESCAPE"]
