"""What students get wrong in each lab, as a page for instructors, made from the labs' known mistakes."""

from __future__ import annotations

import re
from pathlib import Path

from ..judge import spec as specs
from . import build, sample

_HEAD = """# What students get wrong

Made by `make build` from the known mistakes of each lab, in `solutions/LAB/wrong`. Each file is a whole answer, and
`make prove` holds the judge to failing the named check of it and no other.
"""


def page(root: Path | None = None) -> str:
    """The page in Markdown: for each lab a table, its tasks in the lab's order."""
    parts = [_HEAD]
    for lab in build.labs(root):
        found = sample.mistakes(lab, root)
        if not found:
            continue
        spec = specs.load(lab)
        order = [task.name for task in spec.tasks]
        lines = [
            f"## Lab {int(lab[:2])}: {spec.title}\n",
            "| task | mistake | check | answer |",
            "| --- | --- | --- | --- |",
        ]
        for wrong in sorted(found, key=lambda w: (order.index(w.task), w.path.name)):
            fails = ", ".join(check.partition(".")[2] for check in wrong.fails)
            link = f"[{wrong.path.stem}](../solutions/{lab}/wrong/{wrong.path.name})"
            lines.append(f"| `{wrong.task}` | {_cell(wrong.why)} | {fails} | {link} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    """Text as it may stand in a cell of a table."""
    return re.sub(r"([|*_<])", r"\\\1", text)


def write(root: Path | None = None) -> Path:
    """Write docs/mistakes.md and return it."""
    path = _path(root)
    path.write_text(page(root), encoding="utf-8", newline="\n")
    return path


def stale(root: Path | None = None) -> list[Path]:
    """The page, where it is not what the known mistakes make."""
    path = _path(root)
    return [] if path.is_file() and path.read_text(encoding="utf-8") == page(root) else [path]


def _path(root: Path | None) -> Path:
    return (root or build.ROOT) / "docs" / "mistakes.md"
