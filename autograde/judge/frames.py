"""The frames that the judge and its worker exchange over a pipe: a JSON header and raw arrays.

A frame is `magic, header length, payload length`, the header (JSON, UTF-8) and the payload: the bytes of
the arrays that the header's `arrays` lists as `[dtype, shape]`, one behind the other. No pickle, no eval;
NaN payloads and signs survive, because arrays travel as bytes. Whoever reads decides how large a frame
may be, and refuses everything that is not exactly this: a worker that runs student text may send anything.

Standard library and NumPy only: inside the sandbox this file stands alone.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_MAGIC = b"CVF1"
_PREFIX = struct.Struct("<4sIQ")
_DTYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"])
_MAX_DIMENSIONS = 8

#: What a header may be long. The largest is the counters of a task's cases, tens of kilobytes.
MAX_HEADER = 8 << 20


class FrameError(ValueError):
    """The bytes are not a frame, or the frame is larger than allowed."""


@dataclass
class Frame:
    """`header` without its `arrays` entry, and the arrays (read-only views of the payload)."""

    header: dict[str, Any]
    arrays: list[np.ndarray] = field(default_factory=list)


def encode(header: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> bytes:
    """One frame as bytes. Arrays are sent little-endian and in C order."""
    packed = [np.asarray(a, order="C") for a in arrays]
    packed = [a.astype(a.dtype.newbyteorder("<"), copy=False) for a in packed]
    listed = [[a.dtype.str, list(a.shape)] for a in packed]
    head = json.dumps({**header, "arrays": listed}, allow_nan=False, separators=(",", ":")).encode()
    parts = [_PREFIX.pack(_MAGIC, len(head), sum(a.nbytes for a in packed)), head, *(a.tobytes() for a in packed)]
    return b"".join(parts)


class Decoder:
    """Takes bytes as they come and gives frames; FrameError as soon as the bytes cannot become an allowed one."""

    def __init__(self, max_payload: int, max_header: int = MAX_HEADER):
        self.max_payload = max_payload
        self.max_header = max_header
        self._bytes = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a frame that has begun and not ended."""
        return len(self._bytes)

    def feed(self, data: bytes) -> Iterable[Frame]:
        """Every frame that `data` completes."""
        self._bytes += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if len(self._bytes) < _PREFIX.size:
            return None
        magic, head_size, payload_size = _PREFIX.unpack_from(self._bytes)
        if magic != _MAGIC:
            raise FrameError("this is not a frame")
        if head_size > self.max_header or payload_size > self.max_payload:
            raise FrameError(f"the frame has {head_size} + {payload_size} bytes, which is more than allowed")
        end = _PREFIX.size + head_size + payload_size
        if len(self._bytes) < end:
            return None
        head = bytes(self._bytes[_PREFIX.size : _PREFIX.size + head_size])
        payload = bytes(self._bytes[_PREFIX.size + head_size : end])
        del self._bytes[:end]
        header = _header(head)
        return Frame(header, _arrays(header.pop("arrays", []), payload))


def _header(head: bytes) -> dict[str, Any]:
    try:
        header = json.loads(head.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FrameError("the header is not an object")
    return header


def _no_constant(name: str) -> None:
    raise FrameError(f"the header contains {name}")


def _arrays(listed: Any, payload: bytes) -> list[np.ndarray]:
    if not isinstance(listed, list):
        raise FrameError("`arrays` is not a list")
    arrays: list[np.ndarray] = []
    start = 0
    for item in listed:
        if not (isinstance(item, list) and len(item) == 2 and str(item[0]) in _DTYPES and _is_shape(item[1])):
            raise FrameError("an array is not described by a known dtype and a shape")
        dtype, shape = np.dtype(item[0]), tuple(item[1])
        count = math.prod(shape)  # of Python ints: it cannot overflow
        if start + count * dtype.itemsize > len(payload):
            raise FrameError("the arrays are longer than the payload")
        try:
            arrays.append(np.frombuffer(payload, dtype, count, start).reshape(shape))
        except ValueError as error:  # an empty array whose other sizes overflow
            raise FrameError(str(error)) from None
        start += count * dtype.itemsize
    if start != len(payload):
        raise FrameError("the payload is longer than its arrays")
    return arrays


def _is_shape(shape: Any) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= _MAX_DIMENSIONS
        and all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    )
