"""Operators that read a tensor's elements in another order, compiled: the values of eager PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from shapevm.compiler.frontends.export import export_model

import shapevm

from .compiled import check

f32, i64 = torch.float32, torch.int64
X = ((("n", 3), f32),)
IMAGE = ((("n", 2, 5, 7), f32),)

Case = tuple[str, Callable[..., Any], Any]
CASES: list[Case] = [
    ("flip", lambda x: (x.flip(0), x.flip(0, 1) + x, x.flip(1).t(), x.fliplr(), x.flip(())), X),
    ("flip long", lambda x: (x.flip(1), x.exp().flip(1) * 2), ((("n", 37), f32),)),
    ("flip and reduce", lambda x: (x.flip(1).sum(1), x.flip(0).softmax(0)), X),
    ("flip and multiply", lambda x: (x.flip(1) @ x.flip(0).t(), x @ x.t().flip(0)), X),
    ("flip and slice", lambda x: (x.flip(1)[:, 1:], x[:, 1:].flip(1), x[:, ::2].flip(1)), X),
    ("flip and concat", lambda x: torch.cat([x, x.flip(0)]) * torch.cat([x, x]).flip(0), X),
    ("rot90", lambda x: (torch.rot90(x, 1, (0, 1)), torch.rot90(x, 2, (0, 1)), torch.rot90(x, 3, (0, 1))), X),
    (
        "copy_",
        lambda x, y: (x.clone().copy_(y), y.clone().copy_(x[:, :1])),
        ((("n", 3), f32), (("n", 3), i64)),
    ),
    ("diagonal", lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-1) + 1), (((4, 5), f32),)),
    ("diagonal of n rows", lambda x: (x.diagonal(), x.diagonal(1)), X),
    (
        "diagonal of n columns",
        lambda x: (x.diagonal(0, 1, 2), x.diagonal(dim1=0, dim2=1)),
        (((2, 3, "n"), f32),),
    ),
    ("diag", lambda x: (torch.diag(x[:, 0]), torch.diag_embed(x, 1), torch.diagflat(x)), X),
    ("trace", lambda x: x.trace(), (((4, 5), f32),)),
    ("diagonal_scatter", lambda x: torch.diagonal_scatter(x, x.diagonal() * 2), ((("n", "n"), f32),)),
    ("diagonal_scatter apart", lambda x: torch.diagonal_scatter(x, x[0] * 2, 1, 2, 0), (((4, 3, 2), f32),)),
    ("unfold", lambda x: (x.unfold(1, 3, 2), x.unfold(1, 2, 2) + 1), ((("n", 7), f32),)),
    ("movedim", lambda x: (x.movedim(0, 2), x.moveaxis((0, 1), (1, 0)), x.swapdims(0, 1)), IMAGE),
    ("triangles", lambda x: (x.tril(), x.triu(1), x.tril(-1)), X),
    ("tile", lambda x: (x.tile(2, 3), x.tile(2), x.repeat(2, 1, 1)), X),
    ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), ((("n", 8, 3, 5), f32),)),
    ("channel_shuffle", lambda x: F.channel_shuffle(x, 3), ((("n", 6, 2, 3), f32),)),
    ("meshgrid", lambda x: torch.meshgrid(x, x[:2], indexing="ij"), (((5,), f32),)),
    ("broadcast_tensors", lambda x: torch.broadcast_tensors(x, x[:, :1]), X),
    ("tensor_split", lambda x: (*x.tensor_split(2, 1), *x.tensor_split((1, 2), 1), *x.hsplit(3)), X),
]
EDGES: list[Case] = [
    ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), ((("n", 2, 4, 6), f32),)),
    ("reflect", lambda x: F.pad(x, (2, 1), mode="reflect"), ((("n", 3), f32),)),
    ("reflect images", lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect") + 1, IMAGE),
    ("reflect what is computed", lambda x: F.pad(x.exp(), (2, 1, 1, 3), mode="reflect"), IMAGE),
    ("reflect volumes", lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect"), (((2, 2, "n", 3, 4), f32),)),
    ("reflect and cut", lambda x: F.pad(x, (2, -1, -2, 1), mode="reflect"), IMAGE),
    ("replicate", lambda x: F.pad(x, (2, 1), mode="replicate"), ((("n", 3), f32),)),
    ("replicate and cut", lambda x: F.pad(x, (2, -1, -2, 1), mode="replicate"), IMAGE),
    (
        "replicate volumes",
        lambda x: F.pad(x, (2, 1, 0, 1, 1, 3), mode="replicate"),
        (((2, 2, "n", 3, 4), f32),),
    ),
    ("circular", lambda x: F.pad(x, (2, 1, 1, 1), mode="circular"), IMAGE),
    ("im2col", lambda x: F.unfold(x, 3, padding=1), ((("n", 2, 5, 7), f32),)),
    ("col2im", lambda x: F.fold(F.unfold(x, 2, stride=2), (4, 6), 2, stride=2), ((("n", 2, 4, 6), f32),)),
]


@pytest.mark.parametrize(("name", "function", "specs"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_rearranged(name: str, function: Callable[..., Any], specs: Any) -> None:
    check(function, specs)


@pytest.mark.parametrize(("name", "function", "specs"), EDGES, ids=lambda v: v if isinstance(v, str) else "")
def test_edges(name: str, function: Callable[..., Any], specs: Any) -> None:
    check(function, specs, (6, 4, 17))


def test_squeeze_refuses_a_call_that_would_lose_an_axis() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.squeeze(0).squeeze(-1)

    program = export_model(Model(), (torch.ones(3, 4, 1),), None, ({0: torch.export.Dim("n")},))
    exe = shapevm.compile(program, strategy="generic")
    assert exe(torch.ones(2, 4, 1)).shape == (2, 4)
    with pytest.raises(shapevm.Error, match="squeeze: axis 0, of size s0, must not be 1"):
        exe(torch.ones(1, 4, 1))


ONE_OR_MORE = ({1: torch.export.Dim("n", min=1, max=9)},)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.squeeze(1).sum(),
        lambda x: (x.squeeze() * 2).exp().mean(),
        lambda x: x.squeeze(1).flatten(),
        lambda x: torch.relu(x.squeeze(1)).reshape(-1)[:2],
        lambda x: x.squeeze(1).argmax(),
    ],
)
def test_squeeze_of_one_element_where_nobody_sees_the_axes(function: Callable[..., Any]) -> None:
    check(function, (((4, "n", 2), torch.float32),), (3, 1, 2))


def test_squeeze_says_what_to_do_about_one_element() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.squeeze(1) + x.squeeze(1).argmax(0)

    exe = shapevm.compile(Model(), (torch.ones(4, 3, 2),), dynamic_shapes=ONE_OR_MORE, strategy="generic")
    with pytest.raises(shapevm.Error) as caught:
        exe(torch.ones(4, 1, 2))
    assert str(caught.value).startswith(
        "squeeze: axis 1, of size n, must not be 1 in a call, where the result would lose it: give it min=2, "
        "or drop it by select(1, 0); here n is 1 (test_rearranged.py:"
    )


prims = torch.ops.prims
PRIMS: list[Case] = [
    ("view_of", lambda x: prims.view_of(x) + 1, X),
    ("transpose", lambda x: prims.transpose(x, [1, 0]) * 2, X),
    ("broadcast_in_dim", lambda x: prims.broadcast_in_dim(x, [2, x.shape[0], 4, 3], [1, 3]) * 2, X),
    ("broadcast_in_dim of 1", lambda x: prims.broadcast_in_dim(x[:, :1], [x.shape[0], 5], [0, 1]) * 2, X),
    ("collapse_view", lambda x: prims.collapse_view(x, 1, 2) * 2, ((("n", 2, 3, 4), f32),)),
    ("split_dim", lambda x: (prims.split_dim(x, 1, 2), prims.split_dim(x.t(), 0, 3)), ((("n", 6), f32),)),
    ("squeeze", lambda x: prims.squeeze(x[:, :1], [1]) * 2, X),
    ("rev", lambda x: prims.rev(x, [0, 1]) * 2, X),
]


@pytest.mark.parametrize(("name", "function", "specs"), PRIMS, ids=lambda v: v if isinstance(v, str) else "")
def test_prims(name: str, function: Callable[..., Any], specs: Any) -> None:
    assert check(function, specs, (6, 2, 17)).machine.externs == ()
