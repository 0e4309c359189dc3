"""The engine's counters against Nsight Compute's, recorded on a GPU for the same PTX."""

import json

import numpy as np
import pytest
import record
import updates

from convladder.kernels import plan

CASES = {(case.name, case.on): case for case in record.cases()}
RECORDED = record.recorded()
UPDATES = json.loads((record.HERE / "updates.json").read_text())
BRANCHES = ("branches", "divergent_branches")


def counted(case):
    """The engine's figures beside the hardware's, launch by launch."""
    launches = plan.run(case.module("sim"), case.plan(), *case.given())
    assert [result.faults for _, result in launches] == [[]] * len(launches)
    for (kernel, result), row in zip(launches, RECORDED[case.name, case.on], strict=True):
        assert kernel == row["kernel"]
        yield record.figures(result.counters), row


def test_every_kernel_rung_and_geometry_is_recorded():
    """Run record.py with the name of what is missing."""
    assert sorted(RECORDED) == sorted(CASES)


@pytest.mark.parametrize("place", CASES, ids="-".join)
def test_the_engine_counts_what_the_hardware_counted(place):
    case = CASES[place]
    differs = set()
    for ours, hardware in counted(case):
        compared = (record.EQUAL & hardware.keys()) - case.unlike.keys()
        assert {name: ours[name] for name in compared} == {name: hardware[name] for name in compared}
        differs |= {name for name in case.unlike if ours[name] != hardware[name]}
    assert differs == case.unlike.keys(), "what is said to be unlike is equal"


@pytest.mark.parametrize("name", ["trips", "leaves_early", "collatz"])
def test_branches_that_the_assembler_keeps_diverge_as_often_as_on_the_hardware(name):
    (case,) = (case for case in CASES.values() if case.name == name)
    for ours, hardware in counted(case):
        assert {b: ours[b] for b in BRANCHES} == {b: hardware[b] for b in BRANCHES}
        assert ours["divergent_branches"] > 0


@pytest.mark.parametrize("name", updates.UPDATES)
def test_updates_of_shared_memory_take_the_passes_that_a_gpu_counted(engine, name):
    source = updates.KERNEL % (name, *updates.UPDATES[name])
    for row in (row for row in UPDATES["rows"] if row["update"] == name):
        at = np.array(UPDATES["patterns"][row["pattern"]], np.int32)
        out = engine.run(source, 1, 32, {"at": at, "y": np.zeros(32, np.int32)})
        counted = out.counters.wavefronts("atomic") + out.counters.wavefronts("reduction")
        assert counted == row["atomic"] == row["atomic_by_address"], row["pattern"]


def test_a_busy_memory_takes_more_passes_than_the_addresses_ask_for_never_fewer():
    passes = [
        (row[f"{op}_passes"], row[f"{op}_wavefronts"])
        for rows in RECORDED.values()
        for row in rows
        for op in record.SHARED
        if f"{op}_passes" in row
    ]
    assert all(took >= needed for took, needed in passes)
    assert any(took > needed for took, needed in passes)
