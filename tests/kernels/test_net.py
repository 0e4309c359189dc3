"""Networks in training: every layer's gradient against finite differences, published sizes, training that learns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from convladder.kernels import gpu, oracle
from convladder.kernels.errors import ArgumentError
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.net import convolutions, layers, networks, training
from convladder.kernels.net.networks import Layer

GEOMETRIES = {
    "one value": ConvGeometry(N=1, C=1, H=1, W=1, K=1, R=1, S=1),
    "odd": ConvGeometry(N=3, C=4, H=9, W=7, K=6, R=3, S=2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), groups=2),
    "stride 4": ConvGeometry(N=2, C=3, H=12, W=11, K=4, R=5, S=5, stride=(4, 4)),
    "padding wider than the filter": ConvGeometry(N=1, C=2, H=3, W=4, K=2, R=2, S=1, stride=(1, 2), pad=(3, 2)),
    "rows that no filter reaches": ConvGeometry(N=1, C=1, H=6, W=8, K=2, R=2, S=2, stride=(3, 4)),
}


def arrays(on: str):
    return np if on == "sim" else gpu.cupy_module()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def slope(f, x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The gradient of a number by an array, from central differences."""
    found = np.empty_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        found[i] = (f(up) - f(down)) / (2 * step)
    return found


def assert_gradients_are_slopes(make, *inputs: np.ndarray) -> None:
    """`make()` gives the operation anew; its gradients by inputs and weights are those of sum(y * weight)."""
    operation = make()
    y = operation.forward(*(x.copy() for x in inputs))
    dy = normal(*y.shape, seed=9)
    found = operation.backward(dy.copy())

    for number, x in enumerate(inputs):

        def of_input(value, number=number):
            given = [value if n == number else x.copy() for n, x in enumerate(inputs)]
            return float((make().forward(*given) * dy).sum())

        np.testing.assert_allclose(found[number], slope(of_input, x), rtol=1e-5, atol=1e-8)
    for number, w in enumerate(operation.weights):

        def of_weight(value, number=number):
            changed = make()
            changed.weights[number] = value
            return float((changed.forward(*(x.copy() for x in inputs)) * dy).sum())

        np.testing.assert_allclose(operation.gradients[number], slope(of_weight, w), rtol=1e-5, atol=1e-8)


# ---- the three convolutions


@pytest.mark.parametrize("images", [None, 1, 2])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_lowered_convolution_is_the_references(name, images):
    g = GEOMETRIES[name]
    x, w = normal(*g.x_shape), normal(*g.w_shape, seed=1)
    y = convolutions.Lowered(np, images).forward(x, w, g)
    np.testing.assert_allclose(y, oracle.conv2d(x, w, g.stride, g.pad, g.dilation, g.groups), atol=1e-12)


@pytest.mark.parametrize("images", [None, 1])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_lowered_gradients_are_slopes(name, images):
    g = GEOMETRIES[name]
    way = convolutions.Lowered(np, images)
    w, b = normal(*g.w_shape, seed=1), normal(g.K, seed=2)
    assert_gradients_are_slopes(lambda: layers.Convolution(np, way, g, w.copy(), b.copy()), normal(*g.x_shape))


@pytest.mark.gpu
@pytest.mark.skipif(not gpu.available(), reason="needs a GPU with CuPy and cuDNN")
@pytest.mark.parametrize("make", [convolutions.Cudnn, convolutions.Lowered, lambda xp: convolutions.Lowered(xp, 1)])
@pytest.mark.parametrize("name", ["odd", "stride 4", "rows that no filter reaches"])
def test_gpu_computes_the_three_convolutions_that_numpy_computes(name, make):
    cupy, g = gpu.cupy_module(), GEOMETRIES[name]
    x, w, dy = normal(*g.x_shape), normal(*g.w_shape, seed=1), normal(*g.y_shape, seed=2)
    exact, way = convolutions.Lowered(np), make(cupy)
    single = {n: cupy.asarray(a.astype(np.float32)) for n, a in (("x", x), ("w", w), ("dy", dy))}
    for method, first, second in (
        ("forward", "x", "w"), ("data_gradient", "dy", "w"), ("weight_gradient", "x", "dy"),
    ):  # fmt: skip
        expected = getattr(exact, method)({"x": x, "dy": dy}[first], {"w": w, "dy": dy}[second], g)
        found = getattr(way, method)(single[first], single[second], g).get()
        assert np.linalg.norm(found - expected) <= 2e-6 * np.linalg.norm(expected), method


