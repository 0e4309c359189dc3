"""The suite `codesize`: what weights as code take of memory, beside the code-generation paper's table 4. Needs no GPU.

The paper does not give the shapes of its ten operators. These K x C x R x S are inferred from its sizes: with them a
weight costs about 22 bytes of machine code in each operator. The inputs are ours. A KB is 1000 bytes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ... import __version__
from .. import codegen, workloads
from ..codegen.assembler import build
from ..compiler import compiler_version
from ..layouts import ConvGeometry
from .claims import Verdict
from .compare import Progress, rows
from .tables import Record, Row, Table, values

SUITE = "codesize"

#: What is compiled for, and its multiprocessors: an H100.
ARCH, MULTIPROCESSORS = "sm_90", 132

#: K, C, R = S, and H = W of the input; all sides padded so that the output is as large, but LeNet's.
_SHAPES = {
    "alexnet-conv1": (32, 3, 5, 32), "alexnet-conv2": (32, 32, 5, 16), "alexnet-conv3": (64, 32, 5, 8),
    "lenet-conv1": (20, 1, 5, 28), "lenet-conv2": (50, 20, 5, 12),
    "resnet-conv1": (64, 64, 3, 56), "resnet-conv2": (128, 128, 3, 28),
    "vgg-conv1": (64, 3, 3, 32), "vgg-conv2": (64, 64, 3, 32), "vgg-conv3": (128, 64, 3, 16),
}  # fmt: skip
OPERATORS = tuple(_SHAPES)
_BATCH = 128

#: Table 4: KB of PTX and of cubin, by sparsity, in the order of the operators.
_PAPER = {
    "ptx": {
        0.0: (244.19, 2670.04, 5348.87, 55.54, 2581.98, 4207.35, 16156.37, 191.94, 4070.51, 8075.77),
        0.5: (135.47, 1404.52, 2822.49, 35.79, 1387.26, 2386.16, 8756.73, 114.38, 2193.88, 4293.33),
        0.9: (51.15, 421.74, 854.96, 16.87, 448.33, 998.64, 3023.07, 56.27, 746.77, 1410.06),
    },
    "cubin": {
        0.0: (63.16, 603.23, 1205.79, 17.29, 599.54, 958.16, 3617.48, 53.66, 900.41, 1775.91),
        0.5: (37.35, 325.60, 651.48, 12.41, 330.66, 557.98, 2019.41, 34.54, 500.04, 972.04),
        0.9: (16.41, 98.54, 196.79, 7.29, 106.79, 232.54, 709.35, 19.16, 177.29, 333.29),
    },
}
SPARSITIES = tuple(_PAPER["ptx"])

#: Bytes of a non-zero in CSR, its column and its value; the row pointers are left out here too.
CSR_BYTES = 8


def geometry(operator: str) -> ConvGeometry:
    """The operator's convolution, by our inference."""
    filters, channels, side, size = _SHAPES[operator]
    pad = 0 if operator.startswith("lenet") else side // 2
    return ConvGeometry(_BATCH, channels, size, size, filters, side, side, pad=(pad, pad))


def measure(progress: Progress = lambda *_: None, workers: int | None = None) -> Record:
    """Generate and compile every operator at every sparsity: the suite's record.

    progress  is told (cases done, cases in all, the name of the next);  workers  processes that compile
    Raises BackendError without NVRTC.
    """
    todo = [(operator, sparsity) for operator in OPERATORS for sparsity in SPARSITIES]
    solved = []
    for number, (operator, sparsity) in enumerate(todo):
        progress(number, len(todo), f"{operator} at {sparsity:.0%}")
        solved.append(sizes(operator, sparsity, workers))
    progress(len(todo), len(todo), "")
    return {
        "suite": SUITE, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": {"device": ARCH}, "device_state": {}, "rungs": {},
        "versions": {"convladder": __version__, "NVRTC": compiler_version()}, "cases": solved,
    }  # fmt: skip


def sizes(
    operator: str, sparsity: float, workers: int | None = None, choice: codegen.Choice | None = None
) -> dict[str, Any]:
    """One operator at one sparsity: a case of the record. choice  how the code is cut; None: the model's default."""
    g = geometry(operator)
    size = g.K * g.products
    nnz = round(size * (1 - sparsity))
    w = workloads.weights(g, nnz)
    choice = choice or codegen.default_choice(g, w, MULTIPROCESSORS)
    parts = codegen.generate(g, w, choice)
    built = build([part.source for part in parts], ARCH, workers)
    where = OPERATORS.index(operator)
    return {
        "case": f"{operator} at {sparsity:.0%}", "operator": operator, "sparsity": sparsity, "nnz": nnz,
        "shape": [g.K, g.C, g.R, g.S], "ways": [{
            "way": "codegen", "choice": asdict(choice), "kernels": len(parts),
            "ptx_bytes": sum(one.ptx_bytes for one in built), "cubin_bytes": sum(len(one.cubin) for one in built),
            "code_bytes": sum(one.code_bytes for one in built),
            "paper_ptx_kb": _PAPER["ptx"][sparsity][where], "paper_cubin_kb": _PAPER["cubin"][sparsity][where],
        }],
    }  # fmt: skip


def tables(record: Record) -> list[Table]:
    """Sizes beside the paper's, and bytes a non-zero."""
    solved, lines = rows(record), []
    for operator in values(solved, "operator"):
        here = [row for row in solved if row["operator"] == operator]
        lines.append(
            (
                operator, "×".join(map(str, here[0]["shape"])),
                *(f"{row['ptx_bytes'] / 1e3:.0f} ({row['paper_ptx_kb']:.0f})" for row in here),
                *(f"{row['cubin_bytes'] / 1e3:.0f} ({row['paper_cubin_kb']:.0f})" for row in here),
                *(f"{_per_weight(row):.1f} ({_paper_per_weight(row):.1f})" for row in here),
            )
        )  # fmt: skip
    columns = (
        "operator", "K×C×R×S", *(f"{what} at {sparsity:g}" for what in ("PTX, KB", "cubin, KB", "bytes a non-zero")
                                 for sparsity in SPARSITIES),
    )  # fmt: skip
    made = f"{record['device']['device']}, NVRTC {record['versions']['NVRTC']}"
    title = f"Size of weights as code at three sparsities, {made} (the paper's); CSR takes {CSR_BYTES} bytes a non-zero"
    return [Table(title, columns, tuple(lines))]


def verdicts(record: Record) -> Iterator[Verdict]:
    """What the paper says of its table 4."""
    sparse = [row for row in rows(record) if row["sparsity"] == max(SPARSITIES)]
    kilobytes = [row["cubin_bytes"] / 1e3 for row in sparse]
    ours, theirs = ([per(row) for row in sparse] for per in (_per_weight, _paper_per_weight))
    yield Verdict(
        "with 0.9 of the weights zero the machine code of an operator takes 7.29 to 709.35 KB",
        "code-generation paper, table 4",
        f"{min(kilobytes):.1f} to {max(kilobytes):.1f} KB for {record['device']['device']}: {min(ours):.0f} to "
        f"{max(ours):.0f} bytes a non-zero, the paper's {min(theirs):.0f} to {max(theirs):.0f}, CSR's {CSR_BYTES}",
    )


def _per_weight(row: Row) -> float:
    return row["cubin_bytes"] / row["nnz"]


def _paper_per_weight(row: Row) -> float:
    return 1e3 * row["paper_cubin_kb"] / row["nnz"]
