"""cuDNN, cuBLAS and cuSPARSE as methods, and how "auto" decides among methods."""

import json
import sys

import numpy as np
import pytest

from convladder.kernels import conv2d, cudnn, gpu, oracle, recorded, stopwatch
from convladder.kernels.errors import ArgumentError, BackendError, DeviceMemoryError, GeometryError
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.methods import LIBRARIES, choose

GEOMETRIES = [
    ConvGeometry(N=1, C=1, H=1, W=1, K=1, R=1, S=1),
    ConvGeometry(N=3, C=4, H=9, W=7, K=6, R=3, S=2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), groups=2),
    ConvGeometry(N=2, C=8, H=13, W=13, K=24, R=3, S=3, pad=(1, 1)),
    ConvGeometry(N=5, C=16, H=6, W=11, K=8, R=1, S=1),
]


def data(g: ConvGeometry, sparsity: float = 0.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal(g.x_shape, np.float32), rng.standard_normal(g.w_shape, np.float32)
    w[rng.random(w.shape) < sparsity] = 0
    return x, w, (g.stride, g.pad, g.dilation, g.groups)


def assert_right(y, x, w, arguments, *, norm_wise: bool = False) -> None:
    expected = oracle.conv2d(x, w, *arguments)
    assert y.shape == expected.shape
    assert y.dtype == np.float32
    if norm_wise:  # Winograd and FFT
        assert np.linalg.norm(y - expected) <= 2e-6 * np.linalg.norm(expected)
    else:
        assert (abs(y - expected) <= oracle.bound(x, w, *arguments)).all()


# ---- without a GPU


@pytest.mark.parametrize("method", LIBRARIES)
def test_a_library_on_the_engine_is_refused_with_the_way_out(method):
    x, w = np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 3, 3), np.float32)
    with pytest.raises(BackendError, match='pass on="gpu"'):
        conv2d(x, w, method=method)


@pytest.mark.parametrize("method", LIBRARIES)
@pytest.mark.skipif(gpu.available(), reason="is about machines without a GPU")
def test_a_library_without_a_gpu_says_what_is_missing(method):
    x, w = np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 3, 3), np.float32)
    with pytest.raises(BackendError, match="CuPy"):
        conv2d(x, w, method=method, on="gpu")


def test_a_missing_cudnn_is_named_with_its_install_line(monkeypatch):
    monkeypatch.setattr(cudnn, "cupy_module", lambda: None)
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(BackendError, match="pip install 'nvidia-cudnn-frontend"):
        cudnn.frontend()


def test_the_layouts_of_input_and_filters_must_agree():
    with pytest.raises(ArgumentError, match="both must be"):
        cudnn.convolution_forward(None, None, None, None, (0, 0), (1, 1), (1, 1), 1, d_layout=cudnn.TENSOR_NHWC)


