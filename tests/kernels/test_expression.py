"""The arithmetic in which launches and thresholds are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convladder.kernels import expression
from convladder.kernels.expression import ExpressionError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cdiv(P*Q, 128)", 2),
        ("min(P, Q) - max(1, 2)", 13),
        ("-P // 2 + P % 4", -8),
        ("P / 2", 8.5),
        ("P == 17 and not Q < 2", True),
        ("1 < Q <= 15 or P", True),
        ("2**10", 1024),
        ("abs(-3)", 3),
        ("log2(8)", 3),
    ],
)
def test_expressions_have_their_usual_value(text, value):
    assert expression.evaluate(text, {"P": 17, "Q": 15}) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "P.real", "[1, 2]", "P if Q else 1", "lambda: 1", "f'{P}'", "'a' * 9", "open(1)", "P := 3",
        "P[0]", "P << 2", "cdiv(*P)", "cdiv(a=1)", "(", "", "1;2", "P\n+", "min", "1j", "x" * 2000, "(" * 500,
        "-" * 998 + "1",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ExpressionError):
        expression.evaluate(text, {"P": 1, "Q": 2})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 // 0", "divides by zero"),
        ("P % 0", "divides by zero"),
        ("X + 1", "no symbol X; known are P"),
        ("9**99999999", "no value"),
        ("10**64 * 10**64", "no value"),
        ("(-8)**0.5", "no value"),
    ],
)
def test_what_has_no_value_says_why(text, says):
    with pytest.raises(ExpressionError, match=says):
        expression.evaluate(text, {"P": 1})


def test_names_are_the_symbols_an_expression_needs():
    assert expression.names("cdiv(P*Q, TILE) + min(1, K)") == {"P", "Q", "TILE", "K"}


@given(st.text(max_size=40))
def test_no_text_does_more_than_raise_its_own_error(text):
    try:
        result = expression.evaluate(text, {"P": 3})
    except ExpressionError:
        return
    assert isinstance(result, int | float)
