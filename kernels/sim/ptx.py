"""PTX text to typed data: what stands in a module, statement by statement.

The parser knows the grammar, not the meaning: an opcode that no executor knows parses like any other,
and is named by `unsupported` only when the entry that holds it is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..errors import UnsupportedPTX
from ..result import Fault
from .types import TYPES, ScalarType, bits_type


@dataclass(frozen=True)
class Register:
    """A virtual register, or a special register such as %tid.x."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal. Integers are as written; floats are given by their bits and width."""

    value: int
    float_bits: int = 0  # 32 or 64 for 0f… and 0d…, else 0

    def as_type(self, kind: ScalarType) -> np.generic:
        """The literal as a type; a float literal of the other width is converted."""
        if kind.kind == "p":
            return np.bool_(self.value)
        if kind.is_float and self.float_bits != kind.bits:
            if not self.float_bits:
                return kind.dtype.type(self.value)
            size = self.float_bits // 8
            return np.array([self.value], f"u{size}").view(f"f{size}").astype(kind.dtype)[0]
        return np.array([self.value & (2**kind.bits - 1)], bits_type(kind.bits).dtype).view(kind.dtype)[0]


@dataclass(frozen=True)
class Name:
    """A label, a variable, a function or a parameter."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """[base + offset]; base is a register, a variable or parameter, or nothing (an absolute address)."""

    base: Register | Name | None
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """{a, b, …}"""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class PredicatePair:
    """p|q, the two destinations of setp."""

    first: Register
    second: Register


@dataclass(frozen=True)
class NotPredicate:
    """!p as a source."""

    register: Register


@dataclass(frozen=True)
class Arguments:
    """(a, b, …) of a call."""

    parts: tuple[Operand, ...]


Operand = Register | Immediate | Name | Address | Vector | PredicatePair | NotPredicate | Arguments


@dataclass(frozen=True)
class Guard:
    """@p or @!p before an instruction."""

    register: str
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One statement. opcode "ld", modifiers ("global", "nc", "f32"); line of the CUDA source, 0 if unknown."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    text: str

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    @property
    def type(self) -> ScalarType:
        """The last type in the opcode: the type of the sources."""
        for m in reversed(self.modifiers):
            if m in TYPES:
                return TYPES[m]
        raise unsupported(self)

    @property
    def types(self) -> tuple[ScalarType, ...]:
        return tuple(TYPES[m] for m in self.modifiers if m in TYPES)

    @property
    def width(self) -> int:
        """Elements of a vector access."""
        return 4 if "v4" in self.modifiers else 2 if "v2" in self.modifiers else 8 if "v8" in self.modifiers else 1


def unsupported(instruction: Instruction, why: str = "") -> UnsupportedPTX:
    """The error that names an instruction which the engine cannot execute."""
    reason = why or "the engine does not execute this instruction"
    return UnsupportedPTX(Fault("unsupported", f"{reason}: {instruction.text}", line=instruction.line))


@dataclass(frozen=True)
class ParamSlot:
    """One parameter in the order of the PTX: bytes, alignment, PTX type ("b8" for structs)."""

    size: int
    align: int
    type: str


@dataclass(frozen=True)
class Relocation:
    """Where a variable's initial bytes hold the address of another variable."""

    at: int
    symbol: str
    addend: int


@dataclass(frozen=True)
class Variable:
    """A variable in memory: module-scope .const .global .shared, or a function's .local .shared .param."""

    name: str
    space: str
    align: int
    size: int
    init: bytes = b""
    relocations: tuple[Relocation, ...] = ()
    extern: bool = False


@dataclass
class Function:
    """An .entry or a .func: parameters, declarations and code; labels are indices into the code."""

    name: str
    is_entry: bool
    params: list[tuple[str, ParamSlot]]
    returns: list[tuple[str, ParamSlot]]
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    registers: dict[str, ScalarType] = field(default_factory=dict)
    families: dict[str, ScalarType] = field(default_factory=dict)

    def register_type(self, name: str) -> ScalarType:
        """Type of a declared register: `%r7` itself, or a member of `.reg .b32 %r<9>`."""
        found = self.registers.get(name)
        if found is None:
            found = self.families.get(name.rstrip("0123456789"))
            if found is None:
                raise KeyError(name)
            self.registers[name] = found
        return found


