"""Grading on a Dask cluster: workers that are processes of their own, as on other machines."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convladder.autograde.course import cluster, pool
from convladder.autograde.course import grade as grading
from convladder.autograde.course.grade import GradingError, Settings

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install distributed")
distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install distributed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two workers, the second one with a GPU as far as the scheduler knows."""
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": None, "port": 0}}
    workers = {
        name: {"cls": distributed.Nanny, "options": {"nthreads": 1, "resources": resources, "env": {"WORKER_IS": name}}}
        for name, resources in (("plain", {}), ("with_gpu", {"GPU": 1}))
    }
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as made,
        distributed.Client(made, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield made.scheduler_address


@pytest.mark.full
@pytest.mark.parametrize(
    ("work", "job", "reason"),
    [(os._exit, 3, "died"), (math.sqrt, -1.0, "raised"), (time.sleep, 100, "late")],
    ids=["crashes", "fails", "hangs"],
)
def test_a_job_that_misbehaves_is_told_as_on_one_machine(address: str, work: Any, job: Any, reason: str) -> None:
    ((_, found),) = cluster.run([job], work, address, 2.0)
    assert isinstance(found, pool.Broken)
    assert found.reason == reason


@pytest.mark.full
def test_after_them_the_cluster_goes_on(address: str) -> None:
    squares = [float(n * n) for n in range(8)]
    assert dict(cluster.run(squares, math.sqrt, address, 20.0)) == {s: math.sqrt(s) for s in squares}


@pytest.mark.full
def test_a_class_gets_its_grades_on_a_cluster_and_keeps_them(address: str, tmp_path: Path, toy: Any) -> None:
    own, folder = tmp_path / "specs", tmp_path / "in"
    own.mkdir()
    (own / "toy.toml").write_text(toy.spec)
    texts = {"ada": toy.notebook(), "bob": toy.notebook(triple="0"), "cy": "no notebook"}
    for student, text in texts.items():
        toy.hand_in(folder, student, text)
    settings = Settings(sandbox="none", scheduler=address)
    grades = grading.grade_class("toy", folder, tmp_path / "out", settings, specs_dir=own)
    assert [(r.student, r.score) for r in grades.records] == [("ada", 90), ("bob", 60), ("cy", 0)]
    assert grading.grade_class("toy", folder, tmp_path / "out", settings, specs_dir=own).kept == 3


@pytest.mark.full
def test_jobs_for_a_gpu_go_to_the_worker_that_has_one(address: str) -> None:
    assert {r for _, r in cluster.run(["WORKER_IS"] * 6, os.getenv, address, 20.0, on_gpu=True)} == {"with_gpu"}  # type: ignore[arg-type]


def test_without_a_scheduler_it_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.5)
    with pytest.raises(GradingError, match="Start one: dask scheduler"):
        list(cluster.run([4.0], math.sqrt, "tcp://127.0.0.1:9", 5.0))  # type: ignore[arg-type]


@pytest.mark.full
def test_without_a_gpu_in_the_cluster_it_says_how_to_start_a_worker_with_one() -> None:
    options = {"threads_per_worker": 1, "dashboard_address": None, "processes": False}
    with distributed.LocalCluster(n_workers=1, **options) as made, pytest.raises(GradingError, match="GPU=1"):
        list(cluster.run([4.0], math.sqrt, made.scheduler_address, 5.0, on_gpu=True))  # type: ignore[arg-type]
