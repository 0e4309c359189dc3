"""A small lab of the judge's own, so that its tests depend on no lab's text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from convladder.autograde.judge import sandbox, spec
from convladder.autograde.judge.sandbox import Worker

SPEC = """
lab = "tiny"
title = "A lab of tests"
minutes = 1

[points]
correctness = 60
counters = 15
timing = 15
prediction = 5
explanation = 5

[[task]]
name = "index"
kind = "python"
title = "An index"
help = "Step 1"
function = "source_index"
reference = "layouts.source_index"
share = {correctness = 1}
case = [
  {name = "inside", args = {p = 1, q = 1, r = 0, s = 1, U = 1, pad = 0, H = 4, W = 4}},
  {name = "all", args = {U = 2, pad = 1, H = 4, W = 5}, sweep = {p = 2, q = 3, r = 3, s = 3}},
]

[[task]]
name = "conv"
kind = "kernel"
problem = "conv2d"
title = "A convolution"
help = "Step 2"
params = ["x", "w", "y", "N", "C", "H", "W", "K", "R", "S", "P", "Q", "U", "pad"]
ladder = "direct_guarded"
share = {correctness = 3, counters = 1, timing = 1}
case = [
  {name = "larger", N = 2, C = 2, H = 6, W = 7, K = 2, R = 3, S = 2, U = 2, pad = 1},
  {name = "one", N = 1, C = 1, H = 3, W = 4, K = 1, R = 2, S = 3, U = 1, pad = 1},
]
  [[task.counter]]
  name = "stores"
  case = "larger"
  value = "store_requests"
  at_most = "N*K"
  says = "each image plane should be stored by one warp"
  help = "Step 3"
  [task.target]
  case = "larger"
  base = "direct_report"
  target = "direct_coalesced"
  value = "sectors"
  blocks_at_least = "N*K"

[[task]]
name = "guess"
kind = "number"
title = "A prediction"
formula = "R * S / 2"
symbols = {R = 3, S = 3}
tolerance = 0.01
share = {prediction = 1}

[[task]]
name = "why"
kind = "explain"
title = "A reason"
words = 5
rubric = ["0: none", "1: one"]
share = {explanation = 1}
"""

HIDDEN = """
[[case]]
task = "conv"
name = "secret"
N = 1
C = 2
H = 5
W = 3
K = 2
R = 2
S = 2
U = 1
pad = 2

[[case]]
task = "index"
name = "far"
args = {p = 9, q = 9, r = 0, s = 0, U = 1, pad = 0, H = 4, W = 4}
"""

#: Every image plane by one block of one warp; right, and with the fewest stores.
CONV = """\
//@ launch conv grid=(N*K) block=32
__global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int K,
                     int R, int S, int P, int Q, int U, int pad)
{
    int n = blockIdx.x / K, k = blockIdx.x % K;
    for (int i = threadIdx.x; i < P * Q; i += 32) {
        int p = i / Q, q = i % Q;
        float sum = 0.0f;
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R; r++)
                for (int s = 0; s < S; s++) {
                    int h = p * U - pad + r, v = q * U - pad + s;
                    if (h >= 0 && h < H && v >= 0 && v < W)
                        sum += x[((n * C + c) * H + h) * W + v] * w[((k * C + c) * R + r) * S + s];
                }
        y[((n * K + k) * P + p) * Q + q] = sum;
    }
}
"""

INDEX = """\
def source_index(p, q, r, s, U, pad, H, W):
    h, w = p * U - pad + r, q * U - pad + s
    return (h, w) if 0 <= h < H and 0 <= w < W else None
"""


@pytest.fixture(scope="session")
def specs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specs")
    (folder / "tiny.toml").write_text(SPEC)
    (folder / "tiny.hidden.toml").write_text(HIDDEN)
    return folder


@pytest.fixture(scope="session")
def tiny(specs_dir: Path) -> spec.Spec:
    return spec.load("tiny", specs_dir)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A worker without isolation: what these tests ask is not whether the sandbox holds."""
    with sandbox.open_worker("none") as w:
        yield w


@pytest.fixture(params=["bwrap", "none"])
def policy(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture
def bwrap() -> str:
    return require("bwrap")


def require(kind: str) -> str:
    if kind == "bwrap":
        there, reason = sandbox.available()
        if not there:
            pytest.skip(reason)
    return kind
