"""How a kernel text came to its values, and what its warps touch: slow, exact runs for small launches.

terms = trace.terms(module, plan, symbols, arrays, [("y", 5)], default_args)
warp = trace.lanes(module, plan, symbols, arrays, default_args)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import plan as plans
from .arguments import out
from .expression import Value
from .module import Module
from .plan import Plan
from .result import WarpAccess
from .sim.lanes import Lanes
from .sim.observer import first_byte
from .sim.provenance import Product, Provenance, products

#: Work (see launch's `budget`) that a trace may spend: some tenths of a second.
BUDGET = 15_000

#: Arrays together beyond which nothing is traced: the plain executor keeps books of every byte.
MOST_BYTES = 1 << 22


@dataclass(frozen=True)
class Term:
    """coefficient * a[i] * b[j] …: one term of the sum that an element was made of.

    factors  (array, flat index), in the order of their names
    line     where the product was formed; 0 where an element was only copied
    """

    coefficient: float
    factors: tuple[tuple[str, int], ...]
    line: int


def terms(
    module: Module, plan: Plan, symbols: Mapping[str, Value], arrays: Mapping[str, Any],
    wanted: Sequence[tuple[str, int]], default_args: Sequence[str] | None = None,
) -> list[list[Term] | None]:  # fmt: skip
    """The terms of each wanted element (array, flat index), in the order in which they were summed.

    None where that cannot be told: other operations took part, or the launch is too large.
    arrays as for plan.run; they are written. Raises what plan.run raises.
    """
    if _too_large(arrays):
        return [None] * len(wanted)
    followed = Provenance()
    names = _names(arrays)
    results = plans.run(module, plan, symbols, arrays, default_args, budget=BUDGET, observer=followed)
    if any(r.faults for _, r in results):
        return [None] * len(wanted)
    sizes = {name: _plain(a).itemsize for name, a in arrays.items()}
    found: list[list[Term] | None] = []
    for name, element in wanted:
        made = products(followed.of(_plain(arrays[name]), element))
        read = [_term(p, names, sizes) for p in made] if made is not None else [None]
        found.append(None if None in read else [t for t in read if t is not None])
    return found


def lanes(
    module: Module, plan: Plan, symbols: Mapping[str, Value], arrays: Mapping[str, Any],
    default_args: Sequence[str] | None = None, *, block: int = 0, warp: int = 0,
) -> list[WarpAccess]:  # fmt: skip
    """What one warp touches: of each line's loads and stores of an array the fullest execution, by line.

    The fullest is the one with the most active lanes, of several the first.

    An endless or long launch is watched for a while only. arrays as for plan.run. Raises what plan.run raises.
    """
    if _too_large(arrays):
        return []
    watched = Lanes(block, warp, _names(arrays))
    plans.run(module, plan, symbols, arrays, default_args, budget=BUDGET, observer=watched)
    fullest: dict[tuple[int, str, str], WarpAccess] = {}
    for access in watched.accesses:
        key = (access.line, access.array, access.op)
        if key not in fullest or _active(access) > _active(fullest[key]):
            fullest[key] = access
    return [fullest[key] for key in sorted(fullest)]


def _active(access: WarpAccess) -> int:
    return sum(offset is not None for offset in access.offsets)


def _plain(array: Any) -> np.ndarray:
    return array.array if isinstance(array, out) else array


def _too_large(arrays: Mapping[str, Any]) -> bool:
    return sum(_plain(a).nbytes for a in arrays.values()) > MOST_BYTES


def _names(arrays: Mapping[str, Any]) -> dict[int, str]:
    return {first_byte(_plain(a)): name for name, a in arrays.items()}


def _term(product: Product, names: Mapping[int, str], sizes: Mapping[str, int]) -> Term | None:
    factors = []
    for element in product.factors:
        name = names.get(element.memory)
        if (
            name is None
            or not np.isfinite(product.coefficient)
            or element.size != sizes[name]
            or element.offset % element.size
        ):
            return None
        factors.append((name, element.offset // element.size))
    return Term(product.coefficient, tuple(sorted(factors)), product.line)
