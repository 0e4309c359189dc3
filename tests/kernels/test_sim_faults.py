"""Each planted bug is found with its kind, line, thread and array, by both executors alike."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels import sim
from convladder.kernels.errors import UnsupportedPTX

I = np.int32


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def numbered(source: str) -> str:
    """The text without its first, empty line, so that the lines count from 1."""
    return source.lstrip("\n")


SAXPY = numbered(r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        y[i] = a * x[i] + y[i];
}
""")


def test_one_element_too_far_names_thread_block_and_element(engine):
    n = 100
    out = engine.run(SAXPY, 2, 64, {"a": np.float32(2), "x": floats(n + 1), "y": floats(n), "n": I(n)})
    fault = out.fault()
    assert (fault.kind, fault.line, fault.array, fault.count) == ("out-of-bounds", 4, "y", 2)
    assert (fault.thread, fault.block) == ((36, 0, 0), (1, 0, 0))
    assert fault.message == "thread (36, 0, 0) of block (1, 0, 0) reads y[100], but y has 100 elements"


def test_a_store_out_of_bounds_changes_nothing_and_the_rest_is_right(engine):
    source = 'extern "C" __global__ void k(float* y, int n) { y[threadIdx.x * n] = threadIdx.x; }'
    out = engine.run(source, 1, 40, {"y": np.full(50, -1, np.float32), "n": I(2)})
    assert out.fault().message == "thread (25, 0, 0) of block (0, 0, 0) stores to y[50], but y has 50 elements"
    assert out.fault().count == 15
    assert out.arrays["y"].tolist() == [i / 2 if i % 2 == 0 else -1 for i in range(50)]


def test_a_negative_index_belongs_to_the_array_behind_it(engine):
    source = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[(int)threadIdx.x - 1]; }'
    out = engine.run(source, 1, 32, {"x": floats(32), "y": floats(32, seed=1)})
    fault = out.fault()
    assert (fault.array, fault.thread, fault.count) == ("x", (0, 0, 0), 1)
    assert "reads x[-1], but x begins at x[0]" in fault.message
    assert out.arrays["y"][0] == 0  # the suppressed load gives 0


def test_a_store_in_the_channel_loop_is_found_at_its_line(engine):
    source = numbered(r"""
extern "C" __global__ void conv(const float* x, const float* w, float* y, int C, int H, int W, int R) {
    int q = blockIdx.x * blockDim.x + threadIdx.x, p = blockIdx.y * blockDim.y + threadIdx.y;
    int P = H - R + 1, Q = W - R + 1;
    if (p >= P || q >= Q) return;
    for (int c = 0; c < C; c++) {
        float sum = 0;
        for (int r = 0; r < R; r++)
            for (int s = 0; s < R; s++)
                sum += x[(c * H + p + r) * W + q + s] * w[(c * R + r) * R + s];
        y[(c * P + p) * Q + q] = sum;
    }
}
""")
    args = {"x": floats(3, 17, 17), "w": floats(3, 3, 3), "y": np.zeros(225, np.float32)}
    out = engine.run(source, (1, 2), (16, 8), args | {"C": I(3), "H": I(17), "W": I(17), "R": I(3)}, undefined=("y",))
    fault = out.fault()
    assert (fault.kind, fault.line, fault.array, fault.count) == ("out-of-bounds", 10, "y", 450)
    assert (fault.thread, fault.block) == ((0, 0, 0), (0, 0, 0))
    assert fault.message.endswith("stores to y[225], but y has 225 elements")


def test_null_and_wild_pointers_belong_to_no_array(engine):
    source = numbered(r"""
extern "C" __global__ void k(float* y, float* z, long long a) {
    y[0] = 1;
    z[threadIdx.x] = *(float*)(a + 8 * threadIdx.x);
}
""")
    out = engine.run(source, 1, 1, {"y": np.uint64(0), "z": floats(32), "a": np.int64(1) << 52})
    null, wild = out.faults
    assert (null.kind, null.line, null.array) == ("out-of-bounds", 2, None)
    assert "address 0x0, which is close to the null pointer" in null.message
    assert (wild.line, wild.array) == (3, None)
    assert "address 0x10000000000000, which belongs to no array" in wild.message


def test_misaligned_access_is_named_in_bytes(engine):
    source = 'extern "C" __global__ void k(float4* y, const char* x) { *y = *(const float4*)(x + 4); }'
    out = engine.run(source, 1, 1, {"y": floats(4), "x": floats(16)})
    fault = out.fault()
    assert (fault.kind, fault.array) == ("misaligned", "x")
    assert "reads 16 bytes at byte 4 of x" in fault.message


