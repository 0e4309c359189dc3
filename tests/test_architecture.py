"""The import rule of the house, read from the sources themselves.

faces -> course -> judge -> kernels, never back; inside kernels each module sees only those below it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted([*(ROOT / "kernels").rglob("*.py"), *(ROOT / "autograde").rglob("*.py")])

#: Floors of the grader, the lowest first. Each uses only those below it, and itself.
FLOORS = ("kernels", "judge", "course", "faces")

#: Floors inside kernels, the lowest first; a module that is not named here has no place yet.
KERNEL_FLOORS = (
    {"errors", "result"},
    {"oracle", "layouts", "signature", "expression", "workloads"},
    {"arguments", "module", "compiler", "sim", "engine", "gpu", "resources", "occupancy"},
    {"launch", "plan", "rungs"},
    {"measure", "stopwatch", "lowering", "activity", "trace"},
    {"cudnn", "cublas", "cusparse", "codegen", "recorded"},
    {"methods", "net"},
    {"bench"},
)


def module_name(path: Path) -> str:
    parts = ["convladder", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in MODULES}


def resolve(module: str, path: Path, node: ast.ImportFrom) -> str:
    """The absolute name that a `from ... import` names."""
    if node.level == 0:
        return node.module or ""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def imported(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Modules of the project that a file imports; imports for type checkers do not count."""
    module = module_name(path)
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in _running(tree, top_level_only):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve(module, path, node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in NAMES else base


def _running(node: ast.AST, top_level_only: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if top_level_only and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield child
        yield from _running(child, top_level_only)


def floor(module: str) -> int | None:
    """Which floor of the house a module stands on; None for `convladder` and `convladder.autograde`."""
    parts = module.split(".")
    if parts[1:2] == ["kernels"]:
        return 0
    return FLOORS.index(parts[2]) if len(parts) > 2 and parts[2] in FLOORS else None


def kernel_part(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["convladder", "kernels"] and len(parts) > 2 else None


@pytest.mark.parametrize("name", NAMES)
def test_a_module_imports_only_from_its_own_floor_and_those_below(name: str) -> None:
    own = floor(name)
    above = [
        other
        for other in imported(NAMES[name])
        if own is not None and other.startswith("convladder.") and (floor(other) or 0) > own
    ]
    assert not above, f"{name} imports {above}: faces -> course -> judge -> kernels, never back"


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("convladder.kernels")])
def test_kernels_know_nothing_of_the_grader(name: str) -> None:
    assert not [other for other in imported(NAMES[name]) if other.startswith("convladder.autograde")]


@pytest.mark.parametrize("name", [n for n in NAMES if kernel_part(n)])
def test_inside_kernels_a_module_imports_only_from_its_own_floor_and_those_below(name: str) -> None:
    heights = {part: height for height, parts in enumerate(KERNEL_FLOORS) for part in parts}
    part = kernel_part(name)
    assert part in heights, f"{part} has no floor: give it one in KERNEL_FLOORS and in the design"
    others = {kernel_part(other) for other in imported(NAMES[name])} - {None, part}
    assert not [other for other in others if heights.get(str(other), 99) > heights[str(part)]]


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: {o for o in imported(path, top_level_only=True) if o in NAMES} for name, path in NAMES.items()}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in graph[name] - {name}:
                walk(other, (*trail, name))
            done.add(name)

    for name in graph:
        walk(name, ())


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_nothing_imports_labs_or_solutions(path: Path) -> None:
    roots = {other.split(".")[0] for other in imported(path)}
    assert not roots & {"labs", "solutions", "tests"}
    assert not [o for o in imported(path) if o.startswith(("convladder.labs", "convladder.solutions"))]


MACHINE_PATH = re.compile(r"(?<![\w.])/(home/\w+|work/|root/|Users/\w+|mnt/\w+|scratch/)|[A-Z]:\\\\?Users")
TEXT_SUFFIXES = {".py", ".cu", ".cuh", ".toml", ".md", ".txt", ".ipynb", ".j2", ".css", ".json", ".cfg", ".yml", ""}


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: the list of the project's own files is unknown")
    files = [ROOT / line for line in listed.stdout.splitlines()]
    return [f for f in files if f.is_file() and not f.is_symlink() and f.suffix in TEXT_SUFFIXES]


def test_no_file_names_a_path_of_one_machine() -> None:
    own = Path(__file__).resolve()
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        if path != own
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "is_machine_path"),
    [
        ("open('/home/ada/labs')", True),
        ("C:\\Users\\ada", True),
        ("/usr/bin/python3", False),
        ("/scratch/ada/x", True),
        ("framework/x", False),
        ("https://example.org/home/ada", False),
    ],
)
def test_machine_paths_are_told_from_others(line: str, is_machine_path: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is is_machine_path


def test_importing_the_grader_leaves_out_notebooks_and_pages() -> None:
    """A worker imports convladder.autograde for every submission: that must stay light."""
    heavy = ["IPython", "jinja2", "rich", "click", "nbformat", "matplotlib"]
    code = f"import sys, convladder.autograde; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_what_a_notebook_and_the_command_line_load_needs_no_posix_module():
    posix = ("fcntl", "resource", "pwd", "grp", "termios")
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in posix)
    faces = ", ".join(f"convladder.autograde.faces.{name}" for name in ("magic", "report", "single", "cli"))
    code = f"import sys; {blocked}; import {faces}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
