"""The rungs of the ladder: their texts, what runs before each, and how one runs a whole convolution.

A rung is one file of ladder/. A direct rung is a convolution by itself. Others are one step of a convolution (a matrix
product, a sparse product), and the *route* to them says what turns x, w, y into their operands: plan lines, the rungs
that run before, and how the weights become CSR.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from . import gpu, plan, resources
from .arguments import out
from .compiler import DEFAULT_ARCH
from .errors import ArgumentError, BackendError, GeometryError, PlanError
from .launch import compile_cuda
from .layouts import ConvGeometry, csr
from .module import Backend, Module, Ready
from .occupancy import limits_of
from .resources import Resources
from .result import LaunchResult

_FOLDER = Path(__file__).parent / "ladder"

#: What rungs take of a GPU, where an installation has this in place of their texts.
CARRIED = Path(__file__).parent / "records" / "rung_resources.json"


@dataclass(frozen=True)
class Route:
    """How the operands of a convolution become those of a rung.

    lines   what its plan says before the rungs
    steps   rungs that run before it
    column  the column of weight (k, c, r, s) in CSR, an expression, c counted over all C channels; None: w stays dense
    row     its row
    """

    lines: str = ""
    steps: tuple[str, ...] = ()
    column: str | None = None
    row: str = "k"


DIRECT = Route()

#: y[n] = w col[n]: a matrix product for each image and group, a = w, b = col[n], c = y[n].
LOWERED = Route(
    """
    //@ let GM = K // groups
    //@ let GN = P*Q
    //@ let GK = C // groups*R*S
    //@ let GB = N*groups
    //@ let a = w
    //@ let b = col
    //@ let c = y
    //@ temp col float[N*C*R*S*P*Q]
    """,
    ("im2col",),
)

#: The same with an output point's window in one row of memory, as in the lab report.
LOWERED_BY_ROWS = Route(LOWERED.lines, ("im2col_rows",))

#: Sparse weights, stretched to the padded input: y[n,k,p,q] = sum_j val[j] xp[n, col[j] + (p U) Wp + q U].
STRETCHED = Route(
    """
    //@ let Hp = H + 2*padh
    //@ let Wp = W + 2*padw
    //@ temp xp float[N*C*Hp*Wp]
    """,
    ("pad",),
    column="(c*Hp + r*dilh)*Wp + s*dilw",
)

#: Sparse weights, their columns those of the input as csr_staged lays it out in shared memory.
STAGED = Route(
    column="(c % channels % slab*rows + r*dilh)*pitch + s*dilw",
    row="c % channels // slab*K + k",
)

#: Rungs that prepare what others take, and are no convolution by themselves.
STEPS = ("im2col_rows", "im2col", "pad", "stretch_filter", "stretch")

#: The rungs that end in a convolution, from the simplest to the best of each kind, and the route to each.
LADDER = {
    "direct_guarded": DIRECT,
    "direct_clipped": DIRECT,
    "direct_report": DIRECT,
    "direct_coalesced": DIRECT,
    "direct": DIRECT,
    "direct_shared": DIRECT,
    "direct_unrolled": DIRECT,
    "direct_registers": DIRECT,
    "gemv_rows": LOWERED_BY_ROWS,
    "gemv": LOWERED,
    "gemm_naive": LOWERED,
    "gemm_coalesced": LOWERED,
    "gemm_shared": LOWERED,
    "gemm_float4": LOWERED,
    "gemm_blocked": LOWERED,
    "gemm_buffered": LOWERED,
    "csr_global": STRETCHED,
    "csr": STRETCHED,
    "csr_tiled": STRETCHED,
    "csr_fitted": STRETCHED,
    "csr_spanning": STRETCHED,
    "csr_images": STRETCHED,
    "csr_staged": STAGED,
}

#: The rungs that compute a convolution's gradients, from dy and w or x: no convolutions of x and w.
GRADIENTS = ("data_gradient_scatter", "data_gradient", "weight_gradient_serial", "weight_gradient")

#: Every file of ladder/.
RUNGS = (*STEPS, *LADDER, *GRADIENTS)


@cache
def ladder_source(name: str) -> str:
    """The CUDA text of one rung. Raises ArgumentError for a name that is none."""
    if name not in RUNGS:
        raise ArgumentError(f"there is no rung {name!r}; there are {', '.join(RUNGS)}")
    try:
        return (_FOLDER / f"{name}.cu").read_text()
    except FileNotFoundError:
        raise BackendError(
            f"the source of {name} does not come with this installation: rungs are answers, and lie in the repository"
        ) from None


def with_sources() -> bool:
    """Whether the rungs' texts come with this installation: what students install has none."""
    return all((_FOLDER / f"{name}.cu").is_file() for name in RUNGS)


