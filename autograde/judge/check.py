"""The checks of one task, in the order in which one needs another: one mistake costs one message.

    kernel   TASK.compiles -> TASK.runs -> TASK.correct -> TASK.hidden, TASK.counters.NAME…, TASK.target
    python   TASK.correct -> TASK.hidden
    generator  as kernel: each case's text is made by the function, and judged by what it does
    number   TASK.prediction
    explain  TASK.explanation, which a person grades

A check whose needs failed is skipped (`passed` is None). The same code serves the notebook's check(),
`convladder check` and the grading of a class.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from convladder.kernels import expression
from convladder.kernels.errors import BackendError
from convladder.kernels.expression import ExpressionError

from . import counterexample, counting, generator_task, kernel_task, lanes, measurement, python_task, score
from . import timing as measured
from .kernel_task import Judgement
from .measurement import Measurement
from .record import CheckRecord
from .sandbox import Worker
from .score import PlannedCheck, Timing
from .spec import ExplainTask, GeneratorTask, KernelTask, NumberTask, PythonTask, Spec, SpecError, Target, Task
from .submission import Answer, written
from .timing import Gain

#: A number answer is one short line.
_MAX_NUMBER_TEXT = 2000


def check_task(
    spec: Spec,
    task: str | Task,
    text: str | Answer | None,
    worker: Worker,
    *,
    on: str = "sim",
    timing: Timing = "counters",
    explain: bool = True,
    hidden: bool = True,
    secret: bytes = b"",
    gains: Mapping[str, Gain] | None = None,
) -> list[CheckRecord]:
    """Every check of one task.

    text     the cell without its magic line, an Answer, or None where there is no cell
    worker   where the text runs; it stays usable whatever the text does
    on       "gpu": values are taken from the GPU, after the engine found no fault
    hidden   whether hidden cases are judged too
    secret   seeds the data of all cases
    timing   "measured" needs on="gpu" and a worker that sees it
    gains    what `timing.calibrate` found for the class: which targets are timed on this device
    Raises SandboxError, BackendError: this machine cannot judge. Whatever the text does wrong is in the records.
    """
    task = spec.task(task) if isinstance(task, str) else task
    answer = Answer(text) if isinstance(text, str) else text
    checks = [c for c in score.planned(spec, timing=timing, explain=explain, hidden=hidden) if c.task == task.name]
    if answer is not None and not answer.text.strip() and not isinstance(task, ExplainTask):
        missing = f"{answer.where()} is empty"
    else:
        missing = f"there is no cell for {task.name}" if answer is None else ""
    if missing and checks:
        return list(_all_failed(task, checks, missing))
    assert answer is not None or not checks
    if not checks or answer is None:
        return []
    if isinstance(task, GeneratorTask):
        return _check_generator(spec, task, answer, worker, checks, on, hidden, secret)
    if isinstance(task, KernelTask):
        if timing == "measured" and on != "gpu":
            raise BackendError('timing = "measured" needs a GPU: judge with on = "gpu"')
        known = (gains or {}).get(task.name)
        return _check_kernel(spec, task, answer, worker, checks, on, timing, hidden, secret, known)
    if isinstance(task, PythonTask):
        return _check_python(task, answer, worker, checks, hidden)
    if isinstance(task, NumberTask):
        return [_check_number(task, answer, checks[0])]
    assert isinstance(task, ExplainTask)
    return [_check_explanation(task, answer, checks[0])]


def measure_task(
    spec: Spec, task: str, text: str | Answer, worker: Worker, *, secret: bytes = b"", case: str | None = None,
    watch: tuple[int, int] | None = None,
) -> Measurement:  # fmt: skip
    """The counters of a kernel task's text on its measuring case (or another public one).

    watch  (block, warp), linear indices: what each lane of that warp touches is noted too
    Raises SpecError where the task is no kernel or has no such case, SandboxError where no worker starts.
    """
    found = spec.task(task)
    if not isinstance(found, KernelTask) or isinstance(found, GeneratorTask):
        raise SpecError(f"{task} is a {found.kind} task: only kernels are measured")
    public = [c.name for c in found.cases if not c.hidden]
    if case is not None and case not in public:
        raise SpecError(f"{task} has no case {case!r}: its cases are {', '.join(public)}")
    answer = Answer(text) if isinstance(text, str) else text
    return measurement.measure(spec.lab, found, answer, worker, secret, case, watch)


def _all_failed(task: Task, checks: list[PlannedCheck], why: str) -> Iterator[CheckRecord]:
    """The first check says why; the others need it."""
    yield CheckRecord(task.name, checks[0].name, False, 0.0, checks[0].max, why, task.help)
    yield from (_skipped(task, c, checks[0].name) for c in checks[1:])


def _skipped(task: Task, check: PlannedCheck, needs: str) -> CheckRecord:
    is_hidden = check.name.endswith(".hidden")
    return CheckRecord(
        task.name, check.name, None, 0.0, check.max, f"skipped: needs {needs}", task.help, hidden=is_hidden
    )  # fmt: skip


# ---- kernels


def _check_kernel(
    spec: Spec, task: KernelTask, answer: Answer, worker: Worker, checks: list[PlannedCheck],
    on: str, timing: Timing, hidden: bool, secret: bytes, known: Gain | None,
) -> list[CheckRecord]:  # fmt: skip
    cases = [c for c in task.cases if not c.hidden] + [c for c in task.cases if c.hidden and hidden]
    result = kernel_task.run(spec.lab, task, answer, worker, on=on, secret=secret, cases=cases)

    def explained(found: Judgement) -> Judgement:
        return counterexample.shown(found, task, result, answer, worker)

    def pictured(found: Judgement) -> Judgement:
        return lanes.shown(found, task, result, answer, worker)

    judged: dict[str, Callable[[], Judgement]] = {
        "compiles": lambda: kernel_task.compiles(result),
        "runs": lambda: explained(kernel_task.runs(result, answer)),
        "correct": lambda: explained(kernel_task.correct(result)),
        "hidden": lambda: explained(kernel_task.hidden(result, answer)),
    }
    for t in task.counters:
        judged[f"counters.{t.name}"] = lambda t=t: pictured(kernel_task.threshold(task, t, result, answer))  # type: ignore[misc]
    if (goal := task.target) is not None:
        judged["target"] = lambda: _target(spec, task, goal, result, answer, worker, timing, secret, known)
    return _in_order(task, checks, judged)


def _check_generator(
    spec: Spec, task: GeneratorTask, answer: Answer, worker: Worker, checks: list[PlannedCheck],
    on: str, hidden: bool, secret: bytes,
) -> list[CheckRecord]:  # fmt: skip
    outcome = generator_task.run(spec.lab, task, answer, worker, on=on, secret=secret, hidden=hidden)
    judged: dict[str, Callable[[], Judgement]] = {
        "compiles": outcome.compiles, "runs": outcome.runs, "correct": outcome.correct, "hidden": outcome.hidden,
    }  # fmt: skip
    for t in task.counters:
        judged[f"counters.{t.name}"] = lambda t=t: outcome.threshold(task, t)  # type: ignore[misc]
    return _in_order(task, checks, judged)


def _in_order(
    task: KernelTask, checks: list[PlannedCheck], judged: Mapping[str, Callable[[], Judgement]]
) -> list[CheckRecord]:
    """The checks, up to one that the others need."""
    records: list[CheckRecord] = []
    failed = ""
    for check in checks:
        name = check.name.removeprefix(f"{task.name}.")
        if failed:
            records.append(_skipped(task, check, failed))
            continue
        try:
            found = judged[name]()
        except BackendError as error:
            # Only thresholds and targets that name a rung get here: the rung is not in this installation.
            records.append(
                CheckRecord(task.name, check.name, None, 0.0, check.max, f"not measured here: {error}", task.help)
            )
            continue
        records.append(kernel_task.record(check.name, task, check.max, found, name == "hidden"))
        if not found.passed and name in ("compiles", "runs", "correct"):
            failed = check.name
    return records


def _target(
    spec: Spec, task: KernelTask, goal: Target, result: kernel_task.Run, answer: Answer, worker: Worker,
    timing: Timing, secret: bytes, known: Gain | None,
) -> Judgement:  # fmt: skip
    """By time where that is asked for and can be told here, else by the counters."""
    if timing != "measured":
        return kernel_task.target(task, goal, result, answer)
    found = measured.judge(spec.lab, task, goal, answer, worker, secret, known)
    if isinstance(found, Judgement):
        return found
    counted = kernel_task.target(task, goal, result, answer)
    evidence = {**counted.evidence, "form": "counters", "why_not_measured": found}
    return replace(counted, rationale=f"{counted.rationale}. Scored by its counters: {found}", evidence=evidence)


# ---- functions


def _check_python(
    task: PythonTask, answer: Answer, worker: Worker, checks: list[PlannedCheck], hidden: bool
) -> list[CheckRecord]:
    outcome = python_task.run(task, answer, worker, hidden)
    if outcome.broken:
        return list(_all_failed(task, checks, outcome.broken))
    records = [_check_calls(task, checks[0], outcome, False)]
    for check in checks[1:]:
        if records[0].passed:
            records.append(_check_calls(task, check, outcome, True))
        else:
            records.append(_skipped(task, check, checks[0].name))
    return records


def _check_calls(task: PythonTask, check: PlannedCheck, outcome: python_task.Outcome, hidden: bool) -> CheckRecord:
    failed = [c for c in outcome.failed if c.hidden == hidden]
    total = outcome.hidden_calls if hidden else outcome.calls
    if not failed:
        said = f"right in {total} {'hidden calls' if hidden else 'calls'}"
        return CheckRecord(task.name, check.name, True, check.max, check.max, said, task.help, hidden=hidden)
    first = failed[0]
    more = f" ({len(failed)} of {total} calls are wrong)" if len(failed) > 1 else ""
    evidence = {"case": first.case, **first.evidence, "wrong": len(failed), "calls": total}
    if hidden:
        evidence["category"] = "wrong value in a hidden call"
    said = f"{first.shown} {first.reason}{more}"
    return CheckRecord(
        task.name, check.name, False, 0.0, check.max, said, task.help, evidence, hidden=hidden
    )  # fmt: skip


# ---- numbers


def _check_number(task: NumberTask, answer: Answer, check: PlannedCheck) -> CheckRecord:
    def failed(why: str, **evidence: float | str) -> CheckRecord:
        return CheckRecord(task.name, check.name, False, 0.0, check.max, why, task.help, dict(evidence))

    symbols: dict[str, int | float] = {**task.symbols}
    known = symbols
    try:
        if task.rung and task.case and task.problem:
            symbols = dict(_named(task))
            known = {**symbols, **counting.rung_numbers(task.rung, task.problem, task.case.symbols)}
    except BackendError as error:
        return CheckRecord(task.name, check.name, None, 0.0, check.max, f"not measured here: {error}", task.help)
    expected = float(expression.evaluate(task.formula, known))
    try:
        text = _right_hand_side(task.name, answer)
        value = float(expression.evaluate(text, symbols))
    except ExpressionError as error:
        return failed(str(error))
    if not math.isfinite(value):
        return failed(f"{text} is not a number", text=text)
    if abs(value - expected) <= task.tolerance * abs(expected) + 1e-9 * abs(expected):
        said = f"{value:g} is right"
        return CheckRecord(
            task.name, check.name, True, check.max, check.max, said, task.help, {"value": value, "text": text}
        )
    # How far off is for the student to find out: the lab's next step measures it.
    size = "too large" if value > expected else "too small"
    return failed(f"{value:g} is {size}", value=value, text=text)


def predicted(task: NumberTask, answer: Answer) -> float | None:
    """The number that an answer says; None where it says none."""
    symbols = dict(_named(task)) if task.case and task.problem else dict(task.symbols)
    try:
        return float(expression.evaluate(_right_hand_side(task.name, answer), symbols))
    except ExpressionError:
        return None


def _named(task: NumberTask) -> Iterator[tuple[str, int | float]]:
    """The symbols of the task's case, P and Q among them."""
    assert task.problem is not None
    assert task.case is not None
    yield from kernel_task.case_symbols(task.problem, task.case).items()


