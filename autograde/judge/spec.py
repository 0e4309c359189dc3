"""A lab's tasks, cases, thresholds and points: `autograde/specs/LAB.toml`, read into typed data and checked.

This docstring is the schema. Unknown keys, unknown kinds, expressions that do not parse and points that do
not add up are SpecErrors, each naming file, place and fix.

    lab = "01_direct"            # the file's own stem
    title = "..."
    minutes = 120
    graded = true                # false: no points; `points` and `share` are left out
    [points]                     # the lab's categories, sum 100
    correctness = 60             # of these five; what is switched off is spread over the rest in proportion
    counters = 15
    timing = 15
    prediction = 5
    explanation = 5

Every `[[task]]` has

    name = "direct"              # a Python identifier; the cell's name, and the first part of its checks' names
    kind = "kernel"              # or "generator", "python", "number", "explain"
    title = "..."
    help = "Step 3"              # where in the lab to look; every check of the task repeats it
    share = {correctness = 3}    # weights: a category's points are divided over the tasks in proportion to them

A **kernel** task takes shares of correctness, counters and timing, and has

    problem = "conv2d"           # what is computed: one of problems.PROBLEMS
    params = ["x", "w", "y", …]  # what a launch line without args= passes, in order: arrays and symbols of the problem
    ladder = "direct_guarded"    # the rung that solves it (optional)
    measure_case = "..."         # the case that measure() runs (optional; else the largest public one)
    [[task.case]]                # at least one; every key but name is a symbol of the problem
    name = "one channel"
    N = 1 …
    [[task.counter]]             # a threshold on the engine's counters: the check TASK.counters.NAME
    name = "loads"               # an identifier
    case = "..."                 # a public case
    value = "store_bytes_moved - store_bytes_needed"   # over counters (COUNTERS) and the case's symbols. A mean, such
                                 # as sectors per request, is lowered by accesses that nobody needs: count the waste
    at_most = "N*K*P*Q / 2"      # or at_least; a number or an expression over symbols, and base_*, target_* (see below)
    weight = 1
    base, target = rungs         # optional: rungs whose counters `at_most` may name as base_* and target_*
    says = "..."                 # what a missed threshold means, in the student's terms
    help = "Step 4"              # optional; else the task's
    [task.target]                # the timing target in its counter form: the check TASK.target
    case = "..."
    base = "direct_report"       # rungs of kernels/ladder: score = clamp(ln(base / value) / ln(base / target)), both
    target = "direct_coalesced"  # ends moved in by the tolerance
    value = "sectors"
    active_lanes_at_least = 0.9  # any number of guards, NAME_at_least and NAME_at_most with a counter's NAME:
    busy_blocks_at_least = "target_blocks / 2" # numbers or expressions over symbols, base_* and target_*. Not blocks:
                                 # blocks that do nothing, or a launch more, cost nothing
    measured_case = {N = 16, …}  # optional: what is timed where timing is "measured": a layer of real size, in the
                                 # symbols of a case. Its times take the place of `value`; guards are not needed then
    tolerance = 0.05             # times, and values, as near as this to the base's or the target's count as equal to it
    says, help                   # optional

A **generator** task is a Python function that returns a kernel's text, another one for each case: it takes shares of
correctness and counters, the keys of a kernel task but `ladder` and the target, a problem that says what the function
is called with (Instance.given), and

    function = "generate"        # what the cell defines

A **python** task takes a share of correctness, and has

    function = "source_index"    # what the cell defines
    reference = "layouts.source_index"          # a trusted function of convladder.kernels
    [[task.case]]
    name = "corner"
    args = {p = 0, …}            # passed by name; ints, floats, booleans, strings, lists of them, and arrays:
                                 # {values = [[1, 2], [3, 4]]}: int32 where all are integers, else float32
                                 # {whole = [2, 4, 5], zeros = 0.5}: this shape, float32, whole numbers 1 to 9 drawn by
                                 # the case's name, of which about half are 0 (`zeros` is optional)
    sweep = {p = 5, q = 5}       # optional: one call for each p in 0..4, each q in 0..4

A **number** task takes a share of prediction. The cell is `NAME = expression`, over `symbols`:

    formula = "2*N*K"            # the expected value, over `symbols`, or over counters and a case's symbols:
    symbols = {N = 4, K = 8}
    rung = "direct_report"       # instead of `symbols`: the counters of this rung
    case = "..."                 # on this public case of a kernel task (`of = TASK` where two tasks use the name)
    tolerance = 0.0              # relative to the expected value

An **explain** task takes a share of explanation, and has `words = 80` and `rubric = ["0: …", "1: …", "2: …"]`.

`LAB.hidden.toml`, where it is there, adds `[[case]]` tables with `task = "NAME"` and the keys of a public case.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from convladder.kernels import expression
from convladder.kernels.errors import ConvladderError
from convladder.kernels.expression import ExpressionError, Value

from .problem import Problem, as_timed
from .problems import PROBLEMS

CATEGORIES = ("correctness", "counters", "timing", "prediction", "explanation")

#: What a threshold may name: each is summed over a task's launches on one case (active_lanes is their mean).
COUNTERS = (
    *(f"{op}{what}" for op in ("", "load_", "store_")
      for what in ("requests", "sectors", "sectors_ideal", "bytes_moved", "bytes_needed")),
    "divergent_branches", "executed_branches", "warp_instructions", "thread_instructions", "active_lanes", "fmas",
    "flops", "blocks", "busy_blocks", "threads", "launches",
    "shared_requests", "wavefronts", "wavefronts_ideal", "barriers",
)  # fmt: skip

#: Calls of one python task: more would take a submission's second.
MAX_CALLS = 20_000

_SHARES = {
    "kernel": {"correctness", "counters", "timing"},
    "generator": {"correctness", "counters"},
    "python": {"correctness"},
    "number": {"prediction"},
    "explain": {"explanation"},
}
_T = TypeVar("_T")
_Common = tuple[str, str, str, dict[str, float]]


class SpecError(ConvladderError):
    """A lab's spec cannot be used. The message names file, place and fix."""


