"""Arithmetic over named sizes: the only language in which launches, thresholds and predictions are written.

Parsed with `ast` against a white list; nothing else than numbers, names, + - * / // % **, comparisons,
and/or/not, and the functions cdiv, min, max, abs, log2 can be said in it, and every result is bounded.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from .errors import ConvladderError

Number = int | float
Value = int | float | bool

#: No expression is longer, and no integer in it larger, so that none can hang its reader.
MAX_LENGTH = 1000
MAX_INTEGER = 2**63


class ExpressionError(ConvladderError, ValueError):
    """The text is not an expression of the language, or has no value here."""


def cdiv(a: Number, b: Number) -> int:
    """Ceiling division, for grids: the least number of blocks of b that cover a."""
    return math.ceil(-(-a // b))


_FUNCTIONS: dict[str, Callable] = {"cdiv": cdiv, "min": min, "max": max, "abs": abs, "log2": math.log2}
_ARITHMETIC: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def parse(text: str) -> ast.expr:
    """The expression as a tree, every node of it allowed. Raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression of {len(text)} characters: at most {MAX_LENGTH} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text.strip()!r} is not an expression: write one such as 2*N*K") from None
    try:
        _allow(tree, text.strip())
    except RecursionError:
        raise ExpressionError(f"{text.strip()[:40]!r}… is nested too deeply") from None
    return tree


def names(text: str) -> set[str]:
    """The symbols that an expression needs."""
    tree = parse(text)
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - called


def evaluate(text: str, symbols: Mapping[str, Value]) -> Value:
    """The value of an expression. Raises ExpressionError for an unknown name, a division by zero, an overflow."""
    return value(parse(text), symbols, text.strip())


def value(tree: ast.expr, symbols: Mapping[str, Value], text: str) -> Value:
    """The value of a tree from `parse`; `text` is named in the errors."""
    try:
        result = _value(tree, symbols)
    except ZeroDivisionError:
        raise ExpressionError(f"{text!r} divides by zero") from None
    except KeyError as missing:
        known = ", ".join(sorted(symbols)) or "none"
        raise ExpressionError(f"{text!r}: there is no symbol {missing.args[0]}; known are {known}") from None
    except (OverflowError, TypeError, ValueError, RecursionError):
        raise ExpressionError(f"{text!r} has no value") from None
    return result


def _allow(node: ast.AST, text: str) -> None:
    match node:
        case ast.Constant(value=v) if v is ...:
            raise ExpressionError(f"{text!r} still has its dots: write a number or an expression in their place")
        case ast.Tuple(elts=[ast.Constant(value=int()), ast.Constant(value=int())]):
            raise ExpressionError(f"{text!r} is two numbers, where one is asked for; a decimal point is a point")
        case ast.Constant(value=v) if isinstance(v, int | float):
            return
        case ast.Name():
            return
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            children: list[ast.AST] = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            children = [left, right]
        case ast.BoolOp(values=values):
            children = list(values)
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(o) in _COMPARISONS for o in ops):
            children = [left, *rest]
        case ast.Call(func=ast.Name(id=f), args=args, keywords=[]) if f in _FUNCTIONS:
            children = list(args)
        case _:
            piece = ast.unparse(node) if isinstance(node, ast.expr) else text
            raise ExpressionError(
                f"{piece!r} is not allowed here: only numbers, names, + - * / // % **, comparisons, "
                f"and {', '.join(_FUNCTIONS)}"
            )
    for child in children:
        _allow(child, text)


def _value(node: ast.AST, symbols: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value=int() | float() as v):
            result: Value = v
        case ast.Name(id=name):
            result = symbols[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            result = not _value(operand, symbols)
        case ast.UnaryOp(op=op, operand=operand):
            inner = _value(operand, symbols)
            result = -inner if isinstance(op, ast.USub) else inner
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, symbols), _value(right, symbols)
            if isinstance(op, ast.Pow) and (abs(b) > 64 or abs(a) > MAX_INTEGER):
                raise OverflowError
            result = _ARITHMETIC[type(op)](a, b)
        case ast.BoolOp(op=op, values=values):
            join = all if isinstance(op, ast.And) else any
            result = join(_value(v, symbols) for v in values)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            sides = [_value(side, symbols) for side in (left, *rest)]
            result = all(_COMPARISONS[type(o)](a, b) for o, a, b in zip(ops, sides, sides[1:]))
        case ast.Call(func=ast.Name(id=f), args=args):
            result = _FUNCTIONS[f](*(_value(a, symbols) for a in args))
        case _:
            raise TypeError
    if isinstance(result, complex) or (isinstance(result, int) and abs(result) > MAX_INTEGER):
        raise OverflowError
    return result
