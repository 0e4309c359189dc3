"""The reader of a profile of waits for instructions, on a profile made by hand."""

import fetch_stalls
import pytest


def profile(launches: list[tuple[str, float, float]]) -> str:
    """Nsight Compute's CSV of (kernel, nanoseconds, warps that wait for an instruction per issue)."""
    lines = ['"ID","Kernel Name","Metric Name","Metric Value"']
    for number, (kernel, ns, waiting) in enumerate(launches):
        values = {"ns": f"{ns:,.0f}", "waiting": waiting, "warps": 8.0, "issuing": 0.5}
        lines += [
            f'"{number}","{kernel}(float *)","{fetch_stalls.METRICS[n]}","{value}"' for n, value in values.items()
        ]
    return "==PROF== Connected\n" + "\n".join(lines)


def test_of_each_way_the_longest_kernel_counts():
    launches = [("short", 1000, 9.0), ("long", 2000, 3.0), (fetch_stalls.MARKER, 5, 0.0)] * len(fetch_stalls.CASES)
    rows = fetch_stalls.read_profile(profile(launches))
    assert [(row["operator"], row["way"]) for row in rows] == fetch_stalls.CASES
    # 8 warps, an issue every second cycle: 16 cycles from instruction to instruction, 15 of them waits
    assert {(row["kernel"], row["fetch_stalls"]) for row in rows} == {("long", 20.0)}


def test_a_profile_of_fewer_ways_is_refused():
    with pytest.raises(AssertionError, match="1 ways profiled, 30 expected"):
        fetch_stalls.read_profile(profile([("long", 1, 1.0), (fetch_stalls.MARKER, 5, 0.0)]))
