"""Calls of device functions, inlined into the entry before anything else looks at it.

A call's parameters live in the .param space; once inlined, each is a pseudo register of the caller.
"""

from __future__ import annotations

from dataclasses import replace

from .cfg import CARRY
from .isa import MAX_INSTRUCTIONS
from .ptx import (
    Address,
    Arguments,
    Function,
    Guard,
    Immediate,
    Instruction,
    Module,
    Name,
    NotPredicate,
    Operand,
    PredicatePair,
    Register,
    Vector,
    unsupported,
)
from .types import ScalarType, bits_type

#: What a student wrote, by the function that the compiler calls.
_LIBRARY = {"malloc": "malloc (or new)", "free": "free (or delete)"}

#: Functions of the CUDA runtime that the engine executes as instructions of its own.
_RUNTIME = {"vprintf": "printf", "__assertfail": "assertfail"}


def inline_calls(module: Module, entry: str) -> Function:
    """The entry with every call replaced by the called code.

    Raises UnsupportedPTX at recursion, at a call through a pointer and at a function without a body.
    """
    function = module.functions[entry]
    if not any(ins.opcode == "call" for ins in function.code):
        return function
    return _Inliner(module).expand(function, "", (), {})


#: The parameters of a call under way: name -> the pseudo registers that hold its pieces.
Pieces = dict[str, dict[str, ScalarType]]


class _Inliner:
    def __init__(self, module: Module):
        self.module = module
        self.calls = 0

    def expand(self, function: Function, suffix: str, callers: tuple[str, ...], pieces: Pieces) -> Function:
        """A copy of the function in which every name ends in `suffix` and no call is left.

        pieces   the parameters passed to the function; what it returns is added
        """
        out = Function(function.name, function.is_entry, function.params, function.returns)
        labels_at: dict[int, list[str]] = {}
        for label, at in function.labels.items():
            labels_at.setdefault(at, []).append(label + suffix)
        for variable in function.variables.values():
            if variable.space == "shared":  # one for all calls
                out.variables[variable.name] = variable
            elif variable.space != "param":
                out.variables[variable.name + suffix] = replace(variable, name=variable.name + suffix)
        rename = _Renamer(suffix, function)
        end = f"$end{suffix}"
        for i, instruction in enumerate(function.code):
            for label in labels_at.get(i, ()):
                out.labels[label] = len(out.code)
            if instruction.opcode == "call":
                self._call(out, instruction, suffix, (*callers, function.name), pieces)
            elif suffix and instruction.opcode == "ret":
                guard = rename.guard(instruction.guard)
                out.code.append(Instruction("bra", (), (Name(end),), guard, instruction.line, instruction.text))
            else:
                renamed = rename.instruction(instruction)
                out.code += _param_moves(renamed, rename.params, suffix, out, pieces)
            if len(out.code) > MAX_INSTRUCTIONS:
                raise unsupported(instruction, f"more than {MAX_INSTRUCTIONS} instructions after inlining")
        for label in labels_at.get(len(function.code), ()):
            out.labels[label] = len(out.code)
        out.labels[end] = len(out.code)
        rename.declare(out)
        if CARRY in function.registers:
            out.registers[CARRY] = function.registers[CARRY]
        return out

    def _call(self, out: Function, call: Instruction, suffix: str, callers: tuple[str, ...], pieces: Pieces) -> None:
        callee, returned, passed = self._target(call, callers)
        if callee.name in _RUNTIME:
            out.code.append(_runtime_call(out, call, suffix, returned, passed, pieces))
            return
        self.calls += 1
        inner = f"{suffix}~{self.calls}"
        inside: Pieces = {}
        for (formal, _), actual in zip(callee.params, passed):
            assert isinstance(actual, Name)
            outer = pieces.pop(actual.name + suffix, {})
            inside[formal + inner] = _copy(out, outer, actual.name + suffix, formal + inner, call)
        body = self.expand(callee, inner, callers, inside)
        # Code of the compiler's own library has no line: it belongs to the line that calls it.
        body.code = [ins if ins.line else replace(ins, line=call.line) for ins in body.code]
        offset = len(out.code)
        out.code += body.code
        out.labels.update({label: at + offset for label, at in body.labels.items()})
        out.variables.update(body.variables)
        out.registers.update(body.registers)
        for (formal, _), actual in zip(callee.returns, returned):
            assert isinstance(actual, Name)
            result = inside.get(formal + inner, {})
            pieces[actual.name + suffix] = _copy(out, result, formal + inner, actual.name + suffix, call)

    def _target(
        self, call: Instruction, callers: tuple[str, ...]
    ) -> tuple[Function, tuple[Operand, ...], tuple[Operand, ...]]:
        """The called function, the names of its results and of its arguments."""
        groups = [o.parts for o in call.operands if isinstance(o, Arguments)]
        names = [o for o in call.operands if isinstance(o, Name)]
        if call.guard or not names or names[0].name not in self.module.functions:
            raise unsupported(call, "the engine does not execute calls through pointers")
        callee = self.module.functions[names[0].name]
        if callee.name in callers:
            raise unsupported(call, f"the engine does not execute recursion (in {callee.name})")
        if not callee.code and callee.name not in _RUNTIME:
            written = _LIBRARY.get(callee.name, callee.name)
            raise unsupported(call, f"the engine does not know the function {written}")
        returned = groups.pop(0) if callee.returns else ()
        return callee, returned, groups[0] if groups else ()


