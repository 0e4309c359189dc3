"""python -m convladder.kernels.codegen: look into generated code. `fetch`: how fast a GPU fetches code; `tune NETWORK
LAYER`: the choices for a layer of the table, timed; `source NETWORK LAYER`: its first kernel as text, without a GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import workloads
from ..errors import ConvladderError
from . import Trial, cost, default_choice, fetch, generate, tune


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m convladder.kernels.codegen", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch")
    for name in ("tune", "source"):
        command = commands.add_parser(name)
        command.add_argument("network")
        command.add_argument("layer")
        command.add_argument("--images", type=int, default=128)
    commands.choices["tune"].add_argument("--seconds", type=float, default=120.0)
    commands.choices["tune"].add_argument("--most", type=int, default=16)
    given = parser.parse_args(arguments)
    try:
        if given.command == "fetch":
            _fetch()
        else:
            {"tune": _tune, "source": _source}[given.command](given)
    except ConvladderError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _fetch() -> None:
    print(
        "KiB  warps  streams  spread  blocks  flushed | bytes a cycle, pass by pass | multiply-adds issued of possible"
    )
    for rate in fetch.table():
        sizes = f"{rate.kib:3} {rate.warps:6} {rate.streams:8} {rate.spread:7} {rate.blocks:7} {rate.flushed!s:>8}"
        got, busy = ("  ".join(f"{value:.2f}" for value in values) for values in (rate.bytes_a_cycle, rate.busy))
        print(f"{sizes} | {got} | {busy}", flush=True)


def _layer(given: argparse.Namespace) -> workloads.Layer:
    for layer in workloads.layers(given.network):
        if layer.name == given.layer:
            return layer
    there = ", ".join(layer.name for layer in workloads.layers(given.network)) or ", ".join(workloads.networks())
    raise ConvladderError(f"there is no layer {given.layer!r} of {given.network!r}; there are {there}")


def _tune(given: argparse.Namespace) -> None:
    layer = _layer(given)
    geometry = layer.batch(given.images)

    def told(done: int, of: int, best: Trial | None) -> None:
        print(f"{done} of {of}" + (f", best so far {best.us:.1f} µs" if best and best.us else ""), file=sys.stderr)

    found = tune(geometry, workloads.weights(geometry, layer.nnz), given.seconds, given.most, progress=told)
    for trial in sorted(found.trials, key=lambda trial: trial.us or float("inf")):
        foreseen = cost(geometry, layer.nnz, trial.choice, fetch.gpu.multiprocessors())
        time = f"{trial.us:9.1f} µs" if trial.us else f"{trial.why:>12}"
        print(f"{time}  {trial.choice}  {foreseen.waves} waves, bound by {foreseen.bound}")
    print(f"{found.seconds:.0f} s" + ("" if found.complete else ", not all candidates had their turn"))


def _source(given: argparse.Namespace) -> None:
    layer = _layer(given)
    geometry = layer.batch(given.images)
    w = workloads.weights(geometry, layer.nnz)
    choice = default_choice(geometry, w, 132)  # an H100's
    print(generate(geometry, w, choice)[0].source)


if __name__ == "__main__":
    sys.exit(main())
