"""The sandbox: what a worker may do, what it may not, and that its death is reported and over."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.judge import bubblewrap, cgroup, escape, sandbox
from convladder.autograde.judge.sandbox import SandboxError, SandboxPolicy, Worker, WorkerError
from convladder.autograde.judge.values import unpack

ROOT = Path(__file__).resolve().parents[2]
#: Small limits, so that an attack is over soon.
SMALL = SandboxPolicy(
    "bwrap", seconds=3, memory=1 << 30, processes=16, python_processes=16, file_size=1 << 20, tmp_size=4 << 20
)


def call(worker: Worker, source: str, seconds: float = 1.0, **arguments: Any) -> Any:
    """f(**arguments) of a student's text: its value, or the error as a dict."""
    request = {"op": "python", "source": source, "function": "f", "calls": [arguments], "seconds": seconds}
    (frame,) = worker.request("python", request, reply_bytes=1 << 20)
    if frame.header["event"] == "error":
        return frame.header["error"]
    (result,) = frame.header["results"]
    return result["error"] if "error" in result else unpack(result["value"], frame.arrays)


def outcome(body: str, policy: SandboxPolicy = SMALL, seconds: float = 1.0) -> Any:
    """What the statements of `body` return inside the sandbox; an OSError becomes its name."""
    indented = "\n".join("        " + line for line in body.strip().splitlines())
    source = (
        f"import os, sys\ndef f():\n    try:\n{indented}\n    except OSError as e:\n        return type(e).__name__\n"
    )
    with sandbox.open_worker(policy) as worker:
        return call(worker, source, seconds)


@pytest.fixture
def worker(policy: str) -> Iterator[Worker]:
    with sandbox.open_worker(SandboxPolicy(policy, seconds=3)) as w:  # type: ignore[arg-type]
        yield w


# ---- under both policies


def test_a_function_is_called_with_its_arguments(worker: Worker) -> None:
    assert call(worker, "def f(a, b):\n    return a - b, None", a=5, b=3) == (2, None)


def test_every_request_for_python_gets_a_fresh_process(worker: Worker) -> None:
    source = "import builtins\ndef f():\n    seen = hasattr(builtins, 'x')\n    builtins.x = 1\n    return seen"
    assert [call(worker, source) for _ in range(2)] == [False, False]


def test_what_it_prints_stays_away_from_its_answer(worker: Worker) -> None:
    assert call(worker, "import os\ndef f():\n    print('CVF1' * 100)\n    os.write(1, b'x' * 1000)\n    return 1") == 1


def test_an_error_names_the_line_of_the_text(worker: Worker) -> None:
    error = call(worker, "def g():\n    return 1 / 0\ndef f():\n    return g()")
    assert (error["type"], error["line"]) == ("ZeroDivisionError", 2)


def test_a_syntax_error_names_the_line_of_the_text(worker: Worker) -> None:
    error = call(worker, "x = 1\ndef f(:\n    pass")
    assert (error["type"], error["line"]) == ("SyntaxError", 2)


def test_a_call_that_never_returns_is_ended_at_its_line(worker: Worker) -> None:
    error = call(worker, "def f():\n    while True:\n        pass")
    assert error["type"] == "time"
    assert error["line"] in (2, 3)


def test_a_text_that_catches_everything_is_ended_by_the_clock(worker: Worker) -> None:
    source = "import signal\nsignal.setitimer = lambda *a: None\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    with pytest.raises(WorkerError) as caught:
        call(worker, source + "def f():\n    while True:\n        pass")
    assert caught.value.reason == "time"
    assert call(worker, "def f():\n    return 7") == 7


def test_an_error_that_cannot_be_shown_is_still_an_error(worker: Worker) -> None:
    source = "class E(Exception):\n    def __str__(self):\n        raise SystemExit\ndef f():\n    raise E"
    assert call(worker, source)["type"] in ("E", "SystemExit")


