"""Fixtures of all tests."""

import pytest

from convladder.kernels import gpu

NO_GPU = "needs an NVIDIA GPU with CuPy, and this machine has none"


@pytest.fixture(params=["sim", pytest.param("gpu", marks=pytest.mark.gpu)])
def on(request):
    """Both back ends; the GPU is skipped, with the reason, where there is none."""
    if request.param == "gpu" and not gpu.available():
        pytest.skip(NO_GPU)
    return request.param


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` by hand skip where there is no GPU."""
    if gpu.available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=NO_GPU))
