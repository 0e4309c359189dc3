"""A failing kernel is shown on the smallest case that fails the same way, with its numbers and its reason."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from convladder.autograde.judge import check, counterexample, spec
from convladder.autograde.judge.counterexample import WholeNumbers
from convladder.autograde.judge.record import CheckRecord
from convladder.autograde.judge.sandbox import Worker
from convladder.autograde.judge.spec import Spec


def failed(tiny: Spec, text: str, worker: Worker) -> CheckRecord:
    records = check.check_task(tiny, "conv", text, worker)
    (record,) = (r for r in records if r.passed is False)
    json.dumps(record.evidence, allow_nan=False)
    return record


def test_wrong_values_are_shown_on_the_smallest_case_with_every_number(tiny: Spec, conv: str, worker: Worker) -> None:
    wrong = conv.replace("((k * C + c) * R + r)", "(k * R + r)")
    assert wrong != conv
    record = failed(tiny, wrong, worker)
    assert record.check == "conv.correct"
    small = record.evidence["counterexample"]
    assert {n: small["symbols"][n] for n in "NCHWKRSU"} == {"N": 1, "C": 2} | dict.fromkeys("HWKRSU", 1)
    x, w = (np.array(small["inputs"][n]["values"]) for n in "xw")
    assert small["expected"] == {"shape": [1, 1, 1, 1], "values": [float(x @ w)]}
    assert small["got"]["values"] == [float(x.sum() * w[0])]
    assert "w[0,0,0,0] instead of w[0,1,0,0]" in small["why"]["sentence"]
    assert "w is read off by [0,-1,0,0]" in record.evidence["why"]["sentence"]


def test_a_fault_is_shown_on_the_smallest_case_with_the_same_fault(tiny: Spec, conv: str, worker: Worker) -> None:
    wrong = conv.replace("h >= 0 && ", "")
    assert wrong != conv
    record = failed(tiny, wrong, worker)
    assert record.check == "conv.runs"
    small = record.evidence["counterexample"]
    assert small["fault"]["kind"] == "out-of-bounds"
    assert small["fault"]["line"] == record.evidence["fault"]["line"]
    assert small["symbols"]["H"] == small["symbols"]["W"] == 1


def test_a_kernel_that_is_right_on_whole_numbers_has_no_counterexample(tiny: Spec, conv: str, worker: Worker) -> None:
    wrong = conv.replace("] = sum", "] = truncf(sum)")
    record = failed(tiny, wrong, worker)
    assert record.check == "conv.correct"
    assert not {"counterexample", "why"} & set(record.evidence)


def test_the_same_text_gets_the_same_counterexample(tiny: Spec, conv: str, worker: Worker) -> None:
    wrong = conv.replace("* U", "* 1")
    assert wrong != conv
    evidence = [failed(tiny, wrong, worker).evidence for _ in range(2)]
    assert evidence[0] == evidence[1]


def test_a_worker_that_dies_while_it_explains_leaves_the_judgement(
    tiny: Spec, conv: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise counterexample.WorkerError("ended", "killed")

    monkeypatch.setattr(counterexample._Search, "_terms", die)
    record = failed(tiny, conv.replace("* U", "* 1"), worker)
    assert record.check == "conv.correct"
    assert "why" not in record.evidence


@pytest.mark.parametrize(
    "header", [{}, {"terms": []}, {"terms": [[1]]}, {"terms": [[["a", [], 0]]]}, {"terms": [[[1, [["x"]], 0]]]}]
)
def test_a_forged_reply_explains_nothing(header: dict[str, Any]) -> None:
    assert counterexample._read_terms(header) is None


def test_whole_numbers_are_drawn_for_every_range_and_repeat() -> None:
    draws = [WholeNumbers(np.random.PCG64(0)).uniform(-1, 1, (20, 5)) for _ in range(2)]
    assert (draws[0] == draws[1]).all()
    assert set(np.unique(draws[0])) == set(range(2, 10))


def test_of_a_hidden_case_the_instructor_sees_the_counterexample_and_the_student_does_not(
    tiny: Spec, conv: str, worker: Worker
) -> None:
    wrong = conv.replace("i += 32", "i += 32 + (pad > 1)")
    record = failed(tiny, wrong, worker)
    assert record.check == "conv.hidden"
    assert record.evidence["counterexample"]["symbols"]["pad"] == 2
    assert not record.student_view().evidence


LOWERED = """//@ temp col float[N*C*R*S*P*Q]
//@ const TL = 16
//@ launch im2col grid=(cdiv(P*Q, 32), C, N) block=32 args=(x, col, C, H, W, R, S, P, Q, U, pad)
//@ launch gemm grid=(cdiv(P*Q, TL), cdiv(K, TL), N) block=(TL, TL) args=(w, col, y, K, P*Q, C*R*S)
__global__ void im2col(const float* x, float* col, int C, int H, int W, int R, int S, int P, int Q, int U, int pad)
{
    int pq = blockIdx.x * blockDim.x + threadIdx.x, c = blockIdx.y, n = blockIdx.z;
    if (pq >= P * Q) return;
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++) {
            int h = pq / Q * U - pad + r, v = pq % Q * U - pad + s;
            bool inside = h >= 0 && h < H && v >= 0 && v < W;
            col[(((n * C + c) * R + r) * S + s) * P * Q + pq] = inside ? x[((n * C + c) * H + h) * W + v] : 0.0f;
        }
}
__global__ void gemm(const float* a, const float* b, float* c, int M, int N, int K)
{
    __shared__ float at[TL][TL], bt[TL][TL];
    int i = blockIdx.x * TL + threadIdx.x, m = blockIdx.y * TL + threadIdx.y;
    b += blockIdx.z * K * N; c += blockIdx.z * M * N;
    float sum = 0;
    for (int l0 = 0; l0 < K; l0 += TL) {
        at[threadIdx.y][threadIdx.x] = m < M && l0 + threadIdx.x < K ? a[m * K + l0 + threadIdx.x] : 0;
        bt[threadIdx.y][threadIdx.x] = l0 + threadIdx.y < K && i < N ? b[(l0 + threadIdx.y) * N + i] : 0;
        __syncthreads();
        for (int l = 0; l < TL - 1; l++) sum += at[threadIdx.y][l] * bt[l][threadIdx.x];
        __syncthreads();
    }
    if (m < M && i < N) c[m * N + i] = sum;
}
"""


def test_a_product_lost_in_a_tile_is_named_by_the_elements_of_the_input(worker: Worker) -> None:
    """Two launches, a scratch array and shared memory lie between the input and the output."""
    records = check.check_task(spec.load("01_direct", hidden=False), "direct_guarded", LOWERED, worker, hidden=False)
    (record,) = (r for r in records if r.passed is False)
    small = record.evidence["counterexample"]
    assert small["symbols"]["C"] * small["symbols"]["R"] * small["symbols"]["S"] >= 16
    assert "is missing (line 27)" in small["why"]["sentence"]
    assert len(small["why"]["missing"]) == 1
