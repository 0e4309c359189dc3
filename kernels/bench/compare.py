"""Solve a case in every way, check each, time them in turn, and set the times beside what the device allows."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ... import __version__
from .. import cublas, cudnn, cusparse, stopwatch
from ..errors import BackendError, ConvladderError
from ..gpu import cupy_module, device_facts, enough_memory, fp32_peak_gflops, load_peak_gwords
from ..measure import bandwidth_gbs, device_state, limit_us
from ..rungs import LADDER, convolution_source
from .cases import CODEGEN, CUDNN, Case, cases
from .launches import add_launches
from .ways import Arrays, Problem

#: A result in half precision has a relative error of 1e-3, TF32 of 3e-4; beyond this it is no rounding error.
_WRONG = 1e-2

#: Every comment but the launch lines.
_COMMENT = re.compile(r"/\*.*?\*/|//(?!@)[^\n]*", re.DOTALL)

Progress = Callable[[int, int, str], None]


def measure(
    suite: str, progress: Progress = lambda *_: None, rounds: int = 11, seconds: float = 1.0,
    only: Callable[[Case], bool] = lambda _: True, ways: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Run a suite on the GPU at hand: its record. Raises BackendError without a GPU.

    progress  is told (cases done, cases in all, the name of the next)
    seconds   about how long the rounds of one case may take
    only      which of the suite's cases are run
    ways      which of each case's ways; all where it is empty
    """
    cupy = cupy_module()
    facts = device_facts()
    bus = cupy.cuda.Device().pci_bus_id
    before = device_state(bus)
    todo = [_some(case, ways) for case in cases(suite) if only(case)]
    solved: list[dict[str, Any]] = []
    with cupy.cuda.Stream(non_blocking=True) as stream:
        limits = {
            "bandwidth_gbs": round(bandwidth_gbs(cupy), 1),
            "peak_gflops": fp32_peak_gflops(),
            "load_peak_gwords": load_peak_gwords(),
            "empty_launch_us": round(stopwatch.empty_launch_us(), 3),
        }
        for number, case in enumerate(todo):
            progress(number, len(todo), case.name)
            solved.append(solve(case, limits, rounds, seconds))
            state = device_state(bus)  # at once, while the clocks are still those of the work
            solved[-1] |= {"clocks.sm": state.get("clocks.sm", ""), "held_down_by": state.get("held_down_by", "")}
            stream.synchronize()
            cupy.get_default_memory_pool().free_all_blocks()
        if suite == "cudnn":  # after all times: what CUPTI adds to a launch must not stand in them
            for case, found in zip(todo, solved, strict=True):
                add_launches(case, found, facts)
    progress(len(todo), len(todo), "")
    record = {
        "suite": suite, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": facts, "device_state": {"before": before, "after": device_state(bus)}, "versions": versions(),
        "limits": limits, "rungs": digests(ways_of(todo)), "cases": solved,
    }  # fmt: skip
    if suite == "sparse":
        record["crossover"] = list(crossovers(rows(record)))
    return record


