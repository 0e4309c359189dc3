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
from convladder.kernels.methods import LIBRARIES
from convladder.kernels.rungs import LADDER, RUNGS, ladder_source

LADDER_FOLDER = Path(importlib.util.find_spec("convladder.kernels").origin).parent / "ladder"

#: Tiny, odd and real, all within what the simplest rungs take: one stride, one padding, no dilation, no groups.
SIMPLE = [
    ConvGeometry(N=1, C=1, H=1, W=1, K=1, R=1, S=1),
    ConvGeometry(N=1, C=1, H=5, W=5, K=1, R=3, S=3, pad=(1, 1)),
    ConvGeometry(N=2, C=3, H=7, W=6, K=4, R=3, S=2, stride=(2, 2), pad=(1, 1)),
    ConvGeometry(N=1, C=2, H=2, W=3, K=3, R=5, S=5, pad=(2, 2)),
    ConvGeometry(N=3, C=1, H=33, W=17, K=2, R=1, S=7, stride=(3, 3), pad=(3, 3)),
    ConvGeometry(N=1, C=3, H=31, W=31, K=1, R=3, S=3, stride=(2, 2), pad=(1, 1)),
    ConvGeometry(N=2, C=4, H=8, W=8, K=5, R=3, S=3, pad=(1, 1)),
]


#: Strides, paddings and dilations by axis, groups, a stride that skips pixels, a filter larger than the input.
GENERAL = [
    ConvGeometry(N=2, C=4, H=9, W=7, K=6, R=3, S=2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), groups=2),
    ConvGeometry(N=1, C=3, H=5, W=40, K=3, R=1, S=1, stride=(3, 2), groups=3),
    ConvGeometry(N=1, C=2, H=2, W=3, K=70, R=4, S=5, pad=(2, 1)),
]

#: Rungs that take one stride, one padding, no dilation, no groups; and rungs without groups.
SIMPLE_ONLY = ("direct_guarded", "direct_clipped", "direct_report", "direct_coalesced")
UNGROUPED = ("gemv_rows",)


def refusal(method: str, g: ConvGeometry) -> str | None:
    """What a rung needs that the geometry has not; None where it takes it."""
    if method in UNGROUPED and g.groups > 1:
        return "needs groups == 1"
    if method in ("gemm_float4", "gemm_buffered") and (g.P * g.Q % 4 or g.products % 4):
        return "needs GN % 4 == 0 and GK % 4 == 0"
    if method == "direct_registers" and (g.stride[0] > 1 or g.dilation[0] > 1 or g.R != g.S or g.R not in (1, 3, 5)):
        return "needs Uh == 1 and dilh == 1 and R == S"
    return None