@dataclass(frozen=True)
class Case:
    """One input of a task. `symbols` for a kernel task; `calls` (argument sets) for a python task."""

    name: str
    symbols: Mapping[str, int | float] = field(default_factory=dict)
    calls: tuple[Mapping[str, Any], ...] = ()
    hidden: bool = False


@dataclass(frozen=True)
class Task:
    """What every task has."""

    name: str
    title: str
    help: str
    share: Mapping[str, float]

    kind = ""
    #: What its cell begins with.
    magic = "answer"


@dataclass(frozen=True)
class Threshold:
    """A bound on an expression over counters: `at_most` or `at_least`."""

    name: str
    case: str
    value: str
    limit: str
    at_most: bool
    weight: float
    says: str
    help: str
    base: str | None
    target: str | None


@dataclass(frozen=True)
class Target:
    """A base and a target rung, and the guards that keep a way round the work from scoring."""

    case: str
    base: str
    target: str
    value: str
    guards: tuple[Guard, ...]
    says: str
    help: str
    measured: Case | None = None
    tolerance: float = 0.05


@dataclass(frozen=True)
class Guard:
    counter: str
    at_most: bool
    limit: str


@dataclass(frozen=True)
class KernelTask(Task):
    problem: Problem
    params: tuple[str, ...]
    ladder: str | None
    cases: tuple[Case, ...]
    counters: tuple[Threshold, ...]
    target: Target | None
    measure_case: str

    kind = "kernel"
    magic = "cuda"

    def case(self, name: str) -> Case:
        return next(c for c in self.cases if c.name == name)


@dataclass(frozen=True)
class GeneratorTask(KernelTask):
    """A kernel task whose text is made for each case by a function of the student's."""

    function: str

    kind = "generator"
    magic = "answer"


@dataclass(frozen=True)
class PythonTask(Task):
    function: str
    reference: str
    cases: tuple[Case, ...]

    kind = "python"

    def expected(self) -> Callable[..., Any]:
        """The trusted implementation."""
        return _reference(self.reference)


@dataclass(frozen=True)
class NumberTask(Task):
    formula: str
    symbols: Mapping[str, int | float]
    rung: str | None
    problem: Problem | None
    case: Case | None
    tolerance: float

    kind = "number"


@dataclass(frozen=True)
class ExplainTask(Task):
    words: int
    rubric: tuple[str, ...]

    kind = "explain"


