"""Reading memory by strides: what tracing says of a layout that eager does not keep is no wrong result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import shapevm

from ..ops.test_torch import Function

Layout = Callable[[Tensor], Tensor]


def image() -> Tensor:
    """Return a channels-last image of which eager keeps the layout."""
    return torch.arange(100.0).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)


def strided(make: Layout) -> Layout:
    return lambda x: torch.as_strided(make(x), (5, 10), (4, 1), 0)


def rolled(x: Tensor) -> Tensor:
    return torch.roll(x, -1, 0)


def cloned(x: Tensor) -> Tensor:
    return torch.roll(x, -1, 0).clone(memory_format=torch.contiguous_format)


def multiplied(x: Tensor) -> Tensor:
    return x.flatten(1).t() @ x.flatten(1)


def test_a_layout_that_tracing_does_not_know_is_refused() -> None:
    with pytest.raises(shapevm.errors.UnsupportedOp, match="another layout .* clone the tensor"):
        shapevm.compile(Function(strided(rolled)), (image(),))


@pytest.mark.parametrize("make", [cloned, multiplied])
def test_rows_that_are_certain(make: Layout) -> None:
    exe = shapevm.compile(Function(strided(make)), (image(),))
    torch.testing.assert_close(exe(image()), strided(make)(image()))


def test_rows_of_rows() -> None:
    x = image().contiguous()
    exe = shapevm.compile(Function(strided(rolled)), (x,))
    assert torch.equal(exe(x), strided(rolled)(x))


CALLS: dict[str, Layout] = {
    "transposed": lambda x: x.contiguous().transpose(1, 3).contiguous().transpose(1, 3),
    "in the middle of its memory": lambda x: torch.cat([x, x])[2:],
}


@pytest.mark.parametrize("make", [lambda x: x, torch.relu, lambda x: x.permute(0, 1, 2, 3) * 2])
@pytest.mark.parametrize("call", CALLS)
def test_an_input_that_lies_otherwise_in_a_call_is_refused(make: Layout, call: str) -> None:
    x = image().contiguous()
    with shapevm.compile(Function(strided(make)), (x,)) as exe:
        for _ in range(4):
            assert torch.equal(exe(x), strided(make)(x))
        with pytest.raises(shapevm.errors.ArgumentError, match='"args.0".* contiguous copy'):
            exe(CALLS[call](x))


def test_a_layout_that_does_not_matter_is_free() -> None:
    x = image().contiguous()
    with shapevm.compile(Function(strided(cloned)), (x,)) as exe:
        other = CALLS["transposed"](x)
        torch.testing.assert_close(exe(other), strided(cloned)(other))


def test_torch_compile_runs_such_a_graph_in_pytorch() -> None:
    run = torch.compile(strided(rolled), backend="shapevm")
    assert torch.equal(run(image()), strided(rolled)(image()))
