"""Time kernel texts on a GPU, several of them in turn, and say how far the times can be trusted.

A *session* times each text once a round, in rotating order, so that whatever drifts (clocks, heat, a
neighbour) drifts for all of them; their times are then compared round by round. In every round

- the inputs are new: no call ever sees data that an earlier one saw, and they can be drawn again from the key;
- outputs and scratch arrays are filled with NaN before each call, so that no text finds another one's results;
- the second-level cache is flushed with a buffer of at least twice its size. That keeps the device busy while
  the call is put in line behind it, so that the events enclose the device's work and no gap before it;
- a call is the replay of a graph that holds all launches of the text; where one run is short, the graph holds
  several, each on data of its own, until a sample is far above the launch's own cost.

The first runs, which load the code, and some rounds of warm-up are left out.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import plan
from .expression import Value
from .gpu import cache_bytes, cupy_module, device_facts, fp32_peak_gflops
from .launch import compile_cuda
from .module import Module, Ready

#: A sample shorter than this holds several runs.
MIN_SAMPLE_US = 200.0
MAX_CALLS = 16
#: Buffers of twice the cache, written this often before a sample: about 0.1 ms or more on any device.
_FLUSH_FACTOR = 2
_FLUSH_PASSES = 4
#: Fewer rounds are made only where a text is so slow that the session would not end in time.
MIN_ROUNDS = 7
_WARM_UP_ROUNDS = 3
_COPY_BYTES = 1 << 29
#: The number of the round whose data the first runs get: no other round has it.
_PROBE_ROUND = 1 << 30


@dataclass(frozen=True)
class Text:
    """A kernel text with its `//@` lines. `default_args`: what a launch without args= passes; None: by name."""

    source: str
    default_args: tuple[str, ...] | None = None


@dataclass
class Session:
    """What a session measured.

    times_us        for each text one time a round: of one run, where a sample holds several
    calls           runs in a sample; the inputs of run j in round i are `fresh(key, i * calls + j, ...)`
    bandwidth_gbs   of a copy in the device's memory, bytes read plus bytes written, in GB/s
    peak_gflops     FP32 operations at the highest clock, None where unknown
    facts           device, driver and versions
    """

    times_us: dict[str, list[float]]
    calls: int
    bandwidth_gbs: float
    peak_gflops: float | None
    facts: dict[str, str] = field(default_factory=dict)


#: Called after each sample of the watched text with (round, the outputs of each of its runs).
Watch = Callable[[int, list[dict[str, np.ndarray]]], None]


def fresh(key: bytes, call: int, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """The inputs of one run: float32, uniform in [-1, 1), the same for the same key, call and shapes."""
    rng = np.random.default_rng([int.from_bytes(key), call])
    return {name: rng.random(tuple(shape), np.float32) * np.float32(2) - 1 for name, shape in shapes.items()}


def session(
    texts: Mapping[str, Text],
    symbols: Mapping[str, Value],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    key: bytes,
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    rounds: int = 25,
    seconds: float = 20.0,
    watched: str = "",
    watch: Watch | None = None,
) -> Session:
    """Time every text on the same problem, in turn.

    inputs, outputs  shapes of the float32 arrays that texts read and write
    key              seeds the data
    constants        arrays that texts read and that are the same in every run
    rounds           how often each text is timed; fewer, but at least MIN_ROUNDS, where `seconds` would not do
    watched          the text whose outputs `watch` is given after each of its samples
    Raises BackendError without a GPU, CompileError, PlanError and the like where a text cannot be run, and CuPy's
    own errors where one fails on the device.
    """
    cupy = cupy_module()
    modules = {n: compile_cuda(t.source, "gpu", options=plan.parse(t.source).options()) for n, t in texts.items()}
    with cupy.cuda.Stream(non_blocking=True):
        bench = _Bench(cupy, symbols, inputs, outputs, key, constants or {})
        runs = {name: _Run(bench, modules[name], text) for name, text in texts.items()}
        first = {name: bench.first_times(run) for name, run in runs.items()}
        calls = min(MAX_CALLS, max(1, math.ceil(MIN_SAMPLE_US / min(first.values()))))
        for run in runs.values():
            run.capture(calls)
        spent_s = 1e-6 * sum(first.values()) * calls
        rounds = max(MIN_ROUNDS, min(rounds, int(seconds / max(spent_s, 1e-6))))
        names = list(runs)
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(-_WARM_UP_ROUNDS, rounds):
            # Warm-up has calls of its own: their numbers lie beyond those of every round.
            bench.load(number if number >= 0 else rounds - number)
            for name in _rotated(names, number):
                elapsed_us = bench.sample(runs[name])
                if number >= 0:
                    times[name].append(elapsed_us / calls)
                    if watch is not None and name == watched:
                        watch(number, bench.results())
        bandwidth = bandwidth_gbs(cupy)
    return Session(times, calls, bandwidth, fp32_peak_gflops(), device_facts())


def _rotated(names: list[str], number: int) -> list[str]:
    start = number % len(names)
    return names[start:] + names[:start]


class _Bench:
    """The device's arrays that all texts of a session share: inputs and outputs of each run, and the flush buffer."""

    def __init__(
        self, cupy: Any, symbols: Mapping[str, Value], inputs: Mapping[str, Sequence[int]],
        outputs: Mapping[str, Sequence[int]], key: bytes, constants: Mapping[str, np.ndarray],
    ):  # fmt: skip
        self.cupy = cupy
        self.symbols = symbols
        self._inputs = inputs
        self._outputs = outputs
        self._key = key
        self._constants = constants
        self._constant_arrays = {name: cupy.asarray(values) for name, values in constants.items()}
        self._flush = cupy.empty(_FLUSH_FACTOR * cache_bytes(), np.uint8)
        #: Arrays of each run of a sample, by name.
        self.sets: list[dict[str, Any]] = []
        self.grow(1)
        self.load(_PROBE_ROUND)

    def grow(self, calls: int) -> None:
        shapes = {**self._inputs, **self._outputs}
        while len(self.sets) < calls:
            new = {n: self.cupy.empty(tuple(s), np.float32) for n, s in shapes.items()}
            self.sets.append({**self._constant_arrays, **new})

    def load(self, number: int) -> None:
        """Give every run the inputs of round `number`."""
        for j, arrays in enumerate(self.sets):
            for name, values in fresh(self._key, number * len(self.sets) + j, self._inputs).items():
                arrays[name].set(values)
        self.cupy.cuda.get_current_stream().synchronize()

    def first_times(self, run: _Run) -> float:
        """Microseconds of a second run: the first loads the code."""
        self.sample(run)
        return max(self.sample(run), 1.0)

    def sample(self, run: _Run) -> float:
        """Microseconds of one sample."""
        stream = self.cupy.cuda.get_current_stream()
        before, after = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        for name, values in self._constants.items():  # or one text could change what the next one has to do
            self._constant_arrays[name].set(values)
        for array in [*run.scratch, *(s[name] for s in self.sets for name in self._outputs)]:
            self._fill(array, 0xFF)
        for _ in range(_FLUSH_PASSES):
            self._fill(self._flush, 0)
        before.record(stream)
        run.enqueue(stream)
        after.record(stream)
        after.synchronize()
        for array in run.scratch:
            self._fill(array, 0xFF)
        return float(self.cupy.cuda.get_elapsed_time(before, after)) * 1e3

    def _fill(self, array: Any, byte: int) -> None:
        stream = self.cupy.cuda.get_current_stream()
        self.cupy.cuda.runtime.memsetAsync(array.data.ptr, byte, array.nbytes, stream.ptr)

    def results(self) -> list[dict[str, np.ndarray]]:
        return [{name: arrays[name].get() for name in self._outputs} for arrays in self.sets]


