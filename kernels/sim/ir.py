"""A small builder of LLVM IR text.

Text, because LLVM parses it faster than Python builds an object tree. A `Value` is a typed name; every
method of `FunctionBuilder` appends an instruction and returns its value.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

LANES = 32


class Value(NamedTuple):
    """An operand: its LLVM type, and its name or literal."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def vector(element: str) -> str:
    """The type of a warp's worth of elements."""
    return f"<{LANES} x {element}>"


def element_of(type_name: str) -> str:
    """The element type of a vector type; a scalar type itself."""
    return type_name[type_name.index("x") + 2 : -1] if type_name[0] == "<" else type_name


def is_vector(type_name: str) -> bool:
    return type_name[0] == "<"


def bits_of(type_name: str) -> int:
    """Bits of a scalar type, or of a vector's element."""
    element = element_of(type_name)
    return {"float": 32, "double": 64}.get(element) or int(element[1:])


def integer(value: int, type_name: str = "i32") -> Value:
    """An integer literal; the same in every lane of a vector type."""
    bits = bits_of(type_name)
    value &= (1 << bits) - 1
    if value >> (bits - 1) and bits > 1:
        value -= 1 << bits
    return _literal(str(value) if bits > 1 else str(value).replace("0", "false").replace("1", "true"), type_name)