def test_vector_store_across_the_end_names_its_elements(engine):
    source = 'extern "C" __global__ void k(float4* y) { y[threadIdx.x] = make_float4(1, 2, 3, 4); }'
    out = engine.run(source, 1, 4, {"y": np.zeros(14, np.float32)})
    assert "stores to y[12] to y[15], but y has 14 elements" in out.fault().message
    assert out.arrays["y"][:12].tolist() == [1, 2, 3, 4] * 3


def test_reading_an_output_before_it_is_written(engine):
    source = 'extern "C" __global__ void k(float* y, const float* x) { y[threadIdx.x] += x[threadIdx.x]; }'
    out = engine.run(source, 1, 64, {"y": floats(64), "x": floats(64)}, undefined=("y",))
    fault = out.fault()
    assert (fault.kind, fault.array, fault.count) == ("uninitialised", "y", 64)
    assert "reads y[0], which has not been written yet" in fault.message


def test_defined_bytes_are_tracked_one_by_one(engine):
    source = 'extern "C" __global__ void k(unsigned char* y, int* z) { y[0] = 1; y[1] = 2; y[3] = 4; *z = *(int*)y; }'
    out = engine.run(source, 1, 1, {"y": np.zeros(4, np.uint8), "z": np.zeros(1, I)}, undefined=("y", "z"))
    assert out.fault().kind == "uninitialised"
    source = source.replace("y[3]", "y[2] = y[3]")
    assert (
        engine.run(source, 1, 1, {"y": np.zeros(4, np.uint8), "z": np.zeros(1, I)}, undefined=("y", "z")).faults == []
    )


def test_local_arrays_know_bounds_and_contents(engine):
    source = numbered(r"""
extern "C" __global__ void k(float* y, int n) {
    float t[4];
    for (int i = 0; i < n; i++)
        t[(i * 3) & 7] = i;
    y[threadIdx.x] = t[(threadIdx.x + n) & 3];
}
""")
    outside, undefined = engine.run(source, 1, 32, {"y": floats(32), "n": I(3)}).faults
    assert (outside.kind, outside.line, outside.array) == ("out-of-bounds", 4, "local memory")
    assert (undefined.kind, undefined.line) == ("uninitialised", 5)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("y[0] = i;", "stores a different value there"),
        ("y[i] = i; if (i > 0) z[i] = y[i - 1];", "stores to at line 1"),
        ("z[i] = y[i + 1]; y[i] = i;", "reads at line 1"),
    ],
)
def test_races_between_threads_and_blocks(engine, body, found):
    index = "int i = blockIdx.x * n + threadIdx.x;"
    source = f'extern "C" __global__ void k(volatile int* y, int* z, int n) {{ {index} {body} }}'
    args = {"y": np.full(200, -1, I), "z": np.zeros(200, I), "n": I(0)}
    for n, grid, block in ((64, 1, 64), (1, 64, 1)):
        faults = engine.run(source, grid, block, args | {"n": I(n)}).faults
        assert faults[0].kind == "global-race"
        assert faults[0].array == "y"
        assert found in faults[0].message


@pytest.mark.parametrize(
    "body",
    [
        "y[0] = 7;",  # the same value from all
        "y[i] = i; y[i] += 1;",  # each its own
        "z[i] = y[i + 1]; y[i] = y[i];",  # a store that changes nothing
        "((char*)y)[i] = i;",  # neighbours in one word
        "z[i] = y[i]; z[i] = y[99];",  # reads only
    ],
)
def test_what_is_no_race_is_not_reported(engine, body):
    source = (
        f'extern "C" __global__ void k(volatile int* y, int* z) {{ int i = blockIdx.x * 32 + threadIdx.x; {body} }}'
    )
    assert engine.run(source, 2, 32, {"y": np.ones(100, I), "z": np.zeros(100, I)}).faults == []


def test_an_endless_loop_is_stopped_and_named(engine):
    source = numbered(r"""
extern "C" __global__ void k(float* y, int n) {
    float s = 0;
    for (int c = 0; c < n; c--) {
        for (int r = 0; r < 3; r++)
            s += y[r] * c;
    }
    y[threadIdx.x] = s;
}
""")
    out = engine.run(source, 2, 40, {"y": floats(64), "n": I(2)}, budget=20_000)
    fault = out.fault()
    assert (fault.kind, fault.line, fault.block) == ("budget", 3, (0, 0, 0))
    assert "the loop at line 3 probably never ends" in fault.message


