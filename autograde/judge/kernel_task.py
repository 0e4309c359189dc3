"""Checks a kernel task: its text runs in the sandbox on every case, and what comes back is judged here."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from convladder.kernels import gpu
from convladder.kernels.errors import BackendError
from convladder.kernels.result import Access, Branch, Counters, Fault, SharedAccess

from . import counting, device_lock, diagnosis
from .problem import Instance, Problem
from .problems import PROBLEMS
from .record import CheckRecord
from .sandbox import SandboxError, Worker, WorkerError
from .spec import Case, KernelTask, Target, Threshold
from .submission import Answer

#: Warp instructions of one launch on the engine. The largest case of a lab takes under a million.
BUDGET = 20_000_000
#: The same where a text is only tried: what the smallest case takes many times over.
TRIAL_BUDGET = 200_000


@dataclass
class CaseRun:
    """What a kernel did on one case. `error` ends the run: nothing after it was tried."""

    case: Case
    instance: Instance
    seed: int = 0
    faults: list[Fault] = field(default_factory=list)
    launches: list[tuple[str, Counters]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    printed: str = ""  # by its threads; not for students where the case is hidden
    error: str = ""

    def wrong(self) -> diagnosis.Wrong | None:
        """The first output that is not as expected."""
        for output in self.instance.outputs:
            if (wrong := diagnosis.compare(output, self.outputs[output.name])) is not None:
                return wrong
        return None

    def written(self) -> bool:
        """Whether the kernel wrote anything at all."""
        return any(not (v.view(np.uint32) == 0xFFFFFFFF).all() for v in self.outputs.values())


@dataclass
class Run:
    """A kernel text on all its cases. `broken`: it cannot be compiled or launched, for this reason."""

    broken: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    cases: list[CaseRun] = field(default_factory=list)

    def of(self, name: str) -> CaseRun | None:
        return next((c for c in self.cases if c.case.name == name), None)


#: What seeds the data that a student's own checks see.
PUBLIC_SECRET = b"public"


def seed(secret: bytes, lab: str, task: str, case: str) -> int:
    """The seed of a case's data: the same for the whole class and in every regrade, unknown without the secret."""
    parts = [secret, *(t.encode() for t in (lab, task, case))]
    return int.from_bytes(hashlib.sha256(b"".join(len(p).to_bytes(4, "big") + p for p in parts)).digest())


@lru_cache(maxsize=1024)
def _instance(problem: str, symbols: tuple[tuple[str, int | float], ...], seed: int) -> Instance:
    """Shared by a whole class: the oracle runs once for each case."""
    return PROBLEMS[problem].instance(dict(symbols), np.random.default_rng(seed))


def run(
    lab: str, task: KernelTask, answer: Answer, worker: Worker, *, on: str, secret: bytes, cases: list[Case]
) -> Run:  # fmt: skip
    """Compile a text once and run it on the cases, in their order, up to the first fault."""
    return run_on(task, answer, worker, prepared(lab, task, secret, cases), on)


def prepared(lab: str, task: KernelTask, secret: bytes, cases: Sequence[Case]) -> list[CaseRun]:
    """The cases with their data."""
    seeds = [seed(secret, lab, task.name, c.name) for c in cases]
    return [
        CaseRun(c, _instance(task.problem.name, tuple(sorted(c.symbols.items())), drawn), drawn)
        for c, drawn in zip(cases, seeds, strict=True)
    ]


def run_on(
    task: KernelTask, answer: Answer, worker: Worker, runs: list[CaseRun], on: str, budget: int | None = None
) -> Run:
    """As `run`, on cases whose data are there already."""
    request, arrays = _request(task, answer, runs, on, budget or BUDGET)
    largest = max(sum(4 * o.expected.size for o in r.instance.outputs) for r in runs)
    try:
        with _device(on):
            frames = worker.request("kernel", request, arrays, reply_bytes=largest)
    except WorkerError as error:
        return _stopped(error, runs, answer, worker)
    return _read(frames, runs, answer, task)