@dataclass
class Module:
    """A PTX text."""

    functions: dict[str, Function]
    variables: dict[str, Variable]


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LABEL = re.compile(r"([$%\w]+)\s*:(?!:)")
_LINE_DIRECTIVE = re.compile(r"\.(loc|file|section|version|target|address_size)\b[^\n]*")
#: What may stand in a function's body and is no code.
_NO_CODE = {"branchtargets", "calltargets", "callprototype", "common", "extern", "pragma", "visible", "weak"} | {
    "const",
    "global",
    "local",
    "param",
    "shared",
}
_GUARD = re.compile(r"@(!?)\s*([%$\w]+)\s+")
_OPCODE = re.compile(r"([a-z]\w*)((?:(?:\.|::)[\w]+)*)\s*")
_VARIABLE = re.compile(
    r"(?:\.(?P<link>visible|extern|weak|common)\s+)?\.(?P<space>const|global|shared|local|param)\s+"
    r"(?:\.managed\s+)?(?:\.align\s+(?P<align>\d+)\s+)?(?:\.(?P<vec>v[24])\s+)?\.(?P<type>\w+)\s+(?P<name>[$%\w]+)"
    r"(?P<dims>(?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.DOTALL,
)
_FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)?\.(?P<kind>entry|func)\s*(?:\((?P<returns>[^)]*)\)\s*)?(?P<name>[$\w]+)\s*"
    r"(?:\((?P<params>[^)]*)\))?(?P<directives>[^{;]*)",
    re.DOTALL,
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr[^%$\w]*(?:\.\w+\s+)*(?:\d+\s+)?)?([$%\w]+)(?:\[(\d+)\])?"
)
_SOURCE_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')


def parse(text: str) -> Module:
    """Parse a PTX module. Raises ValueError where the text is no PTX."""
    files = {int(n): path for n, path in _SOURCE_FILE.findall(text)}
    own = next(
        (n for n, path in files.items() if path.replace("\\", "/").endswith("/kernel.cu") or path == "kernel.cu"), 1
    )
    return _Parser(_COMMENT.sub(" ", text), own).module()


