"""Checks a python task: the student's function is called in the sandbox, its values are compared here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .sandbox import Worker, WorkerError
from .spec import Case, PythonTask
from .submission import Answer
from .values import MAX_TEXT, Other, TooLarge, show, unpack

#: One call may take this long, in seconds; the reference takes microseconds.
CALL_SECONDS = 2.0
#: How far a float may be from the expected one, relatively: what a few operations in its type lose.
_TOLERANCE, _FLOAT32_TOLERANCE = 1e-9, 1e-6
_REPLY_BYTES = 32 << 20


@dataclass(frozen=True)
class Call:
    """One call that went wrong. `reason` is a sentence without the call itself."""

    case: str
    hidden: bool
    shown: str
    reason: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What came of all calls. `broken`: the function cannot be called at all, for this reason."""

    broken: str = ""
    failed: tuple[Call, ...] = ()
    calls: int = 0
    hidden_calls: int = 0


def run(task: PythonTask, answer: Answer, worker: Worker, hidden: bool) -> Outcome:
    """Call the function once for each point of each case.

    The hidden points go to a process of their own, once the public ones are right: a process knows all that it was
    asked, and what a function raises on a public point is shown to its author.
    """
    public = [(c, call) for c in task.cases if not c.hidden for call in c.calls]
    secret = [(c, call) for c in task.cases if c.hidden and hidden for call in c.calls]
    found = _run(task, answer, worker, public)
    if secret and not found.broken and not found.failed:
        last = _run(task, answer, worker, secret)
        if last.broken:  # in words that may be the function's own
            last = Outcome(failed=(Call(secret[0][0].name, True, task.function, last.broken, {}),))
        found = replace(found, failed=last.failed)
    return replace(found, calls=len(public), hidden_calls=len(secret))


def _run(task: PythonTask, answer: Answer, worker: Worker, points: Sequence[tuple[Case, Mapping[str, Any]]]) -> Outcome:
    """What comes of these calls, in one process."""
    values = called(task.function, answer, worker, [call for _, call in points])
    if isinstance(values, str):
        return Outcome(broken=values)
    reference = task.expected()
    failed = []
    for (case, call), (value, raised) in zip(points, values, strict=False):
        expected = reference(**call)
        reason = raised or difference(expected, value)
        if reason:
            args = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in call.items()}
            evidence = {"args": args, "expected": show(expected), "returned": "" if raised else show(value)}
            failed.append(Call(case.name, case.hidden, shown_call(task.function, call), reason, evidence))
    if len(values) < len(points) and not failed:
        return Outcome(broken="the values that it returns are too large to compare")
    return Outcome(failed=tuple(failed))


def called(
    function: str, answer: Answer, worker: Worker, calls: Sequence[Mapping[str, Any]], most_text: int = MAX_TEXT
) -> str | list[tuple[Any, str]]:
    """Of each call its value and "", or None and why there is none, up to where the process gave up.

    A text alone says why the function cannot be called at all. most_text: characters, beyond which a text is cut.
    """
    arrays: list[np.ndarray] = []
    request = {
        "op": "python", "source": answer.source(), "function": function, "text": most_text,
        "calls": [_sent(call, arrays) for call in calls], "seconds": CALL_SECONDS,
    }  # fmt: skip
    try:
        (frame,) = worker.request("python", request, arrays, reply_bytes=_REPLY_BYTES)
    except WorkerError as error:
        return _why_no_answer(error, worker)
    except ValueError:
        return "the worker sent more than one reply: does the cell write to files that it did not open?"
    if frame.header.get("event") == "error":
        return _definition_error(frame.header.get("error"), function, answer)
    try:
        values = [_value(item, frame.arrays) for item in frame.header["results"]]
    except (KeyError, TypeError, ValueError):
        return "the worker sent a reply that cannot be read: does the cell write to files that it did not open?"
    return [(value, _raised(raised, answer) if raised else "") for value, raised in values]


def _sent(call: Mapping[str, Any], arrays: list[np.ndarray]) -> dict[str, Any]:
    """A call's arguments as JSON: an array is appended to `arrays` and named by its place there."""
    sent = {}
    for name, value in call.items():
        if isinstance(value, np.ndarray):
            sent[name] = {"array": len(arrays)}
            arrays.append(value)
        else:
            sent[name] = value
    return sent


def shown_call(function: str, call: Mapping[str, Any]) -> str:
    """The call as text: an array whole where it is small, else its shape."""
    shown = (f"{k}={show(v, 120 if isinstance(v, np.ndarray) else 20)}" for k, v in call.items())
    return f"{function}({', '.join(shown)})"


def _value(item: Any, arrays: Sequence[np.ndarray]) -> tuple[Any, dict[str, Any] | None]:
    if isinstance(item.get("error"), dict):
        return None, item["error"]
    first, count = item["first"], item["count"]
    if type(first) is not int or type(count) is not int or first < 0 or count < 0:
        raise ValueError("not a result")
    return unpack(item["value"], list(arrays[first : first + count])), None


