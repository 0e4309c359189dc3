"""The class from above."""

from __future__ import annotations

from typing import Any

from convladder.autograde.course.grades import Grades
from convladder.autograde.faces import overview, report
from convladder.autograde.judge.record import CheckRecord, SubmissionRecord


def record(student: str, score: float, **evidence: Any) -> SubmissionRecord:
    check = CheckRecord("t", "t.target", score == 10, score, 10, f"it takes {score} too long", evidence=evidence)
    return SubmissionRecord("toy", student, "", "", "", "sim", "counters", [check])


def test_points_are_spread_over_ten_parts_and_full_marks_are_in_the_last() -> None:
    parts = overview.distribution([record("a", 10), record("b", 9.5), record("c", 0), record("d", 4)])
    assert [p.count for p in parts] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 2]
    assert (parts[0].least, parts[-1].most) == (0, 100)


def test_the_typical_reason_is_of_the_most_frequent_kind_whatever_its_numbers() -> None:
    assert overview.typical(["y[0] is 3", "no launch", "y[7] is -2.5e-3"]) == "y[0] is 3"
    assert overview.typical([]) == ""


def test_the_fastest_and_the_slowest_are_named_by_time_or_counters() -> None:
    timed = [record(f"s{n}", 10, medians_us={"text": 10.0 - n}) for n in range(6)]
    (ends,) = overview.ends(timed)
    assert [who for who, _ in ends.best] == ["s5", "s4", "s3"]
    assert [who for who, _ in ends.worst] == ["s0", "s1", "s2"]
    counted = [record(f"s{n}", 10, value=float(n), expression="sectors") for n in range(6)]
    assert overview.ends(counted)[0].best[0] == ("s0", "0 sectors")
    assert overview.ends(counted[:3]) == []


def test_the_page_of_a_class_shows_all_three() -> None:
    graded = [record(f"<i>{n}", n, value=float(n), expression="sectors") for n in range(8)]
    page = report.class_page(Grades("toy", graded), "Toy")
    for part in ("How the points are spread", "70–80 %", "The fastest kernels", "7 sectors", "too long"):
        assert part in page
    assert "<i>0" not in page
