"""Kernel files that say by themselves what they are run on and what is expected of them.

A kernel is announced by `//! bug NAME KIND` or `//! clean NAME`, its launches follow. The line to blame carries
`// <-`; in a kernel that several share, `<- NAME`. `//! NAME SIZE` gives a number, `//! NAME TYPE[SIZE]` an array:
`out` has no contents, `mod N` and `step N` say what integers it holds. `//! unlike COUNTER REASON`, after a kernel's
head, says which of its counters differ from the hardware's, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from convladder.kernels import compile_cuda, expression, out, plan
from convladder.kernels.module import Backend, Module, Ready
from convladder.kernels.signature import SCALARS

HERE = Path(__file__).parent

#: Planted bugs and right kernels of all kinds.
CORPUS = HERE.parent / "corpus"

#: Right kernels whose counters the hardware counted too.
COUNTED = HERE / "kernels"


@dataclass(frozen=True)
class Annotated:
    """One kernel of a file with all its launches; `kind` is "" where nothing may be found."""

    path: Path
    name: str
    kind: str
    first: int
    last: int
    line: int
    unlike: dict[str, str]

    def __str__(self) -> str:
        return f"{self.path.stem}-{self.name}"

    def text(self) -> str:
        return self.path.read_text()

    def plan(self) -> plan.Plan:
        """The launches of this kernel alone."""
        parsed = plan.parse(self.text())
        return replace(parsed, launches=tuple(x for x in parsed.launches if self.first <= x.line <= self.last))

    @property
    def on(self) -> str:
        """The file that it stands in."""
        return self.path.name

    def given(self) -> tuple[dict[str, int], dict[str, Any]]:
        """Its numbers and arrays, made anew."""
        return given(self.text())

    def module(self, on: Backend) -> Module:
        return compiled(self.path, on)


@cache
def compiled(path: Path, on: Backend) -> Module:
    return compile_cuda(path.read_text(), on=on)


def annotated(folder: Path) -> Iterator[Annotated]:
    """Every announced kernel of the folder's files."""
    for path in sorted(folder.glob("*.cu")):
        lines = path.read_text().split("\n")
        heads = [n for n, text in enumerate(lines, 1) if re.match(r"//! (bug|clean) ", text)]
        for first, following in zip(heads, [*heads[1:], len(lines) + 1], strict=True):
            what, name, *kind = lines[first - 1].removeprefix("//! ").split()
            marked = [n for n in range(first, following) if re.search(r"// <-", lines[n - 1])]
            marked += [n for n, text in enumerate(lines, 1) if re.search(rf"<- {name}\b", text)]
            assert len(marked) == (what == "bug"), f"{path.name}: {name} has {len(marked)} marked lines"
            unlike = re.findall(r"(?m)^//! unlike (\w+) (.*)$", "\n".join(lines[first : following - 1]))
            yield Annotated(
                path,
                name,
                kind[0] if kind else "",
                first,
                following - 1,
                marked[0] if marked else 0,
                dict(unlike),
            )


def given(source: str) -> tuple[dict[str, int], dict[str, Any]]:
    """The numbers and the arrays that a file declares, the same every time."""
    numbers: dict[str, int] = {}
    arrays: dict[str, Any] = {}
    for text in re.findall(r"^//! (?!bug|clean|unlike)(.*)$", source, re.MULTILINE):
        for item in text.split(", "):
            name, is_out, dtype, size, how = re.fullmatch(
                r"(\w+) (out )?(?:([\w ]+)\[)?([^\]]+?)(?:\](?: (\w+ \w+))?)?", item
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


def ready(
    cupy: Any, module: Module, launches: plan.Plan, symbols: dict[str, int], given: dict[str, Any]
) -> list[Ready]:
    """Every launch with its data on a GPU; what is `out` there holds what the device gives."""
    arrays = {
        name: out(cupy.empty(a.array.shape, a.array.dtype)) if isinstance(a, out) else cupy.asarray(a)
        for name, a in given.items()
    }
    return plan.ready(module, launches, symbols, arrays | plan.temps(launches, symbols, "gpu"))