def _why_no_answer(error: WorkerError, worker: Worker) -> str:
    match error.reason:
        case "time":
            return f"it did not come to an end within {worker.policy.seconds:g} s: does a loop never stop?"
        case "output":
            return f"it prints more than {worker.policy.printed >> 10} KiB: take the print out"
        case "protocol":
            return "it disturbed the process that runs it: a function takes its arguments and returns a value, no more"
        case _:
            return f"the process that ran it has ended ({error.detail}): does it call exit, or use too much memory?"


def _definition_error(error: Any, function: str, answer: Answer) -> str:
    if not isinstance(error, dict) or error.get("type") == "missing":
        return f"{answer.where()} defines no function {function}: keep the line `def {function}(...)`"
    if error.get("type") == "time":
        return f"{answer.where()} itself does not come to an end{_at_line(error, answer)}: does a loop never stop?"
    return f"{answer.where()} does not run: {error.get('type')}: {error.get('message')}{_at_line(error, answer)}"


def _raised(error: Mapping[str, Any], answer: Answer) -> str:
    kind, message = str(error.get("type")), str(error.get("message"))
    if kind == "time":
        return f"did not return within {CALL_SECONDS:g} s{_at_line(error, answer)}"
    if kind == "NotImplementedError":
        return "is not written yet"
    if kind == "MemoryError":
        return f"needs more memory than there is{_at_line(error, answer)}"
    return f"raised {kind}{': ' if message else ''}{message}{_at_line(error, answer)}"


def _at_line(error: Mapping[str, Any], answer: Answer) -> str:
    line = error.get("line")
    if type(line) is not int or line < 1:
        return ""
    text = answer.line(line)
    return f" (line {line} of {answer.where()}{f': `{text[:80]}`' if text else ''})"


# ---- values


#: What a reference's value is called.
_KINDS = {int: "an int", float: "a float", bool: "a bool", str: "a text"}


def difference(expected: Any, value: Any) -> str:
    """Why `value` is not `expected`, as the end of a sentence that begins with the call; "" where it is."""
    said = f"returned {show(value)}, expected {show(expected)}"
    if isinstance(value, TooLarge):
        return f"returned {value}"
    if isinstance(value, Other):
        return f"returned {value}, expected {show(expected)}"
    if isinstance(expected, np.ndarray):
        return _array_difference(expected, value)
    if isinstance(expected, tuple | list):
        return _sequence_difference(expected, value, said)
    if expected is None or value is None:
        return "" if value is expected else said
    if isinstance(value, np.ndarray):
        return f"{said}: an array of shape {value.shape}, where {_KINDS.get(type(expected), 'no array')} is asked for"
    if isinstance(value, bool) and type(expected) is int:
        return f"{said}: a bool, where an int is asked for"
    if isinstance(expected, bool) or isinstance(value, bool):
        return "" if type(value) is type(expected) and value == expected else said
    if isinstance(expected, int) and isinstance(value, float | np.float32):
        return f"{said}: a float, where an int is asked for (// divides integers)"
    if isinstance(expected, float) and isinstance(value, int | float | np.float32):
        tolerance = _FLOAT32_TOLERANCE if isinstance(value, np.float32) else _TOLERANCE
        return "" if math.isclose(value, expected, rel_tol=tolerance, abs_tol=1e-12) else said
    return "" if type(value) is type(expected) and value == expected else said


def _sequence_difference(expected: Sequence[Any], value: Any, said: str) -> str:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = tuple(value.tolist())
    if not isinstance(value, tuple | list):
        return said
    if len(value) != len(expected):
        return f"{said}: {len(value)} value{'s' * (len(value) != 1)} instead of {len(expected)}"
    if type(value) is not type(expected):
        return f"{said}: a {type(value).__name__}, where a {type(expected).__name__} is asked for"
    for place, (inner, given) in enumerate(zip(expected, value, strict=True), 1):
        if reason := difference(inner, given):
            if isinstance(inner, np.ndarray):
                return reason.replace("returned", f"returned, as value {place} of {len(expected)},", 1)
            return f"{said}{_note(reason)}"
    return ""


def _note(reason: str) -> str:
    """What a reason says beyond the two values, such as ": a float, where an int is asked for"."""
    return reason[reason.find(": a ") :] if ": a " in reason else ""


def _array_difference(expected: np.ndarray, value: Any) -> str:
    if isinstance(value, tuple | list) and expected.dtype.kind in "biuf":
        try:
            value = np.array(value)
        except ValueError:
            return "returned lists of unequal lengths, which are no array"
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return f"returned {show(value)}, expected an array of shape {expected.shape}"
    if value.shape != expected.shape:
        return f"returned an array of shape {value.shape}, expected {expected.shape}"
    if expected.dtype.kind in "biu" and value.dtype.kind == "f":
        return "returned an array of floats, where integers are asked for"
    if expected.dtype.kind == "f":
        wrong = ~np.isclose(value.astype(np.float64), expected, rtol=_FLOAT32_TOLERANCE, atol=1e-9)
    else:
        wrong = value != expected
    if not wrong.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    element = f"[{','.join(map(str, index))}]"
    differ = f"{int(wrong.sum())} of {wrong.size} elements differ"
    if value.dtype.kind in "biu" and expected.dtype.kind == "f":
        differ += f". It is an array of {value.dtype}, where floats are asked for"
    return f"returned an array whose element {element} is {value[index]}, expected {expected[index]}; {differ}"
