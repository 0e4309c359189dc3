"""Which release a notebook is of: it says so, and answers to what has changed since are not judged by other rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from convladder.autograde.course import build, collect, grade, story
from convladder.autograde.course import course as courses
from convladder.autograde.course.course import CourseError
from convladder.autograde.course.grade import Settings
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import edition, spec, submission
from convladder.autograde.judge.spec import Spec


@pytest.mark.parametrize("lab", build.labs())
def test_every_notebook_says_its_release_and_that_of_each_of_its_tasks(lab: str) -> None:
    metadata = json.loads(build.student_path(lab).read_text(encoding="utf-8"))["metadata"]
    said = edition.told(metadata)
    assert said == edition.of(spec.load(lab))
    assert set(said.tasks) == {task.name for task in spec.load(lab).tasks}


def written(toy: Any, folder: Path, *changes: tuple[str, str]) -> Spec:
    """The toy lab with some changes, as a spec of its own."""
    text = toy.spec
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy.toml").write_text(text)
    return spec.load("toy", folder)


#: In the changed lab the question of `double` is another one.
CHANGED = (("symbols = {N = 21}", "symbols = {N = 22}"),)


def test_a_tasks_digest_changes_with_what_it_asks_and_with_nothing_else(toy: Any, tmp_path: Path) -> None:
    first = edition.of(written(toy, tmp_path / "a"))
    points = written(
        toy, tmp_path / "b", ("prediction = 90", "prediction = 80"), ("explanation = 10", "explanation = 20")
    )
    assert edition.of(points) == first
    other = edition.of(written(toy, tmp_path / "c", *CHANGED))
    assert [name for name in first.tasks if first.changed(name, other)] == ["double"]
    assert other.release != first.release


def test_a_kernel_that_is_passed_something_else_is_another_task(tiny: Spec, tmp_path: Path, specs_dir: Path) -> None:
    text = (specs_dir / "tiny.toml").read_text()
    (tmp_path / "tiny.toml").write_text(text.replace('params = ["x", "w", "y"', 'params = ["x", "y", "w"', 1))
    other = edition.of(spec.load("tiny", tmp_path))
    changed = [name for name in other.tasks if edition.of(tiny).changed(name, other)]
    assert changed == ["conv"]


def graded(top: Path, **how: Any) -> grade.Grades:
    return grade.grade_class("toy", top / "in", top / "out", Settings(sandbox="none"), **how)


def of_release(toy: Any, release: Spec | dict[str, Any], **answers: str) -> str:
    """A notebook of the toy lab with the metadata of a release."""
    body = json.loads(toy.notebook(**answers))
    body["metadata"] = edition.of(release).metadata() if isinstance(release, Spec) else release
    return json.dumps(body)


def test_of_another_release_the_answer_to_what_changed_is_refused_with_the_fix_and_the_rest_is_judged(
    toy: Any, tmp_path: Path
) -> None:
    old, new = written(toy, tmp_path / "old"), written(toy, tmp_path / "new", *CHANGED)
    toy.hand_in(tmp_path / "in", "ada", of_release(toy, old))
    (record,) = graded(tmp_path, specs_dir=new.path.parent).records
    assert {c.check: c.score for c in record.checks if not c.manual} == {
        "double.prediction": 0,
        "triple.prediction": 30,
    }
    (said,) = record.problems
    assert f"cell 1 (double) is of release {edition.of(old).release}" in said
    assert "put your answer into the cell of the present notebook" in said
    assert record.environment["notebook of release"] == edition.of(old).release


def test_a_notebook_in_which_every_task_changed_is_told_so_and_not_taken_for_another_labs(
    toy: Any, tmp_path: Path
) -> None:
    old = written(toy, tmp_path / "old")
    new = written(
        toy, tmp_path / "new", ("symbols = {N = 21}", "symbols = {N = 2}"), ("symbols = {N = 21}", "symbols = {N = 2}")
    )
    path = toy.hand_in(tmp_path / "in", "ada", of_release(toy, old))
    read = submission.read(path, new)
    assert list(read.answers) == ["words"]
    assert all("is of release" in problem for problem in read.problems)


@pytest.mark.parametrize(
    "metadata",
    [
        {}, {"convladder": 7}, {"convladder": {"lab": "toy"}},
        {"convladder": {"lab": "toy", "release": [], "tasks": {}}},
        {"convladder": {"lab": "toy", "release": "0" * 16, "tasks": {"double": ["x"], "triple": "<b>"}}},
        {"convladder": {"lab": "02_im2col", "release": "0" * 16, "tasks": {"double": "0" * 12}}},
    ],
    ids=["none", "a number", "half", "lists", "no digests", "another lab's"],
)  # fmt: skip
def test_a_notebook_that_says_nothing_of_use_is_judged_by_the_present_rules(
    toy: Any, tmp_path: Path, metadata: dict[str, Any]
) -> None:
    present = written(toy, tmp_path / "new")
    read = submission.read(toy.hand_in(tmp_path / "in", "ada", of_release(toy, metadata)), present)
    assert set(read.answers) == {"double", "triple", "words"}
    assert read.problems == []


def course(tmp_path: Path, releases: str) -> courses.Course:
    (tmp_path / "course.toml").write_text(f'semester = "s"\nlabs = "new"\n[lab.toy]\nreleases = {releases}\n')
    return courses.load(tmp_path / "course.toml")


def test_a_release_that_the_course_keeps_is_judged_by_its_own_rules(toy: Any, tmp_path: Path) -> None:
    old, new = written(toy, tmp_path / "old"), written(toy, tmp_path / "new", *CHANGED)
    toy.hand_in(tmp_path / "in", "ada", of_release(toy, old))
    toy.hand_in(tmp_path / "in", "bela", of_release(toy, new, double="44"))
    toy.hand_in(tmp_path / "in", "eve", of_release(toy, old, double="44"))
    keeps = course(tmp_path, '["old"]')
    found = graded(tmp_path, course=keeps)
    assert {r.student: r.score for r in found.records} == {"ada": 90, "bela": 90, "eve": 30}
    assert [r.spec_sha256 == old.sha256 for r in found.records] == [True, False, True]
    assert f"release  {edition.of(old).release}" in "\n".join(story.story(tmp_path / "out", "ada"))
    again = graded(tmp_path, course=keeps)
    assert (again.kept, again.changes) == (3, [])


def test_a_course_says_which_releases_it_judges_and_refuses_a_folder_without_rules(toy: Any, tmp_path: Path) -> None:
    old, new = written(toy, tmp_path / "old"), written(toy, tmp_path / "new", *CHANGED)
    lines = "\n".join(courses.summary(course(tmp_path, '["old"]')))
    assert f"release {edition.of(new).release}" in lines
    assert f"notebooks of release {edition.of(old).release} by old" in lines
    with pytest.raises(CourseError, match=r"`releases` names 'nowhere': there is no toy\.toml"):
        course(tmp_path, '["nowhere"]')


def test_check_refuses_the_same_in_a_terminal(tmp_path: Path) -> None:
    body = json.loads(build.serialise(build.solved_notebook("01_direct")))
    body["metadata"]["convladder"]["release"] = "0" * 16
    body["metadata"]["convladder"]["tasks"]["predict_padding"] = "0" * 12
    path = tmp_path / "01_direct.ipynb"
    for cell in body["cells"]:  # kernels take longer
        if cell["source"] and "".join(cell["source"]).startswith("%%cuda"):
            cell["source"] = ""
    path.write_text(json.dumps(body))
    shown = CliRunner().invoke(main, ["check", str(path)])
    assert shown.exit_code == 1
    assert "(predict_padding) is of release 0000000000000000" in " ".join(shown.output.split())


def test_a_whole_class_is_collected_where_one_notebook_cannot_be_read(toy: Any, tmp_path: Path) -> None:
    written(toy, tmp_path / "old")
    written(toy, tmp_path / "new", *CHANGED)
    toy.hand_in(tmp_path / "in", "ada", "{")
    toy.hand_in(tmp_path / "in", "bela", toy.notebook(double="44"))
    entries, _ = collect.find_submissions(tmp_path / "in", "toy")
    assert [submission.release_of(e.notebook) for e in entries if e.notebook] == ["", ""]
    found = graded(tmp_path, course=course(tmp_path, '["old"]'))
    assert {r.student: r.score for r in found.records} == {"ada": 0, "bela": 90}
