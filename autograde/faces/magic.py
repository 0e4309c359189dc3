"""The labs' notebooks: `%%cuda TASK`, `%%answer TASK`, `check()` and `measure()`.

What a student sees here comes from the very code that grades, on the public cases. Kernels run in a worker
process that stays warm between calls, so a crash there leaves the notebook alone.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import __version__
from ...kernels import expression, gpu, plan, rungs, signature
from ...kernels import recorded as kept
from ...kernels.errors import BackendError, ConvladderError
from ...kernels.result import Counters, total
from ..course import recorded
from ..judge import check as checking
from ..judge import counting, kernel_task, sandbox, timing
from ..judge import spec as specs
from ..judge.measurement import Measurement
from ..judge.record import CheckRecord
from ..judge.spec import ExplainTask, GeneratorTask, KernelTask, NumberTask, Spec, Task
from ..judge.submission import Answer
from . import bars, report, terminal, traffic
from .bars import Bars
from .lanes import LaneMap, lane_map, worst

#: Names the seeds of the public inputs: students may know them.
_PUBLIC = kernel_task.PUBLIC_SECRET


class NotebookError(ConvladderError):
    """Something was called that the notebook is not ready for. The message says what to run first."""


@dataclass
class Checked:
    """What `check` gives back: records, drawn by the notebook as a page and elsewhere as text."""

    checks: list[CheckRecord]
    titles: Mapping[str, str] = field(repr=False, default_factory=dict)
    sources: Mapping[str, str] = field(repr=False, default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """Whether every check that a machine can decide passed."""
        machine = [c for c in self.checks if not c.manual]
        return bool(machine) and not self.notes and all(c.passed for c in machine)

    @property
    def complete(self) -> bool:
        """Whether nothing was lost either; a check that cannot be made here loses nothing."""
        machine = [c for c in self.checks if not c.manual]
        lost = [c for c in machine if c.passed is False or (c.passed and c.score < c.max)]
        return not self.notes and not lost

    def __repr__(self) -> str:
        drawn = terminal.as_text(terminal.checks(self.checks, self.titles, self.sources)) if self.checks else ""
        return "\n".join([*self.notes, drawn]).strip()

    def _repr_html_(self) -> str:
        return report.cell_html(self.checks, self.titles, self.sources, self.notes)


@dataclass
class Measured:
    """What `measure` gives back: the engine's counters of one run, by source line, and what a warp touches.

    printed   what the threads printed
    """

    title: str
    seen: traffic.Traffic = field(repr=False)
    counters: Mapping[str, float] = field(repr=False)
    lanes: Sequence[LaneMap] = field(repr=False, default=())
    printed: str = field(repr=False, default="")
    bars: Sequence[Bars] = field(repr=False, default=())
    predicted: Sequence[str] = field(repr=False, default=())

    def __repr__(self) -> str:
        shown = [self.title, terminal.as_text(terminal.traffic(self.seen))]
        if self.printed:
            shown.insert(1, f"printed:\n{report.plain(self.printed)}")
        shown += [f"predicted against measured: {line}" for line in self.predicted]
        shown += [f"\n{report.plain(drawn.text())}" for drawn in self.bars]
        if (widest := worst(self.lanes)) is not None:
            shown.append(terminal.as_text(terminal.lane_map(widest)))
        return "\n".join(shown).rstrip()

    def _repr_html_(self) -> str:
        return report.traffic_html(self.seen, self.title, self.lanes, self.printed, self.bars, self.predicted)


@dataclass
class Timed:
    """What `time_kernel` gives back: one sentence on how long the kernel took, and where; bars where it was timed."""

    said: str
    drawn: Bars | None = field(repr=False, default=None)

    def __repr__(self) -> str:
        return "\n".join([self.said, *([self.drawn.text()] if self.drawn else [])])

    def _repr_html_(self) -> str:
        return report.timed_html(self.said, self.drawn)


class Lab:
    """One opened lab: its spec, the answers whose cells have been run, and a warm worker."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.answers: dict[str, Answer] = {}
        self.worker = sandbox.open_worker("none")
        self.worker.start("kernel")

    def close(self) -> None:
        self.worker.close()

    def task(self, name: str) -> Task:
        return self.spec.task(name)

    def titles(self) -> dict[str, str]:
        return {task.name: task.title for task in self.spec.tasks}

    def store(self, name: str, text: str, magic: str) -> Task:
        """Keep the text of a task's cell. Raises where the task is unknown or of the other kind."""
        task = self.task(name)
        if isinstance(task, ExplainTask):
            raise NotebookError(f"{name} is answered in words: write into its text cell.")
        if magic != task.magic:
            raise NotebookError(f"{name} is a {task.kind} task: its cell begins with %%{task.magic} {name}.")
        self.answers[name] = Answer(text)
        return task

    def check(self, name: str) -> list[CheckRecord]:
        task = self.task(name)
        return checking.check_task(
            self.spec, task, self.answers[name], self.worker, timing="counters", hidden=False, secret=_PUBLIC
        )


