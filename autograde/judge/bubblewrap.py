"""The command line that starts a zygote inside bubblewrap: what its workers see, and as whom they run.

Inside, the interpreter keeps its path, and the packages that the worker's role needs stand in one folder,
`/env`. Everything else of this machine is absent, but for the system's libraries, read-only. `layout` says
what is shown; `command` turns that into arguments, and into a start as an unprivileged user where the grader is root.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Role = Literal["kernel", "python"]

#: The packages of each role; the kernel role's last ones are for a GPU and bound where they are installed.
PACKAGES: dict[Role, tuple[str, ...]] = {
    "python": ("numpy", "numpy.libs"),
    "kernel": ("numpy", "numpy.libs", "llvmlite", "llvmlite.libs", "cuda", "nvidia"),
}
GPU_PACKAGES = ("cupy", "cupyx", "cupy_backends", "fastrlock")

#: An account that nobody logs in with and no service uses; it owns nothing.
UNPRIVILEGED_UID = 60_999

#: Where root's mount namespace shows the sandbox's user what it may bind: the first that hides none of it.
_STAGES = ("/mnt", "/media", "/srv", "/opt")

_STAGE_SCRIPT = """
stage=$1; shift
mount -t tmpfs -o mode=0755,size=1m stage "$stage"
n=0
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir "$stage/$n"; else : > "$stage/$n"; fi
    mount --rbind "$1" "$stage/$n"
    n=$((n + 1)); shift
done
shift
exec "$@"
"""

#: The zygote's bootstrap: only /env is searched for packages, and for the libraries of the NVIDIA wheels.
_BOOTSTRAP = (
    "import site, sys, runpy; site.PREFIXES[:] = ['/env']; sys.prefix = sys.exec_prefix = '/env'; "
    "sys.path[:] = [p for p in sys.path if 'packages' not in p] + site.getsitepackages(); "
    "sys.argv[0] = 'zygote'; runpy.run_module('convladder.autograde.judge.zygote', run_name='__main__')"
)


@dataclass
class Layout:
    """What a sandbox shows: `binds` as (path outside, path inside), read-only; `masks` are folders shown empty."""

    binds: list[tuple[Path, str]] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)
    devices: list[Path] = field(default_factory=list)

    def bind(self, outside: Path, inside: str | None = None) -> None:
        if outside.exists():
            self.binds.append((outside, inside or str(outside)))


def site_packages() -> str:
    """Where packages stand inside the sandbox."""
    return f"/env/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@functools.cache
def layout(role: Role, gpu: bool) -> Layout:
    """What a worker of this role must see, and nothing more."""
    shown = Layout()
    for name in ("/usr/lib", "/usr/lib64", "/usr/lib32"):
        shown.bind(Path(name))
    shown.bind(Path("/etc/ld.so.cache"))
    _add_interpreter(shown)
    packages = PACKAGES[role] + (GPU_PACKAGES if gpu and role == "kernel" else ())
    for package in packages:
        for folder in _package_folders(package):
            shown.bind(folder, f"{site_packages()}/{package}")
    _add_own_code(shown, role)
    if gpu and role == "kernel":
        for name in ("/sys", "/usr/local/nvidia", "/usr/local/cuda"):
            shown.bind(Path(name))
        shown.devices = sorted(p for p in Path("/dev").glob("nvidia*") if p.is_char_device())
        shown.devices += [p for p in (Path("/dev/dxg"),) if p.exists()]  # the GPU of WSL2
        for extra in _distribution_records("cupy"):
            shown.bind(extra, f"{site_packages()}/{extra.name}")
    return shown


def _add_interpreter(shown: Layout) -> None:
    base = Path(sys.base_prefix)
    if base == Path("/usr"):
        shown.bind(Path("/usr/bin"))
    else:
        shown.bind(base)
    # What is installed beside the interpreter may be this very course.
    installed = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_prefix})
    beside = {Path(installed[k]) for k in ("purelib", "platlib")} | {Path("/usr/lib/python3/dist-packages")}
    shown.masks += sorted(str(p) for p in beside if p.is_dir() and _is_shown(shown, p))


def _is_shown(shown: Layout, path: Path) -> bool:
    return any(path.is_relative_to(outside) for outside, inside in shown.binds if str(outside) == inside)


def _package_folders(package: str) -> list[Path]:
    """Where a package lies. Its `.libs` folder, which is no package, stands beside it."""
    name = package.removesuffix(".libs")
    spec = importlib.util.find_spec(name)
    found = [Path(p).resolve() for p in (spec.submodule_search_locations or ())] if spec else []
    if package != name:
        found = [p.parent / package for p in found]
    return [p for p in found[:1] if p.is_dir()]


def _distribution_records(prefix: str) -> list[Path]:
    """The *.dist-info folders of a package, which CuPy reads when it is imported."""
    folders = _package_folders(prefix)
    return sorted(p for f in folders for p in f.parent.glob(f"{prefix}*.dist-info"))


def _add_own_code(shown: Layout, role: Role) -> None:
    """The zygote, the worker and their helpers; for kernels also convladder.kernels, without the ladder's answers.

    None of our `__init__` files is shown but that of `kernels`: without them the folders are plain
    namespaces, and importing them imports nothing else.
    """
    here = Path(__file__).resolve().parent
    own = f"{site_packages()}/convladder"
    for name in ("zygote.py", "namespaces.py", "worker.py", "frames.py", "values.py"):
        shown.bind(here / name, f"{own}/autograde/judge/{name}")
    if role == "kernel":
        import convladder.kernels

        for folder in convladder.kernels.__path__:
            shown.bind(Path(folder).resolve(), f"{own}/kernels")
            if Path(folder, "ladder").is_dir():
                shown.masks.append(f"{own}/kernels/ladder")


def command(role: Role, gpu: bool, tmp_bytes: int, divided: bool) -> list[str]:
    """The whole command line of a sandboxed zygote.

    divided  whether its workers get namespaces of their own: only then may the sandbox make some
    """
    return wrapped(role, gpu, tmp_bytes, [_interpreter(), "-I", "-S", "-c", _BOOTSTRAP, role], divided)


def probe(role: Role) -> list[str]:
    """A command that only shows whether a sandbox can be had at all."""
    return wrapped(role, False, 1 << 20, [_interpreter(), "-I", "-S", "-c", "print('inside')"])


def _interpreter() -> str:
    """The interpreter itself: a virtual environment's is a link to it."""
    return os.path.realpath(sys.executable)


