"""Updates at places that an index chooses, from torch to kernels: eager PyTorch's values at every size."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shapevm

from .test_torch import Function, boolean, f16, f32, f64, i32, i64, tensor, u8

SIZES = (6, 1, 17)

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def check(
    function: Callable[..., Any],
    specs: tuple[Any, ...],
    sizes: tuple[int, ...] = SIZES,
    tolerance: float = 0,
) -> None:
    """Compare with eager at `sizes`, generic kernels and exact ones; both give the same bits."""
    model, n = Function(function), torch.export.Dim("n", min=min(sizes), max=100)
    dynamic = tuple({i: n for i, size in enumerate(shape) if size == "n"} or None for shape, _ in specs)
    example = tuple(tensor(shape, dtype, max(sizes[0], 2), i) for i, (shape, dtype) in enumerate(specs))
    programs = [
        shapevm.compile(model, example, dynamic_shapes=(dynamic,), strategy=strategy)
        for strategy in ("generic", "jit")
    ]
    for size in sizes:
        inputs = [tensor(shape, dtype, size, i) for i, (shape, dtype) in enumerate(specs)]
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
        first, second = (torch.utils._pytree.tree_leaves(program(*inputs)) for program in programs)
        for ours, exact, wanted in zip(first, second, expected, strict=True):
            assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
            torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
            assert torch.equal(ours.nan_to_num(), exact.nan_to_num())


X, ROWS = (("n", 5), f32), ((7,), i64)
INDEX = (("n", 3), i64)


def reduced(reduce: str, include_self: bool = True) -> Callable[..., Any]:
    return lambda x, i, s: x.scatter_reduce(1, i % 5, s[:, :3], reduce, include_self=include_self)


CASES: list[Case] = [
    ("scatter_add", lambda x, i, s: x.scatter_add(1, i % 5, s), (X, INDEX, X)),
    (
        "scatter_add first",
        lambda x, i, s: x.scatter_add(0, i % 4, s),
        (((4, 3), f32), INDEX, (("n", 3), f32)),
    ),
    ("scatter_add few", lambda x, i, s: x.scatter_add(0, i % 4, s), (((4, 9), f32), INDEX, (("n", 8), f32))),
    (
        "scatter_add deep",
        lambda x, i, s: x.scatter_add(1, i % 4, s),
        (((2, 4, "n"), f64), ((2, 6, "n"), i64), ((2, 6, "n"), f64)),
    ),
    (
        "scatter_add half",
        lambda x, i, s: x.scatter_add(1, i % 5, s),
        ((("n", 5), f16), INDEX, (("n", 5), f16)),
    ),
    (
        "scatter_add ints",
        lambda x, i, s: x.scatter_add(1, i % 5, s),
        ((("n", 5), i32), INDEX, (("n", 5), i32)),
    ),
    (
        "scatter",
        lambda x, i: (
            x.scatter(1, torch.arange(3).expand(x.shape[0], 3), 2.5),
            x.scatter(0, i[:1] * 0, x + 1),
        ),
        (X, INDEX),
    ),
    ("scatter zero-d", lambda x: torch.zeros(()).scatter(0, torch.tensor(0), 3.0) + x, (X,)),
    (
        "scatter reduce",
        lambda x, i, s: (x.scatter(1, i % 5, s, reduce="add"), x.scatter(1, i % 5, 2, reduce="multiply")),
        (X, INDEX, X),
    ),
    *[
        (f"scatter_reduce {r} {own}", reduced(r, own), (X, INDEX, X))
        for r in ("sum", "prod", "amax", "amin", "mean")
        for own in (True, False)
    ],
    *[
        (f"scatter_reduce ints {r}", reduced(r, False), ((("n", 5), i64), INDEX, (("n", 5), i64)))
        for r in ("amax", "amin", "mean")
    ],
    (
        "index_add",
        lambda x, i, s: (x.index_add(1, i % 5, s), x.index_add(1, i % 5, s, alpha=3)),
        (X, ROWS, (("n", 7), f32)),
    ),
    (
        "index_add rows",
        lambda x, i, s: x.index_add(0, i % 4, s),
        (((4, 3, 2), f32), (("n",), i64), (("n", 3, 2), f32)),
    ),
    ("index_copy", lambda x, s: x.index_copy(1, torch.tensor([3, 0]), s), (X, (("n", 2), f32))),
    (
        "index_fill",
        lambda x, i: (x.index_fill(1, i % 5 - 5, 7.0), x.index_fill(1, i % 5, torch.tensor(2.0))),
        (X, ROWS),
    ),
    *[
        (f"index_reduce {r}", lambda x, i, s, r=r: x.index_reduce(1, i % 5, s, r), (X, ROWS, (("n", 7), f32)))
        for r in ("prod", "amax", "amin", "mean")
    ],
    (
        "index_put",
        lambda x, v: x.index_put((torch.tensor([4, 0, 2]),), v),
        (((5, "n"), f32), ((3, "n"), f32)),
    ),
    (
        "index_put accumulate",
        lambda x, i, v: x.index_put((i % 5 - 5,), v, accumulate=True),
        (((5, "n"), f32), (("n",), i64), (("n", "n"), f32)),
    ),
    (
        "index_put in place",
        lambda x, i, v: torch.ops.aten._index_put_impl_(x.clone(), [i % 5], v, True, True),
        (((5, 3), f32), (("n",), i64), (("n", 3), f32)),
    ),
    (
        "index_put two",
        lambda x, i: x.index_put((i % 5, i % 3), torch.tensor(4.0)),
        (((5, 3, "n"), f32), (("n",), i64)),
    ),
    (
        "index_put later",
        lambda x, i, v: torch.ops.aten.index_put(x, [None, i % 3, i % 2], v, True),
        ((("n", 3, 2), f32), ((4,), i64), ((4,), f32)),
    ),
    (
        "index_put apart",
        lambda x, i: torch.ops.aten.index_put(x, [i % 4, None, i % 2], torch.ones(()), True),
        (((4, "n", 2), f32), ((5,), i64)),
    ),
    (
        "index_put grid",
        lambda x, v: x.index_put((torch.tensor([[1], [0]]), torch.tensor([2, 0, 1])), v),
        (((2, 3, "n"), f32), ((2, 3, "n"), f32)),
    ),
    ("index_put mask", lambda x: x.index_put((x > 0,), torch.tensor(-1.0)), (X,)),
    ("assignment", lambda x: _assigned(x), (X,)),
    (
        "put",
        lambda x, i, s: (x.put(i % 5, s, accumulate=True), x.put(torch.tensor([4, -1]), s[:2])),
        (X, ROWS, ((7,), f32)),
    ),
    ("one_hot", lambda i: torch.nn.functional.one_hot(i % 4, 4), ((("n", 2), i64),)),
    ("bool", lambda x, i, s: x.index_put((i % 5,), s), (((5,), boolean), ((1,), i64), ((1,), boolean))),
    ("bytes", lambda x, i, s: x.scatter_add(0, i % 9, s), (((9,), u8), ((2,), i64), ((2,), u8))),
    (
        "embedding_dense_backward",
        lambda g, i: (
            torch.ops.aten.embedding_dense_backward(g, i % 6, 6, -1, False),
            torch.ops.aten.embedding_dense_backward(g, i % 6, 6, 2, False),
        ),
        ((("n", 3, 8), f32), INDEX),
    ),
]


def _assigned(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, torch.tensor([0, 2])] = -1.0
    x[x > 1] = 0.0
    return x


@pytest.mark.parametrize(("name", "function", "specs"), CASES, ids=[case[0] for case in CASES])
def test_scatter(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs, tolerance=2e-3 if "half" in name else 2e-6)


def test_indices_out_of_range_are_named() -> None:
    program = shapevm.compile(
        Function(lambda x, i: x.scatter_add(0, i, x)), (torch.ones(4), torch.zeros(4, dtype=i64))
    )
    with pytest.raises(Exception, match="index 4 is out of range for an axis of size 4"):
        program(torch.ones(4), torch.tensor([0, 1, 2, 4]))


def test_assigned_values_of_run_time_size_may_be_one() -> None:
    def assigned(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.index_put(x, [mask], values)

    auto, native = torch.export.Dim.AUTO, shapevm.Options(fallback="error")
    mask = torch.tensor([True, False, True])
    model, shapes = Function(assigned), (({0: auto}, {0: auto}, {0: auto}),)
    example = torch.randn(3), mask, torch.randn(2)
    with shapevm.compile(model, example, dynamic_shapes=shapes, options=native) as exe:
        for other in (mask, torch.tensor([True]), torch.tensor([True, True, False, True])):
            for n in {1, int(other.sum())}:
                args = torch.randn(len(other)), other, torch.randn(n)
                torch.testing.assert_close(exe(*args), model(*args))
        with pytest.raises(shapevm.Error, match="axis 0 of the values must be as long"):
            exe(torch.randn(3), torch.tensor([True, True, True]), torch.randn(2))