def _runtime_call(
    out: Function,
    call: Instruction,
    suffix: str,
    returned: tuple[Operand, ...],
    passed: tuple[Operand, ...],
    pieces: Pieces,
) -> Instruction:
    """A call of the CUDA runtime as an instruction on the registers that hold its result and its arguments."""
    operands: list[Operand] = []
    for actual in returned:
        assert isinstance(actual, Name)
        kind = bits_type(32)
        piece = _piece(actual.name + suffix, 0, kind)
        pieces[actual.name + suffix] = {piece: kind}
        out.registers[piece] = kind
        operands.append(Register(piece))
    for actual in passed:
        assert isinstance(actual, Name)
        operands += [Register(piece) for piece in pieces.pop(actual.name + suffix, {})]
    opcode = next(_RUNTIME[o.name] for o in call.operands if isinstance(o, Name))
    return replace(call, opcode=opcode, modifiers=(), operands=tuple(operands))


def _copy(
    out: Function, pieces: dict[str, ScalarType], source: str, target: str, call: Instruction
) -> dict[str, ScalarType]:
    """Copy a parameter between caller and callee, in the pieces that were stored."""
    copied = {}
    for name, kind in pieces.items():
        piece = target + name[len(source) :]
        out.registers[piece] = copied[piece] = kind
        text = f"mov.{kind.name} {piece}, {name}"
        operands = (Register(piece), Register(name))
        out.code.append(Instruction("mov", (kind.name,), operands, None, call.line, text))
    return copied


def _param_moves(
    instruction: Instruction, params: set[str], suffix: str, out: Function, pieces: Pieces
) -> list[Instruction]:
    """ld.param and st.param of a call's parameter become moves of its pseudo registers, one for each element."""
    if instruction.opcode not in ("ld", "st") or not instruction.has("param"):
        return [instruction]
    value, address = instruction.operands[:: 1 if instruction.opcode == "ld" else -1]
    if not isinstance(address, Address) or not isinstance(address.base, Name):
        raise unsupported(instruction)
    if address.base.name not in params:
        return [instruction]  # a parameter of the entry itself
    name = address.base.name + suffix
    held = pieces.setdefault(name, {})
    moves = []
    for i, part in enumerate(value.parts if isinstance(value, Vector) else (value,)):
        at = address.offset + i * instruction.type.size
        if instruction.opcode == "st":
            moves.append(_store_piece(instruction, part, name, at, out, held))
        else:
            moves += _load_piece(instruction, part, name, at, out, held)
    return moves