class _Run:
    """One text of a session: its launches on the bench's arrays, plain at first, then as a graph."""

    def __init__(self, bench: _Bench, module: Module, text: Text):
        self._bench = bench
        self._module = module
        self._plan = plan.parse(text.source)
        self._default_args = text.default_args
        self._launches: list[Ready] = []
        self._graph: Any = None
        self.scratch: list[Any] = []
        self._add(bench.sets[0])

    def _add(self, arrays: Mapping[str, Any]) -> None:
        temps = plan.temps(self._plan, self._bench.symbols, "gpu")
        self.scratch += temps.values()
        operands = {**arrays, **temps}
        self._launches += plan.ready(self._module, self._plan, self._bench.symbols, operands, self._default_args)

    def capture(self, calls: int) -> None:
        """Make a graph of `calls` runs, each on arrays of its own."""
        self._bench.grow(calls)
        for arrays in self._bench.sets[1:calls]:
            self._add(arrays)
        stream = self._bench.cupy.cuda.get_current_stream()
        stream.begin_capture()
        try:
            for launch in self._launches:
                self._module.image.enqueue(launch)  # type: ignore[attr-defined]
        finally:
            graph = stream.end_capture()
        self._graph = graph

    def enqueue(self, stream: Any) -> None:
        if self._graph is not None:
            self._graph.launch(stream)
            return
        for launch in self._launches:
            self._module.image.enqueue(launch)  # type: ignore[attr-defined]