@dataclass(frozen=True)
class Spec:
    """One lab, checked. `sha256` is that of the public and the hidden file together; `off` does not count."""

    lab: str
    title: str
    minutes: int
    graded: bool
    points: Mapping[str, float]
    tasks: tuple[Task, ...]
    sha256: str
    path: Path
    off: tuple[Task, ...] = ()

    def task(self, name: str) -> Task:
        for task in self.tasks:
            if task.name == name:
                return task
        raise SpecError(f"{self.lab} has no task {name!r}{_meant(name, [t.name for t in self.tasks])}")


def specs_folder() -> Path:
    """Where the course's own specs lie."""
    return Path(__file__).resolve().parents[1] / "specs"


def names(specs_dir: Path | str | None = None) -> list[str]:
    """The labs that have a spec, in order."""
    folder = Path(specs_dir) if specs_dir else specs_folder()
    return sorted(p.stem for p in folder.glob("*.toml") if not p.stem.endswith(".hidden"))


def folder_of(lab: str, beside: Path) -> Path | None:
    """`beside` where it holds a spec of this lab, which comes before ours; else None."""
    return beside if (beside / f"{lab}.toml").is_file() else None


def load(lab: str, specs_dir: Path | str | None = None, *, hidden: bool | Path = True) -> Spec:
    """Read and check a lab's spec, with its hidden cases where they are there and wanted. Raises SpecError.

    hidden  a path: the file of hidden cases to take in place of LAB.hidden.toml
    """
    folder = Path(specs_dir) if specs_dir else specs_folder()
    path = folder / f"{lab}.toml"
    if lab not in names(folder):
        raise SpecError(f"there is no lab {lab!r}: the labs are {', '.join(names(folder)) or 'none'}")
    text = path.read_bytes()
    hidden_path = hidden if isinstance(hidden, Path) else folder / f"{lab}.hidden.toml"
    hidden_text = hidden_path.read_bytes() if hidden and hidden_path.is_file() else b""
    hidden_cases = _hidden_cases(_toml(hidden_text, hidden_path)) if hidden_text else {}
    spec = _spec(_toml(text, path), path, hidden_cases, hashlib.sha256(text + b"\0" + hidden_text).hexdigest())
    if unknown := set(hidden_cases) - {t.name for t in spec.tasks if isinstance(t, KernelTask | PythonTask)}:
        first = sorted(unknown)[0]
        raise SpecError(f"{hidden_path.name}: task = {first!r}: {lab} has no kernel or python task of that name")
    return spec


def adjusted(spec: Spec, points: Mapping[str, float] | None = None, off: Iterable[str] = ()) -> Spec:
    """The spec with other points for its categories, and without some of its tasks.

    Raises SpecError for a category or a task that there is not, or points that do not add up to 100.
    """
    off = set(off)
    for name in sorted(off):
        spec.task(name)
    if points is not None:
        points = _points(_Table({"points": dict(points)}, spec.lab), spec.graded)
    if not off and points in (None, spec.points):
        return spec
    tasks = tuple(t for t in spec.tasks if t.name not in off)
    left_out = tuple(t for t in spec.tasks if t.name in off)
    if not tasks:
        raise SpecError(f"{spec.lab} has no task left: turn on at least one")
    changes = repr((sorted((points or spec.points).items()), sorted(off)))
    sha256 = hashlib.sha256(f"{spec.sha256} {changes}".encode()).hexdigest()
    return replace(spec, points=points or spec.points, tasks=tasks, sha256=sha256, off=left_out)


def _toml(text: bytes, path: Path) -> _Table:
    try:
        return _Table(tomllib.loads(text.decode()), path.name)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path.name}: {error}") from None


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f": did you mean {close[0]!r}?" if close else f": it has {', '.join(known) or 'none'}"


# ---- reading a table key by key


