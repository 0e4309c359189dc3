"""`convladder show`: a claim as a table, a slide and the numbers behind it; what there is stands in show.toml."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ...kernels import gpu, recorded
from ...kernels.bench import charts, claims, compare, tables, training_results
from ...kernels.bench.charts import Chart, View
from ...kernels.bench.claims import Verdict
from ...kernels.bench.tables import Record
from ...kernels.bench.training import SUITE as TRAINING
from ...kernels.errors import ArgumentError, BackendError
from . import figures, live, slides, training
from .slides import Slide

#: What the rounds of one case may take while a class waits.
_ROUNDS, _SECONDS = 5, 0.05

_DRAWINGS: dict[str, Callable[..., figures.Picture]] = {
    "figures.lowering": figures.lowering, "figures.tiles": figures.tiles, "figures.stretched": figures.stretched,
    "figures.window": figures.window, "figures.warp": figures.warp, "figures.banks": figures.banks,
    "figures.row_lengths": figures.row_lengths, "training.layer_memory": training.layer_memory,
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A prediction: the value of `of` at a place, over that of `over` where one is named."""

    question: str
    of: str
    at: Any
    over: str = ""

    def answer(self, chart: Chart) -> float | None:
        """What was measured."""
        value, against = chart.at(self.of, self.at), chart.at(self.over, self.at) if self.over else 1.0
        return None if value is None or against is None else value / against


@dataclass(frozen=True)
class Claim:
    """One entry of show.toml."""

    name: str
    title: str
    source: str
    suite: str = ""
    view: View | str = ""
    drawing: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    verdicts: tuple[str, ...] = ()
    ask: Question | None = None

    @property
    def can_be_measured(self) -> bool:
        """Whether a GPU can do it while a class waits."""
        return isinstance(self.view, View)


@dataclass(frozen=True, repr=False)
class Shown:
    """A claim with what was found.

    here    measured on this machine's GPU
    instead why the record is shown where a GPU was asked first
    """

    claim: Claim
    chart: Chart | None
    drawing: figures.Picture | None
    verdicts: tuple[Verdict, ...]
    origin: str
    here: bool = False
    instead: str = ""

    def cells(self) -> list[list[str]]:
        """The values as a table, its head first; of a drawing none."""
        return slides.cells(self.chart) if self.chart else []

    @property
    def alt(self) -> str:
        """The whole in words, from the data."""
        shown = slides.in_words(self.chart) if self.chart else self.drawing.alt if self.drawing else ""
        return " ".join([f"{self.claim.title}.", shown, *self._said(), self.origin])

    def slide(self) -> Slide:
        shown: Chart | Figure | None = self.chart or (self.drawing.figure if self.drawing else None)
        assert shown is not None
        return Slide(self.claim.title, self.claim.source, shown, self._said(), self.origin, self.alt)

    def to_json(self) -> dict[str, Any]:
        """The numbers behind the picture."""
        return {
            "claim": self.claim.name, "title": self.claim.title, "source": self.claim.source, "origin": self.origin,
            "measured_here": self.here, "instead": self.instead, "chart": asdict(self.chart) if self.chart else None,
            "verdicts": [asdict(verdict) for verdict in self.verdicts], "alt": self.alt,
        }  # fmt: skip

    def __repr__(self) -> str:
        return self.alt

    def _repr_html_(self) -> str:
        return f'<figure style="margin:0.5em 0;max-width:64em">{self.slide().svg()}</figure>'

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.png, NAME.svg and NAME.json."""
        files = [folder / f"{self.claim.name}.{suffix}" for suffix in ("png", "svg", "json")]
        slide = self.slide()
        for file in files[:2]:
            slide.save(file)
        files[2].write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return files

    def beside(self, said: float) -> str:
        """A prediction beside what was measured."""
        answer = self.claim.ask.answer(self.chart) if self.claim.ask and self.chart else None
        if answer is None:
            return "That was not measured."
        found = f"You said {said:g}; {'measured' if self.here else 'recorded'}: {answer:.3g}"
        return f"{found}, {answer / said:.2g} times as much." if said > 0 else f"{found}."

    def _said(self) -> list[str]:
        return [f"“{verdict.claim}”: {verdict.measured}" for verdict in self.verdicts]


@cache
def claimed() -> dict[str, Claim]:
    """Every claim by its name."""
    text = (resources.files(__package__) / "show.toml").read_text(encoding="utf-8")
    return {entry["name"]: _claim(entry) for entry in tomllib.loads(text)["claim"]}


def _claim(entry: dict[str, Any]) -> Claim:
    view, ask = entry.pop("view", ""), entry.pop("ask", None)
    if isinstance(view, dict):
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in view.items()}
        view = View(**settings)
    verdicts, arguments = tuple(entry.pop("verdicts", ())), entry.pop("with", {})
    return Claim(**entry, view=view, arguments=arguments, verdicts=verdicts, ask=Question(**ask) if ask else None)


def named(name: str) -> Claim:
    """The claim of a name. Raises ArgumentError with the names that there are."""
    if name not in claimed():
        raise ArgumentError(f"there is no claim {name!r}; there are: {', '.join(claimed())}")
    return claimed()[name]


def show(claim: Claim, *, from_record: bool = False, wait_s: float = 120.0) -> Shown:
    """A claim, measured on the GPU at hand within wait_s seconds; else, or from_record, as it is recorded.

    Raises BackendError where neither is there.
    """
    if claim.drawing:
        drawn = _DRAWINGS[claim.drawing](**claim.arguments)
        return Shown(claim, None, drawn, (), "Drawn from its parameters: nothing in it was measured.")
    instead = ""
    if claim.can_be_measured and not from_record and gpu.available():
        try:
            return of_record(claim, live.attempt(measure, (claim.name,), wait_s), here=True)
        except BackendError as error:
            instead = str(error)
    records = recorded.load(claim.suite)
    if not records:
        raise BackendError(
            f"nothing is recorded of {claim.suite}: run `convladder bench {claim.suite} --keep` on a GPU"
        )
    return of_record(claim, max(records, key=lambda record: str(record["date"])), instead=instead)


def claim(name: str, *, from_record: bool = False) -> Shown:
    """A claim by its name, for a notebook's cell."""
    return show(named(name), from_record=from_record)


def measure(name: str) -> Record:
    """A record of what one claim draws, made on the GPU at hand."""
    wanted = named(name)
    assert isinstance(wanted.view, View)
    return compare.measure(
        wanted.suite, rounds=_ROUNDS, seconds=_SECONDS, only=wanted.view.takes, ways=wanted.view.ways
    )


def of_record(claim: Claim, record: Record, *, here: bool = False, instead: str = "") -> Shown:
    """What a record of its suite shows of a claim."""
    chart = charts.chart(record, claim.view) if isinstance(claim.view, View) else charts.TRAINING[claim.view](record)
    told = (training_results if claim.suite == TRAINING else claims).verdicts(record)
    chosen = tuple(verdict for verdict in told if any(text in verdict.claim for text in claim.verdicts))
    where = tables.origin(record)
    origin = f"Measured here and now, on {where}." if here else f"Recorded on {where}. Not measured here."
    if instead:
        origin += f" This machine's GPU did not answer: {instead}"
    return Shown(claim, chart, None, chosen, origin, here, instead)
