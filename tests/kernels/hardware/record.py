"""Record what Nsight Compute counts of the ladder's rungs, for the very PTX that the engine executes.

    python tests/kernels/hardware/record.py            # on a machine with a GPU and ncu; writes counters.json here

Called with `launch` it is the program under the profiler: every rung once on every geometry, in order.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from convladder.kernels import gpu, plan
from convladder.kernels.errors import GeometryError
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.rungs import LADDER, Convolution, check_geometry, convolution, convolution_source

HERE = Path(__file__).parent

#: Lab 1's layer, one with odd sizes and strides in which warps diverge, one over many blocks, and one whose matrices
#: have rows of whole float4.
GEOMETRIES = {
    "layer": ConvGeometry(1, 3, 32, 32, 4, 3, 3, (1, 1), (1, 1)),
    "odd": ConvGeometry(2, 5, 37, 29, 3, 3, 5, (2, 2), (2, 2)),
    "wide": ConvGeometry(1, 3, 256, 256, 2, 3, 3, (1, 1), (1, 1)),
    "even": ConvGeometry(2, 4, 16, 16, 8, 3, 3, (1, 1), (1, 1)),
}

#: Our names for Nsight Compute's metrics.
METRICS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "fmas": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}


def cases() -> Iterator[tuple[str, str]]:
    """Every rung with the name of every geometry that it takes."""
    for rung in LADDER:
        for name, g in GEOMETRIES.items():
            with contextlib.suppress(GeometryError):
                check_geometry(rung, g)
                yield rung, name


def case(rung: str, g: ConvGeometry, arrays: ModuleType) -> Convolution:
    """A rung on a geometry, compiled by the engine's compiler; every tenth weight is not zero where it takes CSR."""
    x, y = arrays.ones(g.x_shape, np.float32), arrays.empty(g.y_shape, np.float32)
    w = np.ones(g.w_shape, np.float32)
    if LADDER[rung].column is not None:
        w.reshape(-1)[np.arange(w.size) % 10 != 0] = 0
    return convolution(rung, g, x, arrays.asarray(w), y, "sim")


def launch_all() -> None:
    """Every launch of every rung on every geometry through CuPy, from the engine's PTX."""
    cupy = gpu.cupy_module()
    for rung, name in cases():
        prepared = case(rung, GEOMETRIES[name], cupy)
        launches = prepared.ready("gpu")
        module = cupy.cuda.function.Module()
        module.load(prepared.module.ptx.encode())
        cupy.cuda.runtime.profilerStart()
        for launch in launches:
            function = module.get_function(launch.kernel.entry)
            gpu.allow_shared(function, launch.shared)
            values = tuple(a.scalar if a.array is None else a.array for a in launch.args)
            function(launch.grid, launch.block, values, shared_mem=launch.shared)
        cupy.cuda.Device().synchronize()
        cupy.cuda.runtime.profilerStop()


def read_profile(text: str) -> list[dict[str, int | str]]:
    """Nsight Compute's CSV as one row for each launch of `launch_all`, in its order."""
    ours = {metric: name for name, metric in METRICS.items()}
    launches: dict[int, dict[str, int | str]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        if row["Metric Name"] in ours:
            counted = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"].split("(")[0]})
            counted[ours[row["Metric Name"]]] = int(row["Metric Value"].replace(",", ""))
    expected = [
        (rung, name, line.kernel) for rung, name in cases() for line in plan.parse(convolution_source(rung)).launches
    ]
    assert len(launches) == len(expected), f"{len(launches)} launches profiled, {len(expected)} expected"
    rows = []
    for (rung, name, kernel), (_, counted) in zip(expected, sorted(launches.items()), strict=True):
        assert counted["kernel"] == kernel
        rows.append({"rung": rung, "geometry": name, **counted})
    return rows


def main() -> None:
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv"]
    command += ["--metrics", ",".join(METRICS.values())]
    program = [sys.executable, __file__, "launch"]
    profile = subprocess.run([*command, *program], capture_output=True, text=True)
    if profile.returncode:
        sys.exit(f"{profile.stdout[-2000:]}{profile.stderr[-2000:]}")
    record = {
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.device_facts(),
        "command": " ".join(command),
        "launches": read_profile(profile.stdout),
    }
    (HERE / "counters.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["launch"]:
        launch_all()
    else:
        main()
