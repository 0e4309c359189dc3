"""Values of student functions: plain ones come back as they were, all others as markers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convladder.autograde.judge.values import MAX_DEPTH, MAX_ITEMS, Other, TooLarge, pack, show, unpack

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


def through(value: object) -> object:
    arrays: list[np.ndarray] = []
    return unpack(pack(value, arrays), arrays)


@given(st.tuples(st.integers(), st.integers()) | PLAIN.filter(lambda v: depth(v) <= MAX_DEPTH))
def test_a_plain_value_comes_back_with_its_types(value: object) -> None:
    back = through(value)
    assert back == value
    assert type(back) is type(value)


def depth(value: object) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list | tuple) else 0


def test_numpy_integers_are_integers() -> None:
    assert through((np.int64(3), np.int32(-1))) == (3, -1)


@pytest.mark.parametrize("value", [float("inf"), -0.0, 1e-320])
def test_floats_keep_their_bits(value: float) -> None:
    assert str(through(value)) == str(value)


def test_a_float32_comes_back_as_one_and_half_precision_not_at_all() -> None:
    assert type(through(np.float32(0.1))) is np.float32
    assert through(np.float32(0.1)) == np.float32(0.1)
    assert type(through(np.float64(0.1))) is float
    assert through(np.float16(0.1)) == Other("float16")


def test_arrays_come_back() -> None:
    value = through([np.arange(3), (np.eye(2, dtype=np.float32),)])
    assert np.array_equal(value[0], [0, 1, 2])  # type: ignore[index]
    assert value[1][0].dtype == np.float32  # type: ignore[index]


def test_what_no_task_asks_for_is_named_by_its_type() -> None:
    assert through({1: 2}) == Other("dict")
    assert through(np.array(["a"])) == Other("array of <U1")
    assert through(np.zeros(2, complex)) == Other("array of complex128")
    assert repr(Other("array of object")) == "an array of object"
    assert through(i for i in "abc") == Other("generator")


def test_huge_and_endless_values_are_refused() -> None:
    endless: list = []
    endless.append(endless)
    for value in (endless, [0] * (MAX_ITEMS + 1), np.zeros(MAX_ITEMS + 1), 10**100_000):
        assert isinstance(through(value), TooLarge)


@pytest.mark.parametrize(
    "packed",
    [{"array": 0}, {"array": -1}, {"float": "x"}, {"float": "0x1p99999"}, {"tuple": 3}, {"run": "x"}, {}, "text", 1.5],
)
def test_what_pack_does_not_make_is_refused(packed: object) -> None:
    with pytest.raises(ValueError):
        unpack(packed, [])


def test_deep_nesting_is_refused() -> None:
    packed: object = 1
    for _ in range(5000):
        packed = {"list": [packed]}
    with pytest.raises(ValueError):
        unpack(packed, [])


def test_long_values_are_shown_short() -> None:
    assert len(show("x" * 1000)) <= 60
    assert show(np.zeros((30, 4))) == "array of shape (30, 4)"
