"""Record what Nsight Compute counts of kernels, for the very PTX that the engine executes.

    python tests/kernels/hardware/record.py [NAME...]     # on a machine with a GPU and ncu; writes counters.json here

The kernels are those of `kernels/*.cu`, and the ladder's rungs on several geometries: all, or those that are named.
Called with `launch` it is the program under the profiler: every case once, in order.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import annotated
import numpy as np

from convladder.kernels import gpu, plan
from convladder.kernels.arguments import out
from convladder.kernels.errors import GeometryError
from convladder.kernels.launch import compile_cuda
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.module import Backend, Module
from convladder.kernels.result import Counters
from convladder.kernels.rungs import (
    GRADIENTS,
    LADDER,
    check_geometry,
    convolution,
    convolution_module,
    convolution_source,
    ladder_source,
)

HERE = Path(__file__).parent
RECORD = HERE / "counters.json"

#: Lab 1's layer, one with odd sizes and strides in which warps diverge, one over many blocks, and one whose matrices
#: have rows of whole float4.
GEOMETRIES = {
    "layer": ConvGeometry(1, 3, 32, 32, 4, 3, 3, (1, 1), (1, 1)),
    "odd": ConvGeometry(2, 5, 37, 29, 3, 3, 5, (2, 2), (2, 2)),
    "wide": ConvGeometry(1, 3, 256, 256, 2, 3, 3, (1, 1), (1, 1)),
    "even": ConvGeometry(2, 4, 16, 16, 8, 3, 3, (1, 1), (1, 1)),
}

_JOINED = {"shared_load_wavefronts": "neighbouring loads are joined into wider ones"}

#: Counters of rungs, or of a rung on a geometry, that differ from the hardware's, and why.
UNLIKE: dict[str | tuple[str, str], dict[str, str]] = {
    "gemm_shared": _JOINED,
    "csr_tiled": _JOINED,
    "csr_fitted": _JOINED,
}

_GLOBAL = "l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
_SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
_BY_ADDRESS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
_OPS = {"load": "ld", "store": "st", "atomic": "atom", "reduction": "red"}

#: Our names for Nsight Compute's metrics. Wavefronts are what the memory did, busy with other requests or not; those by
#: address follow from the instructions alone.
METRICS = {
    **{
        f"{ours}_{what}": _GLOBAL.format(what=what, op=op)
        for ours, op in _OPS.items()
        for what in ("requests", "sectors")
    },
    "shared_load_wavefronts": _SHARED.format(op="ld"),
    "shared_store_wavefronts": _SHARED.format(op="st"),
    "shared_atomic_wavefronts": _SHARED.format(op="atom"),
    "shared_load_by_address": _BY_ADDRESS.format(op="ld"),
    "shared_store_by_address": _BY_ADDRESS.format(op="st"),
    "shared_atomic_by_address": _BY_ADDRESS.format(op="atom"),
    "fmas": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "branches": "smsp__sass_branch_targets.sum",
    "divergent_branches": "smsp__sass_branch_targets_threads_divergent.sum",
    "warp_instructions": "smsp__inst_executed.sum",
}

#: Those that the engine counts too, and that an assembler does not change by predicates and unrolled loops.
EQUAL = {m for m in METRICS if "_by_" not in m} - {"branches", "divergent_branches", "warp_instructions"}

SHARED = ("shared_load", "shared_store", "shared_atomic")


def figures(c: Counters) -> dict[str, int]:
    """The engine's counters under the record's names."""
    return {
        **{f"{op}_requests": c.requests(op) for op in _OPS},
        **{f"{op}_sectors": c.sectors(op) for op in _OPS},
        "shared_load_wavefronts": c.wavefronts("load"),
        "shared_store_wavefronts": c.wavefronts("store"),
        "shared_atomic_wavefronts": c.wavefronts("atomic") + c.wavefronts("reduction"),
        "fmas": c.fmas,
        "branches": c.executed_branches,
        "divergent_branches": c.divergent_branches,
        "warp_instructions": c.warp_instructions,
    }


class Case(Protocol):
    """A kernel text with its data; `name` and `on` stand in the record."""

    @property
    def name(self) -> str: ...

    @property
    def on(self) -> str: ...

    @property
    def unlike(self) -> dict[str, str]: ...

    def plan(self) -> plan.Plan: ...

    def module(self, on: Backend) -> Module: ...

    def given(self) -> tuple[dict[str, int], dict[str, Any]]: ...


@dataclass(frozen=True)
class Rung:
    """A rung of the ladder on one of GEOMETRIES; every tenth weight is not zero where it takes CSR."""

    name: str
    on: str

    @property
    def unlike(self) -> dict[str, str]:
        return UNLIKE.get(self.name, {}) | UNLIKE.get((self.name, self.on), {})

    def plan(self) -> plan.Plan:
        return plan.parse(convolution_source(self.name))

    def module(self, on: Backend) -> Module:
        return convolution_module(self.name, on)[0]

    def given(self) -> tuple[dict[str, int], dict[str, Any]]:
        g = GEOMETRIES[self.on]
        w = np.ones(g.w_shape, np.float32)
        if LADDER[self.name].column is not None:
            w.reshape(-1)[np.arange(w.size) % 10 != 0] = 0
        x, y = np.ones(g.x_shape, np.float32), np.empty(g.y_shape, np.float32)
        prepared = convolution(self.name, g, x, w, y, "sim")
        return prepared.symbols, prepared.arrays


@dataclass(frozen=True)
class Gradient:
    """A rung of a convolution's gradients on one of GEOMETRIES."""

    name: str
    on: str

    @property
    def unlike(self) -> dict[str, str]:
        return UNLIKE.get(self.name, {}) | UNLIKE.get((self.name, self.on), {})

    def plan(self) -> plan.Plan:
        return plan.parse(ladder_source(self.name))

    def module(self, on: Backend) -> Module:
        return compile_cuda(ladder_source(self.name), on, options=self.plan().options())

    def given(self) -> tuple[dict[str, int], dict[str, Any]]:
        g = GEOMETRIES[self.on]
        made, shape = ("dx", g.x_shape) if self.name.startswith("data") else ("dw", g.w_shape)
        shapes = {"x": g.x_shape, "w": g.w_shape, "dy": g.y_shape}
        arrays = {name: np.ones(each, np.float32) for name, each in shapes.items()}
        return g.symbols(), arrays | {made: out(np.empty(shape, np.float32))}


