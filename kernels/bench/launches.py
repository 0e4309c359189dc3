"""Which kernels each way launches, and how well their grids fill the device: by the training paper, and really."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from .. import activity, occupancy
from ..activity import KernelLaunch
from ..errors import ArgumentError, BackendError
from ..resources import Resources
from .cases import Case
from .ways import Problem


def add_launches(case: Case, found: dict[str, Any], device: dict[str, str]) -> None:
    """To each way of a solved case, the distinct kernels that one call launches, the longest first.

    device  what gpu.device_facts() says. Where CUPTI cannot be had, the ways say why instead.
    """
    problem = Problem(case)
    arrays = problem.arrays(0)
    for way in found["ways"]:
        if "us" not in way:
            continue
        work = problem.maker(way["way"])(arrays)
        try:
            way["launches"] = distinct(activity.launches(work.enqueue), device)
        except BackendError as error:
            way["launches_unknown"] = str(error)


def distinct(launches: Iterable[KernelLaunch], device: dict[str, str]) -> list[dict[str, Any]]:
    """Launches of the same kernel in the same way as one: how often, microseconds of all, and the utilisation."""
    times: dict[KernelLaunch, list[float]] = {}
    for launch in launches:
        times.setdefault(launch, []).append(launch.us)
    found = [
        {**asdict(launch), "times": len(us), "us": round(sum(us), 2), **utilisation(launch, device)}
        for launch, us in times.items()
    ]
    return sorted(found, key=lambda launch: -launch["us"])


def utilisation(launch: KernelLaunch, device: dict[str, str]) -> dict[str, float]:
    """RU of one launch (training paper, eq. 11): with maxBlocks of eq. 10, and with the blocks that really fit.

    ru, ru_real  shares, 0 to 1;  occupancy  active warps of those that a multiprocessor can hold. What cannot be told
    of this architecture is left out.
    """
    arch = "sm_" + device["compute_capability"].replace(".", "")
    multiprocessors, grid, block = int(device["multiprocessors"]), _product(launch.grid), _product(launch.block)
    kernel = Resources(
        launch.name, arch, launch.registers, shared_bytes=launch.static_shared_bytes,
        spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0, constant_bytes=0, barriers=0, code_bytes=0, ptx_bytes=0,
        cubin_bytes=0,
    )  # fmt: skip
    found: dict[str, float] = {}
    try:
        at_once = occupancy.max_blocks(multiprocessors, launch.registers, block)
        found["ru"] = round(occupancy.resource_utilisation(grid, at_once), 3)
        real = occupancy.occupancy(kernel, block, launch.dynamic_shared_bytes)
        found["ru_real"] = round(occupancy.resource_utilisation(grid, real.blocks * multiprocessors), 3)
        found["occupancy"] = round(real.ratio, 3)
    except ArgumentError:  # an architecture without a table
        return found
    return found


def _product(sizes: tuple[int, int, int]) -> int:
    return sizes[0] * sizes[1] * sizes[2]
