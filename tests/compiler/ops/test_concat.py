"""Operators that put pieces into one output, compiled: the values of eager PyTorch at every size."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.ir.types import parse_type
from shapevm.compiler.lower.fuse import fuse
from shapevm.compiler.lower.lower import lower
from shapevm.compiler.ops import build as B
from shapevm.jit.families.concat.spec import Concat

from .compiled import check

f32, f16, bf16, i64, i8 = torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8
X = ((("n", 3), f32),)
XY = ((("n", 3), f32), ((4, 3), f32))
ROTARY = (((2, "n", 32), f32), (("n", 32), f32))


def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    c = torch.cat([x, y, x])
    return (c[:, None, None] < c[None, :, None]) | (c[:, None, None] == c[None, None])


Case = tuple[str, Callable[..., Any], Any]


def missing(x: torch.Tensor) -> int:
    return math.ceil(x.shape[0] / 4) * 4 - x.shape[0]


CASES: list[Case] = [
    ("rows", lambda x, y: torch.cat([x, y * 2, x]), XY),
    ("rows, then more", lambda x, y: torch.cat([x, y * 2, x]).exp() + 1, XY),
    ("columns", lambda x, y: torch.cat([x, y], 1), ((("n", 3), f32), (("n", 5), f32))),
    ("columns of size n", lambda x, y: torch.cat([x, y], -1), (((3, "n"), f32), ((3, 5), f32))),
    ("dtypes", lambda x, y: (torch.cat([x, y]), torch.cat([y, y])), ((("n",), f16), (("n",), i64))),
    ("bytes", lambda x: torch.cat([x, -x], 1), ((("n", 3), i8),)),
    ("bf16", lambda x: torch.cat([x, x * 2], 1), ((("n", 3), bf16),)),
    ("nothing", lambda x: torch.cat([x, x.new_zeros(0), x]), X),
    ("one", lambda x: torch.cat([x]), X),
    ("stack", lambda x: (torch.stack([x, x.sin()], -1), torch.stack([x, x]), torch.stack([x, x], 1)), X),
    ("hstack", lambda x: (torch.hstack([x, x]), torch.vstack([x, x]), torch.dstack([x, x])), X),
    ("column_stack", lambda x: torch.column_stack([x[:, 0], x]), X),
    ("rotary", lambda x, c: x * c + torch.cat([-x[..., 16:], x[..., :16]], -1) * c.sin(), ROTARY),
    (
        "slices",
        lambda x: (torch.cat([x, x.exp()], 1)[:, 2:5], torch.cat([x, x + 1])[2:, :1]),
        (((8, "n"), f32),),
    ),
    ("of views", lambda x: torch.cat([x.t(), x.exp().t()[:, 1:]], 1).t(), (((4, "n"), f32),)),
    ("in a softmax", lambda x: torch.cat([x, x.exp()], 1).softmax(-1), X),
    ("of a softmax", lambda x: torch.cat([x.softmax(-1), x.exp()], 1), X),
    ("of products", lambda x: torch.cat([x @ torch.ones(3, 4), x], 1), X),
    ("into a product", lambda x: torch.cat([x, x + 1], 1) @ torch.ones(6, 4), X),
    ("twice", lambda x: torch.cat([torch.cat([x, x + 1]), torch.cat([x, x + 2, x])]), X),
    ("of both axes", lambda x: torch.cat([torch.cat([x, x + 1], 1), torch.cat([x, x + 2], 1)]), X),
    ("two of one cut", lambda x: torch.cat([x, x + 1]) * torch.cat([x + 2, x]), X),
    ("two of two cuts", lambda x: torch.cat([x, x[:1] * 2]) * torch.cat([x[:1], x]), (((7, "n"), f32),)),
    ("along two loops", lambda x, y: (lambda c: c[:, None] - c[None])(torch.cat([x, y])), XY),
    ("along three loops", outer, ((("n",), f32), ((4,), f32))),
    ("differences", lambda x: (torch.diff(x, 2, 0), torch.diff(x, 5, 1), torch.diff(x, 1, 1, x, x)), X),
    ("no differences", lambda x: (torch.diff(x, 0, 1, x, x) + 1, torch.diff(x, 0, 0)), X),
    ("indices", lambda x: torch.cat([torch.arange(x.shape[0]), torch.arange(3)]), X),
    ("a gather", lambda x, i: torch.cat([x[:, i % 3], x], 1), ((("n", 3), f32), ((5,), i64))),
    ("many rows", lambda x: torch.cat([x * i for i in range(50)]), X),
    ("many columns", lambda x: torch.cat([x[:, i : i + 1] * i for i in range(50)], 1), ((("n", 50), f32),)),
    ("pad", lambda x: F.pad(x, (1, 2, 3, 4), value=2.5), X),
    ("pad and cut", lambda x: F.pad(x, (1, -2, 3, 0), value=2.5), X),
    ("pad images", lambda x: F.pad(x, (1, 1, 1, 1)) + 1, ((("n", 2, 5, 7), f32),)),
    ("pad volumes", lambda x: F.pad(x, (1, 0, 0, 2, 1, 1), value=-1.0), (((2, "n", 3, 4), f32),)),
    ("pad ints", lambda x: (F.pad(x, (2, 1), value=7), F.pad(x == 1, (1, 1), value=True)), ((("n",), i64),)),
    ("pad by sizes", lambda x: F.pad(x, (0, x.shape[0])), X),
    ("pad or cut", lambda x: F.pad(x, (0, 0, 7 - x.shape[0], 2), value=3.0), X),
    ("pad to whole blocks", lambda x: F.pad(x, (0, 0, 0, missing(x))), X),
    ("roll", lambda x: (x.roll(2, 0), x.roll((1, -1), (1, 0)), x.roll(4), x.roll(-7, 1)), X),
    ("slice_scatter", lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3), X),
    ("slice_scatter end", lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 0, 4, 3), (((3, 7), f32),)),
    ("slice_scatter steps", lambda x: torch.slice_scatter(x, x[:, :3] * 2, 1, 1, step=2), (((3, 7), f32),)),
    ("select_scatter", lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1), X),
]


def assigned(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1] = 7
    y[:, :2] *= 2
    y[:, ::2] += x[:, ::2]
    return y


@pytest.mark.parametrize(("name", "function", "specs"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_pieces(name: str, function: Callable[..., Any], specs: Any) -> None:
    check(function, specs)


def test_assignments() -> None:
    check(assigned, X, (6, 2, 17))  # torch requires at least 2 rows


def test_a_pad_is_one_kernel_without_corners() -> None:
    graph = Graph("pad")
    x = graph.input("x", parse_type("f32[2, 5, 7]"))
    graph.body.results, graph.outputs = [B.pad(Builder(graph), x, [(0, 0), (1, 1), (2, 1)], 3.0)], ["y"]
    fuse(graph)
    lower(graph)
    (kernel,) = [node for node in graph.body.nodes if node.op == "kernel"]
    spec = kernel.attrs["spec"]
    assert isinstance(spec, Concat)
    assert [piece.domain for piece in spec.pieces] == [
        (2, 1, 10),
        (2, 5, 2),
        (2, 5, 7),
        (2, 5, 1),
        (2, 1, 10),
    ]


def test_a_consumer_is_computed_in_the_pieces() -> None:
    graph = Graph("rotary")
    b, x = Builder(graph), graph.input("x", parse_type("f32[8, 64]"))
    halves = [B.take(b, x, 1, start, 32) for start in (32, 0)]
    y = b.one("mul", B.concat(b, halves, 1), x)
    graph.body.results, graph.outputs = [y], ["y"]
    fuse(graph)
    lower(graph)
    assert sum(node.op == "kernel" for node in graph.body.nodes) == 1


def test_sizes_that_only_calls_tell_are_checked_against_numbers() -> None:
    graph = Graph("blocks")
    x, y = (graph.input(name, parse_type(f"f32[{rows}, 4]")) for name, rows in (("x", "1"), ("y", "s0")))
    out = B.concat(Builder(graph), [x, y], 1)
    assert [node.attrs["message"] for node in graph.body.nodes if node.op == "guard"] == [
        "concat: sizes s0 and 1 must be equal"
    ]
    assert B.shape_of(out) == (1, 8)
