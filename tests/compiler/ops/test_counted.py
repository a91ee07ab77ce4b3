"""Modes, histograms, segments, bags, pools placed by samples, memory's strides: eager PyTorch's values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shapevm.vm.errors import GuardError

import shapevm

from .test_scatter import check
from .test_torch import Function, bf16, f32, f64, i64

X = ((("n", 5), f32),)
FIXED = (((6, 5), f32),)  # torch.export takes no other
IMAGES = ((("n", 2, 7, 9), f32),)
INTS = ((("n", 4, 6), i64),)
EDGES = torch.tensor([-2.0, -0.5, 0.25, 1.0])
SAMPLES = torch.rand(1, 2, 2, generator=torch.Generator().manual_seed(1))
BAGS = torch.tensor([0, 2, 2, 5])


def bags(mode: str, **options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        table, places = x[:1].sum(0)[:, None] + torch.arange(5.0), torch.tensor([1, 0, 4, 4, 2, 3])
        return F.embedding_bag(places, table.to(x.dtype), BAGS, mode=mode, **options)

    return run


def segments(reduce: str, **options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([2, 0, 3]).expand(x.shape[0], 3)
        return torch.segment_reduce(x, reduce, lengths=lengths, axis=1, unsafe=True, **options)

    return run


def segments_between(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Nothing before the first offset counts, nor does what is behind the last."""
    offsets = torch.tensor([1, 3, 3, 4]).expand(x.shape[0], 4)
    kinds = ("sum", "max", "min", "prod", "mean")
    return tuple(torch.segment_reduce(x, kind, offsets=offsets, axis=1, unsafe=True) for kind in kinds)


def pooled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    samples = SAMPLES.expand(x.shape[0], 2, 2)
    values, places = torch.ops.aten.fractional_max_pool2d(x, [2, 3], [4, 5], samples)
    return values, places


def gradient(x: torch.Tensor) -> torch.Tensor:
    values, places = F.max_pool2d(x, 3, 2, return_indices=True)
    arguments = [3, 3], [2, 2], [0, 0], [1, 1], False
    return torch.ops.aten.max_pool2d_with_indices_backward(values * 2, x, *arguments, places)


def strided_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x[:0].as_strided((2, 2), (2, 1)) + 1,
        x.t().as_strided((3, 2), (2, 1)),
        x[1:, 2:].as_strided((3,), (2,)),
        (x * 2)[:, ::2].as_strided((2, 2), (3, 1), 4),
        torch.as_strided_copy(x[2:], (2,), (1,)),
    )


CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("mode", lambda x: (x.mode(1)[0], x.mode(-1, keepdim=True)[0], x.mode(2)[0]), INTS),
    ("mode of floats", lambda x: x.round().mode(1)[0], X),
    ("histc", lambda x: (torch.histc(x, 7, -1, 1.5), torch.histc(x, 3, -2, 2)), X),
    ("histogram of edges", lambda x: torch.histogram(x, EDGES)[0], FIXED),
    ("histogram of weights", lambda x: torch.histogram(x, EDGES, weight=x * x)[0], FIXED),
    ("histogram of a range", lambda x: torch.histogram(x, 6, range=(-1.0, 2.0)), FIXED),
    ("embedding_bag sum", bags("sum"), X),
    ("embedding_bag mean", bags("mean", padding_idx=4), X),
    ("embedding_bag max", bags("max"), X),
    ("embedding_bag weights", bags("sum", per_sample_weights=torch.arange(6.0)), X),
    ("embedding_bag last offset", bags("sum", include_last_offset=True), X),
    ("segments", lambda x: tuple(segments(kind)(x) for kind in ("sum", "max", "min", "prod", "mean")), X),
    ("segments between", segments_between, X),
    ("segments begun", lambda x: tuple(segments(kind, initial=2)(x) for kind in ("sum", "max")), X),
    ("fractional pool", pooled, IMAGES),
    ("gradient of a pool", gradient, IMAGES),
    ("antialiased", lambda x: F.interpolate(x, (3, 12), mode="bilinear", antialias=True), IMAGES),
    ("antialiased cubic", lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True), IMAGES),
    ("antialiased lanczos", lambda x: F.interpolate(x, (3, 12), mode="lanczos", antialias=True), IMAGES),
    ("as_strided of views", strided_views, FIXED),
    ("as_strided", lambda x: (x + 0).as_strided((x.shape[0], 3, 2), (5, 1, 2), 0), X),
    (
        "as_strided_scatter",
        lambda x: torch.as_strided_scatter(x, x[:, :2] * 3, (x.shape[0], 2), (5, 2), 0),
        X,
    ),
    ("tensor_split", lambda x: torch.tensor_split(x, torch.tensor([1, 3, 2, -1]), 1), X),
    ("unique_consecutive of slices", lambda x: torch.unique_consecutive(x // 6, True, True, 1), INTS),
    (
        "linspace",
        lambda x: (
            x[:1, 0] + torch.linspace(4.3, -1.0, 9),
            x[:1, 0] + torch.linspace(4.3, 0, 50, dtype=i64),
            x[:1, 0] + torch.linspace(x.sum(), 7, 1),
            torch.linspace(x.sum() + 4.3, 0, 50, dtype=i64),
        ),
        X,
    ),
    (
        "logspace",
        lambda x: (
            x[:1, 0] + torch.logspace(1.3, -1, 6, 2.0),
            torch.logspace(4.3, x.mean(), 2, 5.0, dtype=torch.bfloat16),
            x[:1, 0] + torch.logspace(0, 4.5, 7, dtype=i64),
        ),
        X,
    ),
    ("linspace in bf16", lambda x: x[:1, 0] + torch.linspace(-2.0, 1, 50, dtype=torch.bfloat16), X),
    ("linspace in f16", lambda x: x[:1, 0] + torch.linspace(4.3, x.shape[0], 33, dtype=torch.float16), X),
    ("logspace of one", lambda x: x[:1, 0] + torch.logspace(4.3, -3, 1, dtype=torch.bfloat16), X),
    ("avg_pool by a negative number", lambda x: F.avg_pool2d(x[:, None], 2, divisor_override=-2), INTS),
    (
        "arange in i64 from floats",
        lambda x: x[0, 0, :1] + torch.arange(2.1, -2.9, -1.0, dtype=torch.int64),
        INTS,
    ),
    (
        "arange in i32 and bf16 from floats",
        lambda x: [x[:1, :1] + torch.arange(2.1, -2.9, -1.0, dtype=d) for d in (torch.int32, torch.bfloat16)],
        X,
    ),
    ("arange in bf16 beyond 256", lambda x: x[:1, :1] + torch.arange(257, 261, dtype=torch.bfloat16), X),
    ("avg_pool of integers", lambda x: (F.avg_pool1d(x, 2), F.avg_pool1d(x, 3, 2, 1)), INTS),
    ("conv f64", lambda x, w: F.conv1d(x, w, stride=2, padding=1), ((("n", 2, 8), f64), ((3, 2, 3), f64))),
    ("conv of integers", lambda x, w: F.conv1d(x, w, groups=2), ((("n", 4, 8), i64), ((6, 2, 3), i64))),
    (
        "transposed conv f64",
        lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=1, output_padding=1, dilation=2),
        ((("n", 2, 8), f64), ((2, 3, 3), f64)),
    ),
    (
        "attention f64",
        lambda q, k: F.scaled_dot_product_attention(q, k, k * 2, is_causal=True),
        ((("n", 4, 8), f64), (("n", 6, 8), f64)),
    ),
]
#: What eager computes without a look at its sizes.
UNCHECKED = ("segments", "segments begun", "fractional pool", "gradient of a pool")


@pytest.mark.parametrize(
    ("name", "function", "specs"),
    [
        pytest.param(*case, id=case[0], marks=[pytest.mark.as_given] * (case[0] in UNCHECKED))
        for case in CASES
    ],
)
def test_counted(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs, (6, 1, 17), tolerance=5e-6)


def _compiled(forward: Any, *args: torch.Tensor) -> shapevm.Executable:
    return shapevm.compile(type("Model", (torch.nn.Module,), {"forward": forward})(), args)


