"""From the solved labs to what students open: solutions/LAB/LAB.py and kernels/ladder -> labs/LAB/LAB.ipynb.

A lab's source is a notebook in percent format (jupytext). What its cells become:

    prose                        a markdown cell that cannot be edited
    `%%cuda TASK`, `%%answer T`  a task's edit cell; what lies between BEGIN SOLUTION and END SOLUTION becomes a stub
    explain="TASK" (markdown)    the edit cell of a task that a person grades
    `check("TASK")`              a locked grade cell that carries the task's points
    any other code               a locked given cell

In a kernel cell a line `//! ladder/NAME.cu` stands for that rung's text, less what its header says to readers of the
ladder (launch, needs, gains: often the answer). `//! stub FILE`, in a Python cell `# STUB FILE`, says that students
start from FILE, beside the source, in place of the text with its answer taken out.

Building is a function of the files: the same bytes on every machine and in every run.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

from convladder.kernels.errors import ConvladderError

from ..judge import edition, score
from ..judge import spec as specs
from ..judge.spec import Spec
from .course import Course

#: The repository that this package runs from; only there are sources to build from.
ROOT = Path(__file__).resolve().parents[2]

#: The shortest line of an answer, without its spaces, that gives the answer away where a student finds it.
DISTINCTIVE = 24

_MARK = re.compile(r"\s*(?://|#+|<!--)\s*(?P<which>BEGIN|END) SOLUTION\b(?::\s*(?P<note>.*?))?\s*(?:-->)?\s*$")
_CELL_MARK = re.compile(r"# %%(?:\s|$)")
_TASK = re.compile(r"%%(?P<magic>cuda|answer)\s+(?P<task>[A-Za-z]\w*)\s*$")
_CHECK = re.compile(r"""check\(\s*["'](?P<task>\w+)["']\s*\)\s*$""")
_DIRECTIVE = re.compile(r"(?://!\s+(?:(?P<rung>ladder/\w+\.cu)|stub\s+(?P<stub>\S+))|# STUB\s+(?P<python>\S+))\s*$")
_REMNANT = re.compile(r"(?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS|MARK SCHEME)|^\s*//!|^# STUB", re.MULTILINE)
_COMMENT = re.compile(r"(?://(?!@)|#).*")
_LADDER_HEADER = re.compile(r" \* (?:launch|needs)\b")


_KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class BuildError(ConvladderError):
    """A lab cannot be built, or its student's notebook would hold an answer. Names the file and the line."""

    def __init__(self, path: Path, line: int, message: str):
        super().__init__(f"{path}:{line}: {message}")
        self.path = path
        self.line = line


@dataclass(frozen=True)
class Line:
    """One line of a source, and where it stands."""

    text: str
    path: Path
    number: int

    def error(self, message: str) -> BuildError:
        return BuildError(self.path, self.number, message)


@dataclass(frozen=True)
class Text:
    """A cell's text in the solved and in the student's notebook, and the lines that only the solved one has."""

    solved: str
    student: str
    answer: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One cell of a lab before it becomes a notebook cell."""

    role: str  # "prose", "given", "task", "check" or "explain"
    name: str  # the cell's id, and its grade_id where nbgrader knows it
    text: Text
    place: Line
    task: str = ""


def labs(root: Path | None = None) -> list[str]:
    """The repository's labs that have a source, in their order."""
    return sorted(p.parent.name for p in _solutions(root).glob("*/*.py") if p.stem == p.parent.name)


def source_path(lab: str, root: Path | None = None, course: Course | None = None) -> Path:
    """The solved notebook that a lab is built from: the course's own, else that of the repository."""
    own = course.source(lab) if course is not None else None
    return own or _solutions(root) / lab / f"{lab}.py"


def build_lab(lab: str, root: Path | None = None, course: Course | None = None) -> NotebookNode:
    """The student's notebook of a lab, with a course's points. Raises BuildError where it would hold an answer."""
    cells, spec = _read(lab, root, course)
    notebook = _notebook(cells, spec, course)
    _refuse_answers(cells, notebook)
    return notebook


def solved_notebook(lab: str, root: Path | None = None, course: Course | None = None) -> NotebookNode:
    """The same notebook as a student hands it in who has every answer: full marks."""
    cells, spec = _read(lab, root, course)
    notebook = _notebook(cells, spec, course)
    for cell, made in zip(cells, notebook.cells):
        made.source = cell.text.solved
    return notebook


def cells(lab: str, root: Path | None = None) -> list[Cell]:
    """The cells of a lab, each with its solved and its student's text, and what of it is the answer."""
    return _read(lab, root, None)[0]


def syllabus(root: Path | None = None) -> str:
    """The page that students begin with: the labs with their links, and how to work in them."""
    found = [specs.load(lab) for lab in labs(root)]
    rows = [f"| [{spec.lab}]({spec.lab}/{spec.lab}.ipynb) | {spec.title} | {spec.minutes} |" for spec in found]
    table = "\n".join(["| lab | about | minutes |", "|---|---|---|", *rows])
    text = (Path(__file__).parent / "handed_out" / "syllabus.md").read_text(encoding="utf-8")
    return Template(text).substitute(labs=table)


def demos(root: Path | None = None) -> list[str]:
    """The lecture notebooks that have a source, by name."""
    return sorted(p.stem for p in (_solutions(root) / "demos").glob("*.py"))


def build_demo(name: str, root: Path | None = None) -> NotebookNode:
    """A lecture notebook: its source's cells as they are."""
    path = _solutions(root) / "demos" / f"{name}.py"
    read = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    made = []
    for number, cell in enumerate(read.cells, 1):
        new = nbformat.v4.new_markdown_cell if cell.cell_type == "markdown" else nbformat.v4.new_code_cell
        made.append(new(cell.source, id=f"{name}-{number:02d}".replace("_", "-")))
    notebook = nbformat.v4.new_notebook(cells=made, metadata=_KERNEL)
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return notebook


def answer_lines(lab: str, root: Path | None = None, course: Course | None = None) -> set[str]:
    """The lines of a lab's answers, without spaces and comments, that are long enough to give one away."""
    given = _bare("\n".join(cell.source for cell in build_lab(lab, root, course).cells))
    solved = solved_notebook(lab, root, course).cells
    lines = {_bare(_COMMENT.sub("", line)) for cell in solved for line in cell.source.splitlines()}
    return {line for line in lines if len(line) >= DISTINCTIVE and line not in given}


def serialise(notebook: NotebookNode) -> str:
    """The text of a notebook's file."""
    return nbformat.writes(notebook) + "\n"


def student_path(lab: str, root: Path | None = None, course: Course | None = None) -> Path:
    """Where the student's notebook of a lab is kept: for a course's own, the folder `built` beside course.toml."""
    if course is not None and lab in course.own():
        return course.path.parent / "built" / lab / f"{lab}.ipynb"
    return (root or ROOT) / "labs" / lab / f"{lab}.ipynb"


def write(lab_names: Iterable[str] | None = None, root: Path | None = None) -> list[Path]:
    """Build labs into labs/ (with the lectures' notebooks where none is named) and return the files."""
    written = []
    for path, text in _built(lab_names, root):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written


def stale(root: Path | None = None) -> list[Path]:
    """The files in labs/ that differ from what their sources build, or are missing."""
    return [path for path, text in _built(None, root) if not path.is_file() or path.read_bytes() != text.encode()]


def write_own(course: Course, root: Path | None = None) -> list[Path]:
    """Build a course's own labs, each with its spec beside it, so that a notebook finds its tasks; return the files."""
    written = []
    for lab in course.own():
        path = student_path(lab, root, course)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(serialise(build_lab(lab, root, course)), encoding="utf-8", newline="\n")
        written += [path, copy_spec(course, lab, path.parent)]
    return written


def copy_spec(course: Course, lab: str, folder: Path) -> Path:
    """Put the public spec of a lab of the course's own into a folder."""
    return Path(shutil.copy(course.spec(lab).path, folder))


def _built(lab_names: Iterable[str] | None, root: Path | None) -> Iterator[tuple[Path, str]]:
    """What stands in labs/: each file with its text."""
    for lab in lab_names or labs(root):
        yield student_path(lab, root), serialise(build_lab(lab, root))
    for name in demos(root) if lab_names is None else ():
        yield (root or ROOT) / "labs" / "demos" / f"{name}.ipynb", serialise(build_demo(name, root))
    if lab_names is None:
        yield (root or ROOT) / "labs" / "syllabus.md", syllabus(root)


# ---- reading a source


def _solutions(root: Path | None) -> Path:
    folder = (root or ROOT) / "solutions"
    if not folder.is_dir():
        raise BuildError(folder, 0, "there are no lab sources here: labs are built in a checkout of the repository")
    return folder


def _read(lab: str, root: Path | None, course: Course | None) -> tuple[list[Cell], Spec]:
    """A lab's cells, and its spec as the course has it."""
    path = source_path(lab, root, course)
    if not path.is_file():
        known = ", ".join([*labs(root), *(course.own() if course is not None else ())]) or "none"
        raise BuildError(path, 0, f"there is no lab {lab}; there are: {known}")
    spec = specs.load(lab) if course is None else course.spec(lab)
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    starts = [n for n, line in enumerate(text.splitlines(), 1) if _CELL_MARK.match(line)]
    if len(starts) != len(notebook.cells):
        counted = f"{len(starts)} cell marks but {len(notebook.cells)} cells"
        raise BuildError(path, 1, f"{counted}: begin each cell with # %%")
    ladder = (root or ROOT) / "kernels"
    cells = [
        _cell(cell, Line("", path, start), f"{lab}-{i:02d}", ladder)
        for i, (cell, start) in enumerate(zip(notebook.cells, starts), 1)
    ]
    _match(cells, spec, path)
    return [_marked_off(cell, spec) for cell in cells], spec


def _marked_off(cell: Cell, spec: Spec) -> Cell:
    """A check cell says so where a course has left its task out."""
    if cell.role != "check" or cell.task not in {task.name for task in spec.off}:
        return cell
    text = f"{cell.text.student}  # does not count in this course"
    return replace(cell, text=Text(text, text))


def _cell(cell: NotebookNode, place: Line, name: str, ladder: Path) -> Cell:
    lines = [Line(text, place.path, place.number + i) for i, text in enumerate(cell.source.splitlines(), 1)]
    if cell.cell_type == "markdown":
        if task := cell.metadata.get("explain"):
            return Cell("explain", task, _text(lines, place, "*Your answer.*"), place, task)
        return Cell("prose", name, Text(cell.source, cell.source), place)
    if match := _TASK.match(cell.source.partition("\n")[0]):
        task = match["task"]
        if match["magic"] == "cuda":
            return Cell("task", task, _answer_text(lines, place, ladder, _cuda_stub), place, task)
        return Cell("task", task, _answer_text(lines, place, ladder, _python_stub), place, task)
    if match := _CHECK.match(cell.source):
        return Cell("check", f"{match['task']}-check", Text(cell.source, cell.source), place, match["task"])
    return Cell("given", name, Text(cell.source, cell.source), place)


def _answer_text(lines: Sequence[Line], place: Line, ladder: Path, left_out: Any) -> Text:
    """A task's cell: its directives are replaced by the texts that they name; `left_out` stands for an answer."""
    solved: list[Line] = []
    stub: list[Line] = []
    for line in lines:
        match = _DIRECTIVE.match(line.text)
        if match and match["rung"]:
            solved += _for_a_lab(_file(ladder / match["rung"], line))
        elif match:
            stub += _file(line.path.parent / (match["stub"] or match["python"]), line)
        else:
            solved.append(line)
    if stub:
        return Text(_joined(_without_marks(solved)), _joined([lines[0], *stub]))
    return _text(solved, place, left_out)


def _for_a_lab(rung: Sequence[Line]) -> list[Line]:
    """A rung without its `//@ needs` lines, and without what its header says from `launch` or `needs` on."""
    kept: list[Line] = []
    skipping = False
    for line in rung:
        skipping = (skipping or bool(_LADDER_HEADER.match(line.text))) and line.text.strip() != "*/"
        if not skipping and not line.text.startswith("//@ needs"):
            kept.append(line)
    return kept


def _file(path: Path, asked: Line) -> list[Line]:
    if not path.is_file():
        raise asked.error(f"there is no file {path}")
    return [Line(text, path, i) for i, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)]


def _cuda_stub(indent: str, note: str, answer: Sequence[Line]) -> str:
    return f"{indent}// YOUR CODE HERE" + (f": {note}" if note else "")


def _python_stub(indent: str, note: str, answer: Sequence[Line]) -> str:
    """A function's body raises, so that an unwritten answer says so; a number is left open."""
    if not indent and len(answer) == 1 and (name := re.match(r"(\w+)\s*=", answer[0].text)):
        return f"{name[1]} = ...  # YOUR NUMBER HERE" + (f": {note}" if note else "")
    comment = f"{indent}# YOUR CODE HERE" + (f": {note}" if note else "")
    return f'{comment}\n{indent}raise NotImplementedError("not written yet")'


def _text(lines: Sequence[Line], place: Line, stub: Any) -> Text:
    """Take the marked answers out; `stub` makes the text that stands in the place of each."""
    student: list[str] = []
    answer: list[Line] = []
    opened: Line | None = None
    note, since = "", 0
    for line in lines:
        match = _MARK.match(line.text)
        if match is None:
            if opened is None:
                student.append(line.text)
            else:
                answer.append(line)
        elif match["which"] == "BEGIN":
            if opened is not None:
                raise line.error(f"BEGIN SOLUTION within the answer that begins in line {opened.number}")
            opened, note, since = line, match["note"] or "", len(answer)
        else:
            if opened is None:
                raise line.error("END SOLUTION without a BEGIN SOLUTION before it")
            indent = opened.text[: len(opened.text) - len(opened.text.lstrip())]
            student.append(stub if isinstance(stub, str) else stub(indent, note, answer[since:]))
            opened = None
    if opened is not None:
        raise opened.error("BEGIN SOLUTION without an END SOLUTION after it")
    if not answer:
        raise place.error("this task's cell marks no answer and names no stub: students would get all of it")
    return Text(_joined(_without_marks(lines)), "\n".join(student), tuple(answer))


def _without_marks(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if not _MARK.match(line.text)]


def _joined(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def _match(cells: Sequence[Cell], spec: Spec, path: Path) -> None:
    """The source has each task of the spec once, and no other, with its check cell after it."""
    known = {task.name: task.kind for task in (*spec.tasks, *spec.off)}
    seen: dict[str, Line] = {}
    checked: set[str] = set()
    for cell in cells:
        if cell.role in ("task", "explain"):
            if cell.task not in known:
                raise cell.place.error(f"the spec has no task {cell.task}; it has: {', '.join(known)}")
            if cell.task in seen:
                raise cell.place.error(f"task {cell.task} stands in line {seen[cell.task].number} already")
            if (cell.role == "explain") != (known[cell.task] == "explain"):
                raise cell.place.error(f"task {cell.task} is of kind {known[cell.task]} in the spec")
            seen[cell.task] = cell.place
        elif cell.role == "check":
            if cell.task not in seen or cell.task in checked:
                raise cell.place.error(f"check({cell.task!r}) belongs once, after the cell of the task {cell.task}")
            checked.add(cell.task)
    for task, kind in known.items():
        if task not in seen:
            raise BuildError(path, 1, f"the spec's task {task} has no cell")
        if kind != "explain" and task not in checked:
            raise seen[task].error(f"task {task} has no cell `check({task!r})` after it")


# ---- writing a notebook


def cell_points(spec: Spec, course: Course | None = None) -> dict[str, float]:
    """What each grade cell is worth, by its grade_id; 0 for what a course leaves out.

    spec  the lab's own where there is no course, else the course's
    """
    how: dict[str, Any] = {} if course is None else {"timing": course.timing, "explain": course.explain}
    by_hand = {t.name: t.kind == "explain" for t in (*spec.tasks, *spec.off)}
    return {
        task if manual else f"{task}-check": (score.manual_points if manual else score.task_points)(spec, task, **how)
        for task, manual in by_hand.items()
    }


def _notebook(cells: Sequence[Cell], spec: Spec, course: Course | None) -> NotebookNode:
    points = cell_points(spec, course)
    notebook = nbformat.v4.new_notebook(
        cells=[_notebook_cell(cell, points) for cell in cells],
        metadata={**_KERNEL, **edition.of(spec).metadata()},
    )
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return _through_nbgrader(notebook)


def _notebook_cell(cell: Cell, points: Mapping[str, float]) -> NotebookNode:
    is_text = cell.role in ("prose", "explain")
    new = nbformat.v4.new_markdown_cell if is_text else nbformat.v4.new_code_cell
    made = new(cell.text.student, id=cell.name)
    if cell.role == "prose":
        made.metadata.update(editable=False, deletable=False)
    else:
        made.metadata["nbgrader"] = _nbgrader_metadata(cell, points)
    return made


def _nbgrader_metadata(cell: Cell, points: Mapping[str, float]) -> dict[str, Any]:
    graded = cell.role in ("check", "explain")
    metadata: dict[str, Any] = {
        "grade": graded,
        "grade_id": cell.name,
        "locked": cell.role in ("check", "given"),
        "schema_version": 3,
        "solution": cell.role in ("task", "explain"),
        "task": False,
    }
    if graded:
        metadata["points"] = points[cell.name]
    return metadata


def _through_nbgrader(notebook: NotebookNode) -> NotebookNode:
    """Let nbgrader lock the cells, check its metadata and compute its checksums."""
    from nbgrader import preprocessors

    resources: dict[str, Any] = {}
    for kind in (preprocessors.LockCells, preprocessors.ComputeChecksums, preprocessors.CheckCellMetadata):
        step = kind()
        step.log.setLevel(logging.ERROR)
        notebook, resources = step.preprocess(notebook, resources)
    return notebook


# ---- no answer for students


def _refuse_answers(cells: Sequence[Cell], notebook: NotebookNode) -> None:
    for cell, made in zip(cells, notebook.cells):
        if remnant := _REMNANT.search(made.source):
            raise cell.place.error(f"`{remnant.group().strip()}` is left in the student's cell {made.id}")
    bare = {made.id: _bare(made.source) for made in notebook.cells}
    for cell in cells:
        for line in cell.text.answer:
            wanted = _bare(_COMMENT.sub("", line.text))
            if len(wanted) < DISTINCTIVE:
                continue
            for name, text in bare.items():
                if wanted in text:
                    raise line.error(f"this line of the answer stands in the student's cell {name} as well")


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", text)
