"""The `//@` lines of a kernel text: what they say, and what they refuse."""

import numpy as np
import pytest

from convladder.kernels import compile_cuda, out, plan
from convladder.kernels.errors import ArgumentError, GeometryError, KernelNameError, PlanError

TWO_STEPS = """
//@ const TILE = 64
//@ const HALF = TILE // 2
//@ temp twice float[n]
//@ launch scale grid=cdiv(n, TILE) block=TILE args=(x, twice, n)
//@ launch scale grid=(cdiv(n, HALF), 1) block=(HALF, 1, 1) args=(twice, y, n)
__global__ void scale(const float* in, float* result, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) result[i] = 2 * in[i] + 0 * TILE;
}
"""


def compiled(source, on="sim"):
    text = plan.parse(source)
    return compile_cuda(source, on, options=text.options()), text


def test_launches_run_in_order_over_consts_and_temps(on):
    module, text = compiled(TWO_STEPS, on)
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    results = plan.run(module, text, {"n": 100}, {"x": x, "y": out(y)})
    assert [name for name, _ in results] == ["scale", "scale"]
    np.testing.assert_array_equal(y, 4 * x)


def test_consts_are_given_to_the_compiler():
    assert plan.parse(TWO_STEPS).options() == ("-DTILE=64", "-DHALF=32")


def test_a_launch_without_any_args_passes_the_names_of_the_parameters():
    module, text = compiled("//@ launch f grid=1 block=n\n__global__ void f(float* y, int n) { y[threadIdx.x] = n; }")
    y = np.zeros(5, np.float32)
    plan.run(module, text, {"n": 5}, {"y": out(y)})
    assert (y == 5).all()


def test_default_arguments_serve_a_launch_without_args():
    module, text = compiled("//@ launch f grid=1 block=n\n__global__ void f(float* y, int n) { y[threadIdx.x] = n; }")
    y = np.zeros(5, np.float32)
    plan.run(module, text, {"n": 5}, {"y": out(y)}, default_args=("y", "n"))
    assert (y == 5).all()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("//@ lunch f grid=1 block=1", "write //@ const, let, temp, launch or needs"),
        ("//@ launch f grid=1", "does not say `block=`"),
        ("//@ launch f block=1", "does not say `grid=`"),
        ("//@ launch f grid=1 block=1 stream=2", "a launch has no `stream`"),
        ("//@ launch f grid=(1,2,3,4) block=1", "grid has 4 sizes"),
        ("//@ launch f grid=() block=1", "grid has 0 sizes"),
        ("//@ launch f grid=__import__('os') block=1", "not allowed here"),
        ("//@ launch f grid=(1, block=1", "is not an expression"),
        ("//@ launch f 12 grid=1 block=1", "cannot read"),
        ("//@ launch", "needs the kernel's name"),
        ("//@ const TILE", "write `//@ const TILE = 256`"),
        ("//@ const TILE = N", "no symbol N"),
        ("//@ const TILE = 1 / 3", "not a whole number"),
        ("//@ let Hp", "write `//@ let Hp = H + 2*pad`"),
        ("//@ let Hp = open('x')", "not allowed here"),
        ("//@ temp col float", "write `//@ temp col float[N*C]`"),
        ("//@ temp col matrix[4]", "write `//@ temp col float[N*C]`"),
        ("//@ needs import os", "is not an expression"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line, says):
    with pytest.raises(PlanError) as error:
        plan.parse("// a comment\n\n" + line)
    assert says in str(error.value)
    assert error.value.line == 3


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["//@ const A = 1", "//@ const A = 2"], "the constant A is given twice"),
        (["//@ temp t float[4]", "//@ temp t int[8]"], "the temp t is given twice"),
        (["//@ let m = 4", "//@ let m = 5"], "m is given twice"),
        (["//@ launch f grid=1 block=1 grid=2"], "says something twice"),
        (["//@ launch f grid=1 block=1"] * 65, "more than 64 launches"),
    ],
)
def test_what_is_said_too_often_is_refused_at_its_line(lines, says):
    with pytest.raises(PlanError, match=says) as error:
        plan.parse("\n".join(lines))
    assert error.value.line == len(lines)


@pytest.mark.parametrize(
    ("line", "name"), [("//@ const n = 3", "n"), ("//@ let n = 3", "n"), ("//@ temp y float[5]", "y")]
)
def test_a_name_of_the_task_cannot_be_given_anew(line, name):
    text = plan.parse(f"{line}\n//@ launch f grid=1 block=1")
    with pytest.raises(PlanError, match=f"line 1: {name} is a name of the task already"):
        text.check_names({"n", "y"})
    module = compile_cuda("__global__ void f(float* y) { y[0] = 1; }")
    with pytest.raises(PlanError, match=f"line 1: {name} is a name of the task already"):
        plan.run(module, text, {"n": 5}, {"y": np.zeros(1, np.float32)})


def test_let_names_a_size_or_an_array():
    module, text = compiled(
        "//@ let m = n + 2\n//@ let twice = 2*m\n//@ let c = y\n//@ launch f grid=1 block=twice args=(c, twice)\n"
        "__global__ void f(float* c, int n) { c[threadIdx.x] = n; }"
    )
    y = np.zeros(14, np.float32)
    plan.run(module, text, {"n": 5}, {"y": out(y)})
    assert (y == 14).all()
    with pytest.raises(PlanError, match="line 2: 'm': there is no symbol m"):
        plan.run(module, plan.parse("//@ let m = no\n//@ launch f grid=1 block=m args=(y, 1)"), {}, {"y": out(y)})


