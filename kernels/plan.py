"""How a kernel text says that it is launched: its `//@` lines.

    //@ const TILE = 256                             a compile-time integer, also given to the compiler as -DTILE=256
    //@ let Hp = H + 2*padh                          a symbol of the text's own, or another name for an array
    //@ temp col float[N*C*R*S*P*Q]                  a scratch array, uninitialised
    //@ launch NAME grid=(cdiv(P*Q, TILE), K, N) block=TILE shared=8*TILE args=(x, w, y, N)
    //@ needs dil == 1 and groups == 1               a precondition of the text

Launches run in the order in which they stand. Expressions (convladder.kernels.expression) are over the
symbols of the problem, the constants, and the names that `let` lines give. `grid` and `block` take one to
three sizes, `shared` counts bytes, `args` names arrays, temps, symbols or expressions; without it a launch
passes the default arguments of its task.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import expression
from .arguments import out
from .errors import ArgumentError, GeometryError, KernelNameError, LaunchError, PlanError
from .expression import ExpressionError, Value
from .launch import launch, prepare
from .module import Kernel, Module, Ready
from .result import LaunchResult
from .signature import SCALARS

if TYPE_CHECKING:
    from .sim.observer import Observer

_LINE = re.compile(r"^\s*//@(.*)$")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_LAUNCH_KEYS = ("grid", "block", "shared", "args")

#: Scratch memory that one text may ask for, in bytes.
MAX_TEMP_BYTES = 2**31

#: Launches that one text may make: each may spend the whole budget of a launch.
MAX_LAUNCHES = 64


@dataclass(frozen=True)
class Let:
    """A name for a value: `value` is an expression, or the name of an array."""

    name: str
    value: str
    line: int


@dataclass(frozen=True)
class Temp:
    """A scratch array: `elements` is an expression."""

    name: str
    type: str
    elements: str
    line: int


@dataclass(frozen=True)
class Launch:
    """One launch line, its expressions still unevaluated."""

    kernel: str
    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str
    args: tuple[str, ...] | None
    line: int


@dataclass(frozen=True)
class Plan:
    consts: dict[str, int]
    lets: tuple[Let, ...]
    temps: tuple[Temp, ...]
    launches: tuple[Launch, ...]
    needs: tuple[tuple[str, int], ...]
    const_lines: dict[str, int]

    def options(self) -> tuple[str, ...]:
        """What the compiler must be told: the constants."""
        return tuple(f"-D{name}={value}" for name, value in self.consts.items())

    def check_names(self, taken: Collection[str]) -> None:
        """Raise PlanError where a constant, a let or a temp has a name that the task gives to something else."""
        lines = {**self.const_lines, **{let.name: let.line for let in self.lets}}
        lines |= {temp.name: temp.line for temp in self.temps}
        for name, line in lines.items():
            if name in taken:
                raise PlanError(f"{name} is a name of the task already: choose another one", line)

    def names(self, symbols: Mapping[str, Value]) -> dict[str, Value]:
        """What expressions may name: the symbols, the constants, and each `let` that is a number."""
        known = {**symbols, **self.consts}
        for let in self.lets:
            if let.value.isidentifier() and let.value not in known:
                continue  # another name for an array
            known[let.name] = _evaluated(let.value, known, let.line)
        return known

    def check_needs(self, symbols: Mapping[str, Value], who: str) -> None:
        """Raise GeometryError where a `needs` line does not hold."""
        symbols = self.names(symbols)
        for text, line in self.needs:
            missing = expression.names(text) - set(symbols)
            if missing or not _evaluated(text, symbols, line):
                values = ", ".join(f"{n} = {symbols[n]}" for n in sorted(expression.names(text)) if n in symbols)
                unequal = f"; {', '.join(sorted(missing))} must be equal in height and width" if missing else ""
                raise GeometryError(f"{who} needs {text}; here {values or 'it differs by axis'}{unequal}")


def parse(source: str) -> Plan:
    """Read the `//@` lines of a kernel text. Raises PlanError with the line where one cannot be read."""
    consts: dict[str, int] = {}
    const_lines: dict[str, int] = {}
    lets: list[Let] = []
    temps: list[Temp] = []
    launches: list[Launch] = []
    needs: list[tuple[str, int]] = []
    # The compiler's line ends are the only ones: splitlines knows more of them.
    for number, text in enumerate(_without_block_comments(source).split("\n"), 1):
        match = _LINE.match(text)
        if not match:
            continue
        word, _, rest = match.group(1).strip().partition(" ")
        rest = rest.strip()
        if word == "const":
            name, value = _const(rest, consts, number)
            if name in consts:
                raise PlanError(f"the constant {name} is given twice: keep one line", number)
            consts[name], const_lines[name] = value, number
        elif word == "let":
            let = _let(rest, number)
            if any(other.name == let.name for other in lets):
                raise PlanError(f"{let.name} is given twice: keep one line", number)
            lets.append(let)
        elif word == "temp":
            temp = _temp(rest, number)
            if any(t.name == temp.name for t in temps):
                raise PlanError(f"the temp {temp.name} is given twice: keep one line", number)
            temps.append(temp)
        elif word == "launch":
            launches.append(_launch(rest, number))
            if len(launches) > MAX_LAUNCHES:
                raise PlanError(f"more than {MAX_LAUNCHES} launches: a text may make at most that many", number)
        elif word == "needs":
            _parsed(rest, number)
            needs.append((rest, number))
        else:
            raise PlanError(f"`//@ {word}` is not known: write //@ const, let, temp, launch or needs", number)
    return Plan(consts, tuple(lets), tuple(temps), tuple(launches), tuple(needs), const_lines)


def run(
    module: Module,
    plan: Plan,
    symbols: Mapping[str, Value],
    arrays: Mapping[str, Any],
    default_args: Sequence[str] | None = None,
    *,
    check: bool = True,
    budget: int | None = None,
    observer: Observer | None = None,
) -> list[tuple[str, LaunchResult]]:
    """Run every launch of a plan in order; stops after the first launch with a fault.

    symbols       numbers that expressions may name
    arrays        name -> array or out(array); written in place
    default_args  the arguments of a launch without `args=`; None: the names of the kernel's own parameters
    Returns (kernel name, result) for each launch that ran.
    Raises PlanError (with its line), KernelNameError, ArgumentError or LaunchError, UnsupportedPTX.
    """
    plan.check_names({*symbols, *arrays})
    names = plan.names(symbols)
    operands = {**arrays, **{n: out(a) for n, a in temps(plan, symbols, module.on).items()}}
    if module.on == "sim" and check:
        operands = {n: _watched(v) if isinstance(v, out) else v for n, v in operands.items()}
    operands = _also_named(plan, operands)
    results = []
    for line in _launches(plan):
        kernel, grid, block, args, shared = _evaluated_launch(module, line, names, operands, default_args)
        try:
            result = launch(kernel, grid, block, args, shared=shared, check=check, budget=budget, observer=observer)
        except LaunchError as error:
            raise PlanError(str(error), line.line) from None
        except ArgumentError as error:
            error.line = line.line
            raise
        results.append((line.kernel, result))
        if result.faults:
            break
        # What one launch wrote the next may read: what it left undefined is known where it is checked.
        written = {id(a.array) for a in args if isinstance(a, out) and (a.defined is None or a.defined.all())}
        operands = {k: v.array if isinstance(v, out) and id(v.array) in written else v for k, v in operands.items()}
    return results


def _watched(operand: out) -> out:
    """An array of which is known, from launch to launch, what is defined."""
    return out(operand.array, np.zeros(operand.array.nbytes, np.uint8))


def ready(
    module: Module,
    plan: Plan,
    symbols: Mapping[str, Value],
    operands: Mapping[str, Any],
    default_args: Sequence[str] | None = None,
) -> list[Ready]:
    """Every launch of a plan, checked and in order, to be run later and often.

    operands  as `arrays` of `run`, and the plan's `temps` too. Raises what `run` raises.
    """
    names = plan.names(symbols)
    operands = _also_named(plan, operands)
    found = []
    for line in _launches(plan):
        kernel, grid, block, args, shared = _evaluated_launch(module, line, names, operands, default_args)
        try:
            found.append(prepare(kernel, grid, block, args, shared))
        except LaunchError as error:
            raise PlanError(str(error), line.line) from None
    return found


def temps(plan: Plan, symbols: Mapping[str, Value], on: str) -> dict[str, Any]:
    """The scratch arrays of a plan by name, NumPy or CuPy (on="gpu"), full of NaN: nothing is left there to be read."""
    sizes = temp_sizes(plan, symbols)
    return {t.name: _scratch(t, n, on) for t, n in zip(plan.temps, sizes, strict=True)}


def temp_sizes(plan: Plan, symbols: Mapping[str, Value]) -> list[int]:
    """Elements of each scratch array. Raises PlanError where one has none, or all together are too large."""
    names = plan.names(symbols)
    sizes = [_integer(t.elements, names, t.line) for t in plan.temps]
    total = 0
    for temp, elements in zip(plan.temps, sizes, strict=True):
        total += elements * SCALARS[temp.type].itemsize
        if elements < 1 or total > MAX_TEMP_BYTES:
            raise PlanError(
                f"temp {temp.name} would have {elements} elements: it needs at least 1, and all temps together may "
                f"have at most {MAX_TEMP_BYTES >> 20} MiB",
                temp.line,
            )
    return sizes


def _also_named(plan: Plan, operands: Mapping[str, Any]) -> dict[str, Any]:
    """The operands, those too to which a `let` gives another name."""
    return {**operands, **{let.name: operands[let.value] for let in plan.lets if let.value in operands}}


def _launches(plan: Plan) -> tuple[Launch, ...]:
    if not plan.launches:
        raise PlanError(
            "the text does not say how it is launched: add a line such as "
            "`//@ launch NAME grid=(cdiv(Q, 128), P, N) block=128`"
        )
    return plan.launches


def _evaluated_launch(
    module: Module,
    line: Launch,
    names: Mapping[str, Value],
    operands: Mapping[str, Any],
    default_args: Sequence[str] | None,
) -> tuple[Kernel, tuple[int, ...], tuple[int, ...], list[Any], int]:
    """A launch line as (kernel, grid, block, args, shared)."""
    try:
        kernel = module[line.kernel]
        args = _arguments(kernel, line, names, operands, default_args)
    except (KernelNameError, ArgumentError) as error:
        error.line = line.line
        raise
    grid = _dimensions("grid", line.grid, names, line.line)
    block = _dimensions("block", line.block, names, line.line)
    return kernel, grid, block, args, _integer(line.shared, names, line.line)


# ---- reading


def _without_block_comments(source: str) -> str:
    """The source with every /* comment */ blanked and every line kept where it was."""
    return _COMMENT.sub(lambda m: m[0] if m[0].startswith("//") else "\n" * m[0].count("\n"), source)


def _const(text: str, consts: Mapping[str, int], line: int) -> tuple[str, int]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _NAME.fullmatch(name):
        raise PlanError(f"`//@ const {text}`: write `//@ const TILE = 256`", line)
    return name, _integer(value, consts, line)


def _let(text: str, line: int) -> Let:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not _NAME.fullmatch(name):
        raise PlanError(f"`//@ let {text}`: write `//@ let Hp = H + 2*pad`", line)
    _parsed(value, line)
    return Let(name, value, line)


def _temp(text: str, line: int) -> Temp:
    match = re.fullmatch(r"([A-Za-z_]\w*)\s+([A-Za-z_][\w ]*?)\s*\[(.*)\]", text)
    if not match or match.group(2) not in SCALARS:
        raise PlanError(f"`//@ temp {text}`: write `//@ temp col float[N*C]`, with a C type such as float or int", line)
    _parsed(match.group(3), line)
    return Temp(match.group(1), match.group(2), match.group(3), line)


def _launch(text: str, line: int) -> Launch:
    match = re.match(r"([A-Za-z_]\w*)\s*(.*)$", text)
    if not match:
        raise PlanError("`//@ launch` needs the kernel's name: `//@ launch NAME grid=... block=...`", line)
    keywords = _keywords(match.group(2), line)
    given = dict(keywords)
    if len(given) < len(keywords):
        raise PlanError("the launch says something twice: keep one grid, one block, one shared, one args", line)
    for key in given:
        if key not in _LAUNCH_KEYS:
            raise PlanError(f"a launch has no `{key}`: it has {', '.join(_LAUNCH_KEYS)}", line)
    for key in ("grid", "block"):
        if key not in given:
            raise PlanError(f"the launch of {match.group(1)} does not say `{key}=`", line)
    shared = given.get("shared", ("0",))
    if len(shared) != 1:
        raise PlanError("`shared` is one number of bytes", line)
    for key in ("grid", "block"):
        if not 1 <= len(given[key]) <= 3:
            raise PlanError(f"{key} has {len(given[key])} sizes: give one, two or three", line)
    return Launch(match.group(1), given["grid"], given["block"], shared[0], given.get("args"), line)


def _keywords(text: str, line: int) -> list[tuple[str, tuple[str, ...]]]:
    """`grid=(a, b) block=c` as [("grid", ("a", "b")), ("block", ("c",))], each part a legal expression."""
    starts = list(re.finditer(r"(?<![\w=<>!])([A-Za-z_]\w*)\s*=(?!=)", text))
    if not starts or text[: starts[0].start()].strip():
        raise PlanError(f"cannot read {text!r}: write `grid=(…) block=…`", line)
    found = []
    for this, following in zip(starts, [*starts[1:], None], strict=True):
        value = text[this.end() : following.start() if following else None].strip().rstrip(",")
        found.append((this.group(1), _tuple(value, line)))
    return found


def _tuple(text: str, line: int) -> tuple[str, ...]:
    if len(text) > expression.MAX_LENGTH:
        raise PlanError(f"an expression of {len(text)} characters: at most {expression.MAX_LENGTH} are read", line)
    try:
        tree = ast.parse(text, mode="eval").body
        parts = [ast.unparse(e) for e in tree.elts] if isinstance(tree, ast.Tuple) else [ast.unparse(tree)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise PlanError(f"{text!r} is not an expression or a list of them", line) from None
    for part in parts:
        _parsed(part, line)
    return tuple(parts)


def _parsed(text: str, line: int) -> None:
    try:
        expression.parse(text)
    except ExpressionError as error:
        raise PlanError(str(error), line) from None


# ---- evaluating


def _evaluated(text: str, symbols: Mapping[str, Value], line: int) -> Value:
    try:
        return expression.evaluate(text, symbols)
    except ExpressionError as error:
        raise PlanError(str(error), line) from None


def _integer(text: str, symbols: Mapping[str, Value], line: int) -> int:
    value = _evaluated(text, symbols, line)
    if isinstance(value, float) and not value.is_integer():
        raise PlanError(f"{text} is {value:g}, which is not a whole number: use // or cdiv", line)
    return int(value)


def _dimensions(what: str, texts: Sequence[str], symbols: Mapping[str, Value], line: int) -> tuple[int, ...]:
    sizes = tuple(_integer(text, symbols, line) for text in texts)
    for text, size in zip(texts, sizes, strict=True):
        if size < 1:
            raise PlanError(
                f"{what} = ({', '.join(map(str, sizes))}): {text} is {size}, and a size must be at least 1", line
            )
    return sizes


def _scratch(temp: Temp, elements: int, on: str) -> Any:
    dtype = SCALARS[temp.type]
    if on == "gpu":
        import cupy

        array = cupy.empty(elements, dtype)
        array.view(cupy.uint8)[...] = 0xFF
    else:
        array = np.empty(elements, dtype)
        array.view(np.uint8)[...] = 0xFF
    return array


def _arguments(
    kernel: Kernel,
    line: Launch,
    symbols: Mapping[str, Value],
    operands: Mapping[str, Any],
    default_args: Sequence[str] | None,
) -> list[Any]:
    wanted = line.args if line.args is not None else default_args
    if wanted is None:
        wanted = tuple(p.name for p in kernel.parameters or ())
    if kernel.parameters is not None and len(wanted) != len(kernel.parameters):
        declared = ", ".join(map(str, kernel.parameters))
        how = "its args= line passes" if line.args is not None else "the launch passes"
        raise ArgumentError(
            f"{kernel.name}({declared}) has {len(kernel.parameters)} parameters, "
            f"but {how} {len(wanted)}: ({', '.join(wanted)})"
        )
    return [operands[text] if text in operands else _evaluated(text, symbols, line.line) for text in wanted]
