"""What is told of a model from its modules alone."""

from typing import Any

import pytest
import torch
from shapevm.jit.families.attention.usual import usual_attention
from shapevm.jit.families.conv.usual import Layer, usual_conv
from shapevm.jit.families.matmul.usual import usual_product, usual_products
from shapevm.jit.spec import KernelSpec

from shapevm.build.build import exact_dims, lower, open_source
from shapevm.build.options import Options
from shapevm.build.usual_kernels import MAX_CONVS, MAX_PRODUCTS, usual_kernels

DEEP, *OTHERS = usual_products()


class Heads(torch.nn.Module):
    """Attention as libraries write it: its sizes are attributes."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__()
        vars(self).update(sizes)

    @property
    def head_dim(self) -> int:
        raise RuntimeError("a property that cannot be computed yet")


class Strange:
    """No module, whose `modules` is none."""

    modules = 3


CASES: list[tuple[Any, list[KernelSpec]]] = [
    (torch.nn.Conv2d(3, 4, 1), []),
    (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.ReLU6()), []),
    (torch.nn.Conv2d(8, 8, 3, groups=8), []),
    (torch.nn.Conv2d(8, 8, 3, dilation=2), []),
    (torch.nn.ConvTranspose2d(8, 8, 3), []),
    (torch.nn.Conv1d(8, 8, 3), []),
    (torch.nn.Conv2d(8, 8, 3, padding="same"), []),
    (torch.nn.Conv2d(3, 4, 3), [usual_conv(Layer(3, 4, (3, 3), (1, 1), (0, 0)), ("bias",))]),
    (
        Heads(num_attention_heads=12, attention_head_size=32),
        [usual_attention(12, 32, "sequence"), usual_attention(12, 32)],
    ),
    (Heads(n_heads=8, key_value_proj_dim=64, is_causal=True), [usual_attention(8, 64, "query")]),
    (Heads(num_heads=4), []),
    (Heads(num_heads=True, attention_head_size=0), []),
    (Heads(num_heads="4", attention_head_size=1 << 20), []),
    (Strange(), []),
    (torch.nn.Linear, []),
    ("model.pt2", []),
]


Product = tuple[int, int, tuple[str, ...]]
LAYERS = torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8), torch.nn.Linear(8, 8)
CONVS = torch.nn.Conv2d(8, 32, 1), torch.nn.ReLU(), torch.nn.Conv2d(32, 8, 1)
PRODUCTS: list[tuple[torch.nn.Module, list[Product]]] = [
    (torch.nn.Linear(3, 4), [(3, 4, ("bias",))]),
    (
        torch.nn.Sequential(torch.nn.LayerNorm(8), *LAYERS),
        [
            (8, 32, ("bias", "gelu")),
            (32, 8, ("bias", "residual")),
            (8, 8, ("bias",)),
            (8, 8, ("bias", "residual")),
        ],
    ),
    (
        torch.nn.Sequential(*CONVS, torch.nn.Linear(8, 3)),
        [(8, 3, ("bias",)), (8, 32, ("bias", "residual", "relu")), (32, 8, ("bias", "relu"))],
    ),
    (Heads(in_features=8, out_features=1 << 20), []),
]


@pytest.mark.parametrize(("model", "products"), PRODUCTS)
def test_products_come_with_what_mostly_follows_them(model: torch.nn.Module, products: list[Product]) -> None:
    wanted = [usual_product(*product) for product in products] or usual_products()
    assert usual_kernels(model) == wanted


@pytest.mark.parametrize(("dtype", "found"), [("float16", "f16"), ("bfloat16", "bf16"), ("int8", "f32")])
def test_weights_tell_their_dtype(dtype: str, found: str) -> None:
    layer = torch.nn.Linear(32, 64)
    layer.weight.data = (9 * layer.weight.data).to(getattr(torch, dtype)).float()
    assert usual_kernels(layer) == [usual_product(32, 64, ("bias",), found)]
    rows = torch.export.Dim("rows", min=1, max=64)
    (spec,) = exact_dims(
        [lower(open_source(layer, (torch.ones(3, 32),), {}, {"input": {0: rows}}), Options())], ()
    )
    assert spec == usual_product(32, 64, ("bias",), found if found != "f32" else "i8")
    assert usual_kernels(layer.half()) == [usual_product(32, 64, ("bias",))]


class Encoder(torch.nn.Module):
    """Attention with a mask by sequence, as encoders have it."""

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(num_heads=2, head_dim=16)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(32, 32) for _ in range(3)])

    def forward(self, x: torch.Tensor, seen: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, 16)).transpose(1, 2) for layer in self.layers)
        mask = None if seen is None else seen[:, None, None, :]
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("has_mask", [False, True])
def test_usual_attention_is_what_models_are_lowered_to(has_mask: bool) -> None:
    axes = {0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("length", min=1, max=64)}
    args = (torch.ones(2, 5, 32), torch.ones(2, 5, dtype=torch.bool))[: 1 + has_mask]
    sizes, model = {"x": axes, **({"seen": axes} if has_mask else {})}, Encoder()
    found = exact_dims([lower(open_source(model, args, {}, sizes), Options())], ())
    wanted = usual_attention(2, 16, "sequence" if has_mask else "")
    assert wanted in found and wanted in usual_kernels(model)


def test_many_sizes_are_not_all_taken() -> None:
    layers = [torch.nn.Linear(3, n + 1) for n in range(MAX_PRODUCTS + 3)]
    assert len(usual_kernels(torch.nn.Sequential(*layers))) == MAX_PRODUCTS


class Block(torch.nn.Module):
    """Products and the activation of the last one, as a model has them."""

    def __init__(self, activation: str, has_residual: bool) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        self.activation, self.has_residual = activation, has_residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(self.first(x))
        y = y + x if self.has_residual else y
        return getattr(torch.nn.functional, self.activation)(y) if self.activation else y


@pytest.mark.parametrize("activation", ["", "gelu", "relu"])
@pytest.mark.parametrize("has_residual", [False, True])
def test_usual_products_are_those_that_models_are_lowered_to(activation: str, has_residual: bool) -> None:
    model, rows = Block(activation, has_residual), torch.export.Dim("rows", min=1, max=64)
    source = open_source(model.eval(), (torch.ones(3, 32),), {}, {"x": {0: rows}})
    ending = ("bias", *(["residual"] if has_residual else []), *([activation] if activation else []))
    wanted = [usual_product(32, 64, ("bias",)), usual_product(64, 32, ending)]
    assert list(exact_dims([lower(source, Options())], ())) == wanted


@pytest.mark.parametrize(("model", "more"), CASES)
def test_modules_tell_what_a_model_needs(model: Any, more: list[KernelSpec]) -> None:
    assert usual_kernels(model) == [DEEP, *more, *OTHERS]


def test_the_first_attention_counts() -> None:
    layers = [torch.nn.Linear(3, 3), *(torch.nn.MultiheadAttention(8 * n, n) for n in (2, 3))]
    first, *others = (usual_product(n, n, ("bias",)) for n in (3, 16, 24))
    attention = [usual_attention(2, 8, mask) for mask in ("sequence", "")]
    assert usual_kernels(torch.nn.Sequential(*layers)) == [first, *attention, *others]


def normed(channels: int, columns: int, taps: int, stride: int = 1) -> torch.nn.Sequential:
    """A convolution with a batch norm, which goes into its weight, no two with the same numbers."""
    norm = torch.nn.BatchNorm2d(columns)
    torch.nn.init.normal_(norm.bias)
    return torch.nn.Sequential(torch.nn.Conv2d(channels, columns, taps, stride, taps // 2, bias=False), norm)


class Bottleneck(torch.nn.Module):
    """A block of a network of convolutions that halves the images' sides."""

    def __init__(self) -> None:
        super().__init__()
        self.before = torch.nn.ModuleList([normed(3, 32, 7, 2)])
        self.inner = torch.nn.ModuleList([normed(32, 16, 1), normed(16, 16, 3), normed(16, 16, 3, 2)])
        self.wide, self.around, self.after = normed(16, 64, 1), normed(32, 64, 1, 2), normed(64, 32, 1)
        self.relu = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = y = self.relu(self.before[0](x))
        for layer in self.inner:
            y = self.relu(layer(y))
        return self.relu(self.after(self.relu(self.wide(y) + self.around(x))))


def test_usual_convolutions_are_those_that_models_are_lowered_to() -> None:
    batch, part = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("part", min=2, max=10)
    sizes = {"x": {0: batch, 2: 32 * part, 3: 32 * part}}
    model = Bottleneck().eval()
    found = exact_dims([lower(open_source(model, (torch.ones(2, 3, 96, 96),), {}, sizes), Options())], ())
    *inner, _, _ = found  # the last product leaves its ending to what changes the layout of the results
    assert len(inner) == 6 and set(inner) < set(usual_kernels(model))


def test_many_convolutions_are_not_all_taken() -> None:
    layers = [torch.nn.Conv2d(3, n + 1, 3) for n in range(MAX_CONVS + 3)]
    assert len(usual_kernels(torch.nn.Sequential(*layers))) == MAX_CONVS + 2
