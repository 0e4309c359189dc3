"""The command line: `convladder`.

Exit codes: 0 fine; 1 the thing checked failed; 2 bad usage or bad input, told in one paragraph; 3 `grade` would change
grades that are given already, and did not.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from ... import __version__
from ...kernels.errors import ConvladderError

# Each command imports what it needs when it runs, so that `--help` and `check` start fast.

_NOTEBOOK = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_COURSE = click.option("--course", "course_file", type=_NOTEBOOK, help="The course.toml whose rules and labs hold.")


class _Group(click.Group):
    """Tells expected errors in one paragraph on stderr; anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConvladderError as error:
            _fail(str(error))
        except BrokenPipeError:  # `convladder … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)


def _tell(message: str) -> None:
    from .report import plain

    paragraph = textwrap.fill(" ".join(plain(message).split()), 100, break_long_words=False, break_on_hyphens=False)
    click.echo(paragraph, err=True)


def _fail(message: str) -> NoReturn:
    _tell(message)
    sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="convladder")
def main() -> None:
    """Convolution kernels in CUDA: labs, checks and grades, with or without a GPU."""


def _console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


# --- doctor --------------------------------------------------------------------------------------


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """What this machine can do, and what to install for more."""
    from dataclasses import asdict

    from rich.table import Table
    from rich.text import Text

    from ..course import doctor as examination
    from .report import plain

    findings = examination.examine()
    missing = [f for f in findings if f.needed and not f.ok]
    if as_json:
        click.echo(json.dumps([asdict(f) for f in findings], indent=1))
        sys.exit(1 if missing else 0)
    console = _console()
    for use, called in examination.USES.items():
        console.print(Text(called, "bold"))
        table = Table.grid(padding=(0, 1))
        table.add_column(min_width=3, justify="right")
        table.add_column(min_width=max(len(f.name) for f in findings))
        for f in (f for f in findings if f.use == use):
            mark = ("✓", "blue") if f.ok else ("✗", "bold red") if f.needed else ("–", "dim")
            table.add_row(Text(*mark), Text(f.name, no_wrap=True), Text(plain(f.says)))
            if not f.ok and f.advice:
                table.add_row("", "", Text(f"→ {f.advice}", "dim"))
        console.print(table)
        console.print()
    if missing:
        console.print(Text(f"Not ready: {', '.join(f.name for f in missing)} must work before a kernel can run here."))
        sys.exit(1)
    console.print(Text("Ready: you can do the labs here. Where a line begins with –, something more is possible."))


# --- check ---------------------------------------------------------------------------------------