def test_an_inner_endless_loop_is_told_from_the_outer_one(engine):
    source = numbered(r"""
extern "C" __global__ void k(volatile float* y, int n) {
    for (int c = 0; c < n; c++) {
        y[0] = c;
        while (y[1] == 0)
            y[2] = c;
    }
}
""")
    fault = engine.run(source, 1, 1, {"y": np.zeros(4, np.float32), "n": I(5)}, budget=300_000).fault()
    assert (fault.kind, fault.line) == ("budget", 4)


def test_an_endless_loop_ends_under_the_default_budget(engine):
    source = 'extern "C" __global__ void k(volatile float* y) { while (1) y[threadIdx.x] = 1; }'
    out = engine.once("llvm", source, 1000, 256, {"y": floats(256)})
    assert out.faults[-1].kind == "budget"


def test_faults_are_ranked_causes_first(engine):
    source = 'extern "C" __global__ void k(float* y, int n) { y[n] = 1; y[threadIdx.x] += 1; y[threadIdx.x + n] = 2; }'
    out = engine.run(source, 1, 32, {"y": floats(32), "n": I(20)}, undefined=("y",))
    assert [f.kind for f in out.faults] == ["out-of-bounds", "global-race", "uninitialised"]


def test_an_index_that_nobody_wrote_is_named_before_the_access_that_it_leads_to(engine):
    source = """extern "C" __global__ void k(const float* x, float* y) {
        __shared__ int place[64];
        if (threadIdx.x < 40) place[threadIdx.x] = threadIdx.x;
        __syncthreads();
        y[threadIdx.x] = x[place[threadIdx.x]]; }"""
    faults = engine.run(source, 1, 64, {"x": floats(64), "y": np.zeros(64, np.float32)}).faults
    assert [f.kind for f in faults[:2]] == ["uninitialised", "out-of-bounds"]
    assert (faults[0].array, faults[0].thread) == ("place", (40, 0, 0))


def test_without_checks_nothing_is_reported_and_memory_stays_safe(engine):
    source = 'extern "C" __global__ void k(float* y, long long n) { y[threadIdx.x + n] = 1; y[threadIdx.x] = 2; }'
    for n in (2**35, -40, 2**61 // 4):
        out = engine.run(source, 1, 40, {"y": np.zeros(32, np.float32), "n": np.int64(n)}, checks=False)
        assert (out.faults, out.counters.warp_instructions) == ([], 0)
        assert np.all(out.arrays["y"] == 2)


@pytest.mark.parametrize(
    ("statement", "instruction"),
    [
        ('asm volatile("bar.sync 1, 64;");', "bar.sync"),
        ("y[0] = __vabsdiffu4(y[1], y[2]);", "vabsdiff4"),
        ('asm(".include \\"/etc/passwd\\"");', ".include"),
    ],
)
def test_unsupported_ptx_names_line_and_instruction(engine, statement, instruction):
    source = f'\nextern "C" __global__ void k(float* y)\n{{\n    {statement}\n    y[threadIdx.x] = 1;\n}}\n'
    program = sim.load(engine.ptx(source))
    with pytest.raises(UnsupportedPTX) as error:
        sim.run(program, "k", (1, 1, 1), (32, 1, 1), [sim.Buffer("y", np.zeros(128, np.uint8), True)])
    assert error.value.fault.kind == "unsupported"
    assert error.value.fault.line == 4
    assert instruction in str(error.value)


def test_recursion_is_refused_by_name(engine):
    source = numbered(r"""
__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
extern "C" __global__ void k(int* y) { *y = f(*y); }
""")
    with pytest.raises(UnsupportedPTX, match="recursion"):
        engine.once("llvm", source, 1, 1, {"y": np.full(1, 9, I)})


def test_other_entries_of_a_module_run_beside_an_unsupported_one(engine):
    source = numbered(r"""
extern "C" __global__ void good(int* y) { y[threadIdx.x] = 3; }
extern "C" __global__ void bad(int* y) { *y = __vabsdiffu4(*y, 3); }
""")
    out = engine.run(source, 1, 4, {"y": np.zeros(4, I)}, kernel="good")
    assert out.arrays["y"].tolist() == [3] * 4


def test_a_grid_of_trivial_threads_ends_within_the_budget_too(engine):
    source = 'extern "C" __global__ void k(float* y) { }'
    out = engine.once("llvm", source, 2**31 - 1, 1024, {"y": floats(1)}, budget=10_000_000)
    assert out.fault().kind == "budget"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ('extern "C" __global__ void k(int* y) { int t[200000]; t[*y] = 1; *y = t[y[1]]; }', "local arrays"),
        ('__device__ double a[200000000]; extern "C" __global__ void k(int* y) { *y = a[*y]; }', "variables"),
    ],
)
def test_memory_that_no_machine_should_spend_is_refused(engine, source, what):
    with pytest.raises(UnsupportedPTX, match=what):
        engine.once("llvm", source, 1, 1, {"y": np.zeros(2, I)})


