"""The out-of-line code that every kernel calls: memory accesses with their checks and counters, and the loop over
blocks and warps. Written once, compiled once for a machine.

`touch` knows every rule of an access and reports every fault, for one lane; `requests` takes a warp through it.
`fast_access` and `shared_access` handle whole warps that have nothing to report.

Accesses are named by the number of their site. Widths are the bytes of one lane.
"""

from __future__ import annotations

from . import async_copies, driver, requests, shared_access, shared_groups, touch, warp_barrier
from .ir import module_text

#: What compiled kernels and the accesses of a width call.
NAMES = (
    "careful",
    "careful_uniform",
    "check_group",
    "commit_copies",
    "count",
    "count_banks",
    "count_by_array",
    "fetch_shared",
    "finish_copies",
    "load_shared_uniform",
    "load_uniform",
    "reach",
    "record",
    "start_copy",
    "study",
    "sync_warp",
)


def base_module() -> str:
    """Everything that does not depend on an access's width."""
    return module_text(
        [
            touch.record(),
            touch.touch(),
            touch.reach(),
            requests.count(),
            requests.count_banks(),
            requests.count_turns(),
            requests.count_shared_update(),
            requests.count_by_array(),
            requests.careful(),
            requests.careful_uniform(),
            requests.load_uniform(),
            shared_access.study(),
            shared_access.load_uniform(),
            shared_groups.study(),
            shared_groups.check(),
            shared_groups.fetch(),
            warp_barrier.sync_warp(),
            async_copies.start(),
            async_copies.commit(),
            async_copies.finish(),
            driver.meet(),
            driver.drive(),
        ]
    )
