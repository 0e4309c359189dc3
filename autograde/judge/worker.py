"""The process in which student text is compiled and run: `zygote.py` forks it, `sandbox.py` talks to it.

Requests come on standard input and replies go to what was standard output, as frames (`frames.py`);
student text sees neither: its input is empty, and what it prints goes to standard error, which the judge
reads and bounds. The worker returns raw results. It knows no expected value, and decides nothing.

A worker has one role for its whole life, so that no student *Python* can change what is later reported of
a kernel: `kernel` (CUDA C++ text: compiled, run on the engine with every access checked, perhaps run on
the GPU too) or `python` (a function is defined and called). Requests and their replies:

    {op: "kernel", source, default_args, on, budget, cases: [{symbols, inputs, outputs, inouts}]}
        {event: "compiled", kernels}
        {event: "case", index, faults, launches: [[kernel, counters]], changed, outputs, printed} + arrays    for each
        {event: "error", stage: "compile" | "launch" | "gpu", index, type, message, line, ...}       ends the request
        {event: "end"}
    {op: "terms", source, default_args, case, wanted: [[output, flat index]]}
        {event: "terms", terms: [[[coefficient, [[array, flat index]], line]] | null]}, end or error
    {op: "lanes", source, default_args, case, block, warp}
        {event: "lanes", accesses: [{...}]}, end or error
    {op: "time", texts: {name: [source, default_args]}, symbols, inputs, constants: [name], outputs, key, rounds,
     elements, seconds, watched} + arrays: the constants
        {event: "timed", times_us, calls, bandwidth_gbs, peak_gflops, facts, whole_call} + arrays: of the watched text
            the whole output of one run, and for every run the elements looked at and their values
        {event: "error", stage: "compile" | "gpu", ...} or {event: "end"}
    {op: "python", source, function, calls: [{...}], seconds, text}    an argument {array: i} stands for the i-th array;
            text: characters that a returned text may have (optional)
        {event: "error", stage: "define", error}
        {event: "results", results: [{value} | {error}], not_run} + arrays
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from .frames import Decoder, encode
from .values import MAX_TEXT, pack

#: A request: the source and its cases. The judge is trusted; this only stops a mistake from filling memory.
_MAX_REQUEST = 1 << 30
_ANSWER = "<answer>"
_MAX_MESSAGE = 500
_MAX_PRINTED = 4000
#: Returned values of one request, in bytes of their JSON and arrays.
_MAX_RESULTS = 16 << 20


class _Channel:
    """The two ends of the frame pipes, kept away from file descriptors 0, 1 and 2."""

    def __init__(self) -> None:
        self._in = os.dup(0)
        self._out = os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.dup2(2, 1)
        os.close(empty)

    def send(self, header: dict[str, Any], arrays: list[np.ndarray] | None = None) -> None:
        view = memoryview(encode(header, arrays or []))
        while view:
            view = view[os.write(self._out, view) :]

    def requests(self) -> Iterator[Any]:
        decoder = Decoder(_MAX_REQUEST, _MAX_REQUEST)
        while data := os.read(self._in, 1 << 20):
            yield from decoder.feed(data)


def _limit_resources(limits: dict[str, int]) -> None:
    """Lower this process's limits for good: the hard limits are set too.

    Memory is counted from here on: what libraries map and reserve before differs by machine, and is not the text's.
    """
    try:
        import resource
    except ImportError:  # Windows has none; the judge's clock still holds
        return
    limits = {**limits, "CORE": 0}
    if "AS" in limits:
        limits["AS"] += _mapped_bytes()
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is None:
            continue
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _mapped_bytes() -> int:
    """The address space that this process has now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


# ---- kernels


def _prepare_kernels() -> None:
    """Compile and run a kernel of no importance: what the first one pays for is then paid before a request comes."""
    from convladder.kernels import compile_cuda, errors, launch, plan  # noqa: F401

    # A failure shows again, as a typed error, when a request needs what is missing.
    with contextlib.suppress(errors.ConvladderError):
        module = compile_cuda("__global__ void warm(float* y) { y[threadIdx.x] = 0.0f; }", on="sim")
        launch(module["warm"], 1, 32, [np.zeros(32, np.float32)])


