"""The layer tables and the weights that the bench makes from them."""

import numpy as np
import pytest

from convladder.kernels import workloads
from convladder.kernels.layouts import ConvGeometry


def test_the_tables_hold_every_sparse_layer_of_the_papers_networks():
    counts = {name: len(workloads.layers(name)) for name in workloads.networks()}
    assert counts == {"alexnet": 4, "caffenet": 4, "caffenet_fc01": 4, "googlenet": 19, "resnet50": 16}


@pytest.mark.parametrize("layer", workloads.layers(), ids=lambda layer: f"{layer.network}-{layer.name}")
def test_a_layers_figures_agree_with_each_other(layer):
    g = layer.geometry
    size = np.prod(g.w_shape)
    assert abs(layer.nnz - (1 - layer.sparsity) * size) <= 1
    assert (g.P, g.Q) == (g.H, g.W)  # every one of them keeps the size of its image
    assert layer.source


def test_ungrouping_keeps_the_sparsity():
    conv2 = workloads.layers("alexnet")[0]
    alone = conv2.ungrouped()
    assert alone.geometry.groups == 1
    assert alone.geometry.w_shape == (256, 96, 5, 5)  # as the sparse paper's table 2 prints it
    assert alone.nnz / np.prod(alone.geometry.w_shape) == pytest.approx(1 - alone.sparsity, abs=1e-5)


@pytest.mark.parametrize("pattern", workloads.PATTERNS)
@pytest.mark.parametrize("share", [0.0, 0.07, 0.5, 1.0])
def test_weights_have_exactly_the_asked_non_zeros(pattern, share):
    g = ConvGeometry(N=1, C=6, H=5, W=5, K=17, R=3, S=2, groups=1)
    nnz = int(share * np.prod(g.w_shape))
    w = workloads.weights(g, nnz, pattern, seed=3)
    assert w.shape == g.w_shape
    assert w.dtype == np.float32
    assert np.count_nonzero(w) == nnz
    np.testing.assert_array_equal(w, workloads.weights(g, nnz, pattern, seed=3))


def test_uneven_rows_are_far_less_alike_than_random_ones():
    conv3 = workloads.layers("alexnet")[1]
    longest = {
        pattern: np.count_nonzero(workloads.weights(conv3.geometry, conv3.nnz, pattern).reshape(384, -1), axis=1).max()
        for pattern in workloads.PATTERNS
    }
    mean = conv3.nnz / 384
    assert longest["random"] < 1.5 * mean
    assert longest["uneven"] > 4 * mean


def test_a_pattern_or_a_number_that_does_not_exist_is_refused():
    g = ConvGeometry(N=1, C=1, H=3, W=3, K=1, R=2, S=2)
    with pytest.raises(ValueError, match="random, uneven"):
        workloads.weights(g, 1, "striped")
    with pytest.raises(ValueError, match="do not fit"):
        workloads.weights(g, 5)


def test_the_reports_photographs_have_its_sizes():
    sizes = [(g.H, g.stride[0], g.P) for g in workloads.report(strides=(1, 2))]
    assert sizes[:3] == [(31, 1, 31), (31, 2, 16), (63, 1, 63)]
    assert {h for h, _, _ in sizes} == set(workloads.REPORT_SIZES)
