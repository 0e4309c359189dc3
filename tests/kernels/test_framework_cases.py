"""The parameter combinations of PyTorch's and ONNX's own tests of convolution.

Shapes and parameters are facts from their test suites (torch/testing/_internal/common_nn.py and
common_methods_invocations.py; onnx/backend/test/case/node/conv.py); the data are ours. pads: top, left, bottom, right.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from convladder.kernels import conv2d, oracle
from convladder.kernels.errors import GeometryError

#: Rungs that take every geometry; and those that refuse unequal strides or paddings, dilation and groups.
GENERAL = ["direct", "gemv", "gemm_coalesced"]
SIMPLE = ["direct_guarded", "direct_clipped", "direct_report", "direct_coalesced"]
LIBRARIES = ["cudnn", "cublas", "cusparse"]


@dataclass(frozen=True)
class Case:
    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def cases() -> list[Case]:
    with Path(__file__).with_name("framework_cases.csv").open() as table:
        return [
            Case(
                f"{row['source']}-{row['name']}",
                *(tuple(map(int, row[c].split())) for c in ("x", "w", "stride", "pads", "dilation")),
                int(row["groups"]),
            )
            for row in csv.DictReader(table)
        ]


def problem(case: Case):
    """x, w and the arguments of conv2d, which pads alike on both sides: what differs is padded here."""
    rng = np.random.default_rng(len(case.name))
    x, w = rng.standard_normal(case.x, np.float32), rng.standard_normal(case.w, np.float32)
    top, left, bottom, right = case.pads
    pad = (min(top, bottom), min(left, right))
    rest = ((top - pad[0], bottom - pad[0]), (left - pad[1], right - pad[1]))
    return np.pad(x, ((0, 0), (0, 0), *rest)), w, (case.stride, pad, case.dilation, case.groups)


def close(y, x, w, arguments, *, norm_wise: bool) -> bool:
    """Element by element as rounding allows; a library may use Winograd or FFT, whose errors are bounded by norm."""
    expected = oracle.conv2d(x, w, *arguments)
    if norm_wise:
        return bool(np.linalg.norm(y - expected) <= 2e-6 * np.linalg.norm(expected))
    return bool((abs(y - expected) <= oracle.bound(x, w, *arguments)).all())


@pytest.mark.parametrize("method", GENERAL + SIMPLE)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_dense_rungs_pass_the_combinations_of_pytorch_and_onnx(case, method, on):
    x, w, arguments = problem(case)
    (stride, pad, dilation, groups) = arguments
    if method in SIMPLE and not (stride[0] == stride[1] and pad[0] == pad[1] and dilation == (1, 1) and groups == 1):
        with pytest.raises(GeometryError, match="needs"):
            conv2d(x, w, *arguments, method=method, on=on)
        return
    y = conv2d(x, w, *arguments, method=method, on=on)
    assert y.shape == oracle.conv2d(x, w, *arguments).shape
    assert close(y, x, w, arguments, norm_wise=False)


@pytest.mark.gpu
@pytest.mark.parametrize("method", LIBRARIES)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_libraries_pass_the_combinations_of_pytorch_and_onnx(case, method):
    x, w, arguments = problem(case)
    y = conv2d(x, w, *arguments, method=method, on="gpu")
    assert close(y, x, w, arguments, norm_wise=method == "cudnn")


def test_the_norm_wise_test_tells_tf32_from_float32():
    """Rounding the inputs to TF32's ten bits is what it must catch."""
    x, w, arguments = problem(cases()[0])
    rounded = [(a.view(np.uint32) + 0x1000 & 0xFFFFE000).view(np.float32) for a in (x, w)]
    assert close(oracle.conv2d(x, w, *arguments).astype(np.float32), x, w, arguments, norm_wise=True)
    assert not close(oracle.conv2d(*rounded, *arguments), x, w, arguments, norm_wise=True)
