"""What is recorded, in Markdown, written without a GPU too: a summary between two markers of the README, and a page
with every table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import ConvladderError
from . import codesize, targets, training, training_results
from .cases import CODEGEN, DIRECT_RUNGS, GEMM_RUNGS, SPARSE_RUNGS, SUITES, cases
from .claims import Verdict, verdicts
from .compare import rows, ways_of
from .tables import (
    CUDNN_ANY,
    CUDNN_FP32,
    CUDNN_TF32,
    CUSPARSE,
    MOSTLY_ZERO,
    Record,
    Row,
    Table,
    batches,
    best,
    geometric_mean,
    held_down,
    losses,
    markdown,
    origin,
    paper_layers,
    speedups,
    tables,
    timed,
    total_us,
    values,
)

BEGIN, END = "<!-- bench: written by `make bench` -->", "<!-- /bench -->"

#: Every suite that is recorded.
RECORDED = (*SUITES, codesize.SUITE, training.SUITE)

Records = Mapping[str, Record]


class MarkerError(ConvladderError):
    """The file has no place for the results."""


def rewrite(file: Path, records: Records) -> bool:
    """Put the summary between the markers of a file; whether that changed it. Raises MarkerError without markers.

    records  by suite; a suite that is not recorded is left out
    """
    text = file.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise MarkerError(f"{file} needs the line {BEGIN!r} once, and after it {END!r}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = f"{before}{BEGIN}\n{summary(records)}{END}{after}"
    file.write_text(written, encoding="utf-8")
    return written != text


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def _known(records: Records) -> dict[str, Record]:
    """In the order of the suites."""
    return {suite: records[suite] for suite in RECORDED if suite in records}


def _where(records: Records) -> str:
    origins = dict.fromkeys(origin(record) for record in _known(records).values())
    return "Recorded on " + "; ".join(origins) + ". Medians; all ways of a problem timed in turn in one session."


# ---- the summary


def summary(records: Records) -> str:
    """A line for each suite, and the targets that are missed."""
    known = {suite: record for suite, record in _known(records).items() if suite in _HEADLINES}
    if not known:
        return "Nothing is recorded yet: `convladder bench SUITE --keep` on a GPU.\n"
    lines = [(suite, *_HEADLINES[suite](record)) for suite, record in known.items()]
    table = Table("", ("suite", "what", "measured"), tuple(lines))
    judged = targets.outcomes(known)
    missed = "; ".join(f"{one.target.name} (wanted {one.target.wanted:g})" for one in judged if one.missed)
    parts = [_where(known), markdown(table)]
    if left := "; ".join(unrecorded(records)):
        parts.append(f"Not yet recorded: {left}.")
    parts.append(
        f"Of {len(judged)} targets {len(judged) - sum(bool(one.missed) for one in judged)} are met; "
        f"missed: {missed or 'none'}. All tables, the targets and the sources' claims: [results](docs/results.md)."
    )
    return _joined(parts)


def _span(ratios: Iterable[float]) -> str:
    found = list(ratios)
    return f"{min(found):.2f} to {max(found):.2f}"


def _direct(record: Record) -> tuple[str, str]:
    gains = [
        library["us"] / rung["us"]
        for size in values(rows(record), "size")
        for here in [timed(rows(record), size=size, stride=1)]
        if (rung := best(here, DIRECT_RUNGS)) and (library := best(here, CUDNN_ANY))
    ]
    return "one 3×3 filter, images of 31² to 4095²", f"cuDNN takes {_span(gains)} times as long as the best rung"


def _gemm(record: Record) -> tuple[str, str]:
    sizes = (2048, 4096)
    shares = []
    for size in sizes:
        here = timed(rows(record), size=size)
        if (rung := best(here, GEMM_RUNGS)) and (library := best(here, ("cublas batched",))):
            shares.append(f"{library['us'] / rung['us']:.2f} ({rung['way']})")
    return "matrix products " + ", ".join(f"{size}³" for size in sizes), f"{', '.join(shares)} of cuBLAS FP32"


def _cudnn(record: Record) -> tuple[str, str]:
    layers = [timed(rows(record), layer=layer) for layer in values(rows(record), "layer")]
    precise, cublas = speedups(layers, CUDNN_FP32, CUDNN_TF32), speedups(layers, ("cublas batched",), CUDNN_FP32)
    return (
        "AlexNet's convolutions, batch 128",
        f"cuDNN FP32 takes {_span(precise)} times as long as TF32, batched cuBLAS {_span(cublas)} times as long as "
        "cuDNN FP32",
    )


def _over(layers: list[list[Row]], others: Mapping[str, Iterable[str]], mine: Iterable[str]) -> str:
    """For each of some ways, the geometric mean and the least of how many times as long they take."""
    said = []
    for name, ways in others.items():
        gains = speedups(layers, tuple(ways), tuple(mine))
        said.append(f"{name} {geometric_mean(gains):.2f} ({min(gains):.2f})" if gains else f"{name} –")
    return ", ".join(said)


def _sparse(record: Record) -> tuple[str, str]:
    layers = paper_layers(rows(record))
    others = {"batched cuBLAS": ("cublas batched",), "cuSPARSE": CUSPARSE, "cuDNN FP32": CUDNN_FP32}
    told = _over(layers, {**others, "cuDNN TF32": CUDNN_TF32}, SPARSE_RUNGS)
    return (
        f"{len(layers)} sparse layers of three networks, batch 128",
        f"times as long as the best CSR rung, geometric mean (least): {told}",
    )


def _batch(record: Record) -> tuple[str, str]:
    gains = [
        theirs / mine
        for _, layers in batches(rows(record))
        if (theirs := total_us(layers, ("cublas batched",))) and (mine := total_us(layers, SPARSE_RUNGS))
    ]
    sizes = values(rows(record), "batch")
    return (
        f"AlexNet conv2 to conv5, batch {min(sizes)} to {max(sizes)}",
        f"batched cuBLAS takes {_span(gains)} times as long as the best CSR rungs",
    )


def _codegen(record: Record) -> tuple[str, str]:
    layers = [here for here in paper_layers(rows(record)) if here[0]["sparsity"] >= MOSTLY_ZERO]
    others = {"cuDNN FP32": CUDNN_FP32, "TF32 NCHW": CUDNN_TF32[:1], "TF32 NHWC": CUDNN_TF32[1:],
              "best CSR rung": SPARSE_RUNGS}  # fmt: skip
    return (
        f"weights as code: {len(layers)} layers of {MOSTLY_ZERO:.0%} zeros or more, batch 128",
        f"times as long as the code, geometric mean (least): {_over(layers, others, (CODEGEN,))}",
    )


_HEADLINES: dict[str, Callable[[Record], tuple[str, str]]] = {
    "direct": _direct, "gemm": _gemm, "cudnn": _cudnn, "sparse": _sparse, "batch": _batch, "codegen": _codegen,
}  # fmt: skip


def unrecorded(records: Records) -> Iterator[str]:
    """What the suites hold and the records do not."""
    for suite in SUITES:
        if suite not in records:
            yield f"the suite {suite}"
            continue
        known = {row["way"] for row in rows(records[suite])}
        if ways := [way for way in ways_of(cases(suite)) if way not in known]:
            yield f"{', '.join(ways)} in the suite {suite}"


# ---- the page

#: What a suite compares, above its tables.
_ABOUT = {
    "direct": "The lab report's images and larger ones: the direct rungs, lowering and cuDNN.",
    "lowering": "The conversion and the product of lowering by themselves; more filters.",
    "gemm": "Square matrix products in float32.",
    "plans": "Every plan that cuDNN builds for a layer and for an image.",
    "cudnn": "AlexNet's convolutions: every precision and layout of cuDNN, and cuBLAS.",
    "sparse": "Every sparse layer of the published networks, by every CSR rung and library.",
    "batch": "AlexNet's layers at batch 1 to 192.",
    "codegen": "Weights as code on the sparse layers of three networks ([how it works](codegen.md)).",
    "codesize": "What weights as code take of memory; no GPU is needed for it.",
    "training": "Networks layer by layer, forwards and backwards, and the stages of an iteration.",
}


def page(records: Records) -> str:
    """All tables, the targets and the sources' claims."""
    return _joined(_page(records))