@main.command()
@click.argument("notebook", type=_NOTEBOOK)
@click.option("--lab", help="The lab, where the notebook does not say it.")
@_COURSE
@click.option("--on", type=click.Choice(["sim", "gpu"]), default="sim", show_default=True, help="Engine or GPU.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def check(notebook: Path, lab: str | None, course_file: Path | None, on: str, as_json: bool) -> None:
    """Check one notebook on its public cases: the same records as in Jupyter and in grading.

    A lab of a course's own is found in the LAB.toml beside the notebook, or by --course. The notebook's own kernels
    run as a plain child process: check your own work, grade other people's.
    """
    from ..judge import judging, kernel_task, sandbox, spec, submission
    from . import terminal

    _require_device(on)
    course = _course(course_file)
    lab = lab or infer_lab(notebook, course.labs() if course is not None else spec.names())
    loaded = course.spec(lab) if course is not None else spec.load(lab, spec.folder_of(lab, notebook.parent))
    read = submission.read(notebook, loaded)
    record = judging.judge(
        loaded,
        read,
        student="",
        on=on,
        timing="counters",
        hidden=False,
        secret=kernel_task.PUBLIC_SECRET,
        sandbox=sandbox.SandboxPolicy("none", gpu=on == "gpu"),
    )
    if as_json:
        click.echo(record.to_json(), nl=False)
    else:
        _console().print(terminal.record(record, titles(loaded)))
    failed = record.problems or any(c.passed is False or (c.passed is None and not c.manual) for c in record.checks)
    sys.exit(1 if failed else 0)


def titles(spec: Any) -> dict[str, str]:
    return {task.name: task.title for task in spec.tasks}


def infer_lab(notebook: Path, labs: list[str]) -> str:
    """The lab that a notebook names in its open_lab(...) cell, else in its file name."""
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        texts = []  # the reader of submissions will say what is wrong with the file
    for text in texts:
        opened = re.search(r"""^\s*open_lab\(\s*["']([\w.-]+)["']""", text, re.MULTILINE)
        if opened:
            return opened.group(1)
    for lab in labs:
        if lab in (notebook.stem, notebook.parent.name):
            return lab
    raise ConvladderError(
        f'{notebook} does not say which lab it is (no open_lab("…") cell): '
        f"name it with --lab, one of {', '.join(labs)}."
    )


# --- grade and demo ------------------------------------------------------------------------------


@main.command()
@click.argument("lab")
@click.option(
    "--submissions", type=click.Path(path_type=Path), required=True,
    help="The folder with every student's notebook, or a learning platform's zip archive.",
)  # fmt: skip
@click.option("--out", type=_FOLDER, help="Where grades go.  [default: grades/LAB]")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes at once.  [default: one a core]")
@click.option("--scheduler", default="", help="Judge on the workers of this Dask scheduler, such as tcp://host:8786.")
@click.option("--on", type=click.Choice(["sim", "gpu"]), default="sim", show_default=True, help="Engine or GPU.")
@click.option(
    "--timing", type=click.Choice(["measured", "counters", "off"]),
    help="What performance is graded by: times on a GPU, the engine's counters, nothing.  [default: counters]",
)  # fmt: skip
@_COURSE
@click.option("--no-sandbox", is_flag=True, help="Run students' work unprotected, with all your rights.")
@click.option("--force", is_flag=True, help="Judge again what is graded already.")
@click.option("--apply", is_flag=True, help="Let grades that are given already change, where rules or versions did.")
def grade(
    lab: str, submissions: Path, out: Path | None, workers: int | None, scheduler: str, on: str, timing: str | None,
    course_file: Path | None, no_sandbox: bool, force: bool, apply: bool,
) -> None:  # fmt: skip
    """Grade a class. An interrupted run goes on where it stopped.

    Where a grade that is given already would change, because rules or versions did, it is only listed, and the exit
    code is 3: --apply puts what is listed in force.

    Submissions are DIR/STUDENT/LAB.ipynb, DIR/STUDENT/LAB/LAB.ipynb, DIR/STUDENT.ipynb, or what Canvas, Moodle and
    Blackboard export, as a folder or as their zip archive.
    """
    from ..course.grade import Settings

    course = _course(course_file)
    form = _timing_form(timing, course, on)
    _require_device(on)
    sandbox = "none" if no_sandbox else _require_sandbox()
    settings = Settings(
        on=on, timing=form, explain=course is None or course.explain, sandbox=sandbox, workers=workers or cores(),
        scheduler=scheduler, force=force, hold=not apply,
    )  # fmt: skip
    _grade(lab, submissions, out or Path("grades", lab), settings, course)


def _course(file: Path | None) -> Any:
    """The course that a file describes; None where none is named."""
    from ..course import course as courses

    return courses.load(file) if file is not None else None


def _timing_form(asked: str | None, course: Any, on: str) -> str:
    """One form for the whole class: the course's where there is one."""
    if course is not None and asked not in (None, course.timing):
        raise ConvladderError(
            f"--timing {asked} contradicts {course.path}, where timing = {course.timing!r}: a class is graded in one "
            "form. Change it there, or leave --timing out."
        )
    form = str(course.timing if course is not None else asked or "counters")
    if form == "measured" and on != "gpu":
        raise ConvladderError(
            "Measured timing needs a GPU: say --on gpu on a machine that has one, or grade by counters without one."
        )
    return form


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _require_device(on: str) -> None:
    """Raise BackendError now where there is no GPU, not once for each submission."""
    if on == "gpu":
        from ...kernels.gpu import cupy_module

        cupy_module()


def _require_sandbox() -> str:
    from ..judge import sandbox

    there, reason = sandbox.available()
    if not there:
        raise ConvladderError(
            f"There is no sandbox here, so students' work is not run: {reason.rstrip('.')}. If you trust every one of "
            "these submissions with all the rights that you have on this machine, say --no-sandbox."
        )
    return "bwrap"


def _grade(lab: str, submissions: Path, out: Path, settings: Any, course: Any = None) -> None:
    """Grade with a progress bar, write the pages, print the table, exit 1 where judging broke down."""
    from rich.text import Text

    from ..course import grade as grading
    from ..judge import spec as specs
    from . import report, terminal

    spec = specs.load(lab) if course is None else course.spec(lab)
    named = titles(spec)
    console = _console()
    with _progress(console) as advance:

        def watch(done: int, total: int, record: Any, kept: bool) -> None:
            report.write_feedback(record, out, spec.title, named)
            advance(done, total, report.one_line(record.student))

        try:
            grades = grading.grade_class(lab, submissions, out, settings, watch, course=course)
        except KeyboardInterrupt:
            click.echo(f"Stopped. What is graded is kept in {out}; the same command goes on from there.", err=True)
            sys.exit(130)
    index = report.write_class_page(grades, out, spec.title)
    console.print(terminal.class_table(grades))
    for line in _closing(grades, out, index):
        console.print(Text(report.plain(line)), soft_wrap=True)  # a path stays in one piece
    if grades.unfinished:
        sys.exit(1)
    if grades.changes and grades.held:
        sys.exit(3)


@main.command()
@click.argument("lab")
@click.option("--form", type=click.Choice(["canvas", "moodle", "generic"]), required=True, help="Who is to import it.")
@click.option("--out", type=_FOLDER, help="Where the class's grades are.  [default: grades/LAB]")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Write it here.  [default: the terminal]")
def export(lab: str, form: str, out: Path | None, file: Path | None) -> None:
    """The grades as a table that Canvas or Moodle imports: the machine's points, less what lateness costs."""
    from ..course import exports
    from ..course import grade as grading

    out = out or Path("grades", lab)
    graded = exports.records(out)
    _, _, course = grading.last_run(out)
    text = exports.table(form, graded, course.names if course is not None else {})
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write_text(text, encoding="utf-8", newline="")
        click.echo(file)


@main.command()
@click.argument("lab")
@click.option("--submissions", type=_FOLDER, multiple=True, required=True, help="A class; again: an earlier one too.")
@_COURSE
def similar(lab: str, submissions: tuple[Path, ...], course_file: Path | None) -> None:
    """Answers that are alike beyond what their task explains, for a person to look at. Nothing is graded by it."""
    from ..course import compare
    from . import report

    pairs = list(compare.classes(lab, submissions, _course(course_file)))
    for pair in pairs:
        click.echo(report.plain(f"{pair.task:20s} {pair.likeness:4.0%}  {pair.one}  {pair.other}"))
    click.echo(f"{len(pairs)} pair{'s' * (len(pairs) != 1)} to look at. Likeness proves nothing, and changes no grade.")


@main.command()
@click.argument("student")
@click.argument("lab")
@click.option("--reason", required=True, help="Why: it is kept with the record.")
@click.option("--out", type=_FOLDER, help="Where the class's grades are.  [default: grades/LAB]")
def regrade(student: str, lab: str, reason: str, out: Path | None) -> None:
    """Judge one student's notebook once more, with the class's seeds and rules; both records are kept."""
    from ..course import grade as grading
    from ..judge import spec as specs
    from . import report

    out = out or Path("grades", lab)
    change = grading.regrade(lab, student, reason, out)
    record = grading.read_record(grading.record_path(out, student))
    assert record is not None
    _, _, course = grading.last_run(out)
    titled = specs.load(lab) if course is None else course.spec(lab)
    report.write_feedback(record, out, titled.title, titles(titled))
    if change is None:
        click.echo(report.plain(f"{student}: {report.points(record.score)} points, as before"))
        return
    click.echo(report.plain(_changed(change)))
    click.echo(f"Run `convladder grade {lab}` with the class's options to write grades.csv and the pages anew.")


@main.command()
@click.argument("student")
@click.argument("lab")
@click.option("--out", type=_FOLDER, help="Where the class's grades are.  [default: grades/LAB]")
def explain(student: str, lab: str, out: Path | None) -> None:
    """The story of a grade: what was judged, how, by what, and what became of it. Hidden cases are told too."""
    from ..course import story
    from . import report

    for line in story.story(out or Path("grades", lab), student):
        click.echo(report.plain(line))


def _changed(change: Any) -> str:
    from . import report

    checks = ", ".join(change.checks) or "the penalty"
    before, after = (report.points(r.score - r.penalty) for r in (change.before, change.after))
    return f"{report.one_line(change.after.student)}: {before} → {after} ({checks})"


def _closing(grades: Any, out: Path, index: Path) -> Iterator[str]:
    from . import report

    new = len(grades.records) - grades.kept
    yield f"{new} graded, {grades.kept} kept from an earlier run" if grades.kept else f"{new} graded"
    yield f"class   {index}"
    yield f"table   {out / 'grades.csv'}"
    yield f"pages   {out / 'feedback'}/ (for students)"
    yield f"records {out / 'records'}/ (with hidden inputs: not for students)"
    if grades.changes:
        many = f"{len(grades.changes)} grade{'s' * (len(grades.changes) != 1)} of unchanged notebooks"
        yield f"{many} would change; --apply puts them in force:" if grades.held else f"{many} changed:"
        yield from (f"    {_changed(change)}" for change in grades.changes)
    if grades.ignored:
        yield f"not notebooks, left out: {', '.join(grades.ignored[:8])}"
    if grades.strays:
        yield f"records without a submission, left out: {', '.join(grades.strays[:8])}"
    if grades.missing:
        yield f"on the roster, but nothing handed in: {', '.join(grades.missing)}"
    if grades.unlisted:
        yield f"graded, but not on the roster: {', '.join(grades.unlisted)}"
    late = [
        f"{r.student} (−{report.points(r.penalty)})" if r.penalty else r.student for r in grades.records if r.late_s
    ]
    if late:
        yield f"handed in late: {', '.join(late)}"
    if grades.marked:
        yield f"marked as late by the learning platform, which does not say by how much: {', '.join(grades.marked)}"
    unclear = [r.student for r in grades.unfinished if r.environment["unfinished"].startswith("inconclusive")]
    broken = [r.student for r in grades.unfinished if r.student not in unclear]
    if unclear:
        yield f"TIMING INCONCLUSIVE: {', '.join(unclear)}. Run the same command again; it judges these anew."
    if broken:
        yield f"NOT JUDGED: {', '.join(broken)}. Run the same command again; it judges these anew."


@contextlib.contextmanager
def _progress(console: Any) -> Iterator[Any]:
    """Yields advance(done, total, name); nothing is drawn where the output is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    columns = (
        TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=Text(name).plain[:40])

        yield advance


@main.command()
@click.option("--out", type=_FOLDER, default=Path("build", "demo"), show_default=True, help="Where pages go.")
@click.option("--workers", type=click.IntRange(1, 1024), help="Processes at once.  [default: one a core]")
@click.option("--all", "every", is_flag=True, help="Every graded lab, each into OUT/LAB, in place of lab 01 alone.")
def demo(out: Path, workers: int | None, every: bool) -> None:
    """The main job in one go: build lab 01, grade its sample class, print the grades with their reasons."""
    from ..course import build as building
    from ..course.grade import Settings
    from ..judge import sandbox
    from ..judge import spec as specs

    there, reason = sandbox.available()
    if not there:
        click.echo(f"No sandbox here ({reason.rstrip('.')}): the sample class, which is our own, runs without one.")
    settings = Settings(sandbox="bwrap" if there else "none", workers=workers or cores(), force=True)
    if not every:
        _demo("01_direct", out, settings)
        return
    for lab in building.labs():
        if specs.load(lab).graded:
            click.echo(f"\n{lab}")
            _demo(lab, out / lab, settings)


def _demo(lab: str, out: Path, settings: Any) -> None:
    """Build a lab and grade its sample class."""
    from ..course import build as building
    from ..course import sample

    for path in building.write([lab]):
        click.echo(f"built {path}")
    submissions = out / "submissions"
    shutil.rmtree(submissions, ignore_errors=True)
    sample.sample_class(lab, submissions)
    _grade(lab, submissions, out, settings)
    _show_recorded(lab, out)


def _show_recorded(lab: str, out: Path) -> None:
    """What was timed on a real GPU and kept, beside the grades just made by counters."""
    from ..course import grade as grading
    from ..course import recorded
    from . import report, terminal

    for line in recorded.steadiness(lab):
        click.echo(report.plain(f"recorded on a real GPU, not measured here: {line}"))
    record = recorded.load(lab)
    if record is None:
        return
    live = {
        student: found
        for student in record["students"]
        if (found := grading.read_record(grading.record_path(out, student))) is not None
    }
    _console().print(terminal.recorded_table(record, live))


# --- bench ---------------------------------------------------------------------------------------

_OWN_SUITES = ("engine", "judge", "grading")
_RECORDED_SUITES = (
    "direct", "lowering", "gemm", "plans", "cudnn", "sparse", "batch", "codegen", "codesize", "training",
)  # fmt: skip


@main.command()
@click.argument("suite", type=click.Choice([*_OWN_SUITES, *_RECORDED_SUITES]), default="engine")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the figures as JSON.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw them: the slide of a recorded suite; of engine: cost against threads.",
)
@click.option("--recorded", is_flag=True, help="Show what is recorded of a suite; measure nothing.")
@click.option("--keep", is_flag=True, help="Keep the record of a recorded suite with the package.")
@click.option(
    "--readme",
    type=_NOTEBOOK,
    help="Only rewrite what is recorded: this README, its docs/results.md, the rungs' headers.",
)
def bench(suite: str, out: Path | None, plot: Path | None, recorded: bool, keep: bool, readme: Path | None) -> None:
    """Measure what the engine or the judge costs on this machine, or the rungs against the libraries on its GPU.

    On a GPU: direct (the lab report's images), lowering (its steps by themselves, more filters), gemm (matrix
    products), plans (all that cuDNN builds for a layer), cudnn (AlexNet, every precision and layout), sparse (every
    sparse layer of three networks), batch (1 to 192 images), codegen (weights as code on these layers), training
    (networks layer by layer, and the stages of an iteration). Without one: codesize (what weights as code take).
    """
    if readme or suite in _RECORDED_SUITES:
        from . import gpu_bench

        if readme:
            gpu_bench.rewrite_results(readme, _console())
        else:
            gpu_bench.run(suite, _console(), out=out, plot=plot, kept=recorded, keep=keep)
        return
    if (plot and suite != "engine") or recorded or keep:
        raise click.UsageError("--plot, --recorded and --keep are of the suites " + ", ".join(_RECORDED_SUITES))
    import datetime
    import json
    from dataclasses import asdict

    from rich.table import Table

    from ...kernels.bench import engine as measuring
    from ..course import bench as judging
    from ..course import bench_class
    from ..judge import sandbox
    from . import terminal

    policy = "bwrap" if sandbox.available()[0] else "none"
    table = Table("what (ms)", "median", "lowest", "highest", "runs", "CPU", "at most", "ratio", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = []
    console = _console()
    with console.status(f"measuring the suite {suite} …"):
        own = {"judge": judging.suite, "grading": bench_class.suite}
        for row in measuring.suite() if suite == "engine" else own[suite](policy):
            rows.append(row)
            figures = (row.seconds, *row.spread)
            limits = ("" if t is None else f"{1e3 * t:.1f}" for t in (row.cpu_seconds, row.at_most))
            ratio = "" if row.ratio is None else f"{row.ratio:,.0f}"
            table.add_row(row.what, *(f"{1e3 * t:.1f}" for t in figures), str(row.repetitions), *limits, ratio)
        grown = measuring.growth() if suite == "engine" and (plot or out) else []
    terminal.print_whole(table, console)
    if suite == "engine" and not measuring.has_numba():
        console.print("\nfor the same work in Numba's CUDA simulator: pip install numba", soft_wrap=True)
    if plot:
        measuring.draw(grown, plot)
        click.echo(f"written to {plot}")
    machine = measuring.machine()
    console.print(f"\n{machine['processor']}, {machine['cores']} cores, Python {machine['python']}", soft_wrap=True)
    if out:
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        record = {"suite": suite, "date": date, "convladder": __version__, "machine": machine}
        out.write_text(
            json.dumps(
                {**record, "rows": [asdict(row) for row in rows], "growth": [asdict(row) for row in grown]}, indent=1
            )
            + "\n"
        )
        click.echo(f"written to {out}")


# --- show ----------------------------------------------------------------------------------------


@main.command()
@click.argument("claims", nargs=-1, metavar="CLAIM...")
@click.option("--list", "listed", is_flag=True, help="Name all that there is.")
@click.option("--ask", is_flag=True, help="Ask for the prediction first.")
@click.option("--recorded", is_flag=True, help="Show what is recorded; measure nothing.")
@click.option("--wait", type=click.FloatRange(1), default=120, show_default=True, help="Seconds that a GPU may take.")
@click.option("--out", type=_FOLDER, default=Path("build", "show"), show_default=True, help="Where pictures go.")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON, and write nothing.")
def show(
    claims: tuple[str, ...], listed: bool, ask: bool, recorded: bool, wait: float, out: Path, as_json: bool
) -> None:
    """Show a claim of the sources, or one of ours, as a table and as a slide: OUT/CLAIM.png, .svg and .json.

    Measured on the GPU at hand; where there is none, or it fails or takes too long, what is recorded is shown. The
    picture says which of the two it is.
    """
    from . import show as shows
    from . import terminal

    if listed:
        _console().print(terminal.claims(shows.claimed().values()))
        return
    if not claims:
        raise click.UsageError("Name a claim; `convladder show --list` names all.")
    for claim in [shows.named(name) for name in claims]:
        said = click.prompt(claim.ask.question, type=float) if ask and claim.ask else None
        found = shows.show(claim, from_record=recorded, wait_s=wait)
        if as_json:
            click.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
            continue
        terminal.print_whole(terminal.shown(found), _console())
        if said is not None:
            click.echo(found.beside(said))
        for path in found.save(out):
            click.echo(path)


# --- nbgrader ------------------------------------------------------------------------------------


@main.command("nbgrader-setup")
@click.argument("dest", type=_FOLDER)
@click.option("--lab", "labs", multiple=True, help="A lab of the course; may be given again.  [default: all]")
@click.option(
    "--course", "course_file", type=_NOTEBOOK, help="The course.toml whose rules hold.  [default: DEST's own]"
)
def nbgrader_setup(dest: Path, labs: tuple[str, ...], course_file: Path | None) -> None:
    """Make DEST a course folder for nbgrader's own commands, or renew its source notebooks."""
    from . import nbgrader_course

    for path in nbgrader_course.make(dest, labs, course_file=course_file):
        click.echo(path)
    lab = labs[0] if labs else "01_direct"
    click.echo(f"now, in {dest}: nbgrader generate_assignment {lab}")


# --- course --------------------------------------------------------------------------------------


@main.group()
def course() -> None:
    """A course's own rules: roster, deadlines, points, hidden cases, the form of timing."""


@course.command("init")
@click.argument("dest", type=_FOLDER)
@click.option("--semester", default="this semester", show_default=True, help="What the course calls itself.")
def course_init(dest: Path, semester: str) -> None:
    """Begin a course in DEST: course.toml, a roster to fill in, a secret, and hidden cases made from it."""
    from ..course import begin

    for path in begin.begin(dest, semester):
        click.echo(path)


@course.command("check")
@click.argument("file", type=_NOTEBOOK)
def course_check(file: Path) -> None:
    """Check course.toml with everything that it names, and say what it means."""
    from ..course import course as courses
    from . import report

    for line in courses.summary(courses.load(file)):
        click.echo(report.plain(line))


@course.command("record")
@click.argument("out", type=_FOLDER)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--command", default="", help="How the class was graded, to stand in the record.")
def course_record(out: Path, file: Path, command: str) -> None:
    """Keep the grades in OUT, which were timed on a GPU, as a record that can be shown elsewhere."""
    from ..course import recorded

    file.write_text(json.dumps(recorded.collect(out, command), indent=1) + "\n", encoding="utf-8")
    click.echo(file)


@course.command("timing")
@click.argument("lab")
@click.option("--solved", type=_NOTEBOOK, help="The solved notebook.  [default: built from solutions/]")
@click.option("--repeat", type=click.IntRange(1, 1000), default=20, show_default=True, help="Timings of each text.")
@click.option("--base-repeat", type=click.IntRange(1, 1000), help="The same for the base rung.  [default: --repeat]")
@click.option("--workers", type=click.IntRange(1, 1024), default=1, show_default=True, help="Processes at once.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write what was found here, as JSON.")
@click.option("--no-sandbox", is_flag=True, help="Run the texts, which are the lab's own, in plain processes.")
def course_timing(
    lab: str, solved: Path | None, repeat: int, base_repeat: int | None, workers: int, out: Path | None,
    no_sandbox: bool,
) -> None:  # fmt: skip
    """Is timing steady on this GPU? The solved answer must get all timing points every time, its base rung none."""
    import tempfile
    from dataclasses import asdict

    from ..course import steadiness
    from ..judge import sandbox, spec, submission

    _require_device("gpu")
    policy = sandbox.SandboxPolicy("none" if no_sandbox else _require_sandbox(), gpu=True)  # type: ignore[arg-type]
    loaded = spec.load(lab)
    with tempfile.TemporaryDirectory() as folder:
        if solved is None:
            from ..course import build as building

            solved = Path(folder, f"{lab}.ipynb")
            solved.write_text(building.serialise(building.solved_notebook(lab)), encoding="utf-8")
        read = submission.read(solved, loaded)

    def watch(task: str, who: str, number: int, record: Any) -> None:
        points = "undecided" if record.passed is None else f"{record.score:g} of {record.max:g}"
        click.echo(f"{number + 1:3d} {task} {who:6s} {points}: {record.rationale}")

    found = steadiness.examine(loaded, read, repeat, policy, watch, base_times=base_repeat, workers=workers)
    if out is not None:
        out.write_text(json.dumps({**asdict(found), "steady": found.steady}, indent=1) + "\n", encoding="utf-8")
        click.echo(f"written to {out}")
    click.echo("steady" if found.steady else "NOT steady: see above")
    sys.exit(0 if found.steady else 1)


# --- build and prove -----------------------------------------------------------------------------


@main.command()
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 where labs/ is stale.")
@_COURSE
def build(only_check: bool, course_file: Path | None) -> None:
    """Build labs/ from solutions/ and kernels/ladder/, and for instructors answer keys and what students get wrong.

    With --course: build that course's own labs, into the folder `built` beside course.toml.
    """
    from ..course import answer_key, mistakes
    from ..course import build as building

    if course_file is not None:
        if only_check:
            raise click.UsageError(
                "--check is of the repository's labs; `convladder prove --course` checks a course's."
            )
        for path in building.write_own(_course(course_file)):
            click.echo(path)
        return
    if only_check:
        stale = [*building.stale(), *mistakes.stale(), *answer_key.stale()]
        for path in stale:
            click.echo(f"stale: {path}")
        click.echo("Run `convladder build` and commit." if stale else "labs/ is what its sources build.")
        sys.exit(1 if stale else 0)
    for path in (*building.write(), mistakes.write(), *answer_key.write()):
        click.echo(path)


@main.command()
@click.argument("dest", type=_FOLDER)
@_COURSE
def release(dest: Path, course_file: Path | None) -> None:
    """Make the students' bundle in DEST: labs and a wheel without answers and hidden cases; and your checklist."""
    from ..course import release as releasing

    for path in releasing.release(dest, course=_course(course_file)):
        click.echo(path)
    click.echo(f"No answer and no hidden case was found in it. What is left to do: {dest / 'CHECKLIST.md'}")


@main.command()
@click.argument("labs", nargs=-1)
@_COURSE
def prove(labs: tuple[str, ...], course_file: Path | None) -> None:
    """Prove labs: the stub scores 0, the solution full, each wrong submission its named failure, no stale file.

    All labs unless some are named: the repository's, or with --course that course's own.
    """
    from rich.text import Text

    from ..course import build as building
    from ..course import prove as proving
    from . import report

    console = _console()
    proofs = []
    course = _course(course_file)
    for lab in labs or (course.own() if course is not None else building.labs()):
        proof = proving.prove(lab, course=course)
        proofs.append(proof)
        for step in proof.steps:
            mark = ("✓", "blue") if step.passed else ("✗", "bold red")
            console.print(Text.assemble(mark, f" {lab}: {step.name}"))
            for line in step.details:
                console.print(Text(f"    {report.plain(line)}"))
    sys.exit(0 if all(proof.passed for proof in proofs) else 1)


# --- run -----------------------------------------------------------------------------------------


class _Warp(click.ParamType):
    """A warp of a block: `0` (of block 0), or `3,1` (warp 1 of block 3)."""

    name = "[BLOCK,]WARP"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"\d{1,12}(,\d{1,12})?", str(value)):
            self.fail(f"{value!r} is not a warp, such as 0, or 3,1 for warp 1 of block 3.", param, ctx)
        *block, warp = map(int, str(value).split(","))
        return (block[0] if block else 0, warp)


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", default="", metavar="NAME", help="Not needed where the file has one kernel.")
@click.option("--grid", default="", metavar="X[,Y[,Z]]", help="Blocks, as 4, 4,4 or 'cdiv(n, 256)'.")
@click.option("--block", default="", metavar="X[,Y[,Z]]", help="Threads a block.")
@click.option(
    "--arg", "arguments", multiple=True, metavar="NAME=WHAT", help="x=float[256]:random, y=float[256]:out, n=256"
)
@click.option("--set", "symbols", multiple=True, metavar="NAME=WHAT", help="A __constant__ or __device__ variable.")
@click.option("--shared", default="0", metavar="BYTES", help="Dynamic shared memory, as 4096 or '4*n'.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random contents.")
@click.option("--budget", type=click.IntRange(1), help="Work that ends the run: an instruction of a warp counts 1.")
@click.option("--trace", "watch", type=_Warp(), help="Draw what each lane of this warp touches.")
@click.option("--save", multiple=True, metavar="NAME=FILE.npy", help="Write an array as it was afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print everything, errors too, as JSON.")
def run(save: tuple[str, ...], as_json: bool, arguments: tuple[str, ...], **asked: Any) -> None:
    """Run any kernel of a CUDA file on the engine, and report its faults and counters.

    Array contents: random, zeros, ones, arange, a number, out (undefined until written) or a .npy file. Sizes and
    numbers may name numbers given before them, as in --arg n=256 --arg 'x=float[4*n]:random'. Without --grid and
    --block the file's own `//@ launch` lines say what is launched.

    Exit code: 0 no fault; 1 faults; 2 it could not be run; 3 there is no compiler on this machine.
    """
    from ...kernels.errors import BackendError
    from . import single, terminal

    try:
        done = single.run(single.Asked(asked.pop("file"), described=arguments, **asked))
        single.save(done, save)
    except ConvladderError as error:
        if as_json:
            click.echo(json.dumps({"error": single.error_json(error)}, indent=1))
        else:
            _tell(str(error))
        sys.exit(3 if isinstance(error, BackendError) else 2)
    if as_json:
        click.echo(json.dumps(done.to_json(), indent=1, allow_nan=False))
    else:
        _console().print(terminal.single_run(done))
    sys.exit(1 if done.faults else 0)


if __name__ == "__main__":
    main()
