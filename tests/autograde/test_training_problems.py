"""The gradients as problems of the judge: true to their definition, solved by their rungs, their mistakes differ."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.autograde.judge.problems import PROBLEMS
from convladder.kernels import compile_cuda, layouts, oracle, out, plan
from convladder.kernels.rungs import GRADIENTS, ladder_source

SIZES = {
    "one value": {"N": 1, "C": 1, "H": 1, "W": 1, "K": 1, "R": 1, "S": 1, "U": 1, "pad": 0},
    "odd": {"N": 2, "C": 3, "H": 7, "W": 10, "K": 4, "R": 3, "S": 2, "U": 3, "pad": 2},
    "a column that nobody reads": {"N": 1, "C": 2, "H": 6, "W": 8, "K": 2, "R": 2, "S": 2, "U": 3, "pad": 0},
    "square": {"N": 3, "C": 2, "H": 6, "W": 6, "K": 2, "R": 3, "S": 3, "U": 2, "pad": 1},
    "wide": {"N": 1, "C": 2, "H": 9, "W": 37, "K": 3, "R": 3, "S": 3, "U": 1, "pad": 1},
}
GROUPED = {"N": 2, "C": 4, "H": 6, "W": 7, "K": 6, "R": 3, "S": 2, "U": 2, "pad": 1, "dil": 2, "groups": 2}


@pytest.fixture(params=["data_gradient", "weight_gradient"])
def problem(request):
    return PROBLEMS[request.param]


def instance(problem, sizes):
    return problem.instance(sizes, np.random.default_rng(3))


@pytest.mark.parametrize("sizes", [*SIZES.values(), GROUPED], ids=[*SIZES, "grouped"])
def test_the_three_sums_of_a_step_are_one_and_the_same_number(sizes):
    """sum y dy = sum x dx = sum w dw, for a convolution is linear in x and in w."""
    data, weight = (instance(PROBLEMS[name], sizes) for name in ("data_gradient", "weight_gradient"))
    g = PROBLEMS["conv2d"].geometry(sizes)
    x, dy, w = weight.inputs["x"], weight.inputs["dy"], data.inputs["w"]
    (dx,) = PROBLEMS["data_gradient"].expected(sizes, {"dy": dy, "w": w})
    (dw,) = PROBLEMS["weight_gradient"].expected(sizes, {"x": x, "dy": dy})
    y = oracle.conv2d(x, w, g.stride, g.pad, g.dilation, g.groups)
    assert (dx.expected * x).sum() == pytest.approx((y * dy).sum(), rel=1e-9)
    assert (dw.expected * w).sum() == pytest.approx((y * dy).sum(), rel=1e-9)


@pytest.mark.parametrize("sizes", [*SIZES.values(), GROUPED], ids=[*SIZES, "grouped"])
def test_the_terms_of_an_element_add_up_to_it(problem, sizes):
    made = instance(problem, sizes)
    (output,) = made.outputs
    for index in np.ndindex(output.expected.shape):
        terms = problem.summands(made, output.name, index)
        total = sum(np.prod([made.inputs[name].astype(np.float64)[i] for name, i in term.factors]) for term in terms)
        assert total == pytest.approx(output.expected[index], abs=1e-12)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("rung", GRADIENTS)
def test_every_rung_of_a_gradient_is_right_and_without_fault(rung, sizes, on):
    problem = PROBLEMS["data_gradient" if rung.startswith("data") else "weight_gradient"]
    made = instance(problem, sizes)
    (output,) = made.outputs
    text = plan.parse(ladder_source(rung))
    text.check_needs({**made.symbols, "dil": 1, "groups": 1}, rung)
    module = compile_cuda(ladder_source(rung), on, options=text.options())
    found = np.full(output.expected.shape, np.nan, np.float32)
    for _, result in plan.run(module, text, made.symbols, {**made.inputs, output.name: out(found)}):
        assert result.faults == []
    assert (abs(found - output.expected) <= output.bound).all()


def test_mistakes_are_told_from_the_right_result_and_from_each_other(problem):
    told: set[str] = set()
    for sizes in SIZES.values():
        made = instance(problem, sizes)
        (output,) = made.outputs
        results = list(made.mistakes())
        assert all(values.shape == output.expected.shape for _, values in results)
        told |= {said for said, values in results if (abs(values - output.expected) > output.bound).any()}
    every = {said for sizes in SIZES.values() for said, _ in instance(problem, sizes).mistakes()}
    assert told == every
    assert len(every) >= 14


@pytest.mark.parametrize(("size", "taps", "U", "pad"), [(7, 3, 1, 1), (8, 3, 2, 1), (11, 5, 4, 0), (5, 2, 3, 2)])
def test_output_index_is_where_source_index_comes_from(size, taps, U, pad):
    P = layouts.output_size(size, taps, U, pad)
    reads = {(p * U - pad + r, r): p for p in range(P) for r in range(taps)}
    for h in range(size):
        for r in range(taps):
            assert layouts.output_index(h, r, U, pad, P) == reads.get((h, r))


@pytest.mark.parametrize("name", ["data_gradient", "weight_gradient"])
def test_chosen_elements_are_those_of_the_whole_result(name):
    problem, sizes = PROBLEMS[name], SIZES["square"]
    made = instance(problem, sizes)
    (output,) = made.outputs
    elements = np.array([0, output.expected.size - 1, 5])
    values, bound = problem.expected_at(sizes, made.inputs, elements)
    np.testing.assert_array_equal(values, output.expected.reshape(-1)[elements])
    assert (bound > 0).any()
