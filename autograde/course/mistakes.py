"""What students get wrong in each lab, as a page for instructors, made from the labs' known mistakes.

python -m convladder.autograde.course.mistakes > docs/mistakes.md
"""

from __future__ import annotations

import re
from pathlib import Path

from ..judge import spec as specs
from . import build, sample

_HEAD = """# What students get wrong

Made by `make pages` from the known mistakes of each lab, in `solutions/LAB/wrong`. Each file is a whole answer, and
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


if __name__ == "__main__":
    print(page(), end="")
