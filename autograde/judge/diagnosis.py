"""Compares a kernel's output with the expected one, and says what is wrong with it and where."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .problem import Instance, Output

#: Outputs are filled with these bits before a kernel runs; a NaN that no arithmetic makes.
_POISON = np.uint32(0xFFFFFFFF)

#: Elements that a record keeps of a wrong output.
_KEPT = 4096
#: Outputs up to this size are kept whole, with their expected values.
_SHOWN = 64


@dataclass
class Wrong:
    """The wrong elements of one output of one case. `mask` has the output's shape."""

    output: Output
    values: np.ndarray
    mask: np.ndarray

    @property
    def count(self) -> int:
        return int(self.mask.sum())

    @property
    def first(self) -> tuple[int, ...]:
        return tuple(int(i) for i in np.argwhere(self.mask)[0])

    @property
    def unwritten(self) -> np.ndarray:
        return self.mask & (self.values.view(np.uint32) == _POISON)

    def sentences(self) -> list[str]:
        """What is wrong and where, for a student."""
        first, missing = self.first, self.unwritten
        name = self.output.element(first)
        count, size = self.count, self.mask.size
        if missing.all():
            return [f"no element of {self.output.name} was written"]
        if missing[first]:
            said = [f"{name} was never written; expected {self._shown(self.output.expected)}"]
        else:
            said = [f"{name} is {self._shown(self.values)}, expected {self._shown(self.output.expected)}"]
        others = int(missing.sum())
        if others == count:
            said.append(f"{count} of {size} elements were never written" if count > 1 else "all others are right")
        else:
            never = f", {others} of them never written" if others else ""
            share = "all" if count == size else f"{count} of"
            said.append(f"{share} {size} elements are wrong{never}" if count > 1 else "all others are right")
        if 1 < count < size and (place := where(self.mask, self.output.axes)):
            said.append(place)
        return said

    def _shown(self, values: np.ndarray) -> str:
        """The first wrong element as text: an index with all its digits."""
        return f"{values[self.first]:.6g}" if self.output.dtype == "<f4" else f"{values[self.first]:.0f}"

    def evidence(self) -> dict[str, Any]:
        """Enough to draw a picture: bounded in size, and no NaN (which JSON has not)."""
        first = self.first
        found: dict[str, Any] = {
            "array": self.output.name,
            "shape": list(self.mask.shape),
            "axes": list(self.output.axes),
            "element": list(first),
            "value": finite(self.values[first]),
            "expected": float(self.output.expected[first]),
            "bound": float(self.output.bound[first]),
            "written": not bool(self.unwritten[first]),
            "wrong": self.count,
            "never_written": int(self.unwritten.sum()),
            "wrong_elements": np.argwhere(self.mask)[:_KEPT].tolist(),
            "where": where(self.mask, self.output.axes),
        }
        if self.mask.size <= _SHOWN:
            found["values"] = [finite(v) for v in self.values.ravel()]
            found["expected_values"] = self.output.expected.ravel().tolist()
        return found


def finite(value: Any) -> float | str:
    """A float, or the name of what JSON cannot say."""
    value = float(value)
    return value if np.isfinite(value) else str(value)


def compare(output: Output, values: np.ndarray) -> Wrong | None:
    """None where every element is within its bound. NaN and infinity never are."""
    with np.errstate(invalid="ignore"):
        right = np.abs(values.astype(np.float64) - output.expected) <= output.bound
    return None if right.all() else Wrong(output, values, ~right)


def same(values: np.ndarray, other: np.ndarray, output: Output) -> bool:
    """Whether two outputs are the same but for rounding; elements that were never written count as different."""
    rounding = output.likeness * float(np.abs(output.expected).max(initial=1.0)) if output.dtype == "<f4" else 0.0
    with np.errstate(invalid="ignore"):
        return bool((np.abs(values.astype(np.float64) - other) <= rounding).all())


def mistake(failing: Sequence[tuple[Instance, Wrong]]) -> str:
    """The typical mistake whose result is exactly what the kernel gave, in every failing case; "" if there is none."""
    found: list[str] | None = None
    for instance, wrong in failing[:4]:
        tried = {what: same(wrong.values, y, wrong.output) for what, y in instance.mistakes()}
        if found is None:
            found = [what for what, matches in tried.items() if matches]
        else:
            found = [what for what in found if tried.get(what, True)]
        if not found:
            return ""
    return found[0] if found else ""