def _page(records: Records) -> Iterator[str]:
    known = _known(records)
    yield "# Results"
    yield (
        "Written by `make bench` from `kernels/records`; do not edit. `convladder bench SUITE --recorded` prints a "
        "section, and on a GPU `convladder bench SUITE` measures it anew."
    )
    yield _where(known)
    if left := "; ".join(unrecorded(records)):
        yield f"Not yet recorded: {left}."
    yield "## Targets"
    yield "Ratios of times, unless a unit is named; each from one run."
    yield _cells(targets.table(known))
    yield "## The sources' claims"
    told = [verdict for record in known.values() for verdict in _verdicts(record)]
    yield _cells(Table("", ("claim", "source", "measured"), tuple((v.claim, v.source, v.measured) for v in told)))
    for suite, record in known.items():
        yield f"## {suite}"
        yield _ABOUT[suite]
        if reasons := held_down(record):
            yield f"The clocks were held down by: {reasons}."
        yield from (markdown(table) for table in _tables(record) if table.rows)
        if suite == "sparse":
            yield f"cuDNN in strict FP32 is faster than every rung on {losses(record) or 'no layer'}."


def _cells(table: Table) -> str:
    """Without its title, which the section has already."""
    return markdown(Table("", table.columns, table.rows))


def _tables(record: Record) -> Iterable[Table]:
    own = {codesize.SUITE: codesize.tables, training.SUITE: training_results.tables}
    return own.get(record["suite"], tables)(record)


def _verdicts(record: Record) -> Iterable[Verdict]:
    own: dict[str, Callable[[Record], Iterable[Verdict]]] = {
        codesize.SUITE: codesize.verdicts, training.SUITE: training_results.verdicts,
    }  # fmt: skip
    return own.get(record["suite"], verdicts)(record)
