"""The best choice by measuring: the model's candidates, each compiled and timed, until there is no time left.

What is found is kept (`kept`), and `Convolution` takes it from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .. import gpu, stopwatch
from ..errors import CompileError, GeometryError
from ..layouts import ConvGeometry
from .convolution import Convolution, require_weights
from .kept import keep
from .model import ranked
from .tiling import Choice

#: Candidates that are timed in turn, the first of them the best so far.
_ROUND = 4


@dataclass(frozen=True)
class Trial:
    """One choice: its median time, or why it has none."""

    choice: Choice
    us: float | None
    why: str = ""


@dataclass(frozen=True)
class Tuned:
    """The best choice and its time; every trial; how long it took, and whether all candidates had their turn."""

    choice: Choice
    us: float
    trials: tuple[Trial, ...]
    seconds: float
    complete: bool


#: Called with (trials made, candidates in all, the best so far).
Progress = Callable[[int, int, Trial | None], object]

#: Times choices: microseconds of each, or why there are none.
Measure = Callable[[Sequence[Choice]], Sequence[float | str]]


def tune(
    geometry: ConvGeometry,
    w: np.ndarray,
    seconds: float = 120.0,
    most: int = 16,
    workers: int | None = None,
    progress: Progress = lambda *_: None,
    measure: Measure | None = None,
) -> Tuned:
    """Find the fastest choice for these weights on the GPU at hand, and keep it.

    w        (K, C/groups, R, S) float32
    seconds  no further candidates are begun after so long;  most  candidates in all
    measure  how candidates are timed, in place of running them on the GPU
    Raises GeometryError where codegen does not take the geometry, or no candidate could be run; BackendError.
    """
    require_weights(geometry, w)
    begun = time.perf_counter()
    todo = _candidates(geometry, w, most)
    measure = measure or partial(_on_gpu, geometry, w, workers)
    trials: dict[Choice, Trial] = {}
    best: Trial | None = None
    for first in range(0, len(todo), _ROUND - 1):
        if first and time.perf_counter() - begun >= seconds:
            break
        turn = [*([best.choice] if best else []), *todo[first : first + _ROUND - 1]]
        for choice, found in zip(turn, measure(turn), strict=True):
            trials[choice] = Trial(choice, None, found) if isinstance(found, str) else Trial(choice, found)
        timed = [trial for trial in trials.values() if trial.us is not None]
        best = min(timed, key=lambda trial: trial.us or 0.0, default=None)
        progress(len(trials), len(todo), best)
    if best is None or best.us is None:
        reasons = "; ".join(dict.fromkeys(trial.why for trial in trials.values()))
        raise GeometryError(f"no candidate could be run for {geometry}: {reasons}")
    keep(geometry, w, best.choice)
    spent = time.perf_counter() - begun
    return Tuned(best.choice, best.us, tuple(trials.values()), spent, len(trials) == len(todo))


def _candidates(geometry: ConvGeometry, w: np.ndarray, most: int) -> list[Choice]:
    """The model's best for each number of filters, with and without halves of the channels and walking blocks."""
    found: dict[tuple[int, int, bool], Choice] = {}
    multiprocessors = gpu.multiprocessors() if gpu.available() else 1
    for choice in ranked(geometry, w, multiprocessors):
        found.setdefault((choice.filters, choice.splits, choice.rounds > 1), choice)
    return list(found.values())[:most]


def _on_gpu(
    geometry: ConvGeometry, w: np.ndarray, workers: int | None, choices: Sequence[Choice]
) -> Sequence[float | str]:
    cupy = gpu.cupy_module()
    made: dict[str, Convolution] = {}
    answers: dict[str, float | str] = {}
    for choice in choices:
        try:
            made[str(choice)] = Convolution(geometry, w, choice, workers)
        except (CompileError, GeometryError) as error:
            answers[str(choice)] = str(error)

    def arrays(call: int) -> tuple[object, object]:
        x = cupy.random.default_rng(call).standard_normal(geometry.x_shape, dtype=np.float32)
        return x, cupy.empty(geometry.y_shape, np.float32)

    def maker(convolution: Convolution, operands: tuple[object, object]) -> stopwatch.Work:
        return stopwatch.Work(partial(convolution.enqueue, *operands))

    with cupy.cuda.Stream(non_blocking=True):
        makers = {name: partial(maker, convolution) for name, convolution in made.items()}
        timings = stopwatch.in_turn(makers, arrays, rounds=9, seconds=1.0) if makers else {}
    answers |= {name: timing.median_us for name, timing in timings.items()}
    return [answers[str(choice)] for choice in choices]