def _serve_kernels(request: dict[str, Any], arrays: list[np.ndarray], send: Callable[..., None]) -> None:
    {"kernel": _run_kernels, "time": _time, "terms": _trace, "lanes": _trace}[request["op"]](request, arrays, send)


def _run_kernels(request: dict[str, Any], arrays: list[np.ndarray], send: Callable[..., None]) -> None:
    from convladder.kernels import compile_cuda, errors, plan

    source = request["source"]
    stage, index = "compile", -1
    try:
        parsed = plan.parse(source)
        for case in request["cases"]:  # before the compiler stumbles over them
            parsed.check_names({*case["symbols"], *case["inputs"], *case["outputs"], *case["inouts"]})
        modules = {"sim": _on_the_engine(source, parsed.options())}
        if request["on"] == "gpu":
            modules["gpu"] = compile_cuda(source, on="gpu", options=parsed.options())
        send({"event": "compiled", "kernels": modules["sim"].kernels})
        stage = "launch"
        for index, case in enumerate(request["cases"]):
            reply, outputs = _run_case(modules, parsed, request, case, arrays)
            send({"event": "case", "index": index, **reply}, outputs)
            if reply["faults"]:
                break
    except _GpuError as error:
        send({"event": "error", "stage": "gpu", "index": index, **_described(error)})
    except (errors.ConvladderError, MemoryError) as error:
        send({"event": "error", "stage": stage, "index": index, **_described(error)})
    else:
        send({"event": "end"})


@lru_cache(maxsize=2)
def _on_the_engine(source: str, options: tuple[str, ...]) -> Any:
    """A compiled module, kept for the next request: a failing case is made smaller in several of them."""
    from convladder.kernels import compile_cuda

    return compile_cuda(source, on="sim", options=options)


def _trace(request: dict[str, Any], arrays: list[np.ndarray], send: Callable[..., None]) -> None:
    """How elements came to their values, or what a warp touches, on one small case."""
    from convladder.kernels import errors, plan, trace

    try:
        parsed = plan.parse(request["source"])
        module = _on_the_engine(request["source"], parsed.options())
        module.reset()
        case = request["case"]
        given = (module, parsed, case["symbols"], _operands(case, arrays))
        if request["op"] == "terms":
            wanted = [(str(name), int(element)) for name, element in request["wanted"]]
            made = trace.terms(*given, wanted, request["default_args"])
            said = [None if m is None else [[t.coefficient, t.factors, t.line] for t in m] for m in made]
            send({"event": "terms", "terms": said})
        else:
            seen = trace.lanes(*given, request["default_args"], block=request["block"], warp=request["warp"])
            send({"event": "lanes", "accesses": [asdict(access) for access in seen]})
    except (errors.ConvladderError, MemoryError) as error:
        send({"event": "error", "stage": "launch", **_described(error)})
    else:
        send({"event": "end"})


class _GpuError(Exception):
    """The engine found nothing wrong, but the GPU's driver did. Its context may be lost: this worker is done."""


def _described(error: Exception) -> dict[str, Any]:
    """A typed error as JSON: its class, its message, its line, and what it carries besides."""
    message = str(error)[:_MAX_MESSAGE] or type(error).__name__
    if isinstance(error, MemoryError):
        message = "its arrays and temps need more memory than a text gets"
    line = getattr(error, "line", None) or 0
    found: dict[str, Any] = {"type": type(error).__name__, "message": message, "line": line}
    if (fault := getattr(error, "fault", None)) is not None:
        found["fault"] = asdict(fault)
    if (diagnostics := getattr(error, "diagnostics", None)) is not None:
        found["diagnostics"] = [[d.line, d.severity, d.message[:_MAX_MESSAGE]] for d in diagnostics[:50]]
        found["log"] = getattr(error, "log", "")[:4000]
    return found


