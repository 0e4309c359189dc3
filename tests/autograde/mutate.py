"""Small changes to the solutions, and the check that finds each: `mutants.json`, which test_mutants.py holds.

    python tests/autograde/mutate.py [LAB…]

judges changes of every kernel, generator and Python task of these labs (all of them by default), and writes what came
of them anew. A change of which the compiler makes the same PTX is none, and left out. Any other that no check finds is
a gap in the lab's cases: it is listed with `fails` empty, and the test fails until a case closes it.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from convladder.autograde.course import build
from convladder.autograde.judge import check, open_worker, spec
from convladder.autograde.judge.sandbox import SandboxPolicy
from convladder.autograde.judge.spec import KernelTask, PythonTask, Task
from convladder.kernels import plan
from convladder.kernels.compiler import compile_ptx
from convladder.kernels.methods import ladder_source

RECORD = Path(__file__).parent / "mutants.json"
#: Changes of one task.
MOST = 8

#: What is found in a line of CUDA C++, and what takes its place.
CHANGES = [
    (r"(?<![<\w])< (?=\w)", "<= "),
    (r"<= ", "< "),
    (r">= ", "> "),
    (r"&&", "||"),
    (r"\|\|", "&&"),
    (r"\+= ", "= "),
    (r"(?<=[\w)\]]) \+ (?=[\w(])", " - "),
    (r"(?<=[\w)\]]) - (?=[\w(])", " + "),
    (r"(?<=[\w)\]]) \* (?=[\w(])", " + "),
    (r"(?<=[\w)\]]) / (?=[\w(])", " % "),
    (r"threadIdx\.x", "threadIdx.y"),
    (r"blockIdx\.y", "blockIdx.z"),
    (r"blockIdx\.x \* blockDim\.x", "blockIdx.y * blockDim.x"),
    (r"__syncthreads\(\);", ""),
    (r"= 0\.0f;", "= 1.0f;"),
    (r"\bmax\(", "min("),
    (r"cdiv\(([^,()]+), ([^,()]+)\)", r"max(1, (\1)//(\2))"),
]

#: The same of a line of Python, the lines that it writes among them.
CHANGES_OF_PYTHON = [
    (r"<= ", "< "),
    (r"(?<= )< ", "<= "),
    (r">= ", "> "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" != 0", " > 0"),
    (r"\band\b", "or"),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " + "),
    (r" // ", " % "),
    (r" / ", " * "),
    (r" \+= ", " -= "),
    (r"\brange\((\w+)\)", r"range(1, \1)"),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
    (r"\bdil\b", "1"),
    (r":\.\de\}", ":.5e}"),
    (r"\}f ", "} "),
    (r" = 0\.0f;", " = 1.0f;"),
    (r"(?<=\[)(\w+), (\w+)(?=\]|,)", r"\2, \1"),
]


def changes(source: str, task: Task, answer: set[str]) -> Iterator[tuple[int, str, str]]:
    """(line, its text, the changed text), for every place of a solution where a change applies."""
    if task.magic == "cuda":
        yield from mutants(source)
        return
    for number, line in enumerate(source.split("\n"), 1):
        if not answer or line in answer:
            for pattern, new in CHANGES_OF_PYTHON:
                for found in re.finditer(pattern, line):
                    yield number, line, line[: found.start()] + found.expand(new) + line[found.end() :]


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, its text, the changed text), for every place of a kernel where a change applies."""
    commented = False
    for number, line in enumerate(source.split("\n"), 1):
        code = line.split("//")[0] if "//@" not in line else line if "//@ launch" in line else ""
        commented = commented or "/*" in code
        if not commented:
            for pattern, new in CHANGES:
                for found in re.finditer(pattern, code):
                    changed = code[: found.start()] + found.expand(new) + code[found.end() :] + line[len(code) :]
                    yield number, line, changed
        commented = commented and "*/" not in code


def tasks(lab: str) -> Iterator[Task]:
    """The tasks whose solutions are changed."""
    yield from (task for task in spec.load(lab).tasks if isinstance(task, KernelTask | PythonTask))


@cache
def cells(lab: str) -> dict[str, build.Cell]:
    return {cell.task: cell for cell in build.cells(lab) if cell.role == "task"}


def solution(lab: str, task: Task) -> str:
    """A task's solved cell without its magic line; of a rung the whole text, as it lies in the ladder."""
    rung = task.ladder if isinstance(task, KernelTask) else None
    return ladder_source(rung) if rung else cells(lab)[task.name].text.solved.partition("\n")[2]


def chosen(lab: str, task: Task) -> list[tuple[int, str, str]]:
    """Some of a task's mutants: the same ones each time, of different lines first."""
    answer = {line.text for line in cells(lab)[task.name].text.answer}
    found = list(changes(solution(lab, task), task, answer))
    random.Random(task.name).shuffle(found)
    seen: set[int] = set()
    first = [m for m in found if not (m[0] in seen or seen.add(m[0]))]  # type: ignore[func-returns-value]
    return [*first, *(m for m in found if m not in first)][:MOST]


def applied(lab: str, task: Task, line: int, old: str, new: str) -> str:
    """The task's solution with a line changed. Raises ValueError where the solution has another line there."""
    lines = solution(lab, task).split("\n")
    if lines[line - 1] != old:
        raise ValueError(f"line {line} of {task.name} is {lines[line - 1]!r} now: run tests/autograde/mutate.py")
    lines[line - 1] = new
    return "\n".join(lines)


def same_code(text: str, changed: str) -> bool:
    """Whether the compiler makes the same of a mutant as of the solution."""
    plans = [plan.parse(made) for made in (text, changed)]
    if plans[0] != plans[1]:
        return False
    one, other = (compile_ptx(made, options=p.options()) for made, p in zip((text, changed), plans, strict=True))
    return one == other


def main(labs: list[str]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with open_worker(SandboxPolicy("none", seconds=10)) as worker:
        for lab in labs or spec.names():
            loaded = spec.load(lab)
            record[lab] = []
            for task in tasks(lab):
                for line, old, new in chosen(lab, task):
                    changed = applied(lab, task, line, old, new)
                    found = check.check_task(loaded, task, changed, worker, secret=b"mutants")
                    fails = [c.check for c in found if c.passed is False]
                    if not fails and task.magic == "cuda" and same_code(solution(lab, task), changed):
                        continue
                    record[lab].append({"task": task.name, "line": line, "old": old, "new": new, "fails": fails})
                    print(lab, task.name, line, new.strip(), "->", fails, flush=True)
    record = {lab: found for lab, found in sorted(record.items()) if found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
