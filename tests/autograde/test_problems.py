"""Problems: which results pass, which fail, and that a verified mistake is the mistake that was made."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.autograde.judge import diagnosis
from convladder.autograde.judge.problem import Instance, as_timed
from convladder.autograde.judge.problems import PROBLEMS
from convladder.kernels import measure, oracle

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


@pytest.mark.parametrize(
    "rounded", [oracle.tf32, lambda a: a.astype(np.float16).astype(np.float32)], ids=["TF32", "half"]
)
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


SPARSE = {"N": 2, "C": 3, "H": 6, "W": 5, "K": 4, "R": 3, "S": 2, "U": 2, "pad": 1, "nnz": 41, "dil": 2}


@pytest.mark.parametrize(
    ("problem", "symbols"),
    [
        ("conv2d", SIZES),
        ("saxpy", {"n": 37}),
        ("mirror", {"H": 4, "W": 4}),
        ("pad", {"N": 2, "C": 2, "H": 3, "W": 4, "padh": 1, "padw": 2}),
        ("stretch", SPARSE),
        ("sparse_conv", SPARSE),
    ],
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


# ---- sparse filters


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("nnz", [4, 17, 21])
def test_a_sparse_case_has_the_asked_number_of_non_zeros(rows: int, nnz: int) -> None:
    sizes = {**SPARSE, "nnz": nnz, "rows": rows}
    inputs = PROBLEMS["sparse_conv"].instance(sizes, np.random.default_rng(1)).inputs
    lengths = np.diff(inputs["rowptr"])
    assert lengths.sum() == inputs["val"].size == inputs["col"].size == nnz
    assert rows != 2 or sorted(lengths) == [1, 1, 1, nnz - 3]


def test_the_sum_over_a_row_is_the_convolution_with_its_dense_filter() -> None:
    made = PROBLEMS["sparse_conv"].instance(SPARSE, np.random.default_rng(2))
    Wp, planes = made.symbols["Wp"], made.inputs["xp"].reshape(2, -1).astype(np.float64)
    expected = made.outputs[0].expected
    for n, k, p, q in np.ndindex(expected.shape):
        row = slice(made.inputs["rowptr"][k], made.inputs["rowptr"][k + 1])
        at = made.inputs["col"][row] + p * 2 * Wp + q * 2
        assert expected[n, k, p, q] == pytest.approx(made.inputs["val"][row].astype(np.float64) @ planes[n, at])
        terms = PROBLEMS["sparse_conv"].summands(made, "y", (n, k, p, q)) or []
        factors = [[made.inputs[name][index] for name, index in t.factors] for t in terms]
        assert expected[n, k, p, q] == pytest.approx(sum(float(a) * float(b) for a, b in factors))


def row_sums(inputs: dict[str, np.ndarray], symbols: dict[str, int], order: int = 1) -> np.ndarray:
    """Every output as a float32 sum over its row, from the first non-zero on or from the last."""
    s = PROBLEMS["sparse_conv"].all_symbols(symbols)  # type: ignore[attr-defined]
    y = np.zeros([int(s[name]) for name in "NKPQ"], np.float32)
    planes = inputs["xp"].reshape(len(y), -1)
    for n, k, p, q in np.ndindex(y.shape):
        for j in range(inputs["rowptr"][k], inputs["rowptr"][k + 1])[::order]:
            y[n, k, p, q] += inputs["val"][j] * planes[n, inputs["col"][j] + int(p * s["U"] * s["Wp"] + q * s["U"])]
    return y


@pytest.mark.parametrize("order", [1, -1])
def test_a_row_may_be_summed_in_any_order(order: int) -> None:
    made = PROBLEMS["sparse_conv"].instance(SPARSE, np.random.default_rng(3))
    assert wrong(made, row_sums(made.inputs, SPARSE, order)) is None


@pytest.mark.parametrize(
    "rounded", [oracle.tf32, lambda a: a.astype(np.float16).astype(np.float32)], ids=["TF32", "half"]
)
def test_sparse_inputs_rounded_to_fewer_bits_fail(rounded) -> None:
    sizes = {**SPARSE, "nnz": 70}
    made = PROBLEMS["sparse_conv"].instance(sizes, np.random.default_rng(3))
    rough = {**made.inputs, "xp": rounded(made.inputs["xp"]), "val": rounded(made.inputs["val"])}
    found = wrong(made, row_sums(rough, sizes))
    assert found is not None
    assert found.count > found.mask.size / 2


def test_a_column_is_right_to_the_last_digit_or_wrong() -> None:
    made = PROBLEMS["stretch"].instance({**SPARSE, "H": 900, "W": 900}, np.random.default_rng(2))
    values = made.outputs[0].expected.astype(np.int32)
    assert diagnosis.compare(made.outputs[0], values) is None
    values[7] += 1
    found = diagnosis.compare(made.outputs[0], values)
    assert found is not None
    assert found.count == 1
    assert diagnosis.mistake([(made, found)]) == ""
    assert f"is {values[7]}, expected {values[7] - 1}" in found.sentences()[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nnz": 0}, "`nnz` is 0"),
        ({"nnz": 73}, "at most K\\*C\\*R\\*S"),
        ({"rows": 3}, "`rows` is 3"),
        ({"rows": 2, "nnz": 22}, "one long row"),
        ({"U": 0}, "at least 1"),
        ({"R": 20}, "larger than the padded input"),
    ],
)
def test_sizes_that_make_no_sparse_case_are_refused(change: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PROBLEMS["sparse_conv"].check({**SPARSE, **change})


def test_some_elements_of_a_timed_sparse_case_are_expected_as_in_the_whole_output() -> None:
    problem = as_timed(PROBLEMS["sparse_conv"])
    inputs = measure.fresh(b"k", 0, problem.timed_shapes(SPARSE)[0])
    (output,) = problem.expected(SPARSE, inputs)
    expected, bound = problem.expected_at(SPARSE, inputs, np.arange(output.expected.size))
    assert expected == pytest.approx(output.expected.reshape(-1), abs=1e-12)
    assert bound == pytest.approx(output.bound.reshape(-1))
    rowptr = problem.timed_constants(SPARSE)["rowptr"]
    assert rowptr[-1] == inputs["val"].size


def test_timed_arrays_are_those_of_a_case_with_its_structure_drawn_once() -> None:
    problem = as_timed(PROBLEMS["sparse_conv"])
    first, second = problem.timed_constants(SPARSE), problem.timed_constants(SPARSE)
    made = PROBLEMS["sparse_conv"].instance(SPARSE, np.random.default_rng(0)).inputs
    for name in ("rowptr", "col"):
        assert np.array_equal(first[name], second[name])
        assert np.array_equal(first[name], made[name])
