"""Begin a course: a folder with course.toml, a roster to fill in, the course's secret and its own hidden cases."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from ..judge import spec as specs
from . import hidden
from .course import CourseError, load

_COURSE = """\
# What this course decides; `convladder course check course.toml` reads it, `convladder grade LAB --course` uses it.
semester = "{semester}"
# roster = "roster.csv"        # once it is filled in: who is missing, and who is not of this class, is told then
timing = "counters"            # or "measured" (needs a GPU) or "off"
explain = true
hidden = "hidden"              # private: made from `secret`; never give either to students

# [lab.01_direct]
# deadline = 2026-10-20T23:59:00+02:00
# late = {{percent_a_day = 10, at_most = 50, grace_minutes = 15}}      # without it lateness costs nothing
# points = {{correctness = 70, counters = 15, timing = 15}}
# off = ["predict_reuse"]
# [lab.01_direct.extensions]
# ada = 2026-10-27T23:59:00+02:00
"""
_ROSTER = "student,name\n"


def begin(dest: Path, semester: str, specs_dir: Path | None = None) -> list[Path]:
    """Write the folder of a new course, and say what was written.

    DEST/secret is kept where it is there already: the same secret makes the same hidden cases.
    Raises CourseError where DEST has a course already, or cannot be written.
    """
    if '"' in semester or "\\" in semester or not semester.isprintable():
        raise CourseError(f"the semester {semester!r} has quotes, backslashes or control characters: leave them out")
    course = dest / "course.toml"
    if course.exists():
        raise CourseError(f"{course} is there already: choose another folder, or remove it to begin anew")
    written = []
    try:
        (dest / "hidden").mkdir(mode=0o700, parents=True, exist_ok=True)
        secret_file = dest / "secret"
        if not secret_file.exists():
            written.append(_private(secret_file, secrets.token_hex(32) + "\n"))
        secret = _secret(secret_file)
        for lab in specs.names(specs_dir):
            spec = specs.load(lab, specs_dir)
            if text := hidden.generate(spec, secret, specs_dir):
                written.append(_private(dest / "hidden" / f"{lab}.hidden.toml", text))
        if not (dest / "roster.csv").exists():
            (dest / "roster.csv").write_text(_ROSTER, encoding="utf-8")
            written.append(dest / "roster.csv")
        course.write_text(_COURSE.format(semester=semester), encoding="utf-8")
    except OSError as error:
        raise CourseError(f"{error.filename or dest} cannot be written: {error.strerror}") from None
    load(course)
    return [*written, course]


def _secret(path: Path) -> bytes:
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise CourseError(f"{path} is no secret: it must be 64 hexadecimal digits. Remove it, and one is drawn")
    return bytes.fromhex(text)


def _private(path: Path, text: str) -> Path:
    """Write a file that only its owner can read, from its first byte on."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text, encoding="utf-8")
    return path