@pytest.mark.parametrize(
    "code",
    [
        "ld.param.u64 %rd1, [p+100000000];",
        "ld.param.u64 %rd1, [nowhere];",
        "ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd1];",
        "st.global.u32 [%rd1], {%r1, %r2};",
        "st.global.u32 %r1;",
        "add.s32 %r1;",
        "add.s32 %r1, %r2, nowhere;",
        "add.s32 %r1, %unknown, 1;",
        "mov.u64 %rd1, nowhere;",
        "fma.rn.f32 %r1, %r2, %r3;",
        "bra nowhere;",
    ],
)
def test_malformed_assembly_is_refused_not_executed(code):
    text = f""".version 8.0\n.target sm_80\n.address_size 64
    .visible .entry k(.param .u64 p) {{ .reg .b32 %r<5>; .reg .b64 %rd<5>; {code} ret; }}"""
    with pytest.raises(UnsupportedPTX):
        sim.run(sim.load(text), "k", (1, 1, 1), (32, 1, 1), [sim.Buffer("y", np.zeros(64, np.uint8), True)])


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ('asm volatile("bar.arrive 1, 64;");', "does not execute barriers for some threads of a block yet"),
        ("y = (float*)malloc(4); y[0] = 1;", "does not know the function malloc"),
    ],
)
def test_what_the_engine_lacks_is_named_as_the_student_wrote_it(engine, statement, says):
    source = f'extern "C" __global__ void k(float* y) {{ int i = threadIdx.x;\n{statement}\ny[i] += 1; }}'
    with pytest.raises(UnsupportedPTX) as error:
        engine.run(source, 1, 32, {"y": np.zeros(32, np.float32)})
    assert says in str(error.value)
    assert error.value.fault.line == 2


@pytest.mark.parametrize("executor", ["llvm", "numpy"])
@pytest.mark.parametrize("parts", [[0, 300], [300], []])
def test_a_launch_tells_what_it_has_defined(engine, executor, parts):
    """Bytes, then halves of words: a word is defined when all of its bytes are."""
    ptx = engine.ptx("""extern "C" __global__ void k(char* y, int from) { y[from + threadIdx.x] = 1; }
extern "C" __global__ void r(const float* y, float* z) { z[threadIdx.x] = y[threadIdx.x]; }""")
    program, y, defined = sim.load(ptx), np.zeros(1024, np.uint8), np.zeros(1024, np.uint8)

    def run(kernel, threads, last):
        params = [sim.Buffer("y", y, False, defined), last]
        return sim.run(program, kernel, (1, 1, 1), (threads, 1, 1), params, executor=executor)[0]

    known = np.zeros(1024, bool)
    for start in parts:
        assert run("k", 301, np.int32(start).tobytes()) == []
        known[start : start + 301] = True
    assert defined.tolist() == known.tolist()
    faults = run("r", 256, sim.Buffer("z", np.zeros(1024, np.uint8)))
    assert sum(f.count for f in faults) == 256 - known.reshape(-1, 4).all(axis=1).sum()


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("struct S { float a[99]; }; __global__ void k(S s, float* y) { y[0] = s.a[threadIdx.x]; }", "pass a pointer"),
        (
            "#include <cooperative_groups.h>\n__global__ void k(float* y) { cooperative_groups::this_grid().sync(); }",
            "launch the next",
        ),
    ],
)
def test_what_is_not_executed_comes_with_a_way_out(engine, source, advice):
    program = sim.load(engine.ptx(source))
    (entry,) = program.entries.values()
    with pytest.raises(UnsupportedPTX, match=advice):
        entry.function  # noqa: B018
