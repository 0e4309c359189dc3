"""A loaded PTX text: its entries, and the module-scope variables that launches read and write."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..errors import UnsupportedPTX
from ..result import Fault
from . import cfg, ptx
from .addresses import LOCAL_WINDOW, window
from .async_copies import STORE_OPCODE, split_copies
from .barriers import is_barrier, is_warp_barrier, number_of, split_votes
from .calls import inline_calls
from .isa import STOPS, WARP_FUNCTIONS, check_supported
from .ptx import Address, Instruction, Name, ParamSlot, Register, unsupported
from .uniformity import Uniformity, analyse
from .updates import Manner, manner


@dataclass
class Symbol:
    """A module-scope variable: `data` is its memory, kept between launches."""

    name: str
    space: str
    size: int
    data: np.ndarray


#: Floating-point operations in one execution of an instruction on a float type.
FLOPS = {"fma": 2, "mad": 2} | dict.fromkeys(
    ("add", "sub", "mul", "div", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), 1
)

#: A launch pays for its work: 1 for each instruction that a warp issues, and this much more for a load or store,
#: which is that much slower to simulate.
ACCESS_PRICE = 16

#: And this much more for a barrier.
BARRIER_PRICE = 64

#: Starting a warp costs as much as this many instructions, and clearing its local memory this much for a byte
#: of each thread.
WARP_PRICE, LOCAL_BYTE_PRICE = 64, 2

#: CUDA's limit of a thread's local memory, and ours of a module's variables.
LOCAL_BYTES, VARIABLE_BYTES = 512 << 10, 1 << 30

#: Dynamic shared memory begins at a multiple of this.
DYNAMIC_ALIGN = 16


@dataclass(frozen=True)
class Work:
    """Instructions; floating-point operations in a lane; price: what one execution costs of a launch's budget."""

    instructions: int
    fmas: int
    flops: int
    price: int

    @classmethod
    def of(cls, code: list[Instruction]) -> Work:
        flops = [FLOPS.get(i.opcode, 0) if any(t.is_float for t in i.types) else 0 for i in code]
        price = len(code) + ACCESS_PRICE * sum(map(is_access, code))
        price += BARRIER_PRICE * sum(is_barrier(i) or is_warp_barrier(i) for i in code)
        return cls(len(code), flops.count(2), sum(flops), price)


def is_access(instruction: Instruction) -> bool:
    """Whether an instruction loads, stores or updates memory; parameters are none."""
    return instruction.opcode in ("ld", "st", "atom", "red", STORE_OPCODE) and not instruction.has("param")


def _is_site(ins: Instruction) -> bool:
    return is_access(ins) or is_barrier(ins) or is_warp_barrier(ins) or ins.opcode in WARP_FUNCTIONS | STOPS


class Place(NamedTuple):
    """Where a __shared__ array stands; a dynamic one ends where the launch says."""

    begin: int
    end: int | None


@dataclass(frozen=True)
class SharedLayout:
    """places of the arrays by their names in PTX; static_bytes: where dynamic shared memory begins."""

    places: dict[str, Place]
    static_bytes: int