class _Table:
    """A TOML table whose keys are taken one by one; what is left over at the end is an error."""

    def __init__(self, body: dict[str, Any], where: str):
        self._body = dict(body)
        self._taken: list[str] = []
        self.where = where

    def error(self, message: str) -> SpecError:
        return SpecError(f"{self.where}: {message}")

    def take(self, key: str, kind: type[_T] | tuple[type, ...], default: Any = ...) -> Any:
        self._taken.append(key)
        if key not in self._body:
            if default is ...:
                raise self.error(f"`{key}` is missing")
            return default
        value = self._body.pop(key)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(_KIND_NAMES.get(k, k.__name__) for k in kinds)
            raise self.error(f"`{key}` is {value!r}: it must be {expected}")
        return value

    def text(self, key: str, default: Any = ...) -> str:
        value = self.take(key, str, default)
        if isinstance(value, str) and not value.strip() and default is ...:
            raise self.error(f"`{key}` is empty")
        return value

    def texts(self, key: str, default: Any = ...) -> tuple[str, ...]:
        value = self.take(key, list, default)
        if not all(isinstance(v, str) for v in value):
            raise self.error(f"`{key}` must be a list of strings")
        return tuple(value)

    def name(self, key: str = "name") -> str:
        value = self.text(key)
        if not value.isidentifier():
            raise self.error(f"`{key}` is {value!r}: it must be an identifier, as in Python")
        return value

    def number(self, key: str, default: Any = ...) -> Any:
        value = self.take(key, (int, float), default)
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(f"`{key}` is {value}: it must be finite")
        return value

    def formula(self, key: str, symbols: set[str], default: Any = ...) -> Any:
        """A number or an expression over `symbols`, as text."""
        value = self.take(key, (str, int, float), default)
        if value is default:
            return value
        text = str(value)
        try:
            unknown = sorted(expression.names(text) - symbols)
        except ExpressionError as error:
            raise self.error(f"`{key}`: {error}") from None
        if unknown:
            raise self.error(f"`{key}` = {text!r} names {unknown[0]!r}{_meant(unknown[0], sorted(symbols))}")
        return text

    def table(self, key: str, default: Any = ...) -> _Table:
        return _Table(self.take(key, dict, default), f"{self.where}, {key}")

    def tables(self, key: str, what: str = "name") -> list[_Table]:
        found = self.take(key, list, [])
        if not all(isinstance(t, dict) for t in found):
            raise self.error(f"`{key}` must be tables: [[...{key}]]")
        return [_Table(t, f"{self.where}, {key} {t.get(what, i)!r}") for i, t in enumerate(found, 1)]

    def rest(self) -> dict[str, Any]:
        left, self._body = self._body, {}
        return left

    def end(self) -> None:
        if self._body:
            key = next(iter(self._body))
            raise self.error(f"`{key}` is not a key here{_meant(key, self._taken)}")


_KIND_NAMES = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", dict: "a table", list: "a list",
}  # fmt: skip


# ---- the spec


def _spec(table: _Table, path: Path, hidden: dict[str, list[_Table]], sha256: str) -> Spec:
    lab = table.text("lab")
    if lab != path.stem:
        raise table.error(f"`lab` is {lab!r}: it must be the file's stem, {path.stem!r}")
    title, minutes, graded = table.text("title"), table.take("minutes", int), table.take("graded", bool, True)
    points = _points(table, graded)
    tables = table.tables("task")
    table.end()
    tasks: list[Task] = []
    for item in tables:
        task = _task(item, graded, hidden, tasks)
        if task.name in {t.name for t in tasks}:
            raise item.error("there are two tasks of this name")
        tasks.append(task)
    if not tasks:
        raise table.error("there is no [[task]]")
    for category, value in points.items():
        if value and not any(t.share.get(category) for t in tasks):
            raise table.error(f"{category} has {value:g} points, but no task has a share of it")
    return Spec(lab, title, minutes, graded, points, tuple(tasks), sha256, path)


def _points(table: _Table, graded: bool) -> dict[str, float]:
    given = table.table("points", {} if not graded else ...)
    points = {c: given.number(c, 0) for c in CATEGORIES}
    given.end()
    total = math.fsum(points.values())
    if graded and (min(points.values()) < 0 or total != 100):
        raise given.error(f"the points add up to {total:g}: they must be positive and add up to 100")
    return points


