"""What threads tell: printf, assertions, traps, clocks; and the registers that say where a thread runs."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels import compile_cuda, launch
from convladder.kernels.sim.printf import MOST_CALLS


def printed(engine, statement: str, grid=1, block=1, args=None) -> str:
    """What a kernel of one statement prints, on both executors alike."""
    source = f'extern "C" __global__ void k(double* y) {{ int i = threadIdx.x; {statement} }}'
    text: list[str] = []
    out = engine.run(source, grid, block, {"y": np.array([1.5, -2.25])}, printed=text)
    assert out.faults == []
    assert text[0] == text[1]
    return text[0]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('printf("plain, 100%%\\n");', "plain, 100%\n"),
        ('printf("%d %i %u|", -3, 7, 4000000000u);', "-3 7 4000000000|"),
        ('printf("%lld %llu %ld", -1ll << 40, 1ull << 63, 5l);', "-1099511627776 9223372036854775808 5"),
        ('printf("%x %X %#x %o %#o", 255, 255, 255, 8, 8);', "ff FF 0xff 10 010"),
        ('printf("%hd %hhd", 70000, 300);', "4464 44"),
        ('printf("[%5d|%-5d|%05d|%+d]", 42, 42, 42, 42);', "[   42|42   |00042|+42]"),
        ('printf("%f %.3f %8.2e %g", 1.5f, y[1], 12345.678, 1e-7);', "1.500000 -2.250 1.23e+04 1e-07"),
        ('printf("%*d %.*f", 6, 3, 2, 3.14159);', "     3 3.14"),
        ('printf("%s is %c%c [%6.3s]", "text", 79, 75, "abcdef");', "text is OK [   abc]"),
        ('int n = printf("%d %d\\n", 1, 2); printf("%d", n);', "1 2\n2"),
        ('printf("%d%f%d%lld", 1, 2.0, 3, 4ll);', "12.00000034"),
    ],
)
def test_printf_formats_as_c_does(engine, statement, expected):
    assert printed(engine, statement) == expected


def test_threads_print_in_the_order_of_execution(engine):
    text = printed(engine, 'if (i % 20 == 3) printf("%d/%d ", blockIdx.x, i);', grid=2, block=70)
    assert text == "0/3 0/23 0/43 0/63 1/3 1/23 1/43 1/63 "


def test_output_is_bounded_and_says_so(engine):
    text = printed(engine, 'printf("x");', grid=MOST_CALLS // 64 + 3, block=64)
    calls = (MOST_CALLS // 64 + 3) * 64
    assert text == "x" * MOST_CALLS + f"[{calls - MOST_CALLS} more calls of printf are not shown]\n"


def test_a_launch_gives_back_what_its_threads_print():
    module = compile_cuda('extern "C" __global__ void k(int n) { printf("%d of %d\\n", threadIdx.x, n); }')
    assert launch(module["k"], 1, 2, [2]).output == "0 of 2\n1 of 2\n"


# -- threads that stop themselves ------------------------------------------------------------------


def test_a_wrong_assertion_is_a_fault_with_its_text_and_ends_the_thread(engine):
    source = """extern "C" __global__ void k(int* y) {
    int i = threadIdx.x;
    assert(y[i] % 5 != 2);
    y[i] += 100;
}"""
    out = engine.run(source, 1, 40, {"y": np.arange(40, dtype=np.int32)})
    fault = out.fault()
    assert (fault.kind, fault.line, fault.thread, fault.array, fault.count) == ("trap", 3, (2, 0, 0), None, 8)
    assert fault.message == "thread (2, 0, 0) of block (0, 0, 0) finds its assertion wrong: y[i] % 5 != 2"
    assert out.arrays["y"].tolist() == [i if i % 5 == 2 else i + 100 for i in range(40)]


@pytest.mark.parametrize("function", ["__trap", "__brkpt"])
def test_a_trap_ends_its_thread_alone(engine, function):
    source = f"""extern "C" __global__ void k(int* y) {{
    if (threadIdx.x > 30)
        {function}();
    y[threadIdx.x] = 1;
}}"""
    out = engine.run(source, 1, 33, {"y": np.zeros(33, np.int32)})
    fault = out.fault()
    assert (fault.kind, fault.line, fault.thread, fault.count) == ("trap", 3, (31, 0, 0), 2)
    assert f"stops itself with {function}()" in fault.message
    assert out.arrays["y"].tolist() == [1] * 31 + [0] * 2


# -- where and when a thread runs ------------------------------------------------------------------


def test_the_clock_counts_a_warps_work_and_is_the_same_on_every_run(engine):
    source = """
extern "C" __global__ void k(long long* t, volatile int* y) {
    long long start = clock64();
    int first = clock();
    for (int i = 0; i < 10 * (blockIdx.x + 1); i++) y[0] += 0;
    t[2 * blockIdx.x] = clock64() - start;
    t[2 * blockIdx.x + 1] = clock() - first;
}"""
    args = {"t": np.zeros(4, np.int64), "y": np.zeros(1, np.int32)}
    runs = [engine.run(source, 2, 1, args).arrays["t"].tolist() for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    short, _, long, _ = runs[0]
    assert 10 * 2 < short < long
    assert abs(long - 2 * short) < short / 4


def test_lane_masks_name_the_lanes_beside(engine):
    source = """
extern "C" __global__ void k(unsigned* y) {
    unsigned m[5];
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(m[0]));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(m[1]));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(m[2]));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(m[3]));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(m[4]));
    for (int i = 0; i < 5; i++) y[32 * i + threadIdx.x] = m[i];
}"""
    out = engine.run(source, 1, 32, {"y": np.zeros((5, 32), np.uint32)})
    compare = [np.equal, np.less, np.less_equal, np.greater, np.greater_equal]
    lanes = np.arange(32)
    expected = [[sum(1 << j for j in range(32) if c(j, i)) for i in lanes] for c in compare]
    assert out.arrays["y"].tolist() == expected


def test_the_engine_is_one_multiprocessor(engine):
    source = """
extern "C" __global__ void k(unsigned* y) {
    asm volatile("mov.u32 %0, %%smid;" : "=r"(y[0]));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(y[1]));
    __nanosleep(100);
}"""
    assert engine.run(source, 1, 1, {"y": np.full(2, 9, np.uint32)}).arrays["y"].tolist() == [0, 1]