@pytest.mark.as_given
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_all_results_of_bags(mode: int) -> None:
    def run(self: Any, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> Any:
        return torch.ops.aten._embedding_bag(weight, indices, offsets, False, mode)

    args = torch.randn(10, 3), torch.tensor([1, 0, 4, 4, 2, 3]), torch.tensor([0, 2, 2])
    with _compiled(run, *args) as exe:
        torch.testing.assert_close(tuple(exe(*args)), tuple(run(None, *args)))


def test_repeats_keep_their_dtype() -> None:
    for dtype in (torch.int32, torch.int64):
        x, repeats = torch.randn(3, 2), torch.tensor([1, 0, 3], dtype=dtype)
        for run in (
            lambda self, x, r: torch.repeat_interleave(x, r, 0),
            lambda self, x, r: torch.repeat_interleave(r) + x.shape[0],
        ):
            with _compiled(run, x, repeats) as exe:
                torch.testing.assert_close(exe(x, repeats), run(None, x, repeats))


SAME_SIZES: dict[str, Callable[..., Any]] = {
    "masks": lambda self, x, y, m, i: x[m] + y[m],
    "masks of two axes": lambda self, x, y, m, i: x.outer(y)[m.outer(m)] * y.outer(x)[m.outer(m)],
    "masks and selection": lambda self, x, y, m, i: (x[m], torch.masked_select(y, m)),
    "masks and places": lambda self, x, y, m, i: (m.nonzero(), x[m], x[m.nonzero()[:, 0]] + y[m]),
    "numbers": lambda self, x, y, m, i: torch.unique(i) + torch.unique(i),
    "neighbours": lambda self, x, y, m, i: torch.unique_consecutive(i) * torch.unique_consecutive(i),
    "in a branch": lambda self, x, y, m, i: (
        torch.cond(x.sum() > 0, lambda x, m: x[m].sum(), lambda x, m: x[m].prod(), (x, m)) + x[m].sum()
    ),
}


@pytest.mark.parametrize("name", SAME_SIZES)
def test_sizes_found_twice_are_one(name: str) -> None:
    run = SAME_SIZES[name]
    args = torch.randn(6), torch.randn(6), torch.arange(6) % 3 > 0, torch.tensor([1, 1, 2, 3, 2, 1])
    with _compiled(run, *args) as exe:
        for mask in (args[2], ~args[2], args[2] & False):
            x = torch.randn(6), torch.randn(6), mask, torch.randint(0, 4, (6,))
            torch.testing.assert_close(exe(*x), run(None, *x))
        assert not exe.machine.externs


def test_bags_in_bf16() -> None:
    check(bags("sum"), ((("n", 5), bf16),), (4, 1), tolerance=2e-2)


def test_convolutions_of_any_kernel() -> None:
    dims = {"h": torch.export.Dim("h", min=4, max=64), "k": torch.export.Dim("k", min=1, max=3)}

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.conv2d(x, w, stride=2, padding=1), F.conv_transpose2d(x, w, stride=2, dilation=2)

    shapes = ({2: dims["h"]}, {3: dims["k"]})
    example = torch.randn(2, 3, 8, 9), torch.randn(3, 3, 3, 2)
    exe = shapevm.compile(
        Function(run), example, dynamic_shapes=(shapes,), options=shapevm.Options(fallback="error")
    )
    for height, width in ((8, 2), (5, 1), (11, 3)):
        inputs = torch.randn(2, 3, height, 9), torch.randn(3, 3, 3, width)
        for ours, wanted in zip(exe(*inputs), run(*inputs), strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


def test_sizes_that_must_agree() -> None:
    dims = [torch.export.Dim(name, min=2, max=64) for name in ("a", "b")]
    exe = shapevm.compile(
        Function(lambda x, mask: x.masked_select(mask)),
        (torch.randn(4), torch.rand(4) > 0.5),
        dynamic_shapes=(tuple({0: dim} for dim in dims),),
        options=shapevm.Options(fallback="error"),
    )
    x = torch.arange(3.0)
    assert exe(x, x > 0).tolist() == [1, 2]
    with pytest.raises(GuardError, match="masked_select: sizes b and a must be equal"):
        exe(x, torch.ones(5, dtype=torch.bool))


def _of_any_sizes(function: Callable[..., Any], *args: torch.Tensor) -> Any:
    """Compile a function of arguments all of whose sizes are dynamic."""
    dims = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in args)
    return shapevm.compile(
        Function(function), args, dynamic_shapes=(dims,), options=shapevm.Options(fallback="error")
    )


def test_sizes_that_are_one_or_equal() -> None:
    x, mask = torch.arange(4.0), torch.rand(4) > 0.5
    exe = _of_any_sizes(lambda x, mask: x.masked_select(mask), x, mask)
    for n, m in ((3, 3), (1, 5), (5, 1), (1, 1), (0, 1), (1, 0)):
        x, mask = torch.arange(1.0, n + 1), torch.arange(m) % 2 == 0
        assert exe(x, mask).tolist() == x.masked_select(mask).tolist()
    with pytest.raises(GuardError, match="masked_select: sizes s0 and s1 must be equal, or one of them 1"):
        exe(torch.ones(2), torch.ones(5, dtype=torch.bool))


def test_numbers_of_elements_that_must_agree() -> None:
    exe = _of_any_sizes(lambda x, y: x.reshape_as(y), torch.rand(6, 4), torch.rand(3, 8))
    x = torch.rand(5, 6)
    assert torch.equal(exe(x, torch.rand(10, 3)), x.reshape(10, 3))
    with pytest.raises(GuardError, match=r"the model needs .*; here s0 is 5, s1 is 6, s2 is 10, s3 is 4"):
        exe(x, torch.rand(10, 4))


@pytest.mark.parametrize("function", [torch.linalg.cond, torch.linalg.matrix_rank])
def test_an_axis_of_at_most_one_is_one(function: Callable[..., torch.Tensor]) -> None:
    """The condition is a quotient of slices of the singular values: the first and the last one, if any; the
    rank is how many are above a share of the first one."""
    x = torch.rand(5, 5) + torch.eye(5)
    dims = ((dict.fromkeys(range(2), torch.export.Dim.AUTO),),)
    exe = shapevm.compile(Function(function), (x,), dynamic_shapes=dims)
    for n in (5, 3, 1):
        torch.testing.assert_close(exe(x[:n, :n]), function(x[:n, :n]), rtol=1e-4, atol=1e-4)


def test_a_length_below_zero_in_a_kernel() -> None:
    """What the window starts before is dilation * (kernel - 1) - padding: below 0 for a kernel of one tap."""
    convolve = partial(F.conv_transpose1d, stride=2, padding=1, output_padding=1)
    x, weight = torch.randint(-4, 5, (1, 2, 6)), torch.randint(-4, 5, (2, 3, 3))
    exe = _of_any_sizes(convolve, x, weight)
    for kernel in (3, 1, 5):
        weight = torch.randint(-4, 5, (2, 3, kernel))
        assert torch.equal(exe(x, weight), convolve(x, weight))


def test_a_place_below_zero_of_an_empty_axis() -> None:
    """Numbers from the last place down: with no places that is -1, which nothing reads."""
    exe = _of_any_sizes(lambda x: torch.cat([torch.arange(x.shape[0]).flip(0)] * 2), torch.rand(3, 2))
    for n in (4, 1, 0):
        assert torch.equal(exe(torch.rand(n, 2)), torch.cat([torch.arange(n).flip(0)] * 2))


def test_arange_by_a_size() -> None:
    """Counted in steps of a run-time size, which must not be 0."""
    model = Function(lambda x: (torch.arange(0, x.numel(), x.shape[0]), torch.arange(1, 20, x.shape[0]) * 2))
    rows = ({0: torch.export.Dim("rows", min=1, max=64)},)
    exe = shapevm.compile(model, (torch.ones(4, 3),), dynamic_shapes=(rows,), strategy="generic")
    for n in (1, 4, 7, 30):
        torch.testing.assert_close(exe(torch.ones(n, 3)), model(torch.ones(n, 3)), rtol=0, atol=0)
    assert exe.machine.externs == ()