def real(value: float, type_name: str = "float") -> Value:
    """A float literal that the type holds exactly; the same in every lane of a vector type."""
    return _literal(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", type_name)


def _literal(text: str, type_name: str) -> Value:
    return Value(type_name, f"splat ({element_of(type_name)} {text})" if is_vector(type_name) else text)


def constants(values: Sequence[int], element: str) -> Value:
    """A vector literal."""
    return Value(f"<{len(values)} x {element}>", "<" + ", ".join(f"{element} {v}" for v in values) + ">")


def iota(element: str, step: int = 1) -> Value:
    """0, step, 2 step … in the lanes of a warp."""
    return constants([i * step for i in range(LANES)], element)


class FunctionBuilder:
    """One function under construction. `declare` collects what it calls."""

    def __init__(self, name: str, result: str, arguments: Sequence[tuple[str, str]], linkage: str = ""):
        self.head = f"define {linkage} {result} @{name}({', '.join(f'{t} %{n}' for t, n in arguments)})"
        self.arguments = {n: Value(t, f"%{n}") for t, n in arguments}
        self.attributes = ""  # beside those of its module
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.count = 0
        self.terminated = False

    def text(self, attributes: str = "nounwind") -> str:
        return "\n".join([f"{self.head} {attributes} {self.attributes} {{", "entry:", *self.entry, *self.lines, "}"])

    # -- plumbing --------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def value(self, type_name: str, expression: str) -> Value:
        """Append `%n = expression`."""
        self.count += 1
        self.lines.append(f"%v{self.count} = {expression}")
        return Value(type_name, f"%v{self.count}")

    def alloca(self, type_name: str, count: int = 1, align: int = 8) -> Value:
        """Stack memory for the whole function."""
        self.count += 1
        self.entry.append(f"%v{self.count} = alloca [{count} x {type_name}], align {align}")
        return Value("ptr", f"%v{self.count}")

    # -- arithmetic ------------------------------------------------------------------------------

    def binary(self, op: str, a: Value, b: Value | int) -> Value:
        if isinstance(b, int):
            b = integer(b, a.type)
        return self.value(a.type, f"{op} {a}, {b.text}")

    def add(self, a: Value, b: Value | int) -> Value:
        return self.binary("add", a, b)

    def sub(self, a: Value, b: Value | int) -> Value:
        return self.binary("sub", a, b)

    def mul(self, a: Value, b: Value | int) -> Value:
        return self.binary("mul", a, b)

    def and_(self, a: Value, b: Value | int) -> Value:
        return self.binary("and", a, b)

    def or_(self, a: Value, b: Value | int) -> Value:
        return self.binary("or", a, b)

    def xor(self, a: Value, b: Value | int) -> Value:
        return self.binary("xor", a, b)

    def not_(self, a: Value) -> Value:
        return self.binary("xor", a, -1)

    def icmp(self, condition: str, a: Value, b: Value | int) -> Value:
        if isinstance(b, int):
            b = integer(b, a.type)
        return self.value(vector("i1") if is_vector(a.type) else "i1", f"icmp {condition} {a}, {b.text}")

    def fcmp(self, condition: str, a: Value, b: Value) -> Value:
        return self.value(vector("i1") if is_vector(a.type) else "i1", f"fcmp {condition} {a}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.value(a.type, f"select {condition}, {a}, {b}")

    def cast(self, op: str, a: Value, type_name: str) -> Value:
        return a if a.type == type_name else self.value(type_name, f"{op} {a} to {type_name}")

    def resize(self, a: Value, type_name: str, signed: bool = False) -> Value:
        """An integer in another width."""
        narrow = bits_of(type_name) < bits_of(a.type)
        return self.cast("trunc" if narrow else "sext" if signed else "zext", a, type_name)

    def call(self, result: str, name: str, arguments: Sequence[Value]) -> Value:
        """Call a function or intrinsic by its full name."""
        kinds = ", ".join(a.type for a in arguments)
        self.declarations.setdefault(name, f"declare {result} @{name}({kinds})")
        call = f"call {result} @{name}({', '.join(map(str, arguments))})"
        if result == "void":
            self.lines.append(call)
            return Value("void", "")
        return self.value(result, call)

    def intrinsic(self, name: str, *arguments: Value, extra: Sequence[Value] = ()) -> Value:
        """Call llvm.NAME, overloaded on the first argument's type, whose type it returns."""
        kind = arguments[0].type
        return self.call(kind, f"llvm.{name}.{suffix(kind)}", [*arguments, *extra])

    # -- vectors ---------------------------------------------------------------------------------

    def splat(self, a: Value) -> Value:
        """A scalar in every lane."""
        kind = vector(a.type)
        one = self.value(kind, f"insertelement {kind} poison, {a}, i32 0")
        return self.value(kind, f"shufflevector {kind} {one.text}, {kind} poison, <{LANES} x i32> zeroinitializer")

    def extract(self, a: Value, lane: Value | int) -> Value:
        index = lane if isinstance(lane, Value) else integer(lane)
        return self.value(element_of(a.type), f"extractelement {a}, {index}")

    def to_mask(self, lanes: Value) -> Value:
        """The i32 whose bit n is lane n of a <32 x i1>."""
        return self.cast("bitcast", lanes, "i32")

    def to_lanes(self, mask: Value) -> Value:
        return self.cast("bitcast", mask, vector("i1"))

    def shuffle(self, a: Value, b: Value, indices: Sequence[int]) -> Value:
        kind = f"<{len(indices)} x {element_of(a.type)}>"
        return self.value(kind, f"shufflevector {a}, {b}, {constants(indices, 'i32')}")

    # -- memory ----------------------------------------------------------------------------------

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """pointer + offset bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = integer(offset, "i64")
        return self.value("ptr", f"getelementptr i8, {pointer}, {offset}")

    def load(self, type_name: str, pointer: Value, offset: Value | int = 0, align: int | None = None) -> Value:
        where = self.at(pointer, offset)
        suffix = f", align {align}" if align else ""
        return self.value(type_name, f"load {type_name}, {where}{suffix}")

    def store(self, a: Value, pointer: Value, offset: Value | int = 0, align: int | None = None) -> None:
        where = self.at(pointer, offset)
        self.emit(f"store {a}, {where}" + (f", align {align}" if align else ""))

    def increment(self, pointer: Value, offset: Value | int, by: Value | int) -> None:
        """*(i64*)(pointer + offset) += by"""
        where = self.at(pointer, offset)
        self.store(self.add(self.load("i64", where), by), where)

    # -- control ---------------------------------------------------------------------------------

    def label(self, stem: str) -> str:
        """A fresh label."""
        self.count += 1
        return f"{stem}.{self.count}"

    def place(self, label: str) -> None:
        """Start the block of a label, falling through from the one before."""
        if not self.terminated:
            self.emit(f"br label %{label}")
        self.emit(f"{label}:")
        self.terminated = False

    def jump(self, label: str) -> None:
        self.emit(f"br label %{label}")
        self.terminated = True

    def branch(self, condition: Value, yes: str, no: str, unlikely: bool = False) -> None:
        hint = ", !prof !0" if unlikely else ""
        self.emit(f"br i1 {condition.text}, label %{yes}, label %{no}{hint}")
        self.terminated = True

    def ret(self, a: Value | None = None) -> None:
        self.emit("ret void" if a is None else f"ret {a}")
        self.terminated = True

    @contextmanager
    def when(self, condition: Value, unlikely: bool = False) -> Iterator[None]:
        """Code that runs only if the condition holds."""
        yes, after = self.label("then"), self.label("after")
        self.branch(condition, yes, after, unlikely)
        self.place(yes)
        yield
        self.place(after)

    def value_if(self, condition: Value, code: Callable[[], Value], otherwise: int) -> Value:
        """What the code gives if the condition holds, else an integer."""
        start, after = self.label("start"), self.label("after")
        yes, done = self.label("then"), self.label("done")
        self.place(start)
        self.branch(condition, yes, after)
        self.place(yes)
        found = code()
        self.place(done)
        self.place(after)
        return self.value(found.type, f"phi {found.type} [{found.text}, %{done}], [{otherwise}, %{start}]")

    @contextmanager
    def each_lane(self, mask: Value) -> Iterator[Value]:
        """Code that runs once for each bit set in an i32 mask, the lowest first; gives the lane as i32."""
        slot = self.alloca("i32", align=4)
        self.store(mask, slot)
        head, body, after = self.label("lanes"), self.label("lane"), self.label("after")
        self.place(head)
        rest = self.load("i32", slot)
        self.branch(self.icmp("eq", rest, 0), after, body)
        self.place(body)
        lane = self.lowest_bit(rest)
        self.store(self.and_(rest, self.sub(rest, 1)), slot)
        yield lane
        if not self.terminated:
            self.jump(head)
        self.place(after)

    @contextmanager
    def repeat(self, count: Value) -> Iterator[Value]:
        """Code that runs `count` times; gives the turn, 0 first, as i64."""
        slot = self.alloca("i64")
        self.store(integer(0, "i64"), slot)
        head, body, after = self.label("turns"), self.label("turn"), self.label("after")
        self.place(head)
        turn = self.load("i64", slot)
        self.branch(self.icmp("ult", turn, count), body, after)
        self.place(body)
        yield turn
        self.increment(slot, 0, 1)
        self.jump(head)
        self.place(after)

    @contextmanager
    def until_empty(self, slot: Value) -> Iterator[Value]:
        """Code that runs until the mask in an i32 slot is 0; gives the mask."""
        head, body, after = self.label("head"), self.label("body"), self.label("after")
        self.place(head)
        mask = self.load("i32", slot)
        self.branch(self.icmp("eq", mask, 0), after, body)
        self.place(body)
        yield mask
        self.jump(head)
        self.place(after)

    def lowest_bit(self, mask: Value) -> Value:
        """Index of the lowest bit set in a mask that is not 0."""
        return self.intrinsic("cttz", mask, extra=[Value("i1", "true")])

    def popcount(self, mask: Value) -> Value:
        return self.intrinsic("ctpop", mask)


def suffix(type_name: str) -> str:
    """The mangling of a type in an intrinsic's name: v32f32, i64."""
    name = element_of(type_name).replace("float", "f32").replace("double", "f64")
    if not is_vector(type_name):
        return name
    count = re.match(r"<(\d+) x", type_name)
    assert count
    return f"v{count[1]}{name}"


def module_text(functions: Sequence[FunctionBuilder], attributes: str = "nounwind") -> str:
    """A module of functions, with declarations of whatever they call outside of it."""
    defined = {re.search(r"@([\w.$]+)\(", f.head).group(1) for f in functions}  # type: ignore[union-attr]
    declarations: dict[str, str] = {}
    for f in functions:
        declarations.update({n: d for n, d in f.declarations.items() if n not in defined})
    parts = [
        *declarations.values(),
        *(f.text(attributes) for f in functions),
        '!0 = !{!"branch_weights", i32 1, i32 2000}',
    ]
    return "\n".join(parts) + "\n"
