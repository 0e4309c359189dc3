"""Compiled code kept between processes, in a directory that only its user can write.

A file is used only if this user owns it, nobody else may write it, and its contents match the digest at its
head: the loader would crash on a damaged object. Every failure means "compile again", never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

_MAGIC = b"convladder object 1\n"
_DIGEST_BYTES = 32

#: Files beyond this number are dropped, the oldest first.
MOST_FILES = 2000


def directory() -> Path | None:
    """Where objects are kept: below $XDG_CACHE_HOME, or the user's cache folder; None if there is none."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "convladder"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) / "convladder" / "cache" if local else None
    home = os.environ.get("HOME")
    return Path(home) / ".cache" / "convladder" if home and os.path.isabs(home) else None


def read(key: str) -> bytes | None:
    """The object kept under a key, if it can be trusted."""
    folder = directory()
    if folder is None:
        return None
    try:
        with open(folder / f"{key}.o", "rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                return None
            content = file.read()
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_BYTES
    body = content[head:]
    if content[:head] != _MAGIC + hashlib.sha256(body).digest():
        return None
    return body


def write(key: str, body: bytes) -> bool:
    """Keep an object. Returns whether that was possible."""
    folder = directory()
    if folder is None:
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder.stat()):
            return False
        handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(name, folder / f"{key}.o")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        return False
    _trim(folder)
    return True


def _is_private(status: os.stat_result) -> bool:
    """Owned by this user and writable by nobody else."""
    if sys.platform == "win32":
        return True  # the folder stands in the user's own profile
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _trim(folder: Path) -> None:
    with contextlib.suppress(OSError):
        files = list(folder.glob("*.o"))
        if len(files) > MOST_FILES:
            for file in sorted(files, key=lambda f: f.stat().st_mtime)[: len(files) - MOST_FILES * 3 // 4]:
                file.unlink(missing_ok=True)
