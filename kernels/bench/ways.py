"""The ways to solve a case: each makes the work of one call from that call's arrays, ready to be timed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from .. import codegen, cublas, cudnn, cusparse, oracle, plan, rungs, workloads
from ..arguments import out
from ..gpu import cupy_module
from ..launch import compile_cuda
from ..layouts import csr
from ..module import Module, Ready
from ..stopwatch import Work
from .cases import CODEGEN, Case

#: Elements of each result that are compared with the float64 reference.
_CHECKED = 2000


@dataclass
class Arrays:
    """The operands of one call on the device; `w` is shared by the calls of a case."""

    x: Any
    w: Any
    y: Any
    #: What ways made of them.
    works: dict[str, Work] = field(default_factory=dict)
    #: Outputs that do not lie in y: (N, P, Q, K).
    channels_last: Any = None


class Problem:
    """A case with its data: `arrays(i)` are the operands of call i, `works[way](arrays)` is one call's work."""

    def __init__(self, case: Case):
        cupy = cupy_module()
        self.case = case
        g = case.geometry
        size = int(np.prod(g.w_shape))
        pattern = "random" if case.pattern == "dense" else case.pattern
        self.w = workloads.weights(g, size if case.nnz is None else case.nnz, pattern, case.seed)
        self._device_w = cupy.asarray(self.w)
        self._first: dict[str, rungs.Convolution] = {}
        self._sets: dict[int, Arrays] = {}

    def arrays(self, call: int) -> Arrays:
        if call not in self._sets:
            cupy, g = cupy_module(), self.case.geometry
            x = cupy.random.default_rng(1000 * self.case.seed + call).standard_normal(g.x_shape, dtype=np.float32)
            self._sets[call] = Arrays(x, self._device_w, cupy.empty(g.y_shape, np.float32))
        return self._sets[call]

    @cached_property
    def x(self) -> np.ndarray:
        """The input of the first call, on the host."""
        return self.arrays(0).x.get()

    @cached_property
    def reference(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the first call: which elements are checked (flat indices), their values, their bounds."""
        g = self.case.geometry
        elements = np.random.default_rng(7).integers(0, math.prod(g.y_shape), _CHECKED)
        return elements, *oracle.at(elements, self.x, self.w, g.stride, g.pad, g.dilation, g.groups)

    def maker(self, way: str) -> Callable[[Arrays], Work]:
        return partial(self._work, way)

    def _work(self, way: str, arrays: Arrays) -> Work:
        if way not in arrays.works:
            method, _, how = way.partition(" ")
            libraries = {"cudnn": self._cudnn, "cublas": self._cublas, "cusparse": self._cusparse}
            make = {**libraries, "step": self._step, CODEGEN: self._code}.get(method, self._rung)
            arrays.works[way] = make(how or method, arrays)
        return arrays.works[way]

    def _rung(self, name: str, arrays: Arrays) -> Work:
        return _work_of(self._product(name, arrays) if self.case.product else self._convolution(name, arrays))

    def _convolution(self, name: str, arrays: Arrays) -> list[Ready]:
        """The weights become CSR once; each call has inputs, outputs and scratch arrays of its own."""
        if name not in self._first:
            self._first[name] = rungs.convolution(name, self.case.geometry, arrays.x, arrays.w, arrays.y, "gpu")
        first = self._first[name]
        return replace(first, arrays={**first.arrays, "x": arrays.x, "y": out(arrays.y)}).ready("gpu")

    def _product(self, name: str, arrays: Arrays) -> list[Ready]:
        """The rung by itself: c = a b."""
        g = self.case.geometry
        module, text = _text(rungs.ladder_source(name))
        symbols = {"GM": g.K, "GN": g.P * g.Q, "GK": g.C, "GB": g.N, "groups": 1}
        text.check_needs(symbols, name)
        operands = {"a": arrays.w, "b": arrays.x, "c": arrays.y, **plan.temps(text, symbols, "gpu")}
        return plan.ready(module, text, symbols, operands)

    def _step(self, name: str, arrays: Arrays) -> Work:
        """A step before a rung, by itself, on operands of its own; of a rung: its own launch after the steps."""
        if name in rungs.LADDER:
            whole = self._convolution(name, arrays)
            _work_of(whole).enqueue()  # what it takes must have been made once
            return _work_of(whole[-1:])
        cupy, g = cupy_module(), self.case.geometry
        route = next((r for r in rungs.LADDER.values() if name in r.steps), rungs.STRETCHED)
        module, text = _text(f"{route.lines}\n{rungs.ladder_source(name)}")
        sparse = csr(self.w, g.groups)
        symbols = {**g.symbols(), "nnz": sparse.nnz}
        text.check_needs(symbols, name)
        operands = {"x": arrays.x, "w": arrays.w, "y": arrays.y}
        if name not in route.steps:  # stretching: from the columns of the filters
            operands |= {"rowptr": cupy.asarray(sparse.rowptr), "col": cupy.asarray(sparse.col)}
            operands["stretched"] = cupy.empty(sparse.nnz, np.int32)
        return _work_of(plan.ready(module, text, symbols, {**operands, **plan.temps(text, symbols, "gpu")}))

    def _cudnn(self, how: str, arrays: Arrays) -> Work:
        precision, layout = how.split()
        found = cudnn.best(self.case.geometry, precision, layout)  # type: ignore[arg-type]
        operands = [arrays.x, arrays.w, arrays.y]
        if layout == "nhwc":  # data that lie so from the start: turning them is no part of the work
            operands = [_channels_last(a) for a in operands]
            arrays.channels_last = operands[2]
        return Work(partial(found.enqueue, *operands))

    def _cublas(self, how: str, arrays: Arrays) -> Work:
        by, convert = ("batched", False) if how == "converted" else (how, True)
        work = cublas.Convolution(self.case.geometry, arrays.x, arrays.w, arrays.y, by, convert)  # type: ignore[arg-type]
        return Work(work.enqueue, work.capturable)

    def _cusparse(self, how: str, arrays: Arrays) -> Work:
        work = cusparse.Convolution(self.case.geometry, arrays.x, self.w, arrays.y, how)  # type: ignore[arg-type]
        return Work(work.enqueue, work.capturable)

    def _code(self, _: str, arrays: Arrays) -> Work:
        return Work(partial(self._generated.enqueue, arrays.x, arrays.y))

    @cached_property
    def _generated(self) -> codegen.Convolution:
        return codegen.Convolution(self.case.geometry, self.w)

    def facts(self, way: str) -> dict[str, Any]:
        """What a way can tell of itself beside its time."""
        if way == CODEGEN:
            made = asdict(self._generated.facts)
            return {name: round(value, 4) if isinstance(value, float) else value for name, value in made.items()}
        if not way.startswith("cudnn"):
            return {}
        precision, layout = way.split()[1:]
        found = cudnn.best(self.case.geometry, precision, layout)  # type: ignore[arg-type]
        facts: dict[str, Any] = {
            "plan": found.best.name,
            "workspace_bytes": found.best.workspace_bytes,
            "plans": f"{len(found.plans)} of {found.offered}",
        }
        if self.case.plans:
            facts["every_plan"] = [[p.index, p.name, p.workspace_bytes, round(p.time_us, 1)] for p in found.plans]
        return facts


def _work_of(launches: list[Ready]) -> Work:
    def enqueue() -> None:
        for launch in launches:
            launch.kernel.module.image.enqueue(launch)  # type: ignore[attr-defined]

    return Work(enqueue)


@cache
def _text(source: str) -> tuple[Module, plan.Plan]:
    text = plan.parse(source)
    return compile_cuda(source, "gpu", options=text.options()), text


def _channels_last(array: Any) -> Any:
    return cupy_module().ascontiguousarray(array.transpose(0, 2, 3, 1))
