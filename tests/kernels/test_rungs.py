"""The steps before a rung (padding, lowering, CSR, stretching), and rungs used for what they are: matrix products."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from convladder.kernels import compile_cuda, out, plan
from convladder.kernels.errors import ArgumentError, GeometryError
from convladder.kernels.layouts import ConvGeometry, csr
from convladder.kernels.rungs import (
    LADDER,
    LOWERED,
    STEPS,
    STRETCHED,
    check_geometry,
    convolution,
    convolution_source,
    ladder_source,
)

ODD = ConvGeometry(N=2, C=4, H=9, W=7, K=6, R=3, S=2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), groups=2)

MATRIX_PRODUCTS = [name for name, route in LADDER.items() if route == LOWERED]


@cache
def compiled(rung: str, on: str):
    text = plan.parse(ladder_source(rung))
    return compile_cuda(ladder_source(rung), on, options=text.options()), text


def run(rung: str, symbols: dict, arrays: dict, on: str) -> None:
    module, text = compiled(rung, on)
    for _, result in plan.run(module, text, symbols, arrays):
        assert result.faults == []


def normal(*shape: int, seed: int = 0, sparsity: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, np.float32)
    values[rng.random(shape) < sparsity] = 0
    return values


def padded(g: ConvGeometry, x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (g.pad[0],) * 2, (g.pad[1],) * 2))


def lowered(g: ConvGeometry, x: np.ndarray) -> np.ndarray:
    """(N, C*R*S, P*Q) by the definition."""
    xp = padded(g, x)
    (up, across), (down, right) = g.stride, g.dilation
    col = np.empty((g.N, g.C, g.R, g.S, g.P, g.Q), np.float32)
    for r in range(g.R):
        for s in range(g.S):
            col[:, :, r, s] = xp[:, :, r * down :, s * right :][:, :, : g.P * up : up, : g.Q * across : across]
    return col.reshape(g.N, g.C * g.R * g.S, g.P * g.Q)


def test_pad_copies_the_input_into_zeros(on):
    x = normal(*ODD.x_shape)
    xp = np.empty((ODD.N, ODD.C, ODD.H + 2, ODD.W + 4), np.float32)
    run("pad", {**ODD.symbols(), "Hp": ODD.H + 2, "Wp": ODD.W + 4}, {"x": x, "xp": out(xp)}, on)
    np.testing.assert_array_equal(xp, padded(ODD, x))


def test_im2col_makes_a_column_of_each_output_points_window(on):
    x = normal(*ODD.x_shape)
    col = np.empty((ODD.N, ODD.C * ODD.R * ODD.S, ODD.P * ODD.Q), np.float32)
    run("im2col", ODD.symbols(), {"x": x, "col": out(col)}, on)
    np.testing.assert_array_equal(col, lowered(ODD, x))


def test_im2col_rows_makes_a_row_of_it(on):
    g = ConvGeometry(N=2, C=3, H=9, W=7, K=6, R=3, S=2, stride=(2, 1), pad=(1, 2), dilation=(1, 2))
    x = normal(*g.x_shape)
    rows = np.empty((g.N, g.P * g.Q, g.C * g.R * g.S), np.float32)
    run("im2col_rows", g.symbols(), {"x": x, "col": out(rows)}, on)
    np.testing.assert_array_equal(rows, lowered(g, x).transpose(0, 2, 1))


@settings(deadline=None, max_examples=50)
@given(
    shape=st.tuples(*(st.integers(1, n) for n in (5, 4, 3, 3))),
    sparsity=st.sampled_from([0.0, 0.7, 1.0]), seed=st.integers(0, 99),
)  # fmt: skip
def test_csr_is_what_scipy_makes_of_the_flattened_filters(shape, sparsity, seed):
    w = normal(*shape, seed=seed, sparsity=sparsity)
    ours, theirs = csr(w), scipy.sparse.csr_matrix(w.reshape(shape[0], -1))
    np.testing.assert_array_equal(ours.rowptr, theirs.indptr)
    np.testing.assert_array_equal(ours.col, theirs.indices)
    np.testing.assert_array_equal(ours.val, theirs.data)
    assert ours.rowptr.dtype == ours.col.dtype == np.int32


def test_columns_of_a_group_are_those_of_its_own_channels():
    w = np.ones((4, 1, 1, 2), np.float32)
    assert csr(w, groups=2).col.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


def test_a_column_beyond_int32_is_refused():
    with pytest.raises(GeometryError, match="must be < 2\\^31"):
        csr(np.ones((1, 2, 1, 1), np.float32), column="c*2**31")


@pytest.mark.parametrize("rung", ["stretch_filter", "stretch"])
@pytest.mark.parametrize("sparsity", [0.0, 0.8])
def test_stretching_moves_the_columns_to_the_padded_input(rung, sparsity, on):
    w = normal(*ODD.w_shape, sparsity=sparsity)
    sizes = {**ODD.symbols(), "Hp": ODD.H + 2, "Wp": ODD.W + 4, "dilh": 1, "dilw": 2}
    plain, wanted = csr(w, ODD.groups), csr(w, ODD.groups, STRETCHED.column, sizes)
    stretched = np.empty(plain.nnz, np.int32)
    arrays = {"rowptr": plain.rowptr, "col": plain.col, "stretched": out(stretched)}
    run(rung, {**sizes, "nnz": plain.nnz}, arrays, on)
    np.testing.assert_array_equal(stretched, wanted.col)


@pytest.mark.parametrize("rung", MATRIX_PRODUCTS)
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 2), (64, 64, 64), (33, 130, 17), (129, 68, 40)])
def test_matrix_products_multiply_matrices(rung, size, on):
    m, n, k = size
    if rung in ("gemm_float4", "gemm_buffered") and (n % 4 or k % 4):
        with pytest.raises(GeometryError, match="needs GN % 4 == 0"):
            plan.parse(ladder_source(rung)).check_needs({"GN": n, "GK": k}, rung)
        return
    a, b, c = normal(m, k), normal(k, n, seed=1), np.empty((m, n), np.float32)
    run(rung, {"GM": m, "GN": n, "GK": k, "GB": 1, "groups": 1}, {"a": a, "b": b, "c": out(c)}, on)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    scale = np.sqrt((a.astype(np.float64) ** 2) @ (b.astype(np.float64) ** 2))
    assert (abs(c - exact) <= 8 * np.sqrt(k) * 2.0**-24 * scale).all()


def test_a_convolution_can_run_again(on):
    x, w = normal(*ODD.x_shape), normal(*ODD.w_shape, sparsity=0.5)
    y = np.empty(ODD.y_shape, np.float32)
    prepared = convolution("csr", ODD, x, w, y, on)
    prepared.run()
    first = y.copy()
    prepared.run()
    np.testing.assert_array_equal(first, y)


@pytest.mark.parametrize("name", ["pad", "magic"])
def test_only_a_convolution_convolves(name):
    with pytest.raises(ArgumentError, match=f"'{name}' is no convolution; there are direct_guarded"):
        convolution_source(name)


@pytest.mark.parametrize("rung", ["gemm_naive", "csr"])
def test_a_batch_whose_scratch_memory_is_too_large_is_refused(rung):
    g = ConvGeometry(N=512, C=256, H=64, W=64, K=1, R=3, S=3, pad=(1, 1))
    with pytest.raises(GeometryError, match=f"{rung} does not take this geometry: temp .* 2048 MiB. Give it fewer"):
        check_geometry(rung, g)


def test_every_step_is_on_a_route_or_prepares_weights():
    on_routes = {step for route in LADDER.values() for step in route.steps}
    assert on_routes | {"stretch_filter", "stretch"} == set(STEPS)
