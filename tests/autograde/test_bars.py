"""Bars: what they say in words, as characters and as SVG, and which evidence they are drawn from."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from convladder.autograde.faces import bars
from convladder.autograde.faces.bars import YOURS, Bar, Bars
from convladder.kernels.result import Access, Counters

TARGET = {"base_rung": "slow", "target_rung": "fast", "base": 8000.0, "value": 4000.0, "target": 2000.0,
          "expression": "sectors"}  # fmt: skip


def lengths(drawn: Bars) -> list[int]:
    """Characters that each bar takes."""
    return [len(re.findall("[█░─●]", line)) for line in drawn.text().splitlines()[1 : 1 + len(drawn.bars)]]


def test_a_kernel_stands_between_base_and_target_in_proportion():
    drawn = bars.standing(TARGET)
    assert [bar.name for bar in drawn.bars] == ["slow (base)", YOURS, "fast (target)"]
    assert lengths(drawn) == [40, 20, 10]
    assert drawn.alt == "sectors, the fewer the better. slow (base): 8,000; your kernel: 4,000; fast (target): 2,000."


def test_times_take_the_place_of_counters_where_they_were_measured():
    timed = {**TARGET, "medians_us": {"base": 2500.0, "text": 900.0, "target": 800.0}}
    assert [bar.said for bar in bars.standing(timed).bars] == ["2.5 ms", "900 µs", "800 µs"]


@pytest.mark.parametrize(("at_most", "side"), [(True, "at most"), (False, "at least")])
def test_a_threshold_is_a_line_across_the_bar(at_most, side):
    drawn = bars.standing({"value": 512.0, "limit": 2048.0, "at_most": at_most, "expression": "blocks"})
    assert drawn.mark == (2048.0, f"{side} 2,048")
    assert lengths(drawn) == [10]
    assert drawn.mark[1] in drawn.alt


@pytest.mark.parametrize("evidence", [{}, {"value": None, "limit": 1.0, "at_most": True, "expression": "x"},
                                      {**TARGET, "base": "many"}, {"case": "layer"}])  # fmt: skip
def test_without_numbers_nothing_is_drawn(evidence):
    assert bars.standing(evidence) is None


def test_moved_bytes_show_what_of_them_was_asked_for():
    access = Access(
        line=1, array="x", op="load", pc=0, requests=1, threads=32, sectors=32, sectors_ideal=4, bytes_needed=128
    )
    drawn = bars.moved(Counters([access]))
    assert drawn.bars == [Bar("loads", 1024, "1.0 KiB, 128 B of them asked for", 128)]
    assert drawn.text().splitlines()[1].count("█") * 8 == 40
    assert bars.moved(Counters()) is None


def test_the_roofline_says_which_share_of_the_peak_memory_can_feed():
    drawn = bars.roofline({"a": (1e6, 1e6), YOURS: (4e7, 1e6), "copy": (0, 5)}, "a GPU", 2000.0, 40_000.0)
    assert drawn.mark == (20.0, "from 20 on arithmetic decides")
    assert [bar.said for bar in drawn.bars] == ["1: at most 5.0% of the peak", "40: at most 100% of the peak"]
    first, second = lengths(drawn)
    assert first < second == 40
    assert bars.roofline({"copy": (0, 5)}, "a GPU", 2000.0, 40_000.0) is None


@pytest.mark.parametrize(
    "drawn",
    [bars.standing(TARGET), Bars("<b>", [Bar("<i>", 3.0, '"&', 1.0)], (9.0, "<u>")),
     bars.roofline({YOURS: (3.0, 2.0)}, "<gpu>", 1.0, 9.0)],
    ids=["target", "hostile", "log"],
)  # fmt: skip
def test_the_svg_is_well_formed_says_all_in_its_label_and_stays_inside_its_box(drawn):
    root = ElementTree.fromstring(str(drawn.svg()))
    assert root.get("aria-label") == drawn.alt
    shown = [element.text for element in root if element.tag == "text"]
    assert {bar.name for bar in drawn.bars} | {bar.said for bar in drawn.bars} <= set(shown)
    for shape in root.iter("rect"):
        assert (
            0 <= float(shape.get("x")) <= float(shape.get("x")) + float(shape.get("width")) <= float(root.get("width"))
        )
