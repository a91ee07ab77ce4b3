"""PyTorch's operators that end the process at wrong arguments raise ValueError in the context `checked`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from shapevm.unchecked import checked

X = torch.tensor([[4.0, 1.0, 2.0], [1.0, 5.0, 0.5], [2.0, 0.5, 6.0]])
LU, PIVOTS = torch.linalg.lu_factor(X)
LD, BLOCKS = torch.linalg.ldl_factor(X)
LINE = torch.arange(5.0)
aten = torch.ops.aten


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


NONE = ints()
CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "lu_unpack": (lambda p: torch.lu_unpack(LU, p), PIVOTS, PIVOTS + 3),
    "lu_unpack of the graph": (lambda p: aten.lu_unpack.default(LU, p), PIVOTS, PIVOTS - 1),
    "lu_unpack of too few": (lambda p: torch.lu_unpack(LU, p), PIVOTS, PIVOTS[:0]),
    "lu_solve": (lambda p: torch.linalg.lu_solve(LU, p, X), PIVOTS, PIVOTS + 1),
    "lu_solve of the graph": (lambda p: aten.linalg_lu_solve.default(LU, p, X), PIVOTS, PIVOTS * 0),
    "lu_solve by name": (lambda p: torch.linalg.lu_solve(B=X, pivots=p, LU=LU), PIVOTS, PIVOTS + 1),
    "lu_solve, a method": (lambda p: X.lu_solve(LU, p), PIVOTS, PIVOTS + 1),
    "ldl_solve": (lambda p: torch.linalg.ldl_solve(LD, p, X), BLOCKS, BLOCKS - 9),
    "bags": (lambda n: torch.nn.functional.embedding_bag(ints(1, 2), X, n, mode="max"), ints(0, 1), NONE),
    "bags of the graph": (
        lambda n: aten.embedding_bag.padding_idx(X, ints(1, 2), n, False, 2, False, None, False, None)[0],
        ints(0, 1),
        NONE,
    ),
    "lengths": (lambda n: torch.segment_reduce(LINE, "sum", lengths=n, unsafe=True), ints(2, 2), ints(2, 4)),
    "offsets": (lambda n: torch.segment_reduce(LINE, "sum", offsets=n), ints(1, 1, 5), ints(0, 6)),
    "offsets that fall": (lambda n: torch.segment_reduce(LINE, "max", offsets=n), ints(0), ints(3, 1)),
    "offsets of the graph": (
        lambda n: aten.segment_reduce.default(LINE, "max", offsets=n),
        ints(0, 5),
        ints(-1, 5),
    ),
}


@pytest.mark.filterwarnings("ignore:torch.lu_solve is deprecated")
@pytest.mark.parametrize("name", CASES)
def test_places_outside_of_the_data_are_not_used(name: str) -> None:
    function, right, wrong = CASES[name]
    expected = function(right)
    with checked():
        torch.testing.assert_close(function(right), expected)
        with pytest.raises(ValueError, match="within|outside"):
            function(wrong)