# ---- where


def where(mask: np.ndarray, axes: Sequence[str]) -> str:
    """One sentence on where the wrong elements lie; "" where there is no pattern that we know."""
    if mask.all():
        return "every element is wrong" if mask.size > 1 else ""
    return (
        _border(mask, axes)
        or _one_index(mask, axes)
        or _tail(mask, axes)
        or _all_but(mask, axes)
        or _parity(mask, axes)
    )


def _border(mask: np.ndarray, axes: Sequence[str]) -> str:
    if mask.ndim < 2 or min(mask.shape[-2:]) < 2:
        return ""
    row, column = np.indices(mask.shape[-2:])
    rows, columns = mask.shape[-2:]
    p, q = axes[-2:]
    sides = {
        f"in the last column ({q} = {columns - 1}), the right border": column == columns - 1,
        f"in the first column ({q} = 0), the left border": column == 0,
        f"in the last row ({p} = {rows - 1}), the bottom border": row == rows - 1,
        f"in the first row ({p} = 0), the top border": row == 0,
    }
    for count in (1, 2, 4):
        for chosen in itertools.combinations(sides.items(), count):
            region = np.logical_or.reduce([side for _, side in chosen])
            # Every part of the region must be hit, or a smaller one would have been found; all of it is too large.
            if not region.all() and not (mask & ~region).any():
                return f"every wrong element lies {_joined([text for text, _ in chosen])}"
    inner = (row > 0) & (row < rows - 1) & (column > 0) & (column < columns - 1)
    if inner.any() and mask[..., inner].all() and not mask[..., ~inner].any():
        return "every element inside is wrong, the border is right"
    return ""


def _joined(texts: list[str]) -> str:
    if len(texts) == 4:
        return "on the border of an image"
    return " or ".join([texts[0], *(t.removeprefix("in ") for t in texts[1:])])


def _one_index(mask: np.ndarray, axes: Sequence[str]) -> str:
    hits = np.argwhere(mask)
    for axis, name in enumerate(axes):
        if mask.shape[axis] > 1 and (hits[:, axis] == hits[0, axis]).all():
            return f"every wrong element has {name} = {hits[0, axis]}"
    return ""


def _tail(mask: np.ndarray, axes: Sequence[str]) -> str:
    """From one element on, in each plane or in the whole array: what a grid gives that is too small."""
    planes = mask.reshape(-1, int(np.prod(mask.shape[-2:]))) if mask.ndim > 2 else mask.reshape(1, -1)
    for shown, rows in ((" of each image plane", planes), ("", mask.reshape(1, -1))):
        start = int(rows.any(axis=0).argmax())
        if start and rows[:, start:].all() and not rows[:, :start].any():
            first = "the first element" if start == 1 else f"the first {start} elements"
            return f"only {first}{shown if len(planes) > 1 else ''} {'is' if start == 1 else 'are'} right"
    return ""


def _all_but(mask: np.ndarray, axes: Sequence[str]) -> str:
    for axis, name in enumerate(axes):
        others = tuple(a for a in range(mask.ndim) if a != axis)
        right = np.flatnonzero(~mask.any(axis=others))
        if mask.shape[axis] > 2 and len(right) == 1 and np.delete(mask, right, axis).all():
            return f"only the elements with {name} = {right[0]} are right"
        if len(right) and mask.shape[axis] > 1:
            wrong = np.flatnonzero(mask.any(axis=others))
            if len(wrong) > 1 and np.take(mask, wrong, axis).all() and (np.diff(wrong) == 1).all():
                return f"exactly the elements with {name} from {wrong[0]} to {wrong[-1]} are wrong"
    return ""


def _parity(mask: np.ndarray, axes: Sequence[str]) -> str:
    hits = np.argwhere(mask)
    for axis, name in enumerate(axes):
        if mask.shape[axis] > 3 and len(np.unique(hits[:, axis] % 2)) == 1:
            return f"every wrong element has an {'odd' if hits[0, axis] % 2 else 'even'} {name}"
    return ""
