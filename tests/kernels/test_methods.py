"""Every rung of the ladder against the oracle."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convladder.kernels import conv2d, methods, oracle
from convladder.kernels.errors import ArgumentError, BackendError, GeometryError
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.methods import LADDER, ladder_source

LADDER_FOLDER = Path(importlib.util.find_spec("convladder.kernels").origin).parent / "ladder"

#: Tiny, odd and real, all within what the simplest rungs take: one stride, one padding, no dilation, no groups.
SIMPLE = [
    ConvGeometry(N=1, C=1, H=1, W=1, K=1, R=1, S=1),
    ConvGeometry(N=1, C=1, H=5, W=5, K=1, R=3, S=3, pad=(1, 1)),
    ConvGeometry(N=2, C=3, H=7, W=6, K=4, R=3, S=2, stride=(2, 2), pad=(1, 1)),
    ConvGeometry(N=1, C=2, H=2, W=3, K=3, R=5, S=5, pad=(2, 2)),
    ConvGeometry(N=3, C=1, H=33, W=17, K=2, R=1, S=7, stride=(3, 3), pad=(3, 3)),
    ConvGeometry(N=1, C=3, H=31, W=31, K=1, R=3, S=3, stride=(2, 2), pad=(1, 1)),
]


def data(g: ConvGeometry, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(g.x_shape, np.float32), rng.standard_normal(g.w_shape, np.float32)


def assert_convolves(g: ConvGeometry, method: str, on: str, seed: int = 0) -> None:
    x, w = data(g, seed)
    arguments = (g.stride, g.pad, g.dilation, g.groups)
    y = conv2d(x, w, *arguments, method=method, on=on)
    assert y.shape == g.y_shape
    assert y.dtype == np.float32
    assert (abs(y - oracle.conv2d(x, w, *arguments)) <= oracle.bound(x, w, *arguments)).all()


def test_methods_are_the_files_of_the_ladder():
    assert sorted(methods()) == sorted(p.stem for p in LADDER_FOLDER.glob("*.cu"))
    assert methods() == list(LADDER)


@pytest.mark.parametrize("method", LADDER)
@pytest.mark.parametrize("g", SIMPLE, ids=lambda g: f"{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}")
def test_every_rung_convolves_simple_geometries(g, method, on):
    assert_convolves(g, method, on)


def sizes(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_direct_convolves_every_geometry(draw, on):
    stride, pad, dilation = (draw.draw(sizes(lo, hi)) for lo, hi in ((1, 3), (0, 3), (1, 3)))
    filter_size = draw.draw(sizes(1, 4))
    least = [max(1, d * (f - 1) + 1 - 2 * p) for d, f, p in zip(dilation, filter_size, pad, strict=True)]
    extra = draw.draw(sizes(0, 14))
    groups = draw.draw(st.integers(1, 3))
    g = ConvGeometry(
        draw.draw(st.integers(1, 3)), groups * draw.draw(st.integers(1, 3)), least[0] + extra[0], least[1] + extra[1],
        groups * draw.draw(st.integers(1, 3)), *filter_size, stride, pad, dilation, groups,
    )  # fmt: skip
    assert_convolves(g, "direct", on, seed=draw.draw(st.integers(0, 999)))


def test_an_empty_batch_gives_an_empty_result(on):
    y = conv2d(np.zeros((0, 2, 5, 5), np.float32), np.zeros((3, 2, 3, 3), np.float32), pad=1, on=on)
    assert y.shape == (0, 3, 5, 5)


def test_memory_order_does_not_matter(on):
    g = SIMPLE[2]
    x, w = data(g)
    turned = np.asfortranarray(x)
    np.testing.assert_array_equal(
        conv2d(turned, w[::-1], 2, 1, on=on), conv2d(x, np.ascontiguousarray(w[::-1]), 2, 1, on=on)
    )


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"x": np.zeros((1, 1, 4, 4))}, ArgumentError, "x is float64"),
        ({"w": [[[[1.0]]]]}, ArgumentError, "w is list"),
        ({"method": "magic"}, ArgumentError, "no method 'magic'"),
        ({"on": "tpu"}, ArgumentError, '"sim" or "gpu"'),
        ({"pad": -1}, GeometryError, "pad is -1"),
        ({"groups": 2}, GeometryError, "C/groups"),
        ({"groups": None}, GeometryError, "groups is None"),
        ({"w": np.zeros((1, 1, 9, 9), np.float32)}, GeometryError, "larger than the padded input"),
    ],
)
def test_bad_arguments_say_what_is_wrong(change, error, says):
    arguments = {"x": np.zeros((1, 1, 4, 4), np.float32), "w": np.zeros((1, 1, 3, 3), np.float32), **change}
    with pytest.raises(error) as raised:
        conv2d(**arguments)
    assert says in str(raised.value)


def test_a_rung_refuses_what_it_needs_otherwise():
    x, w = np.zeros((1, 2, 9, 9), np.float32), np.zeros((2, 1, 3, 3), np.float32)
    with pytest.raises(GeometryError, match="groups == 1"):
        conv2d(x, w, groups=2, method="direct_guarded")


def test_without_a_gpu_the_gpu_back_end_says_what_is_missing():
    from convladder.kernels import gpu

    if gpu.available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendError, match=r"CuPy|GPU"):
        conv2d(np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 3, 3), np.float32), on="gpu")


@pytest.mark.parametrize("method", LADDER)
def test_every_rung_has_a_textbook_header(method):
    header = ladder_source(method).split("*/")[0]
    assert header.startswith(f"/* {method}: ")
    for word in ("y[n,k,p,q]", "launch", "needs"):
        assert word in header
