"""The wheel holds the whole package and nothing else, and works where it is installed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"  # a copy, so that nothing of an older build gets in
    for name in ("src", "kernels", "autograde"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(tree)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("convladder-*.whl")
    return path


def test_the_wheel_holds_every_module_rung_spec_and_record_and_nothing_else(wheel):
    packed = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    for_jupyterlab = {n for n in packed if "/data/share/jupyter/" in n}
    assert len(for_jupyterlab) == 3
    assert {n.split("/")[0] for n in packed - for_jupyterlab} == {"convladder"}
    for folder in ("kernels", "autograde"):
        kinds = ("py", "cu", "toml", "j2", "css", "csv", "json", "md")
        data = [p for kind in kinds for p in (ROOT / folder).rglob(f"*.{kind}") if "jupyterlab" not in p.parts]
        assert data
        missing = {f"convladder/{p.relative_to(ROOT)}" for p in data} - packed
        assert not missing


def test_the_installed_wheel_convolves_outside_of_the_repository(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = (
        "import numpy as np, convladder.kernels as k\n"
        "assert 'site' in k.__file__\n"
        "y = k.conv2d(np.ones((1, 1, 4, 4), 'f'), np.ones((1, 1, 3, 3), 'f'))\n"
        "print(y.sum())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "36.0"
