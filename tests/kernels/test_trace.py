"""Where values come from, and what a warp touches: both by hand for small launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convladder.kernels import compile_cuda, out, plan, trace
from convladder.kernels.errors import ArgumentError
from convladder.kernels.launch import launch
from convladder.kernels.sim.lanes import Lanes
from convladder.kernels.trace import Term


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


def terms(source: str, arrays: dict[str, Any], element: int, **symbols: float) -> list[Term] | None:
    """The terms of y[element]."""
    parsed = plan.parse(source)
    module = compile_cuda(source, on="sim", options=parsed.options())
    (found,) = trace.terms(module, parsed, symbols, arrays, [("y", element)])
    return found


def on_lines(lines: list[int], *factors: tuple[tuple[str, int], ...], coefficient: float = 1.0) -> list[Term]:
    return [Term(coefficient, f, line) for f, line in zip(factors, lines, strict=True)]


def body(code: str, parameters: str = "const float* x, float* y, int n", block: int = 4) -> str:
    """A kernel `f` of one block; its code begins in line 2."""
    return f"//@ launch f grid=1 block={block}\n__global__ void f({parameters}) {{\n{code}\n}}"


def test_a_sum_of_products_is_told_term_by_term_with_its_lines() -> None:
    code = "float s = 0; for (int i = 0; i < n; i++)\n s += x[i] * w[n - 1 - i];\ny[threadIdx.x] = s;"
    arrays = {"x": floats(3), "w": floats(3), "y": out(floats(4))}
    found = terms(body(code, "const float* x, const float* w, float* y, int n"), arrays, 2, n=3)
    assert found == on_lines([4, 4, 4], *((("w", 2 - i), ("x", i)) for i in range(3)))


def test_signs_numbers_and_numbers_by_value_become_coefficients() -> None:
    code = "y[threadIdx.x] = a * x[0] - 3.0f * x[1] + (-x[2]);"
    found = terms(body(code, "const float* x, float* y, float a"), {"x": floats(4), "y": out(floats(4))}, 0, a=2.5)
    assert found is not None
    assert {(t.coefficient, t.factors) for t in found} == {
        (2.5, (("x", 0),)), (-3.0, (("x", 1),)), (-1.0, (("x", 2),)),
    }  # fmt: skip


def test_a_product_of_sums_is_multiplied_out() -> None:
    found = terms(body("y[0] = (x[0] + x[1]) * (x[2] - x[3]);", block=1), {"x": floats(4), "y": out(floats(1))}, 0, n=1)
    assert found is not None
    signs = {t.factors: t.coefficient for t in found}
    assert signs == {(("x", i), ("x", j)): 1.0 if j == 2 else -1.0 for i in (0, 1) for j in (2, 3)}


def test_values_are_followed_through_a_local_array_and_a_vector_load() -> None:
    code = "float4 v = *(const float4*)x; float t[4] = {v.w, v.z, v.y, v.x};\ny[threadIdx.x] = t[n + threadIdx.x - 2];"
    found = terms(body(code), {"x": floats(4), "y": out(floats(4))}, 1, n=2)
    assert found == [Term(1.0, (("x", 2),), 0)]


def test_values_are_followed_through_shared_memory() -> None:
    code = """__shared__ float tile[2][2];
    int i = threadIdx.x / 2, j = threadIdx.x % 2;
    tile[j][i] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[i][0] * tile[i][1];"""
    found = terms(body(code), {"x": floats(4), "y": out(floats(4))}, 2, n=1)
    assert found == [Term(1.0, (("x", 1), ("x", 3)), 7)]


def test_values_are_followed_through_asynchronous_copies() -> None:
    code = """__shared__ float tile[4];
    __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    y[threadIdx.x] = 2.0f * tile[3 - threadIdx.x];"""
    source = "#include <cuda_pipeline.h>\n" + body(code)
    assert terms(source, {"x": floats(4), "y": out(floats(4))}, 1, n=1) == [Term(2.0, (("x", 2),), 9)]


def test_a_warps_lanes_are_told_in_shared_memory_too() -> None:
    source = body("__shared__ float tile[33]; tile[2 * threadIdx.x] = n; y[threadIdx.x] = tile[2 * threadIdx.x];")
    module = compile_cuda(source, on="sim")
    seen = trace.lanes(module, plan.parse(source), {"n": 1}, {"x": floats(1), "y": out(floats(4))})
    assert {(a.array, a.space, a.op) for a in seen} >= {("tile", "shared", "store"), ("y", "global", "store")}
    (store,) = (a for a in seen if (a.array, a.op) == ("tile", "store"))
    assert store.offsets[:5] == (0, 8, 16, 24, None)


def test_values_are_followed_through_shuffles_and_atomic_additions() -> None:
    code = """float s = x[threadIdx.x];
    s += __shfl_xor_sync(0xf, s, 1);
    if (threadIdx.x % 2 == 0) atomicAdd(&y[0], 2.5f * s);"""
    found = terms(body(code), {"x": floats(4), "y": np.zeros(4, np.float32)}, 0, n=1)
    assert found is not None
    assert sorted((t.factors, t.coefficient, t.line) for t in found) == [
        *(((("x", i),), 2.5, 5) for i in range(4)), ((("y", 0),), 1.0, 5),
    ]  # fmt: skip


def test_values_are_followed_from_one_launch_to_the_next() -> None:
    source = (
        "//@ temp t float[4]\n//@ launch f grid=1 block=4 args=(x, t)\n//@ launch f grid=1 block=4 args=(t, y)\n"
        "__global__ void f(const float* x, float* y) { y[threadIdx.x] = 2.0f * x[3 - threadIdx.x]; }"
    )
    assert terms(source, {"x": floats(4), "y": out(floats(4))}, 1) == [Term(4.0, (("x", 1),), 4)]


@pytest.mark.parametrize(
    "code",
    [
        "y[0] = fmaxf(x[0], x[1]);",
        "y[0] = x[0] / x[1];",
        "y[0] = (float)threadIdx.x + x[0];",
        "y[0] = rintf(x[0]);",
        "y[0] = __uint_as_float(__float_as_uint(x[0]) ^ 1u);",
        "((char*)y)[0] = 1;",
        "y[0] = x[0]; atomicExch(&y[0], x[1]);",
    ],
)
def test_what_is_no_sum_of_products_is_not_told(code: str) -> None:
    assert terms(body(code, block=1), {"x": floats(4), "y": floats(1)}, 0, n=1) is None


def test_an_element_that_no_thread_stored_has_no_terms() -> None:
    assert terms(body("y[0] = x[0];", block=1), {"x": floats(1), "y": out(floats(4))}, 3, n=1) is None


@pytest.mark.parametrize("code", ["y[n] = 1;", "while (true) y[0] += 1;"])
def test_a_kernel_with_a_fault_is_not_explained(code: str) -> None:
    assert terms(body(code), {"x": floats(1), "y": floats(1)}, 0, n=1) is None


def test_large_arrays_are_not_traced() -> None:
    large = np.zeros(trace.MOST_BYTES // 4 + 1, np.float32)
    source = body("y[0] = x[0];", block=1)
    assert terms(source, {"x": large, "y": out(floats(1))}, 0, n=1) is None


def test_of_each_access_the_fullest_execution_of_the_warp_is_kept() -> None:
    code = "for (int i = 0; i < n; i++) if (threadIdx.x + i >= 2) y[threadIdx.x] = x[4 * threadIdx.x + i];"
    source = body(code, block=64)
    module = compile_cuda(source, on="sim")
    arrays = {"x": floats(260), "y": out(floats(64))}
    load, store = (
        a for a in trace.lanes(module, plan.parse(source), {"n": 4}, arrays, warp=1) if a.line == 3
    )  # fmt: skip
    assert (load.op, load.array, load.size, store.op, store.array) == ("load", "x", 4, "store", "y")
    assert load.offsets == tuple(16 * t for t in range(32, 64))
    assert store.offsets == tuple(4 * t for t in range(32, 64))


def test_a_lane_that_takes_no_part_touches_nothing() -> None:
    source = body("if (threadIdx.x % 2) y[threadIdx.x] = n;")
    module = compile_cuda(source, on="sim")
    (store,) = trace.lanes(module, plan.parse(source), {"n": 1}, {"x": floats(1), "y": out(floats(4))})
    assert store.offsets == (None, 4, None, 12) + (None,) * 28


def test_an_observer_without_the_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = compile_cuda("__global__ void f() {}", on="sim")
    monkeypatch.setattr(module, "image", object())
    with pytest.raises(ArgumentError, match="on='sim'"):
        launch(module["f"], 1, 1, [], observer=Lanes())
