"""nbgrader, with our judge in the place of the student's kernel.

A course's nbgrader_config.py says

    from convladder.autograde.faces.nbgrader_plugin import configure
    configure(get_config(), __file__)

and nbgrader's own commands do the rest: generate_assignment, zip_collect, autograde, generate_feedback, export,
formgrader. nbgrader keeps the gradebook, the deadlines, the comments and the points given by hand; what a cell is
worth is decided by the judge from the text of the submission. No cell is executed.

    generate_assignment   ClearAnswers    the solved cells become the stubs that they carry
    zip_collect           Unpack, Collect a learning platform's archive (nbgrader_collect.py)
    autograde, 1st pass   DueDate         the gradebook's due date and this student's extension, from course.toml
                          Transplant      the released notebook, with the text of the submission's answers in it
    autograde, 2nd pass   Judge           each grade cell's output: reasons, and one float between 0 and its points
                          LatePenalty     what course.toml takes off for lateness
    export                Table           nbgrader's columns, quoted as CSV asks for (nbgrader_export.py)

The rules of course.toml (points, tasks that are off, form of timing, hidden cases, deadlines) hold here as they do for
`convladder grade --course`. It lies in the course folder, or where configure() is told.

The records, with all that is known of hidden cases, are kept beside the gradebook in grades/LAB, as `convladder
grade --out grades/LAB` keeps them: both doors use one secret and take each other's records over. So a large class
is judged with all cores by `convladder grade LAB --submissions submitted`, after which `nbgrader autograde LAB`
has only to write the gradebook.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import IO, Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.preprocessors import ClearSolutions, NbGraderPreprocessor
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from traitlets import Enum, Float, List, Unicode

from ...kernels.errors import ConvladderError
from ..course import build, grade
from ..course import course as courses
from ..course.course import Course
from ..course.grades import display_name
from ..judge import spec as specs
from ..judge.record import SubmissionRecord
from ..judge.spec import ExplainTask, Spec
from ..judge.submission import Submission, SubmissionError
from . import nbgrader_output as output
from . import nbgrader_resume as resume
from .report import plain

Resources = dict[str, Any]

#: Where ClearAnswers finds what students start from, in a source cell's metadata.
STUB = "convladder_stub"


class NotGraded(ConvladderError):
    """This submission keeps the grades that it has; the message says why and what to do."""


#: The section of nbgrader's configuration that names the course.toml: every part of nbgrader can read it.
SECTION = "Convladder"


def configure(config: Any, config_file: str | Path, course: str = "") -> None:
    """Set nbgrader up for a course of our labs.

    config       what `get_config()` gives in nbgrader_config.py
    config_file  its `__file__`: the course is the folder that it lies in
    course       the course.toml whose rules hold, relative to that folder; "": the one in it, if there is one
    What is set afterwards in nbgrader_config.py stands.
    """
    root = Path(config_file).resolve().parent
    here = __name__
    own = root / "course.toml"
    config[SECTION].course = str(root / course) if course else str(own) if own.exists() else ""
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.db_url = (
        f"sqlite:///{root}/gradebook.db"  # a relative URL would follow the working directory
    )
    config.GenerateAssignment.preprocessors = [
        "nbgrader.preprocessors.IncludeHeaderFooter",
        "nbgrader.preprocessors.LockCells",
        f"{here}.ClearAnswers",
        "nbgrader.preprocessors.ClearOutput",
        "nbgrader.preprocessors.CheckCellMetadata",
        "nbgrader.preprocessors.ComputeChecksums",
        "nbgrader.preprocessors.SaveCells",
        "nbgrader.preprocessors.ClearHiddenTests",
        "nbgrader.preprocessors.ClearMarkScheme",
        "nbgrader.preprocessors.ComputeChecksums",
        "nbgrader.preprocessors.CheckCellMetadata",
    ]
    config.Autograde.exporter_class = f"{here}.SubmittedNotebook"
    config.Autograde.sanitize_preprocessors = [
        f"{here}.DueDate",
        f"{here}.Transplant",
        "nbgrader.preprocessors.OverwriteKernelspec",
        "nbgrader.preprocessors.OverwriteCells",
        "nbgrader.preprocessors.CheckCellMetadata",
    ]
    config.Autograde.autograde_preprocessors = [
        f"{here}.Judge",
        "nbgrader.preprocessors.SaveAutoGrades",
        "nbgrader.preprocessors.AssignLatePenalties",
        "nbgrader.preprocessors.CheckCellMetadata",
    ]
    config.HTMLExporter.sanitize_html = True  # for the HTML of outputs; see harmless_markdown for that of cells
    config.AssignLatePenalties.plugin_class = f"{here}.LatePenalty"
    config.ExportApp.plugin_class = f"{__package__}.nbgrader_export.Table"
    collecting = f"{__package__}.nbgrader_collect"
    config.ZipCollectApp.extractor_plugin = f"{collecting}.Unpack"
    config.ZipCollectApp.collector_plugin = f"{collecting}.Collect"
    find_alembic()
    if not event.contains(Engine, "connect", _wait_for_other_writers):
        event.listen(Engine, "connect", _wait_for_other_writers)


def course_of(part: Any) -> Course | None:
    """The course.toml that holds for a part of nbgrader, whose gradebook knows one release. Raises CourseError."""
    path = part.config[SECTION].get("course", "")
    return courses.load(path).present_releases() if path else None


# --- The gradebook, shared by several commands at once --------------------------------------------


def find_alembic() -> None:
    """Let nbgrader make a gradebook: it calls alembic by name, also from a virtual environment that is not active."""
    if shutil.which("alembic") is None:
        os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


#: How long a command waits for another one's write to the gradebook; SQLite's own five seconds lose entries.
WRITE_PATIENCE_S = 60


def _wait_for_other_writers(connection: Any, _: Any) -> None:
    if type(connection).__module__.startswith("sqlite3"):
        connection.execute(f"PRAGMA busy_timeout = {1000 * WRITE_PATIENCE_S}")


def _require_writable(db_url: str, patience_s: float) -> None:
    """Raise NbGraderException where the gradebook cannot be written for so long."""
    engine = create_engine(db_url)
    path = engine.url.database or ""
    if engine.dialect.name != "sqlite" or not Path(path).is_file():
        return  # nbgrader makes a missing one
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * patience_s)}")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.rollback()
    except OperationalError as error:
        raise NbGraderException(
            f"The gradebook {path} cannot be written ({error.orig}), so nothing was graded. Another program holds it, "
            "or its folder is read-only: close what else has it open (formgrader, a database browser, another "
            "autograde), and run the same command again."
        ) from None
    finally:
        engine.dispose()


# --- generate_assignment -------------------------------------------------------------------------


class ClearAnswers(ClearSolutions):
    """Put into each solved cell the stub that it carries in its metadata; a cell without one is nbgrader's to clear.

    Raises ConvladderError where files lie beside the source notebook, the public spec of a course's own lab apart:
    nbgrader copies them to students.
    """

    companions = List(
        Unicode(), help="Files beside a source notebook that students may have: they get them, with the feedback too."
    ).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Resources) -> tuple[NotebookNode, Resources]:
        folder = Path(resources["metadata"]["path"])
        name = resources["metadata"]["name"]
        own, ignored = f"{name}.ipynb", {".ipynb_checkpoints", "__pycache__", f"{name}.toml"}
        extra = sorted({p.name for p in folder.iterdir()} - {own, *ignored, *self.companions})
        if extra:
            raise ConvladderError(
                f"{folder} holds {', '.join(extra)} beside {own}, and nbgrader copies whatever lies there to students, "
                "with the release and with every feedback. Move it elsewhere, or name it in "
                "c.ClearAnswers.companions if students may have it."
            )
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: Resources, index: int) -> tuple[NotebookNode, Resources]:
        stub = cell.metadata.pop(STUB, None)
        if stub is None:
            return super().preprocess_cell(cell, resources, index)
        cell.source = stub
        return cell, resources


# --- autograde -----------------------------------------------------------------------------------


class SubmittedNotebook(NotebookExporter):
    """Writes the autograded notebook; the student's is not read by nbformat, which stumbles where we need not."""

    gradebook_patience_s = Float(
        30.0, help="How long to wait for a gradebook that another program holds, before anything is graded."
    ).tag(config=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.parent, Autograde):
            try:
                _require_writable(self.parent.coursedir.db_url, self.gradebook_patience_s)
                course = _require_rules(self)
                _leave_out(self.parent)
                # Kept open: it tells other commands that this one is at work.
                self._at_work = _forget_stale(self.parent, course, self.config.Judge.get("on", "sim"))
            except NbGraderException as error:
                self.log.error("%s", error)
                raise

    def from_file(self, file_stream: Any, resources: Any = None, **kw: Any) -> Any:
        if any(isinstance(step, Transplant) for step in self._preprocessors):
            return self.from_notebook_node(nbformat.v4.new_notebook(), resources=resources, **kw)
        return super().from_file(file_stream, resources=resources, **kw)


