"""Grade a generated class while graders and their processes are killed at random, and prove that nothing was lost.

    python tests/autograde/soak.py --count 500 [--seed 1] [--workers 2] [--no-sandbox]

The class is graded once undisturbed and once disturbed, with the same secret. Then every student must have exactly one
record, no student may have been judged to the end twice, and each record must be that of the undisturbed run but for
times. The submissions are lab 1's, each of a random choice of right, wrong and missing answers and made a text of its
own, some of them damaged, some of them exploits.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LAB = "01_direct"
EXPLOITS = Path(__file__).parent / "exploits"
#: Exploits that are over soon.
HOSTILE = ("exit", "crash", "forge_a_verdict", "output_bomb", "kill_everything", "fork_bomb")


def generate(count: int, folder: Path, rng: random.Random) -> None:
    """Write FOLDER/STUDENT/LAB.ipynb for `count` students."""
    from convladder.autograde.course import build, sample

    solved = build.solved_notebook(LAB)
    released = {cell.id: cell for cell in build.build_lab(LAB).cells}
    wrong: dict[str, list[str]] = {}
    for mistake in sample.mistakes(LAB):
        if "endless" not in mistake.path.name:  # it takes seconds, and there are enough others
            wrong.setdefault(mistake.task, []).append(mistake.text)
    for name in HOSTILE:
        text = (EXPLOITS / f"{name}.py").read_text()
        wrong.setdefault("source_index", []).append("\n".join(x for x in text.split("\n") if not x.startswith("#!")))
    text = build.serialise(solved)
    for number in range(count):
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            source = "".join(cell["source"])
            name = cell["id"]
            magic, _, answer = source.partition("\n")
            if not magic.startswith(("%%cuda", "%%answer")):
                continue
            kind = rng.random()
            if kind < 0.3 and name in wrong:
                answer = rng.choice(wrong[name])
            elif kind < 0.45:
                answer = released[name].source.partition("\n")[2]
            elif kind < 0.65:
                magic, answer = "#", ""
            mark = "//" if magic.startswith("%%cuda") else "#"
            cell["source"] = f"{magic}\n{answer}\n{mark} {number}\n"
        path = folder / f"student{number:04d}" / f"{LAB}.ipynb"
        path.parent.mkdir(parents=True)
        written = json.dumps(notebook)
        if number % 97 == 5:
            written = written[: len(written) // 2]
        path.write_text("" if number % 97 == 6 else written)


_GRADE = """
import sys
from pathlib import Path
from convladder.autograde.course import grade as g
folder, out, log = map(Path, sys.argv[1:4])
def watch(done, total, record, kept):
    if not kept and "unfinished" not in record.environment:
        with log.open("a") as file:
            file.write(record.student + "\\n")
if __name__ == "__main__":
    grades = g.grade_class(sys.argv[6], folder, out, g.Settings(sandbox=sys.argv[4], workers=int(sys.argv[5])), watch)
    sys.exit(1 if grades.unfinished else 0)
"""


def command(folder: Path, out: Path, log: Path, sandbox: str, workers: int) -> list[str]:
    script = out.parent / "grade_it.py"
    script.write_text(_GRADE)
    return [sys.executable, str(script), str(folder), str(out), str(log), sandbox, str(workers), LAB]


def disturbed(run: list[str], out: Path, rng: random.Random) -> dict[str, int]:
    """Grade until all is graded; how often what was killed."""
    killed = {"grader": 0, "process": 0, "runs": 0}
    while True:
        killed["runs"] += 1
        with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True) as grader:
            # However slow the machine is, each run comes some way, so that the last one comes to the end.
            seen = graded(out)
            until = seen + rng.randint(1, max(2, count_of(run) // 10))
            while grader.poll() is None and graded(out) < until:
                time.sleep(rng.uniform(0.2, 1.5))
                children = [pid for pid in descendants(grader.pid) if pid != grader.pid]
                if children and rng.random() < (0.5 if graded(out) > seen else 0.05):
                    kill(rng.choice(children))
                    killed["process"] += 1
                    seen = graded(out)
            if grader.poll() is None and graded(out) < count_of(run):
                kill(grader.pid)
                killed["grader"] += 1
            said = grader.stderr.read().decode() if grader.stderr else ""
            code = grader.wait()
        if code == 0:
            return killed
        if code not in (1, -signal.SIGKILL):
            raise AssertionError(f"the grader ended with {code}: {said[-2000:]}")
        if killed["runs"] > 200:
            raise AssertionError("the class does not come to an end")


def graded(out: Path) -> int:
    return len(list((out / "records").glob("*.json")))


def count_of(run: list[str]) -> int:
    return len(list(Path(run[2]).iterdir()))


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = dict(map(int, line.split()) for line in listed.splitlines())
    found = {pid}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def grades(out: Path) -> dict[str, dict[str, object]]:
    """The records by student, without what a run's time leaves in them."""
    found = {}
    for path in sorted((out / "records").glob("*.json")):
        body = json.loads(path.read_text())
        assert "unfinished" not in body["environment"], path
        for timed in ("seconds", "date"):
            del body[timed]
        body["environment"].pop("kept", None)
        assert body["student"] not in found, path
        found[body["student"]] = body
    return found


def prove(first: Path, second: Path, log: Path, count: int) -> None:
    """Raise AssertionError unless every student has one grade, that of the undisturbed run."""
    wanted, found = grades(first), grades(second)
    assert len(wanted) == len(found) == count, (len(wanted), len(found), count)
    differ = [student for student in wanted if wanted[student] != found.get(student)]
    assert not differ, f"{len(differ)} records differ from the undisturbed run's: " + "; ".join(
        f"{student}: {json.dumps(wanted[student])} became {json.dumps(found.get(student))}" for student in differ[:2]
    )
    with (second / "grades.csv").open(newline="") as file:
        rows = Counter(row["student"] for row in csv.DictReader(file))
    assert rows == Counter(dict.fromkeys(wanted, 1)), "a student has no row in grades.csv, or several"
    twice = [s for s, n in Counter(log.read_text().split()).items() if n > 1]
    assert not twice, f"judged to the end twice: {twice[:5]}"
    assert not list(second.rglob("*.tmp")), "drafts were left behind"


def soak(count: int, seed: int, workers: int, sandbox: str) -> str:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="convladder-soak-") as top:
        folder, first, second = (Path(top, name) for name in ("in", "undisturbed", "disturbed"))
        generate(count, folder, rng)
        started = time.monotonic()
        for _ in range(2):  # a submission that kills its own judge is judged once more
            subprocess.run(command(folder, first, Path(top, "first.log"), sandbox, workers), check=True)
        quiet = time.monotonic() - started
        print(f"{count} submissions graded undisturbed in {quiet:.0f} s", flush=True)
        second.mkdir()
        shutil.copy(first / "grading.json", second / "grading.json")
        log = Path(top, "second.log")
        started = time.monotonic()
        killed = disturbed(command(folder, second, log, sandbox, workers), second, rng)
        prove(first, second, log, count)
    spent = time.monotonic() - started
    return (
        f"{count} submissions: {quiet:.0f} s undisturbed; {spent:.0f} s with {killed['runs']} runs, {killed['grader']} "
        f"graders and {killed['process']} of their processes killed. Every submission has exactly one grade, equal to "
        "that of the undisturbed run"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-sandbox", action="store_true")
    given = parser.parse_args()
    print(soak(given.count, given.seed, given.workers, "none" if given.no_sandbox else "bwrap"))