def bandwidth_gbs(cupy: Any) -> float:
    """GB/s of a large copy within the device's memory, bytes read plus bytes written: the best of several."""
    stream = cupy.cuda.get_current_stream()
    size = min(_COPY_BYTES, cupy.cuda.runtime.memGetInfo()[0] // 8)
    source, target = cupy.empty(size, np.uint8), cupy.empty(size, np.uint8)
    times = []
    for _ in range(8):
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record(stream)
        target.data.copy_from_device_async(source.data, size, stream)
        after.record(stream)
        after.synchronize()
        times.append(cupy.cuda.get_elapsed_time(before, after))
    return 2 * size / (min(times) * 1e-3) / 1e9


def limit_us(bytes_moved: float, flops: float, bandwidth_gbs: float, peak_gflops: float | None) -> float:
    """No kernel takes less: the compulsory bytes at the memory's speed, or the operations at the FP32 peak."""
    arithmetic_us = flops / peak_gflops * 1e-3 if peak_gflops else 0.0
    return max(bytes_moved / bandwidth_gbs * 1e-3, arithmetic_us)


# ---- how far numbers can be trusted


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that holds it with the asked confidence."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


def bootstrap(
    statistic: Callable[..., np.ndarray], *samples: Sequence[float], confidence: float = 0.95, resamples: int = 4000
) -> Interval:
    """A statistic of paired samples with its percentile bootstrap interval; the same for the same samples.

    statistic  takes arrays (resamples, rounds), one for each of `samples`, and reduces their last axis. Rounds are
               drawn whole, so what texts of one round have in common cancels
    """
    arrays = [np.asarray(s, np.float64) for s in samples]
    rounds = len(arrays[0])
    drawn = np.random.default_rng(rounds).integers(0, rounds, (resamples, rounds))
    values = statistic(*(a[drawn] for a in arrays))
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(statistic(*(a[None] for a in arrays))[0]), float(low), float(high))


def median_ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The median over the rounds (last axis) of the ratio within a round."""
    return np.asarray(np.median(numerator / denominator, axis=-1))


# ---- the state of a device


_QUERY = (
    "name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw",
)  # fmt: skip
#: The newer name first; an older driver knows the second only.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")

#: Bits of what holds the clocks down (NVML, nvmlClocksEventReasons).
_REASON_NAMES = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip


def device_state(device: str) -> dict[str, str]:
    """Clocks, heat, power and what holds the clocks down, now; empty where nothing here can tell.

    device  a bus address, as gpu.device_id() gives it
    """
    return _state_by_nvml(device) or _state_by_smi(device)


def _state_by_nvml(device: str) -> dict[str, str]:
    try:
        import pynvml  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(device.encode())
        name, driver = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlSystemGetDriverVersion()
        reasons = int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        values = {
            "name": name.decode() if isinstance(name, bytes) else name,
            "driver_version": driver.decode() if isinstance(driver, bytes) else driver,
            "clocks.sm": f"{pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)} MHz",
            "clocks.mem": f"{pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)} MHz",
            "clocks.max.sm": f"{pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)} MHz",
            "temperature.gpu": str(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            "power.draw": f"{pynvml.nvmlDeviceGetPowerUsage(handle) / 1000:.2f} W",
        }
    except (pynvml.NVMLError, AttributeError):  # evidence only: what a driver does not tell is left out
        return {}
    return {**values, "held_down_by": reason_names(reasons)}


def _state_by_smi(device: str) -> dict[str, str]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return {}
    for reasons in _REASONS:
        fields = (*_QUERY, reasons)
        command = [smi, "-i", device, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        values = [v.strip() for v in told.stdout.strip().split(",")]
        if told.returncode == 0 and len(values) == len(fields):
            found = dict(zip(_QUERY, values[:-1], strict=True))
            return {**found, "held_down_by": _read_reasons(values[-1])}
    return {}


def _read_reasons(text: str) -> str:
    try:
        return reason_names(int(text, 16))
    except ValueError:
        return text


def reason_names(bits: int) -> str:
    """NVML's bits in words."""
    known = [name for bit, name in _REASON_NAMES.items() if bits & bit]
    unknown = bits & ~sum(_REASON_NAMES)
    return ", ".join([*known, *([hex(unknown)] if unknown else [])]) or "nothing"
