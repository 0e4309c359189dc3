"""The float64 reference against SciPy, and its error bound against arithmetic of several precisions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import correlate2d

from convladder.kernels import oracle
from convladder.kernels.errors import GeometryError
from convladder.kernels.layouts import ConvGeometry, output_size, source_index


def scipy_conv2d(x, w, stride, pad, dilation, groups):
    """The same convolution through scipy.signal: zeros put between the taps, every output computed, then strided."""
    (uh, uw), (ph, pw), (dh, dw) = stride, pad, dilation
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    K, channels, R, S = w.shape
    spread = np.zeros((K, channels, dh * (R - 1) + 1, dw * (S - 1) + 1))
    spread[:, :, ::dh, ::dw] = w
    rows = []
    for image in padded:
        for k in range(K):
            first = k // (K // groups) * channels
            planes = [correlate2d(image[first + c], spread[k, c], mode="valid") for c in range(channels)]
            rows.append(np.sum(planes, axis=0)[::uh, ::uw])
    return np.array(rows).reshape(len(x), K, *rows[0].shape)


@st.composite
def geometries(draw, max_size=9):
    """Random geometries that have at least one output; all pairs may differ by axis."""
    groups = draw(st.integers(1, 3))
    pairs = {name: (draw(st.integers(lo, hi)), draw(st.integers(lo, hi))) for name, lo, hi in
             (("stride", 1, 3), ("pad", 0, 3), ("dilation", 1, 3))}  # fmt: skip
    R, S = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    least = [max(1, d * (f - 1) + 1 - 2 * p) for d, f, p in zip(pairs["dilation"], (R, S), pairs["pad"], strict=True)]
    H, W = (draw(st.integers(n, n + max_size)) for n in least)
    return ConvGeometry(
        N=draw(st.integers(1, 2)), C=groups * draw(st.integers(1, 3)), H=H, W=W,
        K=groups * draw(st.integers(1, 3)), R=R, S=S, groups=groups, **pairs,
    )  # fmt: skip


def data(g: ConvGeometry, seed: int):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(g.x_shape, np.float32), rng.standard_normal(g.w_shape, np.float32)


@settings(deadline=None, max_examples=100)
@given(g=geometries(), seed=st.integers(0, 2**16))
def test_oracle_equals_scipy(g, seed):
    x, w = data(g, seed)
    y = oracle.conv2d(x, w, g.stride, g.pad, g.dilation, g.groups)
    assert y.shape == g.y_shape
    np.testing.assert_allclose(y, scipy_conv2d(x, w, g.stride, g.pad, g.dilation, g.groups), rtol=1e-12, atol=1e-12)


def direct_sums(x, w, pad, order, accumulate=np.float32):
    """conv2d with stride 1 as one sum of float32 products per output, its terms in the given order."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    N, C, P, Q, R, S = windows.shape
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(N * P * Q, C * R * S)
    products = columns[:, None, :].astype(accumulate) * w.reshape(1, len(w), -1).astype(accumulate)
    products = products[:, :, order(products.shape[-1])]
    total = np.zeros(products.shape[:2], accumulate)
    for term in np.moveaxis(products, -1, 0):
        total += term
    return total.reshape(N, P, Q, len(w)).transpose(0, 3, 1, 2)


ORDERS = {
    "forward": np.arange,
    "backward": lambda n: np.arange(n)[::-1],
    "shuffled": lambda n: np.random.default_rng(3).permutation(n),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("C", "R"), [(1, 1), (3, 3), (32, 3), (256, 3)])
