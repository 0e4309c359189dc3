"""The convolutions that the bench times: layers of published networks, and the photographs of the lab report.

The table is workloads.csv, one layer a row with its source. Weights are ours: the published sparsity, in a pattern that
is drawn from an explicit seed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from .layouts import ConvGeometry

#: Inputs of the lab report's table (3.1), and those past it at which its claim about large inputs can be seen.
REPORT_SIZES = (31, 63, 127, 255, 511)
LARGER_SIZES = (1023, 2047, 4095)

#: Three filters there; that they differ in their stride, and three channels, are assumptions: the report does not say.
REPORT_STRIDES = (1, 2, 3)

#: "random": every weight alike. "uneven": rows of a filter differ as log-normal numbers do, so that a thread a row,
#: or a block a row, waits for the longest.
PATTERNS = ("random", "uneven")

#: Width of the log-normal distribution of uneven rows: the longest of 384 rows is about 12 times the median.
_UNEVENNESS = 0.9


@dataclass(frozen=True)
class Layer:
    """One sparse layer of a published network; `geometry` has one image. `nnz` weights are not zero."""

    network: str
    name: str
    geometry: ConvGeometry
    sparsity: float
    nnz: int
    source: str

    def batch(self, images: int) -> ConvGeometry:
        return replace(self.geometry, N=images)

    def ungrouped(self) -> Layer:
        """The same layer as one group, as the sparse paper's table 2 prints it, at the same sparsity."""
        if self.geometry.groups == 1:
            return self
        nnz = self.nnz * self.geometry.groups
        return replace(self, name=f"{self.name} ungrouped", geometry=replace(self.geometry, groups=1), nnz=nnz)


@cache
def layers(network: str | None = None) -> tuple[Layer, ...]:
    """Every layer, or those of one network, in the order of the table."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as table:
        found = tuple(_layer(row) for row in csv.DictReader(table))
    return found if network is None else tuple(layer for layer in found if layer.network == network)


def networks() -> list[str]:
    return list(dict.fromkeys(layer.network for layer in layers()))


def _layer(row: dict[str, str]) -> Layer:
    sizes = {name: int(row[name]) for name in ("C", "H", "W", "K", "R", "S", "groups")}
    pairs = {name: (int(row[name]),) * 2 for name in ("stride", "pad")}
    geometry = ConvGeometry(N=1, **sizes, **pairs)  # type: ignore[arg-type]
    return Layer(row["network"], row["layer"], geometry, float(row["sparsity"]), int(row["nnz"]), row["source"])


def report(strides: tuple[int, ...] = REPORT_STRIDES, sizes: tuple[int, ...] = REPORT_SIZES) -> Iterator[ConvGeometry]:
    """The lab report's convolutions: one square image of three channels, one 3x3 filter, padded by one."""
    for size in sizes:
        for stride in strides:
            yield ConvGeometry(N=1, C=3, H=size, W=size, K=1, R=3, S=3, stride=(stride, stride), pad=(1, 1))


def weights(geometry: ConvGeometry, nnz: int, pattern: str = "random", seed: int = 0) -> np.ndarray:
    """Filters (K, C/groups, R, S) float32 with exactly `nnz` non-zeros, normally distributed.

    pattern  one of PATTERNS. Raises ValueError for another one, or where nnz does not fit.
    """
    rng = np.random.default_rng(seed)
    where = positions(geometry, nnz, pattern, rng)
    values = np.zeros(int(np.prod(geometry.w_shape)), np.float32)
    drawn = rng.standard_normal(nnz, np.float32)
    values[where] = np.where(drawn == 0, np.float32(1), drawn)
    return values.reshape(geometry.w_shape)


def positions(geometry: ConvGeometry, nnz: int, pattern: str, rng: np.random.Generator) -> np.ndarray:
    """Where `nnz` non-zeros stand in flattened filters (K, C/groups, R, S), in no order. Raises as `weights`."""
    size = int(np.prod(geometry.w_shape))
    if not 0 <= nnz <= size:
        raise ValueError(f"{nnz} non-zeros do not fit into {size} weights")
    if pattern == "random":
        return rng.choice(size, nnz, replace=False)
    if pattern == "uneven":
        return _uneven(rng, geometry.K, size // geometry.K, nnz)
    raise ValueError(f"there is no pattern {pattern!r}; there are {', '.join(PATTERNS)}")


def _uneven(rng: np.random.Generator, rows: int, length: int, nnz: int) -> np.ndarray:
    """Positions of the non-zeros: each row's share is log-normal, no row is over-full."""
    share = rng.lognormal(sigma=_UNEVENNESS, size=rows)
    counts = np.zeros(rows, np.int64)
    while (left := nnz - counts.sum()) > 0:
        open_rows = counts < length
        wanted = rng.multinomial(left, np.where(open_rows, share, 0) / share[open_rows].sum())
        counts = np.minimum(counts + wanted, length)
    return np.concatenate([row * length + rng.choice(length, n, replace=False) for row, n in enumerate(counts)])


def images(geometry: ConvGeometry, seed: int = 1) -> np.ndarray:
    """Input (N, C, H, W) float32, normally distributed."""
    return np.random.default_rng(seed).standard_normal(geometry.x_shape, np.float32)
