"""What the lanes of one warp touch on a case, as evidence that a picture can be drawn from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import kernel_task
from .kernel_task import CaseRun, Judgement, Run
from .sandbox import Worker, WorkerError
from .spec import KernelTask
from .submission import Answer

_WARP = 32
#: Accesses of one warp that are taken from a worker.
_MOST = 64


def touched(
    task: KernelTask, answer: Answer, worker: Worker, r: CaseRun, block: int = 0, warp: int = 0
) -> list[dict[str, Any]]:
    """What each lane touches at each line's loads and stores of an array: `{line, op, array, space, size, offsets}`.

    block, warp  linear indices, repeated in each access
    shape        (there) of the array; empty where it is none of the task's
    border       (there) rows and columns of padding to think around each of its planes
    Empty where the case is too large to trace, or the worker does not answer.
    """
    request, arrays = kernel_task.trace_request(task, answer, r)
    try:
        frames = worker.request(
            "kernel", {**request, "op": "lanes", "block": block, "warp": warp}, arrays, reply_bytes=0
        )  # fmt: skip
    except WorkerError:
        return []
    shapes = {name: a.shape for name, a in r.instance.inputs.items()}
    shapes |= {o.name: o.expected.shape for o in r.instance.outputs}
    border = task.problem.border(r.instance.symbols)
    found = []
    for access in _read(frames[0].header):
        name = access["array"]
        access |= {"block": block, "warp": warp, "shape": list(shapes.get(name, ())), "border": border.get(name, 0)}
        found.append(access)
    return found


def shown(found: Judgement, task: KernelTask, result: Run, answer: Answer, worker: Worker) -> Judgement:
    """A judgement that blames a line's access, with what a warp touches there added to its evidence."""
    worst = found.evidence.get("worst") or {}
    r = result.of(str(found.evidence.get("case", "")))
    if found.passed is not False or r is None or "array" not in worst:
        return found
    for access in touched(task, answer, worker, r):
        if all(access[key] == worst[key] for key in ("line", "array", "op")):
            return replace(found, evidence={**found.evidence, "lanes": access})
    return found


def _read(header: dict[str, Any]) -> list[dict[str, Any]]:
    """The accesses that a worker sent; none where it sent anything else."""
    try:
        return [
            {
                "line": int(a["line"]), "op": str(a["op"]), "array": str(a["array"]),
                "space": str(a["space"]), "size": int(a["size"]),
                "offsets": [None if o is None else int(o) for o in a["offsets"][:_WARP]],
            }
            for a in header["accesses"][:_MOST]
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return []
