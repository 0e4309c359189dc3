"""Times of rungs and libraries for the labs' cells: measured on the GPU at hand, or recorded on another and labelled.

    runs.times("lowering", by="size", ways=("direct_report", "step gemv"))

A notebook shows what comes back as a table; `us` and `rows` are for calculating with.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from ...kernels import gpu, recorded
from ...kernels.errors import ArgumentError, BackendError
from .figures import INK, Picture, page_coloured
from .recorded_figures import STYLES

Row = dict[str, Any]

#: What the rounds of one case may take where they are measured in a notebook.
_SECONDS = 0.05


@dataclass(frozen=True)
class Times:
    """One row for each case and way, with its `us`, microseconds.

    origin  where the times were measured, and when
    by      the key that tells the cases apart
    """

    origin: str
    by: str
    ways: tuple[str, ...]
    rows: list[Row] = field(repr=False)

    @property
    def cases(self) -> list[Any]:
        """The values of `by`, in their order."""
        return list(dict.fromkeys(row[self.by] for row in self.rows))

    def us(self, case: Any, way: str) -> float:
        """Microseconds of a way on a case. Raises ArgumentError where there is no such time."""
        return float(self.row(case, way)["us"])

    def row(self, case: Any, way: str) -> Row:
        """All that is known of a way on a case. Raises ArgumentError where it was not timed."""
        for row in self.rows:
            if row[self.by] == case and row["way"] == way and "us" in row:
                return row
        raise ArgumentError(
            f"there is no time of {way!r} at {self.by} = {case!r}: the ways are {', '.join(self.ways)}, "
            f"and {self.by} is {', '.join(map(str, self.cases))}"
        )

    def picture(self, *, per: bool = False) -> Picture:
        """Time against the cases, one curve a way; per: time divided by the case, such as by the images of a batch."""
        figure = Figure(figsize=(6.8, 3.6))
        axes = figure.add_axes((0.1, 0.14, 0.88, 0.62))
        said = []
        lines = itertools.product(("-", "--", ":"), STYLES)
        for way, (line, (color, mark)) in zip(self.ways, lines):
            timed = [(row[self.by], row["us"]) for row in self.rows if row["way"] == way and "us" in row]
            points = [(case, us / case if per else us) for case, us in timed]
            if points:
                axes.plot(*zip(*points, strict=True), line, marker=mark, color=color, markersize=4, label=way)
                said.append(f"{way}: {', '.join(f'{_shown(us)} at {case}' for case, us in points)}")
        page_coloured(axes)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(NullFormatter())
        what = f"µs / {self.by}" if per else "µs"
        axes.set_xlabel(self.by, color=INK)
        axes.set_ylabel(what, color=INK)
        where: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
        axes.legend(ncols=3, fontsize=8, frameon=False, labelcolor=INK, **where)
        alt = f"{what} against {self.by}. {'; '.join(said)}. {self.origin}"
        return Picture.of(figure, self.origin, alt, size=8)

    def __repr__(self) -> str:
        cells = [[self.by, *self.ways], *([str(case), *self._cells(case)] for case in self.cases)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*lines, f"µs; {self.origin}"])

    def _repr_html_(self) -> str:
        head = Markup("").join(Markup("<th>{}</th>").format(name) for name in (self.by, *self.ways))
        body = Markup("").join(
            Markup("<tr><th>{}</th>{}</tr>").format(
                case, Markup("").join(Markup("<td>{}</td>").format(cell) for cell in self._cells(case))
            )
            for case in self.cases
        )
        return Markup("<table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
            f"Microseconds. {self.origin}", head, body
        )

    def _cells(self, case: Any) -> list[str]:
        timed = {row["way"]: row["us"] for row in self.rows if row[self.by] == case and "us" in row}
        return [_shown(timed[way]) if way in timed else "–" for way in self.ways]


def times(
    suite: str, *, by: str, ways: Sequence[str], only: Sequence[Any] | None = None, live: bool = True, **where: Any
) -> Times:
    """Times of some ways of a suite (`convladder bench` lists them): measured here where there is a GPU, else recorded.

    by    a key of the suite's cases, such as "size"; cases without it are left out
    only  of its values, those to take; all where it is None
    live  False: only what is recorded, for what is not measured in a notebook, such as the kernels that ran
    where  other keys of a case with the value that they must have
    Raises BackendError where there is no GPU and nothing is recorded.
    """

    def chosen(about: Mapping[str, Any]) -> bool:
        return by in about and (only is None or about[by] in only) and all(about.get(k) == v for k, v in where.items())

    measured = _measured(suite, by, tuple(ways), chosen) if live and gpu.available() else None
    if measured is not None:
        return measured
    records = recorded.load(suite)
    if not records:
        raise BackendError(
            f"nothing is recorded of the suite {suite}, and there is no GPU to measure it on: run this where one is"
        )
    from ...kernels.bench import compare

    record = records[0]
    rows = [row for row in compare.rows(record) if row["way"] in ways and chosen(row)]
    origin = f"Recorded on {record['device']['device']}, {record['date'][:10]}; not measured on this machine."
    return Times(origin, by, tuple(ways), rows)


def _measured(suite: str, by: str, ways: tuple[str, ...], chosen: Callable[[Row], bool]) -> Times | None:
    """The same on this GPU; None where a way has no time at all, such as a library that is not installed."""
    from ...kernels import stopwatch
    from ...kernels.bench import cases, compare
    from ...kernels.measure import bandwidth_gbs

    cupy = gpu.cupy_module()
    facts = gpu.device_facts()
    rows: list[Row] = []
    with cupy.cuda.Stream(non_blocking=True):
        limit = {
            "bandwidth_gbs": bandwidth_gbs(cupy), "peak_gflops": gpu.fp32_peak_gflops(),
            "load_peak_gwords": gpu.load_peak_gwords(), "empty_launch_us": stopwatch.empty_launch_us(),
        }  # fmt: skip
        for case in cases.cases(suite):
            wanted = tuple(way for way in case.ways if way in ways)
            if wanted and chosen(case.about):
                solved = compare.solve(replace(case, ways=wanted), limit, rounds=5, seconds=_SECONDS)
                rows += compare.rows({"cases": [solved]})
                cupy.get_default_memory_pool().free_all_blocks()
    if {row["way"] for row in rows if "us" in row} < set(ways):
        return None
    return Times(f"Measured here, on {facts['device']}.", by, ways, rows)


def _shown(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"
