"""Record the passes that updates of shared memory take, for many patterns of lanes.

    python tests/kernels/hardware/updates.py     # on a machine with a GPU and ncu; writes updates.json here

Called with `launch` it is the program under the profiler. The kernels are compiled to PTX as for the engine.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from convladder.kernels import compile_cuda, gpu

HERE = Path(__file__).parent
RECORD = HERE / "updates.json"

#: `by_address` follows from the lanes' addresses alone; the others are what the hardware's memory did.
METRICS = {
    "atomic": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "atomic_by_address": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "load": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
}

#: Type of the elements, and one update of `own[k]` by thread t, by the name of its kernel.
UPDATES = {
    "sum": ("int", "atomicAdd(&own[k], t + 3)"),
    "exchange": ("int", "y[t] = atomicExch(&own[k], t)"),
    "swap": ("int", "y[t] = atomicCAS(&own[k], 0, t)"),
    "largest": ("int", "atomicMax(&own[k], t)"),
    "one_more": ("int", "atomicAdd(&own[k], 1)"),
    "float_sum": ("float", "atomicAdd(&own[k], t + 0.5f)"),
    "long_exchange": ("unsigned long long", "y[t] = (int)atomicExch(&own[k], (unsigned long long)t)"),
}

#: Those that are recorded for every pattern; the others for FEW.
OFTEN = ("sum", "exchange", "swap")
FEW = ("apart", "pairs", "one_bank", "histogram", "places_by_number", "8_at_one_place", "any")

KERNEL = """extern "C" __global__ void %s(const int* at, int* y)
{
    __shared__ %s own[1024];
    int t = threadIdx.x, k = at[t];
    for (int n = t; n < 1024; n += 32) own[n] = 0;
    __syncthreads();
    if (k >= 0) %s;
    __syncthreads();
    if (k == -2) y[t] = own[y[0]];
}
"""


def source() -> str:
    return "\n".join(KERNEL % (name, kind, update) for name, (kind, update) in UPDATES.items())


def patterns() -> dict[str, list[int]]:
    """The element that each lane updates; -1 where it updates none."""
    rng, lanes = np.random.default_rng(0), np.arange(32)
    some = {
        "apart": lanes,
        "pairs": lanes // 2,
        "again_after_16": lanes % 16,
        "halves": lanes // 16,
        "one_bank": lanes * 32,
        "one_bank_in_pairs": lanes // 2 * 32,
        "every_fourth": lanes * 4,
        "histogram": lanes % 24,
        # four lanes at one place of bank 0 beside four places of bank 1
        "one_place_beside_one_bank": np.where(lanes < 4, 0, np.where(lanes < 8, lanes * 32 + 1, -1)),
        "one_place_among_one_bank": np.where(lanes >= 8, -1, np.where(lanes % 2, 0, lanes * 32 + 1)),
        "places_by_number": np.repeat(np.arange(8), [1, 1, 2, 3, 4, 5, 7, 9]),
        "places_of_one_bank_by_number": np.repeat(np.arange(8) * 32, [1, 1, 2, 3, 4, 5, 7, 9]),
        "any": rng.integers(0, 256, 32),
        "few": rng.integers(0, 12, 32),
        "few_of_two_banks": rng.integers(0, 6, 32) * 32 + rng.integers(0, 2, 32),
        "some_lanes": np.where(rng.random(32) < 0.5, rng.integers(0, 64, 32), -1),
    }
    for count in (1, 2, 3, 8, 32):
        some[f"{count}_at_one_place"] = np.where(lanes < count, 7, -1)
    return {name: [int(k) for k in at] for name, at in some.items()}


def launches() -> list[tuple[str, str]]:
    """Every recorded update with its pattern."""
    return [(update, pattern) for update in UPDATES for pattern in (patterns() if update in OFTEN else FEW)]


def launch_all() -> None:
    cupy = gpu.cupy_module()
    module = cupy.cuda.function.Module()
    module.load(compile_cuda(source(), on="sim").ptx.encode())
    y = cupy.zeros(32, np.int32)
    given = {name: cupy.asarray(np.array(at, np.int32)) for name, at in patterns().items()}
    cupy.cuda.runtime.profilerStart()
    for update, pattern in launches():
        module.get_function(update)((1,), (32,), (given[pattern], y))
    cupy.cuda.Device().synchronize()
    cupy.cuda.runtime.profilerStop()


def read_profile(text: str) -> list[dict[str, int | str]]:
    """A row for each launch of `launch_all`."""
    ours = {metric: name for name, metric in METRICS.items()}
    counted: dict[int, dict[str, int]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        value = int(row["Metric Value"].replace(",", ""))
        counted.setdefault(int(row["ID"]), {})[ours[row["Metric Name"]]] = value
    rows = [row for _, row in sorted(counted.items())]
    return [{"update": u, "pattern": p, **row} for (u, p), row in zip(launches(), rows, strict=True)]


def main() -> None:
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv"]
    command += ["--metrics", ",".join(METRICS.values()), sys.executable, __file__, "launch"]
    profile = subprocess.run(command, capture_output=True, text=True)
    if profile.returncode:
        sys.exit(f"{profile.stdout[-2000:]}{profile.stderr[-2000:]}")
    record = {"device": gpu.device_facts(), "metrics": METRICS, "patterns": patterns()}
    record["rows"] = read_profile(profile.stdout)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    launch_all() if sys.argv[1:] == ["launch"] else main()
