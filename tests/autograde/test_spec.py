"""Specs: what the schema says is read; every departure from it is an error that names file, place and fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from convladder.autograde.judge import spec
from convladder.autograde.judge.spec import KernelTask, NumberTask, PythonTask, SpecError

TINY = Path(__file__).parent / "tiny"
SPEC = (TINY / "tiny.toml").read_text()
HIDDEN = (TINY / "tiny.hidden.toml").read_text()


def load(folder: Path, text: str = SPEC, hidden: str = "") -> spec.Spec:
    (folder / "tiny.toml").write_text(text)
    if hidden:
        (folder / "tiny.hidden.toml").write_text(hidden)
    return spec.load("tiny", folder)


def test_every_lab_of_the_course_has_a_spec_that_holds() -> None:
    assert "01_direct" in spec.names()
    for lab in spec.names():
        assert spec.load(lab).lab == lab


def test_cases_stand_from_the_smallest_to_the_largest(tiny: spec.Spec) -> None:
    task = tiny.task("conv")
    assert isinstance(task, KernelTask)
    assert [c.name for c in task.cases] == ["one", "larger", "secret"]
    assert [c.name for c in task.cases if c.hidden] == ["secret"]
    assert task.measure_case == "larger"


def test_hidden_cases_can_be_left_out_and_change_the_hash(specs_dir: Path, tiny: spec.Spec) -> None:
    public = spec.load("tiny", specs_dir, hidden=False)
    assert not [c for t in public.tasks for c in getattr(t, "cases", ()) if c.hidden]
    assert public.sha256 != tiny.sha256


def test_a_sweep_is_every_combination(tiny: spec.Spec) -> None:
    task = tiny.task("index")
    assert isinstance(task, PythonTask)
    calls = task.cases[1].calls
    assert len(calls) == 2 * 3 * 3 * 3
    assert {c["q"] for c in calls} == {0, 1, 2}
    assert all(c["U"] == 2 for c in calls)


def test_a_case_is_found_by_a_prediction_from_counters(tmp_path: Path) -> None:
    text = SPEC.replace(
        'formula = "R * S / 2"\nsymbols = {R = 3, S = 3}', 'formula = "sectors / P"\nrung = "direct"\ncase = "one"'
    )
    task = load(tmp_path, text).task("guess")
    assert isinstance(task, NumberTask)
    assert task.case is not None
    assert task.case.symbols["H"] == 3


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('title = "A lab of tests"', "", "tiny.toml: `title` is missing"),
        ('lab = "tiny"', 'lab = "huge"', "must be the file's stem, 'tiny'"),
        ("minutes = 1", "minutes = true", "`minutes` is True: it must be an integer"),
        ("minutes = 1", "minuets = 1\nminutes = 1", "`minuets` is not a key here: did you mean 'minutes'?"),
        ("correctness = 60", "correctness = 61", "add up to 101"),
        ("correctness = 60", "correctnes = 60", "did you mean 'correctness'?"),
        ('kind = "number"', 'kind = "numbers"', "must be one of kernel, generator, python, number, explain"),
        ("share = {prediction = 1}", "", "prediction has 5 points, but no task has a share"),
        ("share = {prediction = 1}", "share = {timing = 1}", "a number task has no share of timing"),
        ("share = {prediction = 1}", "share = {prediction = -1}", "cannot be negative"),
        ('name = "guess"', 'name = "why"', "two tasks of this name"),
        ('name = "guess"', 'name = "1 guess"', "must be an identifier"),
        ('problem = "conv2d"', 'problem = "conv3d"', "did you mean 'conv2d'?"),
        ('"U", "pad"]', '"U", "pads"]', "`params` names 'pads': did you mean 'pad'?"),
        ("{name = \"one\", N = 1,", "{name = \"one\", N = 1.5,", "`N` is 1.5: it must be an integer"),
        ("{name = \"one\", N = 1,", "{name = \"one\",", "`N` is missing"),
        ("{name = \"one\", N = 1,", "{name = \"one\", M = 1, N = 1,", "`M` is no symbol"),
        ("{name = \"one\", N = 1,", "{name = \"larger\", N = 1,", "two cases are named 'larger'"),
        ("H = 3, W = 4, K = 1, R = 2", "H = 3, W = 4, K = 1, R = 9", "larger than the padded input"),
        ('value = "store_requests"', 'value = "store_request"', "did you mean 'store_requests'?"),
        ('value = "store_requests"', 'value = "store_requests /"', "is not an expression"),
        ('value = "store_requests"', "value = \"open('x')\"", "is not allowed here"),
        ('at_most = "N*K"', "", "give either `at_most` or `at_least`"),
        ('at_most = "N*K"', 'at_most = "base_sectors"', "names 'base_sectors'"),
        ('case = "larger"\n  value = "store', 'case = "large"\n  value = "store', "task: did you mean 'larger'?"),
        ('case = "larger"\n  base', 'case = "secret"\n  base', "no public case"),
        ('base = "direct_report"', 'base = "nobody"', "no rung of kernels/ladder"),
        ("blocks_at_least", "bricks_at_least", "'bricks' is no counter: did you mean 'blocks'?"),
        ('reference = "layouts.source_index"', 'reference = "layouts.no_such"', "no function of convladder.kernels"),
        ('reference = "layouts.source_index"', 'reference = "os.system"', "no function of convladder.kernels"),
        ("sweep = {p = 2", "sweep = {p = 0", "give a positive integer"),
        ("sweep = {p = 2", "sweep = {p = 99999", "more than 20000 calls"),
        ("sweep = {p = 2", "sweep = {U = 2", "both in args and in sweep"),
        ("symbols = {R = 3, S = 3}", "symbols = {R = 3}", "names 'S'"),
        ('formula = "R * S / 2"', 'formula = "R / (S - 3)"', "divides by zero"),
        ("tolerance = 0.01", "tolerance = -1", "cannot be negative"),
        ("tolerance = 0.01", "tolerance = nan", "must be finite"),
        ("tolerance = 0.01", 'rung = "direct"', "`rung` and `case` belong together"),
        ("words = 5", 'words = "five"', "must be an integer"),
        ("[points]", "[points", "tiny.toml:"),
    ],
)  # fmt: skip
def test_a_departure_from_the_schema_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in SPEC
    with pytest.raises(SpecError, match=re.escape(says)) as caught:
        load(tmp_path, SPEC.replace(old, new, 1))
    assert str(caught.value).startswith("tiny.toml")


def test_a_task_without_cases_is_refused(tmp_path: Path) -> None:
    text = re.sub(r"case = \[\n  \{name = \"larger.*?\n\]\n", "", SPEC, flags=re.DOTALL)
    with pytest.raises(SpecError, match="at least one public case"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('task = "conv"', 'task = "cone"', "no kernel or python task of that name"),
        ('name = "secret"', 'name = "one"', "two cases are named 'one'"),
        ("pad = 2", "pad = 2\nhint = 1", "`hint` is no symbol"),
    ],
)
def test_a_mistake_in_a_hidden_case_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        load(tmp_path, SPEC, HIDDEN.replace(old, new, 1))


def test_an_ungraded_lab_needs_no_points(tmp_path: Path) -> None:
    text = re.sub(r"\[points\].*?(?=\[\[task\]\])", "graded = false\n", SPEC, flags=re.DOTALL)
    text = re.sub(r"share = .*\n", "", text)
    assert not load(tmp_path, text).graded


@pytest.mark.parametrize("lab", ["nothing", "../tiny", "tiny.hidden", ""])
def test_a_lab_that_is_not_there_is_named(specs_dir: Path, lab: str) -> None:
    with pytest.raises(SpecError, match="the labs are tiny"):
        spec.load(lab, specs_dir)
