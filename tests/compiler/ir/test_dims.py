"""Dimension expressions: their algebra, their text, their values."""

from fractions import Fraction

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from shapevm.compiler.ir.dims import (
    equal,
    evaluate,
    floordiv,
    format_dim,
    parse_dim,
    product,
    rounded,
    simplify,
    symbol,
    symbols_of,
)

S, T = symbol("s"), symbol("t")


@st.composite
def expressions(draw, depth=3):
    """Texts of dimension expressions over s and t."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["s", "t"]) | st.integers(-5, 9).map(str))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    form = draw(st.sampled_from(["({}+{})", "({}-{})", "({}*{})", "Min({},{})", "Max({},{})"]))
    if draw(st.integers(0, 4)) == 0:
        form, b = draw(st.sampled_from(["floordiv({},{})", "Mod({},{})"])), str(draw(st.integers(1, 7)))
    return form.format(a, b)


def python_value(text: str, s: int, t: int) -> int:
    names = {
        "s": s,
        "t": t,
        "Min": min,
        "Max": max,
        "floordiv": lambda a, b: a // b,
        "Mod": lambda a, b: a % b,
    }
    return eval(text, {"__builtins__": {}}, names)


@settings(deadline=None)
@given(expressions(), st.integers(0, 50), st.integers(0, 50))
def test_values_are_pythons(text, s, t):
    assert evaluate(parse_dim(text), {"s": s, "t": t}) == python_value(text, s, t)


@settings(deadline=None)
@given(expressions())
def test_text_round_trip(text):
    dim = parse_dim(text)
    again = parse_dim(format_dim(dim))
    assert equal(dim, again) and again == simplify(dim)


def test_sizes_padded_to_a_multiple_are_that():
    padded = parse_dim("n+Mod(-n,64)")
    assert equal(padded, parse_dim("64*floordiv(n+Mod(-n,64),64)"))
    assert parse_dim("floordiv(n+Mod(-n,64),floordiv(n+Mod(-n,64),64))") == 64


def test_both_sides_of_a_quotient_may_have_remainders():
    n, m = sympy.symbols("n m", integer=True, nonnegative=True)
    padded = (n + sympy.Mod(2 * n, 3)) * (m + sympy.Mod(2 * m, 3))
    windows = simplify(S * T * (n - floordiv(2 * n, 3)) * (m - floordiv(2 * m, 3)))
    assert floordiv(9 * windows, simplify(S * padded)) == T


def test_equality_is_of_polynomials():
    assert equal((S + 1) * (S - 1), S**2 - 1) and not equal(S, T)
    assert equal(2 * S, S + S) and not equal(S, 1)


def test_exact_divisions_disappear():
    assert floordiv(4 * S * T, 2 * S) == 2 * T and floordiv(S, 1) == S
    assert floordiv(2 * S + 1, 2) == S and floordiv(4 * S + T - 3, 2) == 2 * S - 2 + floordiv(T + 1, 2)
    assert floordiv(6 * S * floordiv(T, 2), 3 * S) == 2 * floordiv(T, 2)
    assert floordiv(floordiv(S + 3, 2) - 1, 5) == floordiv(S + 1, 10)
    assert floordiv(2 * T + floordiv(S, 5) - 4, 2) == T - 2 + floordiv(S, 10)
    assert floordiv(floordiv(S, T), 2) != floordiv(S, 2 * T) and floordiv(floordiv(S, -2), 3) != floordiv(
        S, -6
    )
    assert isinstance(floordiv(S + 1, 2), floordiv) and evaluate(floordiv(S + 1, 2), {"s": 4}) == 2


def test_constants_are_ints():
    assert type(simplify(S - S + 3)) is int and type(product((2, 3))) is int and product(()) == 1
    assert product((S, 4)) == 4 * S


def test_symbols():
    assert symbols_of(S * T + 1) == {"s", "t"} and symbols_of(3) == frozenset()


@pytest.mark.parametrize(
    "text", ["", "s +", "s / 2", "f(s)", "1.5", "s[0]", "__import__('os')", "s**t", "'s'"]
)
def test_refused(text):
    with pytest.raises(ValueError, match="dimension"):
        parse_dim(text)


def test_missing_symbol():
    with pytest.raises(KeyError, match="t"):
        evaluate(S + T, {"s": 1})


@pytest.mark.parametrize("below", [1, 2, 3, 4, 6, 7])
def test_halves_are_rounded_to_the_even_integer(below: int) -> None:
    n = symbol("n")
    expression = rounded(3 * n - 5, below)
    for at in range(20):
        assert expression.subs(n, at) == round(Fraction(3 * at - 5, below))
