"""Device time of work on a GPU: one piece at a time, or several in turn.

Host time must not show in a figure. Work that can be captured is replayed as a CUDA graph. CuPy refuses to capture
cuBLAS and cuSPARSE; such work is queued behind a pause of the device that lasts until the host has queued all of it.
A queued launch costs the device about a microsecond more than a node of a graph.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .gpu import cache_bytes, cupy_module

#: Puts work into CuPy's current stream and does not wait.
Enqueue = Callable[[], object]

#: A sample shorter than this holds several calls, each on arrays of its own, up to so many.
MIN_SAMPLE_US = 200.0
MAX_CALLS = 16

_WARM_UP_ROUNDS = 2
_FLUSH_FACTOR = 2
#: How much longer than the host needed the device pauses.
_PAUSE_FACTOR, _PAUSE_MORE_US = 1.5, 50.0
#: No work that is timed here takes the host longer; a pause beyond it would be a mistake.
_LONGEST_PAUSE_US = 1e6

_PAUSE_SOURCE = r"""
extern "C" __global__ void pause_device(long long ns)
{
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(200);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ns);
}
"""


@dataclass(frozen=True)
class Work:
    """Something to time. `capturable`: whether a CUDA graph can hold it."""

    enqueue: Enqueue
    capturable: bool = True


@dataclass(frozen=True)
class Timing:
    """times_us: one a round, of one call; calls: how many a sample held; graph: replayed as one, or else queued."""

    times_us: tuple[float, ...]
    calls: int
    graph: bool

    @property
    def median_us(self) -> float:
        return float(np.median(self.times_us))

    @property
    def quartiles_us(self) -> tuple[float, float]:
        low, high = np.quantile(self.times_us, [0.25, 0.75])
        return float(low), float(high)


@cache
def _pause_kernel() -> Any:
    return cupy_module().RawKernel(_PAUSE_SOURCE, "pause_device")


def pause(us: float) -> None:
    """Keep the current stream busy for so many microseconds."""
    _pause_kernel()((1,), (1,), (np.int64(min(us, _LONGEST_PAUSE_US) * 1e3),))


def empty_launch_us() -> float:
    """Device time of a kernel that does nothing, as a node of a graph: no launch takes less."""
    empty = cupy_module().RawKernel('extern "C" __global__ void empty() {}', "empty")
    work = Work(lambda: empty((1,), (32,), ()))
    return in_turn({"empty": lambda _: work}, lambda _: None)["empty"].median_us


def elapsed_us(enqueue: Enqueue, repeat: int = 3) -> float:
    """The least device time of some work, which has run once before: for choosing among ways to do it."""
    host_us = _host_us(enqueue)
    return min(_between_events_us(enqueue, pause_us=host_us) for _ in range(repeat))


def _host_us(enqueue: Enqueue) -> float:
    """How long the host takes to queue some work; waits for the device before and after."""
    stream = cupy_module().cuda.get_current_stream()
    stream.synchronize()
    started = time.perf_counter()
    enqueue()
    spent = time.perf_counter() - started
    stream.synchronize()
    return spent * 1e6


def _between_events_us(enqueue: Enqueue, pause_us: float) -> float:
    cupy = cupy_module()
    stream = cupy.cuda.get_current_stream()
    before, after = cupy.cuda.Event(), cupy.cuda.Event()
    pause(_PAUSE_FACTOR * pause_us + _PAUSE_MORE_US)
    before.record(stream)
    enqueue()
    after.record(stream)
    after.synchronize()
    return float(cupy.cuda.get_elapsed_time(before, after)) * 1e3


def in_turn(
    makers: Mapping[str, Callable[[Any], Work]],
    arrays: Callable[[int], Any],
    *,
    rounds: int = 15,
    seconds: float = 5.0,
) -> dict[str, Timing]:
    """Time several ways to do the same work, each once a round, in rotating order, the second-level cache flushed.

    makers   by name: makes the work of one call from the arrays of that call
    arrays   makes the arrays of call i; those of the calls in one sample are kept at the same time
    rounds   fewer, but at least 5, where all of them would take longer than `seconds`
    CuPy's current stream must be one that can be captured, not the default one.
    """
    cupy = cupy_module()
    sets = [arrays(0)]
    flush = cupy.empty(_FLUSH_FACTOR * cache_bytes(), np.uint8)
    samples = {}
    for name, maker in makers.items():
        first = maker(sets[0])
        first.enqueue()  # loads the code
        calls = max(1, min(MAX_CALLS, math.ceil(MIN_SAMPLE_US / max(elapsed_us(first.enqueue), 1.0))))
        sets += [arrays(i) for i in range(len(sets), calls)]
        samples[name] = _Sample([first, *(maker(own) for own in sets[1:calls])], flush)
    spent_s = 1e-6 * sum(sample.time_us() * sample.calls for sample in samples.values())
    rounds = max(5, min(rounds, int(seconds / max(spent_s, 1e-9))))
    names = list(samples)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-_WARM_UP_ROUNDS, rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            elapsed = samples[name].time_us()
            if number >= 0:
                times[name].append(elapsed)
    return {name: Timing(tuple(times[name]), s.calls, s.graph is not None) for name, s in samples.items()}


class _Sample:
    """The calls of one way, timed together: as a graph where all of them can be captured."""

    def __init__(self, works: list[Work], flush: Any):
        self.calls = len(works)
        self._works = works
        self._flush = flush
        self.graph = self._captured() if all(work.capturable for work in works) else None
        self._pause_us = 0.0 if self.graph is not None else _host_us(self._enqueue)

    def _enqueue(self) -> None:
        stream = cupy_module().cuda.get_current_stream()
        if self.graph is not None:
            self.graph.launch(stream)
            return
        for work in self._works:
            work.enqueue()

    def _captured(self) -> Any:
        stream = cupy_module().cuda.get_current_stream()
        stream.begin_capture()
        try:
            for work in self._works:
                work.enqueue()
        finally:
            graph = stream.end_capture()
        return graph

    def time_us(self) -> float:
        """Microseconds of one call."""
        self._flush.fill(0)
        return _between_events_us(self._enqueue, self._pause_us) / self.calls
