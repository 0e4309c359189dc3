"""What students get: the labs, and a wheel that checks them but holds no rung, no answer and no hidden case.

The wheel is built from a copy of the sources without what gives an answer away. Where a check compares a student's
counters with those of a rung, it carries the rung's counters on the public cases instead of the rung.
Before anything is handed over, every file of the bundle is searched for the labs' answers and hidden cases.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from convladder import __version__
from convladder.kernels import rungs
from convladder.kernels.errors import ConvladderError

from ..judge import counting, kernel_task
from ..judge import spec as specs
from ..judge.spec import Case, KernelTask, NumberTask, Spec, Target, Threshold
from . import answer_key, build
from .course import Course

#: What of the sources no student's wheel holds.
LEFT_OUT = (
    "kernels/ladder/*.cu",
    "autograde/specs/*.hidden.toml",
    "autograde/records/*.class.json",
    "autograde/records/*.notebook.json",
    "**/__pycache__",
)

#: What checks compare answers in Python with: these hold such an answer, and no check could do without them.
REFERENCES = ("convladder/kernels/layouts.py", "convladder/kernels/occupancy.py")

#: The rungs whose registers and shared memory lab 03_cudnn counts.
_LOOKED_INTO = ("im2col", "gemv", "gemm_shared", "gemm_float4", "gemm_blocked", "gemm_buffered")

_SOURCES = ("src", "kernels", "autograde")
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


class ReleaseError(ConvladderError):
    """A bundle cannot be made, or would give something away."""


@dataclass(frozen=True)
class Leak:
    """A line of an answer, or a hidden case, in a file of the bundle."""

    file: str
    what: str


def release(dest: Path, root: Path | None = None, course: Course | None = None) -> list[Path]:
    """Write DEST/students (labs and wheel), DEST/rules and DEST/CHECKLIST.md, and say what was written.

    course  whose points, deadlines and left-out tasks hold; its hidden cases stay out like any others
    Raises ReleaseError where DEST is not empty, where no wheel can be built, or where the bundle would give an answer
    away; then nothing is left in DEST.
    """
    root = root or build.ROOT
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise ReleaseError(f"{dest} is not empty: choose another folder, or remove it")
    with tempfile.TemporaryDirectory(prefix="convladder-") as folder:
        bundle = Path(folder, "students")
        own = course.own() if course is not None else []
        labs = sorted({*build.labs(root), *own})
        for lab in labs:
            path = bundle / "labs" / lab / f"{lab}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(build.serialise(build.build_lab(lab, root, course)), encoding="utf-8", newline="\n")
            if course is not None and lab in own:
                build.copy_spec(course, lab, path.parent)
        (bundle / "labs" / "syllabus.md").write_text(build.syllabus(root), encoding="utf-8")
        tree = Path(folder, "tree")
        _copy_sources(root, tree)
        wheel = _wheel(tree, bundle)
        (bundle / "constraints.txt").write_text(_constraints(root), encoding="utf-8")
        (bundle / "README.md").write_text(_filled("students.md", wheel=wheel.name), encoding="utf-8")
        if found := list(leaks(bundle, root, course)):
            told = "; ".join(f"{leak.file}: {leak.what}" for leak in found[:5])
            raise ReleaseError(f"the bundle would give away {len(found)} lines or cases, among them {told}")
        shutil.copytree(bundle, dest / "students")
    _keep_rules(labs, course, dest / "rules")
    named = ", ".join(f"`{lab}`" for lab in labs)
    checklist = dest / "CHECKLIST.md"
    checklist.write_text(_filled("checklist.md", wheel=wheel.name, labs=named, version=__version__), encoding="utf-8")
    return sorted(path for path in dest.rglob("*") if path.is_file())


def _keep_rules(labs: Sequence[str], course: Course | None, dest: Path) -> None:
    """What this release is judged by, for when the labs are others: course.toml's `releases` names the folder."""
    dest.mkdir()
    for lab in labs:
        spec = specs.load(lab) if course is None else course.spec(lab)
        hidden = spec.path.with_name(f"{lab}.hidden.toml")
        if course is not None and course.hidden and (course.hidden / hidden.name).is_file():
            hidden = course.hidden / hidden.name
        for path in (spec.path, hidden):
            if path.is_file():
                shutil.copy(path, dest / path.name)


