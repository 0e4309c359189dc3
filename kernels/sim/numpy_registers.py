"""What the lanes of a warp hold: their registers, and what they know of their place in the launch."""

from __future__ import annotations

import numpy as np

from .launch import WARP, Launch
from .ptx import Immediate, Name, NotPredicate, Operand, Register
from .types import ScalarType, bits_type

Lanes = np.ndarray
LANE = np.arange(WARP)


def bits(lanes: Lanes) -> int:
    """A mask with bit n for lane n."""
    return sum(1 << int(lane) for lane in np.flatnonzero(lanes))


class Registers:
    """A warp of a block; registers that were never written hold 0."""

    def __init__(self, launch: Launch, block: int, warp: int):
        self.launch = launch
        self.block = block
        self.first_thread = warp * WARP
        self.registers: dict[str, Lanes] = {}
        self.special = self._special_registers(warp)

    def _special_registers(self, warp: int) -> dict[str, Lanes]:
        threads = [self.launch.thread_index(self.first_thread + lane) for lane in range(WARP)]
        block = self.launch.block_index(self.block)
        values = {
            "%laneid": LANE,
            "%warpid": np.full(WARP, warp),
            "%nwarpid": np.full(WARP, self.launch.warps_per_block),
        }
        values["WARP_SZ"] = np.full(WARP, WARP)
        values |= {"%smid": LANE * 0, "%nsmid": LANE * 0 + 1, "%gridid": LANE * 0}  # one multiprocessor does it all
        masks = {"eq": 1 << LANE, "lt": (1 << LANE) - 1, "le": (2 << LANE) - 1}
        masks |= {"gt": ~masks["le"], "ge": ~masks["lt"]}
        values |= {f"%lanemask_{name}": mask for name, mask in masks.items()}
        for i, axis in enumerate("xyz"):
            values[f"%tid.{axis}"] = np.array([t[i] for t in threads])
            values[f"%ntid.{axis}"] = np.full(WARP, self.launch.block[i])
            values[f"%ctaid.{axis}"] = np.full(WARP, block[i])
            values[f"%nctaid.{axis}"] = np.full(WARP, self.launch.grid[i])
        return {name: v.astype(np.uint32) for name, v in values.items()}

    def predicate(self, name: str) -> Lanes:
        return self.registers.get(name, np.zeros(WARP, bool))

    def read(self, operand: Operand, kind: ScalarType) -> Lanes:
        """An operand's lanes as a type: the low bits of a wider register."""
        if isinstance(operand, NotPredicate):
            return ~self.predicate(operand.register.name)
        if isinstance(operand, Register):
            return self.read_register(operand.name, kind)
        if isinstance(operand, Immediate):
            return np.full(WARP, operand.as_type(kind))
        if isinstance(operand, Name):
            if operand.name in self.special:
                return self.special[operand.name].astype(kind.dtype)
            address = self.launch.program.address_of(self.launch.entry, operand.name)
            if address is not None:
                return np.full(WARP, (address + operand.offset) & (2**kind.bits - 1), bits_type(kind.bits).dtype)
        raise KeyError(operand)

    def read_register(self, name: str, kind: ScalarType) -> Lanes:
        if kind.kind == "p":
            return self.predicate(name)
        value: Lanes | None
        if name in self.special:
            value = self.special[name]
        else:
            declared = self.launch.entry.function.register_type(name)
            value = self.registers.get(name)
            if value is None:
                value = np.zeros(WARP, bits_type(declared.bits).dtype)
        return value.astype(bits_type(kind.bits).dtype).view(kind.dtype)

    def write(self, operand: Operand, value: Lanes, active: Lanes) -> None:
        """Write the active lanes; a narrower value is extended by its own sign."""
        if isinstance(operand, Register) and operand.name == "_":
            return
        assert isinstance(operand, Register)
        kind = self.launch.entry.function.register_type(operand.name)
        if kind.kind == "p":
            new = value.astype(bool)
        else:
            if value.dtype.kind == "f":
                value = value.view(f"u{value.dtype.itemsize}")
            new = value.astype(bits_type(kind.bits).dtype)
        old = self.registers.get(operand.name)
        self.registers[operand.name] = np.where(active, new, np.zeros_like(new) if old is None else old)
