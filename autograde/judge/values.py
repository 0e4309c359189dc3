"""Values that a student's Python function returned, as JSON that cannot run anything.

The worker packs (`pack`), the judge unpacks (`unpack`) into plain ints, floats, bools, None, strings,
tuples, lists, arrays and float32 numbers, or into one of two markers: `Other` (a value of a type that no task asks
for) and `TooLarge`. Standard library and NumPy only: inside the sandbox this file stands alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: Numbers in one returned value, arrays included.
MAX_ITEMS = 100_000
MAX_DEPTH = 6
#: Characters of a returned text, where a request does not say otherwise.
MAX_TEXT = 2000
#: Elements up to which an array is shown whole.
_MAX_SHOWN = 16
_MAX_BITS = 4096


@dataclass(frozen=True)
class Other:
    """A value of a type that no task asks for; `text` shows it."""

    type: str
    text: str = ""

    def __repr__(self) -> str:
        return f"{self.text} ({_article(self.type)})" if self.text else _article(self.type)


@dataclass(frozen=True)
class TooLarge:
    """A value with more than MAX_ITEMS numbers, or nested deeper than MAX_DEPTH."""

    type: str

    def __repr__(self) -> str:
        return f"{_article(self.type)} that is too large to compare"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1] in "aeio" else f"a {noun}"


class _Full(Exception):
    pass


def pack(value: Any, arrays: list[np.ndarray], most_text: int = MAX_TEXT) -> Any:
    """`value` as JSON; arrays are appended to `arrays` and named by their position there; texts are cut."""
    kept = len(arrays)
    try:
        return _pack(value, arrays, [MAX_ITEMS], 0, most_text)
    except _Full:
        del arrays[kept:]
        return {
            "large": f"array of shape {value.shape}"[:100] if isinstance(value, np.ndarray) else type(value).__name__
        }


def _pack(value: Any, arrays: list[np.ndarray], left: list[int], depth: int, most_text: int) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth > MAX_DEPTH:
        raise _Full
    if value is None or isinstance(value, bool):
        return value
    if (packed := _number_of_numpy(value)) is not None:
        return packed
    if isinstance(value, int):
        if int(value).bit_length() > _MAX_BITS:
            raise _Full
        return int(value)
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, str):
        return {"str": value[:most_text].encode(errors="replace").decode()}
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_pack(v, arrays, left, depth + 1, most_text) for v in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        left[0] -= value.size
        if left[0] < 0 or value.ndim > 8:
            raise _Full
        arrays.append(value)
        return {"array": len(arrays) - 1}
    return {"other": (f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__)[:100]}


def _number_of_numpy(value: Any) -> Any:
    """A number of NumPy's, packed as Python's, a float32 as such: it has fewer digits. None for anything else."""
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.float16):  # three digits tell nothing: no task asks for one
        return {"other": "float16"}
    if isinstance(value, np.floating):
        return {"float32" if isinstance(value, np.float32) else "float": float(value).hex()}
    return None


def unpack(packed: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    """The value behind `packed`; ValueError where it is not one that `pack` makes."""
    if packed is None or isinstance(packed, (bool, int)):
        return packed
    if not (isinstance(packed, dict) and len(packed) == 1) or depth > MAX_DEPTH + 1:
        raise ValueError("not a packed value")
    ((kind, body),) = packed.items()
    if kind in ("tuple", "list") and isinstance(body, list):
        items = [unpack(v, arrays, depth + 1) for v in body]
        return tuple(items) if kind == "tuple" else items
    if kind == "array" and type(body) is int and 0 <= body < len(arrays):
        return arrays[body]
    if isinstance(body, str):
        if kind in ("float", "float32"):
            return _float(kind, body)
        if kind == "str":
            return body
        if kind == "large":
            return TooLarge(body[:100])
        if kind == "other":
            return Other(body[:100])
    raise ValueError(f"not a packed value: {kind[:100]!r}")


def _float(kind: str, text: str) -> Any:
    try:
        with np.errstate(over="ignore"):
            return float.fromhex(text) if kind == "float" else np.float32(float.fromhex(text))
    except OverflowError:
        raise ValueError("not a float") from None


def show(value: Any, limit: int = 60) -> str:
    """`value` as a student would write it, shortened."""
    if isinstance(value, np.ndarray):
        if value.size > _MAX_SHOWN:
            text = f"array of shape {value.shape}"
        else:
            text = " ".join(np.array2string(value, separator=", ").split())
    else:
        text = " ".join(repr(_listed(value)).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _listed(value: Any) -> Any:
    """A tuple or list with its small arrays as lists, which read more easily."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_listed, value))
    return value.tolist() if isinstance(value, np.ndarray) and value.size <= _MAX_SHOWN else value
