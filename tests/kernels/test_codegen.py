"""Weights as code: the generated kernels on the engine, the choice, and what is kept of them."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from convladder.kernels import codegen, compile_cuda, conv2d, launch, oracle, workloads
from convladder.kernels.codegen import Choice, Tiling, assembler, convolution, fetch, generator, model
from convladder.kernels.codegen.__main__ import main
from convladder.kernels.codegen.kept import keep, kept_choice
from convladder.kernels.errors import ArgumentError, BackendError, CompileError, GeometryError
from convladder.kernels.layouts import ConvGeometry
from convladder.kernels.sim import objectcache

#: One output; odd sizes; groups; strides, paddings and dilations by axis; 1x1; more padding than the filter reaches.
GEOMETRIES = [
    ConvGeometry(N=1, C=1, H=1, W=1, K=1, R=1, S=1),
    ConvGeometry(N=3, C=5, H=9, W=7, K=6, R=3, S=3, pad=(1, 1)),
    ConvGeometry(N=2, C=8, H=7, W=6, K=4, R=3, S=2, stride=(2, 2), pad=(1, 0), groups=2),
    ConvGeometry(N=2, C=4, H=11, W=8, K=3, R=3, S=3, pad=(2, 2), dilation=(2, 1)),
    ConvGeometry(N=5, C=6, H=7, W=7, K=10, R=1, S=1),
    ConvGeometry(N=2, C=4, H=6, W=6, K=4, R=3, S=3, pad=(1, 1), groups=4),
    ConvGeometry(N=1, C=2, H=3, W=20, K=3, R=3, S=5, stride=(3, 2), pad=(4, 5)),
    ConvGeometry(N=2, C=2, H=3, W=10, K=3, R=3, S=3, pad=(4, 4)),
]

CHOICES = [None, Choice(2, 33), Choice(3, 64, channels=8, splits=2), Choice(2, 40, rounds=3)]


def data(g: ConvGeometry, sparsity: float = 0.6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal(g.x_shape, np.float32), rng.standard_normal(g.w_shape, np.float32)
    w[rng.random(w.shape) < sparsity] = 0
    return x, w


def on_engine(g: ConvGeometry, x: np.ndarray, w: np.ndarray, choice: Choice | None = None) -> np.ndarray:
    y = np.empty(g.y_shape, np.float32)
    codegen.run_on_engine(g, x, w, y, choice)
    return y


def assert_right(g: ConvGeometry, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
    arguments = (x, w, g.stride, g.pad, g.dilation, g.groups)
    assert (abs(y - oracle.conv2d(*arguments)) <= oracle.bound(*arguments)).all()


# ---- the generated code


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("g", GEOMETRIES, ids=lambda g: f"{g.N}x{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}")
def test_generated_kernels_are_right_and_faultless_for_any_geometry(g, choice):
    x, w = data(g)
    assert_right(g, x, w, on_engine(g, x, w, choice))


@pytest.mark.full
def test_a_layer_of_alexnet_with_two_images_is_right():
    g = ConvGeometry(N=2, C=256, H=13, W=13, K=40, R=3, S=3, pad=(1, 1))
    x, w = data(g, 0.93)
    assert_right(g, x, w, on_engine(g, x, w, Choice(20, 256)))


def test_weights_without_a_non_zero_give_zeros():
    g = GEOMETRIES[1]
    x, w = data(g)
    assert not on_engine(g, x, np.zeros_like(w)).any()


@pytest.mark.parametrize("choice", [Choice(2, 64), Choice(1, 64, splits=2)], ids=str)
def test_filters_without_a_non_zero_give_zeros_beside_others(choice):
    g = GEOMETRIES[1]
    x, w = data(g)
    w[1::2] = 0
    y = on_engine(g, x, w, choice)
    assert not y[:, 1::2].any()
    assert_right(g, x, w, y)


def test_one_weight_becomes_one_multiply_add():
    g = GEOMETRIES[1]
    x, w = data(g)
    w[...] = 0
    w[2, 3, 0, 1] = 1.5
    (part,) = codegen.generate(g, w, Choice(6, 64))
    assert part.source.count("fma.rn") == part.nnz == 1
    assert part.source.count("ld.global") == Tiling(g, Choice(6, 64)).copies  # no other channel is staged
    assert_right(g, x, w, on_engine(g, x, w, Choice(6, 64)))


def test_nan_and_infinite_weights_arrive_as_they_are():
    g = ConvGeometry(N=1, C=2, H=4, W=4, K=3, R=1, S=1)
    x = np.ones(g.x_shape, np.float32)
    w = np.zeros(g.w_shape, np.float32)
    w[0, 0], w[1, 1], w[2, 0] = np.nan, np.inf, -np.inf
    y = on_engine(g, x, w)
    assert np.isnan(y[:, 0]).all()
    assert (y[:, 1] == np.inf).all()
    assert (y[:, 2] == -np.inf).all()


def test_halves_of_the_channels_share_the_non_zeros():
    g = ConvGeometry(N=1, C=64, H=5, W=5, K=2, R=3, S=3)
    parts = codegen.generate(g, data(g)[1], Choice(2, 64, splits=2))
    assert len(parts) == 2
    assert abs(parts[0].nnz - parts[1].nnz) < 0.1 * parts[0].nnz


def test_a_batch_of_any_size_runs_the_same_source():
    g, w = GEOMETRIES[1], data(GEOMETRIES[1])[1]
    sources = [
        [p.source for p in codegen.generate(ConvGeometry(**{**vars(g), "N": n}), w, Choice(3, 50))] for n in (1, 7)
    ]
    assert sources[0] == sources[1]


def test_conv2d_takes_codegen_and_an_empty_batch():
    g = GEOMETRIES[1]
    x, w = data(g)
    assert_right(g, x, w, conv2d(x, w, pad=1, method="codegen"))
    assert conv2d(x[:0], w, pad=1, method="codegen").shape == (0, 6, 9, 7)


@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_every_filter_is_in_one_kernel_of_its_own_group(most):
    g = ConvGeometry(N=1, C=4, H=5, W=5, K=14, R=3, S=3, groups=2)
    shares = generator.shares(g, data(g)[1], most)
    assert sorted(k for share in shares for k in share) == list(range(14))
    assert all(len(share) <= most and len({k // 7 for k in share}) == 1 for share in shares)


def test_kernels_share_the_non_zeros_of_uneven_filters():
    g = ConvGeometry(N=1, C=64, H=5, W=5, K=16, R=3, S=3)
    w = np.ones(g.w_shape, np.float32)
    for k in range(16):
        w[k, 4 * k :] = 0
    lengths = [part.nnz for part in codegen.generate(g, w, Choice(4, 64))]
    assert max(lengths) < 1.1 * min(lengths)


# ---- where things lie


@pytest.mark.parametrize(("H", "W"), [(13, 13), (14, 14), (7, 7), (28, 28), (27, 27)])
def test_warps_read_shared_memory_almost_without_conflicts(H, W):
    g = ConvGeometry(N=3, C=4, H=H, W=W, K=2, R=3, S=3, pad=(1, 1))
    x, w = data(g, sparsity=0)
    choice = Choice(2, 128)
    (part,) = codegen.generate(g, w, choice)
    tiling = Tiling(g, choice)
    kernel = compile_cuda(part.source)[generator.KERNEL]
    y = np.zeros(g.y_shape, np.float32)
    result = launch(kernel, tiling.blocks(g.N), choice.threads, [x, y, g.N], tiling.shared_bytes)
    loads = [a for a in result.counters.shared if a.op == "load"]
    assert sum(a.wavefronts for a in loads) <= 1.1 * sum(a.wavefronts_ideal for a in loads)


@pytest.mark.parametrize("g", GEOMETRIES, ids=lambda g: f"{g.N}x{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}")
def test_the_model_chooses_what_fits(g):
    w = data(g)[1]
    for multiprocessors in (1, 132):
        choice = codegen.default_choice(g, w, multiprocessors)
        assert 1 <= choice.filters <= g.K // g.groups
        assert model.fits(Tiling(g, choice))
        convolution.check(g, w, choice)


def measured() -> dict[tuple[str, str], list[tuple[float, float]]]:
    """By layer, what the model foresees and what an H100 took, microseconds (docs/codegen.md)."""
    layers = {(layer.network, layer.name): layer for layer in workloads.layers()}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with Path(__file__).with_name("codegen_measured.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            layer = layers[row["network"], row["layer"]]
            cut = Choice(*(int(row[key]) for key in ("filters", "points", "channels", "splits", "rounds")))
            cycles = model.cost(layer.batch(128), layer.nnz, cut, 132).total
            found.setdefault((layer.network, layer.name), []).append((cycles / 1900, float(row["us"])))
    return found


def test_the_model_foresees_the_times_of_an_h100():
    pairs = np.array([pair for layer in measured().values() for pair in layer])
    ratios = pairs[:, 0] / pairs[:, 1]
    assert np.sqrt(np.mean(np.log(ratios) ** 2)) < 0.15
    assert 0.55 < min(ratios) < max(ratios) < 1.4
    ranks = pairs.argsort(axis=0).argsort(axis=0)
    assert np.corrcoef(ranks.T)[0, 1] > 0.95


def test_what_the_model_prefers_is_nearly_the_fastest_that_was_measured():
    lost = [min(layer)[1] / min(took for _, took in layer) for layer in measured().values()]
    assert np.exp(np.mean(np.log(lost))) < 1.03
    assert max(lost) < 1.2


def test_the_model_foresees_more_time_for_more_weights():
    g = ConvGeometry(N=128, C=256, H=13, W=13, K=384, R=3, S=3, pad=(1, 1))
    choice = Choice(39, 832)
    totals = [model.cost(g, nnz, choice, 132).total for nnz in (1000, 30_000, 60_000, 120_000)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


# ---- what is refused


def test_dense_weights_of_a_large_layer_are_refused_with_their_size():
    g = ConvGeometry(N=1, C=512, H=7, W=7, K=512, R=3, S=3, pad=(1, 1))
    with pytest.raises(GeometryError, match="2359296 of the weights are not zero: as code that is 36 MiB"):
        on_engine(g, np.zeros(g.x_shape, np.float32), np.ones(g.w_shape, np.float32))


def test_images_too_wide_for_shared_memory_are_refused_with_the_bytes():
    g = ConvGeometry(N=1, C=1, H=4, W=9000, K=1, R=3, S=3)
    with pytest.raises(GeometryError, match="bytes, there are 232448"):
        on_engine(g, np.zeros(g.x_shape, np.float32), np.ones(g.w_shape, np.float32))


def test_weights_of_another_shape_or_type_are_refused():
    g = GEOMETRIES[1]
    x, w = data(g)
    with pytest.raises(ArgumentError, match="takes float32"):
        on_engine(g, x, w.astype(np.float64))
    with pytest.raises(ArgumentError, match="takes float32"):
        on_engine(g, x, w[:-1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((2, 5, 9, 7)), np.zeros((2, 6, 9, 7), np.float32), r"x is float64 .*float32 \(N, 5, 9, 7\)"),
        (np.zeros((2, 5, 9, 7), np.float32), np.zeros((2, 6, 9, 8), np.float32), r"y is float32 \(2, 6, 9, 8\)"),
        (
            np.zeros((2, 5, 7, 9), np.float32).transpose(0, 1, 3, 2),
            np.zeros((2, 6, 9, 7), np.float32),
            "not contiguous",
        ),
        (np.zeros((2, 5, 9, 7), np.float32), np.zeros((3, 6, 9, 7), np.float32), "x has 2 images, y has 3"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_a_kernel_runs(x, y, message):
    with pytest.raises(ArgumentError, match=message):
        convolution.require_arrays(GEOMETRIES[1], x, y)


def test_a_driver_older_than_the_compiler_is_refused():
    convolution.require_driver(99)
    with pytest.raises(BackendError, match="the driver is of CUDA 12, the compiler of CUDA 13"):
        convolution.require_driver(12)


@pytest.mark.parametrize("wrong", [(0, 32, 4), (1, 0, 4), (1, 1025, 4), (1, 32, 6), (1, 32, 4, 3), (1, 32, 4, 1, 0)])
def test_a_choice_that_is_none_is_refused(wrong):
    with pytest.raises(GeometryError, match="must be"):
        Choice(*wrong)


# ---- machine code, and what is kept

SOURCE = 'extern "C" __global__ void codegen(float* y) { y[threadIdx.x] = %d; }'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "convladder"


@pytest.mark.usefixtures("folder")
def test_machine_code_is_made_once_and_kept():
    sources = [SOURCE % i for i in range(3)]
    told = []
    first = assembler.build(sources, "sm_90", workers=2, progress=lambda done, of: told.append((done, of)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert [one.cached for one in first] == [False] * 3
    assert all(one.cubin[:4] == b"\x7fELF" and one.code_bytes > 0 and one.registers > 0 for one in first)
    again = assembler.build(sources, "sm_90")
    assert [one.cached for one in again] == [True] * 3
    assert [one.cubin for one in again] == [one.cubin for one in first]


@pytest.mark.usefixtures("folder")
def test_another_architecture_is_another_code():
    one, other = (assembler.build([SOURCE % 1], arch, workers=1)[0] for arch in ("sm_80", "sm_90"))
    assert one.cubin != other.cubin
    assert not other.cached


@pytest.mark.usefixtures("folder")
def test_a_source_that_does_not_compile_tells_the_compilers_log():
    with pytest.raises(CompileError, match="nothing") as caught:
        assembler.build(["__global__ void codegen() { nothing; }"], "sm_90", workers=1)
    assert "nothing" in caught.value.log


def test_a_damaged_entry_is_made_again_with_a_warning(folder):
    (first,) = assembler.build([SOURCE % 1], "sm_90", workers=1)
    (file,) = folder.glob("codegen-*.o")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.warns(UserWarning, match="damaged"):
        (again,) = assembler.build([SOURCE % 1], "sm_90", workers=1)
    assert (again.cached, again.cubin) == (False, first.cubin)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert assembler.build([SOURCE % 1], "sm_90")[0].cached


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    with pytest.warns(UserWarning, match="cannot be kept"):
        (built,) = assembler.build([SOURCE % 1], "sm_90", workers=1)
    assert built.code_bytes


def test_two_processes_may_fill_the_cache_at_once(folder):
    code = (
        "from convladder.kernels.codegen import assembler; "
        f"print(len(assembler.build([{SOURCE!r} % i for i in range(4)], 'sm_90', workers=1)))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder.parent)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["4", "4"]
    assert len(list(folder.glob("codegen-*.o"))) == 4
    assert not list(folder.glob("*.tmp"))
    assert all(one.cached for one in assembler.build([SOURCE % i for i in range(4)], "sm_90"))


def test_a_worker_that_ends_is_an_error_that_says_what_to_do(monkeypatch, folder):
    monkeypatch.setattr(assembler, "LONGEST_S", 0.0)
    with pytest.raises(BackendError, match="fewer filters a kernel"):
        assembler.build([SOURCE % 1], "sm_90", workers=1)
    assert not list(folder.glob("codegen-*.o"))


def test_generated_code_assembles_for_an_h100_without_spills(folder):
    g = ConvGeometry(N=128, C=64, H=14, W=14, K=32, R=3, S=3, pad=(1, 1))
    w = data(g, 0.93)[1]
    choice = codegen.default_choice(g, w, 132)
    built = assembler.build([part.source for part in codegen.generate(g, w, choice)], "sm_90", workers=1)
    assert sum(one.spill_bytes for one in built) < 200
    assert sum(one.code_bytes for one in built) > 16 * np.count_nonzero(w)
    assert re.match(r"codegen-[0-9a-f]{64}\.o", next(folder.iterdir()).name)
    assert objectcache.read(next(folder.iterdir()).stem)


# ---- the tuner

LAYER = ConvGeometry(N=4, C=16, H=14, W=14, K=32, R=3, S=3, pad=(1, 1))


@pytest.mark.usefixtures("folder")
def test_the_tuner_finds_and_keeps_the_fastest_of_what_it_tried():
    w = data(LAYER, 0.9)[1]
    told = []
    tuned = codegen.tune(
        LAYER,
        w,
        most=7,
        progress=lambda done, of, best: told.append((done, of, best.us)),
        measure=lambda choices: [100.0 + abs(c.filters - 11) + c.channels / 4 for c in choices],
    )
    assert tuned.complete
    assert len(tuned.trials) == 7
    assert tuned.us == min(trial.us for trial in tuned.trials)
    assert tuned.choice == min(tuned.trials, key=lambda trial: trial.us).choice
    assert [done for done, _, _ in told] == [3, 6, 7]
    assert kept_choice(LAYER, w) == tuned.choice
    assert kept_choice(LAYER, data(LAYER, 0.9, seed=1)[1]) is None


@pytest.mark.usefixtures("folder")
def test_the_tuner_stops_when_its_time_is_over():
    tuned = codegen.tune(LAYER, data(LAYER)[1], seconds=0.0, most=9, measure=lambda choices: [1.0] * len(choices))
    assert not tuned.complete
    assert len(tuned.trials) == 3


@pytest.mark.usefixtures("folder")
def test_a_candidate_that_cannot_run_costs_only_itself():
    w = data(LAYER)[1]
    bad = codegen.tune(LAYER, w, most=4, measure=lambda choices: [1.0] * len(choices)).trials[0].choice
    tuned = codegen.tune(LAYER, w, most=4, measure=lambda choices: ["too wide" if c == bad else 2.0 for c in choices])
    assert [trial.why for trial in tuned.trials if trial.us is None] == ["too wide"]
    assert tuned.choice != bad
    with pytest.raises(GeometryError, match=r"no candidate could be run for .*: too wide"):
        codegen.tune(LAYER, w, most=4, measure=lambda choices: ["too wide"] * len(choices))


def test_a_kept_choice_of_another_version_is_passed_over(folder):
    w = data(LAYER)[1]
    assert keep(LAYER, w, Choice(4, 64))
    key = next(folder.glob("codegen-choice-*.o")).stem
    objectcache.write(key, b'{"filters": 4, "images": 2}')
    assert kept_choice(LAYER, w) is None


# ---- looking into it


def test_the_fetch_measurement_runs_every_part_once_a_pass_and_is_as_long_as_it_says(folder):
    cycles, y = np.zeros((2, 32, fetch.PASSES + 1), np.int64), np.zeros(2048, np.float32)
    kernel = compile_cuda(fetch.source(32))[generator.KERNEL]
    result = launch(kernel, 2, 64, [np.ones(8192, np.float32), y, cycles, 2, 5])
    assert not result.faults
    passes = np.diff(cycles[:, :2], axis=2)
    assert 32 * 1024 / 16 <= passes.min() <= passes.max() < 1.1 * passes.min()
    (built,) = assembler.build([fetch.source(32)], "sm_90", workers=1)
    assert 32 * 1024 <= built.code_bytes < 40 * 1024
    assert not built.spill_bytes
    assert next(folder.iterdir())


def test_rates_follow_from_cycles():
    rate = fetch.Rate(64, 16, 1, 0, 132, False, (32768.0, 16384.0))
    assert rate.bytes_a_cycle == (2.0, 4.0)
    assert rate.busy == (0.5, 1.0)


def test_the_command_prints_a_source_and_names_what_there_is(capsys):
    assert main(["source", "googlenet", "4d/5x5"]) == 0
    assert "codegen(const float* __restrict__ x" in capsys.readouterr().out
    assert main(["source", "alexnet", "conv9"]) == 2
    assert "there are conv2, conv3, conv4, conv5" in capsys.readouterr().err


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("g", GEOMETRIES, ids=lambda g: f"{g.N}x{g.C}x{g.H}x{g.W}-{g.K}x{g.R}x{g.S}")
def test_on_a_gpu_generated_kernels_are_right_for_any_geometry(g, choice):
    cupy = pytest.importorskip("cupy")
    x, w = data(g)
    y = cupy.full(g.y_shape, np.nan, np.float32)
    codegen.Convolution(g, w, choice).enqueue(cupy.asarray(x), y)
    assert_right(g, x, w, y.get())


@pytest.mark.gpu
def test_on_a_gpu_a_graph_can_hold_the_kernels_and_a_second_call_compiles_nothing():
    cupy = pytest.importorskip("cupy")
    x, w = data(LAYER, 0.9)
    convolution = codegen.Convolution(LAYER, w, Choice(8, 196))
    assert convolution.facts.kernels == 4
    on_device, y = cupy.asarray(x), cupy.zeros(LAYER.y_shape, np.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        convolution.enqueue(on_device, y)
        stream.begin_capture()
        convolution.enqueue(on_device, y)
        graph = stream.end_capture()
        y.fill(np.nan)
        graph.launch(stream)
        stream.synchronize()
    assert_right(LAYER, x, w, y.get())
    assert codegen.Convolution(LAYER, w, Choice(8, 196)).facts.cached == 4
    assert codegen.prepared(LAYER, w) is codegen.prepared(LAYER, w.copy())


@pytest.mark.gpu
@pytest.mark.full
def test_on_a_gpu_the_tuner_finds_a_choice_within_its_time():
    pytest.importorskip("cupy")
    w = data(LAYER, 0.9)[1]
    tuned = codegen.tune(LAYER, w, seconds=20, most=4)
    assert tuned.us > 0
    assert codegen.Convolution(LAYER, w).choice == tuned.choice
