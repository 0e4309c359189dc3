"""The engine's counters against Nsight Compute's, recorded on a GPU for the same PTX."""

import importlib.util
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "hardware"
RECORD = json.loads((FOLDER / "counters.json").read_text())

_spec = importlib.util.spec_from_file_location("record_hardware", FOLDER / "record.py")
assert _spec is not None
assert _spec.loader is not None
record_hardware = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(record_hardware)


RECORDED = {
    (rung, name): list(rows)
    for (rung, name), rows in itertools.groupby(RECORD["launches"], key=lambda row: (row["rung"], row["geometry"]))
}


def test_every_rung_and_geometry_is_recorded():
    assert list(RECORDED) == list(record_hardware.cases())


@pytest.mark.parametrize(("rung", "geometry"), RECORDED)
def test_requests_sectors_and_multiply_adds_equal_the_hardwares(rung, geometry):
    launches = record_hardware.case(rung, record_hardware.GEOMETRIES[geometry], np).run()
    assert [result.faults for _, result in launches] == [[]] * len(launches)
    assert [
        {
            "rung": rung,
            "geometry": geometry,
            "kernel": kernel,
            "load_requests": result.counters.requests("load"),
            "load_sectors": result.counters.sectors("load"),
            "store_requests": result.counters.requests("store"),
            "store_sectors": result.counters.sectors("store"),
            "fmas": result.counters.fmas,
        }
        for kernel, result in launches
    ] == RECORDED[rung, geometry]
