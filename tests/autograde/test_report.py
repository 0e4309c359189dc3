"""Pages and tables drawn from records: nothing that a student wrote may act, everything must be there."""

from __future__ import annotations

import json
from dataclasses import asdict
from html.parser import HTMLParser
from typing import Any

import pytest

from convladder.autograde.course.grade import Grades
from convladder.autograde.faces import report, terminal, traffic
from convladder.autograde.faces.pictures import wrong_map
from convladder.autograde.judge.record import CheckRecord, SubmissionRecord
from convladder.kernels.compiler import compile_ptx
from convladder.kernels.errors import CompileError
from convladder.kernels.result import Access, Branch, Counters, SharedAccess

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\x1b]0;title\x07&amp;"
TITLES = {"index": "Which input?", "direct": "The direct kernel", "explain": "In words"}


def judged(student: str = "ada", problems: list[str] | None = None, **changes: Any) -> SubmissionRecord:
    checks = [
        CheckRecord("index", "index.correct", True, 5, 5),
        CheckRecord("direct", "direct.compiles", True, 0, 0),
        CheckRecord("direct", "direct.runs", True, 6, 6),
        CheckRecord("direct", "direct.correct", False, 0, 12, "y[0,0,0,0] is 1.25, expected 0.5", "Step 2"),
        CheckRecord("direct", "direct.hidden", None, 0, 12, hidden=True),
        CheckRecord("direct", "direct.target", None, 0, 15),
        CheckRecord("explain", "explain.explanation", None, 0, 5, manual=True),
    ]
    fields: dict[str, Any] = {
        "lab": "lab", "student": student, "notebook": "n.ipynb", "sha256": "s", "spec_sha256": "p", "on": "sim",
        "timing": "counters", "checks": checks, "problems": problems or [], "sandbox": "bwrap",
    }  # fmt: skip
    return SubmissionRecord(**(fields | changes))


