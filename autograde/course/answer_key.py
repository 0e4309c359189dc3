"""The answer key of a lab, a page for instructors: docs/answers/LAB.md.

Answers, rubrics, bounds, hidden cases and recorded verdicts come from the solved lab, its spec and the records. The
reasoning is written, in solutions/LAB/reasoning.md: a heading `## TASK` for each task in the lab's order, then
`## Verdicts`. There a line `{{ verdicts SUITE }}`, or `{{ verdicts SUITE | WORDS | WORDS }}` for the claims that hold
these words only, stands for the table of a suite's claims with what is recorded of each.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from convladder.kernels import expression, recorded
from convladder.kernels.bench import claims, codesize, tables, training, training_results
from convladder.kernels.bench.claims import Verdict

from ..judge import kernel_task, score
from ..judge import spec as specs
from ..judge.spec import ExplainTask, KernelTask, NumberTask, PythonTask, Spec, Task
from . import build
from .build import BuildError, Cell

#: The section of the claims that a lab tests.
VERDICTS = "Verdicts"

_HEAD = """# Answer key of lab {number}: {title}

For instructors. Made by `make build` from [the solved lab](../../solutions/{lab}/{lab}.py), its specs and
[the written reasoning](../../solutions/{lab}/reasoning.md). What students get wrong: [mistakes](../mistakes.md).
"""
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_RECORDED = re.compile(r"^\{\{ verdicts (\w+)((?: \| [^|}]+)*) \}\}$", re.MULTILINE)


def page(lab: str, root: Path | None = None) -> str:
    """The key of a lab in Markdown. Raises BuildError where a task has no reasoning, or the reasoning no task."""
    spec = specs.load(lab)
    cells = {cell.task: cell for cell in build.cells(lab, root) if cell.role in ("task", "explain")}
    why = reasoning(lab, root)
    parts = [_HEAD.format(lab=lab, number=int(lab[:2]), title=spec.title)]
    parts += ["\n\n".join(_task(spec, task, cells[task.name], why[task.name])) + "\n" for task in spec.tasks]
    if VERDICTS in why:
        parts.append(f"## {VERDICTS}\n\n{_RECORDED.sub(_recorded, why[VERDICTS])}\n")
    return "\n".join(parts)


def reasoning(lab: str, root: Path | None = None) -> dict[str, str]:
    """The sections of a lab's written reasoning. Raises BuildError unless they are its tasks' and the verdicts'."""
    path = _source(lab, root)
    _, *found = _SECTION.split(path.read_text(encoding="utf-8"))
    sections = {name: text.strip() for name, text in zip(found[::2], found[1::2], strict=True)}
    tasks = [task.name for task in specs.load(lab).tasks]
    if list(sections) not in (tasks, [*tasks, VERDICTS]):
        wanted = ", ".join([*tasks, VERDICTS])
        raise BuildError(path, 1, f"its sections are {', '.join(sections)}; they must be {wanted}, in this order")
    if empty := [name for name, text in sections.items() if not text]:
        raise BuildError(path, 1, f"nothing is written under {', '.join(empty)}")
    return sections


def written_lines(lab: str, root: Path | None = None) -> set[str]:
    """The lines of a lab's written reasoning, without spaces, that are long enough to tell where they stand."""
    if not _source(lab, root).is_file():
        return set()
    bare = (re.sub(r"\s+", "", line) for text in reasoning(lab, root).values() for line in text.splitlines())
    return {line for line in bare if len(line) >= build.DISTINCTIVE}


def write(root: Path | None = None) -> list[Path]:
    """Write the keys of all labs that have a written reasoning, and return the files."""
    for lab in _labs(root):
        path = _page(lab, root)
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(lab, root), encoding="utf-8", newline="\n")
    return [_page(lab, root) for lab in _labs(root)]


def stale(root: Path | None = None) -> list[Path]:
    """The keys that are not what their sources make."""
    made = {_page(lab, root): page(lab, root) for lab in _labs(root)}
    return [p for p, text in made.items() if not p.is_file() or p.read_text(encoding="utf-8") != text]


def _labs(root: Path | None) -> list[str]:
    return [lab for lab in build.labs(root) if _source(lab, root).is_file()]


def _source(lab: str, root: Path | None) -> Path:
    return (root or build.ROOT) / "solutions" / lab / "reasoning.md"


