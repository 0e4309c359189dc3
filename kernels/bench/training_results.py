"""What a record of the suite `training` says: its tables, and the training paper's claims with a verdict each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from ..net.stages import PREFETCHED, STAGES
from .claims import Verdict
from .tables import Record, Row, Table, geometric_mean, timed, values
from .training import DIRECTIONS, PAPER


def networks(record: Record) -> list[dict[str, Any]]:
    """The cases that are networks."""
    return [case for case in record["cases"] if "layers" in case]


def network(record: Record, name: str, batch: int) -> dict[str, Any] | None:
    """One of them; None where it is not recorded."""
    return next((case for case in networks(record) if (case["network"], case["batch"]) == (name, batch)), None)


def runs(record: Record) -> list[dict[str, Any]]:
    """The runs of the stages."""
    return [run for case in record["cases"] for run in case.get("runs", ())]


def pass_us(case: dict[str, Any], direction: str) -> float:
    """Of all layers together, "forward" or "backward"."""
    return float(sum(layer[f"{direction}_us"] for layer in case["layers"]))


def efficiency(ways: list[Row]) -> float:
    """CE (eq. 8) of several products together; NaN of none, or where the device's peak is unknown."""
    timed_ways = [row for row in ways if "ce" in row]
    return (
        sum(row["ce"] * row["us"] for row in timed_ways) / sum(row["us"] for row in timed_ways)
        if timed_ways
        else math.nan
    )


def utilisation(ways: list[Row]) -> float:
    """The mean RU (eq. 11) of several products."""
    found = [row["kernel"]["ru"] for row in ways if "ru" in row.get("kernel", ())]
    return sum(found) / len(found) if found else math.nan


def largest_layer(case: dict[str, Any]) -> dict[str, Any]:
    """The layer that takes most memory."""
    return max(case["layers"], key=_layer_bytes)


def _layer_bytes(layer: dict[str, Any]) -> int:
    return int(layer["map_bytes"] + layer["weight_bytes"])


def tables(record: Record) -> list[Table]:
    """What the record says, in five tables."""
    return [_totals(record), _layers(record), _efficiencies(record), _staged(record), _longest(record)]


def _totals(record: Record) -> Table:
    lines = []
    for case in networks(record):
        forward, backward = (pass_us(case, direction) for direction in ("forward", "backward"))
        largest, all_bytes = largest_layer(case), sum(map(_layer_bytes, case["layers"]))
        lines.append((
            case["case"], _ms(forward), _ms(backward), _percent(backward / (forward + backward)),
            _ms(case["update_us"]), f"{all_bytes / 2**20:.0f}",
            f"{largest['layer']}, {_layer_bytes(largest) / 2**20:.0f}",
            _percent(_layer_bytes(largest) / CARD_BYTES),
        ))  # fmt: skip
    columns = (
        "network", "forward, ms", "backward, ms", "backward's share", "update, ms", "maps (no images) and weights, MiB",
        "largest layer, MiB", "of 8 GiB",
    )  # fmt: skip
    return Table("One training step, layer after layer, cuDNN in strict FP32", columns, tuple(lines))


def _layers(record: Record) -> Table:
    case = network(record, *PAPER)
    lines = []
    for layer in values(timed(case["ways"] if case else ()), "layer"):
        mine = timed(case["ways"], layer=layer)  # type: ignore[index]
        library = [row for row in mine if row["way"] != "cublas image"]
        cells = [_ms(sum(row["us"] for row in timed(library, direction=d)) or None) for d in DIRECTIONS]
        image = timed(mine, way="cublas image")
        lines.append((
            layer, *cells, _ms(sum(row["us"] for row in image) or None), _two(efficiency(library)),
            _two(efficiency(image)), _two(utilisation(library)), _two(utilisation(image)),
        ))  # fmt: skip
    columns = (
        "layer", "forward, ms", "data gradient", "weight gradient", "cuBLAS by image, all three", "CE",
        "CE by image", "RU", "RU by image",
    )  # fmt: skip
    return Table("AlexNet, batch 256: the products of its layers", columns, tuple(lines))


def _efficiencies(record: Record) -> Table:
    lines = []
    for case in networks(record):
        ways = [row for row in timed(case["ways"]) if row["way"] != "cublas image"]
        kinds = [timed(ways, kind=kind) for kind in ("conv", "fc")]
        cells = [_two(f(rows)) for rows in kinds for f in (efficiency, utilisation)]
        lines.append((case["case"], *cells))
    return Table(
        "Compute efficiency and utilisation", ("network", "CE conv", "RU conv", "CE fc", "RU fc"), tuple(lines)
    )


