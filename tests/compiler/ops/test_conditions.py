"""Guards on sizes: what the contract proves needs none."""

import pytest
import sympy
import torch
from shapevm.compiler.ir.dims import symbol
from shapevm.compiler.ir.errors import ShapeError
from shapevm.compiler.ir.graph import Builder, Graph, SymbolInfo
from shapevm.compiler.ops.conditions import add_guard, is_proved

import shapevm

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


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return x[i.item()] + x.narrow(0, (j * 2).sum().item(), 1)[0]


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        (5, 0, "select: index .* at least -3 and less than 3; here int_0, read from i, is 5"),
        (-4, 0, "here int_0, read from i, is -4"),
        (0, 2, "must be at least -3 and at most 3; here int_1, read from a computed tensor, is 4"),
    ],
)
@pytest.mark.parametrize("strategy", ["generic", "jit"])
def test_numbers_that_a_condition_reads_are_named(i, j, message, strategy):
    x, args = torch.arange(12.0).reshape(3, 4), (torch.tensor(1), torch.tensor(1))
    with shapevm.compile(Rows(), (x, *args), strategy=strategy) as exe:
        for _ in range(3):
            assert torch.equal(exe(x, *args), Rows()(x, *args))
            with pytest.raises(shapevm.errors.GuardError, match=message):
                exe(x, torch.tensor(i), torch.tensor(j))
