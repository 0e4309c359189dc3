"""Run a notebook from top to bottom on this machine and record what each of its code cells showed and took.

    python tests/autograde/hardware/notebook.py SOLVED.ipynb OUT.json

Exits with 1 where a cell raised or a check did not pass. Needs IPython, and no Jupyter.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from convladder.kernels import gpu
from convladder.kernels.errors import BackendError

#: Characters of a cell's output that are kept: enough for a table.
_KEPT = 4000


def main(notebook: Path, out: Path) -> int:
    shell = InteractiveShell.instance()
    cells = []
    started = time.perf_counter()
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            cells.append(_run(shell, cell["id"], source))
            print(f"{cells[-1]['seconds']:6.1f} s  {cell['id']}  {cells[-1].get('error', '')}", flush=True)
    record = {
        "recorded": "the solved notebook, run from top to bottom", "notebook": notebook.name, "device": _device(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1), "cells": cells,
    }  # fmt: skip
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any("error" in cell or cell.get("passed") is False for cell in cells))


def _run(shell: Any, name: str, source: str) -> dict[str, Any]:
    started = time.perf_counter()
    with capture_output() as captured:
        result = shell.run_cell(source)
    rich = [output.data.get("text/plain", "") for output in captured.outputs]
    found: dict[str, Any] = {"id": name, "seconds": round(time.perf_counter() - started, 2)}
    if result.error_in_exec or result.error_before_exec:
        found["error"] = repr(result.error_in_exec or result.error_before_exec)[:_KEPT]
    if name.endswith("-check") and result.result is not None:
        found["passed"] = result.result.passed
    return {**found, "text": (captured.stdout + "\n".join(rich))[:_KEPT]}


def _device() -> dict[str, str]:
    try:
        return gpu.device_facts()
    except BackendError:
        return {"device": "none: kernels ran on the engine"}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