def _run_case(
    modules: dict[str, Any], parsed: Any, request: dict[str, Any], case: dict[str, Any], arrays: list[np.ndarray]
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """One case on the engine and, if that went well and a GPU was asked for, on the GPU, whose values count then."""
    from convladder.kernels import errors, plan

    for module in modules.values():
        module.reset()  # or a text could tell one case from another, and hand results on
    operands = _operands(case, arrays)
    try:
        results = plan.run(
            modules["sim"], parsed, case["symbols"], operands, request["default_args"], budget=request["budget"]
        )
        faults = [asdict(f) for _, r in results for f in r.faults]
        launches = [[name, asdict(r.counters)] for name, r in results if r.counters is not None]
        printed = "".join(r.output for _, r in results)
    except errors.UnsupportedPTX as error:
        faults, launches, printed = [asdict(error.fault)], [], ""
    changed = [n for n, i in case["inputs"].items() if not np.array_equal(operands[n], arrays[i])]
    if not faults and "gpu" in modules:
        operands = _operands(case, arrays)
        try:
            plan.run(modules["gpu"], parsed, case["symbols"], operands, request["default_args"])
        except errors.BackendError:
            raise
        except Exception as error:
            raise _GpuError(f"on the GPU: {error}") from None
    written = [*case["outputs"], *case["inouts"]]
    reply = {"faults": faults[:20], "launches": launches, "changed": changed, "outputs": written}
    reply["printed"] = printed[:_MAX_PRINTED]
    return reply, [getattr(operands[n], "array", operands[n]) for n in written]


def _operands(case: dict[str, Any], arrays: list[np.ndarray]) -> dict[str, Any]:
    """Private copies of the inputs, and outputs whose contents are undefined.

    Outputs are poisoned here, not by the launch alone: a text may launch nothing with them, and memory may hold what
    another case left.
    """
    from convladder.kernels import out

    copies = {name: arrays[i].copy() for name, i in {**case["inputs"], **case["inouts"]}.items()}
    return {**copies, **{n: out(_poisoned(shape, dtype)) for n, (dtype, shape) in case["outputs"].items()}}


def _poisoned(shape: list[int], dtype: str) -> np.ndarray:
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 0xFF
    return array


def _time(request: dict[str, Any], arrays: list[np.ndarray], send: Callable[..., None]) -> None:
    """Time texts on the GPU, and keep of what the watched one returned as much as the judge will check."""
    from convladder.kernels import errors, measure

    watched = request["watched"]
    texts = {n: measure.Text(source, tuple(names)) for n, (source, names) in request["texts"].items()}
    kept = _Kept(request["elements"])
    try:
        found = measure.session(
            texts, request["symbols"], request["inputs"], request["outputs"], bytes.fromhex(request["key"]),
            constants=dict(zip(request["constants"], arrays, strict=True)), rounds=request["rounds"],
            seconds=request["seconds"], watched=watched, watch=kept.add,
        )  # fmt: skip
    except (errors.ConvladderError, MemoryError) as error:
        send({"event": "error", "stage": "compile", **_described(error)})
    except Exception as error:
        send({"event": "error", "stage": "gpu", **_described(_GpuError(f"on the GPU: {error}"))})
    else:
        values = [kept.whole, np.stack(kept.elements), np.stack(kept.values)] if watched else []
        send({"event": "timed", **asdict(found), "whole_call": kept.whole_call}, values)
        send({"event": "end"})


class _Kept:
    """Of every timed run some elements, drawn after it returned; of one run, drawn by lot, everything."""

    def __init__(self, elements: int):
        self._count = elements
        self._rng = np.random.default_rng()  # seeded by the system: nothing that a kernel can reach knows it
        self.whole = np.empty(0, np.float32)
        self.whole_call = -1
        self.elements: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    def add(self, number: int, runs: list[dict[str, np.ndarray]]) -> None:
        for outputs in runs:
            (values,) = outputs.values()
            call = len(self.elements)
            # Each run so far is the one kept in full with the same probability, however many there will be.
            if self._rng.integers(call + 1) == 0:
                self.whole, self.whole_call = values, call
            drawn = self._rng.integers(0, values.size, self._count)
            self.elements.append(drawn)
            self.values.append(values.reshape(-1)[drawn])


# ---- Python functions


class _TookTooLong(BaseException):
    """Raised in the student's function by the timer: not an Exception, so `except Exception` lets it pass."""


def _run_python(request: dict[str, Any], given: list[np.ndarray], send: Callable[..., None]) -> None:
    names: dict[str, Any] = {"__name__": "__answer__", "__builtins__": __builtins__}
    seconds, text = request["seconds"], request.get("text", MAX_TEXT)
    _, error = _guarded(lambda: exec(compile(request["source"], _ANSWER, "exec"), names), seconds)
    function = names.get(request["function"])
    if error is None and not callable(function):
        error = {"type": "missing", "message": "", "line": 0}
    if error is not None:
        send({"event": "error", "stage": "define", "error": error})
        return
    results: list[dict[str, Any]] = []
    arrays: list[np.ndarray] = []
    size = 0
    for call in request["calls"]:
        arguments = {k: given[v["array"]].copy() if isinstance(v, dict) else v for k, v in call.items()}
        packed: list[np.ndarray] = []
        value, error = _guarded(lambda a=arguments, p=packed: pack(function(**a), p, text), seconds)  # type: ignore[misc]
        if error is None:
            size += len(json.dumps(value)) + sum(a.nbytes for a in packed)
            # Positions in `packed` become positions in the request's list.
            results.append({"value": value, "first": len(arrays), "count": len(packed)})
            arrays += packed
        else:
            results.append({"error": error})
        too_large = isinstance(value, dict) and "large" in value
        if size > _MAX_RESULTS or too_large or (error and error["type"] == "time"):
            break  # the judge sees from the number of results where this ended
    send({"event": "results", "results": results}, arrays)


def _guarded(action: Callable[[], Any], seconds: float) -> tuple[Any, dict[str, Any] | None]:
    """The value of student code and None, or None and what went wrong: `type`, `message`, `line` of the cell."""
    try:
        try:
            _alarm(seconds)
            return action(), None
        except BaseException as error:
            _alarm(1.0)  # showing the error may run student code again
            return None, _error_of(error, seconds)
        finally:
            _alarm(0)
    except BaseException as error:
        return None, {"type": type(error).__name__[:100], "message": "", "line": 0}


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _on_alarm(*_: Any) -> None:
    raise _TookTooLong


def _error_of(error: BaseException, seconds: float) -> dict[str, Any]:
    if isinstance(error, _TookTooLong):
        return {"type": "time", "message": f"{seconds:g}", "line": _line_of(error)}
    line = error.lineno or 0 if isinstance(error, SyntaxError) and error.filename == _ANSWER else _line_of(error)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return {
        "type": type(error).__name__[:100],
        "message": str(message)[:_MAX_MESSAGE].encode(errors="replace").decode(),
        "line": line,
    }


def _line_of(error: BaseException) -> int:
    """The last line of the student's own text that the error passed through."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _ANSWER:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# ---- the loop


def prepare(role: str) -> None:
    """Load all that a worker needs, before one is forked."""
    if role == "kernel":
        _prepare_kernels()


def serve(role: str, limits: dict[str, int]) -> None:
    """Be a worker: answer requests until their pipe is closed."""
    channel = _Channel()
    answer = {"kernel": _serve_kernels, "python": _run_python}[role]
    if role == "python":
        signal.signal(signal.SIGALRM, _on_alarm)
        np.random.seed()  # or it would be the same in all workers of a zygote
    _limit_resources(limits)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8", errors="replace")
    channel.send({"event": "ready", "uid": os.getuid()})
    for frame in channel.requests():
        answer(frame.header, frame.arrays, channel.send)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