def test_any_order_of_float32_summation_keeps_the_bound(order, C, R):
    rng = np.random.default_rng(C)
    x = rng.standard_normal((2, C, 13, 13), np.float32)
    w = rng.standard_normal((8, C, R, R), np.float32)
    error = abs(direct_sums(x, w, R // 2, ORDERS[order]) - oracle.conv2d(x, w, 1, R // 2))
    assert (error <= oracle.bound(x, w, 1, R // 2)).all()


def test_a_more_exact_kernel_keeps_the_bound():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 64, 9, 9), np.float32), rng.standard_normal((4, 64, 3, 3), np.float32)
    y = oracle.conv2d(x, w).astype(np.float32)
    assert (abs(y - oracle.conv2d(x, w)) <= oracle.bound(x, w)).all()


def rounded_to(bits):
    """Keep `bits` of the float32 significand, round to nearest: 10 for TF32 and half precision, 7 for bfloat16."""

    def round_array(a):
        drop = 23 - bits
        raw = a.view(np.uint32).astype(np.uint64)
        raw = (raw + (1 << (drop - 1)) - 1 + ((raw >> drop) & 1)) >> drop << drop
        return raw.astype(np.uint32).view(np.float32)

    return round_array


@pytest.mark.parametrize("bits", [10, 7], ids=["TF32", "bfloat16"])
@pytest.mark.parametrize("C", [1, 16, 256])
def test_reduced_precision_breaks_the_bound(bits, C):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, C, 13, 13), np.float32), rng.standard_normal((4, C, 3, 3), np.float32)
    low = oracle.conv2d(rounded_to(bits)(x), rounded_to(bits)(w))
    assert (abs(low - oracle.conv2d(x, w)) > oracle.bound(x, w)).any()


def test_half_precision_accumulation_breaks_the_bound():
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((1, 16, 13, 13), np.float32), rng.standard_normal((4, 16, 3, 3), np.float32)
    half = direct_sums(x, w, 1, np.arange, accumulate=np.float16)
    assert (abs(half - oracle.conv2d(x, w, 1, 1)) > oracle.bound(x, w, 1, 1)).any()


def test_all_positive_data_need_the_worst_case_bound():
    rng = np.random.default_rng(4)
    x, w = rng.random((1, 512, 5, 5), np.float32), rng.random((4, 512, 3, 3), np.float32)
    error = abs(direct_sums(x, w, 0, np.arange) - oracle.conv2d(x, w))
    assert (error <= oracle.bound(x, w, zero_mean=False)).all()


def test_source_index_is_where_the_oracle_reads():
    H, W, R, S, U, pad = 4, 5, 3, 2, 2, 1
    for p in range(output_size(H, R, U, pad)):
        for q in range(output_size(W, S, U, pad)):
            for r in range(R):
                for s in range(S):
                    w = np.zeros((1, 1, R, S))
                    w[0, 0, r, s] = 1
                    x = np.arange(1.0, H * W + 1).reshape(1, 1, H, W)
                    read = oracle.conv2d(x, w, U, pad)[0, 0, p, q]
                    where = source_index(p, q, r, s, U, pad, H, W)
                    assert read == (0 if where is None else x[0, 0][where])


@pytest.mark.parametrize(
    ("x", "w", "arguments", "says"),
    [
        ((1, 2, 4, 4), (1, 3, 3, 3), {}, "second size must be C/groups"),
        ((2, 4, 4), (1, 3, 3, 3), {}, "must be (N, C, H, W)"),
        ((1, 1, 2, 2), (1, 1, 3, 3), {}, "larger than the padded input"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"stride": 0}, "stride is 0: it must be at least 1"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"pad": -1}, "pad is -1"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"stride": 1.5}, "give an int or a pair"),
        ((1, 1, 4, 4), (1, 1, 3, 3), {"dilation": (1, 2, 3)}, "give an int or a pair"),
        ((1, 2, 4, 4), (3, 1, 3, 3), {"groups": 2}, "must divide both"),
    ],
)
def test_shapes_that_do_not_fit_are_named(x, w, arguments, says):
    with pytest.raises(GeometryError) as error:
        oracle.conv2d(np.zeros(x), np.zeros(w), **arguments)
    assert says in str(error.value)