def test_launch_lines_in_a_block_comment_are_not_read():
    text = plan.parse("// /* not a comment\n//@ launch f grid=1 block=1\n/* old:\n//@ launch g grid=2 block=2\n*/")
    assert [(line.kernel, line.line) for line in text.launches] == [("f", 2)]


def test_lines_end_where_the_compiler_ends_them():
    text = plan.parse("// a\x0c//@ launch g grid=1 block=1\n// \u2028//@ temp\n//@ launch f grid=1 block=1")
    assert [(line.kernel, line.line) for line in text.launches] == [("f", 3)]


def test_all_temps_together_are_bounded():
    text = "".join(f"//@ temp t{i} float[2**28]\n" for i in range(3)) + "//@ launch f grid=1 block=1 args=t0\n"
    module, parsed = compiled(text + "__global__ void f(float* y) { y[0] = 1; }")
    with pytest.raises(PlanError, match=r"line 3: temp t2 .* all temps together may have at most 2048 MiB"):
        plan.run(module, parsed, {}, {})


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("grid=0 block=1", PlanError, "must be at least 1"),
        ("grid=-n block=1", PlanError, "must be at least 1"),
        ("grid=1 block=2048", PlanError, "block.x = 2048"),
        ("grid=1 block=(64, 64)", PlanError, "4096 threads"),
        ("grid=2**40 block=1", PlanError, "grid.x"),
        ("grid=2**30 block=1024", PlanError, "the engine runs at most"),
        ("grid=(1, 70000) block=1", PlanError, "grid.y = 70000"),
        ("grid=n/2 block=1", PlanError, "not a whole number"),
        ("grid=1 block=1 shared=-4", PlanError, "0 to 232448 bytes of shared memory"),
        ("grid=1 block=1 shared=2**18", PlanError, "0 to 232448 bytes of shared memory"),
        ("grid=m block=1", PlanError, "no symbol m"),
        ("grid=1 block=1 args=(y)", ArgumentError, "has 2 parameters"),
        ("grid=1 block=1 args=(y, y)", ArgumentError, "not a pointer"),
        ("grid=1 block=1 args=(n, n)", ArgumentError, "a pointer takes an array"),
        ("grid=1 block=1 args=(y, 2**40)", ArgumentError, "does not fit into int32"),
        ("grid=1 block=1 args=(y, z)", PlanError, "no symbol z"),
    ],
)
def test_a_launch_that_cannot_be_made_says_why(line, error, says):
    module, text = compiled(f"//@ launch f {line}\n__global__ void f(float* y, int n) {{ y[0] = n; }}")
    with pytest.raises(error) as raised:
        plan.run(module, text, {"n": 5}, {"y": np.zeros(5, np.float32)}, ("y", "n"))
    assert says in str(raised.value)


def test_a_launch_of_another_kernel_lists_those_that_are_there():
    module, text = compiled("//@ launch g grid=1 block=1\n__global__ void f(float* y) { y[0] = 1; }")
    with pytest.raises(KernelNameError, match="no kernel 'g' in the source; its kernels: f"):
        plan.run(module, text, {}, {"y": np.zeros(1, np.float32)}, ("y",))


def test_a_text_without_a_launch_line_is_told_how_to_write_one():
    module, text = compiled("__global__ void f(float* y) { y[0] = 1; }")
    with pytest.raises(PlanError, match="//@ launch NAME grid="):
        plan.run(module, text, {}, {"y": np.zeros(1, np.float32)}, ("y",))


@pytest.mark.parametrize("elements", ["0", "-1", "2**40"])
def test_a_temp_of_no_or_too_many_elements_is_refused(elements):
    module, text = compiled(
        f"//@ temp t float[{elements}]\n//@ launch f grid=1 block=1 args=t\n__global__ void f(float* y) {{ y[0] = 1; }}"
    )
    with pytest.raises(PlanError, match="temp t would have"):
        plan.run(module, text, {}, {})


def test_needs_name_the_values_that_break_them():
    text = plan.parse("//@ needs dil == 1 and groups == 1")
    text.check_needs({"dil": 1, "groups": 1}, "rung")
    with pytest.raises(GeometryError, match=r"rung needs dil == 1 and groups == 1; here dil = 2, groups = 1"):
        text.check_needs({"dil": 2, "groups": 1}, "rung")
    with pytest.raises(GeometryError, match="dil must be equal in height and width"):
        text.check_needs({"dilh": 1, "dilw": 2, "groups": 1}, "rung")


@pytest.mark.parametrize(("written", "kinds"), [(4, []), (3, ["uninitialised"])])
def test_what_a_launch_leaves_undefined_is_undefined_in_the_next(written, kinds):
    module, text = compiled(
        "//@ temp t float[4]\n"
        "//@ launch f grid=1 block=m args=(t)\n//@ launch f grid=1 block=1 args=(t)\n"
        "//@ launch g grid=1 block=4 args=(t, y)\n"
        "__global__ void f(float* t) { t[threadIdx.x] = 1; }\n"
        "__global__ void g(const float* t, float* y) { y[threadIdx.x] = t[threadIdx.x]; }"
    )
    *_, (_, result) = plan.run(module, text, {"m": written}, {"y": out(np.zeros(4, np.float32))})
    assert [(f.kind, f.thread[0]) for f in result.faults] == [(kind, written) for kind in kinds]


def test_a_temp_is_undefined_until_written():
    module, text = compiled(
        "//@ temp t float[4]\n//@ launch f grid=1 block=4 args=(t, y)\n"
        "__global__ void f(float* t, float* y) { y[threadIdx.x] = t[threadIdx.x]; }"
    )
    ((_, result),) = plan.run(module, text, {}, {"y": out(np.zeros(4, np.float32))})
    assert result.faults[0].kind == "uninitialised"
    assert result.faults[0].array == "t"
