"""What defends a grade years later: by which rules, by what text of the judge and on what it was given."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from ... import kernels
from ...kernels import gpu
from ..judge import edition
from ..judge.spec import Spec
from ..judge.submission import Submission

#: What of the package decides about a grade.
_DECIDES = ("*.py", "*.cu", "*.toml", "*.csv")


def provenance(spec: Spec, read: Submission, on: str) -> dict[str, str]:
    """The lab's release, the notebook's where it says another one, the judge's sources, and the GPU."""
    found = {"release": edition.of(spec).release, "sources": sources()}
    if read.release not in ("", found["release"]):
        found["notebook of release"] = read.release
    if on == "gpu":
        facts = gpu.device_facts()
        found["device"] = f"{facts['device']}, driver of CUDA {facts['driver_cuda']}"
    return found


@cache
def sources() -> str:
    """A digest of the installed package's texts: two versions of one number are told apart by it."""
    digest = hashlib.sha256()
    for top in (Path(kernels.__file__).parent, Path(__file__).parents[1]):
        for path in sorted(p for pattern in _DECIDES for p in top.rglob(pattern)):
            digest.update(f"{path.relative_to(top.parent)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