def _staged(record: Record) -> Table:
    lines = [
        (
            run["disk"], str(run["workers"]), "overlapped" if run["overlapped"] else "in turn",
            *(f"{run['stage_ms'][stage]:.1f}" for stage in STAGES), f"{run['iteration_ms']:.1f}",
        )
        for run in runs(record)
    ]  # fmt: skip
    title = "AlexNet, batch 256: the stages of an iteration, ms"
    return Table(title, ("disk", "threads", "stages", *STAGES, "iteration"), tuple(lines))


#: As many as in the training paper's table 3.
_LONGEST = 15
#: Characters of a kernel's name.
_NAME = 60


def _longest(record: Record) -> Table:
    case = network(record, *PAPER)
    ways = [row for row in timed(case["ways"] if case else ()) if row["way"] != "cublas image"]
    ways.sort(key=lambda row: -row["us"])
    lines = tuple(
        (row["layer"], row["direction"], readable(row.get("kernel", {}).get("name", "–"))[:_NAME], _ms(row["us"]))
        for row in ways[:_LONGEST]
    )
    return Table("AlexNet, batch 256: the longest products", ("layer", "direction", "its longest kernel", "ms"), lines)


def readable(kernel: str) -> str:
    """The name in C++ that stands in a mangled one, without its arguments: `_ZN5cudnn3fooIfE` is `cudnn::foo`."""
    found, rest = [], kernel.removeprefix("_ZN").removeprefix("_Z")
    while rest != kernel and (length := re.match(r"\d+", rest)):
        start = length.end()
        found.append(rest[start : start + int(length[0])])
        rest = rest[start + int(length[0]) :]
    return "::".join(found) or kernel


def _ms(us: float | None) -> str:
    return "–" if us is None else f"{us / 1e3:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _two(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


# ---- the training paper's claims

#: The memory of the paper's card.
CARD_BYTES = 8 * 2**30


def verdicts(record: Record) -> list[Verdict]:
    """The training paper's claims, each with what the record says of it."""
    return [
        Verdict(claim, f"training paper, {section}", measured)
        for claim, section, make in _CLAIMS
        if (measured := make(record))
    ]


def _holds(whether: bool) -> str:
    return "holds" if whether else "does not hold"