def _leave_out(autograde: Any) -> None:
    """Leave out whose folder nbgrader must not take; the others are graded, and then the command fails.

    These are folders with links beside the notebook, for nbgrader copies what they lead to into the feedback, and
    names in a form that would make one person two students.
    """
    left_out = []
    for folder in sorted(autograde.assignments):
        if reason := _not_taken(Path(folder)):
            del autograde.assignments[folder]
            left_out.append(str(folder))
            autograde.log.error("%s", plain(f"Not graded: {folder} {reason}, and run again."))
    if left_out:
        others = autograde.convert_notebooks

        def and_fail() -> None:
            others()
            raise NbGraderException(plain(f"Not graded, see above: {', '.join(left_out)}"))

        autograde.convert_notebooks = and_fail


def _not_taken(folder: Path) -> str:
    """Why nbgrader must not take a submission's folder, and what to do; "" where it may."""
    beside = [Path(top, name) for top, _, names in os.walk(folder) for name in names]
    strange = [p.name for p in beside if p.suffix != ".ipynb" and (p.is_symlink() or not p.is_file())]
    if strange:
        said = f"holds {', '.join(strange)}, which is a link or no file"
        return f"{said}, and nbgrader would copy what it leads to for the student. Remove it"
    student = folder.parent.name
    if display_name(student) != student:
        return (
            "has a name that is written in another way than the gradebook's names, as some systems do with accents: "
            f"rename the folder {folder.parent} to {display_name(student)}"
        )
    return ""


