"""Compares the answers of one or several classes with each other and with the ladder, task by task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...kernels.errors import BackendError, ConvladderError
from ...kernels.methods import ladder_source
from ..judge import spec as specs
from ..judge import submission
from ..judge.spec import KernelTask, PythonTask
from . import build, similarity
from .collect import find_submissions
from .course import Course
from .similarity import Pair


def classes(lab: str, folders: Sequence[Path], course: Course | None = None) -> Iterator[Pair]:
    """The alike pairs of every kernel and python task; of several classes, students are named with their folder.

    Raises GradingError where a folder holds no submission. A notebook that cannot be read is left out.
    """
    spec = specs.load(lab) if course is None else course.spec(lab)
    answers: dict[str, dict[str, str]] = {}
    for folder in folders:
        for entry in find_submissions(folder, lab)[0]:
            if entry.notebook is None:
                continue
            try:
                read = submission.read(entry.notebook, spec)
            except submission.SubmissionError:
                continue
            who = entry.student if len(folders) == 1 else f"{folder.name}/{entry.student}"
            for name, answer in read.answers.items():
                answers.setdefault(name, {})[who] = answer.text
    released = _released(lab, course)
    for task in spec.tasks:
        if isinstance(task, KernelTask | PythonTask) and task.name in answers:
            rung = {f"the ladder's {name}": text for name, text in _rung(task)}
            yield from similarity.alike(task.name, {**answers[task.name], **rung}, released.get(task.name, ()))


def _released(lab: str, course: Course | None) -> dict[str, list[str]]:
    """What the released notebook hands out, by task; nothing where the sources are not there."""
    try:
        cells = build.build_lab(lab, course=course).cells
    except (ConvladderError, OSError):
        return {}
    return {cell.id: [cell.source.partition("\n")[2]] for cell in cells if cell.cell_type == "code"}


def _rung(task: KernelTask | PythonTask) -> Iterator[tuple[str, str]]:
    if isinstance(task, KernelTask) and task.ladder is not None:
        try:
            yield task.ladder, ladder_source(task.ladder)
        except BackendError:  # not in this installation
            return
