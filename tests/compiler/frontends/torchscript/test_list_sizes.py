"""`dynamic_shapes` of tensors in lists and dicts of any structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import shapevm


def total(y: Tensor, xs: list[Tensor], table: dict[str, tuple[Tensor, int]]) -> Tensor:
    for x in xs:
        y = y + x.sum(0)
    for part, n in table.values():
        y = y * part.sum() + n
    return y


WIDTH, ROWS = Dim("width", max=64), Dim("rows", min=1, max=8)
EXAMPLE = (torch.randn(4), [torch.randn(2, 4), torch.randn(3, 4)], {"k": (torch.randn(3), 2)})
SHAPES = ({0: WIDTH}, [{0: ROWS, 1: WIDTH}] * 2, {"k": ({}, None)})


def compiled(shapes: Any) -> shapevm.Executable:
    return shapevm.compile(torch.jit.script(total), EXAMPLE, dynamic_shapes=shapes, strategy="generic")


@pytest.fixture(scope="module")
def exe() -> Iterator[shapevm.Executable]:
    with compiled(SHAPES) as made:
        yield made


@pytest.mark.parametrize("width, rows, keys", [(4, (2, 3), "k"), (1, (), ""), (7, (8, 1, 1), "abc")])
def test_any_length(exe: shapevm.Executable, width: int, rows: tuple[int, ...], keys: str) -> None:
    table = {key: (torch.randn(3), i) for i, key in enumerate(keys)}
    args = (torch.randn(width), [torch.randn(n, width) for n in rows], table)
    torch.testing.assert_close(exe(*args), torch.jit.script(total)(*args))


X = 'input "xs": axis'


@pytest.mark.parametrize(
    "xs, part, message",
    [
        ([torch.ones(2, 4), torch.ones(2, 3)], 3, f"{X} 1 of every tensor must have size width"),
        ([torch.ones(9, 4)], 3, f"{X} 0 of every tensor must have size 8 or less"),
        ([torch.ones(0, 4)], 3, f"{X} 0 of every tensor must have size 1 or more"),
        ([], 2, 'input "table.values.0": axis 0 of every tensor must have size 3'),
    ],
)
def test_other_sizes(exe: shapevm.Executable, xs: list[Tensor], part: int, message: str) -> None:
    with pytest.raises(shapevm.Error, match=message):
        exe(torch.ones(4), xs, {"k": (torch.ones(part), 0)})


def test_sizes_that_differ_keep_the_length() -> None:
    other = ({0: WIDTH}, [{0: ROWS, 1: WIDTH}, {1: WIDTH}], {"k": ({}, None)})
    fixed = [torch.randn(2, 4), torch.randn(3, 4)]
    with compiled(other) as made:
        made(torch.randn(2), [torch.randn(5, 2), torch.randn(3, 2)], {"z": (torch.randn(3), 1)})
        with pytest.raises(
            shapevm.ArgumentError,
            match="xs is a list of 1; it must be a list of 2, because dynamic_shapes says",
        ):
            made(torch.randn(4), fixed[:1], {})
