"""Reads a student's notebook: the text of each task's answer, and what is wrong with the notebook itself.

A notebook is data here. Nothing in it is executed, and only the answer cells matter:

    kernel task                     a code cell whose first line is `%%cuda TASK`
    python, generator, number task  a code cell whose first line is `%%answer TASK`
    explain task                    a markdown cell whose nbgrader grade_id, or whose cell id, is TASK

Everything else may be deleted, edited, executed or broken without any consequence, but for the metadata that says which
release of the lab the notebook is of (edition.py): an answer to a task that asked for something else is not judged.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convladder.kernels.errors import ConvladderError

from . import edition
from .edition import Edition
from .spec import ExplainTask, Spec, Task

#: A notebook with pictures in its outputs has some megabytes.
MAX_BYTES = 64 << 20
#: The longest solution of a lab has some thousand characters.
MAX_ANSWER = 100_000
MAX_CELLS = 5000

_MAGIC = re.compile(r"%%(?P<magic>cuda|answer)\b[ \t]*(?P<task>\S*)[ \t]*(?P<rest>.*)$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
#: What a released explain cell says before the student writes.
_PLACEHOLDER = re.compile(r"\A\s*[*_]*\(?(write )?your (answer|words)( here)?[.…]*\)?[*_]*", re.IGNORECASE)


class SubmissionError(ConvladderError):
    """The file cannot be judged at all. The message says why and what the student can do."""


@dataclass(frozen=True)
class Answer:
    """One task's text without its magic line.

    cell        number of the cell in the notebook, 1-based; None for text that did not come from a notebook
    first_line  line of the cell on which `text` begins: 2 below a magic line
    """

    text: str
    cell: int | None = None
    first_line: int = 2

    def source(self) -> str:
        """The text with its lines where they are in the cell, so that every message has the cell's line numbers."""
        return "\n" * (self.first_line - 1) + self.text

    def line(self, number: int) -> str:
        """The text of one of the cell's lines, "" where there is none."""
        lines = self.text.split("\n")
        index = number - self.first_line
        return lines[index].strip() if 0 <= index < len(lines) else ""

    def where(self) -> str:
        return "the cell" if self.cell is None else f"cell {self.cell}"


@dataclass(frozen=True)
class Submission:
    """What a student handed in. `problems` are about the notebook; each names a cell and what to do.

    release  of the lab that the notebook says it is of; "" where it says nothing
    """

    path: Path
    sha256: str
    answers: dict[str, Answer] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    release: str = ""


def read(path: Path | str, spec: Spec) -> Submission:
    """Read a notebook file of format 4, or an older one. Raises SubmissionError where nothing in it can be judged."""
    path = Path(path)
    data = _bytes(path)
    notebook = _notebook(data, path)
    cells = _cells(notebook, path)
    answers, problems = _answers(cells, spec)
    written_for = _edition(notebook, spec)
    refused = _of_another_release(answers, problems, written_for, edition.of(spec))
    if not answers and not refused:
        hint = (
            problems[0] if problems else f"an answer begins with `%%cuda TASK`, such as `%%cuda {spec.tasks[0].name}`"
        )
        raise SubmissionError(
            f"{path.name} has no answer cell of {spec.lab}: {hint}. Was another lab's notebook handed in?"
        )
    for task in spec.tasks:
        if task.name not in answers and task.name not in refused:
            problems.append(
                f"there is no cell for {task.name}: take the cell `{_first_line(task)}` from the released notebook"
            )
    release = written_for.release if written_for is not None else ""
    return Submission(path, hashlib.sha256(data).hexdigest(), answers, problems, release)


def release_of(path: Path) -> str:
    """The release of the lab that a notebook says it is of; "" where it says nothing, or cannot be read."""
    try:
        found = edition.told(_notebook(_bytes(path), path).get("metadata"))
    except SubmissionError:
        return ""
    return found.release if found is not None else ""


def _edition(notebook: dict[str, Any], spec: Spec) -> Edition | None:
    """What the notebook says of itself, unless that is another lab's."""
    found = edition.told(notebook.get("metadata"))
    return found if found is not None and found.lab == spec.lab else None


def _of_another_release(
    answers: dict[str, Answer], problems: list[str], written_for: Edition | None, present: Edition
) -> list[str]:
    """Take out the answers to tasks that asked for something else in the notebook's release, and name them."""
    if written_for is None:
        return []
    refused = [name for name in answers if written_for.changed(name, present)]
    problems += [
        f"{answers.pop(name).where()} ({name}) is of release {written_for.release}, in which this task asked for "
        f"something else than in release {present.release}, so it was not judged: put your answer into the cell of the "
        "present notebook, and hand that one in"
        for name in refused
    ]
    return refused


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SubmissionError(f"{path.name} cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise SubmissionError(
            f"{path.name} has more than {MAX_BYTES >> 20} MiB: clear its outputs (Edit, Clear Outputs of All Cells) "
            "and save it"
        )
    if not data.strip():
        raise SubmissionError(f"{path.name} is empty: save the notebook in JupyterLab and hand it in again")
    return data


