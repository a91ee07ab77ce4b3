"""Integers divided by zero raise DivisionByZero, as in eager, on every tier and in every kind of program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import shapevm

from .test_torch import Function

Binary = Callable[[Tensor, Tensor], Tensor]
NATIVE = shapevm.Options(fallback="error")


def in_place(x: Tensor, y: Tensor) -> Tensor:
    x = x + 0
    x //= y
    x.remainder_(y)
    return x


DIVISIONS: dict[str, Binary] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "in place": in_place,
    "by a number": lambda x, y: x // y[0].item(),
    "of a number": lambda x, y: 7 % y,
    "summed": lambda x, y: (x // y).sum(0),
    "before a product": lambda x, y: torch.outer(x % y, x) @ x,
    "behind a product": lambda x, y: (torch.outer(x, x) @ x[:, None])[:, 0] // y,
}


@contextmanager
def compiled(function: Binary, *args: Tensor, scripted: bool = False) -> Iterator[shapevm.Executable]:
    shapes = tuple(dict.fromkeys(range(arg.dim()), Dim.AUTO) for arg in args)
    if scripted:
        yield shapevm.compile(torch.jit.script(function), args=args)
    else:
        yield shapevm.compile(Function(function), args, dynamic_shapes=(shapes,), options=NATIVE)


def numbers(n: int, zero_at: int | None = None, dtype: torch.dtype = torch.int64) -> tuple[Tensor, Tensor]:
    """Return n numbers and n divisors, one of which may be 0."""
    x, y = torch.arange(n).to(dtype) + 3, (torch.arange(n) % 5 + 1).to(dtype)
    if zero_at is not None:
        y[zero_at] = 0
    return x, y


@pytest.mark.parametrize("name", DIVISIONS)
def test_a_divisor_of_zero(name: str) -> None:
    function = DIVISIONS[name]
    with compiled(function, *numbers(6)) as exe:
        for n in (1, 6, 16, 37, 4099):
            for strategy in ("generic", "jit"):
                run = exe.using(strategy)
                assert torch.equal(run(*numbers(n)), function(*numbers(n)))
                places = (0,) if name == "by a number" else (0, n - 1, n // 2)
                for place in places:
                    with pytest.raises(shapevm.errors.DivisionByZero, match="by 0"):
                        run(*numbers(n, place))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_every_dtype(dtype: torch.dtype) -> None:
    with compiled(lambda x, y: x // y, *numbers(6, dtype=dtype)) as exe:
        assert torch.equal(
            exe(*numbers(37, dtype=dtype)), torch.div(*numbers(37, dtype=dtype), rounding_mode="floor")
        )
        with pytest.raises(shapevm.errors.DivisionByZero):
            exe(*numbers(37, 36, dtype))


def test_what_is_empty_is_not_divided() -> None:
    def broadcast(x: Tensor, y: Tensor) -> Tensor:
        return x // y

    with compiled(broadcast, torch.ones(3, 4, dtype=torch.int64), torch.ones(3, 1, dtype=torch.int64)) as exe:
        zeros = torch.zeros(3, 1, dtype=torch.int64)
        for strategy in ("generic", "jit"):
            assert exe.using(strategy)(torch.ones(3, 0, dtype=torch.int64), zeros).shape == (3, 0)
            with pytest.raises(shapevm.errors.DivisionByZero):
                exe.using(strategy)(torch.ones(3, 5, dtype=torch.int64), zeros)


def test_divisors_that_are_known() -> None:
    table = torch.tensor([2, 3, 0])
    with compiled(lambda x, y: x // 3 + x % table[:2].sum() + y // x.shape[0], *numbers(6)) as exe:
        x, y = numbers(9)
        assert torch.equal(exe(x, y), x // 3 + x % 5 + y // 9)
    with (
        compiled(lambda x, y: x // table + y, *numbers(3)) as exe,
        pytest.raises(shapevm.errors.DivisionByZero),
    ):
        exe(*numbers(3))
    with compiled(lambda x, y: x // 0 + y, *numbers(3)) as exe, pytest.raises(shapevm.errors.DivisionByZero):
        exe(*numbers(3))


def scripted(x: Tensor, y: Tensor) -> Tensor:
    if bool((y == 0).any()):
        y = y + 1
    x = x // y
    x %= y
    return torch.div(x, y, rounding_mode="trunc")


def scripted_plain(x: Tensor, y: Tensor) -> Tensor:
    return x // y


def test_torchscript_branches_as_eager() -> None:
    with compiled(scripted, *numbers(6), scripted=True) as exe:
        for args in (numbers(6), numbers(6, 3)):
            assert torch.equal(exe(*args), scripted(*args))
    with (
        compiled(scripted_plain, *numbers(6), scripted=True) as exe,
        pytest.raises(shapevm.errors.DivisionByZero),
    ):
        exe(*numbers(6, 3))


def test_torch_compile() -> None:
    run = torch.compile(lambda x, y: x % y, backend="shapevm", dynamic=True)
    assert torch.equal(run(*numbers(6)), torch.remainder(*numbers(6)))
    with pytest.raises(shapevm.errors.DivisionByZero):
        run(*numbers(6, 2))


def test_divisors_of_rows_and_pieces() -> None:
    """A divisor that is read once for a row is none where the row is empty, nor is one in an empty piece."""
    cases: dict[str, Binary] = {
        "rows": lambda x, y: (x // y[:, None]).sum(1),
        "by a sum": lambda x, y: x // (x * 0 + y[:, None]).sum(1, keepdim=True),
        "pieces": lambda x, y: torch.cat([x // y[:, None], x + 1], 1) * 2,
    }
    for name, function in cases.items():
        x, y = torch.arange(12).reshape(3, 4), torch.tensor([1, 2, 3])
        with compiled(function, x, y) as exe:
            for strategy in ("generic", "jit"):
                run = exe.using(strategy)
                assert torch.equal(run(x, y), function(x, y)), name
                with pytest.raises(shapevm.errors.DivisionByZero):
                    run(x, torch.tensor([1, 2, 0]))
                if name != "by a sum":
                    empty, zeros = torch.zeros(3, 0, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
                    assert torch.equal(run(empty, zeros), function(empty, zeros)), name