@pytest.mark.parametrize("death", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_a_worker_that_dies_is_reported_and_replaced(worker: Worker, death: str) -> None:
    with pytest.raises(WorkerError) as caught:
        call(worker, f"import os\ndef f():\n    {death}")
    assert caught.value.reason == "died"
    assert call(worker, "def f():\n    return 7") == 7


@pytest.mark.parametrize("victims", [slice(-1, None), slice(None)], ids=["the worker", "its zygote too"])
def test_a_process_that_something_else_kills_is_asked_once_more(worker: Worker, victims: slice) -> None:
    """Killed from outside while it answers; asked again, nothing happens to it."""
    kills: list[int] = []
    call(worker, "def f():\n    return 1")

    def kill() -> None:
        while not worker._children["python"]._ready:
            time.sleep(0.01)
        time.sleep(0.2)
        kills.extend(_descendants(worker._children["python"]._process.zygote.pid)[victims])
        for pid in kills:
            with contextlib.suppress(ProcessLookupError):  # with the first of them others end
                os.kill(pid, signal.SIGKILL)

    worker.start("python")
    thread = threading.Thread(target=kill)
    thread.start()
    assert call(worker, "import time\ndef f():\n    time.sleep(0.7)\n    return 5") == 5
    thread.join()
    assert kills


def test_exit_is_an_error_like_others(worker: Worker) -> None:
    assert call(worker, "def f():\n    exit(3)")["type"] in ("SystemExit", "NameError")


def test_output_without_end_is_cut_off(worker: Worker) -> None:
    with pytest.raises(WorkerError) as caught:
        call(worker, "def f():\n    while True:\n        print('x' * 10000)")
    assert caught.value.reason == "output"
    assert len(caught.value.printed) <= 4000


FORGERIES = {
    "garbage": "b'garbage' * 100",
    "a huge frame": "struct.pack('<4sIQ', b'CVF1', 2, 1 << 50) + b'{}'",
    "a huge header": "struct.pack('<4sIQ', b'CVF1', 1 << 31, 0)",
    "a reply and more": 'frame(b\'{"event": "results", "results": []}\') + b\'more\'',
    "no object": "frame(b'[1]')",
    "deep nesting": "frame(b'[' * 200000)",
}


@pytest.mark.parametrize("forged", FORGERIES)
def test_forged_frames_are_refused(worker: Worker, forged: str) -> None:
    source = f"""
import os, struct
def frame(head):
    return struct.pack('<4sIQ', b'CVF1', len(head), 0) + head
def f():
    for fd in range(3, 64):
        try:
            os.write(fd, {FORGERIES[forged]})
        except OSError:
            pass
    return 1
"""
    with pytest.raises(WorkerError) as caught:
        call(worker, source)
    assert caught.value.reason == "protocol"
    assert call(worker, "def f():\n    return 7") == 7


def test_a_kernel_that_brings_the_compiler_down_leaves_the_next_one_unharmed(policy: str) -> None:
    bomb = "template <int N> struct A { A<N + 1> a; A<N + 2> b; };\n__global__ void k() { A<0> a; }\n"
    bomb += "//@ launch k grid=1 block=1"
    good = "__global__ void k(float* y) { y[0] = 1; }\n//@ launch k grid=1 block=1 args=(y)"
    case = {"symbols": {}, "inputs": {}, "outputs": {"y": ["<f4", [1]]}, "inouts": {}}
    small = SandboxPolicy(policy, seconds=3, memory=2 << 30)  # type: ignore[arg-type]
    with sandbox.open_worker(small) as worker:
        request = {"op": "kernel", "default_args": [], "on": "sim", "budget": 1000, "cases": [case]}
        try:
            frames = worker.request("kernel", {**request, "source": bomb}, reply_bytes=4)
            assert frames[-1].header["event"] == "error"
        except WorkerError:
            pass
        frames = worker.request("kernel", {**request, "source": good}, reply_bytes=4)
    assert [f.header["event"] for f in frames] == ["compiled", "case", "end"]
    assert frames[1].arrays[0][0] == 1


# ---- isolation


def test_it_is_nobody_and_not_root(bwrap: str) -> None:
    assert outcome("return os.getuid(), os.geteuid()") == (1000, 1000)
    status = outcome("return open('/proc/self/status').read()")
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


def test_to_the_system_outside_it_is_never_root(bwrap: str) -> None:
    with sandbox.open_worker(SMALL) as worker:
        worker.start("python")
        call(worker, "def f():\n    return 1")
        worker.start("python")
        child = worker._children["python"]
        child.wait_until_ready()
        owners = {os.stat(f"/proc/{pid}").st_uid for pid in _descendants(child._process.zygote.pid)}
    assert owners
    assert 0 not in owners


def _descendants(pid: int) -> list[int]:
    """A process and those that it started, each behind the one that started it."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines())
    found = [pid]
    for known in found:
        found += [p for p in sorted(parents) if parents[p] == known]
    return [p for p in found if Path(f"/proc/{p}").exists()]


@pytest.mark.parametrize(
    "path",
    [ROOT, ROOT / "pyproject.toml", ROOT / "autograde/specs", ROOT / "kernels/ladder", ROOT / "solutions",
     Path.home() / ".bashrc", "/etc/shadow", "/etc/passwd", "/etc/hostname", "/var",
     "/home", "/mnt", "/run", "/sys", "/proc/1/root/etc/shadow"],
    ids=str,
)  # fmt: skip
def test_files_of_the_machine_are_not_there(bwrap: str, path: Path | str) -> None:
    body = f"p = {str(path)!r}\nreturn os.listdir(p) if os.path.isdir(p) else open(p).read(10)"
    assert outcome(body) in ("FileNotFoundError", "PermissionError", "NotADirectoryError")


def test_the_text_of_this_project_is_not_shown_but_for_the_worker(bwrap: str) -> None:
    body = """
return sorted(os.path.join(d, f) for d, _, files in os.walk('/env') if '/numpy' not in d for f in files)
"""
    shown = outcome(body)
    assert [Path(p).name for p in shown] == ["frames.py", "namespaces.py", "values.py", "worker.py", "zygote.py"]


def test_a_kernel_worker_cannot_include_the_ladder_or_a_spec(bwrap: str) -> None:
    own = f"{bubblewrap.site_packages()}/convladder"
    with sandbox.open_worker("bwrap") as worker:
        for path in (
            f"{own}/kernels/ladder/direct.cu",
            ROOT / "kernels/ladder/direct.cu",
            "/etc/passwd",
            "/etc/shadow",
        ):
            source = f'#include "{path}"\n__global__ void k() {{}}\n//@ launch k grid=1 block=1'
            request = {"op": "kernel", "default_args": [], "on": "sim", "budget": 1000, "cases": [], "source": source}
            (frame,) = worker.request("kernel", request, reply_bytes=4)
            assert frame.header["type"] == "CompileError"
            assert "cannot open source file" in frame.header["log"]


def test_the_reference_is_not_importable(bwrap: str) -> None:
    with sandbox.open_worker(SMALL) as worker:
        error = call(worker, "def f():\n    import convladder.kernels.layouts\n    return 1")
    assert error["type"] == "ModuleNotFoundError"


@pytest.mark.parametrize(
    "path", ["/x", "/usr/lib/x", "/etc/x", "/dev/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/env/x"]
)
def test_nothing_is_writable(bwrap: str, path: str) -> None:
    assert outcome(f"open({path!r}, 'w').write('x')\nreturn 'written'") in (
        "OSError",
        "PermissionError",
        "FileNotFoundError",
    )


def test_its_own_tmp_is_writable_private_and_bounded(bwrap: str, tmp_path: Path) -> None:
    name = f"convladder-test-{os.getpid()}"
    assert outcome(f"open('/tmp/{name}', 'w').write('x')\nreturn os.listdir('/tmp')") == [name]
    assert not Path("/tmp", name).exists()
    fill = (
        "for i in range(64):\n    with open(f'/tmp/{i}', 'wb') as f:\n        f.write(b'x' * (1 << 19))\nreturn 'all'"
    )
    assert outcome(fill) == "OSError"


def test_a_large_file_is_refused(bwrap: str) -> None:
    assert outcome("with open('/tmp/x', 'wb') as f:\n    f.write(b'x' * (2 << 20))\nreturn 'written'") == "OSError"


def test_it_has_no_network(bwrap: str) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        body = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\nreturn 'connected'"
        assert outcome(body) in ("ConnectionRefusedError", "OSError")
    assert outcome("import socket\nreturn [n for _, n in socket.if_nameindex()]") == ["lo"]


def test_it_sees_no_other_process(bwrap: str) -> None:
    assert len(outcome("return [p for p in os.listdir('/proc') if p.isdigit()]")) <= 2


def test_it_cannot_reach_the_grader(bwrap: str) -> None:
    assert outcome(f"os.kill({os.getpid()}, 0)\nreturn 'reached'") == "ProcessLookupError"
    assert outcome("os.kill(os.getppid(), 9)\nreturn 'still here'") in (
        "still here",
        "ProcessLookupError",
        "PermissionError",
    )


def test_it_holds_nothing_open_but_its_own_pipes(bwrap: str) -> None:
    held = outcome("return [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')[:-1]]")
    assert {name.partition(":")[0] for name in held} == {"pipe", "/dev/null"}
    assert len(held) == 5


def test_its_environment_says_nothing(bwrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVLADDER_SECRET", "hidden")
    monkeypatch.setattr(sandbox, "_zygotes", sandbox._Zygotes())  # the next starts in this environment
    shown = outcome("return sorted(os.environ)")
    assert not [name for name in shown if "CONVLADDER" in name or "SECRET" in name]
    assert set(shown) <= {*bubblewrap.environment(), "PWD", "LC_CTYPE"}


def test_a_fork_bomb_stays_within_its_limit(bwrap: str) -> None:
    body = """
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            import time
            time.sleep(60)
        made += 1
except BlockingIOError:
    return made
return 'all'
"""
    made = outcome(body)
    assert isinstance(made, int)
    assert made < SMALL.python_processes


def test_memory_that_libraries_reserve_before_a_text_runs_is_not_the_texts() -> None:
    """On machines of many cores, or with CUDA's libraries, that is gigabytes: no text could even be compiled."""
    request = {
        "op": "kernel", "source": "__global__ void k(float* y) { y[0] = 1; }", "default_args": [], "on": "sim",
        "budget": None, "cases": [],
    }  # fmt: skip
    little = SandboxPolicy("none", memory=200 << 20)  # less than Python, NumPy, the compiler and LLVM have mapped
    with sandbox.open_worker(little) as worker:
        assert worker.request("kernel", request, reply_bytes=0)[0].header["event"] == "compiled"


def test_a_process_that_dies_without_a_sandbox_says_its_last_words() -> None:
    with (
        sandbox.open_worker(SandboxPolicy("none")) as worker,
        pytest.raises(WorkerError, match="exit status 1: KeyError: 'op'"),
    ):
        worker.request("kernel", {}, reply_bytes=0)


def test_memory_is_not_had_several_times_over_by_forking(bwrap: str) -> None:
    body = """
try:
    return 'forked' if os.fork() else time.sleep(60)
except BlockingIOError:
    return 'alone'
"""
    assert outcome(body, SandboxPolicy("bwrap")) == "alone"


def test_processes_that_it_started_end_with_it(bwrap: str) -> None:
    marker = f"{os.getpid()}{time.monotonic_ns()}"
    sleeper = f"[sys.executable, '-S', '-c', 'import time; time.sleep(60)', '{marker}']"
    body = f"import subprocess\nsubprocess.Popen({sleeper})\nreturn 1"
    assert outcome(body) == 1
    deadline = time.monotonic() + 10
    while (left := _running(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _running(marker: str) -> str:
    listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in listed.splitlines() if line.endswith(marker))


def test_a_memory_bomb_is_stopped(bwrap: str) -> None:
    with sandbox.open_worker(SMALL) as worker:
        error = call(worker, "def f():\n    return len(bytearray(3 << 30))")
    assert error["type"] == "MemoryError"


def test_limits_cannot_be_raised_again(bwrap: str) -> None:
    body = """
import resource
hard = {}
for name in ('AS', 'NPROC', 'FSIZE', 'CORE', 'CPU'):
    which = getattr(resource, 'RLIMIT_' + name)
    try:
        resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return name
    except ValueError:
        pass
return 'kept'
"""
    assert outcome(body) == "kept"


def test_no_further_namespace_can_be_made(bwrap: str) -> None:
    body = "import ctypes\nreturn ctypes.CDLL(None, use_errno=True).unshare(0x10000000)"
    assert outcome(body) == -1


# ---- one submission and the next, which the same zygote forks


#: What a submission may try to leave, and how another finds it: expressions, true where it is there.
LEFT = {
    "a file in /tmp": ("open('/tmp/left', 'w').close() or True", "os.path.exists('/tmp/left')"),
    "a file in shared memory": ("open('/dev/shm/left', 'w').close() or True", "os.path.exists('/dev/shm/left')"),
    "shared memory of System V": ("libc.shmget(77, 4096, 0o1600) >= 0", "libc.shmget(77, 4096, 0o600) >= 0"),
    "a socket": ("linger() or True", "connects()"),
    "a process": ("linger() or True", "len([p for p in os.listdir('/proc') if p.isdigit()]) > 2"),
    "a name of the machine": ("libc.sethostname(b'left', 4) == 0 or True", "os.uname().nodename == 'left'"),
    "a module that is patched": ("setattr(json, 'left', 1) or True", "hasattr(json, 'left')"),
    "a state of random numbers": ("np.random.seed(1) or True", "np.random.rand() == np.random.RandomState(1).rand()"),
}
_LEAVING = """
import ctypes, json, os, socket, time
import numpy as np
libc = ctypes.CDLL(None)

def linger():
    if os.fork() == 0:
        os.setsid()
        server = socket.socket(socket.AF_UNIX)
        server.bind(chr(0) + 'left')
        server.listen()
        time.sleep(60)
    time.sleep(0.2)

def connects():
    try:
        socket.socket(socket.AF_UNIX).connect(chr(0) + 'left')
        return True
    except OSError:
        return False

def f():
    return bool({expression})
"""


@pytest.mark.parametrize("what", LEFT)
def test_nothing_of_a_submission_is_left_for_the_next(bwrap: str, what: str) -> None:
    leave, find = LEFT[what]
    zygotes = []
    for expression, found in ((leave, True), (find, False)):
        with sandbox.open_worker(SMALL) as worker:
            worker.start("python")
            zygotes.append(worker._children["python"]._process.zygote)
            assert call(worker, _LEAVING.format(expression=expression)) is found
    if sandbox.divisible():
        assert zygotes[0] is zygotes[1]


def test_a_zygote_that_is_killed_before_it_forks_costs_the_student_nothing(bwrap: str) -> None:
    if not sandbox.divisible():
        pytest.skip("this system makes no namespaces within a sandbox: each submission has a sandbox of its own")
    with sandbox.open_worker(SMALL) as worker:
        zygote = sandbox._zygotes.of(SMALL, "python")
        os.kill(zygote.pid, signal.SIGSTOP)  # it counts as living when it is asked
        worker.start("python")
        for pid in (*_descendants(zygote.pid), zygote.pid):
            os.kill(pid, signal.SIGKILL)
        assert call(worker, "def f():\n    return 7") == 7


@pytest.mark.parametrize(
    ("endings", "told"),
    [
        (["SIGKILL", "SIGKILL", "SIGKILL"], None),
        (["SIGSEGV"], None),
        (["SIGKILL", "SIGSEGV", "SIGSEGV"], "SIGSEGV"),
        (["SIGSEGV", "SIGKILL", "SIGKILL", "SIGKILL"], "SIGSEGV"),
        (["SIGKILL", "SIGKILL", "SIGKILL", "SIGKILL"], "SIGKILL"),
    ],
)
def test_a_text_that_ends_its_process_is_told_from_kills_from_outside(
    monkeypatch: pytest.MonkeyPatch, endings: list[str], told: str | None
) -> None:
    left = iter(endings)

    def answers(*_: object) -> list[object]:
        if ending := next(left, None):
            raise WorkerError("died", f"ended by {ending}")
        return []

    with sandbox.open_worker(SandboxPolicy("none")) as worker:
        monkeypatch.setattr(worker, "_request", answers)
        if told is None:
            assert worker.request("python", {}, reply_bytes=0) == []
        else:
            with pytest.raises(WorkerError, match=told):
                worker.request("python", {}, reply_bytes=0)


@pytest.mark.parametrize("divided", [True, False])
def test_keys_of_the_session_are_not_shared(bwrap: str, monkeypatch: pytest.MonkeyPatch, divided: bool) -> None:
    """A grader that was logged in has a ring of keys, which its children inherit."""
    add, control = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
    join, search, session = 1, 10, -3
    if ctypes.CDLL(None).syscall(control, join, None) < 0:
        pytest.skip("this system keeps no keys for its users")
    if not divided:
        monkeypatch.setattr(sandbox, "divisible", lambda: False)
    monkeypatch.setattr(sandbox, "_zygotes", sandbox._Zygotes())
    libc = "import ctypes\nlibc = ctypes.CDLL(None)\n"
    assert outcome(f"{libc}return libc.syscall({add}, b'user', b'left', b'x', 1, {session})") > 0
    assert outcome(f"{libc}return libc.syscall({control}, {search}, {session}, b'user', b'left', 0)") == -1


def test_a_workers_namespaces_are_its_own(bwrap: str) -> None:
    if not sandbox.divisible():
        pytest.skip("this system makes no namespaces within a sandbox: each submission has a sandbox of its own")
    with sandbox.open_worker(SMALL) as one, sandbox.open_worker(SMALL) as other:
        owned = []
        for worker in (one, other):
            worker.start("python")
            child = worker._children["python"]
            child.wait_until_ready()
            *_, pid = _descendants(child._process.zygote.pid)
            owned.append({name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES})
    assert not [name for name in NAMESPACES if owned[0][name] == owned[1][name]]


NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def test_where_no_namespaces_can_be_made_within_a_sandbox_each_worker_has_its_own(
    bwrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "divisible", lambda: False)
    zygotes = []
    with sandbox.open_worker(SMALL) as worker:
        for _ in range(2):
            worker.start("python")
            zygotes.append(worker._children["python"]._process.zygote)
            assert call(worker, "def f():\n    return 1") == 1
        with pytest.raises(WorkerError, match="ended by SIGKILL"):
            call(worker, "import os\ndef f():\n    os.kill(os.getpid(), 9)")
    assert zygotes[0] is not zygotes[1]
    assert not any(zygote.lives() for zygote in zygotes)
    assert escape.open_ways() == []


# ---- without a sandbox


def test_without_bubblewrap_it_refuses_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.shutil, "which", lambda _: None)
    sandbox.available.cache_clear()
    try:
        with pytest.raises(SandboxError, match=r"apt install bubblewrap|needs Linux"):
            sandbox.open_worker("bwrap")
        with sandbox.open_worker("none") as worker:
            assert call(worker, "def f():\n    return 1") == 1
    finally:
        sandbox.available.cache_clear()


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SandboxError, match="not 'docker'"):
        sandbox.open_worker("docker")