@dataclass(eq=False)  # one of its kind: what is found out about it is kept by it
class Entry:
    """A kernel: its parameters, and its code with every call inlined."""

    name: str
    params: tuple[ParamSlot, ...]
    module: ptx.Module = field(repr=False)

    @cached_property
    def function(self) -> ptx.Function:
        """The entry's code, calls inlined. Raises UnsupportedPTX at what the engine does not execute."""
        function = inline_calls(self.module, self.name)
        check_supported(function)
        self._check_parameters(function)
        return split_votes(split_copies(_ending_at_stops(function)))

    def _check_parameters(self, function: ptx.Function) -> None:
        """A struct that is passed by value is copied to local memory, or read in place if it is large."""
        for ins in function.code:
            if any(isinstance(o, Name) and o.name in self.param_offsets for o in ins.operands):
                what = "an index into a struct of this size that is passed by value"
                raise unsupported(
                    ins, f"the engine does not execute {what}: pass a pointer, or put it into __constant__"
                )

    @cached_property
    def graph(self) -> cfg.Graph:
        return cfg.build(self.function)

    @cached_property
    def sites(self) -> list[int]:
        """The pcs of all that reports can be about: accesses, barriers, meetings of a warp's lanes, and stops.

        Compiled code knows such an instruction by its place in this list.
        """
        return [pc for pc, ins in enumerate(self.function.code) if _is_site(ins)]

    def barrier_at(self, pc: int) -> int:
        """The pc of the first copy of a barrier: unrolled loops hold several."""
        code = self.function.code
        this = code[pc]
        alike = (at for at in self.sites if is_barrier(code[at]) and this.line and code[at].line == this.line)
        return next((at for at in alike if number_of(code[at]) == number_of(this)), pc)

    @cached_property
    def has_copies(self) -> bool:
        """Whether threads copy asynchronously."""
        return any(ins.opcode == STORE_OPCODE for ins in self.function.code)

    @cached_property
    def has_barriers(self) -> bool:
        return any(is_barrier(ins) for ins in self.function.code)

    @cached_property
    def read_registers(self) -> frozenset[str]:
        """The registers that any instruction reads."""
        return frozenset(r for ins in self.function.code for r in cfg.sources(ins))

    @cached_property
    def uniformity(self) -> Uniformity:
        return analyse(self.graph)

    @cached_property
    def updates(self) -> dict[int, Manner]:
        """How each atomic update is done, by its pc."""
        updates = ((pc, ins) for pc, ins in enumerate(self.function.code) if ins.opcode in ("atom", "red"))
        return {pc: manner(ins, self.uses_result(ins), self.uniformity.varying) for pc, ins in updates}

    @cached_property
    def guesses(self) -> frozenset[int]:
        """The pcs of loads at whose very address the kernel later compares and swaps.

        Such a value is a guess that atomicCAS checks, as in every loop around it: the load does not race with updates.
        """
        code = self.function.code
        swaps = [ins for ins in code if ins.opcode == "atom" and ins.has("cas")]
        places = {(self._place(ins), ins.type.size) for ins in swaps}
        compared = {r for ins in swaps for r in cfg.registers_of(ins.operands[2])}
        before = None
        while compared != before:  # through copies, against their direction
            before = set(compared)
            copies = (ins for ins in code if ins.opcode in ("mov", "cvt") and compared & set(cfg.destinations(ins)))
            compared.update(r for ins in copies for r in cfg.sources(ins))
        return frozenset(
            pc
            for pc, ins in enumerate(code)
            if ins.opcode == "ld"
            and compared & set(cfg.destinations(ins))
            and is_access(ins)
            and (self._place(ins), ins.type.size) in places
        )

    def _place(self, access: Instruction) -> tuple[str | None, int]:
        """Register or variable that a load's or atom's address begins at, copies traced back, and the offset."""
        address = access.operands[1]
        assert isinstance(address, Address)
        base, offset = address.base, address.offset
        while isinstance(base, Register) and base.name in self._copies:
            base = self._copies[base.name]
        name = base.name if base else None
        return name, offset + (base.offset if isinstance(base, Name) else 0)

    @cached_property
    def _copies(self) -> dict[str, Register | Name]:
        """Registers that are written once, with a copy of another register or a variable's address."""
        writes = Counter(register for ins in self.function.code for register in cfg.destinations(ins))
        return {
            ins.operands[0].name: ins.operands[1]
            for ins in self.function.code
            if ins.opcode in ("mov", "cvta")
            and isinstance(ins.operands[0], Register)
            and isinstance(ins.operands[1], Register | Name)
            and writes[ins.operands[0].name] == 1
        }

    def uses_result(self, ins: Instruction) -> bool:
        """Whether anything reads what an instruction leaves in its registers."""
        return any(r in self.read_registers for r in cfg.destinations(ins))

    @cached_property
    def work(self) -> list[Work]:
        """What each basic block does when it is executed once."""
        return [Work.of(self.graph.code(block)) for block in self.graph.blocks]

    @cached_property
    def param_offsets(self) -> dict[str, int]:
        """Where each parameter stands in the parameter block."""
        offsets, end = {}, 0
        for name, slot in self.module.functions[self.name].params:
            end = -(-end // slot.align) * slot.align
            offsets[name] = end
            end += slot.size
        return offsets

    @cached_property
    def param_bytes(self) -> int:
        """Size of the parameter block."""
        return max((self.param_offsets[n] + s.size for n, s in self.module.functions[self.name].params), default=0)

    def param_place(self, load: Instruction) -> int:
        """Where in the parameter block a ld.param begins. Raises UnsupportedPTX if it is not inside."""
        address = load.operands[1]
        assert isinstance(address, Address)
        base = address.base.name if isinstance(address.base, Name) else None
        if base not in self.param_offsets:
            raise unsupported(load, "the engine does not execute a load at a computed place of the parameters")
        at = self.param_offsets[base] + address.offset
        if not 0 <= at <= self.param_bytes - load.type.size * load.width:
            raise unsupported(load, "this load lies outside of the parameters")
        return at

    @cached_property
    def local_layout(self) -> tuple[dict[str, int], int]:
        """Where each .local variable stands in a thread's local memory, and how many bytes that has."""
        offsets, end = {}, 0
        for variable in self.function.variables.values():
            if variable.space == "local":
                end = -(-end // variable.align) * variable.align
                offsets[variable.name] = end
                end += variable.size
        if end > LOCAL_BYTES:
            raise _too_large(f"the local arrays of a thread take {end} bytes", LOCAL_BYTES)
        return offsets, end

    @cached_property
    def shared_layout(self) -> SharedLayout:
        """Where each __shared__ array stands: those of known size in order, behind them the dynamic ones."""
        declared = [*self.module.variables.values(), *self.function.variables.values()]
        named = set(_names(self.function))
        used = [v for v in declared if v.space == "shared" and v.name in named]
        places, end = {}, 0
        for variable in used:
            if not variable.extern:
                begin = -(-end // variable.align) * variable.align
                end = begin + variable.size
                places[variable.name] = Place(begin, end)
        dynamic = [v for v in used if v.extern]
        start = -(-end // DYNAMIC_ALIGN) * DYNAMIC_ALIGN if dynamic else end
        places |= {v.name: Place(start, None) for v in dynamic}
        return SharedLayout(places, start)

    @property
    def warp_price(self) -> int:
        """What starting a warp costs of a launch's budget."""
        return WARP_PRICE + LOCAL_BYTE_PRICE * self.local_layout[1]


@dataclass
class Program:
    """What `load` returns. The variables have the first numbers in the address space, the arrays follow."""

    entries: dict[str, Entry]
    symbols: dict[str, Symbol]
    target: str  # the architecture that the text is for, such as sm_80

    #: What executors prepare once for an entry, by its name.
    prepared: dict[str, object] = field(default_factory=dict, repr=False)

    @cached_property
    def symbol_numbers(self) -> dict[str, int]:
        return {name: i + 1 for i, name in enumerate(self.symbols)}

    def address_of(self, entry: Entry, name: str) -> int | None:
        """Address of a variable: module-scope, in an entry's shared memory (there from 0), or in its local memory."""
        if name in self.symbol_numbers:
            return window(self.symbol_numbers[name])
        if name in entry.shared_layout.places:
            return entry.shared_layout.places[name].begin
        offset = entry.local_layout[0].get(name)
        return None if offset is None else window(LOCAL_WINDOW) + offset


def load(text: str) -> Program:
    """Parse a PTX text; no code is generated yet.

    text      PTX as NVRTC emits it
    returns   the program; an instruction that the engine lacks stops only the entry that holds it, when it runs
    """
    module = ptx.parse(text)
    entries = {
        name: Entry(name, tuple(slot for _, slot in f.params), module)
        for name, f in module.functions.items()
        if f.is_entry
    }
    target = re.search(r"\.target\s+(\w+)", text)
    program = Program(entries, {}, target[1] if target else "")
    variables = [v for v in module.variables.values() if v.space in ("const", "global")]
    size = sum(v.size for v in variables)
    if size > VARIABLE_BYTES:
        raise _too_large(f"the module's variables take {size} bytes", VARIABLE_BYTES)
    for variable in variables:
        data = np.zeros(variable.size, np.uint8)
        data[: len(variable.init)] = np.frombuffer(variable.init, np.uint8)
        program.symbols[variable.name] = Symbol(variable.name, variable.space, variable.size, data)
    for variable in variables:
        for r in variable.relocations:
            if r.symbol in program.symbol_numbers:
                address = window(program.symbol_numbers[r.symbol]) + r.addend
                program.symbols[variable.name].data[r.at : r.at + 8].view(np.uint64)[0] = address
    return program


def _ending_at_stops(function: ptx.Function) -> ptx.Function:
    """The function with an exit after each instruction that stops a thread."""
    if not any(ins.opcode in STOPS for ins in function.code):
        return function
    out = replace(function, code=[], labels={})
    at = {}
    for pc, ins in enumerate(function.code):
        at[pc] = len(out.code)
        out.code.append(ins)
        if ins.opcode in STOPS:
            out.code.append(replace(ins, opcode="exit", modifiers=(), operands=()))
    at[len(function.code)] = len(out.code)
    out.labels = {label: at[pc] for label, pc in function.labels.items()}
    return out


def _names(function: ptx.Function) -> Iterator[str]:
    """Every variable that the code names."""
    for ins in function.code:
        for operand in ins.operands:
            base = operand.base if isinstance(operand, Address) else operand
            if isinstance(base, Name):
                yield base.name


def _too_large(what: str, limit: int) -> UnsupportedPTX:
    return UnsupportedPTX(Fault("unsupported", f"{what}; the engine allows {limit}"))
