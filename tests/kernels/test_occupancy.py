"""Registers, spills and sizes come from the assembler; occupancy follows from them as on the hardware."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convladder.kernels import resources as assembler_report
from convladder.kernels.compiler import architectures, assemble
from convladder.kernels.errors import ArgumentError, BackendError, CompileError
from convladder.kernels.occupancy import LIMITS, grid_size, max_blocks, occupancy, resource_utilisation
from convladder.kernels.resources import Resources, resources

SMALL = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'

HEAVY = """
__constant__ float w[64];
extern "C" __global__ void small(float* y) { y[threadIdx.x] = w[threadIdx.x]; }
extern "C" __global__ void __launch_bounds__(1024) heavy(const float* x, float* y, int n) {
    __shared__ float tile[100];
    float a[64];
    for (int i = 0; i < 64; i++) a[i] = x[i * n + threadIdx.x];
    tile[threadIdx.x % 100] = a[n];
    __syncthreads();
    float s = 0;
    for (int i = 0; i < 64; i++) s += a[i] * x[(i * 7) % n] * w[i];
    y[threadIdx.x] = s + tile[n];
}
"""

#: A kernel of 32 registers; the tests of occupancy vary it.
PLAIN = Resources("k", "sm_80", 32, 0, 0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_assembler_tells_what_a_kernel_takes(arch):
    found = resources(HEAVY, arch)
    heavy, small = found["heavy"], found["small"]
    assert set(found) == {"heavy", "small"}
    assert heavy.registers == 64  # all that a block of 1024 threads leaves to each
    assert heavy.spill_store_bytes > 0
    assert heavy.spill_load_bytes > 0
    assert heavy.stack_bytes >= 64 * 4 + heavy.spill_store_bytes
    assert (heavy.shared_bytes, heavy.barriers) == (400, 1)
    assert (small.spill_store_bytes, small.spill_load_bytes, small.stack_bytes, small.shared_bytes) == (0, 0, 0, 0)
    assert small.registers < 16
    assert 256 <= small.constant_bytes < 1500
    assert 0 < small.code_bytes < heavy.code_bytes < heavy.cubin_bytes
    assert small.ptx_bytes == heavy.ptx_bytes > 1000


def test_options_reach_the_compiler():
    unbounded = HEAVY.replace("__launch_bounds__(1024)", "")
    few, many = (resources(unbounded, "sm_80", options)["heavy"] for options in (("--maxrregcount=32",), ()))
    assert few.registers == 32 < many.registers
    assert few.spill_store_bytes > many.spill_store_bytes


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(ArgumentError, match="'sm_70': the compiler knows sm_75, sm_80"):
        resources(SMALL, "sm_70")


def test_wrong_code_gives_the_compilers_message():
    with pytest.raises(CompileError, match="line 1"):
        resources("__global__ void k() { y; }")


def test_a_kernel_without_the_assemblers_report_is_an_error(monkeypatch):
    monkeypatch.setattr(assembler_report, "assemble", lambda *_: replace(assemble(SMALL, "sm_80"), log=""))
    with pytest.raises(BackendError, match="the assembler reports no kernel; it says: nothing"):
        resources(SMALL)


@pytest.mark.gpu
def test_on_a_machine_with_a_driver_the_report_is_there_every_time():
    assert resources(SMALL, "sm_90") == resources(SMALL, "sm_90") != {}


def test_every_architecture_of_the_compiler_but_one_has_limits():
    assert set(architectures()) - set(LIMITS) == {"sm_88"}  # the guide's table leaves it out
    assert set(LIMITS) <= set(architectures())


# (registers, static shared, block, dynamic shared) -> blocks on sm_80 and what limits them
CASES = [
    ((32, 0, 256, 0), 8, "warps"),
    ((32, 0, 32, 0), 32, "blocks"),
    ((33, 0, 256, 0), 6, "registers"),  # 33 registers take 40
    ((128, 0, 256, 0), 2, "registers"),
    ((255, 0, 256, 0), 1, "registers"),
    ((32, 0, 96, 0), 21, "warps"),
    ((32, 48 * 1024, 128, 0), 3, "shared memory"),  # 49 KB each, 1 KB of it the system's
    ((32, 4096, 128, 159 * 1024 - 4096), 1, "shared memory"),
    ((32, 0, 1, 0), 32, "blocks"),
]


@pytest.mark.parametrize(("case", "blocks", "limit"), CASES)
def test_the_scarcest_resource_limits_the_blocks(case, blocks, limit):
    registers, static, block, dynamic = case
    found = occupancy(replace(PLAIN, registers=registers, shared_bytes=static), block, dynamic)
    assert (found.blocks, found.limited_by) == (blocks, limit)
    assert found.warps == blocks * -(-block // 32)
    assert found.ratio == found.warps / 64


@pytest.mark.parametrize(("block", "shared"), [(0, 0), (1025, 0), (128, 164 * 1024), (128, -1)])
def test_a_block_that_cannot_run_is_refused(block, shared):
    with pytest.raises(ArgumentError):
        occupancy(PLAIN, block, shared)


def test_utilisation_gives_the_training_papers_figures():
    """GTX 1080: 20 multiprocessors. Table 4's cuBLAS rows: mean of the convolutions 0.46, fully connected 0.80."""
    rows = [(24, 256, 116), (36, 128, 120), (60, 128, 120), (24, 128, 120), (16, 128, 120)]
    convolutions = [resource_utilisation(g, max_blocks(20, r, b)) for g, b, r in rows]
    assert np.mean(convolutions) == pytest.approx(0.46)
    assert resource_utilisation(64, max_blocks(20, 116, 256)) == pytest.approx(0.80)
    assert grid_size(96, 3025, 128, 128) == 24
    assert grid_size(128, 186624, 128, 128) == 1458


def test_utilisation_of_nothing_is_refused():
    with pytest.raises(ArgumentError):
        resource_utilisation(10, max_blocks(20, 255, 1024))


@pytest.mark.gpu
def test_registers_and_occupancy_are_the_drivers():
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    if not cupy.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    if arch not in LIMITS:
        pytest.skip(f"no limits are known of {arch}")
    module = cupy.cuda.function.Module()
    module.load(assemble(HEAVY, arch).cubin)
    for name, kernel in resources(HEAVY, arch).items():
        function = module.get_function(name)
        attributes = cupy.cuda.driver.funcGetAttribute
        assert kernel.registers == attributes(4, function.ptr)
        assert kernel.shared_bytes == attributes(1, function.ptr)
        most = LIMITS[arch].block_shared_bytes - kernel.shared_bytes
        cupy.cuda.driver.funcSetAttribute(function.ptr, 8, most)  # let it have more than 48 KB
        for block in (1, 32, 33, 64, 96, 128, 200, 256, 384, 512, 768, 1000, 1024):
            for shared in (0, 100, 5000, 30_000, 48 * 1024, most):
                blocks = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, block, shared)
                assert occupancy(kernel, block, shared).blocks == blocks, (name, block, shared)
