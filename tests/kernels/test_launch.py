"""compile_cuda and launch: the calls that everything else stands on."""

import numpy as np
import pytest

from convladder.kernels import compile_cuda, launch, out
from convladder.kernels.errors import ArgumentError, CompileError, KernelNameError, LaunchError
from convladder.kernels.module import base_name
from convladder.kernels.signature import Parameter, kernels

SAXPY = """
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


def test_a_kernel_writes_its_arrays_in_place(on):
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    result = launch(compile_cuda(SAXPY, on)["saxpy"], 4, 32, [100, 2.0, x, y])
    assert result.faults == []
    assert result.time_us > 0
    assert (result.counters is None) == (on == "gpu")
    np.testing.assert_array_equal(y, 2 * x + 1)


@pytest.mark.gpu
def test_cupy_arrays_work_on_both_back_ends():
    import cupy

    for back_end in ("sim", "gpu"):
        x, y = cupy.arange(100, dtype=cupy.float32), cupy.ones(100, cupy.float32)
        launch(compile_cuda(SAXPY, back_end)["saxpy"], 4, 32, [100, 2.0, x, y])
        cupy.testing.assert_array_equal(y, 2 * x + 1)


def test_unwritten_elements_of_an_output_are_nan(on):
    kernel = compile_cuda("__global__ void f(float* y) { y[threadIdx.x] = 1; }", on)["f"]
    y = np.zeros(5, np.float32)
    launch(kernel, 1, 3, [out(y)])
    assert (y[:3] == 1).all()
    assert np.isnan(y[3:]).all()


def test_constants_are_set_by_name(on):
    module = compile_cuda(
        "__constant__ float filter[4]; __device__ int bias;\n"
        "__global__ void f(float* y) { y[threadIdx.x] = filter[threadIdx.x] + bias; }", on
    )  # fmt: skip
    module.set("filter", np.array([1, 2, 3, 4], np.float32))
    module.set("bias", np.int32(10))
    y = np.zeros(4, np.float32)
    assert launch(module["f"], 1, 4, [out(y)]).faults == []
    np.testing.assert_array_equal(y, [11, 12, 13, 14])
    with pytest.raises(ArgumentError, match="filter has 16 bytes, the array has 12"):
        module.set("filter", np.zeros(3, np.float32))
    with pytest.raises(KernelNameError, match="no __constant__ or __device__ variable 'weights'"):
        module.set("weights", np.zeros(4, np.float32))


def test_a_struct_goes_by_value(on):
    kernel = compile_cuda(
        "struct Size { int h; float scale; };\n"
        "__global__ void f(Size s, float* y) { y[threadIdx.x] = s.h * s.scale; }", on
    )["f"]  # fmt: skip
    size = np.array([(3, 0.5)], dtype=[("h", np.int32), ("scale", np.float32)])[0]
    y = np.zeros(2, np.float32)
    launch(kernel, 1, 2, [size, out(y)])
    np.testing.assert_array_equal(y, [1.5, 1.5])


def test_a_syntax_error_names_its_line(on):
    with pytest.raises(CompileError) as error:
        compile_cuda("__global__ void f(float* y) {\n    y[0] = undefined_name;\n}\n", on)
    assert error.value.diagnostics[0].line == 2
    assert "undefined_name" in str(error.value)
    assert "error" in error.value.log


def test_compiling_leaves_pythons_shared_objects_alone():
    compile_cuda(SAXPY)  # its log is empty: one byte, the object that Python shares
    assert [bytes([i])[0] for i in range(256)] == list(range(256))


def test_an_unknown_kernel_lists_those_that_are_there():
    with pytest.raises(KernelNameError, match="no kernel 'daxpy' in the source; its kernels: saxpy"):
        compile_cuda(SAXPY)["daxpy"]


F32 = np.zeros(8, np.float32)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([8, 1.0, F32], "takes 4 arguments, got 3"),
        ([8, 1.0, np.zeros(8), F32], "parameter 3 (const float* x): got an array of float64; it takes float32"),
        ([8, 1.0, F32.astype(np.int32), F32], "got an array of int32"),
        ([8, 1.0, np.zeros((4, 4), np.float32)[:, ::2], F32], "not C-contiguous"),
        ([8.5, 1.0, F32, F32], "parameter 1 (int n): got 8.5"),
        ([2**31, 1.0, F32, F32], "2147483648 does not fit into int32"),
        ([F32, 1.0, F32, F32], "the parameter is not a pointer"),
        ([8, 1.0, 0, F32], "got 0; a pointer takes an array"),
        ([8, "1", F32, F32], "parameter 2 (float a): got '1'"),
        ([8, None, F32, F32], "parameter 2 (float a): got None"),
    ],
)
def test_arguments_that_do_not_fit_name_the_parameter(args, says):
    with pytest.raises(ArgumentError) as error:
        launch(compile_cuda(SAXPY)["saxpy"], 1, 8, args)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("parameter", "says"),
    [("const int& n", "a kernel cannot take a reference"), ("Count n", "declare it as int, float")],
)
def test_a_parameter_of_another_type_is_refused(parameter, says):
    kernel = compile_cuda(f"using Count = int;\n__global__ void f({parameter}, float* y) {{ y[0] = n; }}")["f"]
    with pytest.raises(ArgumentError, match=f"parameter 1 .*{says}"):
        launch(kernel, 1, 1, [8, F32])


def test_half_a_character_in_the_source_is_named_by_its_line():
    with pytest.raises(CompileError, match="line 2 contains half of a character"):
        compile_cuda("\n// \ud800\n" + SAXPY)


@pytest.mark.parametrize("shared", [-1, 227 * 1024 + 1])
def test_shared_memory_that_no_architecture_has_is_refused(shared):
    with pytest.raises(LaunchError, match="0 to 232448 bytes"):
        launch(compile_cuda(SAXPY)["saxpy"], 1, 1, [8, 1.0, F32, F32], shared=shared)


def test_a_read_only_array_is_taken_where_the_kernel_only_reads():
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    x.flags.writeable = False
    kernel = compile_cuda(SAXPY)["saxpy"]
    assert launch(kernel, 1, 8, [8, 1.0, x, y]).faults == []
    with pytest.raises(ArgumentError, match="read-only and the kernel may write"):
        launch(kernel, 1, 8, [8, 1.0, y, x])


@pytest.mark.parametrize(
    ("grid", "block", "says"),
    [
        (0, 32, "grid.x = 0"),
        (1, -1, "block.x = -1"),
        (1, 1025, "block.x = 1025"),
        (1, (32, 64), "2048 threads"),
        (1, (1, 1, 65), "block.z = 65"),
        ((1, 65536), 1, "grid.y = 65536"),
        ((1, 1, 1, 1), 1, "one to three sizes"),
        (2.0, 1, "whole numbers"),
        (2**31 - 1, 1024, "the engine runs at most"),
    ],
)
def test_launch_sizes_out_of_range_are_named(grid, block, says):
    with pytest.raises(LaunchError) as error:
        launch(compile_cuda(SAXPY)["saxpy"], grid, block, [8, 1.0, F32, F32])
    assert says in str(error.value)


def test_signatures_are_read_from_the_text():
    text = """
    // __global__ void commented(int n) {}
    /* __global__ void hidden(int n); */
    template <typename T>
    __global__ void __launch_bounds__(128, 2) first(const T* __restrict__ x,
        unsigned long long int n, float4 v[], size_t)
    {}
    extern "C" __global__ __launch_bounds__(64) void second() {}
    static __global__ void third(float (&y)[4]);
    """
    found = kernels(text)
    assert list(found) == ["first", "second", "third"]
    assert found["first"] == (
        Parameter("T*", "x", const=True),
        Parameter("unsigned long long", "n"),
        Parameter("float4*", "v"),
        Parameter("size_t", ""),
    )
    assert found["first"][2].dtype == np.float32
    assert found["second"] == ()


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("_Z6directPKfS0_Pfi", "direct"),
        ("plain", "plain"),
        ("_ZN3lab6directEPf", "direct"),
        ("_Z4tileILi16EEvPf", "tile"),
        ("_ZL6filter", "filter"),
    ],
)
def test_the_name_behind_a_ptx_name(entry, name):
    assert base_name(entry) == name


SHIFT = """extern "C" __global__ void shift(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x + 1];
}"""


def test_parameters_that_share_an_array_race_on_it():
    a = np.arange(65, dtype=np.float32)
    result = launch(compile_cuda(SHIFT)["shift"], 1, 64, [a, a])
    assert [f.kind for f in result.faults] == ["global-race"]
    assert "x[1]" in result.faults[0].message


def test_arrays_that_overlap_in_part_are_refused():
    a = np.arange(80, dtype=np.float32)
    kernel = compile_cuda(SHIFT)["shift"]
    with pytest.raises(ArgumentError, match="x and y overlap in part"):
        launch(kernel, 1, 64, [a[:70], a[5:75]])
    launch(kernel, 1, 10, [a[:40], a[40:]])  # neighbours do not overlap


def test_an_input_cannot_be_undefined_as_well():
    a = np.arange(65, dtype=np.float32)
    with pytest.raises(ArgumentError, match="x and y are the same array, and out"):
        launch(compile_cuda(SHIFT)["shift"], 1, 64, [a, out(a)])
