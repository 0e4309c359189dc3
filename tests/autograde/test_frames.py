"""Frames: what goes in comes out, and nothing else is accepted."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from convladder.autograde.judge.frames import Decoder, FrameError, encode


def decode(data: bytes, limit: int = 1 << 20):
    return list(Decoder(limit).feed(data))


@given(nps.arrays(st.sampled_from(["f4", "f8", "i4", "u1", "?"]), nps.array_shapes(min_dims=0, max_dims=4, min_side=0)))
def test_an_array_comes_back_bit_for_bit(array: np.ndarray) -> None:
    (frame,) = decode(encode({"n": 1}, [array]))
    assert frame.header == {"n": 1}
    assert frame.arrays[0].dtype == array.dtype
    assert frame.arrays[0].shape == array.shape
    assert frame.arrays[0].tobytes() == array.tobytes()


def test_the_bits_of_a_nan_survive() -> None:
    poison = np.full(3, 0xFFFFFFFF, np.uint32).view(np.float32)
    (frame,) = decode(encode({}, [poison]))
    assert (frame.arrays[0].view(np.uint32) == 0xFFFFFFFF).all()


def test_frames_may_come_in_any_pieces() -> None:
    data = encode({"a": 1}, [np.arange(5.0)]) + encode({"a": 2})
    decoder = Decoder(1 << 10)
    frames = [f for i in range(len(data)) for f in decoder.feed(data[i : i + 1])]
    assert [f.header["a"] for f in frames] == [1, 2]
    assert decoder.pending == 0


def test_arrays_in_another_byte_or_memory_order_arrive_as_they_were() -> None:
    arrays = [np.arange(6, dtype=">i4").reshape(2, 3), np.arange(6.0).reshape(2, 3).T]
    (frame,) = decode(encode({}, arrays))
    for sent, got in zip(arrays, frame.arrays, strict=True):
        assert np.array_equal(sent, got)


def raw(head: bytes, payload: bytes = b"", magic: bytes = b"CVF1") -> bytes:
    return struct.pack("<4sIQ", magic, len(head), len(payload)) + head + payload


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 64,
        raw(b"{}", magic=b"CVF2"),
        raw(b"not json"),
        raw(b"[]"),
        raw(b'{"a": NaN}'),
        raw(b"[" * 100_000),
        raw(b'{"a": ' + b"9" * 10_000 + b"}"),
        raw(b"\xff\xfe"),
        raw(b'{"arrays": 3}'),
        raw(b'{"arrays": [["<f4", [2]]]}', b"1234"),
        raw(b'{"arrays": [["<f4", [1]]]}', b"12345678"),
        raw(b'{"arrays": [["<f4", [-1]]]}', b"1234"),
        raw(b'{"arrays": [["<f4", [1.0]]]}', b"1234"),
        raw(b'{"arrays": [["|O", [1]]]}', b"12345678"),
        raw(b'{"arrays": [["|V4", [1]]]}', b"1234"),
        raw(b'{"arrays": [["<f4", [99999999999, 99999999999]]]}', b"1234"),
        raw(b'{"arrays": [["<f4", [0,0,0,0,0,0,0,0,0]]]}'),
        raw(b'{"arrays": [["<f4", [0,999999999999,999999999999]]]}'),
        raw(b'{"arrays": [[["<f4"], [1]]]}', b"1234"),
        struct.pack("<4sIQ", b"CVF1", 0xFFFFFFFF, 0),
        struct.pack("<4sIQ", b"CVF1", 2, 1 << 60),
    ],
    ids=range(21),
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode(data)


def test_a_payload_over_the_readers_limit_is_refused_before_it_is_read() -> None:
    data = encode({}, [np.zeros(1000)])
    with pytest.raises(FrameError, match="more than allowed"):
        decode(data[:32], limit=100)