# ---- the other layers


def pool(kind, R, U, pad, shape):
    layer = Layer("pool", kind, ("data",), (shape,), shape, R, U, pad)
    return lambda: layers.Pool(np, layer)


@pytest.mark.parametrize("kind", ["maxpool", "avgpool"])
@pytest.mark.parametrize(("R", "U", "pad", "H"), [(2, 2, 0, 4), (3, 2, 0, 6), (3, 1, 1, 5), (3, 2, 1, 6)])
def test_gradient_of_pooling_is_its_slope(kind, R, U, pad, H):
    assert_gradients_are_slopes(pool(kind, R, U, pad, (2, 2, H, H + 1)), normal(2, 2, H, H + 1))


def test_a_window_over_the_border_takes_what_lies_inside():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(pool("maxpool", 3, 2, 0, x.shape)().forward(x)[0, 0], [[10, 11], [14, 15]])


def test_gradient_of_a_tie_goes_to_the_first_of_the_largest():
    operation = pool("maxpool", 2, 2, 0, (1, 1, 2, 2))()
    operation.forward(np.ones((1, 1, 2, 2)))
    np.testing.assert_array_equal(operation.backward(np.full((1, 1, 1, 1), 5.0))[0][0, 0], [[5, 0], [0, 0]])


@pytest.mark.parametrize("channels", [1, 3, 9])
def test_gradient_of_normalisation_is_its_slope(channels, monkeypatch):
    monkeypatch.setattr(layers, "LRN_ALPHA", 0.5)  # at Caffe's 1e-4 the second term would hardly show
    assert_gradients_are_slopes(lambda: layers.Normalisation(np), normal(2, channels, 2, 3))


def test_gradients_of_the_plain_layers_are_their_slopes():
    w, b = normal(4, 6), normal(4, seed=1)
    assert_gradients_are_slopes(lambda: layers.FullyConnected(np, w.copy(), b.copy()), normal(3, 2, 3, 1))
    assert_gradients_are_slopes(lambda: layers.Relu(np), normal(3, 7))
    assert_gradients_are_slopes(lambda: layers.Dropout(np, seed=4), normal(5, 6))
    parts = [normal(2, c, 3, 2, seed=c) for c in (1, 3, 2)]
    assert_gradients_are_slopes(lambda: layers.Concatenation(np), *parts)


def test_gradient_of_the_loss_is_its_slope():
    def make():
        loss = layers.Loss(np)
        loss.labels = np.array([1, 0, 3])
        return loss

    assert_gradients_are_slopes(make, 50 * normal(3, 4))


def test_loss_of_equal_chances_is_the_logarithm_of_their_number():
    loss = layers.Loss(np)
    loss.labels = np.array([2, 0])
    assert loss.forward(np.full((2, 10), 1e4)) == pytest.approx(math.log(10))


# ---- the networks as data


def test_published_shapes_and_sizes_follow_from_the_table():
    shapes = {name: {x.name: x.output[1:] for x in networks.layers(name)} for name in networks.names()}
    assert shapes["alexnet"]["conv1"] == (96, 55, 55)
    assert shapes["alexnet"]["pool5"] == (256, 6, 6)
    assert shapes["vgg16"]["pool5"] == (512, 7, 7)
    assert shapes["lenet"]["pool2"] == (50, 4, 4)
    assert shapes["googlenet"]["pool1"] == (64, 56, 56)
    assert shapes["googlenet"]["inception_3a/output"] == (256, 28, 28)
    assert shapes["googlenet"]["inception_5b/output"] == (1024, 7, 7)
    assert shapes["googlenet"]["pool5"] == (1024, 1, 1)

    def parameters(name):
        return sum(math.prod(shape) for x in networks.layers(name) for shape in x.weights)

    assert parameters("lenet") == 431_080
    assert parameters("alexnet") == 60_965_224
    assert parameters("vgg16") == 138_357_544  # the training paper's 138 million
    assert parameters("googlenet") == 6_998_552