def _notebook(data: bytes, path: Path) -> dict[str, Any]:
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SubmissionError(f"{path.name} is not a text file in UTF-8, so it is no notebook") from None
    except (ValueError, RecursionError) as error:
        raise SubmissionError(
            f"{path.name} is not JSON ({error}): it was cut off, or edited outside of JupyterLab"
        ) from None
    if not isinstance(notebook, dict) or type(notebook.get("nbformat")) is not int:
        raise SubmissionError(f"{path.name} is JSON, but not a notebook: it has no `nbformat`")
    if notebook["nbformat"] < 4:
        notebook = _upgraded(notebook, path)
    if notebook["nbformat"] != 4:
        raise SubmissionError(f"{path.name} has notebook format {notebook['nbformat']}: save it as format 4")
    return notebook


def _upgraded(notebook: dict[str, Any], path: Path) -> dict[str, Any]:
    import nbformat  # only old notebooks need it, and it takes long to import

    try:
        return json.loads(nbformat.writes(nbformat.convert(nbformat.from_dict(notebook), 4)))
    except Exception:  # nbformat raises whatever the broken notebook makes it stumble over
        old = notebook["nbformat"]
        raise SubmissionError(
            f"{path.name} says that it has notebook format {old}, and is no such notebook: save it again in JupyterLab"
        ) from None


@dataclass(frozen=True)
class _Cell:
    number: int
    kind: str
    text: str
    ids: tuple[str, ...]


def _cells(notebook: dict[str, Any], path: Path) -> list[_Cell]:
    listed = notebook.get("cells")
    if not isinstance(listed, list):
        raise SubmissionError(f"{path.name} is no notebook: it has no list of cells")
    if len(listed) > MAX_CELLS:
        raise SubmissionError(f"{path.name} has {len(listed)} cells: more than {MAX_CELLS} are not read")
    return [_cell(number, cell) for number, cell in enumerate(listed, 1) if isinstance(cell, dict)]


def _cell(number: int, cell: dict[str, Any]) -> _Cell:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    if not isinstance(source, str):
        source = ""
    # Lone surrogates are legal in JSON and in no other text; the compiler would stumble over them.
    text = source.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    ids = tuple(i for i in (grade_id, cell.get("id")) if isinstance(i, str))
    return _Cell(number, str(cell.get("cell_type")), text, ids)


def _first_line(task: Task) -> str:
    if isinstance(task, ExplainTask):
        return f"answer {task.name}"
    return f"%%{task.magic} {task.name}"


def _answers(cells: list[_Cell], spec: Spec) -> tuple[dict[str, Answer], list[str]]:
    answers: dict[str, Answer] = {}
    problems: list[str] = []
    tasks, off = {t.name: t for t in spec.tasks}, {t.name for t in spec.off}
    for cell in cells:
        found = _marked(cell, tasks, off, problems) if cell.kind == "code" else _explained(cell, tasks)
        if found is None:
            continue
        name, answer = found
        if name in answers:
            problems.append(
                f"{name} has two cells, cell {answers[name].cell} and cell {cell.number}: delete one. "
                f"Cell {cell.number}, the last one, was judged"
            )
        if len(answer.text) > MAX_ANSWER:
            problems.append(
                f"cell {cell.number} ({name}) has {len(answer.text)} characters: at most {MAX_ANSWER} are judged. "
                "Shorten it"
            )
            continue
        answers[name] = answer
    return answers, problems


def _marked(cell: _Cell, tasks: dict[str, Task], off: set[str], problems: list[str]) -> tuple[str, Answer] | None:
    """The answer of a code cell that begins with a magic line."""
    lines = cell.text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    match = _MAGIC.match(lines[first].strip())
    if match is None:
        return None
    name = match["task"]
    if name in off:  # the notebook has its cell, and nobody asks for it
        return None
    task = tasks.get(name)
    if task is None or isinstance(task, ExplainTask):
        close = difflib.get_close_matches(name, list(tasks), 1)
        fix = f"did you mean {close[0]}?" if close else f"the tasks are {', '.join(tasks)}"
        problems.append(
            f"cell {cell.number} begins with `{lines[first].strip()[:80]}`, which names no such task: {fix}"
        )
        return None
    wanted = _first_line(task)
    if not wanted.startswith(f"%%{match['magic']} ") or match["rest"]:
        problems.append(
            f"cell {cell.number} begins with `{lines[first].strip()[:80]}`: its first line must be `{wanted}`"
        )
        if not wanted.startswith(f"%%{match['magic']} "):
            return None
    return name, Answer("\n".join(lines[first + 1 :]), cell.number, first + 2)


def _explained(cell: _Cell, tasks: dict[str, Task]) -> tuple[str, Answer] | None:
    for name in cell.ids:
        if cell.kind == "markdown" and isinstance(tasks.get(name), ExplainTask):
            return name, Answer(written(cell.text), cell.number, 1)
    return None


def written(text: str) -> str:
    """What a student wrote into an explain cell: without comments and without the placeholder."""
    return _PLACEHOLDER.sub("", _COMMENT.sub("", text)).strip()
