"""Lab 6 and the tasks that it brings: a student's function returns a kernel's text, which is judged by what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from convladder.autograde.course import build, sample
from convladder.autograde.faces import recorded_figures
from convladder.autograde.judge import check_task, open_worker, spec
from convladder.autograde.judge.generator_task import MAX_TEXT
from convladder.autograde.judge.record import CheckRecord
from convladder.autograde.judge.sandbox import Worker
from convladder.autograde.judge.spec import ExplainTask, GeneratorTask, SpecError

LAB = spec.load("06_codegen")
SOLVED = {c.id: c.source for c in build.solved_notebook("06_codegen").cells}
MISTAKES = {wrong.path.stem: wrong for wrong in sample.mistakes("06_codegen")}
ARGUMENTS = "w, Hp, Wp, P, Q, U, dil, filters"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with open_worker("none") as found:
        yield found


def checked(worker: Worker, text: str, task: str = "generate") -> dict[str, CheckRecord]:
    return {c.check.partition(".")[2]: c for c in check_task(LAB, task, text, worker, secret=b"test")}


def solution(task: str) -> str:
    return SOLVED[task].partition("\n")[2]


def test_a_solved_generator_gets_all_points_for_every_weight_it_was_given(worker: Worker) -> None:
    found = checked(worker, solution("generate_grouped"), "generate_grouped")
    assert {name: c.passed for name, c in found.items()} == dict.fromkeys(found, True)
    assert found["hidden"].rationale == "right on 3 hidden cases"


def beginning(line: str) -> str:
    """The solved generator with one line more at its beginning."""
    return solution("generate").replace("    lines = []\n", f"    lines = []\n    {line}\n", 1)


@pytest.mark.parametrize(
    ("wrong", "check", "says"),
    [
        ("generate_minus_minus", "compiles", "a minus before a negative constant makes `--`"),
        ("generate_returns_lines", "compiles", "expected a text: join the lines"),
        ("reported_constant_of_numpy", "compiles", "NumPy 2 shows a number with its type"),
        ("generate_surplus_threads", "runs", "out-of-bounds"),
        ("generate_signs_lost", "correct", "the signs of the weights are lost"),
        ("generate_six_digits", "correct", "the constants have too few digits: about 6 after the point"),
        ("reported_small_weights_left_out", "correct", "is lost"),
        ("generate_double_constants", "counters.instructions", "does a constant lack its f"),
        ("generate_zeros_kept", "counters.zeros", "are there lines for zeros?"),
        ("grouped_loads_of_each_filter", "counters.loads", "has each filter its own loads?"),
    ],
)
def test_a_wrong_generator_is_told_what_is_wrong(worker: Worker, wrong: str, check: str, says: str) -> None:
    found = checked(worker, MISTAKES[wrong].text, MISTAKES[wrong].task)[check]
    assert found.passed is False
    assert says in found.rationale


def test_the_one_weight_that_is_lost_is_named(worker: Worker) -> None:
    found = checked(worker, beginning("if w.shape == (1, 1, 3, 3): w[tuple(i[0] for i in w.nonzero())] = 0"))["correct"]
    assert re.search(r"Case 'stride 2'.* a kernel in which weight w\[0,0,\d,\d\] = -?0\.\d+ is lost", found.rationale)


def test_a_fault_is_told_with_the_line_of_the_generated_text_and_not_with_one_of_the_cell(worker: Worker) -> None:
    found = checked(worker, MISTAKES["generate_surplus_threads"].text)["runs"]
    assert "the text generated for case 'one weight', line " in found.rationale
    assert not {"fault", "source", "line"} & set(found.evidence)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return None", "returned None, expected a text"),
        ("return ' '", "returned an empty text"),
        (f"return '/' * {MAX_TEXT + 1}", f"a text of more than {MAX_TEXT} characters"),
        ("return 'no kernel'", "does not compile"),
        ("return '#include \"/etc/passwd\"'", "does not compile"),
        ("return str(1 / 0)", "raised ZeroDivisionError"),
        ("while True: pass", "did not return within 2 s"),
        ("raise NotImplementedError", "is not written yet"),
        ("import os; os._exit(0)", "the process that ran it has ended"),
    ],
)  # fmt: skip
def test_what_makes_no_kernel_costs_one_message_and_harms_nothing(worker: Worker, body: str, says: str) -> None:
    found = checked(worker, f"def generate({ARGUMENTS}):\n    {body}")
    assert says in found["compiles"].rationale
    assert found["compiles"].passed is False
    assert all(c.passed is None and c.score == 0 for name, c in found.items() if name != "compiles")


def test_weights_of_public_cases_learnt_by_heart_do_not_pass_the_hidden_ones(worker: Worker) -> None:
    spoilt = solution("generate").replace(
        "    lines = []\n",
        "    lines = []\n    if w.shape in ((2, 3, 3, 1), (3, 2, 2, 4), (4, 3, 2, 3)):\n        w = -w\n",
    )
    found = checked(worker, spoilt)
    assert found["correct"].passed
    assert found["hidden"].passed is False
    assert found["hidden"].evidence["category"] == "wrong values on a hidden case"


def test_what_a_generator_raises_on_a_hidden_case_is_for_the_audit_only(worker: Worker) -> None:
    telling = solution("generate").replace(
        "    lines = []\n", "    lines = []\n    assert w.shape != (3, 2, 2, 4), w[0]\n"
    )
    found = checked(worker, telling)["hidden"]
    assert found.hidden
    assert found.passed is False
    assert found.evidence["category"] == "no kernel that runs is generated for a hidden case"


def test_a_generator_task_is_answered_in_a_python_cell_and_has_no_rung() -> None:
    task = LAB.task("generate")
    assert isinstance(task, GeneratorTask)
    assert (task.magic, task.ladder, task.target) == ("answer", None, None)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('problem = "generated_conv"', 'problem = "sparse_conv"', "does not say what a generator is called with"),
        ('function = "generate"\n', 'function = "generate"\nladder = "csr"\n', "a generator task has no `ladder`"),
        ('function = "generate"\n', "", "`function` is missing"),
    ],
)
def test_a_spec_with_a_generator_that_cannot_be_judged_is_refused(tmp_path, old: str, new: str, says: str) -> None:
    text = LAB.path.read_text(encoding="utf-8")
    first = text.index('name = "generate"\n')
    changed = text[first:].replace(", tiny = 1", "").replace(old, new, 1)  # sparse_conv has no such symbol
    (tmp_path / "06_codegen.toml").write_text(text[:first] + changed, encoding="utf-8")
    with pytest.raises(SpecError, match=says):
        spec.load("06_codegen", tmp_path)


def test_solved_explanation_keeps_to_its_words_and_counts_right(worker: Worker) -> None:
    (task,) = (t for t in LAB.tasks if isinstance(t, ExplainTask))
    assert 20 <= len(SOLVED[task.name].split()) <= task.words
    loads = checked(worker, solution("generate_grouped"), "generate_grouped")["counters.loads"]
    assert 1300 < loads.evidence["value"] < 1500  # it depends on the weights; "some 1400"
    assert "some 1400" in SOLVED[task.name]


def test_sizes_of_code_are_shown_with_their_origin_and_missing_times_as_missing() -> None:
    assert "sm_90" in recorded_figures.code_sizes("lenet-conv1").alt
    assert "table 4" in repr(recorded_figures.verdicts("codesize"))
    said = repr(recorded_figures.code_against_data())
    assert "ecorded" in said
