"""What a warp's lanes touch: as evidence, in characters and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.faces import report, terminal
from convladder.autograde.faces.lanes import LaneMap, lane_map, worst
from convladder.autograde.judge import check_task, lanes, measure_task, spec
from convladder.autograde.judge.record import CheckRecord
from convladder.autograde.judge.sandbox import Worker
from convladder.autograde.judge.spec import Spec


def access(offsets: list[int | None], shape: tuple[int, ...] = (), size: int = 4, border: int = 0) -> dict[str, Any]:
    return {
        "line": 7, "op": "load", "array": "x", "space": "global", "size": size, "offsets": offsets,
        "shape": list(shape), "border": border, "block": 0, "warp": 0,
    }  # fmt: skip


def drawn(*args: Any, **how: Any) -> LaneMap:
    found = lane_map(access(*args, **how))
    assert found is not None
    return found


def test_lanes_stand_on_the_elements_that_they_touch_within_the_padding() -> None:
    found = drawn([0, 4, None, 16], shape=(1, 1, 2, 4), border=1)
    assert found.text().splitlines() == ["░░░░░░", "░01··░", "░3···░", "░░░░░░"]
    assert found.title == "line 7, load of x: 3 lanes touch 1 sector (warp 0 of block 0)"
    assert found.caption.startswith("x[0,0,:,:]; ")


def test_several_lanes_at_one_element_and_wide_accesses_are_shown() -> None:
    assert drawn([0, 0, 4], shape=(2, 4)).text().splitlines() == ["*2··", "····"]
    assert drawn([0, 8], shape=(2, 4), size=8).text().splitlines() == ["0011", "····"]


def test_an_array_without_planes_is_drawn_in_rows_of_32() -> None:
    found = drawn([4 * 32 * lane for lane in range(4)], shape=(128,))
    assert [line[0] for line in found.text().splitlines()] == ["0", "1", "2", "3"]
    assert found.waste == 3


@pytest.mark.parametrize("shape", [(33,), (3, 11)])
def test_lanes_beyond_the_last_element_are_told_from_those_inside(shape: tuple[int, ...]) -> None:
    found = drawn([4 * (32 + lane) for lane in range(3)], shape=shape)
    assert found.text().splitlines()[-1].startswith("012░░")
    assert found.caption.endswith("; 2 lanes beyond the last element")
    assert "beyond" not in drawn([128], shape=shape).caption + drawn([128]).caption


def test_the_plane_that_most_lanes_touch_is_drawn_and_the_others_are_counted() -> None:
    found = drawn([4 * 16 * 3, 4 * 16 * 3 + 4, 0], shape=(2, 2, 4, 4))
    assert found.caption.startswith("x[1,1,:,:]; 1 lane in other planes")


def test_of_a_large_plane_the_part_around_the_lanes_is_drawn() -> None:
    found = drawn([4 * (500 * 1000 + 700)], shape=(1000, 1000))
    assert found.text().splitlines() == ["···", "·0·", "···"]
    assert "from row 499, column 699 on" in found.caption


def test_lanes_far_apart_never_draw_more_than_a_page() -> None:
    found = drawn([4 * 1000 * 31 * lane for lane in range(32)], shape=(1000, 1000))
    assert len(found.text().splitlines()) <= 34


@pytest.mark.parametrize(
    "broken",
    [
        {},
        access([]),
        access([None] * 32),
        access([-4]),
        access(["x"]),
        access([0], size=1),
        {**access([0]), "shape": 3},
    ],  # type: ignore[list-item]
)
def test_what_is_no_access_draws_nothing(broken: dict[str, Any]) -> None:
    assert lane_map(broken) is None


def test_the_picture_says_in_words_what_it_shows_and_escapes_names() -> None:
    found = lane_map({**access([0], shape=(2, 2)), "array": "<script>"})
    assert found is not None
    assert "<script>" not in found.svg()
    assert 'role="img"' in found.svg()
    assert "touches 1 sector" in found.svg()


@pytest.mark.parametrize(
    ("offsets", "size", "wavefronts"),
    [
        ([4 * lane for lane in range(32)], 4, "1 wavefront"),
        ([0] * 32, 4, "1 wavefront"),  # one word for all
        ([8 * lane for lane in range(32)], 4, "2 wavefronts, 1 would do"),
        ([128 * lane for lane in range(32)], 4, "32 wavefronts, 1 would do"),
        ([132 * lane for lane in range(32)], 4, "1 wavefront"),  # a row of padding
        ([16 * lane for lane in range(32)], 16, "4 wavefronts"),
    ],
)
def test_shared_memory_is_drawn_by_its_banks(offsets: list[int], size: int, wavefronts: str) -> None:
    found = lane_map({**access(offsets, size=size), "space": "shared"})  # type: ignore[arg-type]
    assert found is not None
    assert found.title.startswith(f"line 7, load of x: 32 lanes take {wavefronts} (")
    assert "32 banks" in found.caption
    assert not found.frames


def test_the_worst_access_wastes_most() -> None:
    good, bad = drawn([0, 4]), drawn([0, 64])
    assert worst([good, bad]) is bad
    assert worst([]) is None


# ---- from a kernel to its picture


def test_measuring_a_kernel_tells_what_a_chosen_warp_touches(tiny: Spec, conv: str, worker: Worker) -> None:
    found = measure_task(tiny, "conv", conv, worker, case="one", watch=(0, 0)).lanes
    by_array = {a["array"]: a for a in found}
    assert set(by_array) == {"x", "w", "y"}
    assert by_array["x"]["border"] == 1
    assert by_array["y"]["offsets"][:3] == [0, 4, 8]
    assert measure_task(tiny, "conv", conv, worker, case="one").lanes == []


def test_a_block_or_warp_that_is_not_there_touches_nothing(tiny: Spec, conv: str, worker: Worker) -> None:
    for watch in ((10**9, 0), (0, 10**9), (-1, 0)):
        assert measure_task(tiny, "conv", conv, worker, case="one", watch=watch).lanes == []


def test_a_wasted_request_is_drawn_with_its_check(worker: Worker) -> None:
    text = (Path(__file__).parents[2] / "solutions/01_direct/wrong/coalesced_not_at_all.cu").read_text()
    records = check_task(spec.load("01_direct", hidden=False), "direct_coalesced", text, worker, hidden=False)
    (record,) = (r for r in records if r.check == "direct_coalesced.counters.stores")
    seen = record.evidence["lanes"]
    assert (seen["array"], seen["op"]) == ("y", "store")
    assert "32 lanes touch 16 sectors, 4 would do" in terminal.as_text(terminal.checks([record], {}))


def test_a_check_with_lanes_shows_them_in_text_and_on_the_page() -> None:
    record = CheckRecord("t", "t.stores", False, 0, 1, "wasteful", evidence={"lanes": access([0, 64], shape=(4, 8))})
    assert "2 lanes touch 2 sectors, 1 would do" in terminal.as_text(terminal.checks([record], {}))
    assert "2 lanes touch 2 sectors, 1 would do" in report.cell_html([record], {}, {})


@pytest.mark.parametrize("header", [{}, {"accesses": 3}, {"accesses": [{"line": 1}]}, {"accesses": [{"offsets": "x"}]}])
def test_a_forged_reply_shows_nothing(header: dict[str, Any]) -> None:
    assert lanes._read(header) == []