def data(g: ConvGeometry, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(g.x_shape, np.float32), rng.standard_normal(g.w_shape, np.float32)


def assert_convolves(g: ConvGeometry, method: str, on: str, seed: int = 0, sparsity: float = 0.0) -> None:
    """The rung is within the oracle's bound, or says what it needs."""
    x, w = data(g, seed)
    w[np.random.default_rng(seed).random(w.shape) < sparsity] = 0
    arguments = (g.stride, g.pad, g.dilation, g.groups)
    if (needed := refusal(method, g)) is not None:
        with pytest.raises(GeometryError, match=needed):
            conv2d(x, w, *arguments, method=method, on=on)
        return
    y = conv2d(x, w, *arguments, method=method, on=on)
    assert y.shape == g.y_shape
    assert y.dtype == np.float32
    assert (abs(y - oracle.conv2d(x, w, *arguments)) <= oracle.bound(x, w, *arguments)).all()


def test_methods_and_steps_are_the_files_of_the_ladder():
    assert sorted(RUNGS) == sorted(p.stem for p in LADDER_FOLDER.glob("*.cu"))
    assert methods() == [*LADDER, "codegen", *LIBRARIES, "auto"]


@pytest.mark.parametrize("method", LADDER)
@pytest.mark.parametrize("g", SIMPLE, ids=lambda g: f"{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}")
def test_every_rung_convolves_simple_geometries(g, method, on):
    assert_convolves(g, method, on)


@pytest.mark.parametrize("method", [m for m in LADDER if m not in SIMPLE_ONLY])
@pytest.mark.parametrize("g", GENERAL, ids=lambda g: f"{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}-{g.groups}")
def test_rungs_convolve_general_geometries(g, method, on):
    assert_convolves(g, method, on)


@pytest.mark.full
@pytest.mark.parametrize("method", [m for m in LADDER if m not in SIMPLE_ONLY])
def test_rungs_convolve_a_layer_of_a_network(method, on):
    g = ConvGeometry(N=1, C=128, H=28, W=28, K=128, R=3, S=3, pad=(1, 1))  # ResNet-50, res3a_branch2b
    assert_convolves(g, method, on, sparsity=0.917562)


@pytest.mark.parametrize("method", [m for m in LADDER if m.startswith("csr")])
@pytest.mark.parametrize("sparsity", [0.5, 0.97, 1.0])
def test_sparse_rungs_convolve_any_sparsity(method, sparsity, on):
    assert_convolves(GENERAL[0], method, on, sparsity=sparsity)
    assert_convolves(SIMPLE[1], method, on, sparsity=sparsity)


@pytest.mark.parametrize(
    "g",
    [
        ConvGeometry(N=2, C=64, H=32, W=32, K=3, R=3, S=3, pad=(1, 1)),  # its input fills a block's shared memory twice
        ConvGeometry(N=1, C=64, H=60, W=30, K=2, R=3, S=3, pad=(1, 1)),  # more than three times: two blocks reside
        ConvGeometry(N=1, C=4, H=2, W=600, K=2, R=3, S=1, pad=(60, 0)),  # some bands lie in the padding
        ConvGeometry(N=1, C=1, H=70, W=90, K=2, R=3, S=3, stride=(1, 2), pad=(1, 1), dilation=(2, 1)),  # many points
        ConvGeometry(N=1, C=2, H=3, W=3, K=150, R=1, S=1),  # more filters than blocks
        ConvGeometry(N=1, C=260, H=17, W=17, K=6, R=3, S=3, pad=(1, 1), groups=2),  # a small image in two phases
        ConvGeometry(N=2, C=160, H=7, W=7, K=3, R=3, S=3, pad=(1, 1)),  # above 48 KiB with the static memory only
    ],
    ids=["bands", "residents", "padding", "points", "filters", "phases", "static"],
)
def test_staging_cuts_the_input_into_bands(g, on):
    assert_convolves(g, "csr_staged", on, sparsity=0.9)


def test_an_input_row_that_shared_memory_cannot_hold_is_refused():
    with pytest.raises(GeometryError, match=r"csr_staged needs .* <= room; here .* W = 20000"):
        conv2d(np.zeros((1, 1, 3, 20000), np.float32), np.zeros((1, 1, 3, 3), np.float32), method="csr_staged")


def sizes(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@pytest.mark.parametrize("method", ["direct", "gemm_coalesced", "csr"])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_a_rung_of_each_kind_convolves_every_geometry(draw, method, on):
    stride, pad, dilation = (draw.draw(sizes(lo, hi)) for lo, hi in ((1, 3), (0, 3), (1, 3)))
    filter_size = draw.draw(sizes(1, 4))
    least = [max(1, d * (f - 1) + 1 - 2 * p) for d, f, p in zip(dilation, filter_size, pad, strict=True)]
    extra = draw.draw(sizes(0, 14))
    groups = draw.draw(st.integers(1, 3))
    g = ConvGeometry(
        draw.draw(st.integers(1, 3)), groups * draw.draw(st.integers(1, 3)), least[0] + extra[0], least[1] + extra[1],
        groups * draw.draw(st.integers(1, 3)), *filter_size, stride, pad, dilation, groups,
    )  # fmt: skip
    assert_convolves(g, method, on, seed=draw.draw(st.integers(0, 999)), sparsity=draw.draw(st.sampled_from([0, 0.8])))


@pytest.mark.parametrize("method", LADDER)
def test_an_empty_batch_gives_an_empty_result(method, on):
    y = conv2d(np.zeros((0, 4, 6, 6), np.float32), np.zeros((3, 4, 3, 3), np.float32), pad=1, method=method, on=on)
    assert y.shape == (0, 3, 6, 6)


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
def test_more_than_two_to_the_31_elements_are_refused_before_any_is_touched(method):
    one = np.zeros(1, np.float32)
    x, w = np.broadcast_to(one, (1, 2, 40000, 40000)), np.broadcast_to(one, (1, 2, 3, 3))
    with pytest.raises(GeometryError, match=rf"{method} needs .*2\*\*31"):
        conv2d(x, w, method=method)


@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_has_a_textbook_header(rung):
    header = ladder_source(rung).split("*/")[0]
    assert header.startswith(f"/* {rung}: ")
    for word in (" = ", "device", "launch", "needs"):
        assert word in header
    if rung in LADDER:
        assert "y[n,k,p,q]" in header
