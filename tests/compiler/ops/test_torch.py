"""Torch functions exported, imported, decomposed and interpreted: the values and dtypes of eager PyTorch.

A case is (name, function, inputs). Every case runs with its first axis dynamic and at the sizes SIZES, so
that what an importer specialised to the example's size shows. Inputs are (shape, dtype), "n" being the
dynamic size.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.exported_program import ProgramImporter, array_of
from shapevm.compiler.frontends.exported_program import decompose as torch_decompose
from shapevm.compiler.passes.decompose import decompose
from shapevm.compiler.reference import run
from shapevm.compiler.verify import verify

SIZES = (6, 1, 0, 17)
f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
i64, i32, i16, i8, u8, boolean = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool
FLOATS, INTS = (f32, f64, f16, bf16), (i64, i32, i16, i8, u8)
ANY = (*FLOATS, *INTS, boolean)
TOLERANCE = {f64: 1e-12, f32: 3e-6, f16: 2e-3, bf16: 2e-2}

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def tensor(shape: tuple[Any, ...], dtype: torch.dtype, n: int, seed: int) -> torch.Tensor:
    sizes = [n if size == "n" else size for size in shape]
    generator = torch.Generator().manual_seed(seed)
    if dtype == boolean:
        return torch.rand(sizes, generator=generator) < 0.5
    if dtype.is_floating_point:
        return (torch.rand(sizes, generator=generator, dtype=f64) * 4 - 2).to(dtype)
    return torch.randint(1 if dtype == u8 else -5, 6, sizes, generator=generator).to(dtype)


def numpy_of(value: Any) -> Any:
    return array_of(value)[0] if isinstance(value, torch.Tensor) else value


def compare(actual: Any, expected: Any) -> None:
    if not isinstance(expected, torch.Tensor):
        assert actual == pytest.approx(expected)
        return
    array, dtype = array_of(expected)
    assert actual.dtype == array.dtype and actual.shape == array.shape
    if dtype == "bf16":
        actual, array = ((x.astype(np.uint32) << 16).view(np.float32) for x in (actual, array))
    tolerance = TOLERANCE.get(expected.dtype, 0)
    np.testing.assert_allclose(actual, array, rtol=tolerance, atol=tolerance)


def check(function: Callable[..., Any], specs: tuple[Any, ...], sizes: tuple[int, ...] = SIZES) -> None:
    model = Function(function)
    dim = torch.export.Dim("n", min=min(sizes), max=100)
    dynamic = tuple({i: dim for i, size in enumerate(shape) if size == "n"} for shape, _ in specs)
    first, *others = sizes
    example = tuple(tensor(shape, dtype, first, i) for i, (shape, dtype) in enumerate(specs))
    program = torch_decompose(export_model(model, example, dynamic_shapes=(dynamic,)))
    graph, decomposed = ProgramImporter(program).run(), ProgramImporter(program).run()
    decompose(decomposed)
    verify(graph, "imported")
    verify(decomposed, "core")
    for size in (first, *others):
        inputs = [tensor(shape, dtype, size, i) for i, (shape, dtype) in enumerate(specs)]
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
        for each in (graph, decomposed):
            for actual, wanted in zip(run(each, [numpy_of(x) for x in inputs]), expected, strict=True):
                compare(actual, wanted)


X = ((("n", 3), f32),)


def unary(names: str, dtypes: tuple[torch.dtype, ...]) -> list[Case]:
    """One case a dtype, of all functions."""
    functions = [getattr(torch, name) for name in names.split()]
    return [
        (f"{names}-{str(d)[6:]}", lambda x: tuple(f(x) for f in functions), ((("n", 3), d),)) for d in dtypes
    ]


def binary(names: str, pairs: list[tuple[torch.dtype, torch.dtype]]) -> list[Case]:
    """One case a pair of dtypes, of all functions."""
    functions = [getattr(torch, name) for name in names.split()]
    return [
        (
            f"{names}-{str(a)[6:]}-{str(b)[6:]}",
            lambda x, y: tuple(f(x, y) for f in functions),
            ((("n", 3), a), ((3,), b)),
        )
        for a, b in pairs
    ]


MIXED = [
    (f32, f32),
    (f32, i64),
    (i32, i64),
    (u8, i8),
    (f16, f32),
    (bf16, f16),
    (boolean, f32),
    (boolean, i32),
]
POINTWISE: list[Case] = [
    *unary("exp sin cos tanh sigmoid erf expm1 atan sinh cosh asinh", (f32, f64, f16, bf16, i64, boolean)),
    *unary("abs neg sign square", (f32, bf16, i64, i8)),
    *unary("floor ceil round trunc", (f32, f16, i32)),
    *unary("isnan isinf isfinite logical_not", (f32, i64)),
    *unary("bitwise_not", (i64, u8, boolean)),
    *binary("add mul maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor", MIXED),
    *binary("div", MIXED),
    *binary("sub", [pair for pair in MIXED if boolean not in pair]),
    *binary("bitwise_and bitwise_or bitwise_xor", [(i64, i32), (u8, u8), (boolean, boolean), (boolean, i8)]),
    ("add alpha", lambda x, y: torch.add(x, y, alpha=3), ((("n", 3), f32), (("n", 3), i64))),
    ("add bool bool", lambda x, y: x + y, ((("n",), boolean), (("n",), boolean))),
    (
        "add bool alpha",
        lambda x, y: [torch.add(x, y, alpha=a) for a in (True, False, 2)],
        ((("n",), boolean), (("n",), boolean)),
    ),
    ("mul bool bool", lambda x, y: x * y, ((("n",), boolean), (("n",), boolean))),
    ("scalars", lambda x: (x + 1, x + 1.5, 2 - x, x * True, x / 3, 2.0 / (x + 9)), X),
    ("scalars int", lambda x: (x + 1, x + 1.5, 2 - x, x * 3, x / 3, x > 2.5, x == 1), ((("n", 3), i32),)),
    ("scalars f16", lambda x: (x + 1, x * 1.7, 2 - x), ((("n", 3), f16),)),
    ("zero-d", lambda x, y: (x + y, y * x), ((("n",), f32), ((), f64))),
    ("zero-d kinds", lambda x, y: x + y, ((("n",), i64), ((), f16))),
    ("size as a number", lambda x: x + x.shape[0] * 2, X),
    (
        "division modes",
        lambda x: (torch.div(x, 0.7, rounding_mode="floor"), torch.div(x, 0.7, rounding_mode="trunc")),
        X,
    ),
    (
        "int division modes",
        lambda x: (x // 3, x % 3, torch.fmod(x, 3), torch.div(x, 3, rounding_mode="trunc")),
        ((("n",), i64),),
    ),
    ("remainder", lambda x, y: torch.remainder(x, y.abs() + 0.5), ((("n", 3), f32), ((3,), f32))),
    *[
        (f"pow {p}", lambda x, p=p: torch.pow(x.abs() + 0.5, p), X)
        for p in (0, 0.5, 1, 2, 3, -1, -0.5, -2, 1.7)
    ],
    ("pow int", lambda x: x**3, ((("n",), i64),)),
    ("pow base", lambda x: 2.0**x, X),
    ("pow tensor", lambda x, y: (x.abs() + 0.1) ** y, ((("n", 3), f32), ((3,), f32))),
    (
        "logs",
        lambda x: (
            torch.log(x.abs() + 0.1),
            torch.log2(x.abs() + 0.1),
            torch.log10(x.abs() + 0.1),
            torch.log1p(x.abs()),
        ),
        X,
    ),
    ("roots", lambda x: (torch.sqrt(x.abs()), torch.rsqrt(x.abs() + 0.1), torch.reciprocal(x + 5)), X),
    (
        "inverse",
        lambda x: (torch.asin(x / 2), torch.acos(x / 2), torch.atanh(x / 3), torch.acosh(x.abs() + 1)),
        X,
    ),
    ("atan2", torch.atan2, ((("n", 3), f32), ((3,), f32))),
    ("shifts", lambda x: (x << 2, x >> 1), ((("n",), i32),)),
    ("clamp", lambda x: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=0)), X),
    ("clamp int by float", lambda x: x.clamp(-1.5, 2), ((("n",), i64),)),
    ("clamp tensor", lambda x, y: torch.clamp(x, min=y), ((("n", 3), f32), ((3,), f32))),
    (
        "where",
        lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), torch.where(x > 0, 1, y)),
        ((("n", 3), f32), ((3,), f32)),
    ),
    (
        "masked_fill",
        lambda x, m: (x.masked_fill(m, 7), x.masked_fill(m, float("-inf"))),
        ((("n", 3), f32), ((3,), boolean)),
    ),
    (
        "addcmul",
        lambda x, y: (torch.addcmul(x, x, y, value=0.5), torch.addcdiv(x, x, y + 5, value=2)),
        ((("n", 3), f32), ((3,), f32)),
    ),
    (
        "lerp",
        lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, 0.8), torch.lerp(x, y, y)),
        ((("n", 3), f32), (("n", 3), f32)),
    ),
    ("casts", lambda x: (x.to(i32), x.half(), x.bfloat16(), x.double(), x.bool(), x.to(i8)), X),
    ("bits", lambda x: (x.view(i32) + 1, x.half().view(i16), x.bfloat16().view(i16).view(f16)), X),
    ("type_as", lambda x, y: x.type_as(y), ((("n",), i64), ((1,), f16))),
    ("convert_element_type", lambda x: torch.ops.prims.convert_element_type(x * 3, i32), X),
]
ACTIVATION_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "elu alpha": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "softplus beta": lambda x: F.softplus(x, 2.0, 1.0),
    "mish": F.mish,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
}
ACTIVATIONS: list[Case] = [
    *[
        (
            f"activations-{str(d)[6:]}",
            lambda x: tuple(f(x) for f in ACTIVATION_FUNCTIONS.values()),
            ((("n", 3), d),),
        )
        for d in (f32, bf16)
    ],
    ("logsigmoid", F.logsigmoid, X),
    ("glu", F.glu, ((("n", 6), f32),)),
    ("relu int", F.relu, ((("n",), i64),)),
]
VIEWS: list[Case] = [
    ("reshape", lambda x: (x.reshape(-1), x.view(x.shape[0], 3, 1), x.flatten(), x.unflatten(1, (3, -1))), X),
    ("permute", lambda x: (x.t(), x.permute(1, 0), x.transpose(0, -1), x.mT), X),
    ("T", lambda x: (x.T, x[:, 0].T, x.mH, x.H), X),
    ("T of three axes", lambda x: (x.T, x.T + 1, x.mT, x[:, 0].T), ((("n", 3, 3), f32),)),
    ("T of four axes", lambda x: x.T * 2, (((2, "n", 2, 2), f32),)),
    ("squeeze", lambda x: (x.unsqueeze(0).unsqueeze(-1), x.unsqueeze(1).squeeze(1), x[:, :1].squeeze(-1)), X),
    (
        "expand",
        lambda x: (x.unsqueeze(1).expand(-1, 4, -1), x[:, :1].expand_as(x), x.unsqueeze(0).expand(2, -1, 3)),
        X,
    ),
    (
        "slices",
        lambda x: (x[:, 1:], x[:, -2:], x[:, ::2], x[:, 5:], x[:, :-1], x[2:4], x[-3:], x[: x.shape[0] // 2]),
        X,
    ),
    ("slice past the end", lambda x: (x[1:], x[: x.shape[0] + 3], x[::3], x[1::2]), X),
    ("select", lambda x: (x[:, 0], x[:, -1], x.select(1, 1)), X),
    ("split", lambda x: (*x.split(2, 1), *x.chunk(2, 1), *x.unbind(1), *x.split([1, 2], 1)), X),
    ("no copies", lambda x: (x.contiguous() + 0, x.clone(), x.detach() * 1.0), X),
    ("narrow", lambda x: x.narrow(1, 1, 2), X),
    (
        "repeat",
        lambda x: (x.repeat(1, 2), x.repeat(2, 1, 3), x.repeat_interleave(2), x.repeat_interleave(3, 1)),
        X,
    ),
]
REDUCTIONS: list[Case] = [
    *[
        (
            f"{f.__name__}-{str(d)[6:]}",
            lambda x, f=f: (f(x), f(x, dim=1), f(x, dim=-1, keepdim=True)),
            ((("n", 3), d),),
        )
        for f in (torch.sum, torch.prod)
        for d in (f32, f64, bf16, i64, i8, boolean)
    ],
    ("mean", lambda x: (x.mean(), x.mean(1), x.mean((0, 1), keepdim=True), x.mean(-1, keepdim=True)), X),
    (
        "sum axes",
        lambda x: (x.sum((0, 2)), x.sum(1), x.sum((1, 2), keepdim=True), x.sum(0)),
        (((2, "n", 3), f32),),
    ),
    ("sum dtype", lambda x: (x.sum(dtype=f64), x.sum(1, dtype=i64)), X),
    (
        "any all",
        lambda x: ((x > 0).any(), (x > 0).all(1), (x > 0).any(1, keepdim=True), x.any(), x.all(0)),
        X,
    ),
    (
        "norm",
        lambda x: (
            x.norm(dim=1),
            F.normalize(x, dim=1),
            torch.linalg.vector_norm(x, 1, 1),
            torch.linalg.vector_norm(x, 3, 1),
        ),
        X,
    ),
    (
        "norm inf",
        lambda x: (torch.linalg.vector_norm(x, float("inf"), 1), torch.linalg.vector_norm(x, 0, 1)),
        X,
    ),
    ("softmax", lambda x: (x.softmax(-1), x.log_softmax(1), x.softmax(0)), X),
    ("softmax bf16", lambda x: (x.softmax(-1), F.softmax(x, 1, dtype=f32)), ((("n", 5), bf16),)),
    (
        "layer_norm",
        lambda x, w: (F.layer_norm(x, (5,), w, w), F.layer_norm(x, (5,))),
        ((("n", 5), f32), ((5,), f32)),
    ),
    (
        "layer_norm 2",
        lambda x, w: F.layer_norm(x, (2, 5), w, None, 1e-3),
        ((("n", 2, 5), f32), ((2, 5), f32)),
    ),
    ("layer_norm f16", lambda x, w: F.layer_norm(x, (5,), w, w), ((("n", 5), f16), ((5,), f16))),
]
NOT_EMPTY: list[Case] = [  # torch refuses an empty axis, or gives NaN by dividing 0 by 0 in another order
    ("max", lambda x: (x.amax(1), x.amin(0), x.max(), x.min(), x.amax((0, 1), keepdim=True)), X),
    ("max int", lambda x: (x.amax(1), x.min()), ((("n", 3), i64),)),
    (
        "var",
        lambda x: (
            x.var(1),
            x.std(1),
            x.var(),
            x.var(1, unbiased=False),
            torch.var(x, 1, correction=0, keepdim=True),
        ),
        X,
    ),
]
PRODUCTS: list[Case] = [
    ("mm", torch.mm, ((("n", 4), f32), ((4, 3), f32))),
    ("mm inner", torch.mm, (((3, "n"), f32), (("n", 4), f32))),
    ("bmm", torch.bmm, (((2, "n", 4), f32), ((2, 4, "n"), f32))),
    (
        "matmul ranks",
        lambda x, y, v: (x @ y, x @ v, v @ y, v @ v),
        ((("n", 4), f32), ((4, 4), f32), ((4,), f32)),
    ),
    ("matmul broadcast", torch.matmul, (((2, 1, "n", 4), f32), ((3, 4, 5), f32))),
    ("matmul 3d 2d", torch.matmul, (((2, "n", 4), f32), ((4, 5), f32))),
    (
        "linear",
        lambda x, w, b: (F.linear(x, w, b), F.linear(x, w)),
        (((2, "n", 4), f32), ((3, 4), f32), ((3,), f32)),
    ),
    ("linear vector", F.linear, (((4,), f32), ((3, 4), f32), ((3,), f32))),
    (
        "addmm",
        lambda b, x, y: (torch.addmm(b, x, y), torch.addmm(b, x, y, beta=0.5, alpha=2)),
        (((3,), f32), (("n", 4), f32), ((4, 3), f32)),
    ),
    ("baddbmm", torch.baddbmm, (((1, 1, 3), f32), ((2, "n", 4), f32), ((2, 4, 3), f32))),
    ("einsum", lambda x, y: torch.einsum("nk,mk->nm", x, y), ((("n", 4), f32), ((3, 4), f32))),
    (
        "einsum batch",
        lambda x, y: torch.einsum("bhik,bhjk->bhij", x, y),
        (((2, 3, "n", 4), f32), ((2, 3, "n", 4), f32)),
    ),
    ("bf16", torch.mm, ((("n", 8), bf16), ((8, 3), bf16))),
    ("int", torch.mm, ((("n", 4), i64), ((4, 3), i64))),
    ("sdpa", F.scaled_dot_product_attention, (((2, 3, "n", 8), f32),) * 3),
    (
        "sdpa scale",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        (((2, "n", 8), f32), ((2, 5, 8), f32), ((2, 5, 4), f32)),
    ),
    (
        "sdpa bool mask",
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m | torch.eye(4, dtype=boolean)),
        ((("n", 2, 4, 8), f32), ((4, 4), boolean)),
    ),
    (
        "sdpa float mask",
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        ((("n", 2, 4, 8), f32), ((2, 4, 4), f32)),
    ),
]
CAUSAL: list[Case] = [
    (
        "sdpa causal",
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        (((2, 3, "n", 8), f32),),
    ),
    (
        "sdpa gqa",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (((2, 6, "n", 8), f32), ((2, 2, "n", 8), f32)),
    ),
    (
        "sdpa gqa, a mask for each head",
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k + 1, m, scale=0.3, enable_gqa=True),
        (((2, 6, 5, 8), f32), ((2, 3, "n", 8), f32), ((6, 5, "n"), f32)),
    ),
    (
        "sdpa gqa, a mask for each image",
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k + 1, m > 0, enable_gqa=True),
        (((2, 6, 5, 8), f32), ((2, 3, "n", 8), f32), ((2, 1, 1, "n"), f32)),
    ),
    (
        "sdpa gqa, one mask, one head of k",
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m, enable_gqa=True),
        (((2, 6, 5, 8), f32), ((2, 1, "n", 8), f32), ((5, "n"), f32)),
    ),
]
SOURCES: list[Case] = [
    (
        "arange",
        lambda x: (torch.arange(x.shape[0]), torch.arange(2, x.shape[0] + 2), torch.arange(0, x.shape[0], 3)),
        X,
    ),
    (
        "arange kinds",
        lambda x: (
            torch.arange(5),
            torch.arange(0.5, 3),
            torch.arange(5, dtype=f16),
            torch.arange(9, 1, -3),
            torch.arange(3.0),
        ),
        X,
    ),
    (
        "full",
        lambda x: (
            torch.full((2, x.shape[0]), 3.5),
            torch.full((2,), 7),
            torch.full((), True),
            torch.zeros(x.shape[0]),
            torch.ones(3, dtype=i32),
        ),
        X,
    ),
    (
        "like",
        lambda x: (
            torch.zeros_like(x),
            torch.ones_like(x, dtype=i64),
            torch.full_like(x, 2),
            x.new_zeros(2),
            x.new_ones(2, 3),
            x.new_full((x.shape[0],), 4),
        ),
        X,
    ),
    ("like int", lambda x: (torch.full_like(x, 2.7), torch.zeros_like(x)), ((("n",), i64),)),
    ("constants", lambda x: x + torch.tensor([1.0, 2.0, 3.0]), X),
    ("scalar_tensor", lambda x: x + torch.scalar_tensor(2.0, dtype=f64), X),
    ("tril", lambda x: x.tril(), X),
    ("eye", lambda x: x @ torch.eye(3), X),
    ("dropout", lambda x: F.dropout(x, 0.5, training=False), X),
]
GATHERS: list[Case] = [
    ("embedding", lambda i, w: F.embedding(i.abs(), w), ((("n", 2), i64), ((9, 4), f32))),
    (
        "embedding of channels-last numbers",
        lambda i, w: F.embedding(i.permute(0, 3, 1, 2).abs(), w),
        ((("n", 2, 3, 4), i64), ((9, 4), f32)),
    ),
    ("index_select", lambda x, i: x.index_select(1, i.abs() % 3), ((("n", 3), f32), ((4,), i64))),
    ("index", lambda x, i: (x[:, i % 3], x[:, i % 3 - 3]), ((("n", 3), f32), ((4,), i64))),
    ("index two", lambda x, i: (x[i % 4, i % 3], x[:, i % 3]), (((4, 3, "n"), f32), ((5,), i64))),
    ("index two later", lambda x, i: x[:, i % 3, i % 2], ((("n", 3, 2), f32), ((5,), i64))),
    (
        "index broadcast",
        lambda x, i: x[i.unsqueeze(1) % 4, (i % 3).unsqueeze(0)],
        (((4, 3, "n"), f32), ((5,), i64)),
    ),
    ("index apart", lambda x, i: x[i % 4, :, i % 2], (((4, "n", 2), f32), ((5,), i64))),
    (
        "index row by row",
        lambda x: (
            x.flatten()[torch.arange(x.shape[0])[:, None] * x.shape[1] + torch.arange(x.shape[1])],
            x.flatten()[torch.arange(x.shape[1])[:, None] + x.shape[1] * torch.arange(x.shape[0])],
        ),
        X,
    ),
    ("index counting", lambda x: (x[torch.arange(x.shape[0])], x[:, torch.arange(1, 3)]), X),
    ("index grid", lambda x: x[torch.arange(x.shape[0])[:, None], torch.arange(3)[None, :]], X),
    ("index grid reversed", lambda x: x[torch.arange(x.shape[0])[None, :], torch.arange(3)[:, None]], X),
    ("gather", lambda x, i: x.gather(1, i % 3), ((("n", 3), f32), (("n", 5), i64))),
    ("gather first", lambda x, i: x.gather(0, i % 4), (((4, 3), f32), (("n", 3), i64))),
    ("gather nothing", lambda x, i: x[:, 0].gather(0, i), ((("n", 3), f32), ((2, 0), i64))),
    ("gather vector", lambda x, i: x.gather(0, i % 4), (((4,), f32), (("n",), i64))),
]


@pytest.mark.parametrize(
    ("name", "function", "specs"), [*POINTWISE, *ACTIVATIONS], ids=lambda v: v if isinstance(v, str) else ""
)
def test_pointwise(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs)


@pytest.mark.parametrize(
    ("name", "function", "specs"), [*VIEWS, *SOURCES], ids=lambda v: v if isinstance(v, str) else ""
)
def test_views_and_sources(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs)


@pytest.mark.parametrize(
    ("name", "function", "specs"), REDUCTIONS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_reductions(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs)


@pytest.mark.parametrize(
    ("name", "function", "specs"), NOT_EMPTY, ids=lambda v: v if isinstance(v, str) else ""
)
@pytest.mark.filterwarnings("ignore:var")
def test_reductions_of_something(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs, (6, 2, 17))


@pytest.mark.parametrize(
    ("name", "function", "specs"), PRODUCTS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_products(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs)


@pytest.mark.parametrize(("name", "function", "specs"), CAUSAL, ids=lambda v: v if isinstance(v, str) else "")
def test_attention_of_something(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs, (6, 1, 17))


@pytest.mark.parametrize(
    ("name", "function", "specs"), GATHERS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_gathers(name: str, function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    check(function, specs)
