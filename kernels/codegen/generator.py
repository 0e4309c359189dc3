"""Filters to CUDA C++: the weights that are not zero become immediates of straight-line code.

The frame of a kernel is C++; what a stage does is PTX within it. As C++ that part would be compiled no differently, but
its compile time grows with the square of its length (NVRTC 13.0: 32 768 multiply-adds took 20.8 s, as PTX 1.0 s).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ..layouts import ConvGeometry
from .tiling import VECTOR, VECTOR_BYTES, Choice, Tiling

#: The name of every generated kernel.
KERNEL = "codegen"


@dataclass(frozen=True)
class Part:
    """One kernel of a convolution: `source` computes the output channels `filters` from `nnz` weights in all."""

    source: str
    filters: tuple[int, ...]
    nnz: int


def generate(geometry: ConvGeometry, w: np.ndarray, choice: Choice) -> list[Part]:
    """The kernels of one convolution, each `codegen(x, y, N)` for any number of images.

    w  (K, C/groups, R, S) float32. Source: code-generation paper, 3.7 (weights within the generated code).
    """
    tiling = Tiling(geometry, choice)
    parts = []
    for filters in shares(geometry, w, choice.filters):
        mine = w[list(filters)]
        for channels in _split(mine, choice.splits):
            nnz = int(np.count_nonzero(mine[:, channels]))
            parts.append(Part(_kernel(tiling, mine, filters, channels, nnz), filters, nnz))
    return parts


def shares(geometry: ConvGeometry, w: np.ndarray, most: int) -> list[tuple[int, ...]]:
    """The output channels of each kernel: at most so many, all of one group, the kernels alike in non-zeros."""
    per_group = geometry.K // geometry.groups
    found = []
    for first in range(0, geometry.K, per_group):
        lengths = np.count_nonzero(w[first : first + per_group].reshape(per_group, -1), axis=1)
        kernels = -(-per_group // most)
        room = -(-per_group // kernels)
        filters: list[list[int]] = [[] for _ in range(kernels)]
        total = [0] * kernels
        for k in np.argsort(-lengths, kind="stable").tolist():  # the longest first, each to the shortest kernel
            least = min((i for i in range(kernels) if len(filters[i]) < room), key=total.__getitem__)
            filters[least].append(first + k)
            total[least] += int(lengths[k])
        found += [tuple(sorted(of_kernel)) for of_kernel in filters if of_kernel]
    return found


def _split(w: np.ndarray, splits: int) -> list[list[int]]:
    """The input channels that some of the filters use, in one list, or two with about as many non-zeros."""
    weights = np.count_nonzero(w, axis=(0, 2, 3))
    used = np.flatnonzero(weights).tolist()
    if splits == 1 or len(used) < 2:
        return [used]
    half = int(np.searchsorted(np.cumsum(weights[used]), weights.sum() / 2))
    middle = min(max(1, half + 1), len(used) - 1)
    return [used[:middle], used[middle:]]


# ---- one kernel


@dataclass(frozen=True)
class _Stage:
    """The input channels (of the group) that lie in shared memory at the same time, four to a vector."""

    number: int
    vectors: tuple[tuple[int, ...], ...]


def _stages(used: Sequence[int], vectors: int) -> list[_Stage]:
    """Only channels that some filter uses are staged."""
    fours = [tuple(used[i : i + VECTOR]) for i in range(0, len(used), VECTOR)]
    return [_Stage(n, tuple(fours[i : i + vectors])) for n, i in enumerate(range(0, len(fours), vectors))]


def _kernel(tiling: Tiling, w: np.ndarray, filters: tuple[int, ...], channels: list[int], nnz: int) -> str:
    g, choice = tiling.geometry, tiling.choice
    stages = _stages(channels, choice.channels // VECTOR)
    first_channel = filters[0] // (g.K // g.groups) * (g.C // g.groups)
    lines = [_frame(tiling, filters, nnz), *_sums(len(filters))]
    if stages:
        lines += [*_fetch(tiling, stages[0], first_channel), *_keep(tiling, stages[0])]
    for stage, following in zip_longest(stages, stages[1:]):
        if following:
            lines += _fetch(tiling, following, first_channel)
        lines.append(_multiply(tiling, stage, w))
        if following:
            lines += _keep(tiling, following)
    lines += [*_stores(g, filters, choice.splits > 1), "    }" if choice.rounds > 1 else "", "}"]
    return "\n".join(lines) + "\n"


def _frame(tiling: Tiling, filters: Sequence[int], nnz: int) -> str:
    """The beginning of a kernel: where its window lies, and what it stages."""
    g, choice = tiling.geometry, tiling.choice
    size = f"{g.C}x{g.H}x{g.W}, {g.K} filters {g.R}x{g.S}, stride {g.stride}, pad {g.pad}, dilation {g.dilation}"
    PQ, Q, Uh, Uw, threads = g.P * g.Q, g.Q, *g.stride, choice.threads
    copies = "\n".join(_copy(tiling, i) for i in range(tiling.copies))
    held = ", ".join(
        f"held{i}_{v} = make_float4(0, 0, 0, 0)" for i in range(tiling.copies) for v in range(choice.channels // VECTOR)
    )
    walk = f"""\
    for (int start = blockIdx.x * {choice.points}; start < N * {PQ}; start += gridDim.x * {choice.points}) {{
    __syncthreads();                        // who is behind still reads what the last range staged
"""
    begin = walk if choice.rounds > 1 else f"    int start = blockIdx.x * {choice.points};\n"
    return f"""\
/* codegen: {len(filters)} filters of a convolution, their {nnz} weights as code. Made by convladder.kernels.codegen.
 *   {size}, groups {g.groups}
 * x, y    device, N*C*H*W and N*K*P*Q float, N as it is passed
 * launch  grid cdiv(N*{PQ}, {choice.points * choice.rounds}), block {threads}, shared {tiling.shared_bytes} bytes
 */
extern "C" __global__ void __launch_bounds__({choice.threads})
{KERNEL}(const float* __restrict__ x, float* __restrict__ y, int N)
{{
    // {choice.channels} channels, twice: rows of {tiling.pitch}, images of {tiling.image_pitch}
    extern __shared__ float4 staged[];
    // Where the first row under a point begins, among all images.
    auto place = [](int point) {{
        return point / {PQ} * {tiling.image_pitch} + point % {PQ} / {Q} * {Uh * tiling.pitch};
    }};
{begin}    for (int i = threadIdx.x; i < {2 * tiling.buffer}; i += {threads}) staged[i] = make_float4(0, 0, 0, 0);
    int first = place(start);
    int point = start + min((int)threadIdx.x, {choice.points - 1});
    bool live = threadIdx.x < {choice.points} && point < N * {PQ};
    unsigned window = (unsigned)__cvta_generic_to_shared(
        staged + place(point) - first + point % {Q} * {Uw});

    // The elements of a channel that this thread stages: whether there is one, where from, where to.
    int first_input = start / {PQ} * {g.H} + min(max(start % {PQ} / {Q} * {Uh} - {g.pad[0]}, 0), {g.H});
{copies}
    float4 {held};
    __syncthreads();"""


def _copy(tiling: Tiling, i: int) -> str:
    """Element i of a thread: among the rows of all images, one after the other, from the first one in the window on."""
    g = tiling.geometry
    return f"""\
    int element{i} = threadIdx.x + {i * tiling.choice.threads};
    int row{i} = first_input + element{i} / {g.W}, column{i} = element{i} % {g.W};
    int n{i} = row{i} / {g.H}, h{i} = row{i} % {g.H};
    int at{i} = n{i} * {tiling.image_pitch} + (h{i} + {g.pad[0]}) * {tiling.pitch} - first;
    int inside{i} = n{i} < N && at{i} <= {tiling.plane - tiling.pitch};
    const float* from{i} = inside{i} ? x + (long long)n{i} * {g.C * g.H * g.W} + h{i} * {g.W} + column{i} : x;
    unsigned to{i} = (unsigned)__cvta_generic_to_shared(staged + at{i} + column{i} + {g.pad[1]});"""


def _sums(filters: int) -> Iterator[str]:
    for first in range(0, filters, 8):
        yield "    float " + ", ".join(f"sum{i} = 0" for i in range(first, min(first + 8, filters))) + ";"


def _fetch(tiling: Tiling, stage: _Stage, first_channel: int) -> Iterator[str]:
    """Load a stage's channels into registers."""
    g = tiling.geometry
    yield f"    // stage {stage.number}"
    for i in range(tiling.copies):
        loads, targets = [], []
        for v, channels in enumerate(stage.vectors):
            for lane in range(VECTOR):
                targets.append(f'"+f"(held{i}_{v}.{"xyzw"[lane]})')
                if lane < len(channels):
                    offset = 4 * (first_channel + channels[lane]) * g.H * g.W
                    loads.append(f"@inside ld.global.nc.L1::no_allocate.f32 %{len(targets) - 1}, [%{{from}}+{offset}];")
        condition, address = len(targets), len(targets) + 1
        body = [f"setp.ne.s32 inside, %{condition}, 0;", *(t.replace("%{from}", f"%{address}") for t in loads)]
        yield _asm([".reg .pred inside;", *body], targets, [f'"r"(inside{i})', f'"l"(from{i})'])


def _keep(tiling: Tiling, stage: _Stage) -> Iterator[str]:
    """Store them into the half of shared memory that is not being read, and wait for all threads to have done so."""
    half = stage.number % 2 * tiling.buffer
    for i in range(tiling.copies):
        operands = [f'"r"(inside{i})', f'"r"(to{i})']
        stores = []
        for v in range(len(stage.vectors)):
            at = len(operands)
            operands += [f'"f"(held{i}_{v}.{lane})' for lane in "xyzw"]
            lanes = ", ".join(f"%{at + lane}" for lane in range(VECTOR))
            stores.append(f"@inside st.shared.v4.f32 [%1+{(half + v * tiling.plane) * VECTOR_BYTES}], {{{lanes}}};")
        yield _asm([".reg .pred inside;", "setp.ne.s32 inside, %0, 0;", *stores], [], operands)
    yield "    __syncthreads();"


def _multiply(tiling: Tiling, stage: _Stage, w: np.ndarray) -> str:
    """Every non-zero of a stage: one load for a tap of four channels, one multiply-add for a non-zero."""
    g = tiling.geometry
    half = stage.number % 2 * tiling.buffer
    sums = len(w)
    body = [".reg .f32 x0, x1, x2, x3;"]
    for v, channels in enumerate(stage.vectors):
        weights = w[:, list(channels)]
        for r in range(g.R):
            for s in range(g.S):
                lanes, filters = np.nonzero(weights[:, :, r, s].T)
                if not lanes.size:
                    continue
                offset = half + v * tiling.plane + r * g.dilation[0] * tiling.pitch + s * g.dilation[1]
                body.append(f"ld.shared.v4.f32 {{x0, x1, x2, x3}}, [%{sums}+{offset * VECTOR_BYTES}];")
                body += [
                    f"fma.rn.f32 %{k}, x{lane}, {_immediate(weights[k, lane, r, s])}, %{k};"
                    for lane, k in zip(lanes.tolist(), filters.tolist(), strict=True)
                ]
    return _asm(body, [f'"+f"(sum{i})' for i in range(sums)], ['"r"(window)'])


def _stores(g: ConvGeometry, filters: Sequence[int], add: bool) -> Iterator[str]:
    yield "    if (live) {"
    yield f"        float* to = y + (long long)(point / {g.P * g.Q}) * {g.K * g.P * g.Q} + point % {g.P * g.Q};"
    for i, k in enumerate(filters):
        offset = k * g.P * g.Q
        yield f"        atomicAdd(to + {offset}, sum{i});" if add else f"        to[{offset}] = sum{i};"
    yield "    }"


def _asm(body: Sequence[str], outputs: Sequence[str], inputs: Sequence[str]) -> str:
    text = "".join(f'\n        "{line}\\n"' for line in body)
    return f'    asm volatile("{{"{text}\n        "}}" : {", ".join(outputs)} : {", ".join(inputs)} : "memory");'


def _immediate(weight: np.float32) -> str:
    """A float as PTX writes it, its bits: NaN and infinities too."""
    return f"0f{struct.unpack('<I', struct.pack('<f', weight))[0]:08X}"
