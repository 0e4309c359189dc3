"""Record what Nsight Compute counts of the ladder's rungs, for the very PTX that the engine executes.

    python tests/kernels/hardware/record.py            # on a machine with a GPU and ncu; writes counters.json here

Called with `launch` it is the program under the profiler: every rung once on every geometry, in order.
"""

from __future__ import annotations

import csv
import datetime
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from convladder.kernels import expression, gpu, plan, signature
from convladder.kernels.compiler import compile_ptx
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.methods import LADDER, ladder_source

HERE = Path(__file__).parent

#: Lab 1's layer, one with odd sizes and strides in which warps diverge, and one over many blocks.
GEOMETRIES = {
    "layer": ConvGeometry(1, 3, 32, 32, 4, 3, 3, (1, 1), (1, 1)),
    "odd": ConvGeometry(2, 5, 37, 29, 3, 3, 5, (2, 2), (2, 2)),
    "wide": ConvGeometry(1, 3, 256, 256, 2, 3, 3, (1, 1), (1, 1)),
}

#: Our names for Nsight Compute's metrics.
METRICS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "fmas": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}


def launch_all() -> None:
    """Every rung on every geometry through CuPy, from the engine's PTX."""
    cupy = gpu.cupy_module()
    for rung in LADDER:
        source = ladder_source(rung)
        text = plan.parse(source)
        ptx = compile_ptx(source, options=text.options())
        module = cupy.cuda.function.Module()
        module.load(ptx.encode())
        entry = re.search(r"\.entry (\w+)", ptx)
        assert entry is not None
        kernel = module.get_function(entry[1])
        (line,) = text.launches
        for g in GEOMETRIES.values():
            symbols = {**g.symbols(), **text.consts}
            grid, block = ([int(expression.evaluate(e, symbols)) for e in sizes] for sizes in (line.grid, line.block))
            arrays = {
                name: cupy.ones(shape, np.float32) for name, shape in zip("xwy", (g.x_shape, g.w_shape, g.y_shape))
            }
            parameters = signature.kernels(source)[rung]
            args = [arrays[p.name] if p.name in arrays else np.int32(symbols[p.name]) for p in parameters]
            kernel((*grid, 1, 1)[:3], (*block, 1, 1)[:3], tuple(args))
            cupy.cuda.Device().synchronize()


def read_profile(text: str) -> list[dict[str, int | str]]:
    """Nsight Compute's CSV as one row for each launch of `launch_all`, in its order."""
    ours = {metric: name for name, metric in METRICS.items()}
    launches: dict[int, dict[str, int | str]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        if row["Metric Name"] in ours:
            counted = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"].split("(")[0]})
            counted[ours[row["Metric Name"]]] = int(row["Metric Value"].replace(",", ""))
    expected = [(rung, name) for rung in LADDER for name in GEOMETRIES]
    assert len(launches) == len(expected), f"{len(launches)} launches profiled, {len(expected)} expected"
    rows = []
    for (rung, name), (_, counted) in zip(expected, sorted(launches.items()), strict=True):
        assert counted.pop("kernel") == rung
        rows.append({"rung": rung, "geometry": name, **counted})
    return rows


def main() -> None:
    command = ["ncu", "--clock-control", "none", "--csv", "--metrics", ",".join(METRICS.values())]
    program = [sys.executable, __file__, "launch"]
    profile = subprocess.run([*command, "-k", "regex:^direct", *program], capture_output=True, text=True, check=True)
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