class _Parser:
    def __init__(self, text: str, source_file: int):
        self.text = text
        self.pos = 0
        self.source_file = source_file
        self.line = 0

    # -- scanning ------------------------------------------------------------------------------

    def _skip_space(self) -> None:
        while self.pos < len(self.text) and self.text[self.pos].isspace():
            self.pos += 1

    def _until_semicolon(self) -> str:
        end = self.text.find(";", self.pos)
        if end < 0:
            raise ValueError(f"PTX ends inside a statement: {self.text[self.pos : self.pos + 60]!r}")
        statement = self.text[self.pos : end]
        self.pos = end + 1
        return statement.strip()

    def module(self) -> Module:
        module = Module({}, {})
        while True:
            self._skip_space()
            if self.pos >= len(self.text):
                return module
            if directive := _LINE_DIRECTIVE.match(self.text, self.pos):
                self.pos = directive.end()
                if directive.group(1) == "section":  # debug tables in braces
                    self._skip_braces()
            elif function := _FUNCTION.match(self.text, self.pos):
                self.pos = function.end()
                self._function(module, function)
            else:
                statement = self._until_semicolon()
                if variable := _variable(statement):
                    module.variables[variable.name] = variable

    def _skip_braces(self) -> None:
        opening = self.text.find("{", self.pos)
        closing = self.text.find("}", self.pos)
        if opening >= 0:
            self.pos = closing + 1 if closing >= 0 else len(self.text)

    # -- functions -----------------------------------------------------------------------------

    def _function(self, module: Module, head: re.Match[str]) -> None:
        function = Function(
            head["name"], head["kind"] == "entry", _params(head["params"] or ""), _params(head["returns"] or "")
        )
        self._skip_space()
        if self.text[self.pos : self.pos + 1] == ";":  # a declaration
            self.pos += 1
            module.functions.setdefault(function.name, function)
            return
        self.pos += 1  # {
        self.line = 0
        self._body(function)
        module.functions[function.name] = function

    def _body(self, function: Function) -> None:
        scopes: list[dict[str, str]] = [{}]  # names declared in inner braces -> unique names
        opened = 0
        while scopes:
            self._skip_space()
            if self.pos >= len(self.text):
                raise ValueError(f"PTX ends inside the function {function.name}")
            character = self.text[self.pos]
            if character == "{":
                opened += 1
                scopes.append({"": str(opened)})
                self.pos += 1
            elif character == "}":
                scopes.pop()
                self.pos += 1
            elif character == ";":
                self.pos += 1
            elif directive := _LINE_DIRECTIVE.match(self.text, self.pos):
                self._locate(directive.group())
                self.pos = directive.end()
            elif label := _LABEL.match(self.text, self.pos):
                function.labels[label.group(1)] = len(function.code)
                self.pos = label.end()
            else:
                self._statement(function, self._until_semicolon(), scopes)

    def _locate(self, directive: str) -> None:
        """Set the current line from `.loc file line column[, function_name …, inlined_at file line column]`.

        Line 0 marks code that the compiler moved: it keeps the last line known. Code inlined from a header
        belongs to the line that calls it.
        """
        numbers = directive.replace(",", " ").split()
        if numbers[0] != ".loc":
            return
        file, line = int(numbers[1]), int(numbers[2])
        if file != self.source_file and "inlined_at" in numbers:
            at = numbers.index("inlined_at")
            file, line = int(numbers[at + 1]), int(numbers[at + 2])
        if line and file == self.source_file:
            self.line = line

    def _statement(self, function: Function, text: str, scopes: list[dict[str, str]]) -> None:
        if text.startswith(".reg"):
            self._registers(function, text, scopes)
        elif text.startswith("."):
            if variable := _variable(text):
                function.variables[variable.name] = variable
            elif (directive := re.match(r"\.(\w+)", text)) and directive[1] not in _NO_CODE:
                # It may end before the semicolon that it was read up to, as `.include` does: nothing may get lost.
                function.code.append(Instruction(directive[1], (), (), None, self.line, " ".join(text.split())))
        else:
            function.code.append(self._instruction(function, text, scopes))

    def _registers(self, function: Function, text: str, scopes: list[dict[str, str]]) -> None:
        match = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", text, re.DOTALL)
        if not match or match[1] not in TYPES:
            # A register of a type that no executor knows stops the entry when it is used, not here.
            return
        kind = TYPES[match[1]]
        for item in match[2].split(","):
            name = item.strip()
            if family := re.fullmatch(r"([%$\w]+)<\d+>", name):
                function.families[family[1]] = kind
                continue
            if len(scopes) > 1:
                scopes[-1][name] = f"{name}@{scopes[-1]['']}"
                name = scopes[-1][name]
            function.registers[name] = kind

    def _instruction(self, function: Function, text: str, scopes: list[dict[str, str]]) -> Instruction:
        rest = text
        guard = None
        if match := _GUARD.match(rest):
            guard = Guard(_rename(match[2], scopes), bool(match[1]))
            rest = rest[match.end() :]
        match = _OPCODE.match(rest)
        if not match:
            raise ValueError(f"no PTX instruction: {text!r}")
        modifiers = tuple(match[2].replace("::", ".").strip(".").split(".")) if match[2] else ()
        if "cc" in modifiers:
            function.registers.setdefault("%cc", TYPES["u32"])
        operands = tuple(_operand(o, scopes) for o in _split(rest[match.end() :]))
        return Instruction(match[1], modifiers, operands, guard, self.line, " ".join(text.split()))


# -- operands ----------------------------------------------------------------------------------


