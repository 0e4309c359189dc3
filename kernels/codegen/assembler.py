"""Sources to machine code, several at a time: each worker is a process of its own, since NVRTC compiles one by one.

A worker is told a line of JSON, {"source", "arch"}, and answers with one: the fields of Built, or {"error", "log"}.
What was made once is kept where the engine keeps its code (sim.objectcache), under a key of source, architecture and
compiler; a cache that cannot be read or written costs time and a warning, nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..compiler import compiler_version
from ..errors import BackendError, CompileError, ConvladderError
from ..resources import assembled_resources
from ..sim import objectcache

#: A kernel that takes longer is given up.
LONGEST_S = 300.0

_WORKER = f"from {__name__} import work; work()"

#: Called with (kernels made, kernels in all).
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Built:
    """One kernel as machine code.

    cubin        an ELF file for the architecture
    code_bytes   of machine code in it, ptx_bytes of PTX before
    registers    for each thread; spill_bytes  moved to and from local memory for want of more
    compile_s    that it took, when it was made
    cached       whether that was another time
    """

    cubin: bytes
    code_bytes: int
    ptx_bytes: int
    registers: int
    spill_bytes: int
    compile_s: float
    cached: bool = False


def build(
    sources: Sequence[str], arch: str, workers: int | None = None, progress: Progress = lambda *_: None
) -> list[Built]:
    """The machine code of each source, in order.

    arch     "sm_90", …;  workers  processes at a time: the cores, unless given
    Raises CompileError with the compiler's log, BackendError where a worker ends or takes longer than LONGEST_S.
    """
    keys = [_key(source, arch) for source in sources]
    found = [_read(key) for key in keys]
    missing = sorted((i for i, built in enumerate(found) if built is None), key=lambda i: -len(sources[i]))
    done = len(sources) - len(missing)
    progress(done, len(sources))
    if missing:
        pool = _Pool(min(len(missing), workers or os.cpu_count() or 1))
        with contextlib.closing(pool):
            for i, built in pool.assemble((i, sources[i], arch) for i in missing):
                found[i] = built
                _write(keys[i], built)
                done += 1
                progress(done, len(sources))
    return [built for built in found if built is not None]


# ---- the cache


def _key(source: str, arch: str) -> str:
    text = "\0".join((arch, compiler_version(), source))
    return f"codegen-{hashlib.sha256(text.encode()).hexdigest()}"


def _read(key: str) -> Built | None:
    body = objectcache.read(key)
    if body is None:
        folder = objectcache.directory()
        if folder is not None and (folder / f"{key}.o").exists():
            warnings.warn(f"{folder / key}.o is damaged or not safe to read: it is made again", stacklevel=2)
        return None
    return replace(_decoded(json.loads(body)), cached=True)


def _write(key: str, built: Built) -> None:
    if not objectcache.write(key, json.dumps(_encoded(built)).encode()):
        warnings.warn(
            f"generated code cannot be kept in {objectcache.directory()}: it will be compiled each time", stacklevel=2
        )


def _encoded(built: Built) -> dict[str, Any]:
    return {**asdict(built), "cubin": base64.b64encode(built.cubin).decode()}


def _decoded(fields: dict[str, Any]) -> Built:
    return Built(**{**fields, "cubin": base64.b64decode(fields["cubin"])})


# ---- the processes


class _Pool:
    """Workers, each driven by a thread."""

    def __init__(self, workers: int):
        self._threads = ThreadPoolExecutor(workers)
        self._own = threading.local()
        self._processes: list[subprocess.Popen[str]] = []

    def assemble(self, jobs: Iterator[tuple[int, str, str]]) -> Iterator[tuple[int, Built]]:
        yield from self._threads.map(lambda job: (job[0], self._one(*job[1:])), jobs)

    def _one(self, source: str, arch: str) -> Built:
        process = self._process()
        limit = threading.Timer(LONGEST_S, process.kill)
        limit.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"source": source, "arch": arch}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        finally:
            limit.cancel()
        if not answer:
            raise BackendError(
                f"a process that compiled generated code ended with status {process.wait()}: it ran out of memory, "
                f"or took longer than {LONGEST_S:.0f} s. Use fewer filters a kernel, or fewer workers"
            )
        told = json.loads(answer)
        if "error" in told:
            raise (CompileError(told["error"], told["log"]) if "log" in told else BackendError(told["error"]))
        return _decoded(told)

    def _process(self) -> subprocess.Popen[str]:
        if not hasattr(self._own, "process"):
            self._own.process = subprocess.Popen(
                [sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._processes.append(self._own.process)
        return self._own.process

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.kill()
            process.communicate()


def _assembled(source: str, arch: str) -> Built:
    started = time.perf_counter()
    made, kernels = assembled_resources(source, arch)
    (kernel,) = kernels.values()
    return Built(
        made.cubin,
        kernel.code_bytes,
        kernel.ptx_bytes,
        kernel.registers,
        kernel.spill_store_bytes + kernel.spill_load_bytes,
        time.perf_counter() - started,
    )


def work() -> None:
    """What a worker does: answer each line of standard input."""
    for line in sys.stdin:
        try:
            answer = _encoded(_assembled(**json.loads(line)))
        except CompileError as error:
            answer = {"error": str(error), "log": error.log}
        except ConvladderError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
