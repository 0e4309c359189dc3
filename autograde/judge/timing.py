"""The timing target in its measured form: a kernel's time on a GPU, between those of its base and its target rung.

All three run in one session (convladder.kernels.measure), in the worker, each on the same fresh data in turn. With
b, t, g the times of base, text and target in a round, and M the median over the rounds, the share of the points is

    clamp((ln M(b/t) - e) / (ln M(b/g) - 2 e))          e = ln(1 + tolerance)

that is ln(base/t) / ln(base/target) with both ends of the scale moved in by the tolerance: a time that noise cannot
tell from the target's gets full marks, one that it cannot tell from the base's gets none.

What a share is trusted by is its 95 % bootstrap interval. Where that is wider than `MAX_WIDTH` the session is made
again, up to `ATTEMPTS` times; then the check is inconclusive: no points are taken or given, and it is judged anew in
the next run. A device on which the target is not clearly faster than the base (`LEAST_GAIN`) cannot time this
target; there the counters score it, for the whole class.

The worker reports values of the timed runs, never verdicts: here, where the expected values are, one run that was
drawn by lot is checked in full, and a few thousand elements of every other, chosen after it returned.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from convladder.kernels import gpu, measure, signature
from convladder.kernels.errors import BackendError
from convladder.kernels.measure import Interval
from convladder.kernels.methods import ladder_source

from . import device_lock, diagnosis, kernel_task
from .kernel_task import Judgement
from .problem import as_timed
from .sandbox import SandboxError, Worker, WorkerError
from .spec import KernelTask, Spec, Target
from .submission import Answer

ROUNDS = 25
#: Elements of each timed run that are compared; one run is compared in full.
ELEMENTS = 2048
#: The widest 95 % interval of a share that is still a result.
MAX_WIDTH = 0.1
ATTEMPTS = 3
#: A target is timed only where it is this many times faster than its base.
LEAST_GAIN = 1.5
#: Faster than this part of the physical limit: a person should look.
SUSPICIOUS = 0.8
#: Seconds that one session may take in the worker; the texts themselves get the first part of it.
_SECONDS = 90.0
_ROUNDS_SECONDS = 30.0


@dataclass
class Timed:
    """What came back of one session: times by text ("base", "target", "text"), in microseconds a run."""

    times_us: dict[str, list[float]]
    calls: int
    bandwidth_gbs: float
    peak_gflops: float | None
    facts: dict[str, str]
    wrong: str = ""
    checked: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Gain:
    """How much faster a target is than its base on a device: what decides about the form of its check."""

    device: str
    ratio: float
    low: float
    high: float

    @property
    def timed(self) -> bool:
        return self.low >= LEAST_GAIN


class _Failed(Exception):
    """The text did something wrong on the measured case: a Judgement that says what."""

    def __init__(self, rationale: str):
        super().__init__(rationale)
        self.rationale = rationale


# ---- arithmetic


def shares(base: np.ndarray, text: np.ndarray, target: np.ndarray, tolerance: float) -> np.ndarray:
    """The share of the points from times (…, rounds); the last axis is reduced."""
    gain, whole = (np.log(measure.median_ratio(base, t)) for t in (text, target))
    end = math.log1p(tolerance)
    return np.clip((gain - end) / (whole - 2 * end), 0.0, 1.0)


def share(times_us: Mapping[str, list[float]], tolerance: float) -> Interval:
    """The share of the points with its interval."""
    return measure.bootstrap(
        lambda b, t, g: shares(b, t, g, tolerance), times_us["base"], times_us["text"], times_us["target"]
    )


def gain(times_us: Mapping[str, list[float]]) -> Interval:
    """base / target, with its interval."""
    return measure.bootstrap(measure.median_ratio, times_us["base"], times_us["target"])


# ---- judging


def calibrate(spec: Spec, worker: Worker, secret: bytes) -> dict[str, Gain]:
    """For each task with a measured case: how much faster its target is than its base here. Once for a class."""
    found = {}
    for task in spec.tasks:
        if isinstance(task, KernelTask) and task.target is not None and task.target.measured is not None:
            timed = _session(spec.lab, task, task.target, None, worker, secret, 0)
            ratio = gain(timed.times_us)
            found[task.name] = Gain(timed.facts["device"], ratio.value, ratio.low, ratio.high)
    return found


def judge(
    lab: str, task: KernelTask, target: Target, answer: Answer, worker: Worker, secret: bytes, known: Gain | None
) -> Judgement | str:
    """The target's check in its measured form, or a sentence that says why the counters must score it.

    known  how much faster the target is here, as `calibrate` found it for the class; None: as this session finds it
    Raises BackendError where this machine cannot time.
    """
    if target.measured is None:
        return "it has no measured case"
    if known is not None and not known.timed:
        return _too_close(target, known)
    symbols = as_timed(task.problem).all_symbols(target.measured.symbols)
    evidence: dict[str, Any] = {
        "form": "measured", "case": target.measured.name, "symbols": symbols,
        "base_rung": target.base, "target_rung": target.target, "tolerance": target.tolerance, "attempts": [],
    }  # fmt: skip
    for attempt in range(ATTEMPTS):
        before = measure.device_state(gpu.device_id())
        try:
            timed = _session(lab, task, target, answer, worker, secret, attempt)
        except _Failed as error:
            return Judgement(False, f"{error.rationale}. {_on(task, target)}", evidence, target.help, 0.0)
        after = measure.device_state(gpu.device_id())
        if timed.wrong:
            return Judgement(False, f"{timed.wrong}. {_on(task, target)}", evidence, target.help, 0.0)
        faster = gain(timed.times_us)
        if known is None and faster.low < LEAST_GAIN:
            return _too_close(target, Gain(timed.facts["device"], faster.value, faster.low, faster.high))
        found = share(timed.times_us, target.tolerance)
        evidence |= _evidence(task, target, timed, found, faster)
        evidence["device_before"], evidence["device_after"] = before, after
        evidence["attempts"].append({"share": asdict(found), "medians_us": evidence["medians_us"]})
        if found.width <= MAX_WIDTH:
            return _verdict(target, timed, found, evidence)
    evidence["inconclusive"] = True
    said = f"the times vary too much to be scored: the share lies between {found.low:.2f} and {found.high:.2f}"
    return Judgement(None, f"{said}, {ATTEMPTS} times measured. It is measured again", evidence, target.help, 0.0)


def alone(lab: str, task: KernelTask, target: Target, answer: Answer, worker: Worker, secret: bytes) -> str:
    """What the text takes by itself, where the rungs are not there to be set beside it; or what is wrong with it.

    Raises BackendError where this machine cannot time.
    """
    try:
        timed = _session(lab, task, target, answer, worker, secret, 0, rungs=False)
    except _Failed as error:
        return error.rationale
    return timed.wrong or f"{_us(float(np.median(timed.times_us['text'])))} on {timed.facts['device']}"


def _verdict(target: Target, timed: Timed, found: Interval, evidence: dict[str, Any]) -> Judgement:
    medians = evidence["medians_us"]
    said = (
        f"{_us(medians['text'])} on {timed.facts['device']}; {target.base} takes {_us(medians['base'])}, "
        f"{target.target} {_us(medians['target'])}"
    )
    if found.value >= 1 - 1e-9:
        return Judgement(True, said, evidence, target.help, 1.0)
    return Judgement(False, f"{said}{': ' if target.says else ''}{target.says}", evidence, target.help, found.value)


def _us(time_us: float) -> str:
    return f"{time_us / 1000:.3g} ms" if time_us >= 1000 else f"{time_us:.3g} µs"


def _too_close(target: Target, faster: Gain) -> str:
    return (
        f"on {faster.device} {target.target} is {faster.ratio:.2f} times as fast as {target.base} "
        f"({faster.low:.2f} to {faster.high:.2f}), and {LEAST_GAIN:g} times is the least that can be timed"
    )


def _on(task: KernelTask, target: Target) -> str:
    assert target.measured is not None
    sizes = ", ".join(f"{k}={v:g}" for k, v in target.measured.symbols.items())
    return f"Timed case: {sizes}"


def _evidence(task: KernelTask, target: Target, timed: Timed, found: Interval, faster: Interval) -> dict[str, Any]:
    assert target.measured is not None
    medians = {name: float(np.median(t)) for name, t in timed.times_us.items()}
    moved, flops = as_timed(task.problem).work(target.measured.symbols)
    limit_us = measure.limit_us(moved, flops, timed.bandwidth_gbs, timed.peak_gflops)
    evidence: dict[str, Any] = {
        "share": asdict(found), "base_over_target": asdict(faster), "medians_us": medians,
        "times_us": {name: [round(v, 3) for v in t] for name, t in timed.times_us.items()},
        "runs_in_a_sample": timed.calls, "checked": timed.checked, "limit_us": limit_us,
        "bandwidth_gbs": timed.bandwidth_gbs, "peak_gflops": timed.peak_gflops, "device": timed.facts,
    }  # fmt: skip
    if medians["text"] < SUSPICIOUS * limit_us:
        evidence["review"] = (
            f"{_us(medians['text'])} is less than {SUSPICIOUS:g} of the physical limit, {_us(limit_us)}: "
            "a person should read this kernel. Nothing is taken off"
        )
    return evidence


# ---- one session


def _session(
    lab: str, task: KernelTask, target: Target, answer: Answer | None, worker: Worker, secret: bytes, attempt: int,
    rungs: bool = True,
) -> Timed:  # fmt: skip
    """Time base and target, if asked for, and, where there is one, the text; check what the text returned."""
    assert target.measured is not None
    symbols = target.measured.symbols
    inputs, outputs = as_timed(task.problem).timed_shapes(symbols)
    constants = as_timed(task.problem).timed_constants(symbols)
    key = hashlib.sha256(
        kernel_task.seed(secret, lab, task.name, target.measured.name).to_bytes(32) + attempt.to_bytes(4)
    ).digest()
    texts = {"base": _rung(target.base), "target": _rung(target.target)} if rungs else {}
    if answer is not None:
        texts = {"text": [answer.source(), list(task.params)], **texts}
    request = {
        "op": "time", "texts": texts, "symbols": as_timed(task.problem).all_symbols(symbols), "inputs": inputs,
        "constants": list(constants), "outputs": outputs, "key": key.hex(), "rounds": ROUNDS,
        "elements": ELEMENTS, "seconds": _ROUNDS_SECONDS, "watched": "text" if answer is not None else "",
    }  # fmt: skip
    largest = sum(4 * math.prod(s) for s in outputs.values()) + ROUNDS * measure.MAX_CALLS * ELEMENTS * 12
    try:
        with device_lock.held(gpu.device_id(), alone=True):
            frames = worker.request("kernel", request, list(constants.values()), reply_bytes=largest, seconds=_SECONDS)
    except WorkerError as error:
        if answer is None:
            raise BackendError(f"the rungs of {task.name} cannot be timed here ({error.detail})") from None
        what = "did not come to an end" if error.reason == "time" else f"ended its process ({error.detail})"
        raise _Failed(f"the kernel {what} when it was timed") from None
    last = frames[-1].header
    if last["event"] == "error":
        if last["type"] == "BackendError" or answer is None:
            raise BackendError(str(last["message"]))
        raise _Failed(kernel_task.describe_error(last, answer, task))
    try:
        return _read(frames[0], task, symbols, inputs, key, answer is not None)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SandboxError(f"the worker's times cannot be read: {error!r}") from None


def _rung(name: str) -> list[Any]:
    """A rung's text, and its parameters' names as what its launch passes."""
    source = ladder_source(name)
    parameters = next(iter(signature.kernels(source).values()))
    return [source, [p.name for p in parameters]]


def _read(
    frame: Any, task: KernelTask, symbols: Mapping[str, int | float], inputs: Mapping[str, Any], key: bytes,
    watched: bool,
) -> Timed:  # fmt: skip
    header = frame.header
    times = {str(name): [float(v) for v in t] for name, t in header["times_us"].items()}
    rounds = {len(t) for t in times.values()}
    if len(rounds) != 1 or min(rounds) < 2 or not all(math.isfinite(v) and v > 0 for t in times.values() for v in t):
        raise ValueError("times are missing or not positive")
    timed = Timed(times, int(header["calls"]), header["bandwidth_gbs"], header["peak_gflops"], header["facts"])
    if watched:
        timed.wrong = _wrong(frame, task, symbols, inputs, key, timed, min(rounds))
    return timed


def _wrong(
    frame: Any, task: KernelTask, symbols: Mapping[str, int | float], inputs: Mapping[str, Any], key: bytes,
    timed: Timed, rounds: int,
) -> str:  # fmt: skip
    """What is wrong with the values of the timed runs: nothing, or one sentence."""
    whole, elements, values = frame.arrays
    whole_call = int(frame.header["whole_call"])
    runs = rounds * timed.calls
    if elements.shape != (runs, ELEMENTS) or values.shape != elements.shape or values.dtype != np.float32:
        raise ValueError("values of some runs are missing")
    problem = as_timed(task.problem)
    (output,) = problem.expected(symbols, measure.fresh(key, whole_call, inputs))
    if whole.shape != output.expected.shape or whole.dtype != np.float32:
        raise ValueError("the run to be checked in full has another shape")
    if (found := diagnosis.compare(output, whole)) is not None:
        return f"{'; '.join(found.sentences())} in a timed run"
    for call in range(runs):
        drawn = measure.fresh(key, call, inputs)
        expected, bound = problem.expected_at(symbols, drawn, elements[call])
        right = abs(values[call] - expected) <= bound
        if not right.all():
            first = int(np.argmin(right))
            where = output.element(tuple(int(i) for i in np.unravel_index(elements[call, first], whole.shape)))
            return (
                f"{where} is {values[call, first]:.6g}, expected {expected[first]:.6g} in timed run {call + 1}: "
                f"{np.count_nonzero(~right)} of {ELEMENTS} elements looked at are wrong there"
            )
    timed.checked = {"runs": runs, "in_full": 1, "elements_of_the_others": ELEMENTS}
    return ""