@pytest.mark.parametrize(("zeros", "chosen"), [(8, "csr"), (6, "direct"), (0, "direct"), (10, "csr")])
def test_auto_takes_the_papers_threshold_where_nothing_is_measured(zeros, chosen, monkeypatch):
    w = np.ones((2, 5, 1, 1), np.float32)
    w[:, : zeros // 2] = 0
    geometry = ConvGeometry(N=1, C=5, H=3, W=3, K=2, R=1, S=1)
    for policy in ("paper", "measured"):
        choice = choose(w, geometry, "sim", policy)
        assert choice.method.startswith(chosen)
        assert f"{zeros / 10:.1%} of the weights are zero" in choice.why
        assert "threshold" in choice.why


def test_auto_says_what_it_chose_and_computes_it():
    g = GEOMETRIES[2]
    x, w, arguments = data(g, sparsity=0.9)
    said = []
    y = conv2d(x, w, *arguments, method="auto", say=said.append)
    assert len(said) == 1
    assert said[0].startswith("auto: csr")
    assert_right(y, x, w, arguments)


def test_auto_takes_a_dense_method_where_no_sparse_rung_takes_the_geometry():
    huge = ConvGeometry(N=1, C=1, H=50_000, W=50_000, K=1, R=1, S=1)  # more than 2^31 elements
    assert choose(np.zeros((1, 1, 1, 1), np.float32), huge).method == "direct"


def test_auto_takes_the_crossover_recorded_for_the_device(monkeypatch):
    methods = sys.modules["convladder.kernels.methods"]  # the package's attribute of that name is the function
    monkeypatch.setattr(methods, "device_facts", lambda: {"device": "Some GPU"})
    monkeypatch.setattr(methods, "_dense", lambda on: "cublas")
    monkeypatch.setattr(methods, "_sparse", lambda geometry, on: "csr")
    monkeypatch.setattr(recorded, "crossover", lambda device, dense: 0.85)
    w = np.zeros((10, 1, 1, 1), np.float32)
    geometry = ConvGeometry(N=1, C=1, H=3, W=3, K=10, R=1, S=1)
    w[:2] = 1
    assert choose(w, geometry, "gpu").method == "cublas"
    w[1:2] = 0
    choice = choose(w, geometry, "gpu")
    assert choice.method.startswith("csr")
    assert "recorded on Some GPU" in choice.why


def test_an_unknown_policy_is_refused():
    with pytest.raises(ArgumentError, match='"measured" or "paper"'):
        choose(np.ones((1, 1, 1, 1), np.float32), GEOMETRIES[0], policy="guess")


def test_a_crossover_is_the_median_over_the_swept_layers(tmp_path, monkeypatch):
    rows = [
        {"dense": "cudnn", "sparsity": 0.9}, {"dense": "cudnn", "sparsity": None}, {"dense": "cudnn", "sparsity": 0.8},
        {"dense": "cublas", "sparsity": 0.5},
    ]  # fmt: skip
    recorded.path("sparse", "Some GPU", tmp_path).write_text(json.dumps({"crossover": rows}))
    monkeypatch.setattr(recorded, "load", lambda suite, device: json_of(tmp_path, suite, device))
    recorded.crossover.cache_clear()
    assert recorded.crossover("Some GPU", "cudnn") == 0.9
    assert recorded.crossover("Some GPU", "cublas") == 0.5
    assert recorded.crossover("Another GPU", "cudnn") is None
    recorded.crossover.cache_clear()


def json_of(folder, suite, device):
    file = recorded.path(suite, device, folder)
    return [json.loads(file.read_text())] if file.exists() else []


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("g", GEOMETRIES, ids=lambda g: f"{g.N}x{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}-{g.groups}")
@pytest.mark.parametrize("sparsity", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("method", LIBRARIES)
def test_libraries_convolve(method, sparsity, g):
    x, w, arguments = data(g, sparsity)
    assert_right(conv2d(x, w, *arguments, method=method, on="gpu"), x, w, arguments, norm_wise=method == "cudnn")


@pytest.mark.gpu
@pytest.mark.parametrize("method", LIBRARIES)
def test_libraries_take_an_empty_batch_any_memory_order_and_arrays_of_the_device(method):
    import cupy

    g = GEOMETRIES[1]
    x, w, arguments = data(g)
    assert conv2d(x[:0], w, *arguments, method=method, on="gpu").shape == (0, *g.y_shape[1:])
    y = conv2d(cupy.asfortranarray(cupy.asarray(x)), w[::-1], *arguments, method=method, on="gpu")
    assert isinstance(y, cupy.ndarray)
    assert_right(y.get(), x, w[::-1], arguments, norm_wise=method == "cudnn")


@pytest.mark.gpu
def test_a_group_without_non_zeros_gives_zeros():
    g = GEOMETRIES[1]
    x, w, arguments = data(g, 0.5)
    w[: g.K // 2] = 0
    y = conv2d(x, w, *arguments, method="cusparse", on="gpu")
    assert_right(y, x, w, arguments)
    assert not y[:, : g.K // 2].any()


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cublas", "cusparse"])
@pytest.mark.parametrize("g", GEOMETRIES, ids=lambda g: f"{g.C}-{g.K}")
def test_lowering_by_image_and_without_the_conversion_gives_the_same(library, g):
    import importlib

    import cupy

    module = importlib.import_module(f"convladder.kernels.{library}")
    x, w, arguments = data(g, 0.8)
    on_device, filters = cupy.asarray(x), cupy.asarray(w)
    for by, convert in (("batched", True), ("image", True), ("batched", False)):
        y = cupy.full(g.y_shape, np.nan, np.float32)
        module.Convolution(g, on_device, filters, y, by, convert).enqueue()
        assert_right(y.get(), x, w, arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [cudnn.TENSOR_NCHW, cudnn.TENSOR_NHWC])
@pytest.mark.parametrize("biased", [False, True])
def test_convolution_forward_is_called_as_cupys_was(layout, biased):
    import cupy

    g = GEOMETRIES[2]
    x, w, arguments = data(g)
    b = np.arange(g.K, dtype=np.float32)
    order = (0, 2, 3, 1) if layout == cudnn.TENSOR_NHWC else (0, 1, 2, 3)
    on_device, filters = (cupy.ascontiguousarray(cupy.asarray(a).transpose(order)) for a in (x, w))
    y = cupy.full(tuple(g.y_shape[i] for i in order), np.nan, np.float32)
    cudnn.convolution_forward(
        on_device, filters, cupy.asarray(b) if biased else None, y, g.pad, g.stride, g.dilation, g.groups,
        auto_tune=True, tensor_core="never", d_layout=layout, w_layout=layout,
    )  # fmt: skip
    back = y.get().transpose(np.argsort(order))
    assert_right(back - b.reshape(1, -1, 1, 1) * biased, x, w, arguments, norm_wise=True)


@pytest.mark.gpu
def test_strict_float32_plans_are_far_more_exact_than_tf32_ones():
    import cupy

    g = ConvGeometry(N=16, C=128, H=14, W=14, K=128, R=3, S=3, pad=(1, 1))
    x, w, arguments = data(g)
    expected = oracle.conv2d(x, w, *arguments)
    errors = {}
    for precision in cudnn.PRECISIONS:
        y = cupy.empty(g.y_shape, np.float32)
        found = cudnn.best(g, precision)
        found.enqueue(cupy.asarray(x), cupy.asarray(w), y)
        errors[precision] = np.linalg.norm(y.get() - expected) / np.linalg.norm(expected)
        assert [p.time_us for p in found.plans] == sorted(p.time_us for p in found.plans)
        assert len(found.plans) <= found.offered
    assert errors["fp32"] < 2e-6
    assert errors["tf32"] > 1e-5


@pytest.mark.gpu
def test_arrays_that_cudnn_cannot_take_are_named():
    import cupy

    x, w, y = (cupy.zeros(shape, np.float32) for shape in ((1, 1, 4, 4), (1, 1, 3, 3), (1, 1, 2, 2)))
    how = ((0, 0), (1, 1), (1, 1), 1)
    for arrays, error, says in (
        ((x.get(), w, None, y), ArgumentError, "x is a ndarray"),
        ((x.astype(np.float64), w, None, y), ArgumentError, "x is float64"),
        ((x, w, None, y[:, :, ::-1]), ArgumentError, "y is not C-contiguous"),
        ((x, w, None, x), GeometryError, "y has the shape"),
    ):
        with pytest.raises(error, match=says):
            cudnn.convolution_forward(*arrays, *how)


@pytest.mark.gpu
@pytest.mark.parametrize("method", [*LIBRARIES, "direct"])
def test_too_little_gpu_memory_is_a_typed_error(method):
    x, w = np.ones((1, 1, 400, 400), np.float32), np.ones((12_000, 1, 1, 1), np.float32)
    x = np.broadcast_to(x, (40, 1, 400, 400))  # 307 GB of outputs
    with pytest.raises((DeviceMemoryError, GeometryError), match="memory" if method != "direct" else "needs"):
        conv2d(x, w, method=method, on="gpu")


@pytest.mark.gpu
def test_the_stopwatch_tells_twice_the_work_from_once():
    import cupy

    cell = cupy.zeros(1 << 20, np.float32)

    def work(times, capturable):
        def enqueue():
            for _ in range(times):
                cupy.add(cell, 1, out=cell)

        return lambda arrays: stopwatch.Work(enqueue, capturable)

    with cupy.cuda.Stream(non_blocking=True):
        found = stopwatch.in_turn(
            {"four": work(4, True), "eight": work(8, True), "queued": work(4, False)}, lambda i: None, rounds=9
        )
    assert [t.graph for t in found.values()] == [True, True, False]
    assert 1.5 < found["eight"].median_us / found["four"].median_us < 2.5
    assert 0.7 < found["queued"].median_us / found["four"].median_us < 2.0
