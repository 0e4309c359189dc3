"""Do jobs on a Dask cluster: as `pool.run` does, on as many machines as have workers.

A worker of the cluster does its jobs in processes of its own pool, so what crashes or hangs takes its job with it and
nothing else. What a job names by path, notebooks and rules, must lie there under the same path on every machine.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from . import pool
from .grades import GradingError
from .pool import Broken

J = TypeVar("J")

#: How a worker of the cluster is started: its processes must be allowed to have children.
START = "DASK_DISTRIBUTED__WORKER__DAEMON=False dask worker {address} --nthreads 1 --nworkers N"
_CONNECT_S = 10


def run(
    jobs: Sequence[J], work: Callable[[J], str], address: str, limit_s: float, preload: Sequence[str] = (),
    *, on_gpu: bool = False,
) -> Iterator[tuple[J, str | Broken]]:  # fmt: skip
    """Yield each job with `work(job)` or why there is none, in order of completion.

    address  of the scheduler, such as tcp://host:8786
    on_gpu   only on workers that have a GPU, one job at a time on each: those started with --resources GPU=1
    Raises GradingError where there is no scheduler, or no worker that can do such jobs.
    """
    try:
        import distributed
    except ImportError:
        raise GradingError("--scheduler needs Dask: pip install distributed") from None
    if not jobs:
        return
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        start = f"dask scheduler, and on each machine: {START.format(address=address)}"
        raise GradingError(f"no Dask scheduler answers at {address} ({error}). Start one: {start}") from None
    with client:
        _require_workers(client, address, on_gpu)
        resources: dict[str, Any] = {"resources": {"GPU": 1}} if on_gpu else {}
        futures = {
            client.submit(_in_a_process, job, work, limit_s, list(preload), pure=False, **resources): job
            for job in jobs
        }  # fmt: skip
        try:
            for future in distributed.as_completed(list(futures), loop=client.loop):
                yield futures.pop(future), _result(future)
                future.release()
        finally:
            client.cancel(list(futures))


def _require_workers(client: Any, address: str, on_gpu: bool) -> None:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    able = [w for w in workers if not on_gpu or w["resources"].get("GPU")]
    if not able:
        with_gpu = " --resources GPU=1" if on_gpu else ""
        what = "no worker with a GPU" if on_gpu else "no worker"
        raise GradingError(f"{address} has {what}. Start one: {START.format(address=address)}{with_gpu}")


def _result(future: Any) -> str | Broken:
    try:
        found: str | Broken = future.result()
    except Exception as error:  # the cluster's own: a worker that died again and again, a job that was cancelled
        return Broken("died", f"{type(error).__name__}: {error}"[:300])
    return found


def _in_a_process(job: J, work: Callable[[J], str], limit_s: float, preload: list[str]) -> str | Broken:
    """What a worker of the cluster does."""
    if multiprocessing.current_process().daemon:
        return Broken("raised", f"this worker may start no processes: start it with {START.format(address='ADDRESS')}")
    ((_, result),) = pool.run([job], work, 1, limit_s, preload)
    return result
