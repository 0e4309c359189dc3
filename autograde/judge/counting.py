"""Numbers out of the engine's counters: what thresholds, targets and predictions are expressions over."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from convladder.kernels import compile_cuda, expression, out, plan
from convladder.kernels.errors import FaultError
from convladder.kernels.expression import ExpressionError
from convladder.kernels.methods import ladder_source
from convladder.kernels.result import Access, Branch, Counters, SharedAccess, total

from .problem import Problem
from .problems import PROBLEMS
from .spec import Guard, SpecError, Target, Threshold

Numbers = dict[str, int | float]

#: The counters of rungs on the public cases, in a student's installation (course.release writes it).
CARRIED = Path(__file__).parents[1] / "records" / "rung_counters.json"


def from_json(body: Mapping[str, Any]) -> Counters:
    """The counters that a worker sent. Raises TypeError or ValueError where they are none."""
    fields = dict(body)
    accesses = [Access(**a) for a in fields.pop("accesses")]
    branches = [Branch(**b) for b in fields.pop("branches")]
    shared = [SharedAccess(**a) for a in fields.pop("shared")]
    counters = Counters(accesses, branches, shared=shared, **fields)
    if not all(type(v) is int and v >= 0 for v in fields.values()):
        raise ValueError("counters are not natural numbers")
    return counters


def numbers(launches: Sequence[Counters]) -> Numbers:
    """Every name of spec.COUNTERS with its value over these launches."""
    c = total(launches)
    values: Numbers = {}
    for what in ("requests", "sectors", "sectors_ideal", "bytes_moved", "bytes_needed"):
        values[what] = getattr(c, what)()
        for op in ("load", "store"):
            values[f"{op}_{what}"] = getattr(c, what)(op)
    for what in ("shared_requests", "wavefronts", "wavefronts_ideal"):
        values[what] = getattr(c, what)()
    for name in (
        "divergent_branches", "executed_branches", "warp_instructions", "thread_instructions", "active_lanes",
        "fmas", "flops", "barriers", "blocks", "busy_blocks", "threads",
    ):  # fmt: skip
        values[name] = getattr(c, name)
    values["launches"] = len(launches)
    return values


def rung_numbers(rung: str, problem: Problem, symbols: Mapping[str, int | float], seed: int = 0) -> Numbers:
    """The counters of a rung of the ladder on a case. The rung is trusted: it runs here, once for each class.

    seed  of the case's data, where the counters depend on them: on where the non-zeros of sparse filters stand
    """
    return _rung_numbers(rung, problem.name, tuple(sorted(symbols.items())), seed)


@lru_cache(maxsize=256)
def _rung_numbers(rung: str, problem: str, symbols: tuple[tuple[str, int | float], ...], seed: int) -> Numbers:
    if (counted := _carried().get(carried_key(rung, problem, symbols, seed))) is not None:
        return counted
    instance = PROBLEMS[problem].instance(dict(symbols), np.random.default_rng(seed))
    parsed, module = _rung(rung)
    arrays: dict[str, Any] = {name: a.copy() for name, a in instance.inputs.items()}
    arrays |= {o.name: out(np.empty(o.expected.shape, o.dtype)) for o in instance.outputs}
    results = plan.run(module, parsed, instance.symbols, arrays)  # by the names of each kernel's parameters
    for _, result in results:
        if result.faults:
            raise FaultError(result.faults[0])
    return numbers([result.counters for _, result in results if result.counters is not None])


def carried_key(rung: str, problem: str, symbols: Iterable[tuple[str, int | float]], seed: int) -> str:
    """Under which a rung's counters on a case stand in CARRIED."""
    return json.dumps([rung, problem, sorted(symbols), seed])


@cache
def _carried() -> dict[str, Numbers]:
    """What a student's installation has in place of the rungs themselves, which are answers; elsewhere nothing."""
    return json.loads(CARRIED.read_text(encoding="utf-8")) if CARRIED.is_file() else {}


@cache
def _rung(name: str) -> tuple[plan.Plan, Any]:
    source = ladder_source(name)
    parsed = plan.parse(source)
    return parsed, compile_cuda(source, on="sim", options=parsed.options())


def _prefixed(prefix: str, values: Numbers) -> Numbers:
    return {f"{prefix}_{name}": value for name, value in values.items()}


@dataclass(frozen=True)
class Verdict:
    """What became of a threshold or a target: the share of its points, and the numbers behind it."""

    share: float
    value: float
    reasons: tuple[str, ...]
    evidence: dict[str, Any]