def _halves(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None:
        return ""
    forward, backward = (pass_us(case, direction) for direction in ("forward", "backward"))
    share = forward / (forward + backward)
    flops = sum(layer["flops"] for layer in case["layers"])
    first = next(layer["flops"] for layer in case["layers"] if layer["flops"])
    counted = flops / (3 * flops - first)
    return (
        f"{_holds(abs(share - 0.4) < 0.05)}: {100 * share:.0f} and {100 * (1 - share):.0f} %; the operations alone "
        f"would give {100 * counted:.0f} and {100 * (1 - counted):.0f} %"
    )


def _whole(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None or not (image := timed(case["ways"], way="cublas image")):
        return ""
    mine = pass_us(case, "forward") + pass_us(case, "backward")
    convolutions_us = sum(row["us"] for row in timed(case["ways"], way="cudnn"))
    slower = (mine - convolutions_us + sum(row["us"] for row in image)) / mine
    more = ", and by more" if slower > 2 else ""
    return f"{_holds(slower >= 1.5)}{more}: {100 * (slower - 1):.0f} % longer, with the convolutions image by image"


def _twice(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None:
        return ""
    ratios = []
    for row in timed(case["ways"], way="cudnn"):
        image = timed(case["ways"], way="cublas image", layer=row["layer"], direction=row["direction"])
        ratios += [other["us"] / row["us"] for other in image]
    if not ratios:
        return ""
    mean = geometric_mean(ratios)
    return (
        f"{_holds(1.5 <= mean <= 2.5)}: {mean:.1f} times on average, {min(ratios):.1f} to {max(ratios):.1f}; as the "
        "operations are equal, CE and time have one ratio (the paper has 4 in time and 2 in CE)"
    )


def _filled(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None:
        return ""
    conv, image, full = (utilisation(timed(case["ways"], way=way)) for way in ("cudnn", "cublas image", "cublas"))
    if any(map(math.isnan, (conv, image, full))):
        return ""
    said = f"cuDNN {_two(conv)}, cuBLAS by image {_two(image)}, fully connected {_two(full)}"
    return f"{_holds(conv > 0.9 and image < 0.6)}: {said}"


def _batches(record: Record) -> str:
    found = {batch: network(record, PAPER[0], batch) for batch in (128, 256, 512)}
    ways = {
        batch: [row for row in timed(case["ways"]) if row["way"] != "cublas image"]
        for batch, case in found.items()
        if case
    }
    if len(ways) < len(found):
        return ""
    ce, ru = ({batch: f(rows) for batch, rows in ways.items()} for f in (efficiency, utilisation))
    rises = ce[512] >= 1.05 * ce[256] >= 1.05**2 * ce[128]
    flat = max(ru.values()) - min(ru.values()) < 0.05
    said = ", ".join(f"{batch}: CE {ce[batch]:.2f}, RU {_two(ru[batch])}" for batch in ce)
    return f"CE rises: {_holds(rises)}; RU stays: {_holds(flat)} ({said})"


def _kinds(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None:
        return ""
    conv, full = (efficiency(timed(case["ways"], way=way)) for way in ("cudnn", "cublas"))
    return f"{_holds(conv > 1.5 * full)}: CE {conv:.2f} and {full:.2f}, {conv / full:.2f} times"


def _sizes(record: Record) -> str:
    found = {
        case["network"]: efficiency(timed(case["ways"], way="cudnn"))
        for case in networks(record)
        if (case["network"], case["batch"]) in (("lenet", 256), PAPER, ("vgg16", 64))
    }
    if len(found) < 3:
        return ""
    said = ", ".join(f"{name} {ce:.2f}" for name, ce in found.items())
    return f"{_holds(found['vgg16'] > found['alexnet'] > found['lenet'])}: CE of the convolutions {said}"


def _gradients(record: Record) -> str:
    ways = [row for case in networks(record) for row in timed(case["ways"], way="cudnn")]
    longer = told = 0
    for case in networks(record):
        for layer in values(timed(case["ways"], direction="data gradient", way="cudnn"), "layer"):
            data, weight = (timed(case["ways"], way="cudnn", layer=layer, direction=d)[0]["us"] for d in DIRECTIONS[1:])
            longer, told = longer + (weight > data), told + 1
    return f"{_holds(longer > told / 2)}: in {longer} of {told} layers" if ways and told else ""


def _memory(record: Record) -> str:
    shares = {
        f"{case['case']}: {largest_layer(case)['layer']}": _layer_bytes(largest_layer(case)) / CARD_BYTES
        for case in networks(record)
    }
    said = ", ".join(f"{name} {_percent(share)}" for name, share in shares.items())
    return f"{_holds(max(shares.values()) <= 0.2)} of the paper's card at its batches: {said}" if shares else ""


def _disks(record: Record) -> str:
    found = {(run["disk"], run["workers"]): run for run in runs(record) if run["overlapped"]}
    said = []
    for (disk, workers), run in found.items():
        ms = run["stage_ms"]
        prefetched = sum(ms[stage] for stage in PREFETCHED)
        computed = sum(ms[stage] for stage in STAGES[3:6])
        decides = "the computation" if computed > prefetched else max(PREFETCHED, key=lambda s: ms[s])
        said.append(f"{disk}, {workers} transforming: {decides} decides, {run['iteration_ms']:.0f} ms an iteration")
    if not said:
        return ""
    return f"{_holds('the computation decides' in said[0])} on this device: " + "; ".join(said)


def _update(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None:
        return ""
    share = case["update_us"] / (case["update_us"] + pass_us(case, "forward") + pass_us(case, "backward"))
    return f"{_holds(share <= 0.044)}: {100 * share:.1f} %"


def _products_share(record: Record) -> str:
    case = network(record, *PAPER)
    if case is None:
        return ""
    whole = pass_us(case, "forward") + pass_us(case, "backward")
    share = sum(row["us"] for row in timed(case["ways"], way="cudnn")) / whole
    first = sum(
        row["us"]
        for row in timed(case["ways"], way="cudnn")
        if row["layer"] in ("conv1", "conv2") and row["direction"] != "forward"
    )
    return (
        f"{_holds(share > 0.75 and first / whole > 0.4)}: {_percent(share)} and {_percent(first / whole)} here, where "
        "pooling and normalisation are plain array expressions"
    )


_CLAIMS: tuple[tuple[str, str, Callable[[Record], str]], ...] = (
    ("of the computation 40 % is the forward pass and 60 % the backward pass", "4", _halves),
    ("the convolutions' products take 87 %, the gradients of the first two alone 50 %", "4", _products_share),
    ("with the pictures on an array of disks the computation decides how long an iteration takes, on one disk reading",
     "4", _disks),
    ("cuBLAS takes 65 % longer than cuDNN", "5.1", _whole),
    ("the update takes at most 4.4 %", "5.1", _update),
    ("in convolutions cuDNN is twice as efficient as cuBLAS", "5.1", _twice),
    ("cuDNN's convolutions fill more than 95 % of the places for blocks, cuBLAS's by image 47 %, full layers 80 %",
     "5.1", _filled),
    ("the weight gradient takes longer than the data gradient in most layers", "5.1", _gradients),
    ("convolutions are 1.94 times as efficient as fully connected layers", "5.2", _kinds),
    ("VGG-16 is more efficient than AlexNet, and that more than LeNet", "5.2", _sizes),
    ("batch 512 is 11 % more efficient than 256 and 41 % more than 128, at the same utilisation", "5.3", _batches),
    ("no layer takes more than 20 % of the memory", "5.4", _memory),
)  # fmt: skip