def _device(on: str) -> AbstractContextManager[None]:
    """A GPU is shared by runs that are checked, but not with a timing."""
    if on == "gpu" and gpu.available():
        return device_lock.held(gpu.device_id(), alone=False)
    return nullcontext()


def _request(
    task: KernelTask, answer: Answer, runs: list[CaseRun], on: str, budget: int
) -> tuple[dict[str, Any], list[np.ndarray]]:
    arrays: list[np.ndarray] = []
    cases = [_case_request(r, arrays) for r in runs]
    request = {
        "op": "kernel", "source": answer.source(), "default_args": list(task.params), "on": on,
        "budget": budget, "cases": cases,
    }  # fmt: skip
    return request, arrays


def _case_request(r: CaseRun, arrays: list[np.ndarray]) -> dict[str, Any]:
    """A case as the worker takes it; its inputs are appended to `arrays`."""
    inputs = {name: len(arrays) + i for i, name in enumerate(r.instance.inputs)}
    arrays += r.instance.inputs.values()
    outputs = {o.name: [o.dtype, list(o.expected.shape)] for o in r.instance.outputs}
    return {"symbols": r.instance.symbols, "inputs": inputs, "outputs": outputs, "inouts": {}}


def trial(lab: str, task: KernelTask, answer: Answer) -> tuple[dict[str, Any], list[np.ndarray], int]:
    """What a worker needs to compile a text and to try its launches on the smallest case, and bytes of the reply."""
    (r,) = prepared(lab, task, PUBLIC_SECRET, [next(c for c in task.cases if not c.hidden)])
    request, arrays = _request(task, answer, [r], "sim", TRIAL_BUDGET)
    return request, arrays, sum(4 * o.expected.size for o in r.instance.outputs)