def judge_threshold(
    threshold: Threshold, problem: Problem, case_symbols: Mapping[str, int | float],
    symbols: Mapping[str, int | float], counted: Numbers, seed: int = 0,
) -> Verdict:  # fmt: skip
    """Whether the threshold holds for these counters of its case.

    case_symbols are the case's own, symbols those that expressions may name (P and Q too), seed that of its data.
    """
    known: Numbers = {**symbols}
    for prefix, rung in (("base", threshold.base), ("target", threshold.target)):
        if rung:
            known |= _prefixed(prefix, rung_numbers(rung, problem, case_symbols, seed))
    limit = float(expression.evaluate(threshold.limit, known))
    value = _value(threshold.value, {**symbols, **counted})
    holds = value <= limit if threshold.at_most else value >= limit
    evidence = {"value": value if math.isfinite(value) else None, "limit": limit, "expression": threshold.value}
    return Verdict(float(holds), value, (), {**evidence, "at_most": threshold.at_most, "counters": counted})


def _value(text: str, known: Numbers) -> float:
    """A kernel that does none of a thing (no request at all) has no ratio of it: NaN, which no threshold passes."""
    try:
        return float(expression.evaluate(text, known))
    except ExpressionError:
        return math.nan


def judge_target(
    target: Target, problem: Problem, case_symbols: Mapping[str, int | float],
    symbols: Mapping[str, int | float], counted: Numbers, seed: int = 0,
) -> Verdict:  # fmt: skip
    """How far the kernel comes from the base rung to the target rung, on a logarithmic scale, if its guards hold."""
    base, goal = (rung_numbers(rung, problem, case_symbols, seed) for rung in (target.base, target.target))
    at_base, at_goal = (_value(target.value, {**symbols, **v}) for v in (base, goal))
    if not (at_base > at_goal > 0):
        raise SpecError(
            f"the target on case {target.case!r}: {target.value} is {at_base:g} for {target.base} and {at_goal:g} for "
            f"{target.target}: the target must be the smaller one, or nothing can be scored"
        )
    value = _value(target.value, {**symbols, **counted})
    share = _share(at_base, value, at_goal, target.tolerance)
    known = {**symbols, **_prefixed("base", base), **_prefixed("target", goal)}
    broken = []
    for guard in target.guards:
        limit, has = float(expression.evaluate(guard.limit, known)), counted[guard.counter]
        if not (has <= limit if guard.at_most else has >= limit):
            broken.append(_broken(guard, has, limit))
    evidence = {
        "value": value if math.isfinite(value) else None, "base": at_base, "target": at_goal,
        "base_rung": target.base, "target_rung": target.target, "expression": target.value, "counters": counted,
        "broken_guards": broken,
    }  # fmt: skip
    share = 0.0 if broken else min(1.0, max(0.0, share))
    return Verdict(share, value, tuple(broken), evidence)


#: What a guard's counter is, and what to do where it is on the wrong side.
_GUARDED = {
    "active_lanes": (
        "the share of a warp's lanes that work",
        "fit the block's shape to the output, so that few threads lie outside of it: on rows of 13 outputs a block of "
        "width 32 leaves 19 of 32 lanes idle, one of width 16 only 3 of 16",
    ),
    "busy_blocks": (
        "the number of blocks that share the work",
        "let each block do less, or divide the work more evenly: a GPU has many multiprocessors to fill",
    ),
    "warp_instructions": (
        "the number of instructions of all warps",
        "what is saved in traffic is paid for with instructions: look for work that is done twice, and for tests and "
        "index arithmetic in the innermost loop",
    ),
}


def _broken(guard: Guard, has: float, limit: float) -> str:
    """What a guard that does not hold means, and what to do."""
    what, remedy = _GUARDED.get(guard.counter, ("", ""))
    named = f"{what} ({guard.counter})" if what else guard.counter
    side = "at most" if guard.at_most else "at least"
    return f"{named} is {has:.4g}, asked {side} {limit:.4g}{f': {remedy}' if remedy else ''}"


def _share(base: float, value: float, goal: float, tolerance: float) -> float:
    """The share of the points, both ends of the scale moved in by the tolerance: as judge.timing does with times.

    Else another order of the same sum, which moves half a percent more sectors, would cost points.
    """
    if not value > 0:
        return 0.0
    end = math.log1p(tolerance)
    whole = math.log(base / goal)
    end = end if whole > 3 * end else 0.0
    return (math.log(base / value) - end) / (whole - 2 * end)


def most_wasteful(launches: Sequence[Counters], op: str = "") -> Access | None:
    """The access (load or store, if named) that moves the most sectors beyond its ideal; None if none is wasted."""
    accesses = [a for c in launches for a in c.accesses if a.sectors > a.sectors_ideal and op in ("", a.op)]
    return max(accesses, key=lambda a: a.sectors - a.sectors_ideal, default=None)


def most_conflicting(launches: Sequence[Counters]) -> SharedAccess | None:
    """The access to shared memory that takes the most turns at its banks; None if none takes more than one."""
    accesses = [a for c in launches for a in c.shared if a.conflicts]
    return max(accesses, key=lambda a: a.conflicts, default=None)


def most_divergent(launches: Sequence[Counters]) -> Branch | None:
    branches = [b for c in launches for b in c.branches if b.divergent]
    return max(branches, key=lambda b: b.divergent, default=None)