def _forget_stale(autograde: Any, course: Course | None, on: str) -> IO[str] | None:
    """Remove from autograded/ what a killed run began, and what was graded from something else than is there now."""
    folders, lab = autograde.coursedir, autograde.coursedir.assignment_id
    try:
        note, is_alone = resume.alone(Path(folders.root) / "grades" / lab)
    except OSError as error:
        raise NbGraderException(
            f"{error.filename} cannot be written ({error.strerror}), so nothing was graded: "
            "make the course's folder writable, and run the same command again."
        ) from None
    if is_alone:
        spec = specs.load(lab) if course is None else course.spec(lab)
        for submitted in map(Path, autograde.assignments):
            student = submitted.parent.name
            graded = Path(folders.format_path(folders.autograded_directory, student, lab))
            entry = grade.entry_in_group(student, submitted / f"{lab}.ipynb", submitted.parents[1], lab, course)
            if graded.exists() and resume.marked(graded / f"{lab}.ipynb") != resume.mark(entry, spec, course, on):
                autograde.log.info("%s", plain(f"{student} is graded again: something changed, or a run was stopped"))
                resume.forget(graded)
        resume.share(note)
    return note


def _require_rules(part: Any) -> Course | None:
    """The course. Raises NbGraderException where its rules cannot be used, once and not for every student."""
    try:
        course = course_of(part)
        if course is not None:
            course.spec(part.parent.coursedir.assignment_id)
    except ConvladderError as error:
        raise NbGraderException(
            f"{str(error).rstrip('.')}. Nothing was graded: correct it, and run the same command again."
        ) from None
    if course is not None and course.timing == "measured" and part.config.Judge.get("on", "sim") != "gpu":
        raise NbGraderException(
            f'{course.path} says timing = "measured", which needs a GPU. Nothing was graded: set c.Judge.on = "gpu" '
            'in nbgrader_config.py on a machine that has one, or timing = "counters" there.'
        )
    return course