def test_vgg_takes_the_operations_that_the_training_paper_names():
    multiply_adds = sum(x.flops for x in networks.layers("vgg16")) / 2
    assert multiply_adds == pytest.approx(15.5e9, rel=0.01)


def test_result_matrices_are_those_of_the_training_papers_table():
    at_256 = {x.name: x for x in networks.layers("alexnet", 256)}
    for name, rows, columns in (("conv1", 96, 774_400), ("conv2", 128, 186_624), ("conv5", 128, 43_264)):
        N, K, P, Q = at_256[name].output
        assert (K // at_256[name].groups, N * P * Q) == (rows, columns)


def test_layers_in_place_take_no_memory_and_the_batch_scales_maps_only():
    one, four = (networks.layers("alexnet", batch) for batch in (1, 4))
    assert {x.map_bytes for x in one if x.kind in ("relu", "dropout")} == {0}
    assert [4 * x.map_bytes for x in one] == [x.map_bytes for x in four]
    assert [x.weight_bytes for x in one] == [x.weight_bytes for x in four]


@pytest.mark.parametrize(("name", "batch"), [("resnet", 1), ("lenet", 0)])
def test_an_unknown_network_or_batch_is_refused(name, batch):
    with pytest.raises(ArgumentError):
        networks.layers(name, batch)


# ---- networks at work


def run_once(name: str, batch: int, dtype, way=None) -> tuple[training.Network, float]:
    network = training.Network(name, batch, np, way or convolutions.Lowered(np), dtype=dtype)
    images = normal(*networks.layers(name, batch)[0].output).astype(dtype)
    loss = float(network.forward(images, np.arange(batch) % 10))
    network.backward()
    return network, loss


def test_gradients_of_a_whole_network_are_slopes_of_its_loss():
    network, _ = run_once("lenet", 2, np.float64)
    images = normal(2, 1, 28, 28)
    rng = np.random.default_rng(5)
    for name, w in network.weights().items():
        layer, number = name.split()
        operation = network.operations[[x.name for x in network.layers].index(layer)]
        where = tuple(int(rng.integers(n)) for n in w.shape)
        gradient = operation.gradients[int(number)][where]
        losses = []
        for step in (1e-6, -2e-6):
            w[where] += step
            losses.append(float(network.forward(images.copy(), np.arange(2))))
        w[where] += 1e-6
        assert gradient == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-8), name


@pytest.mark.full
@pytest.mark.parametrize("name", ["alexnet", "googlenet"])
def test_large_networks_run_and_give_every_weight_a_gradient(name):
    network, loss = run_once(name, 1, np.float32)
    assert np.isfinite(loss)
    for operation in network.operations:
        for w, dw in zip(operation.weights, operation.gradients, strict=True):
            assert w.shape == dw.shape
            assert np.isfinite(dw).all()


def test_dtype_stays_single_throughout():
    network, _ = run_once("lenet", 2, np.float32)
    assert {dw.dtype for op in network.operations for dw in op.gradients} == {np.dtype(np.float32)}
    network.update()
    assert {w.dtype for w in network.weights().values()} == {np.dtype(np.float32)}


def test_an_update_follows_the_gradient_and_its_momentum():
    network, _ = run_once("lenet", 2, np.float64)
    operation = network.operations[0]
    w, dw = operation.weights[0].copy(), operation.gradients[0]
    network.update(rate=0.1, momentum=0.5, decay=0)
    np.testing.assert_allclose(operation.weights[0], w - 0.1 * dw)
    network.update(rate=0.1, momentum=0.5, decay=0)
    np.testing.assert_allclose(operation.weights[0], w - 0.1 * dw - (0.05 * dw + 0.1 * dw))


def test_a_snapshot_brings_the_weights_back_and_another_networks_is_refused(tmp_path):
    network, _ = run_once("lenet", 2, np.float32)
    network.save(tmp_path / "lenet.npz")
    before = {name: w.copy() for name, w in network.weights().items()}
    network.update()
    network.restore(tmp_path / "lenet.npz")
    assert all((before[name] == w).all() for name, w in network.weights().items())
    np.savez(tmp_path / "other.npz", w=np.ones(3))
    with pytest.raises(ArgumentError, match="no snapshot of lenet"):
        network.restore(tmp_path / "other.npz")