_lab: Lab | None = None


def open_lab(lab: str) -> None:
    """Open a lab in this notebook: register `%%cuda TASK` and `%%answer TASK`, and say what kernels run on.

    A lab of a course's own is described by LAB.toml in the notebook's folder.
    Raises SpecError where there is no such lab, NotebookError outside of a notebook.
    """
    global _lab
    shell = _shell()
    spec = specs.load(lab, specs.folder_of(lab, Path.cwd()), hidden=False)
    if _lab is not None:
        _lab.close()
    _lab = Lab(spec)
    shell.set_custom_exc((ConvladderError,), _tell)
    shell.register_magic_function(_cuda, "cell", "cuda")
    shell.register_magic_function(_answer, "cell", "answer")
    print(f"{spec.lab}: {spec.title}   (convladder {__version__})")
    print(_back_end())


def _shell() -> Any:
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        raise NotebookError(
            "open_lab is for notebooks: open the lab in JupyterLab. From a terminal, use `convladder check NOTEBOOK`."
        )
    return shell


def _tell(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: int | None = None) -> None:
    """Show an expected error as its message alone; the cell still counts as failed."""
    shell._showtraceback(kind, error, [report.plain(str(error))])


def _back_end() -> str:
    """One line on what kernels run on here, or on what to install."""
    from ...kernels.compiler import compile_ptx

    try:
        compile_ptx("")
    except BackendError as error:
        return f"Kernels cannot run here: {error} (`convladder doctor` tells more.)"
    gpu = _gpu_name()
    beside = f"; there is a GPU too ({gpu})" if gpu else ", without a GPU"
    return f"Kernels are compiled by NVRTC and run on the engine{beside}."


def _gpu_name() -> str:
    if importlib.util.find_spec("cupy") is None:
        return ""
    try:
        return gpu.device_facts()["device"]
    except BackendError:
        return ""


def _opened() -> Lab:
    if _lab is None:
        raise NotebookError(
            "No lab is open: run the notebook's first cell, the one with open_lab(…). After a restart of the kernel "
            "every cell has to be run again."
        )
    return _lab


@atexit.register
def _close() -> None:
    if _lab is not None:
        _lab.close()


# --- The two magics ------------------------------------------------------------------------------


def _cuda(line: str, cell: str) -> None:
    """%%cuda TASK: keep the cell's text as the answer to TASK, and compile it."""
    lab, name = _opened(), _task_name(line, "cuda")
    lab.store(name, cell, "cuda")
    _show(compiled(lab, name))


def _answer(line: str, cell: str) -> None:
    """%%answer TASK: keep the cell's text as the answer to TASK, and run it as any other cell."""
    lab, name = _opened(), _task_name(line, "answer")
    lab.store(name, cell, "answer")
    # The magic's own line stands in for itself, so that a traceback has the cell's line numbers, as check() has.
    _shell().run_cell(f"# %%answer {name}\n{cell}")


def _task_name(line: str, magic: str) -> str:
    words = line.split()
    if len(words) != 1:
        raise NotebookError(f"The first line of this cell names one task: %%{magic} TASK.")
    return words[0]


def _show(what: Any) -> None:
    from IPython.display import display

    display(what)


@dataclass
class Compiled:
    """What came of a cell: its kernels, and what the compiler or a launch has to complain of, at the cell's lines."""

    kernels: Sequence[str] = ()
    complaints: Sequence[report.Complaint] = ()
    hint: str = ""

    def __repr__(self) -> str:
        shown = [f"compiles: kernel {k}" for k in self.kernels]
        if self.complaints:
            shown.append(terminal.as_text(terminal.complaints(self.complaints)).rstrip())
        return "\n".join([*shown, *([self.hint] if self.hint else [])])

    def _repr_html_(self) -> str:
        return report.compiled_html(self.kernels, self.complaints, self.hint)


