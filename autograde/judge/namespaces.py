"""Namespaces of a worker's own, inside the sandbox that it is forked in.

Bubblewrap keeps all workers of a sandbox from the machine; this keeps each from those before and after it: its files,
processes, sockets, System V objects and keys are its own, and it can make no further namespaces. A process calls
`leave` and forks; the process forked then is the first of the new namespaces, and calls `settle`.

Linux only. Standard library only: inside the sandbox this file stands alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal

# Of <sched.h>, <sys/mount.h>, <sys/prctl.h>, <linux/capability.h> and <linux/keyctl.h>.
_NEW = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
        "pid": 0x20000000, "net": 0x40000000}  # fmt: skip
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _BIND, _RECURSIVE = 1, 2, 4, 8, 32, 4096, 16384
_SET_PARENT_DEATH_SIGNAL, _DROP_FROM_BOUNDING_SET = 1, 24
_CAPABILITIES_VERSION, _MOST_CAPABILITIES = 0x20080522, 64
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "aarch64": 219}

_SMALL = "size=1m,mode=0755"

_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def end_with_parent() -> None:
    """Have this process killed when its parent ends."""
    _called(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "prctl")


def leave_keys() -> None:
    """Have an empty ring of keys in place of the session's, which namespaces do not divide."""
    if (number := _KEYCTL.get(platform.machine())) is not None:  # a system that forbids keys shares none
        _libc.syscall(ctypes.c_long(number), _JOIN_SESSION_KEYRING, None)


def leave() -> None:
    """Leave all namespaces for new ones, as the same user; that of processes begins with the next fork."""
    user, group = os.getuid(), os.getgid()
    _called(_libc.unshare(sum(_NEW.values())), "unshare")
    for name, text in ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def settle(tmp_bytes: int) -> None:
    """Take an empty /tmp of so many bytes, an empty /dev/shm and a /proc of one's own, then give up every right."""
    _mount("tmpfs", "/tmp", _NO_SUID | _NO_DEVICES, f"size={tmp_bytes},mode=0755")
    _mount("tmpfs", "/dev/shm", _NO_SUID | _NO_DEVICES, _SMALL)
    _mount("tmpfs", "/dev/pts", _NO_SUID | _NO_DEVICES | _READ_ONLY, _SMALL)
    _mount("proc", "/proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)
    with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
        file.write("0")
    _mount("/proc/sys", "/proc/sys", _BIND | _RECURSIVE)
    _mount("none", "/proc/sys", _BIND | _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_EXEC)
    os.chdir("/tmp")  # it was in the folder below the new one
    for capability in range(_MOST_CAPABILITIES):  # the system does not have all of them
        _libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    _called(_libc.capset(header, none), "capset")


def _mount(source: str, target: str, flags: int, options: str = "") -> None:
    kind = source.encode() if source in ("tmpfs", "proc") else None
    data = options.encode() if options else None
    _called(_libc.mount(source.encode(), target.encode(), kind, ctypes.c_ulong(flags), data), f"mount {target}")