def _store_piece(
    store: Instruction, value: Operand, name: str, at: int, out: Function, held: dict[str, ScalarType]
) -> Instruction:
    kind = bits_type(max(store.type.bits, 16))  # registers are at least 16 bits wide
    piece = _piece(name, at, store.type)
    held[piece] = out.registers[piece] = kind
    return replace(store, opcode="mov", modifiers=(kind.name,), operands=(Register(piece), value))


def _load_piece(
    load: Instruction, target: Operand, name: str, at: int, out: Function, held: dict[str, ScalarType]
) -> list[Instruction]:
    """The part of a piece that a callee reads: the compiler narrows the load where only some bytes matter."""
    kind = load.type
    sign = "s" if kind.is_signed else "u"
    for piece, bits in held.items():
        begin, size = _extent(name, piece)
        if not begin <= at <= at + kind.size <= begin + size:
            continue
        value = Register(piece)
        if kind.size == size and kind.bits == bits.bits:
            return [_moved(load, ("mov", bits.name), target, value)]
        # As long as only the lowest bytes are read, the conversion picks them itself.
        moves = []
        if at > begin:
            shifted = Register(f"{piece}>>{at - begin}")
            out.registers[shifted.name] = bits
            by = Immediate(8 * (at - begin))
            moves.append(replace(load, opcode="shr", modifiers=(f"u{bits.bits}",), operands=(shifted, value, by)))
            value = shifted
        width = max(kind.bits, 16)
        return [*moves, _moved(load, ("cvt", f"{sign}{width}", f"{sign}{kind.bits}"), target, value)]
    raise unsupported(load, "the engine cannot join the parts of a call's parameter")


def _moved(load: Instruction, opcode: tuple[str, ...], target: Operand, value: Register) -> Instruction:
    return replace(load, opcode=opcode[0], modifiers=opcode[1:], operands=(target, value))


def _piece(name: str, at: int, kind: ScalarType) -> str:
    return f"{name}+{at}:{kind.size}"


def _extent(name: str, piece: str) -> tuple[int, int]:
    """First byte and size of a piece."""
    begin, size = piece.removeprefix(f"{name}+").split(":")
    return int(begin), int(size)


class _Renamer:
    """Gives the names of an inlined function their suffix."""

    def __init__(self, suffix: str, function: Function):
        self.suffix = suffix
        self.function = function
        self.memory = {v.name for v in function.variables.values() if v.space == "local"}
        self.params = {v.name for v in function.variables.values() if v.space == "param"}
        if suffix:  # the parameters of a function that is called
            self.params |= {name for name, _ in (*function.params, *function.returns)}
        self.used: dict[str, str] = {}

    def declare(self, out: Function) -> None:
        """Declare each register that the renamed code uses."""
        for new, old in self.used.items():
            out.registers[new] = self.function.register_type(old)

    def register(self, name: str) -> str:
        try:
            self.function.register_type(name)
        except KeyError:
            return name  # a special register
        new = name + self.suffix
        self.used[new] = name
        return new

    def guard(self, guard: Guard | None) -> Guard | None:
        return Guard(self.register(guard.register), guard.negated) if guard else None

    def instruction(self, instruction: Instruction) -> Instruction:
        return replace(
            instruction,
            guard=self.guard(instruction.guard),
            operands=tuple(self.operand(o) for o in instruction.operands),
        )

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            return Register(self.register(operand.name))
        if isinstance(operand, NotPredicate):
            return NotPredicate(Register(self.register(operand.register.name)))
        if isinstance(operand, PredicatePair):
            return PredicatePair(
                Register(self.register(operand.first.name)), Register(self.register(operand.second.name))
            )
        if isinstance(operand, Vector):
            return Vector(tuple(self.operand(p) for p in operand.parts))
        if isinstance(operand, Address):
            base = self.operand(operand.base) if operand.base is not None else None
            assert base is None or isinstance(base, Register | Name)
            return Address(base, operand.offset)
        if isinstance(operand, Name) and (operand.name in self.function.labels or operand.name in self.memory):
            return Name(operand.name + self.suffix, operand.offset)
        return operand