class Page(HTMLParser):
    """The elements and the visible text of a page."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input", "wbr"})

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open[-1:]:
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    def assert_harmless(self) -> None:
        assert {tag for tag, _ in self.tags} <= {
            "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "b", "br", "small", "span", "code",
            "pre", "div", "section", "details", "summary", "figure", "figcaption", "svg", "rect", "path", "text", "g",
            "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "wbr",
        }  # fmt: skip
        for tag, attributes in self.tags:
            assert not [a for a in attributes if a.startswith("on") or a in ("src", "srcset", "action")], tag
            target = attributes.get("href") or ""
            assert not target or target.startswith("feedback/"), target
        assert not [c for c in self.text if ord(c) < 32 and c not in "\n\t"]


def hostile() -> SubmissionRecord:
    checks = [
        CheckRecord(
            "direct", "direct.runs", False, 0, 6, f"rationale {HOSTILE}", f"help {HOSTILE}",
            {"line": 1, "source": f"y[0] = 1; // source {HOSTILE}", "log": f"kernel.cu(1): error: {HOSTILE}"},
        ),
        CheckRecord("direct", "direct.hidden", False, 0, 6, "numbers", evidence={"category": "wrong"}, hidden=True),
    ]  # fmt: skip
    return judged(f"student {HOSTILE}", [f"problem {HOSTILE}"], checks=checks)


def test_a_feedback_page_escapes_everything_a_student_wrote() -> None:
    page = Page(report.feedback_page(hostile(), f"title {HOSTILE}", {"direct": f"task {HOSTILE}"}))
    page.assert_harmless()
    for part in ("student", "problem", "title", "task", "rationale", "help", "source"):
        assert f"{part} <script>alert(1)</script>" in page.words


def test_a_class_page_escapes_everything_a_student_wrote() -> None:
    page = Page(report.class_page(Grades("lab", [hostile(), judged()]), f"title {HOSTILE}"))
    page.assert_harmless()
    for part in ("student", "problem", "title", "rationale"):
        assert f"{part} <script>alert(1)</script>" in page.words


def test_a_link_from_the_class_page_leads_to_the_file_that_feedback_is_written_to(tmp_path: Any) -> None:
    from urllib.parse import unquote

    for student in ("ada", "a b/../c", "50%", "Ünal", "<script>", "#1?x=2", "~x"):
        record = judged(student)
        written = report.write_feedback(record, tmp_path, "Lab", TITLES)
        page = Page(report.class_page(Grades("lab", [record]), "Lab"))
        links = {unquote(str(a["href"])) for tag, a in page.tags if tag == "a"}
        assert links == {str(written.relative_to(tmp_path))}
        assert written.parent == tmp_path / "feedback"


def test_a_page_loads_nothing_from_elsewhere() -> None:
    for html in (report.feedback_page(judged(), "Lab", TITLES), report.class_page(Grades("lab", [judged()]), "Lab")):
        page = Page(html)
        page.assert_harmless()
        assert "url(" not in html
        assert "@import" not in html
        policy = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy
        assert str(policy[0]).startswith("default-src 'none'")


def test_terminal_output_keeps_no_control_character_and_reads_no_markup() -> None:
    record = hostile()
    record.checks[0].rationale = "[bold]not markup[/bold] \x1b[2J \x9b31m\x08"
    shown = terminal.as_text(terminal.record(record, {})) + terminal.as_text(
        terminal.class_table(Grades("l", [record]))
    )
    assert "[bold]not markup[/bold]" in shown
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0]


def test_a_student_sees_of_a_hidden_case_its_category_only() -> None:
    record = judged()
    record.checks[4] = CheckRecord(
        "direct", "direct.hidden", False, 0, 12, "y[7] is 3 with seed 99",
        evidence={"category": "wrong values", "seed": 99}, hidden=True,
    )  # fmt: skip
    words = Page(report.feedback_page(record, "Lab", TITLES)).words
    assert "wrong values" in words
    assert "seed" not in words
    assert "y[7]" not in words


def test_one_mistake_is_one_loss_with_the_points_of_what_it_kept_from_being_reached() -> None:
    (loss,) = report.losses(judged())
    assert (loss.check, loss.points, loss.also) == ("direct.correct", 39, ("direct.hidden", "direct.target"))
    assert loss.reason == "y[0,0,0,0] is 1.25, expected 0.5"


def test_losses_and_score_add_up_to_the_maximum() -> None:
    record = judged()
    record.checks[2] = CheckRecord("direct", "direct.runs", True, 2.5, 6, "slow")
    assert sum(loss.points for loss in report.losses(record)) + record.score == record.max


def test_points_for_a_person_to_give_are_not_counted_as_lost() -> None:
    assert not [loss for loss in report.losses(judged()) if loss.check.startswith("explain")]


def test_the_first_failure_is_shown_in_full_and_passed_checks_fold_away() -> None:
    record = judged()
    record.checks[3].evidence = {"line": 7, "source": "    y[i] = sum;"}
    page = Page(report.feedback_page(record, "Lab", TITLES))
    assert "✗correct 0 / 12 y[0,0,0,0] is 1.25, expected 0.5 7 │ y[i] = sum; Step 2" in page.words
    assert "not reached: hidden, target" in page.words
    assert "2 passed" in page.words
    assert ("details", {"class": "passed"}) in page.tags


def test_every_verdict_has_a_word_beside_its_colour() -> None:
    page = Page(report.feedback_page(judged(), "Lab", TITLES))
    symbols = [a for _, a in page.tags if str(a.get("class", "")).startswith("sym ")]
    assert symbols
    assert all(a.get("aria-label") for a in symbols)


def test_a_compiler_error_stands_at_the_cells_line_with_text_and_caret() -> None:
    source = "\n//@ launch f grid=1 block=1\n\tint i = foo;\n"
    log = 'kernel.cu(3): error: identifier "foo" is undefined\n  \tint i = foo;\n  \t        ^\n\n1 error'
    event = {"log": log, "diagnostics": [[3, "error", 'identifier "foo" is undefined'], [3, "warning", "unused"]]}
    (complaint,) = report.complaints(event, source)
    assert complaint.message == 'line 3: identifier "foo" is undefined'
    (row,) = complaint.excerpt
    assert (row.number, row.text) == (3, "    int i = foo;")
    assert row.text[row.caret.index("^") :] == "foo;"


def test_a_message_of_an_included_file_has_no_line_of_the_cell() -> None:
    (complaint,) = report.complaints({"log": "x", "diagnostics": [[0, "error", "bad include"]]}, "a\nb")
    assert (complaint.message, list(complaint.excerpt)) == ("bad include", [])


@pytest.mark.parametrize(
    ("value", "shown"), [(12.0, "12"), (11.25, "11.25"), (0.1 + 0.2, "0.3"), (0, "0"), (100.0, "100")]
)
def test_points_are_written_as_people_write_them(value: float, shown: str) -> None:
    assert report.points(value) == shown


# --- pictures ------------------------------------------------------------------------------------


def evidence(shape: list[int], wrong: list[list[int]]) -> dict[str, Any]:
    axes = ["n", "k", "p", "q"][-len(shape) :]
    return {"array": "y", "shape": shape, "axes": axes, "element": wrong[0], "wrong_elements": wrong}


def test_a_map_shows_the_plane_of_the_first_wrong_element_alone() -> None:
    drawn = wrong_map(evidence([2, 1, 2, 3], [[1, 0, 0, 2], [1, 0, 1, 2], [0, 0, 0, 0]]))
    assert drawn is not None
    assert drawn.text() == "· · x\n· · x"
    assert "y[1,0,p,q]" in drawn.caption
    assert "2 of 6 elements wrong" in drawn.caption
    svg = drawn.svg()
    assert svg.count("<rect") == 6
    assert svg.count("<path") == 2
    assert f'aria-label="{drawn.caption}"' in svg


def test_a_large_plane_is_folded_and_says_so() -> None:
    drawn = wrong_map(evidence([100, 96], [[99, 95]]))
    assert drawn is not None
    assert (len(drawn.cells), len(drawn.cells[0])) == (34, 32)
    assert drawn.cells[33][31]
    assert sum(map(sum, drawn.cells)) == 1
    assert "3 x 3 elements" in drawn.caption


@pytest.mark.parametrize(
    "broken",
    [{}, evidence([4], [[1]]), {"shape": 3}, {**evidence([2, 2], [[0, 0]]), "wrong_elements": [[9, 9]]},
     {**evidence([2, 2], [[0, 0]]), "axes": []}],
)  # fmt: skip
def test_evidence_that_is_no_map_draws_none(broken: dict[str, Any]) -> None:
    assert wrong_map(broken) is None


def test_a_hostile_array_name_is_escaped_in_the_picture() -> None:
    drawn = wrong_map({**evidence([2, 2], [[0, 0]]), "array": '"><script>'})
    assert drawn is not None
    assert "<script" not in drawn.svg()


# --- counters ------------------------------------------------------------------------------------


def counted() -> Counters:
    return Counters(
        accesses=[
            Access(3, "x", "load", 0, requests=4, threads=128, sectors=128, sectors_ideal=16, bytes_needed=512),
            Access(3, "x", "load", 1, requests=4, threads=128, sectors=16, sectors_ideal=16, bytes_needed=512),
            Access(4, "y", "store", 2, requests=4, threads=128, sectors=16, sectors_ideal=16, bytes_needed=512),
        ],
        branches=[Branch(2, 0, executed=8, divergent=2)],
        warp_instructions=40, thread_instructions=1280, fmas=128, flops=256, blocks=4, threads=128,
    )  # fmt: skip


def test_counters_are_summed_by_line_array_and_direction_beside_the_lines_text() -> None:
    seen = traffic.arrange(counted(), "\n\n  float v = x[i] + x[j];\n  y[i] = v;")
    assert [(r.line, r.text, r.op, r.array, r.requests, r.sectors, r.ideal) for r in seen.rows] == [
        (3, "float v = x[i] + x[j];", "load", "x", 8, 144, 32),
        (4, "y[i] = v;", "store", "y", 4, 16, 16),
    ]
    assert [r.wasteful for r in seen.rows] == [True, False]
    assert [r.per_request for r in seen.rows] == [18, 4]


def test_shared_memory_is_counted_in_wavefronts() -> None:
    counters = counted()
    counters.shared = [SharedAccess(4, "tile", "load", 3, requests=4, threads=64, wavefronts=32, wavefronts_ideal=4)]
    seen = traffic.arrange(counters, "\n\n\n  y[i] = tile[i];")
    (row,) = (r for r in seen.rows if r.shared)
    assert (row.array, row.requests, row.lanes, row.sectors, row.ideal, row.wasteful) == ("tile", 4, 16, 32, 4, True)
    assert "32 wavefronts for 4 requests of shared memory: 8.00 x the ideal 4" in seen.totals
    assert "load <code>tile</code> (shared)" in report.traffic_html(seen, "t")
    assert traffic.from_json(asdict(counters)) == counters


def test_every_line_of_a_kernel_is_listed_with_what_it_moves() -> None:
    source = "// a\n__global__ void f() {\n  x[0];\n  y[0];\n\n}\n"
    listed = traffic.arrange(counted(), source).lines
    assert [(line.number, len(line.rows)) for line in listed] == [(2, 0), (3, 1), (4, 1), (5, 0), (6, 0)]
    assert listed[0].branches == "2 of 8 branches split"
    assert [line.number for line in traffic.arrange(counted(), source + "//\n" * 100).lines] == [2, 3, 4, 5]


def test_totals_name_divergence_and_active_lanes() -> None:
    totals = " / ".join(traffic.arrange(counted(), "").totals)
    assert "2 of 8 branches divergent (25.0%)" in totals
    assert "32.0 of 32 lanes active" in totals
    assert "160 sectors (5.0 KiB)" in totals


def test_counters_survive_json() -> None:
    assert traffic.from_json(json.loads(json.dumps(asdict(counted())))) == counted()


def test_a_traffic_page_escapes_the_source() -> None:
    page = Page(report.traffic_html(traffic.arrange(counted(), f"\n\n{HOSTILE}"), f"title {HOSTILE}"))
    page.assert_harmless()
    assert "title <script>" in page.words


def test_each_message_about_a_line_has_a_caret_of_its_own() -> None:
    source = "__global__ void f(float* y, int n) {\n    y[n] = sum + q;\n}"
    with pytest.raises(CompileError) as raised:
        compile_ptx(source)
    error = {
        "log": raised.value.log,
        "diagnostics": [(d.line, d.severity, d.message) for d in raised.value.diagnostics],
    }
    pointed = {
        complaint.message: row.text[row.caret.index("^")]
        for complaint in report.complaints(error, source)
        for row in complaint.excerpt
    }
    assert pointed == {'line 2: identifier "sum" is undefined': "s", 'line 2: identifier "q" is undefined': "q"}
