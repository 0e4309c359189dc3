"""A lecture's kernels: run on the engine, with what went wrong, what moved, and what a warp touched, step by step."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from . import report, single, terminal
from .lanes import lane_map
from .traffic import arrange


@dataclass(frozen=True, repr=False)
class Ran:
    """A run of a kernel, drawn for notebooks and as text."""

    done: single.Run

    def __repr__(self) -> str:
        return terminal.as_text(terminal.single_run(self.done))

    def _repr_html_(self) -> str:
        told = [report.plain(str(fault)) for fault in self.done.faults] or ["no faults"]
        title = Markup("<br>").join(f"{'✗' if self.done.faults else '✓'} {line}" for line in told)
        maps = [drawn for access in self.done.lanes if (drawn := lane_map(access)) is not None]
        page = report.traffic_html(arrange(self.done.counters, self.done.source), title, maps, self.done.printed)
        return Markup("{}<pre>{}</pre>").format(Markup(page), report.plain("\n".join(self.done.described_outputs())))


def run(source: str, *described: str, warp: int | None = None, seed: int = 0) -> Ran:
    """Run CUDA C++ as its own `//@ launch` lines say; what it takes is described as for `convladder run --arg`.

    warp  of block 0, whose accesses are drawn. Raises ConvladderError; what the kernel does wrong is shown
    """
    with tempfile.TemporaryDirectory(prefix="convladder-") as folder:
        path = Path(folder, "demo.cu")
        path.write_text(source.strip("\n") + "\n", encoding="utf-8")
        watch = None if warp is None else (0, warp)
        return Ran(single.run(single.Asked(path, described=described, watch=watch, seed=seed)))