class _Step(NbGraderPreprocessor):
    """A preprocessor of autograde that knows the course, its folders and the lab."""

    def preprocess(self, nb: NotebookNode, resources: Resources) -> tuple[NotebookNode, Resources]:
        names = resources["nbgrader"]
        self.folders = self.parent.parent.coursedir
        self.db_url: str = names["db_url"]
        self.course = course_of(self)
        self.lab: str = names["assignment"]
        self.student: str = names["student"]
        folder = Path(self.folders.format_path(self.folders.submitted_directory, self.student, self.lab))
        self.notebook = folder / f"{names['notebook']}.ipynb"
        self.submitted = folder.parents[1]
        self.entry = grade.entry_in_group(self.student, self.notebook, self.submitted, self.lab, self.course)
        spec = specs.load(self.lab) if self.course is None else self.course.spec(self.lab)
        return self.work(nb, spec), resources

    def work(self, nb: NotebookNode, spec: Spec) -> NotebookNode:
        raise NotImplementedError


class DueDate(_Step):
    """Write the deadline that course.toml states, and this student's extension of it, into the gradebook."""

    def work(self, nb: NotebookNode, spec: Spec) -> NotebookNode:
        deadline = self.course.of(self.lab).deadline if self.course is not None else None
        if self.course is None or deadline is None:
            return nb
        own = self.course.deadline(self.lab, display_name(self.student)) or deadline
        with Gradebook(self.db_url) as book:
            submission = book.find_submission(self.lab, self.student)
            submission.assignment.duedate = deadline.astimezone(UTC).replace(tzinfo=None)
            submission.extension = own - deadline if own != deadline else None
            book.db.commit()
        return nb


class Transplant(_Step):
    """The released notebook with nothing of the submission in it but the text of its answers.

    So a test cell that was deleted, copied, renamed or rewritten is the released one again, and a cell's metadata,
    points and checksum are the released ones, whatever the submission says. What was not answered keeps its stub.
    """

    def work(self, nb: NotebookNode, spec: Spec) -> NotebookNode:
        released = self._released()
        self._require_points(released, spec)
        self._compare_with_roster()
        output.highlight(released)
        try:
            read = grade.handed_in(self.entry, spec)
        except SubmissionError as error:
            self._warn(error)
            return released
        for problem in read.problems:
            self._warn(problem)
        _insert(released, read, spec)
        return released

    def _warn(self, problem: object) -> None:
        self.log.warning("%s", plain(f"{self.student}: {problem}"))  # it quotes the notebook

    def _released(self) -> NotebookNode:
        folder = Path(self.folders.format_path(self.folders.release_directory, ".", self.lab))
        path = folder / self.notebook.name
        try:
            return nbformat.read(path, as_version=4)
        except OSError as error:
            raise NotGraded(
                f"The released notebook {path} cannot be read ({error.strerror}): run "
                f"`nbgrader generate_assignment {self.lab} --force` and autograde again."
            ) from None

    def _require_points(self, released: NotebookNode, spec: Spec) -> None:
        """The gradebook's maxima are those of the released notebook, so they must be what the judge gives."""
        given = {_grade_id(c): float(c.metadata.nbgrader.points) for c in released.cells if utils.is_grade(c)}
        wanted = build.cell_points(spec, self.course)
        for name, points in wanted.items():
            if not math.isclose(given.get(name, -1.0), points, abs_tol=1e-9):
                raise NotGraded(
                    f"{name} is worth {given.get(name, 0.0):g} points in the released notebook, and {points:g} by the "
                    "rules of the course: run `convladder nbgrader-setup`, then `nbgrader generate_assignment "
                    f"{self.lab} --force`, and autograde again."
                )

    def _compare_with_roster(self) -> None:
        roster = self.course.roster if self.course is not None else None
        if roster is not None and display_name(self.student) not in map(display_name, roster):
            self.log.warning("%s", plain(f"{self.student} is not on the course's roster, and is graded all the same"))


