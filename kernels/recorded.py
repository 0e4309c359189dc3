"""What the bench measured on real GPUs, kept with the package: one JSON file a suite and device.

Nothing here is ever taken for a measurement of the machine at hand.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_FOLDER = Path(__file__).parent / "records"


def path(suite: str, device: str, folder: Path = _FOLDER) -> Path:
    """Where the record of a suite on a device lies: `sparse.nvidia-h100-80gb-hbm3.json`."""
    return folder / f"{suite}.{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}.json"


def load(suite: str, device: str | None = None, folder: Path = _FOLDER) -> list[dict[str, Any]]:
    """The records of a suite, of every device or of one."""
    found = [path(suite, device, folder)] if device else sorted(folder.glob(f"{suite}.*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in found if file.is_file()]


def is_repository() -> bool:
    """Whether records are kept in a working tree, not in an installation that the next one overwrites."""
    return (_FOLDER.resolve().parents[1] / "pyproject.toml").is_file()


def save(record: dict[str, Any], file: Path) -> None:
    """Write a record, one case a line, so that two records can be compared as text."""
    head = {key: value for key, value in record.items() if key != "cases"}
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in record["cases"])
    text = json.dumps(head, indent=1, ensure_ascii=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{text.removesuffix("}").rstrip()},\n "cases": [\n{cases}\n]}}\n', encoding="utf-8")


@cache
def crossover(device: str, dense: str) -> float | None:
    """The sparsity from which the best sparse rung was faster than a dense method on a device; None if not recorded.

    The median over the layers that were swept; 1.0 stands for a layer on which the sparse rung was never faster.
    """
    for record in load("sparse", device):
        swept = [row["sparsity"] for row in record.get("crossover", ()) if row["dense"] == dense]
        if swept:
            return float(np.median([1.0 if s is None else s for s in swept]))
    return None
