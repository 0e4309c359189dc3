"""Cooperative groups compile, run and give what their definitions say; the headers are found without a toolkit."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels.compiler import compile_ptx
from convladder.kernels.errors import CompileError

GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const float* x, float* y, int* z) {
    cg::thread_block block = cg::this_thread_block();
    int i = blockIdx.x * block.size() + block.thread_rank();
    auto warp = cg::tiled_partition<32>(block);
    auto four = cg::tiled_partition<4>(warp);
    float v = x[i];
    __shared__ float first;
    if (block.thread_rank() == 0) first = v;
    block.sync();
    y[4 * i] = cg::reduce(warp, v, cg::plus<float>());
    y[4 * i + 1] = cg::reduce(four, v, cg::greater<float>());
    y[4 * i + 2] = four.shfl_down(v, 1);
    y[4 * i + 3] = first;
    z[i] = four.ballot(v > 0) + (warp.any(v > 2) << 4) + (four.meta_group_rank() << 8);
}"""


def test_groups_reduce_shuffle_vote_and_meet(engine):
    x = np.random.default_rng(0).standard_normal((2, 2, 8, 4)).astype(np.float32)
    out = engine.run(GROUPS, 2, 64, {"x": x, "y": np.zeros((128, 4), np.float32), "z": np.zeros(128, np.int32)})
    y, z = out.arrays["y"].reshape(2, 2, 32, 4), out.arrays["z"].reshape(2, 2, 8, 4)
    assert out.faults == []
    assert np.allclose(y[..., 0], x.sum(axis=(2, 3), keepdims=True)[..., 0], atol=1e-5)
    assert (y[..., 1].reshape(x.shape) == x.max(axis=3, keepdims=True)).all()
    assert (y[..., 2].reshape(x.shape)[..., :3] == x[..., 1:]).all()
    assert (y[..., 3] == x[:, :1, :1, 0]).all()
    ballots = ((x > 0) << np.arange(4)).sum(axis=3, keepdims=True)
    warps = (x > 2).any(axis=(2, 3), keepdims=True) << 4
    assert (z == ballots + warps + (np.arange(8) << 8).reshape(1, 1, 8, 1)).all()


def test_lanes_that_branched_together_form_a_group(engine):
    source = """
#include <cooperative_groups.h>
extern "C" __global__ void k(const int* x, int* y) {
    int i = threadIdx.x;
    if (x[i] > 0) {
        auto group = cooperative_groups::coalesced_threads();
        y[i] = 100 * group.size() + group.thread_rank();
    }
}"""
    x = np.random.default_rng(1).integers(-1, 2, 32).astype(np.int32)
    out = engine.run(source, 1, 32, {"x": x, "y": np.zeros(32, np.int32)})
    inside = x > 0
    assert out.faults == []
    assert out.arrays["y"].tolist() == np.where(inside, 100 * inside.sum() + np.cumsum(inside) - 1, 0).tolist()


@pytest.mark.parametrize(
    ("header", "advice"),
    [("stdio.h", "printf is built in"), ("cmath", "functions are built in"), ("stdint.h", "<cuda/std/cstdint>")],
)
def test_a_host_header_is_answered_with_what_to_write_instead(header, advice):
    with pytest.raises(CompileError, match=f'line 1: cannot open source file "{header}" .*{advice}'):
        compile_ptx(f"#include <{header}>\n__global__ void k() {{}}")


@pytest.mark.parametrize(
    "header",
    ["cuda/std/cstdint", "cuda_fp16.h", "cuda_pipeline.h", pytest.param("cuda/atomic", marks=pytest.mark.full)],
)
def test_device_headers_are_found(header):
    assert ".entry" in compile_ptx(f'#include <{header}>\nextern "C" __global__ void k() {{}}')
