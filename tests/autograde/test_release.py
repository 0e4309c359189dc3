"""The students' bundle: what it holds, what it must not hold, and that it works where pip installed it."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from convladder.autograde.course import answer_key, build, release
from convladder.autograde.faces.cli import main
from convladder.autograde.judge import counting, edition, spec
from convladder.kernels.rungs import ladder_source

KEY = answer_key.reasoning("07_training")
SCRIPT = Path(__file__).parent / "hardware" / "notebook.py"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    dest = tmp_path_factory.mktemp("release") / "course"
    release.release(dest)
    return dest / "students"


@pytest.fixture(scope="module")
def wheel(bundle):
    (path,) = bundle.glob("*.whl")
    return path


def test_it_holds_every_lab_as_built_a_wheel_and_a_way_to_begin(bundle, wheel):
    for lab in build.labs():
        text = (bundle / "labs" / lab / f"{lab}.ipynb").read_text(encoding="utf-8")
        assert text == build.serialise(build.build_lab(lab))
    assert wheel.name in (bundle / "README.md").read_text(encoding="utf-8")
    checklist = (bundle.parent / "CHECKLIST.md").read_text(encoding="utf-8")
    assert all(module.removeprefix("convladder/") in checklist for module in release.REFERENCES)


def test_what_it_is_judged_by_is_kept_for_the_instructor(bundle):
    for lab in build.labs():
        kept = spec.load(lab, bundle.parent / "rules")
        assert (kept.sha256, edition.of(kept)) == (spec.load(lab).sha256, edition.of(spec.load(lab)))


def test_its_wheel_brings_what_jupyterlab_looks_for(wheel):
    with zipfile.ZipFile(wheel) as packed:
        data = {name.partition(".data/data/")[2]: name for name in packed.namelist() if ".data/data/" in name}
        extension = json.loads(packed.read(data["share/jupyter/labextensions/convladder/package.json"]))
        settings = json.loads(packed.read(data["share/jupyter/lab/settings/overrides.d/convladder.json"]))
    loaded = extension["jupyterlab"]["_build"]["load"]
    assert f"share/jupyter/labextensions/convladder/{loaded}" in data
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"


def test_it_says_what_the_rungs_took_without_the_rungs(bundle, wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert "convladder/autograde/records/01_direct.timing.json" in names
    assert (bundle / "constraints.txt").read_text(encoding="utf-8").splitlines() == _here("constraints.txt")


def test_no_rung_no_hidden_case_and_no_graded_record_is_in_it(bundle):
    names = [name for name, _ in release.texts(bundle)]
    assert len(names) > 150
    assert not [name for name in names if "/ladder/" in name or "hidden.toml" in name or "class.json" in name]
    assert not [name for name in names if Path(name).suffix in (".cu", ".ipynb") and "labs/" not in name]


def test_no_line_of_an_answer_is_in_it(bundle):
    assert list(release.leaks(bundle)) == []
    answers = {line for lab in build.labs() for line in build.answer_lines(lab)}
    assert len(answers) > 150
    kernels = {line for line in answers if "blockIdx" in line or "threadIdx" in line or "__syncthreads" in line}
    assert kernels
    for name, text in release.texts(bundle):  # of kernels, not even where a reference is excused
        if name.endswith(release.REFERENCES):
            assert not [line for line in kernels if line in build._bare(text)]


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("notes.txt", ladder_source("direct_coalesced"), "an answer of 01_direct"),
        ("wheel/convladder/kernels/more.py", ladder_source("csr_tiled"), "an answer of 05_sparse_tiled"),
        ("01_direct.hidden.toml", "", "is no file for students"),
        ("wheel/convladder/answers.md", "<p>" + KEY["predict_disk"], "the answer key of 07_training"),
        ("cases.toml", 'name  =  "two images, stride 2"', "a hidden case"),
    ],
)
def test_what_would_give_something_away_is_found(tmp_path, name, text, what):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert any(what in leak.what for leak in release.leaks(tmp_path))


def test_a_bundle_that_gives_an_answer_away_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "LEFT_OUT", ("kernels/ladder/*.cu", "**/__pycache__"))
    with pytest.raises(release.ReleaseError, match=r"give away .* a hidden case|give away .* no file for students"):
        release.release(tmp_path / "course")
    assert not (tmp_path / "course").exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("")
    done = CliRunner().invoke(main, ["release", str(tmp_path)])
    assert done.exit_code == 2
    assert "not empty" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_counters_that_it_carries_are_those_of_the_rungs(wheel):
    with zipfile.ZipFile(wheel) as packed:
        carried = json.loads(packed.read(f"convladder/autograde/records/{counting.CARRIED.name}"))
    assert carried == release.rung_counters()
    assert not counting.CARRIED.exists()  # here the rungs themselves are counted


@pytest.fixture(scope="module")
def installed(bundle, tmp_path_factory):
    """The bundle in a fresh environment, by the commands of its own README; the last of them opens JupyterLab."""
    folder = tmp_path_factory.mktemp("student") / "students"
    shutil.copytree(bundle, folder)
    commands = (folder / "README.md").read_text(encoding="utf-8").split("```")[1].strip().splitlines()
    assert commands[-1] == ".venv/bin/jupyter lab --notebook-dir=labs labs/syllabus.md"
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for command in [*commands[:-1], ".venv/bin/jupyter lab --version"]:
        command = command.replace("python3 -m", f"{sys.executable} -m", 1)
        done = subprocess.run(command, shell=True, cwd=folder, env=outside, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return folder


@pytest.mark.full
def test_in_a_fresh_environment_the_four_commands_are_enough(installed):
    freeze = subprocess.run([installed / ".venv/bin/pip", "freeze"], capture_output=True, text=True, check=True).stdout
    there = dict(line.split("==") for line in freeze.splitlines() if "==" in line)
    tested = [line.partition(" ;")[0].split("==") for line in _here("constraints.txt")]
    assert {"numpy", "llvmlite", "jupyterlab", "nbgrader"} <= set(there)
    assert "pytest" not in there
    assert not [name for name, version in there.items() if [name.lower().replace("_", "-"), version] not in tested]


def _here(name):
    return (Path(__file__).parents[2] / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.full
@pytest.mark.parametrize("lab", ["00_start", "01_direct"])
def test_in_a_fresh_environment_a_solved_lab_passes(lab, installed):
    notebook = installed / "labs" / lab / f"{lab}.ipynb"
    notebook.write_text(build.serialise(build.solved_notebook(lab)), encoding="utf-8")
    done = subprocess.run(
        [installed / ".venv/bin/convladder", "check", notebook], capture_output=True, text=True, cwd=installed
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("lab", build.labs())
def test_installed_by_pip_it_checks_every_answer_away_from_the_repository(lab, wheel, tmp_path):
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    assert not list(site.rglob("*.cu"))
    notebook, out = tmp_path / f"{lab}.ipynb", tmp_path / "record.json"
    notebook.write_text(build.serialise(build.solved_notebook(lab)), encoding="utf-8")
    script = shutil.copy(SCRIPT, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(site), "IPYTHONDIR": str(tmp_path / "ipython")}
    ran = subprocess.run(
        [sys.executable, script, str(notebook), str(out)], capture_output=True, text=True, env=environment, cwd=tmp_path
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    checked = [cell["passed"] for cell in json.loads(out.read_text())["cells"] if "passed" in cell]
    assert checked
    assert all(checked)
