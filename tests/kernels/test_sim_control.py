"""Control flow: lanes part and meet again as on a GPU, and both executors agree on kernels of every kind."""

from __future__ import annotations

import random

import numpy as np
import pytest

I = np.int32


def test_lanes_meet_again_after_a_branch(engine):
    source = """extern "C" __global__ void k(int* y, const int* x) {
        int i = threadIdx.x, v = x[i];
        if (v & 1) v = v * 3 + 1; else v = v / 2;
        y[i] = v; }"""
    x = np.random.default_rng(0).integers(0, 100, 64).astype(I)
    out = engine.run(source, 1, 64, {"y": np.zeros(64, I), "x": x})
    assert out.arrays["y"].tolist() == [3 * v + 1 if v & 1 else v // 2 for v in x.tolist()]
    store = out.counters.accesses[-1]
    assert (store.op, store.requests) == ("store", 2)  # one for each warp: the lanes store together


def test_a_vector_load_may_fill_uniform_and_varying_registers(engine):
    """All lanes read the same four words; lanes that wait keep only what they look at later."""
    source = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y, .param .u64 x) {
  .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x];
  mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd1, %rd1, %rd3;
  mov.u32 %r1, 5; setp.lt.u32 %p1, %r0, 7;
  @%p1 bra meet;
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2];
  add.u32 %r5, %r2, %r3; shl.b32 %r5, %r5, 4; st.global.u32 [%rd1+160], %r5;
