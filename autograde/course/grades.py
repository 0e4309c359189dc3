"""The grades of a class, the files that hold them and the names in them: what graders and pages share."""

from __future__ import annotations

import hashlib
import math
import os
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...kernels.errors import ConvladderError
from ..judge.record import SubmissionRecord


class GradingError(ConvladderError):
    """The class cannot be graded: no submissions, or a folder that cannot be read or written."""


@dataclass(frozen=True)
class Change:
    """A grade that the same notebook had already been given, and that changes. `checks`: those that decide it."""

    before: SubmissionRecord
    after: SubmissionRecord
    checks: tuple[str, ...]

    @classmethod
    def between(cls, before: SubmissionRecord, after: SubmissionRecord) -> Change | None:
        """None where the notebook is another one, had no grade yet, or keeps its points."""
        if before.sha256 != after.sha256 or "unfinished" in before.environment:
            return None
        old = {c.check: (c.score, c.max) for c in before.checks}
        new = {c.check: (c.score, c.max) for c in after.checks}
        differ = tuple(name for name in dict.fromkeys([*old, *new]) if not _alike(old.get(name), new.get(name)))
        late = not math.isclose(before.penalty, after.penalty, abs_tol=1e-9)
        return cls(before, after, differ) if differ or late else None


def _alike(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    """Whether a check gives the same points."""
    return (
        one is not None
        and other is not None
        and all(math.isclose(a, b, abs_tol=1e-9) for a, b in zip(one, other, strict=True))
    )


@dataclass
class Grades:
    """A graded class, in the order of the students' names.

    kept     how many records were still valid and were not judged again
    ignored  files beside the submissions that are none
    strays   students with a record but without a submission
    missing  students of the roster who handed nothing in; they have a record that says so
    unlisted submissions of people who are not on the roster; they are graded all the same
    marked   submissions that the learning platform marked as late, by its file names
    changes  grades of the same notebook as before that are others now, or would be
    held     whether these are only proposed: `records` are still those in force
    """

    lab: str
    records: list[SubmissionRecord]
    kept: int = 0
    ignored: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    held: bool = False

    @property
    def unfinished(self) -> list[SubmissionRecord]:
        """Records of submissions whose judging broke down or timing was inconclusive; the next run judges them anew."""
        return [r for r in self.records if "unfinished" in r.environment]


def display_name(raw: str) -> str:
    """A student's name as it may be shown: no control, formatting or undecodable characters, never empty.

    A changed name gets a digest of the original, so that two students never become one. Letters with marks are taken
    in their composed form (NFC): macOS writes the other one into archives, and it is the same person.
    """
    raw = unicodedata.normalize("NFC", raw)
    shown = "".join("?" if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in raw).strip()
    if shown == raw:
        return raw
    return f"{shown} #{hashlib.sha256(os.fsencode(raw)).hexdigest()[:8]}"


def file_stem(student: str) -> str:
    """A file name for a student: the name itself where it is harmless, else a slug and a digest after `~`."""
    if re.fullmatch(r"[A-Za-z0-9_@+][A-Za-z0-9._@+-]{0,99}", student):
        return student
    slug = re.sub(r"[^A-Za-z0-9_@+-]+", "_", student).strip("_-")[:60]
    return f"{slug}~{hashlib.sha256(student.encode()).hexdigest()[:16]}"


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file that is there in full or not at all, whatever interrupts."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise GradingError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        with suppress(OSError):  # it is not there, or the folder cannot be written: the error above says so
            draft.unlink()