def cases() -> Iterator[Case]:
    """Every counted kernel, then every rung on every geometry that it takes."""
    yield from annotated.annotated(annotated.COUNTED)
    for rung in LADDER:
        for name, g in GEOMETRIES.items():
            with contextlib.suppress(GeometryError):
                check_geometry(rung, g)
                yield Rung(rung, name)
    yield from (Gradient(rung, name) for rung in GRADIENTS for name in GEOMETRIES)


def launch_all(names: Sequence[str]) -> None:
    """Every launch of the named cases through CuPy, from the engine's PTX."""
    cupy = gpu.cupy_module()
    for case in chosen(names):
        launches = annotated.ready(cupy, case.module("sim"), case.plan(), *case.given())
        module = cupy.cuda.function.Module()
        module.load(case.module("sim").ptx.encode())
        cupy.cuda.runtime.profilerStart()
        for launch in launches:
            function = module.get_function(launch.kernel.entry)
            gpu.allow_shared(function, launch.shared)
            values = tuple(a.scalar if a.array is None else a.array for a in launch.args)
            function(launch.grid, launch.block, values, shared_mem=launch.shared)
        cupy.cuda.Device().synchronize()
        cupy.cuda.runtime.profilerStop()


def chosen(names: Sequence[str]) -> list[Case]:
    return [case for case in cases() if not names or case.name in names]


def read_profile(text: str, names: Sequence[str]) -> list[dict[str, int | str]]:
    """Nsight Compute's CSV as one row for each launch of `launch_all`, in its order."""
    ours = {metric: name for name, metric in METRICS.items()}
    launches: dict[int, dict[str, int | str]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if line.startswith('"')):
        if row["Metric Name"] in ours:
            counted = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"].split("(")[0]})
            counted[ours[row["Metric Name"]]] = int(row["Metric Value"].replace(",", ""))
    expected = [(case.name, case.on, line.kernel) for case in chosen(names) for line in case.plan().launches]
    assert len(launches) == len(expected), f"{len(launches)} launches profiled, {len(expected)} expected"
    rows = []
    for (name, on, kernel), (_, counted) in zip(expected, sorted(launches.items()), strict=True):
        assert counted["kernel"] == kernel
        rows.append({"name": name, "on": on, **counted})
    return rows


def runs() -> list[dict[str, Any]]:
    """The record: for each run of the profiler its device and what it counted."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else []


def recorded() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What was counted of the launches of each case (its name, what it ran on).

    Wavefronts are those by address where both are recorded; what the memory did is then called its passes.
    """
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in (row for run in runs() for row in run["launches"]):
        for op in SHARED:
            if f"{op}_by_address" in row:
                row[f"{op}_passes"] = row[f"{op}_wavefronts"]
                row[f"{op}_wavefronts"] = row.pop(f"{op}_by_address")
        rows.setdefault((row["name"], row["on"]), []).append(row)
    return rows


def keep(run: dict[str, Any]) -> None:
    """Add a run to the record; it replaces what older ones counted of the same cases."""
    wanted = {(case.name, case.on) for case in cases()} - {(row["name"], row["on"]) for row in run["launches"]}
    older = runs()
    for old in older:
        old["launches"] = [row for row in old["launches"] if (row["name"], row["on"]) in wanted]
    every = [old for old in older if old["launches"]] + [run]
    lines = json.dumps(every, indent=1)
    RECORD.write_text(re.sub(r"\{\n   \s*\"name\"[^}]*\}", _on_one_line, lines) + "\n")


def _on_one_line(match: re.Match[str]) -> str:
    return json.dumps(json.loads(match[0]))


def main(names: Sequence[str]) -> None:
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv"]
    command += ["--metrics", ",".join(METRICS.values())]
    program = [sys.executable, __file__, "launch", *names]
    profile = subprocess.run([*command, *program], capture_output=True, text=True)
    if profile.returncode:
        sys.exit(f"{profile.stdout[-2000:]}{profile.stderr[-2000:]}")
    keep(
        {
            "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "device": gpu.device_facts(),
            "command": " ".join(command),
            "launches": read_profile(profile.stdout, names),
        }
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["launch"]:
        launch_all(sys.argv[2:])
    else:
        main(sys.argv[1:])