def test_a_worker_that_does_not_start_is_this_machines_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.sys, "executable", "/bin/false")
    monkeypatch.setattr(sandbox, "_zygotes", sandbox._Zygotes())
    with sandbox.open_worker("none") as worker, pytest.raises(SandboxError, match="did not start"):
        call(worker, "def f():\n    return 1")


# ---- a submission as a whole


@pytest.fixture
def groups(bwrap: str) -> None:
    if cgroup.hierarchy() is None:
        pytest.skip(f"no control groups here: {cgroup.advice()}")


def test_memory_of_all_processes_together_is_limited(groups: None) -> None:
    """Each stays below its own limit, and all four are above that of the whole."""
    body = """
pids = []
for number in range(4):
    pid = os.fork()
    if not pid:
        import time
        taken = bytearray(80 << 20)
        time.sleep(0.3)
        os._exit(0)
    pids.append(pid)
return sorted(os.waitpid(pid, 0)[1] for pid in pids)
"""
    policy = SandboxPolicy("bwrap", seconds=20, memory=1 << 30, python_processes=16, whole_memory=160 << 20)
    ended = outcome(body, policy, seconds=15)
    assert isinstance(ended, list)
    assert 9 in ended


def test_processes_are_limited_as_a_whole(groups: None) -> None:
    body = """
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            import time
            time.sleep(60)
        made += 1
except BlockingIOError:
    pass
return made
"""
    made = outcome(body, SandboxPolicy("bwrap", seconds=20, python_processes=10_000, whole_processes=40))
    assert isinstance(made, int)
    assert 0 < made < 40