def _task(table: _Table, graded: bool, hidden: dict[str, list[_Table]], before: list[Task]) -> Task:
    name = table.name()
    kind = table.text("kind")
    if kind not in _SHARES:
        raise table.error(f"`kind` is {kind!r}: it must be one of {', '.join(_SHARES)}")
    common: _Common = (name, table.text("title"), table.text("help", ""), _share(table, kind, graded))
    task: Task
    if kind == "kernel":
        task = _kernel_task(table, common, hidden.get(name, []))
    elif kind == "generator":
        task = _generator_task(table, common, hidden.get(name, []))
    elif kind == "python":
        task = _python_task(table, common, hidden.get(name, []))
    elif kind == "number":
        task = _number_task(table, common, before)
    else:
        words, rubric = table.take("words", int, 80), table.texts("rubric")
        task = ExplainTask(*common, words, rubric)
    table.end()
    return task


def _share(table: _Table, kind: str, graded: bool) -> dict[str, float]:
    given = table.table("share", {})
    share = {c: given.number(c, 0) for c in CATEGORIES}
    given.end()
    for category, weight in share.items():
        if weight < 0:
            raise given.error(f"`{category}` is {weight}: a weight cannot be negative")
        if weight and category not in _SHARES[kind]:
            raise given.error(f"a {kind} task has no share of {category}, but of {', '.join(sorted(_SHARES[kind]))}")
        if weight and not graded:
            raise given.error("the lab is not graded: leave `share` out")
    return {c: w for c, w in share.items() if w}


def _hidden_cases(table: _Table) -> dict[str, list[_Table]]:
    found: dict[str, list[_Table]] = {}
    for case in table.tables("case"):
        found.setdefault(case.text("task"), []).append(case)
    table.end()
    return found


# ---- kernel tasks


def _kernel_task(table: _Table, common: _Common, hidden: list[_Table]) -> KernelTask:
    name = table.text("problem")
    if name not in PROBLEMS:
        raise table.error(f"`problem` is {name!r}{_meant(name, list(PROBLEMS))}")
    problem = PROBLEMS[name]
    params = table.texts("params")
    if unknown := [p for p in params if p not in problem.declarations]:
        raise table.error(f"`params` names {unknown[0]!r}{_meant(unknown[0], list(problem.declarations))}")
    cases = [_kernel_case(c, problem, False) for c in table.tables("case")]
    cases += [_kernel_case(c, problem, True) for c in hidden]
    _require_cases(table, cases)
    cases.sort(key=lambda c: problem.size(c.symbols))
    public = [c for c in cases if not c.hidden]
    counters = tuple(_threshold(t, problem, public) for t in table.tables("counter"))
    if len({c.name for c in counters}) < len(counters):
        raise table.error("two [[task.counter]] have the same name")
    target = _target(table.table("target"), problem, public) if "target" in table._body else None
    share = common[3]
    if share.get("counters") and not counters:
        raise table.error("the task has a share of counters, but no [[task.counter]]")
    if share.get("timing") and target is None:
        raise table.error("the task has a share of timing, but no [task.target]")
    measured = table.text("measure_case", public[-1].name)
    _require_case(table, "measure_case", measured, public)
    return KernelTask(
        *common, problem, params, table.text("ladder", None), tuple(cases), counters, target, measured
    )  # fmt: skip


def _generator_task(table: _Table, common: _Common, hidden: list[_Table]) -> GeneratorTask:
    function, found = table.name("function"), _kernel_task(table, common, hidden)
    if found.ladder or found.target:
        raise table.error("a generator task has no `ladder` and no [task.target]: no rung is made for each case")
    if not found.problem.given:
        raise table.error(f"`problem` = {found.problem.name!r} does not say what a generator is called with")
    return GeneratorTask(**{f.name: getattr(found, f.name) for f in fields(found)}, function=function)


def _require_cases(table: _Table, cases: list[Case]) -> None:
    if not any(not c.hidden for c in cases):
        raise table.error("there is no [[task.case]]: give at least one public case")
    counted = [c.name for c in cases]
    if twice := [n for n in counted if counted.count(n) > 1]:
        raise table.error(f"two cases are named {twice[0]!r}: a name also seeds the case's data, so it must be its own")


def _require_case(table: _Table, key: str, name: str, cases: list[Case]) -> None:
    if name not in {c.name for c in cases}:
        raise table.error(f"`{key}` = {name!r} is no public case of this task{_meant(name, [c.name for c in cases])}")


