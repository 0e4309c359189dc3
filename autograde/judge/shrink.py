"""Makes a failing case small: the search for the smallest geometry that still fails, without knowing what fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Symbols = Mapping[str, int]

#: Cases that are tried for one failure.
TRIALS = 160


def smallest(
    symbols: Symbols, least: Mapping[str, int], fitting: Callable[[Symbols], bool],
    first_failing: Callable[[Sequence[Symbols]], int | None], trials: int = TRIALS,
) -> dict[str, int]:  # fmt: skip
    """A case that still fails and in which no single symbol can be made smaller; deterministic.

    symbols        of the failing case
    least          the smallest value of each symbol
    fitting        whether symbols make a case at all
    first_failing  which of several cases, tried in order, is the first to fail; None if none does
    trials         cases that may be tried at most
    """
    best = dict(symbols)
    left = trials
    changed = True
    while changed and left > 0:
        changed = False
        for name in best:
            smaller = [{**best, name: value} for value in _smaller(best[name], least[name])]
            tried = [s for s in smaller if fitting(s)][:left]
            if not tried:
                continue
            found = first_failing(tried)
            left -= len(tried) if found is None else found + 1
            if found is not None:
                best = dict(tried[found])
                changed = True
    return best


def _smaller(value: int, least: int) -> list[int]:
    """Values below one, ascending: the first few, then doubling, and the one just below it."""
    offsets = [0, 1, 2, *(2**i for i in range(2, (value - least).bit_length()))]
    return sorted({least + o for o in offsets if least + o < value} | ({value - 1} if value > least else set()))