def test_a_worker_leaves_no_group_behind(groups: None) -> None:
    with sandbox.open_worker(SMALL) as worker:
        call(worker, "def f():\n    return 1")
        folders = worker._group.folders if worker._group else []
        assert folders
        assert all(folder.is_dir() for folder in folders)
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("own", ["/user.slice/run-7.scope", "/user.slice/run-7.scope/convladder-grader"])
def test_groups_of_version_2_are_made_beside_the_graders_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    """On a folder that looks like cgroupfs: this machine may have another version, or none."""
    scope = tmp_path / "user.slice" / "run-7.scope"
    scope.mkdir(parents=True)
    for name, text in {"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "memory pids"}.items():
        (scope / name).write_text(text)
    (tmp_path / "mounts").write_text(f"cgroup2 {tmp_path} cgroup2 rw,nsdelegate 0 0\n")
    (tmp_path / "cgroup").write_text(f"0::{own}\n")
    monkeypatch.setattr(cgroup, "_tried", lambda found: found)
    found = cgroup._version_2(tmp_path / "cgroup", tmp_path / "mounts")
    assert found == cgroup.Hierarchy(2, ((scope, ("memory", "pids")),))


def test_no_way_out_of_the_sandbox_is_open(bwrap: str) -> None:
    assert escape.open_ways() == []


def test_ways_out_are_found_where_there_is_no_sandbox() -> None:
    ways = escape.open_ways(SandboxPolicy("none", file_size=1 << 19))
    assert {"read a file of the grader's", "connect to the grader", "signal the grader", "see another process"} <= {
        *ways
    }