def _kernel_case(table: _Table, problem: Problem, hidden: bool) -> Case:
    name = table.text("name")
    symbols = {key: table.number(key) for key in list(table._body)}
    try:
        problem.check(symbols)
    except (ConvladderError, ValueError) as error:
        raise table.error(str(error)) from None
    return Case(name, symbols, hidden=hidden)


def _rung(table: _Table, key: str, default: Any = ...) -> Any:
    from convladder.kernels.rungs import RUNGS

    name = table.text(key, default)
    if name is not default and name not in RUNGS:
        raise table.error(f"`{key}` = {name!r} is no rung of kernels/ladder{_meant(name, list(RUNGS))}")
    return name


def _threshold(table: _Table, problem: Problem, public: list[Case]) -> Threshold:
    name, case = table.name(), table.text("case")
    _require_case(table, "case", case, public)
    value = table.formula("value", problem.symbol_names | set(COUNTERS))
    base, target = _rung(table, "base", None), _rung(table, "target", None)
    rungs = [prefix for prefix, rung in (("base", base), ("target", target)) if rung]
    limits = {k: table.formula(k, problem.symbol_names | _rung_counters(*rungs), None) for k in ("at_most", "at_least")}
    given = [k for k, v in limits.items() if v is not None]
    if len(given) != 1:
        raise table.error("give either `at_most` or `at_least`")
    weight = table.number("weight", 1)
    if weight <= 0:
        raise table.error(f"`weight` is {weight}: it must be positive")
    says, help_ = table.text("says"), table.text("help", "")
    table.end()
    return Threshold(
        name, case, value, limits[given[0]], given[0] == "at_most", weight, says, help_, base, target
    )  # fmt: skip


def _rung_counters(*prefixes: str) -> set[str]:
    return {f"{prefix}_{name}" for prefix in prefixes for name in COUNTERS}


def _target(table: _Table, problem: Problem, public: list[Case]) -> Target:
    case = table.text("case")
    _require_case(table, "case", case, public)
    base, target = _rung(table, "base"), _rung(table, "target")
    value = table.formula("value", problem.symbol_names | set(COUNTERS))
    says, help_ = table.text("says", ""), table.text("help", "")
    measured = _measured_case(table, problem)
    tolerance = table.number("tolerance", 0.05)
    if not 0 <= tolerance <= 0.15:  # at the least gain that is timed, both ends together leave a third of the scale
        raise table.error(f"`tolerance` is {tolerance}: it must be between 0 and 0.15")
    known = problem.symbol_names | _rung_counters("base", "target")
    guards = []
    for key in [k for k in table._body if re.search(r"_at_(most|least)$", k)]:
        counter, _, side = key.rpartition("_at_")
        if counter not in COUNTERS:
            raise table.error(f"`{key}`: {counter!r} is no counter{_meant(counter, list(COUNTERS))}")
        guards.append(Guard(counter, side == "most", table.formula(key, known)))
    table.end()
    return Target(case, base, target, value, tuple(guards), says, help_, measured, tolerance)


def _measured_case(table: _Table, problem: Problem) -> Case | None:
    given = table.table("measured_case", {})
    symbols = given.rest()
    if not symbols:
        return None
    try:
        problem.check(symbols)
        as_timed(problem)
    except (ConvladderError, ValueError) as error:
        raise given.error(str(error)) from None
    return Case("the measured case", symbols)


# ---- the other tasks


def _python_task(table: _Table, common: _Common, hidden: list[_Table]) -> PythonTask:
    function, reference = table.name("function"), table.text("reference")
    try:
        _reference(reference)
    except (ImportError, AttributeError, ValueError):
        raise table.error(
            f"`reference` = {reference!r} is no function of convladder.kernels: write MODULE.FUNCTION, "
            "such as layouts.source_index"
        ) from None
    cases = [_python_case(c, False) for c in table.tables("case")] + [_python_case(c, True) for c in hidden]
    _require_cases(table, cases)
    if sum(len(c.calls) for c in cases) > MAX_CALLS:
        raise table.error(f"the cases make more than {MAX_CALLS} calls: make the sweeps smaller")
    return PythonTask(*common, function, reference, tuple(cases))