def _copy_sources(root: Path, tree: Path) -> None:
    """The package's sources as students may have them."""
    for name in _SOURCES:
        shutil.copytree(root / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(root / name, tree)
    (tree / "README.md").write_text(_filled("students.md", wheel="the wheel"), encoding="utf-8")
    for pattern in LEFT_OUT:
        for path in list(tree.glob(pattern)):
            path.unlink()
    carried = {"autograde": (counting.CARRIED, rung_counters()), "kernels": (rungs.CARRIED, rung_takings())}
    for folder, (path, content) in carried.items():
        written = tree / folder / "records" / path.name
        written.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


def _wheel(tree: Path, dest: Path) -> Path:
    made = subprocess.run([sys.executable, "-c", _BUILD, str(dest)], cwd=tree, capture_output=True, text=True)
    if made.returncode:
        last = (made.stderr.strip().splitlines() or ["no message"])[-1]
        raise ReleaseError(f"the wheel cannot be built ({last}): `pip install 'setuptools>=77'`")
    (wheel,) = dest.glob("*.whl")
    return wheel


def _constraints(root: Path) -> str:
    """The versions that the package is tested with: students check with what the grader has."""
    path = root / "constraints.txt"
    if not path.is_file():
        raise ReleaseError(f"{path} is missing, and students would get untried versions: `make lock` writes it")
    return path.read_text(encoding="utf-8")


def _filled(name: str, **values: str) -> str:
    text = (Path(__file__).parent / "handed_out" / name).read_text(encoding="utf-8")
    return Template(text).substitute(values)


# ---- in place of the rungs


def rung_counters() -> dict[str, Mapping[str, int | float]]:
    """Of every rung that a public check compares with, its counters on that check's case."""
    found: dict[str, Mapping[str, int | float]] = {}
    for spec in map(specs.load, specs.names()):
        for task, rung, case, seed in _compared(spec):
            assert task.problem is not None
            key = counting.carried_key(rung, task.problem.name, case.symbols.items(), seed)
            found[key] = counting.rung_numbers(rung, task.problem, case.symbols, seed)
    return found


def rung_takings() -> dict[str, dict[str, Any]]:
    """What the rungs that lab 3 looks into take of a GPU, each as the fields of Resources."""
    return {name: asdict(rungs.rung_resources(name)) for name in _LOOKED_INTO}


def _compared(spec: Spec) -> Iterator[tuple[KernelTask | NumberTask, str, Case, int]]:
    for task in (*spec.tasks, *spec.off):
        if isinstance(task, NumberTask) and task.rung and task.case:
            yield task, task.rung, task.case, 0
        elif isinstance(task, KernelTask):
            compared: list[Threshold | Target] = [*task.counters, *([task.target] if task.target else [])]
            for by in compared:
                case = task.case(by.case)
                seed = kernel_task.seed(kernel_task.PUBLIC_SECRET, spec.lab, task.name, case.name)
                for rung in (by.base, by.target):
                    if rung and not case.hidden:
                        yield task, rung, case, seed


# ---- nothing given away


def leaks(bundle: Path, root: Path | None = None, course: Course | None = None) -> Iterator[Leak]:
    """Lines of graded answers, of their reasoning and hidden cases in a bundle's files, those in its wheels too."""
    graded = [lab for lab in build.labs(root) if specs.load(lab).graded]
    answers = {line: lab for lab in graded for line in build.answer_lines(lab, root)}
    secret = _hidden_cases(root or build.ROOT, course)
    reasons = {line: lab for lab in graded for line in answer_key.written_lines(lab, root)}
    for name, text in texts(bundle):
        if name.endswith(".hidden.toml") or "/ladder/" in name:
            yield Leak(name, "is no file for students")
        bare = re.sub(r"\s+", "", text)
        if not name.endswith(REFERENCES):
            yield from (Leak(name, f"an answer of {lab}: {line}") for line, lab in answers.items() if line in bare)
        yield from (Leak(name, f"the answer key of {lab}: {line}") for line, lab in reasons.items() if line in bare)
        yield from (Leak(name, f"a hidden case: {line}") for line in secret if line in bare)


def _hidden_cases(root: Path, course: Course | None) -> set[str]:
    """The lines of the hidden cases that say their data, without spaces: the repository's and the course's."""
    folders = [root / "autograde" / "specs"]
    folders += [f for f in (course.own_labs, course.hidden) if f is not None] if course is not None else []
    lines = (
        re.sub(r"\s+", "", line.partition("#")[0])
        for folder in folders
        for path in folder.glob("*.hidden.toml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"name\s*=", line)
    )
    public = "".join(
        re.sub(r"\s+", "", path.read_text(encoding="utf-8"))
        for folder in folders
        for path in folder.glob("*.toml")
        if not path.name.endswith(".hidden.toml")
    )
    return {line for line in lines if line and line not in public}


def texts(bundle: Path) -> Iterator[tuple[str, str]]:
    """Every file of a bundle as (name, text); of a notebook what its cells say."""
    for path in sorted(p for p in bundle.rglob("*") if p.is_file()):
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                for member in wheel.namelist():
                    yield f"{path.name}/{member}", wheel.read(member).decode("utf-8", errors="replace")
        else:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".ipynb":
                text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
            yield str(path.relative_to(bundle)), text
