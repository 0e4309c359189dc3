"""The engine's counters against Nsight Compute's, recorded on a GPU for the same PTX."""

import pytest
import record

from convladder.kernels import plan

CASES = {(case.name, case.on): case for case in record.cases()}
RECORDED = record.recorded()
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
