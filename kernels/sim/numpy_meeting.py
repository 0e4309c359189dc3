"""Shuffles, votes, matches and reductions among the lanes of a warp, plainly: one lane after the other."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .faults import LANE_AWAY, LANE_MISSES_ITSELF, LANE_SILENT
from .launch import WARP
from .ptx import Instruction

Lanes = np.ndarray


@dataclass(frozen=True)
class Complaint:
    """What is wrong about one lane: an event code, and the lane that it is about."""

    code: int
    lane: int
    members: int
    other: int = 0


def complaints(members: Lanes, active: Lanes, live: Lanes) -> list[Complaint]:
    """Lanes that do not name themselves, or name a lane that has not ended and is elsewhere."""
    found = []
    for lane in np.flatnonzero(active):
        mask = int(members[lane])
        if not mask >> int(lane) & 1:
            found.append(Complaint(LANE_MISSES_ITSELF, int(lane), mask))
        for other in range(WARP):
            here = active[other] and members[other] == members[lane]
            if mask >> other & 1 and live[other] and not here:
                found.append(Complaint(LANE_AWAY, int(lane), mask, other))
                break
    return found


def evaluate(ins: Instruction, sources: list[Lanes], active: Lanes) -> tuple[Lanes, Lanes, list[Complaint]]:
    """The values and the predicate of an instruction's lanes, and the lanes that read what nobody gives."""
    if ins.opcode == "shfl":
        return _shuffle(ins, active, *sources)
    values = np.zeros(WARP, np.uint32)
    predicate = np.zeros(WARP, bool)
    members = sources[-1]
    for lane in np.flatnonzero(active):
        asked = [i for i in range(WARP) if active[i] and int(members[lane]) >> i & 1]
        values[lane], predicate[lane] = _FUNCTIONS[ins.opcode](ins, sources[0], int(lane), asked)
    return values, predicate, []


def _shuffle(
    ins: Instruction, active: Lanes, a: Lanes, b: Lanes, c: Lanes, members: Lanes
) -> tuple[Lanes, Lanes, list[Complaint]]:
    values = np.zeros(WARP, np.uint32)
    predicate = np.zeros(WARP, bool)
    silent = []
    for lane in range(WARP):
        by, clamp, segment = int(b[lane]) & 31, int(c[lane]) & 31, int(c[lane]) >> 8 & 31
        least = lane & segment
        limit = least | (clamp & ~segment)
        if ins.has("up"):
            wanted, inside = lane - by, lane - by >= limit
        elif ins.has("idx"):
            wanted = least | (by & ~segment)
            inside = wanted <= limit
        else:
            wanted = lane + by if ins.has("down") else lane ^ by
            inside = wanted <= limit
        predicate[lane] = inside
        source = wanted if inside else lane
        if not active[lane]:
            continue
        if active[source & 31] and int(members[lane]) >> (source & 31) & 1:
            values[lane] = a[source & 31]
        else:
            silent.append(Complaint(LANE_SILENT, lane, int(members[lane]), source & 31))
    return values, predicate, silent


def _vote(ins: Instruction, wanted: Lanes, lane: int, asked: list[int]) -> tuple[int, bool]:
    votes = [bool(wanted[i]) for i in asked]
    if ins.has("ballot"):
        return sum(1 << i for i, vote in zip(asked, votes) if vote), False
    if ins.has("any"):
        return 0, any(votes)
    return 0, all(votes) or (ins.has("uni") and not any(votes))


def _match(ins: Instruction, a: Lanes, lane: int, asked: list[int]) -> tuple[int, bool]:
    equal = sum(1 << i for i in asked if a[i] == a[lane])
    everyone = sum(1 << i for i in asked)
    if ins.has("any"):
        return equal, False
    return (everyone, True) if equal == everyone else (0, False)


def _reduce(ins: Instruction, a: Lanes, lane: int, asked: list[int]) -> tuple[int, bool]:
    operators: dict[str, Callable[[int, int], int]] = {
        "add": operator.add, "min": min, "max": max, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    }  # fmt: skip
    combine = next(operators[m] for m in ins.modifiers if m in operators)
    values = [int(a[i]) for i in [lane, *(i for i in asked if i != lane)]]
    return functools.reduce(combine, values) & 0xFFFFFFFF, False


def _elect(ins: Instruction, _: Lanes, lane: int, asked: list[int]) -> tuple[int, bool]:
    leader = min([*asked, lane])
    return leader, leader == lane


_FUNCTIONS = {"vote": _vote, "match": _match, "redux": _reduce, "elect": _elect}