def _rename(name: str, scopes: list[dict[str, str]]) -> str:
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    return name


def _split(text: str) -> Iterator[str]:
    """The operands: split at the commas outside of brackets."""
    depth = start = 0
    for i, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_PLUS = re.compile(r"([%$\w.@]+)\s*\+\s*(-?\w+)$")


def _operand(text: str, scopes: list[dict[str, str]]) -> Operand:
    first = text[0]
    if first == "%" and "|" not in text and "+" not in text:
        return Register(_rename(text, scopes))
    if first == "{":
        return Vector(tuple(_operand(p, scopes) for p in _split(text[1:-1])))
    if first == "[":
        return _address(text[1:-1].strip(), scopes)
    if first == "(":
        return Arguments(tuple(_operand(p, scopes) for p in _split(text[1:-1])))
    if first == "!":
        return NotPredicate(Register(_rename(text[1:].strip(), scopes)))
    if "|" in text:
        one, two = (Register(_rename(p.strip(), scopes)) for p in text.split("|"))
        return PredicatePair(one, two)
    if _INTEGER.match(text):
        return Immediate(int(text.rstrip("U"), 0) if not re.match(r"-?0\d", text) else int(text.rstrip("U"), 8))
    if literal := re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text):
        return Immediate(int(literal[2], 16), 32 if literal[1] in "fF" else 64)
    if plus := _PLUS.match(text):
        return Name(plus[1], int(plus[2], 0))
    if (renamed := _rename(text, scopes)) != text:
        return Register(renamed)
    return Name(text)


def _address(text: str, scopes: list[dict[str, str]]) -> Address:
    base, offset = text, 0
    if plus := _PLUS.match(text):
        base, offset = plus[1], int(plus[2], 0)
    if _INTEGER.match(base):
        return Address(None, int(base, 0) + offset)
    operand = _operand(base, scopes)
    if isinstance(operand, Register | Name):
        return Address(operand, offset)
    raise ValueError(f"no PTX address: [{text}]")


# -- declarations ------------------------------------------------------------------------------


def _params(text: str) -> list[tuple[str, ParamSlot]]:
    found = []
    for align, kind, name, count in _PARAM.findall(text):
        element = TYPES[kind].size if kind in TYPES else 8
        found.append((name, ParamSlot(element * int(count or 1), int(align or element), kind)))
    return found


def _variable(statement: str) -> Variable | None:
    match = _VARIABLE.match(statement)
    if not match or match["type"] not in TYPES:
        return None
    kind = TYPES[match["type"]]
    dims = [int(d) if d else 0 for d in re.findall(r"\[\s*(\d*)\s*\]", match["dims"] or "")]
    count = int(np.prod(dims, dtype=np.int64)) if dims else 1
    size = kind.size * count * int((match["vec"] or "v1")[1])
    init, relocations = _initialiser(match["init"] or "", kind)
    return Variable(
        match["name"],
        match["space"],
        int(match["align"] or kind.size),
        size,
        init[:size],
        relocations,
        match["link"] == "extern",
    )


def _initialiser(text: str, kind: ScalarType) -> tuple[bytes, tuple[Relocation, ...]]:
    data = bytearray()
    relocations = []
    for item in text.replace("{", " ").replace("}", " ").split(","):
        item = item.strip()
        if not item:
            continue
        if literal := re.fullmatch(r"0[fFdD]([0-9a-fA-F]+)", item):
            value = int(literal[1], 16)
        elif _INTEGER.match(item):
            value = int(item.rstrip("U"), 0)
        else:
            reference = re.fullmatch(r"(?:generic\(\s*)?([$%\w]+)\s*\)?\s*(?:\+\s*(-?\d+))?", item)
            if not reference:
                raise ValueError(f"no PTX initialiser: {item!r}")
            relocations.append(Relocation(len(data), reference[1], int(reference[2] or 0)))
            value = 0
        data += (value & (2**kind.bits - 1)).to_bytes(kind.size, "little")
    return bytes(data), tuple(relocations)