def _some(case: Case, ways: Collection[str]) -> Case:
    return replace(case, ways=tuple(way for way in case.ways if way in ways)) if ways else case


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each case and way of a record."""
    return [{**case, **way} for case in record["cases"] for way in case["ways"]]


def ways_of(todo: list[Case]) -> list[str]:
    """Every way of some cases, once."""
    return list(dict.fromkeys(way for case in todo for way in case.ways))


def digests(ways: Iterable[str]) -> dict[str, str]:
    """For each rung among the ways, a short hash of its code as it is now: a record tells which code it timed.

    Comments and spaces do not count; launch lines do.
    """
    codes = {way: " ".join(_COMMENT.sub("", convolution_source(way)).split()) for way in ways if way in LADDER}
    return {name: hashlib.sha256(code.encode()).hexdigest()[:12] for name, code in codes.items()}


def changed(record: dict[str, Any]) -> list[str]:
    """The rungs whose code is another one today than the one that was timed."""
    now = digests(record["rungs"])
    return [name for name, digest in record["rungs"].items() if now.get(name) != digest]


def versions() -> dict[str, str]:
    """Of what the times depend on; what is not installed is left out."""
    found = {"convladder": __version__, "CuPy": cupy_module().__version__}
    for name, version in (("cuDNN", cudnn.version), ("cuBLAS", cublas.version), ("cuSPARSE", cusparse.version)):
        with contextlib.suppress(BackendError):
            found[name] = version()
    return found


def solve(case: Case, limits: dict[str, Any], rounds: int, seconds: float) -> dict[str, Any]:
    """One case with what each way gave; a way that cannot solve it has `refused` instead of times."""
    problem = Problem(case)
    first = problem.arrays(0)
    ways: dict[str, dict[str, Any]] = {}
    makers = {}
    for way in case.ways:
        try:
            with enough_memory(f"{way} of {case.name}"):
                ways[way] = {"way": way, **_checked(problem, way, first), **problem.facts(way)}
            makers[way] = problem.maker(way)
        except ConvladderError as error:
            ways[way] = {"way": way, "refused": str(error)}
    if makers:
        with enough_memory(f"all ways of {case.name} at a time"):
            timings = stopwatch.in_turn(makers, problem.arrays, rounds=rounds, seconds=seconds)
        for way, timing in timings.items():
            low, high = timing.quartiles_us
            ways[way] |= {
                "us": round(timing.median_us, 3), "us_quartiles": [round(low, 3), round(high, 3)],
                "rounds": len(timing.times_us), "calls": timing.calls, "how": "graph" if timing.graph else "queue",
                **_beside_limits(case, way, timing.median_us, limits),
            }  # fmt: skip
    return {"case": case.name, **case.about, "pattern": case.pattern, **_sizes(case), "ways": list(ways.values())}


def _sizes(case: Case) -> dict[str, Any]:
    g = case.geometry
    return {
        "geometry": {
            "N": g.N, "C": g.C, "H": g.H, "W": g.W, "K": g.K, "R": g.R, "S": g.S,
            "U": g.stride[0], "pad": g.pad[0], "groups": g.groups,
        },
        "nnz": case.nnz,
    }  # fmt: skip


def _checked(problem: Problem, way: str, arrays: Arrays) -> dict[str, float]:
    """Run a way once and compare some of its results with the reference: the relative error, and the worst element.

    worst_of_bound  the largest error of an element as a share of what float32 arithmetic explains. Winograd, FFT and
                    TF32 may exceed 1; everything else may not
    """
    work = problem.maker(way)(arrays)
    if way.startswith("step "):  # no convolution; the tests hold each step to its definition
        return {}
    arrays.y.fill(np.nan)
    if arrays.channels_last is not None:
        arrays.channels_last.fill(np.nan)
    work.enqueue()
    result = arrays.y if arrays.channels_last is None else arrays.channels_last.transpose(0, 3, 1, 2)
    arrays.channels_last = None
    elements, expected, bound = problem.reference
    where = np.unravel_index(elements, problem.case.geometry.y_shape)
    found = result[tuple(cupy_module().asarray(i) for i in where)].get()
    scale = float(np.linalg.norm(expected))
    error = float(np.linalg.norm(found - expected)) / (scale or 1.0)
    worst = float((abs(found - expected) / bound).max())
    if not error <= _WRONG or (worst > 1 and not way.startswith("cudnn")):
        raise WrongResult(f"{way} computes something else on {problem.case.name}: relative error {error:.1e}")
    return {"relative_error": float(f"{error:.2e}"), "worst_of_bound": round(worst, 3)}


class WrongResult(ConvladderError):
    """A way gave values that no rounding explains; its time means nothing."""


def _beside_limits(case: Case, way: str, us: float, limits: dict[str, Any]) -> dict[str, Any]:
    """The limit of the way's kind of work, the share of it that was reached, and the throughput.

    limit      compulsory bytes at the bandwidth of a copy, or the operations at the FP32 peak, whichever is longer
    loads      for CSR rungs: one load of an input word for each multiply-add, at the first-level cache's peak
    ce         compute efficiency, training paper, eq. 8: dense operations over time and peak
    """
    g = case.geometry
    if way.startswith("step "):
        limit = _step_bytes(case, way) / limits["bandwidth_gbs"] * 1e-3
        return {"limit_us": round(limit, 3), "percent_of_limit": round(100 * limit / us, 1)}
    sparse = (way in LADDER and LADDER[way].column is not None) or way.startswith(("cusparse", CODEGEN))
    outputs = g.N * g.P * g.Q
    dense_flops = 2 * outputs * g.K * g.products
    nnz = math.prod(g.w_shape) if case.nnz is None else case.nnz
    flops = 2 * outputs * nnz if sparse else dense_flops
    moved = 4 * (math.prod(g.x_shape) + math.prod(g.y_shape)) + (8 * nnz if sparse else 4 * math.prod(g.w_shape))
    limit = limit_us(moved, flops, limits["bandwidth_gbs"], limits["peak_gflops"])
    found = {"limit_us": round(limit, 3), "percent_of_limit": round(100 * limit / us, 1)}
    if peak := limits["peak_gflops"]:
        found["ce"] = round(dense_flops / (us * 1e3) / peak, 4)
    if sparse and way in LADDER and limits["load_peak_gwords"]:
        loads_us = outputs * nnz / limits["load_peak_gwords"] * 1e-3
        found |= {"loads_us": round(loads_us, 3), "percent_of_loads": round(100 * loads_us / us, 1)}
    return found


def _step_bytes(case: Case, way: str) -> int:
    """What a step must read and write."""
    g = case.geometry
    planes = g.N * g.C
    if "stretch" in way:
        return 8 * (case.nnz or 0)
    if "gemv" in way:
        return 4 * (planes * g.R * g.S * g.P * g.Q + math.prod(g.w_shape) + math.prod(g.y_shape))
    written = g.R * g.S * g.P * g.Q if "im2col" in way else (g.H + 2 * g.pad[0]) * (g.W + 2 * g.pad[1])
    return 4 * planes * (g.H * g.W + written)


def crossovers(solved: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """From the sweep: for each layer and dense way, the sparsity from which the best sparse rung is faster.

    Between the two neighbours of the sweep the times are taken as straight lines. None: never up to the last one. Of
    cuDNN the faster layout counts, without conversions.
    """
    swept = [row for row in solved if "sweep" in row and "us" in row]
    for layer in dict.fromkeys(row["sweep"] for row in swept):
        for ways, method in ((CUDNN[:2], "cudnn"), (("cublas batched",), "cublas")):
            points = sorted(_gains([row for row in swept if row["sweep"] == layer], ways))
            if points:
                yield {"layer": layer, "dense": method, "sparsity": _zero(points)}


def _gains(rows: list[dict[str, Any]], dense: tuple[str, ...]) -> Iterator[tuple[float, float]]:
    """(sparsity, time of the fastest of the dense ways less that of the best sparse rung)."""
    for sparsity in {row["sparsity"] for row in rows}:
        here = [row for row in rows if row["sparsity"] == sparsity]
        sparse = [row["us"] for row in here if row["way"] in LADDER]
        against = [row["us"] for row in here if row["way"] in dense]
        if sparse and against:
            yield sparsity, min(against) - min(sparse)


def _zero(points: list[tuple[float, float]]) -> float | None:
    """Where the gain becomes positive and stays so."""
    if points[-1][1] <= 0:
        return None
    crossing = points[0][0]
    for (s0, gain0), (s1, gain1) in itertools.pairwise(points):
        if gain0 <= 0 < gain1:
            crossing = s0 + (s1 - s0) * -gain0 / (gain1 - gain0)
    return round(crossing, 4)
