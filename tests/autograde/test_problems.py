"""Problems: which results pass, which fail, and that a verified mistake is the mistake that was made."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.autograde.judge import diagnosis
from convladder.autograde.judge.problem import Instance
from convladder.autograde.judge.problems import PROBLEMS
from convladder.kernels import oracle

SIZES = {"N": 2, "C": 5, "H": 9, "W": 8, "K": 3, "R": 3, "S": 3, "U": 2, "pad": 1}


def conv(seed: int = 0, **sizes: int) -> Instance:
    return PROBLEMS["conv2d"].instance({**SIZES, **sizes}, np.random.default_rng(seed))


def wrong(instance: Instance, values: np.ndarray) -> diagnosis.Wrong | None:
    return diagnosis.compare(instance.outputs[0], values.astype(np.float32))


def products(instance: Instance, **sizes: int) -> np.ndarray:
    """Every product of every output element, float32, shape (N, K, P, Q, products)."""
    s = {**SIZES, **sizes}
    x, w = instance.inputs["x"], instance.inputs["w"]
    padded = np.pad(x, ((0, 0), (0, 0), (s["pad"],) * 2, (s["pad"],) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (s["R"], s["S"]), (2, 3))[:, :, :: s["U"], :: s["U"]]
    n, _, p, q = windows.shape[:4]
    flat = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, 1, p, q, -1)
    return flat * w.reshape(1, s["K"], 1, 1, -1)


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_summation_passes(seed: int) -> None:
    instance = conv(seed)
    terms = products(instance)
    rng = np.random.default_rng(seed)
    for order in (np.arange(terms.shape[-1]), np.arange(terms.shape[-1])[::-1], rng.permutation(terms.shape[-1])):
        total = np.zeros(terms.shape[:-1], np.float32)
        for i in order:
            total = total + terms[..., i]
        assert wrong(instance, total) is None


def test_a_more_exact_result_passes() -> None:
    instance = conv()
    assert wrong(instance, instance.outputs[0].expected) is None


def tf32(a: np.ndarray) -> np.ndarray:
    """Rounded to TF32's 10 bits of fraction."""
    bits = a.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("rounded", [tf32, lambda a: a.astype(np.float16).astype(np.float32)], ids=["TF32", "half"])
@pytest.mark.parametrize("seed", range(3))
def test_inputs_rounded_to_fewer_bits_fail(rounded, seed: int) -> None:
    instance = conv(seed)
    x, w = (rounded(instance.inputs[n]) for n in "xw")
    found = wrong(instance, oracle.conv2d(x, w, 2, 1))
    assert found is not None
    assert found.count > found.mask.size / 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_never_pass(value: float) -> None:
    instance = conv()
    values = instance.outputs[0].expected.astype(np.float32)
    values[1, 2, 0, 3] = value
    found = wrong(instance, values)
    assert found is not None
    assert (found.count, found.first) == (1, (1, 2, 0, 3))
    assert found.evidence()["value"] in ("nan", "inf", "-inf")


@pytest.mark.parametrize(
    ("problem", "symbols"), [("conv2d", SIZES), ("saxpy", {"n": 37}), ("mirror", {"H": 4, "W": 4})]
)
def test_every_mistake_of_a_problem_is_recognised(problem: str, symbols: dict[str, int]) -> None:
    instance = PROBLEMS[problem].instance(symbols, np.random.default_rng(3))
    mistakes = list(instance.mistakes())
    assert len(mistakes) >= 3
    for what, values in mistakes:
        found = wrong(instance, values)
        assert found is not None, what
        named = diagnosis.mistake([(instance, found)])
        # Two mistakes may give the same values on one input; then either name is true.
        assert named == what or np.allclose(dict(mistakes)[named], values, atol=1e-4)


def test_a_result_that_no_known_mistake_gives_gets_no_hint() -> None:
    instance = conv()
    found = wrong(instance, instance.outputs[0].expected + 1)
    assert found is not None
    assert diagnosis.mistake([(instance, found)]) == ""


def test_a_mistake_that_explains_one_case_only_is_not_named() -> None:
    first, second = conv(), conv(1, U=1)
    a = wrong(first, dict(first.mistakes())["the stride U is not used (p and q step by 1)"])
    b = wrong(second, second.outputs[0].expected + 1)
    c = wrong(first, first.outputs[0].expected + 1)
    assert a is not None
    assert b is not None
    assert c is not None
    assert diagnosis.mistake([(first, a)]) != ""
    assert diagnosis.mistake([(first, a), (first, c)]) == ""


def test_the_same_seed_gives_the_same_data_and_zero_mean() -> None:
    a, b, c = conv(4), conv(4), conv(5)
    assert np.array_equal(a.inputs["x"], b.inputs["x"])
    assert not np.array_equal(a.inputs["x"], c.inputs["x"])
    assert abs(float(a.inputs["x"].mean())) < 0.1


def test_dilation_and_groups_are_symbols_too() -> None:
    instance = PROBLEMS["conv2d"].instance(
        {**SIZES, "C": 4, "K": 2, "dil": 2, "groups": 2}, np.random.default_rng(0)
    )  # fmt: skip
    assert instance.inputs["w"].shape == (2, 2, 3, 3)
    assert instance.symbols["dil"] == 2
    assert wrong(instance, dict(instance.mistakes())["the dilation dil is not used"]) is not None
