"""Record how much of their time warps wait for instructions: table 5 of the code-generation paper in form.

    python tests/kernels/hardware/fetch_stalls.py     # on a machine with a GPU and ncu; writes fetch_stalls.json here

Its ten operators with 0.9 of the weights zero, by cuDNN in strict FP32, by cuSPARSE and by weights as code. Called with
`launch` it is the program under the profiler: every way of every operator in order, a marker after each.
"""

from __future__ import annotations

import csv
import datetime
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from convladder.kernels import codegen, cudnn, cusparse, gpu, workloads
from convladder.kernels.bench import codesize

HERE = Path(__file__).parent
RECORD = HERE / "fetch_stalls.json"

WAYS = ("cudnn", "cusparse", "codegen")
SPARSITY = 0.9
MARKER = "marker"
CASES = [(operator, way) for operator in codesize.OPERATORS for way in WAYS]

#: The paper's shares, in per cent, by way: its table 5, one of each operator.
PAPER = {
    "cudnn": (4.89, 5.02, 6.81, 6.30, 4.77, 3.95, 4.86, 4.91, 3.60, 3.28),
    "cusparse": (5.03, 5.96, 6.58, 6.41, 5.11, 4.03, 4.08, 9.87, 4.23, 3.74),
    "codegen": (1.64, 2.12, 3.24, 2.67, 4.31, 2.83, 3.50, 1.49, 2.27, 2.70),
}

#: Warps that wait for an instruction, warps that are there, and whether one issues, all of a scheduler in each cycle.
METRICS = {
    "ns": "gpu__time_duration.sum",
    "waiting": "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio",
    "warps": "smsp__warps_active.avg.per_cycle_active",
    "issuing": "smsp__issue_active.avg.per_cycle_active",
}


def launch_all() -> None:
    cupy = gpu.cupy_module()
    marker = cupy.RawKernel(f'extern "C" __global__ void {MARKER}() {{}}', MARKER)
    for operator in codesize.OPERATORS:
        g = codesize.geometry(operator)
        w = workloads.weights(g, round(g.K * g.products * (1 - SPARSITY)))
        x = cupy.random.default_rng(0).standard_normal(g.x_shape, dtype="float32")
        y, device_w = cupy.empty(g.y_shape, "float32"), cupy.asarray(w)
        runs = {
            "cudnn": partial(cudnn.best(g).enqueue, x, device_w, y),
            "cusparse": cusparse.Convolution(g, x, w, y).enqueue,
            "codegen": partial(codegen.Convolution(g, w).enqueue, x, y),
        }
        for way in WAYS:
            runs[way]()  # loads the code
            cupy.cuda.Device().synchronize()
            cupy.cuda.runtime.profilerStart()
            runs[way]()
            marker((1,), (1,), ())
            cupy.cuda.Device().synchronize()
            cupy.cuda.runtime.profilerStop()


def share(counted: dict[str, float]) -> float:
    """Of all that a kernel's warps wait for, the share of instructions, in per cent.

    Warps per issue are the cycles from one instruction of a warp to its next, one of which issues it.
    """
    cycles = counted["warps"] / counted["issuing"]
    return 100 * counted["waiting"] / (cycles - 1)


def read_profile(text: str) -> list[dict[str, Any]]:
    """Nsight Compute's CSV as one row for each case: its longest kernel."""
    ours = {metric: name for name, metric in METRICS.items()}
    launches: dict[int, dict[str, Any]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        if row["Metric Name"] in ours:
            found = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"].split("(")[0]})
            found[ours[row["Metric Name"]]] = float(row["Metric Value"].replace(",", ""))
    parts: list[list[dict[str, Any]]] = [[]]
    for _, launch in sorted(launches.items()):
        if launch["kernel"] == MARKER:
            parts.append([])
        else:
            parts[-1].append(launch)
    *parts, after = parts
    assert not after
    assert len(parts) == len(CASES), f"{len(parts)} ways profiled, {len(CASES)} expected"
    longest = [max(part, key=lambda launch: launch["ns"]) for part in parts]
    return [
        {
            "operator": operator, "way": way, "kernel": launch["kernel"][:80], "ns": launch["ns"],
            "fetch_stalls": round(share(launch), 2),
        }
        for (operator, way), launch in zip(CASES, longest, strict=True)
    ]  # fmt: skip


def recorded() -> dict[str, Any]:
    """What is kept: the device, and a row for each operator and way."""
    kept: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return kept


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
    RECORD.write_text(f'{json.dumps(head, indent=1).removesuffix("}").rstrip()},\n "operators": [\n{rows}\n ]\n}}\n')


if __name__ == "__main__":
    launch_all() if sys.argv[1:] == ["launch"] else main()
