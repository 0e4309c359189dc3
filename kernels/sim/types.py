"""PTX scalar types: width, kind and the NumPy dtype that holds one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ScalarType:
    """One PTX type. kind: "u" unsigned, "s" signed, "b" bits, "f" float, "h" half precision, "p" predicate.

    A half, and a pair of halves, is held as its bits.
    """

    name: str
    kind: str
    bits: int

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_half(self) -> bool:
        return self.kind == "h"

    @property
    def is_pair(self) -> bool:
        return self.name.endswith("x2")

    @property
    def element(self) -> ScalarType:
        """One half of a pair."""
        return TYPES[self.name.removesuffix("x2")]

    @property
    def is_signed(self) -> bool:
        return self.kind == "s"

    @property
    def dtype(self) -> np.dtype:
        """The dtype of a lane's value; bits and predicates are unsigned and bool."""
        return np.dtype(_DTYPES[self.name])


_NAMES = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b8", "b16", "b32", "b64", "f32", "f64"]
TYPES: dict[str, ScalarType] = {n: ScalarType(n, n[0], int(n[1:])) for n in _NAMES} | {
    "pred": ScalarType("pred", "p", 1),
    "f16": ScalarType("f16", "h", 16),
    "bf16": ScalarType("bf16", "h", 16),
    "f16x2": ScalarType("f16x2", "h", 32),
    "bf16x2": ScalarType("bf16x2", "h", 32),
}

_KINDS = {"u": "u", "s": "i", "b": "u", "f": "f", "h": "u"}
_DTYPES = {n: f"{_KINDS[t.kind]}{t.size}" for n, t in TYPES.items() if n != "pred"} | {"pred": "bool"}


def bits_type(bits: int) -> ScalarType:
    """The untyped PTX type of a width."""
    return TYPES[f"b{bits}"]