meet:
  st.global.u32 [%rd1], %r1;
  ret;
}
"""
    out = engine.run(source, 1, 40, {"y": np.zeros(80, I), "x": np.array([9, 1, 2, 3], I)})
    assert out.faults == []
    assert out.arrays["y"].tolist() == [5] * 7 + [9] * 33 + [0] * 7 + [48] * 33


def test_lanes_leave_a_loop_one_by_one_and_meet_behind_it(engine):
    source = """extern "C" __global__ void k(int* y, const int* x) {
        int i = threadIdx.x, s = 0;
        for (int j = 0; j < x[i]; j++) { if ((i + j) % 3 == 0) continue; s += j * i; if (s > 300) break; }
        y[i] = s; }"""
    x = np.random.default_rng(1).integers(0, 40, 96).astype(I)
    out = engine.run(source, 1, 96, {"y": np.zeros(96, I), "x": x})

    def expected(i: int) -> int:
        s = 0
        for j in range(x[i]):
            if (i + j) % 3:
                s += j * i
                if s > 300:
                    break
        return s

    assert out.arrays["y"].tolist() == [expected(i) for i in range(96)]
    assert out.counters.accesses[-1].requests == 3


def test_every_lane_may_leave_a_loop_alone(engine):
    """31 nested splits: the reconvergence stack at its deepest."""
    source = """extern "C" __global__ void k(int* y) {
        int i = threadIdx.x, s = 0;
        for (int j = 0; j <= i; j++) for (int m = 0; m <= (i ^ j) % 5; m++) { s += m; if (m == i % 3) break; }
        y[i] = s; }"""
    out = engine.run(source, 1, 32, {"y": np.zeros(32, I)})

    def expected(i: int) -> int:
        return sum(sum(range(min((i ^ j) % 5, i % 3) + 1)) for j in range(i + 1))

    assert out.arrays["y"].tolist() == [expected(i) for i in range(32)]


def test_early_return_leaves_the_others_running(engine):
    source = """extern "C" __global__ void k(int* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        if (i % 7 == 3) { y[i] = -1; return; }
        int s = 0;
        for (int j = 0; j < i; j++) { s += j; if (s > 50) { y[i] = s; return; } }
        y[i] = i; }"""
    out = engine.run(source, 3, 50, {"y": np.zeros(130, I), "n": I(130)})

    def expected(i: int) -> int:
        if i % 7 == 3:
            return -1
        s = 0
        for j in range(i):
            s += j
            if s > 50:
                return s
        return i

    assert out.faults == []
    assert out.arrays["y"].tolist() == [expected(i) for i in range(130)]


@pytest.mark.parametrize(("grid", "block"), [((3, 2, 2), (5, 3, 2)), ((1, 1, 4), (1, 1, 33)), ((2, 3, 1), (32, 2, 1))])
def test_indices_of_three_dimensional_grids(engine, grid, block):
    source = """extern "C" __global__ void k(int* y) {
        int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        y[b * blockDim.x * blockDim.y * blockDim.z + t] =
            threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y
            + 100000 * blockIdx.z; }"""
    count = int(np.prod(grid) * np.prod(block))
    out = engine.run(source, grid, block, {"y": np.zeros(count, I)})
    expected = [
        x + 10 * y + 100 * z + 1000 * bx + 10000 * by + 100000 * bz
        for bz in range(grid[2])
        for by in range(grid[1])
        for bx in range(grid[0])
        for z in range(block[2])
        for y in range(block[1])
        for x in range(block[0])
    ]
    assert out.arrays["y"].tolist() == expected


def test_device_functions_are_called_and_return_in_step(engine):
    source = """struct Pair { int a; float b; };
    __device__ __noinline__ int collatz(int n) {
        int c = 0; while (n != 1) { n = n & 1 ? 3 * n + 1 : n / 2; c++; } return c; }
    __device__ __noinline__ Pair twice(Pair p, char c) { p.a = collatz(p.a) + c; p.b *= 2; return p; }
    extern "C" __global__ void k(int* y, float* z, int n) {
        int i = threadIdx.x; Pair p{i + 1, 0.5f * i};
        if (i & 1) p = twice(p, (char)-3);
        y[i] = collatz(i + n) + p.a; z[i] = p.b; }"""
    out = engine.run(source, 1, 40, {"y": np.zeros(40, I), "z": np.zeros(40, np.float32), "n": I(2)})

    def collatz(n: int) -> int:
        steps = 0
        while n != 1:
            n = 3 * n + 1 if n & 1 else n // 2
            steps += 1
        return steps

    assert out.faults == []
    expected = [collatz(i + 2) + (collatz(i + 1) - 3 if i & 1 else i + 1) for i in range(40)]
    assert out.arrays["y"].tolist() == expected
    assert out.arrays["z"].tolist() == [i * 0.5 * (2 if i & 1 else 1) for i in range(40)]


def test_a_function_may_read_only_some_bytes_of_what_it_is_passed(engine):
    """The compiler narrows the loads of parameters, and passes small members of a struct as a vector."""
    source = """struct Small { float a; int b; signed char c; };
    __device__ __noinline__ int low(long long v, int k) {
        int s = 0; for (int i = 0; i < (k & 3); i++) s += (unsigned char)(v >> 8); return s + (short)(v >> 16); }
    __device__ __noinline__ float sum(Small s, short h) { return s.a + s.b + s.c + (signed char)h; }
    extern "C" __global__ void k(const long long* v, int* y, float* z) {
        int i = threadIdx.x; Small s; s.a = i; s.b = 2 * i; s.c = i - 9;
        y[i] = low(v[i], i); z[i] = sum(s, i * 100); }"""
    v = np.random.default_rng(7).integers(-(2**62), 2**62, 40)
    out = engine.run(source, 1, 40, {"v": v, "y": np.zeros(40, I), "z": np.zeros(40, np.float32)})
    assert out.faults == []
    i = np.arange(40)
    assert out.arrays["y"].tolist() == ((i & 3) * (v >> 8 & 255) + (v >> 16).astype(np.int16)).tolist()
    assert out.arrays["z"].tolist() == (3 * i + (i - 9) + (i * 100).astype(np.int8)).tolist()


def test_structs_and_small_scalars_are_passed_by_value(engine):
    source = """struct G { char c; short s; int n; double d; long long q; };
    extern "C" __global__ void k(double* y, G g, unsigned char u, short v, float f) {
        y[0] = g.c; y[1] = g.s; y[2] = g.n; y[3] = g.d; y[4] = g.q; y[5] = u; y[6] = v; y[7] = f; }"""
    layout = np.dtype([("c", "i1"), ("s", "i2"), ("n", "i4"), ("d", "f8"), ("q", "i8")], align=True)
    g = np.array([(-5, -300, 70000, 2.5, -(2**40))], layout)[0]
    out = engine.run(
        source, 1, 1, {"y": np.zeros(8), "g": g, "u": np.uint8(200), "v": np.int16(-7), "f": np.float32(0.25)}
    )
    assert out.arrays["y"].tolist() == [-5, -300, 70000, 2.5, -(2.0**40), 200, -7, 0.25]


def test_module_variables_keep_their_values_between_launches(engine):
    from convladder.kernels import sim

    source = """__device__ int total = 5; __device__ int* where = &total; __constant__ int step[2] = {3, 4};
    extern "C" __global__ void k(int* y) { *where += step[1]; y[0] = total; }"""
    program = sim.load(engine.ptx(source))
    y = np.zeros(1, I)
    for expected in (9, 13, 17):
        faults, _ = sim.run(program, "k", (1, 1, 1), (1, 1, 1), [sim.Buffer("y", y.view(np.uint8), True)])
        assert (faults, y[0]) == ([], expected)
    program.symbols["step"].data.view(I)[1] = 100
    sim.run(program, "k", (1, 1, 1), (1, 1, 1), [sim.Buffer("y", y.view(np.uint8), True)])
    assert y[0] == 117


def test_an_empty_kernel_and_a_kernel_without_parameters(engine):
    assert engine.run('extern "C" __global__ void k() {}', 2, 40, {}).counters.warp_instructions == 4


def test_code_longer_than_an_ordinary_stack_allows(engine):
    source = """extern "C" __global__ void k(const volatile float* x, float* y, int n) {
        int i = threadIdx.x; float s = 0;
        #pragma unroll
        for (int j = 0; j < 1500; j++) s += x[(i + j) & 63] * x[(j * n) & 63];
        y[i] = s; }"""
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    out = engine.once("llvm", source, 1, 32, {"x": x, "y": np.zeros(32, np.float32), "n": I(3)})
    assert out.counters.warp_instructions > 4000
    j = np.arange(1500)
    expected = [np.dot(x[(i + j) & 63].astype(float), x[(j * 3) & 63]) for i in range(32)]
    assert np.allclose(out.arrays["y"], expected, atol=1e-2)


# -- random kernels ------------------------------------------------------------------------------


class Writer:
    """Writes a random kernel whose loops all end and whose indices mostly, not always, stay inside."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.loops = 0

    def expression(self, depth: int = 0) -> str:
        pick = self.random.randrange(12 if depth < 3 else 5)
        inner = [self.expression(depth + 1) for _ in range(2)] if pick >= 5 else ["", ""]
        a, b = inner
        return [
            "i", "n", "v", "w", str(self.random.randrange(-9, 40)),
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} ^ {b})", f"({a} >> ({b} & 7))",
            f"({a} / ({b} | 1))", f"({a} < {b} ? v : i)",
        ][pick]  # fmt: skip

    def place(self) -> str:
        if self.random.random() < 0.06:
            return f"{self.expression()} & 255"  # may lie outside
        return self.random.choice(["i", "i", "(i * 3) % 100", "i / 2", "99 - i % 100", "n", "(v & 63)"])

    def statement(self, depth: int) -> str:
        pick = self.random.randrange(10 if depth < 3 else 6)
        e = self.expression
        if pick < 2:
            return f"{self.random.choice('vw')} {self.random.choice(['=', '+=', '^='])} {e()};"
        if pick == 2:
            return f"v += x[{self.place()}];"
        if pick == 3:
            return f"y[{self.place()}] = {self.random.choice(['v', 'w', 'v + w'])};"
        if pick == 4:
            return f"f = f * 0.5f + (float)({self.random.choice(['v', 'w', 'i'])}) ; w += (int)f;"
        if pick == 5:
            return f"t[v & 3] = w; w += t[{self.random.choice(['w', 'i', 'n'])} & 3];"
        if pick < 8:
            other = f" else {{ {self.block(depth + 1)} }}" if self.random.random() < 0.5 else ""
            return f"if ({e()} {self.random.choice(['<', '==', '>='])} {e()}) {{ {self.block(depth + 1)} }}{other}"
        self.loops += 1
        j = f"j{self.loops}"
        leave = self.random.choice(["", "", f"if ({e()} > 20) break;", f"if ({j} == (i & 3)) continue;"])
        limit = self.random.choice(["4", "(i & 7)", "(n & 5)", "(v & 3)"])
        return f"for (int {j} = 0, e{j} = {limit}; {j} < e{j}; {j}++) {{ {leave} {self.block(depth + 1)} }}"

    def block(self, depth: int) -> str:
        text = " ".join(self.statement(depth) for _ in range(self.random.randrange(1, 4)))
        return text + (" return;" if depth > 1 and self.random.random() < 0.06 else "")

    def kernel(self) -> str:
        body = "\n".join(self.statement(0) for _ in range(6))
        return f"""extern "C" __global__ void k(int* y, const int* x, int n) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x, v = i, w = n, t[4] = {{1, 2, 3, 4}}; float f = i;
            if (i >= 100) return;
            {body}
            y[i] = v + w; y[100 + i] = __float_as_int(f); }}"""


@pytest.mark.parametrize("seed", range(25))
def test_random_kernels_give_the_same_on_both_executors(engine, seed):
    source = Writer(seed).kernel()
    x = np.random.default_rng(seed).integers(-50, 50, 100).astype(I)
    args = {"y": np.zeros(200, I), "x": x, "n": I(seed - 3)}
    engine.run(source, 2, (19, 3), args, undefined=("y",), budget=400_000)
