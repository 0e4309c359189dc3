"""A control group for everything that one submission starts: its processes together get so much memory, and so many.

A process bounds itself by its resource limits, but those hold for each one alone, and where CUDA runs none of them
bounds memory: it reserves more of the address space than any machine has. A group bounds what is really used.

Version 2 needs a folder that the grader may write to: as root, or as an ordinary user under
`systemd-run --user --scope -p Delegate=yes`. Version 1 (two folders, one for memory and one for processes) needs root.
Where there is none, student text is run without: the other limits still hold.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "convladder-"
#: Where the grader itself goes in version 2: a group with subgroups may hold no process of its own.
_LEAF = "convladder-grader"
_NUMBERS = itertools.count()
#: How long the system may take to bury the processes of a group.
_BURIAL_S = 2.0


@dataclass(frozen=True)
class Hierarchy:
    """Where groups are made. `parents` are folders of cgroupfs, each with the controllers whose limits it takes."""

    version: int
    parents: tuple[tuple[Path, tuple[str, ...]], ...]


class Group:
    """A group of processes. A context manager; closing it ends what still runs in it."""

    def __init__(self, folders: Sequence[Path]):
        self.folders = list(folders)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lists(self) -> list[Path]:
        """Files that a process enters this group by: it writes "0" to each."""
        return [folder / "cgroup.procs" for folder in self.folders]

    def within(self) -> Group:
        """A group in this one: its processes count here too, and can be ended by themselves."""
        name = f"{_PREFIX}{next(_NUMBERS)}"
        made = Group([folder / name for folder in self.folders])
        for folder in made.folders:
            folder.mkdir()
        return made

    def close(self) -> None:
        until = time.monotonic() + _BURIAL_S
        for folder in self.folders:
            while not _removed(folder) and time.monotonic() < until:
                for pid in _processes(folder):
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)


def make(memory: int, processes: int) -> Group | None:
    """A new group with these limits (bytes, number); None where the system gives none."""
    found = hierarchy()
    if found is None:
        return None
    name = f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    limits = {
        "memory": {1: (("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory)),
                   2: (("memory.max", memory), ("memory.swap.max", 0))}[found.version],
        "pids": (("pids.max", processes),),
    }  # fmt: skip
    group = Group([])
    try:
        for parent, controllers in found.parents:
            folder = parent / name
            folder.mkdir()
            group.folders.append(folder)
            for controller in controllers:
                for file, value in limits[controller]:
                    # Swap has no file where it is not accounted for.
                    if (folder / file).exists():
                        (folder / file).write_text(str(value))
    except OSError:
        group.close()
        return None
    return group


@functools.cache
def hierarchy() -> Hierarchy | None:
    """Where this process may make groups, tried once; groups that killed graders left behind are removed."""
    found = _version_2(Path("/proc/self/cgroup"), Path("/proc/self/mounts"))
    found = found or _version_1(Path("/proc/self/cgroup"), Path("/proc/self/mounts"))
    if found is not None:
        for parent, _ in found.parents:
            _sweep(parent)
    return found


def _mounts(mounts: Path) -> Iterator[tuple[Path, str, set[str]]]:
    """(place, type, options) of each mounted file system."""
    for line in mounts.read_text().splitlines():
        _, place, kind, options, *_ = line.split(" ")
        yield Path(place), kind, set(options.split(","))


def _own(groups: Path) -> dict[str, str]:
    """This process's group by controller; that of version 2 by ""."""
    rows = (line.split(":", 2) for line in groups.read_text().splitlines())
    return {controller: path.lstrip("/") for _, controllers, path in rows for controller in controllers.split(",")}


def _version_2(groups: Path, mounts: Path) -> Hierarchy | None:
    with suppress(OSError, ValueError, StopIteration, KeyError):
        place = next(place for place, kind, _ in _mounts(mounts) if kind == "cgroup2")
        own = place / _own(groups)[""]
        parent = own.parent if own.name == _LEAF else own
        if {"memory", "pids"} <= set((parent / "cgroup.controllers").read_text().split()):
            if not _delegates(parent):
                _move_into_leaf(parent)
                (parent / "cgroup.subtree_control").write_text("+memory +pids")
            return _tried(Hierarchy(2, ((parent, ("memory", "pids")),)))
    return None


def _delegates(parent: Path) -> bool:
    return {"memory", "pids"} <= set((parent / "cgroup.subtree_control").read_text().split())


def _move_into_leaf(parent: Path) -> None:
    """Leave a group for one below it. Raises PermissionError where the group is not this grader's alone."""
    members = _processes(parent)
    if os.getpid() in members and not all(_is_ours(pid) for pid in members):
        raise PermissionError(f"{parent} is shared with processes that are not the grader's")
    if os.getpid() in members:
        (parent / _LEAF).mkdir(exist_ok=True)
        for pid in members:
            (parent / _LEAF / "cgroup.procs").write_text(str(pid))


def _is_ours(pid: int) -> bool:
    """Whether a process is of this session, as what was started together with the grader is."""
    try:
        return os.getsid(pid) == os.getsid(0) or pid == os.getppid()
    except ProcessLookupError:
        return True


def _version_1(groups: Path, mounts: Path) -> Hierarchy | None:
    with suppress(OSError, ValueError, StopIteration, KeyError):
        parents = []
        own = _own(groups)
        for controller in ("memory", "pids"):
            place = next(p for p, kind, options in _mounts(mounts) if kind == "cgroup" and controller in options)
            folder = place / own[controller]
            # In a container the path may be that of the machine, of which only a part is mounted.
            parents.append((folder if folder.is_dir() else place, (controller,)))
        return _tried(Hierarchy(1, tuple(parents)))
    return None


def _tried(found: Hierarchy) -> Hierarchy:
    """The same, if groups can be made there. Raises OSError where they cannot."""
    for parent, controllers in found.parents:
        trial = parent / f"{_PREFIX}{os.getpid()}-trial"
        trial.mkdir()
        try:
            limits = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
            for controller in controllers:
                if not any((trial / name).exists() for name in limits[controller]):
                    raise FileNotFoundError(controller)
        finally:
            trial.rmdir()
    return found


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}[0-9]*-*"):
        maker = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", maker).exists():
            _removed(folder)


def _processes(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def advice() -> str:
    """How to have groups where there are none."""
    if shutil.which("systemd-run"):
        return "start the grader with: systemd-run --user --scope -p Delegate=yes convladder grade …"
    return "in a container, give it a writable /sys/fs/cgroup"
