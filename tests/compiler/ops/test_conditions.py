"""Guards on sizes: what the contract proves needs none."""

import pytest
import sympy
from shapevm.compiler.ir.dims import symbol
from shapevm.compiler.ir.errors import ShapeError
from shapevm.compiler.ir.graph import Builder, Graph, SymbolInfo
from shapevm.compiler.ops.conditions import add_guard, is_proved

S, T = symbol("s"), symbol("t")
HOLDS, MAY_HOLD = sympy.Ge(S, 3), sympy.Ge(T, 5)


@pytest.fixture
def builder():
    return Builder(Graph("g", symbols={n: SymbolInfo(n, 3, 100) for n in ("s", "t")}))


@pytest.mark.parametrize(
    ("condition", "proved"),
    [
        (HOLDS, True),
        (MAY_HOLD, False),
        (HOLDS & MAY_HOLD, False),
        (HOLDS | MAY_HOLD, True),
        (sympy.Or(sympy.And(HOLDS, sympy.Ne(S, T), evaluate=False), sympy.Lt(T, S)), False),
        (sympy.Or(sympy.And(HOLDS, sympy.Ge(T, 2), evaluate=False), sympy.Eq(S, T)), True),
        (sympy.Not(sympy.Eq(S, T) & MAY_HOLD), False),
        (sympy.true, True),
    ],
)
def test_what_the_contract_proves(builder, condition, proved):
    assert is_proved(builder, condition) == proved
    add_guard(builder, condition, "it must hold")
    assert [node.op for node in builder.block.nodes].count("guard") == int(not proved)


def test_what_never_holds_is_refused(builder):
    with pytest.raises(ShapeError, match="it must hold"):
        add_guard(builder, sympy.false, "it must hold")
