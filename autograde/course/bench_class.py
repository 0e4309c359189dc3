"""The suite `grading` of `convladder bench`: what a class costs, beside stock nbgrader on the same notebooks."""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat

from ...kernels.bench.engine import Row
from . import build, grade
from .grade import Settings

LAB = "01_direct"
#: Submissions of the class, and those of them that nbgrader executes.
STUDENTS, EXECUTED = 200, 3
#: Submissions that the driver alone handles, and seconds that a submission may take on two cores.
DRIVEN, AT_MOST_S = 500, 0.5


def suite(policy: str, students: int = STUDENTS) -> Iterator[Row]:
    """Rows in wall time for one submission. `policy` is "bwrap" (sandboxed) or "none"."""
    with TemporaryDirectory(prefix="convladder-bench-") as top:
        folder = Path(top, "class")
        _hand_in(folder, students)
        times = {n: _graded(folder, Path(top, f"by{n}"), Settings(sandbox=policy, workers=n)) for n in (2, 1)}
        what = f"lab 01, class of {students}, 2 workers ({policy})"
        yield Row(what, times[2], (times[2], times[2]), students, at_most=AT_MOST_S)
        what = f"1 worker: fan-out to 2 has efficiency {times[1] / times[2] / 2:.2f}"
        yield Row(what, times[1], (times[1], times[1]), students)
        yield _stock(folder)
        yield _driver(Path(top), DRIVEN if students >= STUDENTS else students)


def _hand_in(folder: Path, count: int) -> None:
    """Solved notebooks, each with kernels that no other has."""
    text = build.serialise(build.solved_notebook(LAB))
    for number in range(count):
        path = folder / f"student{number:04d}" / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("float sum = 0.0f;", f"float sum = 0.0f * {number}.0f;"))


def _graded(folder: Path, out: Path, settings: Settings) -> float:
    """Seconds for one submission, from the command to the table."""
    started = time.perf_counter()
    found = grade.grade_class(LAB, folder, out, settings)
    elapsed = time.perf_counter() - started
    if any(r.score != r.max for r in found.records):
        raise AssertionError("a solved notebook did not get full marks")
    return elapsed / len(found.records)


def _stock(folder: Path) -> Row:
    """What nbgrader's autograde does with a notebook: it executes it, in a kernel of its own, one after the other."""
    from nbgrader.preprocessors import Execute

    times = []
    for path in sorted(folder.glob("*/*.ipynb"))[:EXECUTED]:
        notebook = nbformat.read(path, as_version=4)
        started = time.perf_counter()
        Execute(timeout=600, allow_errors=True).preprocess(notebook, {"metadata": {"path": str(path.parent)}})
        times.append(time.perf_counter() - started)
    mean = sum(times) / len(times)
    return Row(
        "the same notebooks, executed as stock nbgrader does, serially", mean, (min(times), max(times)), len(times)
    )


def _driver(top: Path, count: int) -> Row:
    """A class whose judging costs nothing: what is left is the driver's own work, in a process of its own."""
    folder = top / "driven"
    _hand_in(folder, count)
    known = next(iter(sorted((top / "by2" / "records").glob("*.json")))).read_text(encoding="utf-8")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        elapsed, memory = process.submit(_drive, folder, top / "driven_out", known).result()
    what = f"the driver alone, {count} submissions ({count / elapsed:.0f} a second, {memory >> 20} MiB at most)"
    return Row(what, elapsed / count, (elapsed / count,) * 2, count)


def _drive(folder: Path, out: Path, known: str) -> tuple[float, int]:
    """Seconds for a whole class, and the bytes of memory that this process had at most."""
    started = time.perf_counter()
    grade.grade_class(LAB, folder, out, Settings(workers=2), work=partial(_known, known))
    return time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _known(record: str, job: grade._Job) -> str:
    """A record that is there already, as if it were this student's."""
    return json.dumps({**json.loads(record), "student": job.entry.student, "sha256": job.digest()})
