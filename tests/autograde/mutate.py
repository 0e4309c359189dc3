"""Small changes to the solutions' kernels, and the check that finds each: `mutants.json`, which test_mutants.py holds.

    python tests/autograde/mutate.py [LAB…]

judges changes of every kernel task of these labs (all of them by default) that has a solution on the ladder, and writes
what came of them anew. A change of which the compiler makes the same PTX is none, and left out. Any other that no check
finds is a gap in the lab's cases: it is listed with `fails` empty, and the test fails until a case closes it.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from convladder.autograde.judge import check, open_worker, spec
from convladder.autograde.judge.sandbox import SandboxPolicy
from convladder.autograde.judge.spec import KernelTask
from convladder.kernels import plan
from convladder.kernels.compiler import compile_ptx
from convladder.kernels.methods import ladder_source

RECORD = Path(__file__).parent / "mutants.json"
#: Changes of one task.
MOST = 8

#: What is found in a line of code, and what takes its place.
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


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, its text, the changed text), for every place where a change applies."""
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


def kernels(lab: str) -> Iterator[KernelTask]:
    for task in spec.load(lab).tasks:
        if isinstance(task, KernelTask) and task.ladder is not None:
            yield task


def chosen(task: KernelTask) -> list[tuple[int, str, str]]:
    """Some of a task's mutants: the same ones each time, of different lines first."""
    assert task.ladder is not None
    found = list(mutants(ladder_source(task.ladder)))
    random.Random(task.name).shuffle(found)
    seen: set[int] = set()
    first = [m for m in found if not (m[0] in seen or seen.add(m[0]))]  # type: ignore[func-returns-value]
    return [*first, *(m for m in found if m not in first)][:MOST]


def applied(task: KernelTask, line: int, old: str, new: str) -> str:
    """The task's solution with a line changed. Raises ValueError where the solution has another line there."""
    assert task.ladder is not None
    lines = ladder_source(task.ladder).split("\n")
    if lines[line - 1] != old:
        raise ValueError(f"line {line} of {task.ladder} is {lines[line - 1]!r} now: run tests/autograde/mutate.py")
    lines[line - 1] = new
    return "\n".join(lines)


def same_code(task: KernelTask, line: int, old: str, new: str) -> bool:
    """Whether the compiler makes the same of a mutant as of the solution."""
    assert task.ladder is not None
    texts = ladder_source(task.ladder), applied(task, line, old, new)
    plans = [plan.parse(text) for text in texts]
    if plans[0] != plans[1]:
        return False
    one, other = (compile_ptx(text, options=parsed.options()) for text, parsed in zip(texts, plans, strict=True))
    return one == other


def main(labs: list[str]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with open_worker(SandboxPolicy("none", seconds=10)) as worker:
        for lab in labs or spec.names():
            loaded = spec.load(lab)
            record[lab] = []
            for task in kernels(lab):
                for line, old, new in chosen(task):
                    found = check.check_task(loaded, task, applied(task, line, old, new), worker, secret=b"mutants")
                    fails = [c.check for c in found if c.passed is False]
                    if not fails and same_code(task, line, old, new):
                        continue
                    record[lab].append({"task": task.name, "line": line, "old": old, "new": new, "fails": fails})
                    print(lab, task.name, line, new.strip(), "->", fails, flush=True)
    record = {lab: found for lab, found in sorted(record.items()) if found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
