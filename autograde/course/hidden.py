"""A course's own hidden cases, made from its secret: those that come with the labs are public.

Every case that a lab hides (or, where it hides none, shows) is taken as a kind and drawn anew: the same task, other
sizes, with the kind's traits kept, so that what caught a mistake before catches it again. What was 0 or 1 stays so,
a stride stays a stride, an image that is not a multiple of a block stays one. The same secret gives the same cases.
"""

from __future__ import annotations

import hashlib
import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..judge import spec as specs
from ..judge.spec import KernelTask, PythonTask, Spec

#: Draws before a kind is given up and its own sizes are taken.
_DRAWS = 2000
#: A block's side in the labs' kernels: whether a size is a multiple of it is a trait.
_BLOCK = 16

Symbols = dict[str, int]


def generate(spec: Spec, secret: bytes, specs_dir: Path | None = None) -> str:
    """The text of LAB.hidden.toml for this secret; "" for a lab without cases."""
    folder = specs_dir or specs.specs_folder()
    lines = [f"# Hidden cases of {spec.lab}, made from the course's secret. Private: never give this file to students."]
    for table in _kinds(spec, folder):
        drawn = _drawn(spec, table, secret)
        lines += ["", "[[case]]", *(f"{key} = {_toml(value)}" for key, value in drawn.items())]
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""


def _kinds(spec: Spec, folder: Path) -> list[dict[str, Any]]:
    """The tables of the lab's hidden cases, and the public cases of tasks that have none of them."""
    path = folder / f"{spec.lab}.hidden.toml"
    hidden = tomllib.loads(path.read_text(encoding="utf-8")).get("case", []) if path.is_file() else []
    public = tomllib.loads((folder / f"{spec.lab}.toml").read_text(encoding="utf-8")).get("task", [])
    covered = {table["task"] for table in hidden}
    for task in public:
        if task["kind"] in ("kernel", "python", "generator") and task["name"] not in covered and spec.graded:
            hidden += [{"task": task["name"], **case} for case in task["case"]]
    return list(hidden)


def _drawn(spec: Spec, kind: Mapping[str, Any], secret: bytes) -> dict[str, Any]:
    task = spec.task(kind["task"])
    named = b"\0".join(part.encode() for part in (spec.lab, kind["task"], kind["name"]))
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(secret + b"\0" + named).digest()))
    fixed = {key: kind[key] for key in ("task", "name")}
    if isinstance(task, PythonTask):
        given = {part: kind[part] for part in ("args", "sweep") if part in kind}
        reference = task.expected()

        def has_answers(drawn: dict[str, Any]) -> bool:
            try:
                for call in specs.python_calls({"name": kind["name"], **drawn}):
                    reference(**call)
            except Exception:  # whatever a reference makes of arguments that do not fit together
                return False
            return True

        def draw() -> dict[str, Any]:
            return {part: _like(values, rng) for part, values in given.items()}

        return {**fixed, **_first(draw, has_answers, given)}
    assert isinstance(task, KernelTask)
    symbols = {k: v for k, v in kind.items() if k not in fixed}
    return {**fixed, **_geometry(task, symbols, rng)}


def _geometry(task: KernelTask, kind: Symbols, rng: np.random.Generator) -> Symbols:
    """Other sizes with the same traits, and at most twice the work."""
    problem = task.problem

    def traits(symbols: Symbols) -> tuple[bool, ...]:
        known = problem.all_symbols(symbols)
        sizes = [int(known[n]) for n in ("P", "Q", "H", "W", "n") if n in known]
        wide = "pad" in symbols and symbols["pad"] >= min(symbols["R"], symbols["S"])
        larger = "R" in symbols and symbols["R"] > symbols["H"]
        return (wide, larger, *(s > _BLOCK for s in sizes), *(s > _BLOCK and s % _BLOCK == 0 for s in sizes))

    def plane(symbols: Symbols) -> int:
        """Elements of one output plane: a grid that is too small for the kind must be too small for the case."""
        known = problem.all_symbols(symbols)
        return math.prod(int(known[n]) for n in ("P", "Q") if n in known)

    def fits(symbols: Symbols) -> bool:
        try:
            problem.check(symbols)
        except ValueError:  # every refusal of sizes is one
            return False
        larger = plane(symbols) >= plane(kind)
        return larger and traits(symbols) == traits(kind) and problem.size(symbols) <= 2 * problem.size(kind)

    return _first(lambda: _like(kind, rng), lambda s: s != kind and fits(s), kind)


def _first(
    draw: Callable[[], dict[str, Any]], accepted: Callable[[dict[str, Any]], bool], otherwise: dict[str, Any]
) -> dict[str, Any]:
    return next((s for s in (draw() for _ in range(_DRAWS)) if accepted(s)), otherwise)


def _like(kind: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Other integers: 0 and 1 mean something and stay, what is more stays more."""
    return {
        key: int(rng.integers(max(2, value - 2 - value // 4), value + 3 + value // 4))
        if type(value) is int and value > 1
        else value
        for key, value in kind.items()
    }


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