def trace_request(task: KernelTask, answer: Answer, r: CaseRun) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What a worker needs to trace a text on one case, and its arrays."""
    arrays: list[np.ndarray] = []
    case = _case_request(r, arrays)
    return {"source": answer.source(), "default_args": list(task.params), "case": case}, arrays


def _stopped(error: WorkerError, runs: list[CaseRun], answer: Answer, worker: Worker) -> Run:
    """The worker did not answer to the end: it is the case that it was at, or the compiler, that did not."""
    compiled = any(f.header.get("event") == "compiled" for f in error.frames)
    if error.reason == "time":
        what = f"did not come to an end within {worker.policy.seconds:g} s"
    else:
        what = f"ended the process that ran it ({error.detail})"
    if not compiled:
        return Run(f"compiling {answer.where()} {what}", {"worker": error.detail})
    done = _read(error.frames, runs, answer, None)
    if not done.broken and len(done.cases) < len(runs):
        done.cases.append(runs[len(done.cases)])
        done.cases[-1].error = f"the kernel {what}"
    return done


def _read(frames: list[Any], runs: list[CaseRun], answer: Answer, task: KernelTask | None) -> Run:
    result = Run()
    try:
        for frame in frames:
            event = frame.header["event"]
            if event == "case":
                r = runs[len(result.cases)]
                if frame.header["index"] != len(result.cases):
                    raise ValueError("cases out of order")
                _read_case(frame, r)
                result.cases.append(r)
            elif event == "error":
                _read_error(frame.header, runs, result, answer, task)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise SandboxError(f"the worker's reply cannot be read: {error!r}") from None
    return result


def _read_case(frame: Any, r: CaseRun) -> None:
    r.faults = [_fault(f) for f in frame.header["faults"]]
    r.launches = [(str(name), counting.from_json(c)) for name, c in frame.header["launches"]]
    r.changed = [str(name) for name in frame.header["changed"]]
    r.printed = str(frame.header["printed"])
    r.outputs = dict(zip(frame.header["outputs"], frame.arrays, strict=True))
    for output in r.instance.outputs:
        array = r.outputs[output.name]
        if array.shape != output.expected.shape or array.dtype != np.dtype(output.dtype):
            raise ValueError(f"{output.name} has another shape or dtype")


def _fault(body: Mapping[str, Any]) -> Fault:
    triples = {k: tuple(body[k]) if body[k] is not None else None for k in ("thread", "block")}
    return Fault(**{**body, **triples})


def _read_error(
    header: Mapping[str, Any], runs: list[CaseRun], result: Run, answer: Answer, task: KernelTask | None
) -> None:
    if header["type"] == "BackendError":  # this machine's failure, not the student's
        raise BackendError(header["message"])
    evidence = {k: header[k] for k in ("type", "message", "line", "diagnostics", "log") if k in header}
    message = describe_error(header, answer, task)
    if header["stage"] == "compile" and "fault" not in header:
        result.broken, result.evidence = message, evidence
        return
    r = runs[len(result.cases)]
    if "fault" in header:
        r.faults = [_fault(header["fault"])]
    elif header["stage"] == "gpu" or r.case.hidden:
        r.error = message
    else:
        # A size of the grid depends on the case; a name or a list of parameters does not.
        of_sizes = header["type"] == "PlanError" and header["line"]
        on_case = f" (on case {r.case.name!r}: {_sizes(r.case)})" if of_sizes else ""
        result.broken, result.evidence = message + on_case, evidence
        return
    result.cases.append(r)


def describe_error(header: Mapping[str, Any], answer: Answer, task: KernelTask | None) -> str:
    """A typed error of the worker in the student's terms, with the line of the cell that it is about."""
    kind, message, line = header["type"], str(header["message"]), int(header.get("line") or 0)
    if kind == "CompileError":
        errors = [d for d in header.get("diagnostics", []) if d[1] == "error"]
        if errors:
            line, message = int(errors[0][0]), str(errors[0][2])
            more = f" ({len(errors) - 1} more error{'s' * (len(errors) > 2)})" if len(errors) > 1 else ""
            return f"{answer.where()} does not compile: {message}{at_line(line, answer)}{more}"
        return f"{answer.where()} does not compile: {message}"
    message = message.removeprefix(f"line {line}: ")
    return f"{answer.where()}: {message}{passed(header, task)}{at_line(line, answer)}"


def passed(header: Mapping[str, Any], task: KernelTask | None) -> str:
    """After an error about arguments: what the task passes, in C."""
    if header["type"] != "ArgumentError" or task is None:
        return ""
    return f". The task passes ({', '.join(task.problem.declarations[p] for p in task.params)})"


def at_line(line: int, answer: Answer) -> str:
    if line < 1:
        return ""
    text = answer.line(line)
    return f", line {line}{f': `{text[:100]}`' if text else ''}"


def _sizes(case: Case) -> str:
    return ", ".join(f"{k}={v:g}" for k, v in case.symbols.items())


# ---- the checks


@dataclass(frozen=True)
class Judgement:
    """A check's outcome, without its points: `share` of them is given. `passed` None: it could not be decided."""

    passed: bool | None
    rationale: str
    evidence: dict[str, Any] = field(default_factory=dict)
    help: str = ""
    share: float | None = None


def compiles(result: Run) -> Judgement:
    if result.broken:
        return Judgement(False, result.broken, result.evidence)
    return Judgement(True, "it compiles, and its launch fits the task")


def runs(result: Run, answer: Answer) -> Judgement:
    """No fault on any public case, and something was written."""
    public = [r for r in result.cases if not r.case.hidden]
    for r in public:
        if (failed := misbehaviour(r, answer)) is not None:
            return failed
    if not any(r.written() for r in public):
        names = " and ".join(o.name for o in public[0].instance.outputs)
        return Judgement(False, f"the kernel writes nothing to {names}", _case_evidence(public[0]))
    return Judgement(True, f"no fault on {len(public)} cases")


