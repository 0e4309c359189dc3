"""Requests of a warp, counted plainly: sectors of arrays, wavefronts of shared memory."""

from __future__ import annotations

from collections import Counter

from .addresses import SHARED_WINDOW
from .counters import SECTOR, AccessTally, Tally
from .launch import WARP
from .program import Entry
from .updates import Joined, Manner

#: For each lane that touches an array, where.
Offsets = dict[int, int]


def count(tally: Tally, entry: Entry, pc: int, touched: dict[int, Offsets], total: int, is_whole: bool) -> None:
    """One request of `total` bytes a lane; it belongs to the array of its first lane, the traffic to each array.

    is_whole   all lanes of the warp run
    """
    ins = entry.function.code[pc]
    for i, (number, at) in enumerate(touched.items()):
        found = tally.accesses.setdefault((pc, number), AccessTally())
        found.requests += i == 0
        found.threads += len(at)
        if number == SHARED_WINDOW:
            words = {(o + part) // 4 for o in at.values() for part in range(0, total, 4)}
            found.sectors_ideal += -(-len(words) // 32)
            found.bytes_needed += 4 * len(words)
        else:
            distinct = len(set(at.values())) * total
            found.sectors_ideal += -(-distinct // SECTOR)
            found.bytes_needed += distinct
        if pc in entry.updates:
            found.sectors += _of_update(entry.updates[pc], at, total, number == SHARED_WINDOW, is_whole)
        elif number == SHARED_WINDOW:
            found.sectors += _wavefronts(at, total, ins.opcode == "ld")
        else:
            found.sectors += len({offset // SECTOR for offset in at.values()})


def _of_update(manner: Manner, at: Offsets, total: int, is_shared: bool, is_whole: bool) -> int:
    if manner.joined is Joined.ALWAYS or (manner.joined is Joined.WHOLE_WARPS and is_whole):
        at = _one_for_each_place(at)
    if not is_shared:
        return _turns(at)
    if manner.loops:
        return _of_loop(at, total)
    return (1 + manner.swaps) * sum(max(Counter(banks).values()) for banks in _banks(at, total))


def _one_for_each_place(at: Offsets) -> Offsets:
    first: dict[int, int] = {}
    for lane, offset in at.items():
        first.setdefault(offset, lane)
    return {lane: offset for offset, lane in first.items()}


def _turns(at: Offsets) -> int:
    """Sectors, moved anew for each turn of lanes that update one address."""
    turns: dict[int, int] = {}
    for offset, lanes in Counter(at.values()).items():
        sector = offset // SECTOR
        turns[sector] = max(turns.get(sector, 1), lanes)
    return sum(turns.values())


def _banks(at: Offsets, total: int) -> list[list[int]]:
    """The banks that updates want, part by part of the warp: lanes of 8 bytes are served half a warp at a time."""
    size = max(total, 4)
    per_turn = 128 // size
    parts = [[lane for lane in at if lane // per_turn == part] for part in range(WARP // per_turn)]
    return [[at[lane] // size % per_turn for lane in part] for part in parts if part]


def _of_loop(at: Offsets, total: int) -> int:
    """Turn by turn the first lane of each bank tries, and succeeds unless another did so at its place in this turn."""
    size = max(total, 4)
    per_turn = 128 // size
    rest, found = dict(at), 0
    while rest:
        changed: set[int] = set()
        for part in range(WARP // per_turn):
            tried: set[int] = set()
            for lane in [lane for lane in rest if lane // per_turn == part]:
                place = rest[lane] // size
                if place % per_turn in tried:
                    continue
                tried.add(place % per_turn)
                if place not in changed:
                    changed.add(place)
                    del rest[lane]
            found += 2 * bool(tried)
    return found


def _wavefronts(at: Offsets, total: int, is_load: bool) -> int:
    """Turn by turn: the most words that any bank has to give."""
    per_turn = min(WARP, 128 // total)
    pairs = [(at[lane], at[lane + 1]) for lane in range(0, WARP, 2) if lane in at and lane + 1 in at]
    if total > 4 and is_load and all(a == b for a, b in pairs):
        per_turn *= 2
    found = 0
    for turn in range(WARP // per_turn):
        here = [at[lane] for lane in range(turn * per_turn, (turn + 1) * per_turn) if lane in at]
        words = {(o + part) // 4 for o in here for part in range(0, total, 4)}
        found += max(Counter(w % 32 for w in words).values(), default=0)
    return found