def compiled(lab: Lab, name: str) -> Compiled:
    """Compile a task's text in the worker and try its launches on the smallest case, as the checks will."""
    task, answer = lab.task(name), lab.answers[name]
    assert isinstance(task, KernelTask)
    request, arrays, reply_bytes = kernel_task.trial(lab.spec.lab, task, answer)
    try:
        reply = [f.header for f in lab.worker.request("kernel", request, arrays, reply_bytes=reply_bytes)]
    except sandbox.WorkerError as error:
        reply = [f.header for f in error.frames]
        if not reply:
            return Compiled(complaints=[report.Complaint(f"The compiler did not come to an end: {error.detail}.")])
    known: list[str] = next((event["kernels"] for event in reply if event["event"] == "compiled"), [])
    declared = signature.kernels(answer.text)
    kernels = [f"{k}({', '.join(map(str, declared.get(k, ())))})" for k in known]
    failed = next((event for event in reply if event["event"] == "error"), None)
    if failed is not None and failed["stage"] == "compile":
        return Compiled(complaints=report.complaints(failed, answer.source()))
    if not kernels:
        return Compiled(hint="There is no kernel in this cell: it is declared as __global__ void NAME(…).")
    if not plan.parse(answer.text).launches:
        return Compiled(kernels, hint=f"It has no launch line yet: //@ launch {known[0]} grid=(…) block=…")
    if failed is None:  # what the kernel does wrong when it runs is for check() to say
        return Compiled(kernels)
    said = {**failed, "message": f"{failed['message']}{kernel_task.passed(failed, task)}"}
    return Compiled(kernels, report.complaints(said, answer.source()))


# --- check and measure ---------------------------------------------------------------------------


def check(task: str | None = None) -> Checked:
    """Check one task on its public cases, or all of them; the notebook shows the result.

    Raises NotebookError where no lab is open, SpecError where the lab has no such task.
    """
    lab = _opened()
    chosen = [lab.task(task)] if task is not None else list(lab.spec.tasks)
    records: list[CheckRecord] = []
    notes: list[str] = []
    for one in chosen:
        if isinstance(one, ExplainTask):
            if task is not None:
                notes.append(f"{one.name} is answered in words, and read by a person.")
        elif one.name in lab.answers:
            records += lab.check(one.name)
        else:
            notes.append(_not_run(one))
    sources = {name: answer.source() for name, answer in lab.answers.items()}
    found = Checked(records, lab.titles(), sources, notes)
    if os.environ.get("NBGRADER_VALIDATING") and not found.complete:
        raise NotebookError(str(found))  # what its Validate button takes for a failure
    return found


def measure(task: str, *, block: int = 0, warp: int = 0) -> Measured:
    """Run a kernel task on its measuring case and show what it moved, line by line.

    block, warp  linear indices of the warp whose lanes are drawn
    Raises NotebookError where its cell has not been run, is no kernel or does not run without faults.
    """
    lab = _opened()
    chosen = lab.task(task)
    if not isinstance(chosen, KernelTask) or isinstance(chosen, GeneratorTask):
        raise NotebookError(f"{task} is no kernel task: there is nothing to measure. Use check({task!r}).")
    if task not in lab.answers:
        raise NotebookError(_not_run(chosen))
    answer = lab.answers[task]
    found = checking.measure_task(lab.spec, task, answer, lab.worker, secret=_PUBLIC, watch=(block, warp))
    if found.problem:
        printed = f"\nprinted:\n{report.plain(found.printed)}" if found.printed else ""
        raise NotebookError(f"{task} cannot be measured: {found.problem}{printed}")
    counters = total(counted for _, counted in found.launches)
    sizes = ", ".join(f"{name}={value:g}" for name, value in found.symbols.items())
    title = f"{chosen.title}: {found.case} ({sizes})"
    drawn = [m for access in found.lanes if (m := lane_map(access)) is not None]
    return Measured(
        title, traffic.arrange(counters, answer.source()), found.totals, drawn, found.printed,
        _standing(lab, chosen, found, counters), list(_predicted(lab, chosen, found)),
    )  # fmt: skip


