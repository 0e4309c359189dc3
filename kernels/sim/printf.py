"""printf from a thread: what the format string makes of the arguments that the compiler left in local memory."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

#: What a launch keeps of its threads' output: GPUs keep a buffer of a megabyte.
MOST_CALLS, MOST_CHARACTERS = 10_000, 1 << 20

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<length>hh|h|ll|l|z|j|t|q|L)?"
    r"(?P<kind>[diouxXcsfFeEgGaAp%])"
)

#: Bytes at an address of the kernel's memory; fewer where it ends, b"" where there is none.
Memory = Callable[[int, int], bytes]


@dataclass
class Output:
    """What the threads of a launch have printed, in the order of execution."""

    parts: list[str] = field(default_factory=list)
    characters: int = 0
    lost: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.parts) >= MOST_CALLS or self.characters >= MOST_CHARACTERS

    def call(self, memory: Memory, format_at: int, arguments_at: int) -> int:
        """One thread's call: keep its text while there is room. Returns the number of arguments, as CUDA's does."""
        if self.is_full:
            self.lost += 1
            return -1
        form = string_at(memory, format_at)
        arguments = _Arguments(memory, arguments_at)
        text = _SPECIFIER.sub(lambda m: _one(m, arguments, memory), form)
        self.parts.append(text)
        self.characters += len(text)
        return arguments.count

    def text(self) -> str:
        """Everything kept, and how much was not."""
        note = f"[{self.lost} more calls of printf are not shown]\n" if self.lost else ""
        return "".join(self.parts) + note


def string_at(memory: Memory, address: int) -> str:
    """The text at an address up to its NUL, 4096 bytes at most."""
    return memory(address, 4096).split(b"\0")[0].decode(errors="replace")


class _Arguments:
    """They lie one after the other, each aligned to its size."""

    def __init__(self, memory: Memory, at: int):
        self.memory, self.at, self.count = memory, at, 0

    def take(self, code: str) -> int | float:
        """The next argument, as a `struct` code."""
        size = struct.calcsize(code)
        self.at += -self.at % size
        raw = self.memory(self.at, size)
        self.at += size
        self.count += 1
        return struct.unpack(f"<{code}", raw.ljust(size, b"\0"))[0]


def _one(match: re.Match[str], arguments: _Arguments, memory: Memory) -> str:
    kind = match["kind"]
    if kind == "%":
        return "%"
    width, precision = (arguments.take("i") if w == "*" else w for w in (match["width"], match["precision"]))
    shape = f"%{match['flags']}{width}" + ("" if precision is None else f".{precision}")
    if kind in "fFeEgG":
        return f"{shape}{kind}" % arguments.take("d")
    if kind in "aA":
        text = float(arguments.take("d")).hex()
        return f"{shape}s" % (text.upper() if kind == "A" else text)
    if kind == "p":
        return f"{shape}s" % hex(int(arguments.take("Q")))
    if kind == "s":
        return f"{shape}s" % string_at(memory, int(arguments.take("Q")))
    if kind == "c":
        return f"{shape}s" % chr(int(arguments.take("i")) & 0xFF)
    return _integer(shape, kind, match["length"] or "", arguments)


def _integer(shape: str, kind: str, length: str, arguments: _Arguments) -> str:
    bits = {"hh": 8, "h": 16, "": 32, "L": 32}.get(length, 64)
    value = int(arguments.take("Q" if bits == 64 else "I")) & (1 << bits) - 1
    if kind in "di":
        return f"{shape}d" % (value - (1 << bits) if value >> (bits - 1) else value)
    text = f"{shape}{'d' if kind == 'u' else kind}" % value
    return text.replace("0o", "0", 1) if kind == "o" else text
