"""The measured form of a timing target, on synthetic times and a worker that answers as a GPU would."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convladder.autograde.judge import check, device_lock, judging, kernel_task, open_worker, score, spec, timing
from convladder.autograde.judge.frames import Frame
from convladder.autograde.judge.kernel_task import Judgement
from convladder.autograde.judge.sandbox import SandboxError, SandboxPolicy, Worker, WorkerError
from convladder.autograde.judge.spec import Case, KernelTask, SpecError, Target
from convladder.autograde.judge.submission import Answer
from convladder.autograde.judge.timing import Gain
from convladder.kernels import gpu, measure
from convladder.kernels.errors import BackendError
from convladder.kernels.methods import ladder_source

SIZES = {"N": 2, "C": 2, "H": 9, "W": 11, "K": 3, "R": 3, "S": 3, "U": 1, "pad": 1}
FACTS = {"device": "a device of tests"}
EPS = 1e-9


def times(base: float, text: float, target: float, noise: float = 0.0, rounds: int = 25) -> dict[str, list[float]]:
    rng = np.random.default_rng(1)
    named = {"base": base, "text": text, "target": target}
    return {n: [float(v) for v in t * np.exp(noise * rng.normal(size=rounds))] for n, t in named.items()}


@pytest.fixture
def task(tiny: spec.Spec) -> KernelTask:
    found = tiny.task("conv")
    assert isinstance(found, KernelTask)
    assert found.target is not None
    return replace(found, target=replace(found.target, measured=Case("the measured case", SIZES)))


@pytest.fixture
def target(task: KernelTask) -> Target:
    assert task.target is not None
    return task.target


class GpuWorker:
    """Answers a timing request as a worker with a GPU does: right values, and times that a test chooses."""

    def __init__(self, *sessions: dict[str, list[float]], change: Callable[[list[np.ndarray]], object] = lambda _: 0):
        self.sessions = list(sessions)
        self.change = change
        self.keys: list[str] = []
        self.problem = spec.PROBLEMS["conv2d"]
        self.policy = SandboxPolicy("none")

    def request(self, role: str, header: dict[str, Any], arrays: Sequence[Any] = (), **_: object) -> list[Frame]:
        self.keys.append(header["key"])
        found = {n: t for n, t in self.sessions.pop(0).items() if n in header["texts"]}
        rounds, key = len(next(iter(found.values()))), bytes.fromhex(header["key"])
        rng = np.random.default_rng(0)
        elements = rng.integers(0, 2 * 3 * 9 * 11, (rounds, header["elements"]))
        outputs = [self.problem.expected(SIZES, measure.fresh(key, c, header["inputs"]))[0] for c in range(rounds)]
        exact = [o.expected.astype(np.float32) for o in outputs]
        values = np.stack([y.reshape(-1)[e] for y, e in zip(exact, elements, strict=True)])
        sent = [exact[3].copy(), elements, values] if header["watched"] else []
        self.change(sent)
        body = {"event": "timed", "times_us": found, "calls": 1, "bandwidth_gbs": 3000.0, "peak_gflops": 60000.0,
                "facts": FACTS, "whole_call": 3}  # fmt: skip
        return [Frame(body, sent), Frame({"event": "end"})]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu"):
        return
    monkeypatch.setattr(gpu, "device_id", lambda: "0000:00:00.0")
    monkeypatch.setattr(measure, "device_state", lambda _: {"clocks.sm": "1980 MHz"})
    monkeypatch.setattr(device_lock.tempfile, "gettempdir", lambda: str(tmp_path))


def judged(task: KernelTask, worker: Any, known: Gain | None = None, text: str = "") -> Judgement | str:
    assert task.target is not None
    return timing.judge("tiny", task, task.target, Answer(text or "text"), worker, b"s", known)


def verdict(task: KernelTask, *sessions: dict[str, list[float]], **how: Any) -> Judgement:
    found = judged(task, GpuWorker(*sessions, **how))
    assert isinstance(found, Judgement)
    return found


# ---- the scale


@pytest.mark.parametrize(
    ("text", "expected"), [(400, 0), (800, 0), (100, 1), (50, 1), (200, 0.5), (400 / 1.04, 0), (104, 1)]
)
def test_the_share_runs_from_the_bases_time_to_the_targets(text: float, expected: float) -> None:
    assert timing.share(times(400, text, 100), 0.05).value == pytest.approx(expected, abs=EPS)


def test_without_tolerance_the_share_is_the_ratio_of_the_logarithms() -> None:
    found = timing.share(times(400, 130, 100), 0).value
    assert found == pytest.approx(math.log(400 / 130) / math.log(4))


def test_a_faster_kernel_never_scores_less() -> None:
    found = [timing.share(times(400, t, 100), 0.05).value for t in np.linspace(500, 50, 60)]
    assert found == sorted(found)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("text", "expected"), [(100, 1), (155, 0)])
def test_two_percent_of_noise_cost_neither_reference_a_point_at_the_least_gain(
    seed: int, text: float, expected: float
) -> None:
    rng = np.random.default_rng(seed)
    noisy = {n: list(t * rng.normal(1, 0.02, 25)) for n, t in (("base", 155), ("text", text), ("target", 100))}
    assert timing.share(noisy, 0.05).value == expected


# ---- verdicts


def test_the_targets_time_gets_full_marks_with_its_evidence(task: KernelTask) -> None:
    found = verdict(task, times(400, 101, 100, 0.002))
    assert (found.passed, found.share) == (True, 1.0)
    assert "a device of tests" in found.rationale
    e = found.evidence
    assert e["form"] == "measured"
    assert e["checked"] == {"runs": 25, "in_full": 1, "elements_of_the_others": timing.ELEMENTS}
    assert e["device_before"] == {"clocks.sm": "1980 MHz"}
    assert e["share"]["low"] <= e["share"]["value"] <= e["share"]["high"]
    assert len(e["times_us"]["text"]) == 25


def test_the_bases_time_gets_nothing(task: KernelTask) -> None:
    found = verdict(task, times(400, 396, 100, 0.002))
    assert (found.passed, found.share) == (False, 0.0)


def test_a_time_between_gets_a_part(task: KernelTask) -> None:
    found = verdict(task, times(400, 200, 100, 0.002))
    assert found.passed is False
    assert found.share == pytest.approx(0.5, abs=0.02)


def test_a_wide_interval_is_measured_again_with_other_data(task: KernelTask) -> None:
    worker = GpuWorker(times(400, 200, 100, 0.8), times(400, 200, 100, 0.002))
    found = judged(task, worker)
    assert isinstance(found, Judgement)
    assert found.share == pytest.approx(0.5, abs=0.02)
    assert len(found.evidence["attempts"]) == 2
    assert len(set(worker.keys)) == 2


def test_what_stays_unclear_is_inconclusive_and_never_guessed(task: KernelTask) -> None:
    known = Gain("d", 4.0, 3.9, 4.1)
    found = judged(task, GpuWorker(*[times(400, 200, 100, 0.8)] * timing.ATTEMPTS), known)
    assert isinstance(found, Judgement)
    assert found.passed is None
    assert found.evidence["inconclusive"]
    record = kernel_task.record("conv.target", task, 15.0, found, False)
    assert (record.passed, record.score) == (None, 0.0)
    assert judging._open_ends([record]) == {"unfinished": "inconclusive: conv.target"}


def test_noise_that_cannot_change_the_points_is_no_reason_to_doubt(task: KernelTask) -> None:
    found = verdict(task, times(400, 40, 100, 0.1))
    assert (found.passed, found.share, len(found.evidence["attempts"])) == (True, 1.0, 1)


def test_faster_than_the_limit_is_flagged_and_not_zeroed(task: KernelTask) -> None:
    moved, flops = task.problem.work(SIZES)
    limit = measure.limit_us(moved, flops, 3000.0, 60000.0)
    suspicious, plausible = (verdict(task, times(400, t, 100)) for t in (0.5 * limit, 0.9 * limit))
    assert suspicious.share == 1.0
    assert "review" in suspicious.evidence
    assert "review" not in plausible.evidence


# ---- where the counters take over


def test_a_target_that_is_hardly_faster_here_is_left_to_the_counters(task: KernelTask) -> None:
    said = judged(task, GpuWorker(times(140, 100, 100, 0.002)))
    assert isinstance(said, str)
    assert "1.40 times" in said


def test_what_was_found_for_the_class_decides_for_everybody(task: KernelTask) -> None:
    assert isinstance(judged(task, GpuWorker(), Gain("d", 1.4, 1.39, 1.41)), str)  # nothing is even timed
    found = judged(task, GpuWorker(times(148, 100, 100, 0.002)), Gain("d", 1.55, 1.52, 1.58))
    assert isinstance(found, Judgement)


def test_a_task_without_a_measured_case_is_left_to_the_counters(task: KernelTask, target: Target) -> None:
    said = judged(replace(task, target=replace(target, measured=None)), GpuWorker())
    assert said == "it has no measured case"


def test_the_record_says_that_the_counters_scored(tiny: spec.Spec, worker: Worker, conv: str) -> None:
    task = tiny.task("conv")
    assert isinstance(task, KernelTask)
    assert task.target is not None
    answer = Answer(conv)
    run = kernel_task.run("tiny", task, answer, worker, on="sim", secret=b"", cases=list(task.cases))
    found = check._target(tiny, task, task.target, run, answer, worker, "measured", b"", None)
    counted = kernel_task.target(task, task.target, run, answer)
    assert found.share == counted.share
    assert found.evidence["form"] == "counters"
    assert "Scored by its counters: it has no measured case" in found.rationale


def test_the_class_is_calibrated_with_the_rungs_alone(tiny: spec.Spec, task: KernelTask) -> None:
    lab = replace(tiny, tasks=(task,))
    gains = timing.calibrate(lab, GpuWorker(times(400, 1, 100)), b"")  # type: ignore[arg-type]
    assert gains["conv"].ratio == pytest.approx(4)
    assert gains["conv"].timed


def test_where_the_rungs_are_not_there_the_text_is_timed_alone_and_checked(task: KernelTask) -> None:
    assert task.target is not None
    sent = ("tiny", task, task.target, Answer("text"))
    assert timing.alone(*sent, GpuWorker(times(400, 150, 100)), b"s") == "150 µs on a device of tests"
    spoiled = GpuWorker(times(400, 150, 100), change=spoil_whole)
    assert "in a timed run" in timing.alone(*sent, spoiled, b"s")


def test_times_without_a_gpu_are_refused(tiny: spec.Spec, worker: Worker, conv: str) -> None:
    with pytest.raises(BackendError, match="needs a GPU"):
        check.check_task(tiny, "conv", conv, worker, on="sim", timing="measured")


def test_a_measured_target_has_the_points_of_a_counted_one(tiny: spec.Spec) -> None:
    assert score.planned(tiny, timing="measured") == score.planned(tiny, timing="counters")


# ---- what the timed runs returned


def spoil_whole(sent: list[np.ndarray]) -> None:
    sent[0][1, 2, 3, 4] += 0.1


def spoil_one_element(sent: list[np.ndarray]) -> None:
    sent[2][17, 5] = -1000.0


def leave_unwritten(sent: list[np.ndarray]) -> None:
    sent[2][24] = np.nan


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (spoil_whole, "y[1,2,3,4]"),
        (spoil_one_element, "timed run 18: 1 of"),
        (leave_unwritten, f"timed run 25: {timing.ELEMENTS} of"),
    ],
)
def test_a_wrong_value_in_any_timed_run_costs_the_points(task: KernelTask, change: Any, says: str) -> None:
    found = verdict(task, times(400, 100, 100), change=change)
    assert (found.passed, found.share) == (False, 0.0)
    assert says in found.rationale


def test_a_reply_that_leaves_runs_out_is_no_result(task: KernelTask) -> None:
    with pytest.raises(SandboxError, match="cannot be read"):
        verdict(task, times(400, 100, 100), change=lambda sent: sent.__setitem__(2, sent[2][:-1]))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf])
def test_times_that_are_none_are_no_result(task: KernelTask, bad: float) -> None:
    spoilt = times(400, 100, 100)
    spoilt["text"][7] = bad
    with pytest.raises(SandboxError, match="cannot be read"):
        verdict(task, spoilt)


def test_a_kernel_that_does_not_end_when_it_is_timed_fails(task: KernelTask) -> None:
    class Hanging(GpuWorker):
        def request(self, *_: object, **__: object) -> list[Frame]:
            raise WorkerError("time", "no answer within 90 s")

    found = judged(task, Hanging())
    assert isinstance(found, Judgement)
    assert (found.passed, found.share) == (False, 0.0)
    assert "did not come to an end" in found.rationale


def test_a_kernel_that_fails_on_the_device_fails(task: KernelTask) -> None:
    class Failing(GpuWorker):
        def request(self, *_: object, **__: object) -> list[Frame]:
            said = "on the GPU: an illegal memory access was encountered"
            return [Frame({"event": "error", "stage": "gpu", "type": "_GpuError", "message": said, "line": 0})]

    found = judged(task, Failing())
    assert isinstance(found, Judgement)
    assert "illegal memory access" in found.rationale
    assert "Timed case: N=2" in found.rationale


# ---- the spec, the lock


def test_some_elements_are_expected_as_in_the_whole_output(task: KernelTask) -> None:
    sizes = {**SIZES, "C": 4, "K": 6, "U": 2, "pad": 2, "dil": 2, "groups": 2}
    inputs = measure.fresh(b"k", 0, task.problem.timed_shapes(sizes)[0])
    (output,) = task.problem.expected(sizes, inputs)
    elements = np.arange(output.expected.size)
    expected, bound = task.problem.expected_at(sizes, inputs, elements)
    assert expected == pytest.approx(output.expected.reshape(-1), abs=1e-12)
    assert bound == pytest.approx(output.bound.reshape(-1))


def test_the_work_of_a_layer_leaves_the_padding_out(task: KernelTask) -> None:
    one = {"N": 1, "C": 1, "H": 2, "W": 2, "K": 1, "R": 3, "S": 3, "U": 1, "pad": 1}
    moved, flops = task.problem.work(one)
    assert moved == 4 * (4 + 9 + 4)
    assert flops == 2 * 4 * 4  # each of four outputs sees the four elements of the image


def test_the_labs_measured_case_is_a_whole_layer() -> None:
    found = spec.load("01_direct").task("direct_coalesced")
    assert isinstance(found, KernelTask)
    assert found.target is not None
    assert found.target.measured is not None
    assert found.problem.work(found.target.measured.symbols)[1] > 1e9


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("measured_case = {N = 1}", "`C` is missing"),
        ("tolerance = 0.5", "between 0 and 0.15"),
        ("measured_cases = {N = 1}", "is not a key here"),
    ],
)
def test_a_spec_with_a_wrong_measured_case_is_refused(tmp_path: Any, specs_dir: Any, line: str, says: str) -> None:
    text = (specs_dir / "tiny.toml").read_text().replace('  value = "sectors"\n', f'  value = "sectors"\n  {line}\n')
    (tmp_path / "tiny.toml").write_text(text)
    with pytest.raises(SpecError, match=says):
        spec.load("tiny", tmp_path)


def test_a_device_is_held_by_many_or_by_one(device: None) -> None:
    fcntl = pytest.importorskip("fcntl")
    with device_lock.held("d", alone=False), device_lock.held("d", alone=False):
        other = device_lock._open("d", "lock")
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # both have let go


def test_a_timing_that_gets_no_pause_closes_the_gate(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(device_lock, "_PATIENCE_S", 0.0)
    taken: list[bool] = []

    def wait() -> None:
        with device_lock.held("d", alone=True):
            taken.append(True)

    with device_lock.held("d", alone=False):
        waiting = threading.Thread(target=wait)
        waiting.start()
        gate = device_lock._open("d", "gate")
        while not taken:  # ends when the gate is closed, long before the lock is let go
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                break
            fcntl.flock(gate, fcntl.LOCK_UN)
        assert not taken
    waiting.join()
    assert taken


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("rung", "share"), [("direct_coalesced", 1.0), ("direct_report", 0.0)])
def test_the_rungs_of_lab_1_get_all_and_nothing(rung: str, share: float) -> None:
    task = spec.load("01_direct").task("direct_coalesced")
    assert isinstance(task, KernelTask)
    with open_worker(SandboxPolicy("none", gpu=True)) as worker:
        found = judged(task, worker, text=ladder_source(rung))
    if isinstance(found, str):
        pytest.skip(found)
    assert found.share == share