def _right_hand_side(name: str, answer: Answer) -> str:
    """The expression in `NAME = expression`, as text; read from the syntax tree, never run."""
    if len(answer.text) > _MAX_NUMBER_TEXT:
        raise ExpressionError(f"{answer.where()} has {len(answer.text)} characters: it takes one line, `{name} = …`")
    try:
        tree = ast.parse(answer.text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{answer.where()} is not Python: it takes one line, `{name} = …`") from None
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    if not values:
        raise ExpressionError(f"{answer.where()} does not set {name}: write `{name} = …` with your number")
    if len(values) > 1:
        raise ExpressionError(f"{answer.where()} sets {name} {len(values)} times: keep one line")
    if isinstance(values[0], ast.Constant) and values[0].value is Ellipsis:
        raise ExpressionError(f"no number yet: write yours in place of the dots, `{name} = …`")
    try:
        return ast.unparse(values[0])
    except RecursionError:
        raise ExpressionError(f"{answer.where()}: what {name} is set to is nested too deeply") from None


# ---- explanations


def _check_explanation(task: ExplainTask, answer: Answer, check: PlannedCheck) -> CheckRecord:
    text = written(answer.text)
    words = len(text.split())
    if not words:
        why = f"{answer.where()} has no answer: write at most {task.words} words into it"
        return CheckRecord(task.name, check.name, False, 0.0, check.max, why, task.help)
    long = f", {words - task.words} more than asked" if words > task.words else ""
    evidence = {"words": words, "text": text[:5000], "rubric": list(task.rubric)}
    said = f"a person grades this: {words} words{long}"
    return CheckRecord(task.name, check.name, None, 0.0, check.max, said, task.help, evidence, manual=True)
