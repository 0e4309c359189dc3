"""The engine's counters against Nsight Compute's, recorded on a GPU for the same PTX."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from convladder.kernels import compile_cuda, out, plan
from convladder.kernels.methods import LADDER, ladder_source

FOLDER = Path(__file__).parent / "hardware"
RECORD = json.loads((FOLDER / "counters.json").read_text())

_spec = importlib.util.spec_from_file_location("record_hardware", FOLDER / "record.py")
assert _spec is not None
assert _spec.loader is not None
record_hardware = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(record_hardware)


def test_every_rung_and_geometry_is_recorded():
    recorded = [(row["rung"], row["geometry"]) for row in RECORD["launches"]]
    assert recorded == [(rung, name) for rung in LADDER for name in record_hardware.GEOMETRIES]


@pytest.mark.parametrize("row", RECORD["launches"], ids=lambda row: f"{row['rung']}-{row['geometry']}")
def test_requests_sectors_and_multiply_adds_equal_the_hardwares(row):
    g = record_hardware.GEOMETRIES[row["geometry"]]
    text = plan.parse(ladder_source(row["rung"]))
    module = compile_cuda(ladder_source(row["rung"]), options=text.options())
    arrays = {
        "x": np.ones(g.x_shape, np.float32),
        "w": np.ones(g.w_shape, np.float32),
        "y": out(np.empty(g.y_shape, np.float32)),
    }
    ((_, result),) = plan.run(module, text, g.symbols(), arrays)
    counters = result.counters
    assert result.faults == []
    assert {
        "load_requests": counters.requests("load"),
        "load_sectors": counters.sectors("load"),
        "store_requests": counters.requests("store"),
        "store_sectors": counters.sectors("store"),
        "fmas": counters.fmas,
    } == {name: row[name] for name in record_hardware.METRICS}
