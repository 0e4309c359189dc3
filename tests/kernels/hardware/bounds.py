"""Record what bounds the best sparse rungs on a GPU: how busy its units are, and what warps wait for.

    python tests/kernels/hardware/bounds.py        # on a machine with a GPU and ncu; writes bounds.json here

Called with `launch` it is the program under the profiler: every case once, in order, after a first run of each.
"""

from __future__ import annotations

import csv
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from convladder.kernels import gpu, workloads
from convladder.kernels.rungs import convolution

HERE = Path(__file__).parent
RECORD = HERE / "bounds.json"

#: Rung, network and layer of the sparse paper, at its batch.
CASES = (
    ("csr", "alexnet", "conv3"),
    ("csr_tiled", "alexnet", "conv3"),
    ("csr_fitted", "alexnet", "conv3"),
    ("csr_images", "alexnet", "conv3"),
    ("csr_staged", "alexnet", "conv3"),
    ("csr_staged", "alexnet", "conv4 ungrouped"),
    ("csr_staged", "resnet50", "res3a"),
    ("csr_staged", "resnet50", "res5a"),
)
BATCH = 128

_BUSY = "{}.avg.pct_of_peak_sustained_elapsed"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = (
    "long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "barrier", "wait", "not_selected",
    "math_pipe_throttle", "no_instruction",
)  # fmt: skip

#: Our names for Nsight Compute's metrics: per cent of each unit's peak; warps that wait for something in each cycle in
#: which a scheduler issues.
METRICS = {
    "ns": "gpu__time_duration.sum",
    "dram": _BUSY.format("dram__throughput"),
    "l2": _BUSY.format("lts__throughput"),
    "load_store": _BUSY.format("l1tex__data_pipe_lsu_wavefronts"),
    "issue": _BUSY.format("sm__inst_issued"),
    "fma": _BUSY.format("sm__inst_executed_pipe_fma"),
    "warps": _BUSY.format("sm__warps_active").replace("elapsed", "active"),
    **{stall: _STALL.format(stall) for stall in STALLS},
}


def launch_all() -> None:
    cupy = gpu.cupy_module()
    for rung, network, name in CASES:
        found = (part for layer in workloads.layers(network) for part in (layer, layer.ungrouped()))
        layer = next(part for part in found if part.name == name)
        g = layer.batch(BATCH)
        w = workloads.weights(g, layer.nnz)
        x = cupy.random.default_rng(0).standard_normal(g.x_shape, dtype="float32")
        launches = convolution(rung, g, x, w, cupy.empty(g.y_shape, "float32"), "gpu").ready("gpu")
        for profiled in (False, True):
            if profiled:
                cupy.cuda.runtime.profilerStart()
            for launch in launches:
                if not profiled or launch.kernel.name == rung:
                    launch.kernel.module.image.enqueue(launch)  # type: ignore[attr-defined]
            cupy.cuda.Device().synchronize()
        cupy.cuda.runtime.profilerStop()


def read_profile(text: str) -> list[dict[str, Any]]:
    """Nsight Compute's CSV as one row for each case."""
    ours = {metric: name for name, metric in METRICS.items()}
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        if row["Metric Name"] in ours:
            value = float(row["Metric Value"].replace(",", ""))
            found.setdefault(int(row["ID"]), {})[ours[row["Metric Name"]]] = round(value, 2)
    assert len(found) == len(CASES), f"{len(found)} launches profiled, {len(CASES)} expected"
    names = [dict(zip(("rung", "network", "layer"), case, strict=True)) for case in CASES]
    return [{**name, **counted} for name, (_, counted) in zip(names, sorted(found.items()), strict=True)]


def recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text())


def main() -> None:
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv", "--print-units", "base"]
    command += ["--metrics", ",".join(METRICS.values())]
    profile = subprocess.run([*command, sys.executable, __file__, "launch"], capture_output=True, text=True)
    if profile.returncode:
        sys.exit(f"{profile.stdout[-2000:]}{profile.stderr[-2000:]}")
    rows = ",\n".join(f"  {json.dumps(row)}" for row in read_profile(profile.stdout))
    head = {
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.device_facts(),
        "command": " ".join(command),
    }
    RECORD.write_text(f'{json.dumps(head, indent=1).removesuffix("}").rstrip()},\n "launches": [\n{rows}\n ]\n}}\n')


if __name__ == "__main__":
    launch_all() if sys.argv[1:] == ["launch"] else main()