def wrapped(role: Role, gpu: bool, tmp_bytes: int, inner: list[str], divided: bool = False) -> list[str]:
    shown = layout(role, gpu)
    if os.geteuid() != 0:
        return [*_bwrap(shown, [str(outside) for outside, _ in shown.binds], tmp_bytes, divided), "--", *inner]
    sources = [str(outside) for outside, _ in shown.binds]
    stage = next((s for s in _STAGES if Path(s).is_dir() and not any(_inside(p, s) for p in sources)), _STAGES[0])
    staged = [f"{stage}/{i}" for i in range(len(sources))]
    user = str(UNPRIVILEGED_UID)
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    become += ["--inh-caps=-all", "--bounding-set=-all", "--"]
    enter = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", _STAGE_SCRIPT, "sh", stage]
    return [*enter, *sources, "--", *become, *_bwrap(shown, staged, tmp_bytes, divided), "--", *inner]


def _inside(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _bwrap(shown: Layout, sources: Sequence[str], tmp_bytes: int, divided: bool) -> list[str]:
    small = str(1 << 20)
    args = [shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user"]
    args += [] if divided else ["--disable-userns"]  # `namespaces.settle` then sees to it
    args += ["--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    args += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    args += ["--proc", "/proc"]
    args += [] if divided else ["--ro-bind", "/proc/sys", "/proc/sys"]
    args += ["--dev", "/dev", "--size", small, "--tmpfs", "/dev/shm"]
    for device in shown.devices:
        args += ["--dev-bind", str(device), str(device)]
    args += ["--remount-ro", "/dev", "--size", str(tmp_bytes), "--tmpfs", "/tmp"]
    for name in ("bin", "lib", "lib64", "lib32"):
        path = Path("/", name)
        if path.is_symlink():
            args += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir() and name != "bin":
            args += ["--ro-bind", str(path), str(path)]
    for source, (_, inside) in zip(sources, shown.binds, strict=True):
        args += ["--ro-bind", source, inside]
    for folder in shown.masks:
        args += ["--size", small, "--tmpfs", folder, "--remount-ro", folder]
    args += ["--remount-ro", "/", "--chdir", "/tmp"]
    for name, value in environment().items():
        args += ["--setenv", name, value]
    return args


def environment() -> dict[str, str]:
    """The worker's whole environment inside the sandbox."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    visible = {k: v for k in ("CUDA_VISIBLE_DEVICES",) if (v := os.environ.get(k)) is not None}
    return {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "XDG_CACHE_HOME": "/tmp/.cache",
        "CUPY_CACHE_DIR": "/tmp/.cupy",
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **one_thread,
        **visible,
    }
