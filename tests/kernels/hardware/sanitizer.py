"""Record what compute-sanitizer finds in the corpus of planted bugs and right kernels.

    python tests/kernels/hardware/sanitizer.py [NAME...] [--logs DIR]     # on a machine with a GPU

It writes sanitizer.json here. All kernels are run, or those that are named; the record keeps what it has of the others.

Each kernel is run as compiled for the GPU, line numbers included. `out` arrays are left as the device gives them and
each array is an allocation of its own, so that the tool sees what is undefined and where an array ends. Called with
`launch FILE NAME...` it is the program under the tool, and notes in FILE what it came to.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import annotated

from convladder.kernels import gpu
from convladder.kernels.module import Module

HERE = Path(__file__).parent
RECORD = HERE / "sanitizer.json"

#: The tools with the options that they need: an error ends a kernel, not the program; allocations do not touch.
TOOLS = {
    "memcheck": ("--destroy-on-device-error", "kernel", "--padding", "4096"),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
OPTIONS = ("--report-api-errors", "no", "--show-backtrace", "no", "--print-limit", "0")

#: Seconds after which a kernel is called endless, and programs that share a tool's work.
PATIENCE_S, SHARES = 5, 4

#: Kernels of the corpus that came after the last run.
LATER: tuple[str, ...] = ()

CORPUS = {kernel.name: kernel for kernel in annotated.annotated(annotated.CORPUS)}


# -- under the tool --------------------------------------------------------------------------------


def launch_all(notes: Path, names: Sequence[str]) -> None:
    """Launch kernels one by one. Ends early where the device has stopped working or a kernel does not end."""
    cupy = gpu.cupy_module()
    cupy.cuda.set_allocator(None)
    with notes.open("a") as file:

        def note(word: str, name: str) -> None:
            print(word, name, file=file, flush=True)

        def give_up(name: str) -> None:
            note("endless", name)
            os.kill(os.getpid(), signal.SIGKILL)

        for name in names:
            kernel = CORPUS[name]
            module = kernel.module("gpu")
            note("begin", name)
            watch = threading.Timer(PATIENCE_S, give_up, [name])
            watch.start()
            try:
                run(cupy, kernel, module)
            except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
                note("error", f"{name} {str(error).split(':')[0]}")
            watch.cancel()
            try:
                cupy.zeros(1).get()
            except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError):
                os._exit(1)  # the context is lost


def run(cupy: Any, kernel: annotated.Annotated, module: Module) -> None:
    for ready in annotated.ready(cupy, module, kernel.plan(), *kernel.given()):
        module.image.enqueue(ready)
        cupy.cuda.Device().synchronize()


# -- around the tool -------------------------------------------------------------------------------


def examine(tool: str, names: Sequence[str], log: Path) -> dict[str, str]:
    """Run a tool on kernels, anew after each that stopped the program; how each ended: "", an error, or "endless"."""
    ended: dict[str, str] = {}
    rest = list(names)
    while rest:
        with tempfile.TemporaryDirectory() as folder, log.open("a") as output:
            notes = Path(folder) / "notes"
            command = [sanitizer(), "--tool", tool, *TOOLS[tool], *OPTIONS]
            program = [sys.executable, __file__, "launch", str(notes), *rest]
            subprocess.run([*command, *program], stdout=output, stderr=subprocess.STDOUT, timeout=120)
            words = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
        begun = {name: "" for word, name, *_ in words if word == "begin"}
        if not begun:
            raise RuntimeError(f"{tool} did not start:\n{log.read_text()[-2000:]}")
        ended |= begun
        ended |= {name: " ".join(how) or word for word, name, *how in words if word != "begin"}
        rest = [name for name in rest if name not in ended]
    return ended


def sanitizer() -> str:
    found = shutil.which("compute-sanitizer")
    if not found:
        places = [*Path("/usr/local").glob("cuda*/bin/compute-sanitizer")]
        if not places:
            sys.exit("compute-sanitizer is not here: it comes with the CUDA toolkit")
        found = str(places[0])
    return found


# -- what it prints --------------------------------------------------------------------------------


def findings(log: str) -> dict[str, list[dict[str, Any]]]:
    """What a tool's output says of each kernel: the finding, its lines counted from the kernel's head, how often."""
    kernel_of = {line.kernel: k.name for k in CORPUS.values() for line in k.plan().launches}
    counted: Counter[tuple[str, str, tuple[int, ...]]] = Counter()
    for block in blocks(log):
        text = "\n".join(block)
        names = [kernel_of[n] for n in re.findall(r"(\w+)(?:<[^>]*>)?\([^()\n]*\)\+0x", text) if n in kernel_of]
        if names:
            what = re.sub(r" at \w+\(.*", "", block[0]).removeprefix("Error: ")
            head = CORPUS[names[0]].first
            lines = dict.fromkeys(int(n) - head for n in re.findall(r"kernel\.cu:(\d+)", text))
            counted[names[0], what, tuple(lines)] += 1
    found: dict[str, list[dict[str, Any]]] = {}
    for (name, what, lines), count in counted.items():
        found.setdefault(name, []).append({"what": what, "lines": list(lines), "count": count})
    return found


def blocks(log: str) -> Iterator[list[str]]:
    """The paragraphs of a log: a line after the rule of equal signs, and the indented ones below it."""
    block: list[str] = []
    for line in re.findall(r"^=========(?: (.*))?$", log, re.MULTILINE):
        if line.startswith("  ") and block:
            block.append(line.strip())
            continue
        if block:
            yield block
        block = [line.strip()] if line.strip() else []
    if block:
        yield block


def recorded() -> dict[str, Any]:
    """The record, as it stands."""
    return json.loads(RECORD.read_text())


def verdict(name: str, result: dict[str, Any]) -> str:
    """What a tool came to on a planted bug, in a word or two."""
    kernel = CORPUS[name]
    if any(kernel.line - kernel.first in finding["lines"] for finding in result["found"]):
        return "found"
    if result["found"]:
        return "found, line " + ", ".join(str(n + kernel.first) for n in result["found"][0]["lines"])
    return {"": "", "endless": "does not end"}.get(
        result["ended"], "stops: " + result["ended"].removeprefix("cudaError")
    )


def main(names: Sequence[str], logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    shares = {(tool, n): names[n::SHARES] for tool in TOOLS for n in range(min(SHARES, len(names)))}
    with ThreadPoolExecutor(len(shares)) as pool:
        running = {
            key: pool.submit(examine, key[0], share, logs / f"{key[0]}-{key[1]}.log") for key, share in shares.items()
        }
    ended = {tool: {} for tool in TOOLS}
    for (tool, _), share in running.items():
        ended[tool] |= share.result()
    text = {tool: "".join(p.read_text() for p in sorted(logs.glob(f"{tool}-*.log"))) for tool in TOOLS}
    write(ended, text)


def write(ended: dict[str, dict[str, str]], text: dict[str, str]) -> None:
    found = {tool: findings(text[tool]) for tool in TOOLS}
    kernels = recorded()["kernels"] | {
        name: {tool: {"ended": ended[tool][name], "found": found[tool].get(name, [])} for tool in TOOLS}
        for name in ended["memcheck"]
    }
    version = subprocess.run([sanitizer(), "--version"], capture_output=True, text=True).stdout.strip().splitlines()[-1]
    record = {
        "recorded": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.device_facts(),
        "version": version,
        "options": {tool: " ".join([*options, *OPTIONS]) for tool, options in TOOLS.items()},
        "kernels": {name: kernels[name] for name in CORPUS if name in kernels},
    }
    lines = json.dumps(record, indent=1)
    for piece in (r'\{\s*"what"[^{}]*\}', r'\{\s*"ended": "\w*",\s*"found": \[\s*\]\s*\}'):
        lines = re.sub(piece, lambda match: json.dumps(json.loads(match[0])), lines)
    RECORD.write_text(lines + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["launch"]:
        launch_all(Path(sys.argv[2]), sys.argv[3:])
    else:
        arguments = argparse.ArgumentParser()
        arguments.add_argument("names", nargs="*", metavar="NAME")
        arguments.add_argument("--logs", type=Path)
        given = arguments.parse_args()
        with tempfile.TemporaryDirectory() as folder:
            main(given.names or list(CORPUS), given.logs or Path(folder))
