"""Pictures, disks and the stages of an iteration, in turn and overlapped; what of it can be computed by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from convladder.kernels.errors import ArgumentError
from convladder.kernels.net import convolutions, costs, images, networks, stages, training
from convladder.kernels.net.stages import Run, Span


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "pictures.zip"
    images.write(path, 40, 32)
    return path


@pytest.fixture
def pipeline(pictures, tmp_path):
    with images.Reader(pictures) as reader:
        network = training.Network("lenet", 16, np, convolutions.Lowered(np))
        yield stages.Pipeline(network, reader, tmp_path / "snapshot.npz", workers=2, every=2)


def test_pictures_are_the_same_each_time_and_their_classes_in_turn(pictures, tmp_path):
    images.write(tmp_path / "again.zip", 40, 32)
    with images.Reader(pictures) as one, images.Reader(tmp_path / "again.zip") as other:
        assert len(one) == 40
        numbers = np.arange(40)
        assert one.read(numbers) == other.read(numbers)
        assert [label for _, label in one.read(np.array([0, 9, 10, 23]))] == [0, 9, 0, 3]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 20), (3, 1, 32)])
def test_a_transformed_picture_has_the_networks_shape_and_a_mean_near_zero(pictures, shape):
    with images.Reader(pictures) as reader:
        coded = reader.read(np.arange(40))
    made = np.stack([images.transform(c, shape, np.random.default_rng(1)) for c, _ in coded])
    assert made.shape == (40, *shape)
    assert made.dtype == np.float32
    assert abs(made.mean()) < 0.3
    assert 0.3 < made.std() < 1.5


def test_a_picture_that_is_too_small_is_refused(pictures):
    with images.Reader(pictures) as reader, pytest.raises(ArgumentError, match="smaller than the input, 33 x 32"):
        images.transform(reader.read(np.array([0]))[0][0], (3, 33, 32), np.random.default_rng(1))


def test_a_disk_sleeps_for_as_long_as_it_would_read(pictures, monkeypatch):
    slept = []
    monkeypatch.setattr(images.time, "sleep", slept.append)
    monkeypatch.setattr(images.time, "perf_counter", lambda: 0.0)
    with images.Reader(pictures, rate=1000.0) as reader:
        size = sum(len(coded) for coded, _ in reader.read(np.arange(10)))
    assert slept == [pytest.approx(size / 1000)]


def test_a_disk_without_pace_is_refused(pictures):
    with pytest.raises(ArgumentError, match="more than 0 bytes"):
        images.Reader(pictures, rate=0)


@pytest.mark.parametrize("overlapped", [False, True])
def test_every_iteration_passes_every_stage_once_and_in_order(pipeline, overlapped):
    run = pipeline.run(5, overlapped)
    assert len(run.losses) == 5
    for number in range(5):
        mine = sorted((s for s in run.spans if s.iteration == number), key=lambda s: s.start_ms)
        saved = stages.STAGES if number % 2 else stages.STAGES[:-1]
        assert tuple(s.stage for s in mine) == saved
        assert all(a.end_ms <= b.start_ms for a, b in itertools.pairwise(mine))
    assert pipeline.snapshot.is_file()


def test_in_turn_nothing_overlaps_and_a_prefetch_thread_reads_ahead(pipeline):
    def loads_before_training(run: Run) -> bool:
        starts = {(s.stage, s.iteration): s.start_ms for s in run.spans}
        return starts["read", 2] < starts["update", 1]

    in_turn, overlapped = pipeline.run(4), pipeline.run(4, overlapped=True)
    ordered = sorted(in_turn.spans, key=lambda s: s.start_ms)
    assert all(a.end_ms <= b.start_ms for a, b in itertools.pairwise(ordered))
    assert not loads_before_training(in_turn)
    assert loads_before_training(overlapped)


def test_both_ways_train_on_the_same_pictures(pictures, tmp_path):
    losses = []
    for overlapped in (False, True):
        with images.Reader(pictures) as reader:
            network = training.Network("lenet", 8, np, convolutions.Lowered(np))
            losses.append(stages.Pipeline(network, reader, tmp_path / "s.npz").run(4, overlapped).losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_failure_of_the_prefetch_thread_reaches_the_caller(pipeline, monkeypatch):
    monkeypatch.setattr(pipeline.reader, "read", lambda numbers: [(b"no picture", 0)] * len(numbers))
    with pytest.raises(OSError, match="cannot identify"):
        pipeline.run(3, overlapped=True)


def test_one_iteration_is_no_run(pipeline):
    with pytest.raises(ArgumentError, match="at least 2"):
        pipeline.run(1)


@pytest.mark.full
def test_training_learns_the_pictures(tmp_path):
    images.write(tmp_path / "p.zip", 160, 32)
    with images.Reader(tmp_path / "p.zip") as reader:
        network = training.Network("lenet", 32, np, convolutions.Lowered(np))
        losses = stages.Pipeline(network, reader, tmp_path / "s.npz").run(30).losses
    assert np.mean(losses[-5:]) < 0.7 * np.log(10)


def test_an_iteration_is_what_lies_between_updates_less_what_saving_took():
    run = Run(False, [Span("update", n, 100.0 * n, 100.0 * n + 10) for n in range(4)])
    run.spans.append(Span("save", 1, 120, 160))
    assert run.iteration_ms() == 100
    assert run.stage_ms()["save"] == 40
    assert run.stage_ms()["read"] == 0


# ---- by hand


@pytest.mark.parametrize("name", ["lenet", "alexnet", "vgg16", "googlenet"])
def test_bytes_of_a_layer_are_those_of_the_table(name):
    checked = 0
    for layer in networks.layers(name, 3):
        if layer.kind == "conv" and layer.groups == 1:
            N, C, H, W = layer.inputs[0]
            found = costs.conv_layer_bytes(N, C, H, W, layer.output[1], layer.R, layer.U, layer.pad)
            assert found == (layer.map_bytes, layer.weight_bytes)
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize(
    ("times", "threads", "iterations", "total"),
    [([2, 3], [0, 0], 4, 20), ([2, 3], [0, 1], 4, 14), ([5, 3], [0, 1], 4, 23), ([1, 2, 3, 4], [2, 0, 2, 1], 1, 10)],
)
def test_overlapped_stages_take_the_first_pass_and_the_busiest_thread(times, threads, iterations, total):
    assert costs.total_ms(times, threads, iterations) == total


def test_total_time_is_that_of_a_simulated_pipeline():
    """Each thread does its stages of an iteration in order, once those before them are done."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        times = rng.uniform(1, 9, 6).tolist()
        threads = sorted(rng.integers(0, 3, 6).tolist())  # each thread has stages that follow each other
        free: dict[int, float] = {}
        for _ in range(5):
            done = 0.0
            for thread in sorted(set(threads)):
                busy = sum(ms for ms, t in zip(times, threads) if t == thread)
                done = free[thread] = max(done, free.get(thread, 0.0)) + busy
        assert costs.total_ms(times, threads, 5) == pytest.approx(done)