def _standing(lab: Lab, task: KernelTask, found: Measurement, counters: Counters) -> list[Bars]:
    """The kernel's traffic, where it stands between the rungs of its target, and its roofline beside theirs."""
    points = {bars.YOURS: (found.totals["flops"], found.totals["bytes_moved"])}
    between, goal = None, task.target
    if goal is not None and goal.case == found.case:
        case, seed = task.case(goal.case), kernel_task.seed(_PUBLIC, lab.spec.lab, task.name, goal.case)
        try:
            stands = counting.judge_target(goal, task.problem, case.symbols, found.symbols, found.totals, seed)
            ends = [counting.rung_numbers(rung, task.problem, case.symbols, seed) for rung in (goal.base, goal.target)]
        except BackendError:  # the rungs' counters are not in this installation
            pass
        else:
            base, target = ((end["flops"], end["bytes_moved"]) for end in ends)
            points = {f"{goal.base} (base)": base, **points, f"{goal.target} (target)": target}
            between = bars.standing(stands.evidence)
    drawn = [bars.moved(counters), between, _roofline(points)]
    return [one for one in drawn if one is not None]


def _roofline(points: Mapping[str, tuple[float, float]]) -> Bars | None:
    """Beside a device that was measured; None where none is recorded."""
    records = kept.load("direct")
    if not records:
        return None
    limits = records[0]["limits"]
    device = str(records[0]["device"]["device"])
    return bars.roofline(points, device, limits["bandwidth_gbs"], limits["peak_gflops"])


def _predicted(lab: Lab, task: KernelTask, found: Measurement) -> Iterator[str]:
    """The student's predictions about this kernel, each beside what was counted now."""
    for one in lab.spec.tasks:
        if not isinstance(one, NumberTask) or one.case is None or one.name not in lab.answers:
            continue
        said = checking.predicted(one, lab.answers[one.name])
        if said is not None and one.rung == task.ladder and one.case.name == found.case:
            counted = float(expression.evaluate(one.formula, {**found.symbols, **found.totals}))
            yield f"{one.title}: you predicted {said:g}, your kernel has {counted:.4g}."


def time_kernel(task: str) -> Timed:
    """Time a kernel on this machine's GPU, beside the two rungs that its target lies between.

    Without a GPU: what these rungs took on the one that they were recorded on. Where an installation has no rungs, as
    students' have none, the kernel is timed alone.
    Raises NotebookError where the task's cell has not been run, or it has no target to be timed against.
    """
    lab = _opened()
    chosen = lab.task(task)
    if not isinstance(chosen, KernelTask) or chosen.target is None or chosen.target.measured is None:
        raise NotebookError(f"{task} has no target to be timed against. Use measure({task!r}) or check({task!r}).")
    if task not in lab.answers:
        raise NotebookError(_not_run(chosen))
    sizes = ", ".join(f"{name}={value:g}" for name, value in chosen.target.measured.symbols.items())
    if not gpu.available():
        known = recorded.of_task(lab.spec.lab, task)
        said = f"{known}. Your kernel needs a GPU to be timed" if known else "your kernel needs a GPU to be timed"
        return Timed(f"Not measured here ({sizes}): {said}; without one its counters are judged.")
    with sandbox.open_worker(sandbox.SandboxPolicy("none", gpu=True)) as worker:
        if not rungs.with_sources():
            alone = timing.alone(lab.spec.lab, chosen, chosen.target, lab.answers[task], worker, _PUBLIC)
            return Timed(f"Measured here ({sizes}): {alone}. {_without_rungs(lab.spec.lab, task)}")
        found = timing.judge(lab.spec.lab, chosen, chosen.target, lab.answers[task], worker, _PUBLIC, None)
    if isinstance(found, str):
        return Timed(f"Measured here ({sizes}): {found}.")
    return Timed(f"Measured here ({sizes}): {found.rationale}.", bars.standing(found.evidence))


def _without_rungs(lab: str, task: str) -> str:
    known = recorded.of_task(lab, task)
    return (
        "The rungs that it is scored between are answers, so they are not in this installation and were not timed "
        f"beside it{f'; {known}' if known else ''}."
    )


def _not_run(task: Task) -> str:
    return (
        f"{task.name}: its cell has not been run since this notebook's kernel started. "
        f"Run the cell that begins with %%{task.magic} {task.name}, then this one again."
    )
