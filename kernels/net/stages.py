"""Training iterations stage by stage, as the training paper divides them (section 3.3): in turn, or overlapped.

Pictures are read (1) and transformed (2), copied to where the network computes (3), the network computes forwards and
backwards (4), its weights are updated (5), and now and then they are saved (6).

Overlapped, a *prefetch thread* does the first three for the batches ahead while the network computes; on a GPU it
copies from pinned memory in a stream of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from ..errors import ArgumentError
from .images import Reader, transform
from .layers import Array
from .training import Network

STAGES = ("read", "transform", "copy", "forward", "backward", "update", "save")
#: What the prefetch thread does.
PREFETCHED = STAGES[:3]
#: Batches that it may be ahead.
DEPTH = 2


@dataclass(frozen=True)
class Span:
    """One stage of one iteration, in milliseconds since the run began."""

    stage: str
    iteration: int
    start_ms: float
    end_ms: float


@dataclass
class Run:
    """What a run of several iterations did, and the loss of each."""

    overlapped: bool
    spans: list[Span] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def stage_ms(self) -> dict[str, float]:
        """The median time of each stage; of those that never ran, 0."""
        times = {stage: [s.end_ms - s.start_ms for s in self.spans if s.stage == stage] for stage in STAGES}
        return {stage: median(found) if found else 0.0 for stage, found in times.items()}

    def iteration_ms(self) -> float:
        """From the end of one update to the end of the next, the median; what saving takes in between is left out."""
        ends = [s.end_ms for s in self.spans if s.stage == "update"]
        saves = [s for s in self.spans if s.stage == "save"]
        return median(
            end - before - sum(s.end_ms - s.start_ms for s in saves if before <= s.start_ms < end)
            for before, end in itertools.pairwise(ends)
        )


class Pipeline:
    """A network, its pictures and its snapshot file.

    workers  threads that transform pictures
    every    iterations from one snapshot to the next
    """

    def __init__(self, network: Network, reader: Reader, snapshot: Path, *, workers: int = 1, every: int = 8):
        self.network, self.reader, self.snapshot = network, reader, snapshot
        self.workers, self.every = workers, every
        self._rng = np.random.default_rng(0)
        self._copies = None if network.xp is np else network.xp.cuda.Stream(non_blocking=True)

    def run(self, iterations: int, overlapped: bool = False) -> Run:
        """Train so many iterations, at least 2; one before them, in which libraries load and choose, is not counted."""
        if iterations < 2:
            raise ArgumentError(f"iterations = {iterations}: it must be at least 2")
        with ThreadPoolExecutor(self.workers) as pool, ThreadPoolExecutor(1, "prefetch") as prefetch:
            self._train(_Clock(Run(overlapped)), 0, *self._load(_Clock(Run(overlapped)), 0, pool))
            run = Run(overlapped)
            clock = _Clock(run)
            if not overlapped:
                for number in range(iterations):
                    self._train(clock, number, *self._load(clock, number, pool))
                return run
            numbers = iter(range(iterations))
            ahead = deque(prefetch.submit(self._load, clock, n, pool) for n in itertools.islice(numbers, DEPTH))
            for number in range(iterations):
                batch = ahead.popleft().result()
                ahead.extend(prefetch.submit(self._load, clock, n, pool) for n in itertools.islice(numbers, 1))
                self._train(clock, number, *batch)
            return run

    def _load(self, clock: _Clock, number: int, pool: ThreadPoolExecutor) -> tuple[Array, Array]:
        """The images and labels of one iteration, where the network computes."""
        batch, *shape = self.network.data.output
        with clock.timed("read", number):
            coded = self.reader.read(np.arange(number * batch, (number + 1) * batch) % len(self.reader))
        with clock.timed("transform", number):
            images = self._host_array((batch, *shape))
            labels = np.array([label for _, label in coded])
            seeds = self._rng.integers(2**32, size=batch)
            list(pool.map(_transform_into, images, (picture for picture, _ in coded), seeds))
        with clock.timed("copy", number):
            return self._copied(images), self._copied(labels)

    def _train(self, clock: _Clock, number: int, images: Array, labels: Array) -> None:
        with clock.timed("forward", number, self._wait):
            loss = self.network.forward(images, labels)
        with clock.timed("backward", number, self._wait):
            self.network.backward()
        with clock.timed("update", number, self._wait):
            self.network.update()
        clock.run.losses.append(float(loss))
        if (number + 1) % self.every == 0:
            with clock.timed("save", number):
                self.network.save(self.snapshot)

    def _host_array(self, shape: tuple[int, ...]) -> np.ndarray:
        """float32 on the host; for a GPU in pinned memory, from which the device copies by itself."""
        if self._copies is None:
            return np.empty(shape, np.float32)
        import cupyx

        return cupyx.empty_pinned(shape, np.float32)

    def _copied(self, array: np.ndarray) -> Array:
        """The array where the network computes: with NumPy another place in memory, so that the stage is there."""
        if self._copies is None:
            return array.copy()
        with self._copies:
            device = self.network.xp.empty(array.shape, array.dtype)
            device.set(array)
            self._copies.synchronize()
        return device

    def _wait(self) -> None:
        """Until the GPU has done what it was given."""
        if self._copies is not None:
            self.network.xp.cuda.get_current_stream().synchronize()


def _transform_into(image: np.ndarray, coded: bytes, seed: int) -> None:
    image[...] = transform(coded, image.shape, np.random.default_rng(seed))


class _Clock:
    """Writes down the stages of a run."""

    def __init__(self, run: Run):
        self.run = run
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def timed(self, stage: str, iteration: int, wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        started = time.perf_counter()
        yield
        wait()
        ended = time.perf_counter()
        times = (1e3 * (moment - self._began) for moment in (started, ended))
        self.run.spans.append(Span(stage, iteration, *times))
