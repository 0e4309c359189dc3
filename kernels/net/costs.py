"""What of a training step's time and memory can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

from ..layouts import output_size
from .networks import FLOAT_BYTES, MAP_COPIES, WEIGHT_COPIES


def conv_layer_bytes(N: int, C: int, H: int, W: int, K: int, R: int, U: int, pad: int) -> tuple[int, int]:
    """Memory of a convolution layer in training, in bytes of float32: (feature maps, weights).

    The output's maps have values and gradients; filters and bias have values, gradients and momenta. The input belongs
    to the layer below. Source: training paper, section 5.4.
    """
    maps = MAP_COPIES * FLOAT_BYTES * N * K * output_size(H, R, U, pad) * output_size(W, R, U, pad)
    return maps, WEIGHT_COPIES * FLOAT_BYTES * (K * C * R * R + K)


def total_ms(stages: Sequence[float], threads: Sequence[int], iterations: int) -> float:
    """Time of so many iterations, whose stages are dealt out to threads, the threads handing on whole batches.

    stages   milliseconds of each stage of one iteration, in order
    threads  for each stage the number of the thread that does it
    The first iteration passes through all stages; each later one follows as soon as the busiest thread can do it.
    Source: training paper, section 4 and figure 3.
    """
    busy: dict[int, float] = {}
    for ms, thread in zip(stages, threads, strict=True):
        busy[thread] = busy.get(thread, 0.0) + ms
    return float(sum(stages) + (iterations - 1) * max(busy.values()))
