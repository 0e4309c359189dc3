"""The blocks of a launch on several cores: the same report on every machine, every time."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels.sim import parallel

I, F = np.int32, np.float32

KERNELS = {
    "clean": "y[i] = s[(t + 1) % 64] + x[i];",
    "each adds to the next block's": "y[i] = s[t]; y[(i + 64) % 2048] += 1;",
    "one block too far": "if (i != 1500) y[i] = s[t]; else y[i + 600] = 3;",
    "blocks read what others wrote": "y[i] = s[t]; if (b > 3) y[i] += y[i - 64];",
    "blocks store the same": "y[0] = 7; if (i) y[i] = s[t];",
    "atomic": "atomicAdd(&y[i % 3], x[i]);",
    "divergent barrier": "y[i] = 1; if (b == 20 && t < 40) __syncthreads();",
    "endless in one block": "y[i] = 0; if (b == 30) while (s[1] >= 0) y[i] = s[t];",
}


@pytest.fixture
def on_cores(monkeypatch):
    """Makes every launch worth several cores."""

    def choose(count: int) -> None:
        monkeypatch.setattr(parallel, "cores", lambda: count)
        monkeypatch.setattr(parallel, "WORTHWHILE_SECONDS", 0.0)

    return choose


@pytest.mark.parametrize("name", KERNELS)
def test_a_report_does_not_depend_on_the_cores(engine, on_cores, name):
    source = f"""extern "C" __global__ void k(volatile int* yy, const int* x) {{ int* y = (int*)yy;
        __shared__ volatile int s[64]; int t = threadIdx.x, b = blockIdx.x, i = b * 64 + t;
        s[t] = i; __syncthreads(); {name.replace(name, KERNELS[name])} }}"""
    source = source.replace("y[", "yy[").replace("&yy[", "&y[")
    args = {"y": np.arange(2048, dtype=I), "x": np.arange(2048, dtype=I)}
    outcomes = []
    for cores in (1, 2, 4, 4):
        on_cores(cores)
        outcomes.append(engine.once("llvm", source, 32, 64, args, budget=1_000_000))
    first = outcomes[0]
    assert bool(first.faults) == (name not in ("clean", "atomic", "blocks store the same"))
    for other in outcomes[1:]:
        assert other.faults == first.faults
        assert other.counters == first.counters
        assert other.arrays["y"].tobytes() == first.arrays["y"].tobytes()
