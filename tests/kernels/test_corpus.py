"""Planted bugs over all kinds of kernels, each found at its line; and right kernels, on which nothing is found.

In `corpus/*.cu` a kernel is announced by `//! bug NAME KIND` or `//! clean NAME`, its launches follow. The line to
blame carries `// <-`; in a kernel that several share, `<- NAME`. `//! NAME SIZE` gives a number, `//! NAME TYPE[SIZE]`
an array: `out` has no contents, `mod N` and `step N` say what integers it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convladder.kernels import compile_cuda, expression, out, plan
from convladder.kernels.signature import SCALARS

FOLDER = Path(__file__).parent / "corpus"
BUDGET = 500_000


@dataclass(frozen=True)
class Planted:
    """One kernel of the corpus; kind "" where nothing may be found."""

    file: str
    name: str
    kind: str
    first: int
    last: int
    line: int

    def __str__(self) -> str:
        return f"{self.file}-{self.name}"


def planted() -> Iterator[Planted]:
    for path in sorted(FOLDER.glob("*.cu")):
        lines = path.read_text().split("\n")
        heads = [n for n, text in enumerate(lines, 1) if re.match(r"//! (bug|clean) ", text)]
        for first, following in zip(heads, [*heads[1:], len(lines) + 1], strict=True):
            what, name, *kind = lines[first - 1].removeprefix("//! ").split()
            marked = [n for n in range(first, following) if re.search(r"// <-", lines[n - 1])]
            marked += [n for n, text in enumerate(lines, 1) if re.search(rf"<- {name}\b", text)]
            assert len(marked) == (what == "bug"), f"{path.name}: {name} has {len(marked)} marked lines"
            yield Planted(path.stem, name, kind[0] if kind else "", first, following - 1, marked[0] if marked else 0)


CORPUS = list(planted())


@cache
def compiled(file: str) -> tuple[Any, plan.Plan]:
    source = (FOLDER / f"{file}.cu").read_text()
    return compile_cuda(source, on="sim"), plan.parse(source)


def given(file: str) -> tuple[dict[str, int], dict[str, Any]]:
    """The numbers and the arrays that a file declares, the same every time."""
    numbers: dict[str, int] = {}
    arrays: dict[str, Any] = {}
    source = (FOLDER / f"{file}.cu").read_text()
    for text in re.findall(r"^//! (?!bug|clean)(.*)$", source, re.MULTILINE):
        for item in text.split(", "):
            name, is_out, dtype, size, how = re.fullmatch(
                r"(\w+) (out )?(?:(\w+)\[)?([^\]]+?)(?:\](?: (\w+ \w+))?)?", item
            ).groups()  # type: ignore[union-attr]
            value = int(expression.evaluate(size, numbers))
            if dtype is None:
                numbers[name] = value
                continue
            word, by = (how or "mod 1000000").split()
            number = int(expression.evaluate(by, numbers))
            counted = np.arange(value) % number if word == "mod" else np.arange(value) * number
            array = (counted + (dtype == "float")).astype(SCALARS[dtype])
            arrays[name] = out(array) if is_out else array
    return numbers, arrays


def run(kernel: Planted) -> list[Any]:
    module, parsed = compiled(kernel.file)
    numbers, arrays = given(kernel.file)
    launches = tuple(line for line in parsed.launches if kernel.first <= line.line <= kernel.last)
    results = plan.run(module, replace(parsed, launches=launches), numbers, arrays, budget=BUDGET)
    return [fault for _, result in results for fault in result.faults]


@pytest.mark.parametrize("kernel", [p for p in CORPUS if p.kind], ids=str)
def test_a_planted_bug_is_found_with_its_kind_and_line(kernel: Planted) -> None:
    faults = run(kernel)
    assert faults, "nothing was found"
    assert (faults[0].kind, faults[0].line) == (kernel.kind, kernel.line), [str(f) for f in faults]


@pytest.mark.parametrize("kernel", [p for p in CORPUS if not p.kind], ids=str)
def test_on_a_right_kernel_nothing_is_found(kernel: Planted) -> None:
    assert [str(fault) for fault in run(kernel)] == []


def test_three_runs_report_the_same() -> None:
    for kernel in CORPUS:
        first, *others = ([str(f) for f in run(kernel)] for _ in range(3))
        assert all(other == first for other in others), kernel.name