def misbehaviour(r: CaseRun, answer: Answer) -> Judgement | None:
    evidence = _case_evidence(r)
    on_case = f"Case {r.case.name!r}: {_sizes(r.case)}"
    if r.error:
        return Judgement(False, f"{r.error}. {on_case}", {**evidence, "category": "a hidden case does not finish"})
    if r.faults:
        first = r.faults[0]
        others = sum(f.count for f in r.faults) - 1
        more = f". {others} more fault{'s' * (others != 1)} of this kind or others" if others else ""
        evidence |= {
            "fault": fault_json(first), "faults": [fault_json(f) for f in r.faults],
            "source": answer.line(first.line), "category": f"{first.kind} on a hidden case",
        }  # fmt: skip
        where = f"{answer.where()}{at_line(first.line, answer)}: "
        return Judgement(False, f"{where}{first.kind}: {first.message}{more}. {on_case}", evidence)
    if r.changed:
        evidence |= {"changed": r.changed, "category": "an input is changed on a hidden case"}
        return Judgement(False, f"the kernel writes to {', '.join(r.changed)}, which is an input. {on_case}", evidence)
    return None


def fault_json(fault: Fault) -> dict[str, Any]:
    return {**fault.__dict__, "thread": _listed(fault.thread), "block": _listed(fault.block)}


def _listed(triple: tuple[int, int, int] | None) -> list[int] | None:
    return None if triple is None else list(triple)


def _case_evidence(r: CaseRun) -> dict[str, Any]:
    return {"case": r.case.name, "symbols": dict(r.instance.symbols)}


def correct(result: Run) -> Judgement:
    public = [r for r in result.cases if not r.case.hidden]
    failing = [(r, wrong) for r in public if (wrong := r.wrong()) is not None]
    if not failing:
        return Judgement(True, f"every element is right on {len(public)} cases")
    r, wrong = failing[0]
    said = "; ".join(wrong.sentences())
    hint = diagnosis.mistake([(r.instance, w) for r, w in failing])
    others = f". {len(failing)} of {len(public)} cases are wrong" if len(failing) > 1 else ""
    rationale = f"{said}. Case {r.case.name!r}: {_sizes(r.case)}{others}"
    if hint:
        rationale += f". The values are those of a kernel in which {hint}"
    evidence = {
        **_case_evidence(r),
        **wrong.evidence(),
        "mistake": hint,
        "failing_cases": [r.case.name for r, _ in failing],
    }
    return Judgement(False, rationale, evidence)


def hidden(result: Run, answer: Answer) -> Judgement:
    """As runs and correct, on the cases that students do not see; `category` is what they are told."""
    cases = [r for r in result.cases if r.case.hidden]
    for r in cases:
        if (failed := misbehaviour(r, answer)) is not None:
            return failed
        if (wrong := r.wrong()) is not None:
            evidence = {**_case_evidence(r), **wrong.evidence(), "category": "wrong values on a hidden case"}
            return Judgement(False, f"{'; '.join(wrong.sentences())}. Case {r.case.name!r}: {_sizes(r.case)}", evidence)
    return Judgement(True, f"right on {len(cases)} hidden cases")


def threshold(task: KernelTask, t: Threshold, result: Run, answer: Answer) -> Judgement:
    r = _required(result, t.case)
    launches = [c for _, c in r.launches]
    verdict = counting.judge_threshold(
        t, task.problem, r.case.symbols, r.instance.symbols, counting.numbers(launches), r.seed
    )  # fmt: skip
    side, limit = "at most" if t.at_most else "at least", verdict.evidence["limit"]
    counted = f"{t.value} is {_figure(verdict.value)} on case {t.case!r}, asked {side} {_figure(limit)}"
    evidence = {**_case_evidence(r), **verdict.evidence}
    if verdict.share:
        return Judgement(True, counted, evidence, t.help)
    if math.isnan(verdict.value):
        said = f"the kernel does nothing of what is counted here: {t.value} has no value on case {t.case!r}"
        return Judgement(False, said, evidence, t.help)
    waste, evidence["worst"] = _worst(t.value, launches, answer)
    return Judgement(False, _sentences(t.says, waste, f"Counted: {counted}"), evidence, t.help)


