"""What may watch the plain executor: it is told of every instruction before a warp executes it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .launch import Launch
from .ptx import Address, Instruction, Operand
from .types import ScalarType


class Warp(Protocol):
    """What an observer may ask of a warp."""

    launch: Launch
    block: int  # linear index
    first_thread: int  # linear index in the block

    def read(self, operand: Operand, kind: ScalarType) -> np.ndarray:
        """The operand's 32 lanes."""

    def addresses(self, instruction: Instruction, address: Address) -> list[int]:
        """Where each lane points to."""


class Observer(Protocol):
    """`only_block`: the linear index of the one block to run; None for all of them."""

    only_block: int | None

    def executes(self, warp: Warp, pc: int, instruction: Instruction, active: np.ndarray) -> None:
        """A warp is about to execute an instruction; registers and memory are still as before."""


def first_byte(array: np.ndarray) -> int:
    """The address of an array in this process: the same for every view of it, in every launch."""
    return int(array.__array_interface__["data"][0])