def _page(lab: str, root: Path | None) -> Path:
    return (root or build.ROOT) / "docs" / "answers" / f"{lab}.md"


# ---- a task


def _task(spec: Spec, task: Task, cell: Cell, why: str) -> Iterator[str]:
    points = score.task_points(spec, task.name) + score.manual_points(spec, task.name)
    worth = f" · {points:.3g} points" if points else ""
    yield f"## {task.title}"
    yield f"`{task.name}` · {task.kind} · {task.help}{worth}"
    if isinstance(task, NumberTask):
        yield _number(task, cell)
    elif isinstance(task, ExplainTask):
        yield _explanation(task, cell)
    else:
        yield _code(task, cell)
    yield why
    yield from _judged(task)


def _number(task: NumberTask, cell: Cell) -> str:
    text = cell.text.answer[0].text.partition("=")[2].strip()
    symbols = kernel_task.case_symbols(task.problem, task.case) if task.problem and task.case else task.symbols
    value = float(expression.evaluate(text, symbols))
    given = ", ".join(f"{name} = {number}" for name, number in task.symbols.items())
    by = f" with {given}" if given else f", of the rung `{task.rung}`" if task.rung else ""
    within = f", within {100 * task.tolerance:g} %" if task.tolerance else ""
    return f"**Answer: `{text}`**, that is {value:.10g}. Expected is `{task.formula}`{by}{within}."


def _explanation(task: ExplainTask, cell: Cell) -> str:
    model = cell.text.solved.strip()
    quoted = textwrap.indent(model, "> ", lambda line: True)
    rubric = "\n".join(f"- {line}" for line in task.rubric)
    return (
        f"**Model answer** ({len(model.split())} of at most {task.words} words):\n\n{quoted}\n\n**Rubric**\n\n{rubric}"
    )


def _code(task: Task, cell: Cell) -> str:
    language = "cpp" if task.magic == "cuda" else "python"
    if cell.text.answer:
        return f"**Answer:**\n\n```{language}\n{_excerpt(cell.text.answer)}\n```"
    old, new = (text.rstrip().splitlines() for text in (cell.text.student, cell.text.solved))
    changed = "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[2:])
    return f"**Answer:** what changes in the text that students are given.\n\n```diff\n{changed}\n```"


def _excerpt(answer: Sequence[build.Line]) -> str:
    """An answer's lines, with a mark where given ones stand between them."""
    lines = [answer[0].text]
    for before, line in pairwise(answer):
        lines += ["…", line.text] if line.number > before.number + 1 else [line.text]
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip() and line != "…"]
    return "\n".join(line if line == "…" else line[min(indents) :] for line in lines)


def _judged(task: Task) -> Iterator[str]:
    """What the judge holds an answer to besides its values."""
    lines = []
    if isinstance(task, KernelTask):
        for by in task.counters:
            bound = "at most" if by.at_most else "at least"
            lines.append(f"- `counters.{by.name}`: `{by.value}` {bound} `{by.limit}`; else *{by.says}*")
        if task.target:
            ends = f"from `{task.target.base}` to `{task.target.target}`"
            lines.append(f"- `target`: `{task.target.value}`, {ends}; else *{task.target.says}*")
    if isinstance(task, KernelTask | PythonTask) and (hidden := [case.name for case in task.cases if case.hidden]):
        lines.append(f"- hidden cases: {'; '.join(hidden)}")
    if lines:
        yield "\n".join(lines)


# ---- the verdicts


def _recorded(asked: re.Match[str]) -> str:
    """The table of a suite's claims, or of those that hold one of the texts that are asked for."""
    suite, wanted = asked[1], [text.strip() for text in asked[2].split("|")[1:]]
    (record, *_) = recorded.load(suite)
    make = {codesize.SUITE: codesize.verdicts, training.SUITE: training_results.verdicts}.get(suite, claims.verdicts)
    found: list[Verdict] = [v for v in make(record) if not wanted or any(text in v.claim for text in wanted)]
    rows = [f"| {_cell(v.claim)} | {_cell(v.source)} | {_cell(v.measured)} |" for v in found]
    head = ["| claim | source | what the record says |", "| --- | --- | --- |"]
    return "\n".join([f"Record `{suite}`, {tables.origin(record)}:\n", *head, *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
