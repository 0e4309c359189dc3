"""The engine's address space: every array has a window of its own, so a stray pointer is found exactly.

Array number n begins at n * 2**40. Whatever lies nearer to that than to the next window's begin belongs to
array n, so that x[-1] is known to be meant for x. Window 0 belongs to the null pointer.
"""

from __future__ import annotations

from .ptx import Instruction

WINDOW_BITS = 40
HALF_WINDOW = 1 << (WINDOW_BITS - 1)

#: The windows of a thread's own memory and of a block's shared memory, far above every array's.
LOCAL_WINDOW = 1 << 20
SHARED_WINDOW = (1 << 20) + 1


def window(number: int) -> int:
    """The address of an array's first byte."""
    return number << WINDOW_BITS


def split(address: int) -> tuple[int, int]:
    """(array number, byte offset, maybe negative) of a 64-bit address."""
    number = ((address + HALF_WINDOW) & (2**64 - 1)) >> WINDOW_BITS
    offset = address - (number << WINDOW_BITS)
    return (number, offset) if offset < HALF_WINDOW else (0, offset - 2**64)


def window_change(cvta: Instruction) -> int:
    """What a cvta adds: addresses of shared memory alone begin at 0, generic ones in its window."""
    if not cvta.has("shared"):
        return 0
    return -window(SHARED_WINDOW) if cvta.has("to") else window(SHARED_WINDOW)