@cache
def rung_resources(name: str, arch: str = "sm_90") -> Resources:
    """What a rung's kernel takes of a GPU. Raises as ladder_source, and as resources.resources."""
    try:
        source = ladder_source(name)
    except BackendError:
        carried = json.loads(CARRIED.read_text(encoding="utf-8")) if CARRIED.is_file() else {}
        if carried.get(name, {}).get("arch") != arch:
            raise
        return Resources(**carried[name])
    (taken,) = resources.resources(source, arch, plan.parse(source).options()).values()
    return taken


def convolution_source(name: str) -> str:
    """The text of a whole convolution that ends in the rung `name`: its route, the steps before it, and itself.

    Raises ArgumentError for a name that is none, a step's too.
    """
    if name not in LADDER:
        raise ArgumentError(f"{name!r} is no convolution; there are {', '.join(LADDER)}")
    text = ladder_source(name)
    route = LADDER[name]
    return "\n".join([route.lines, *map(ladder_source, route.steps), text]) if route != DIRECT else text


def check_geometry(name: str, geometry: ConvGeometry, on: Backend = "sim") -> None:
    """Raise GeometryError where a rung or a step before it does not take the geometry."""
    parsed = plan.parse(convolution_source(name))
    symbols = {**geometry.symbols(), **device_symbols(on)}
    parsed.check_needs(symbols, name)
    if geometry.N == 0:
        return
    try:
        plan.temp_sizes(parsed, symbols)
    except PlanError as error:
        reason = str(error).removeprefix(f"line {error.line}: ")
        raise GeometryError(f"{name} does not take this geometry: {reason}. Give it fewer images at a time") from None


@cache
def device_symbols(on: Backend) -> dict[str, int]:
    """What a plan may name of the device: SHARED, the bytes of shared memory that a block may have, and SMS.

    The engine has those of an A100, the smallest GPU of the architecture that it compiles for.
    """
    if on == "gpu":
        return {"SHARED": gpu.block_shared_bytes(), "SMS": gpu.multiprocessors()}
    return {"SHARED": limits_of(DEFAULT_ARCH.replace("compute", "sm")).block_shared_bytes, "SMS": 108}


@cache
def convolution_module(name: str, on: Backend) -> tuple[Module, plan.Plan]:
    """A whole convolution, compiled, and its plan."""
    source = convolution_source(name)
    parsed = plan.parse(source)
    return compile_cuda(source, on, options=parsed.options()), parsed


@dataclass(frozen=True)
class Convolution:
    """One convolution by one rung, ready to run: `symbols` and `arrays` are what its plan names."""

    module: Module
    plan: plan.Plan
    symbols: dict[str, int]
    arrays: dict[str, Any]

    def run(self) -> list[tuple[str, LaunchResult]]:
        """Run every launch once; stops after the first with a fault. y is written in place."""
        return plan.run(self.module, self.plan, self.symbols, self.arrays)

    def ready(self, on: Backend) -> list[Ready]:
        """Every launch in order, to be run later and often, with scratch arrays of its own on "sim" or "gpu"."""
        scratch = plan.temps(self.plan, self.symbols, on)
        return plan.ready(self.module, self.plan, self.symbols, {**self.arrays, **scratch})


def convolution(name: str, geometry: ConvGeometry, x: Any, w: Any, y: Any, on: Backend) -> Convolution:
    """Bring x, w, y (C-contiguous float32 of the geometry's shapes) into the form that a rung takes.

    The weights become CSR here, on the host, once for many runs; padding and lowering are launches of the plan.
    Raises GeometryError where the rung does not take the geometry, ArgumentError for an unknown name.
    """
    check_geometry(name, geometry, on)
    module, parsed = convolution_module(name, on)
    symbols = {**geometry.symbols(), **device_symbols(on)}
    arrays = {"x": x, "w": w, "y": out(y)}
    route = LADDER[name]
    if route.column is not None:
        sparse = csr(on_host(w), geometry.groups, route.column, parsed.names(symbols), route.row)
        symbols["nnz"] = sparse.nnz
        forms = {"rowptr": sparse.rowptr, "col": sparse.col, "val": sparse.val, "entries": sparse.entries()}
        arrays |= {form: _beside(x, array) for form, array in forms.items()}
    return Convolution(module, parsed, symbols, arrays)


def on_host(array: Any) -> np.ndarray:
    """A NumPy or CuPy array as NumPy's."""
    return array if isinstance(array, np.ndarray) else array.get()


def _beside(other: Any, array: np.ndarray) -> Any:
    """The array where `other` is: NumPy's or CuPy's."""
    if isinstance(other, np.ndarray):
        return array
    import cupy

    return cupy.asarray(array)