def _figure(value: float) -> str:
    """A count with its thousands apart, a ratio with four digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _sentences(*parts: str) -> str:
    """The parts that say anything as one text, without a full stop at its end."""
    return " ".join(part if part.endswith("?") else f"{part}." for part in parts if part).removesuffix(".")


def _worst(value: str, launches: list[Counters], answer: Answer) -> tuple[str, dict[str, Any] | None]:
    """The line that a threshold is missed by most, where that can be told."""
    if "branches" in value:
        branch = counting.most_divergent(launches)
        if branch is None:
            return "", None
        return f"Most at{_at(branch, answer)}: {branch.divergent} of {branch.executed} splits", dict(branch.__dict__)
    if "wavefronts" in value and (shared := counting.most_conflicting(launches)) is not None:
        turns, fewest = (w / shared.requests for w in (shared.wavefronts, shared.wavefronts_ideal))
        does = f"each {shared.op} of {shared.array} takes {turns:.3g}, {fewest:.3g} would do"
        return f"Most turns are taken at{_at(shared, answer)}: {does}", dict(shared.__dict__)
    ops = [op for op in ("load", "store") if f"{op}_" in value]
    access = counting.most_wasteful(launches, ops[0] if len(ops) == 1 else "")
    if access is None or not any(word in value for word in ("sectors", "bytes")):
        return "", None
    sectors, fewest = (n / access.requests for n in (access.sectors, access.sectors_ideal))
    does = f"each {access.op} of {access.array} touches {sectors:.3g} sectors, {fewest:.3g} would do"
    return f"Most is wasted at{_at(access, answer)}: {does}", dict(access.__dict__)


def _at(place: Access | Branch | SharedAccess, answer: Answer) -> str:
    return at_line(place.line, answer).removeprefix(",")


def target(task: KernelTask, t: Target, result: Run, answer: Answer) -> Judgement:
    r = _required(result, t.case)
    launches = [c for _, c in r.launches]
    verdict = counting.judge_target(
        t, task.problem, r.case.symbols, r.instance.symbols, counting.numbers(launches), r.seed
    )  # fmt: skip
    e = verdict.evidence
    rungs = f"{t.base} has {_figure(e['base'])}, {t.target} {_figure(e['target'])}"
    measured = f"{t.value} is {_figure(verdict.value)} on case {t.case!r}; {rungs}"
    evidence = {**_case_evidence(r), **e}
    if verdict.reasons:
        said = f"Not scored, because {'; and '.join(verdict.reasons)}"
        return Judgement(False, _sentences(said, f"Counted: {measured}"), evidence, t.help, 0.0)
    if verdict.share >= 1 - 1e-9:
        return Judgement(True, measured, evidence, t.help)
    waste, evidence["worst"] = _worst(t.value, launches, answer)
    said = _sentences(t.says, waste, f"Counted: {measured}")
    return Judgement(False, said, evidence, t.help, verdict.share)


def _required(result: Run, case: str) -> CaseRun:
    found = result.of(case)
    if found is None:
        raise LookupError(f"case {case!r} did not run, although nothing failed before it")
    return found


# ---- records


def record(check: str, task: KernelTask, maximum: float, found: Judgement, is_hidden: bool) -> CheckRecord:
    share = found.share if found.share is not None else float(bool(found.passed))
    return CheckRecord(
        task.name, check, found.passed, min(maximum, maximum * share), maximum, found.rationale,
        found.help or task.help, found.evidence, hidden=is_hidden,
    )  # fmt: skip


def case_symbols(problem: Problem, case: Case) -> dict[str, int | float]:
    """The symbols that expressions may name on a case, the derived ones among them."""
    return _instance(problem.name, tuple(sorted(case.symbols.items())), 0).symbols
