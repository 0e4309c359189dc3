"""The recorded figure in each rung's header, its line ` * H100  …`: `make bench` writes it anew from the records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..rungs import LADDER
from .compare import rows
from .tables import Record

_LINE = re.compile(r"^( \* H100 +).*$", re.MULTILINE)


#: The suites whose records are read.
SUITES = ("direct", "gemm", "sparse")

#: In the header of a rung that no record has.
NOT_YET = "not yet recorded"


def figures(rung: str, records: Mapping[str, Record]) -> str:
    """What the header of a rung says of the H100, from the records of the suites direct, gemm and sparse."""

    def times(suite: str, cases: tuple[str, ...], way: str) -> list[float]:
        solved = rows(records[suite])
        return [row["us"] for case in cases for row in solved if row["case"].startswith(case) and row["way"] == way]

    kind = rung.split("_")[0]
    if kind == "gemm":
        mine, library = (times("gemm", ("4096^3",), way)[0] for way in (rung, "cublas batched"))
        return f"{library / mine:.2f} of cuBLAS at 4096 x 4096 x 4096"
    if kind == "csr":
        layers = ("alexnet conv2, batch", "alexnet conv3, batch")
        if not times("sparse", layers, rung):
            return NOT_YET
        ms = [us / 1000 for way in (rung, "cublas batched") for us in times("sparse", layers, way)]
        return "AlexNet's conv2, conv3, 128 images: {:.2f}, {:.2f} ms; lowered, cuBLAS: {:.2f}, {:.2f}".format(*ms)
    images = tuple(f"{size} x {size}, stride 1" for size in (31, 511, 4095))
    us = [us for way in (rung, "cudnn fp32 nhwc") for us in times("direct", images, way)]
    return "3 x 31^2, 511^2, 4095^2, a 3 x 3 filter: {:.1f}, {:.1f}, {:.0f} us; cuDNN: {:.1f}, {:.1f}, {:.0f}".format(
        *us
    )


def rewrite(folder: Path, records: Mapping[str, Record]) -> list[str]:
    """Write the figures into the files of a ladder: the rungs whose header that changed."""
    changed = []
    for rung in LADDER:
        file = folder / f"{rung}.cu"
        text = file.read_text(encoding="utf-8")
        figure = figures(rung, records)
        written = _LINE.sub(lambda line, figure=figure: line[1] + figure, text, count=1)  # type: ignore[misc]
        if written != text:
            file.write_text(written, encoding="utf-8")
            changed.append(rung)
    return changed