def _reference(name: str) -> Callable[..., Any]:
    module, _, function = name.rpartition(".")
    found = getattr(importlib.import_module(f"convladder.kernels.{module}"), function)
    if not module or not callable(found):
        raise ValueError(name)
    return found


def _python_case(table: _Table, hidden: bool) -> Case:
    name = table.text("name")
    args, sweep = table.table("args", {}).rest(), table.table("sweep", {}).rest()
    args = {key: _argument(table, name, key, value) for key, value in args.items()}
    for key, count in sweep.items():
        if key in args:
            raise table.error(f"{key!r} is both in args and in sweep")
        if type(count) is not int or count < 1:
            raise table.error(f"sweep.{key} is {count!r}: give a positive integer")
    if not args and not sweep:
        raise table.error("`args` is missing")
    if math.prod(sweep.values()) > MAX_CALLS:
        raise table.error(f"the sweep makes more than {MAX_CALLS} calls: make it smaller")
    table.end()
    return Case(name, calls=tuple(_calls(args, sweep)), hidden=hidden)


def python_calls(case: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The calls that a case of a python task, given as its table, makes. Raises SpecError."""
    return _python_case(_Table(dict(case), "a case"), False).calls


def _argument(table: _Table, case: str, key: str, value: Any) -> Any:
    """An argument as it is passed: a table stands for an array."""
    if not isinstance(value, dict):
        return value
    given = _Table(value, f"{table.where}, {key}")
    values, shape = given.take("values", list, None), given.take("whole", list, None)
    zeros = given.number("zeros", 0.0)
    given.end()
    if (values is None) == (shape is None):
        raise given.error("give either `values`, the array's numbers, or `whole`, its shape")
    try:
        if values is not None:
            array = np.array(values)
            return array.astype({"i": np.int32, "f": np.float32}[array.dtype.kind])
        rng = np.random.default_rng(list(hashlib.sha256(f"{case}, {key}".encode()).digest()))
        drawn = rng.integers(1, 10, shape).astype(np.float32)
        return np.where(rng.random(shape) < zeros, np.float32(0), drawn)
    except (KeyError, TypeError, ValueError):
        raise given.error("`values` are nested lists of numbers, of one shape; `whole` is a list of sizes") from None


def _calls(args: dict[str, Any], sweep: dict[str, int]) -> Iterator[dict[str, Any]]:
    for point in itertools.product(*(range(n) for n in sweep.values())):
        yield {**dict(zip(sweep, point, strict=True)), **args}


def _number_task(table: _Table, common: _Common, before: list[Task]) -> NumberTask:
    rung, case_name, of = _rung(table, "rung", None), table.text("case", None), table.text("of", None)
    given = table.table("symbols", {})
    symbols = {key: given.number(key) for key in list(given._body)}
    tolerance = table.number("tolerance", 0)
    if tolerance < 0:
        raise table.error(f"`tolerance` is {tolerance}: it cannot be negative")
    if (rung is None) != (case_name is None):
        raise table.error("`rung` and `case` belong together: give both or neither")
    problem, case = (None, None) if case_name is None else _case_of_a_task(table, case_name, of, before)
    known = set(symbols)
    if problem is not None:
        known |= problem.symbol_names | set(COUNTERS)
    formula = table.formula("formula", known)
    if rung is None:
        try:
            _finite(expression.evaluate(formula, symbols))
        except (ExpressionError, ValueError) as error:
            raise table.error(f"`formula`: {error}") from None
    return NumberTask(*common, formula, symbols, rung, problem, case, tolerance)


def _finite(value: Value) -> float:
    if not math.isfinite(value):
        raise ValueError("it has no finite value")
    return float(value)


def _case_of_a_task(table: _Table, name: str, of: str | None, before: list[Task]) -> tuple[Problem, Case]:
    found = [
        (task.problem, case)
        for task in before
        if isinstance(task, KernelTask) and of in (None, task.name)
        for case in task.cases
        if case.name == name and not case.hidden
    ]
    if not found:
        raise table.error(f"`case` = {name!r} is no public case of a kernel task above this one")
    if any(case.symbols != found[0][1].symbols for _, case in found):
        raise table.error(f"`case` = {name!r} means different sizes in different tasks: add `of = TASK`")
    return found[0]