def _insert(released: NotebookNode, read: Submission, spec: Spec) -> None:
    for cell in released.cells:
        answer = read.answers.get(cell.metadata.get("nbgrader", {}).get("grade_id", ""))
        if answer is None or not utils.is_solution(cell) or _counts_nothing(cell):
            continue
        if cell.cell_type == "markdown":
            if answer.text:  # else it stays as released, which nbgrader takes for no response
                cell.source = harmless_markdown(answer.text) + _rubric(spec, cell)
        else:
            magic = cell.source.partition("\n")[0]
            cell.source = "\n" * (answer.first_line - 2) + f"{magic}\n{answer.text}"


def _rubric(spec: Spec, cell: NotebookNode) -> str:
    """What an answer is graded by, below it: for whoever grades, and for the student afterwards."""
    task = spec.task(_grade_id(cell))
    if not isinstance(task, ExplainTask) or len(task.rubric) < 2:
        return ""
    step = float(cell.metadata.nbgrader.points) / (len(task.rubric) - 1)
    lines = (f"- **{i * step:.3g}**: {re.sub(r'^[0-9]+: *', '', says)}" for i, says in enumerate(task.rubric))
    return "\n\n***\n\n*Points, and what they are given for:*\n\n" + "\n".join(lines)


def _counts_nothing(cell: NotebookNode) -> bool:
    """A written answer that the course leaves out: as released, nobody is asked to grade it."""
    return bool(utils.is_grade(cell)) and float(cell.metadata.nbgrader.points) == 0


def harmless_markdown(text: str) -> str:
    """A student's words without HTML, links and images: nbgrader's pages pass those of markdown cells through,
    scripts too, to whoever grades.
    """
    return re.sub(r"<(?=[A-Za-z/!?])", "< ", re.sub(r"\](?=[(:\[])", "] ", text))


class Judge(_Step):
    """Give every grade cell the judge's verdict as its output, and keep the record in the course's grades/LAB.

    A cell's output is one readable display and one Python float, 0 <= float <= points, as its result: of anything
    else nbgrader makes full credit, no credit or an exception. Students see of hidden cases what they may see.

    Raises NotGraded where judging broke down: nbgrader tells so at its end and goes on with the class, and the next
    autograde tries this submission again.
    """

    on = Enum(["sim", "gpu"], "sim", help="Judge on the engine or on a GPU.").tag(config=True)
    sandbox = Enum(["bwrap", "none"], "bwrap", help='"none" runs students\' work with all your rights.').tag(
        config=True
    )
    limit_s = Float(900.0, help="Wall-clock after which judging one submission is stopped.").tag(config=True)

    def work(self, nb: NotebookNode, spec: Spec) -> NotebookNode:
        record = self._record(nb)
        shown = record.student_view()
        code = [c for c in nb.cells if c.cell_type == "code"]
        for cell in code:
            if utils.is_grade(cell):
                task = cell.metadata.nbgrader.grade_id.removesuffix("-check")
                checks = [c for c in shown.checks if c.task == task]
                source = next((c.source for c in code if _grade_id(c) == task), "")
                cell.outputs = output.graded(checks, float(cell.metadata.nbgrader.points), source)
            else:
                cell.outputs = output.opening(shown, record) if cell is code[0] else []
        resume.set_mark(nb, resume.mark(self.entry, spec, self.course, self.on))
        return nb

    def _record(self, nb: NotebookNode) -> SubmissionRecord:
        out = Path(self.folders.root) / "grades" / self.lab
        settings = grade.Settings(
            on=self.on, sandbox=self.sandbox, limit_s=self.limit_s, force=self.parent.parent.force
        )
        if self.course is not None:
            settings = replace(settings, timing=self.course.timing, explain=self.course.explain)
        record = grade.judge_one(self.lab, self.submitted, self.notebook, self.student, out, settings, self.course)
        if "unfinished" in record.environment:
            why = f"{self.student}: {' '.join(record.problems)} ({record.environment['unfinished'][-2000:]})"
            raise NotGraded(plain(why))
        return record


def _grade_id(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


# --- late work -----------------------------------------------------------------------------------


class LatePenalty(LateSubmissionPlugin):
    """What course.toml takes off; where it has no rule for the lab, nbgrader's own `penalty_method` decides."""

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None:
        course = course_of(self)
        late = course.of(self.parent.assignment_id).late if course is not None else None
        if late is not None:
            return late.points(score, total_seconds_late)
        return super().late_submission_penalty(student_id, score, total_seconds_late)
