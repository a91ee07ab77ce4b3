"""Factors behind products with constant weights: which go into the weights, and how exact the results are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.passes.dce import dce
from shapevm.compiler.passes.fold_scales import fold_scales
from torch import nn

import shapevm
from shapevm.build.options import Options

WEIGHT, FACTOR = "0.1, 1.0, 1.5, 2.0, 2.5, 3.0", "2.0, 0.5, -1.0"


def program(after: str, weight: str = WEIGHT, factor: str = FACTOR) -> str:
    """Return a product with a bias, %e, and what is behind it."""
    return f"""
    graph "g"
      symbol s min=0 multiple_of=1
      input %x: f32[s, 2]
      %w: f32[3, 2] = constant() {{array=float32[3, 2]({weight}), dtype="f32", name="w"}}
      %b: f32[3] = constant() {{array=float32[3](1.0, 2.0, 4.0), dtype="f32", name="b"}}
      %a: f32[3] = constant() {{array=float32[3]({factor}), dtype="f32", name="a"}}
      %c: f32[1, 3] = constant() {{array=float32[1, 3](1.0, 0.0, -1.0), dtype="f32", name="c"}}
      %p: f32[2, 3] = permute(%w) {{axes=[1, 0]}}
      %y: f32[s, 3] = matmul(%x, %p)
      %d: f32[s, 3] = expand(%b) {{shape=[s, 3]}}
      %e: f32[s, 3] = add(%y, %d)
      {after}
    """


TIMES = """
      %f: f32[s, 3] = expand(%a) {shape=[s, 3]}
      %g: f32[s, 3] = mul(%f, %e)
"""
PLUS = """
      %h: f32[s, 3] = expand(%c) {shape=[s, 3]}
      %i: f32[s, 3] = sub(%g, %h)
"""


def folded(graph: Graph) -> None:
    fold_scales(graph)
    dce(graph)


def test_a_bias_a_factor_and_a_term_become_a_weight_and_a_bias(rewrite) -> None:
    before = program(TIMES + PLUS + 'output %i as "y"')
    after = """
    %v1: f32[2, 3] = constant() {array=float32[2, 3](0.2, 0.75, -2.5, 2.0, 1.0, -3.0), dtype="f32", name="w"}
      %v2: f32[s, 3] = matmul(%x, %v1)
      %v3: f32[3] = constant() {array=float32[3](1.0, 1.0, -3.0), dtype="f32", name="c"}
      %v4: f32[s, 3] = expand(%v3) {shape=[s, 3]}
      %v5: f32[s, 3] = add(%v2, %v4)
      output %v5 as "y"
    """
    rewrite(folded, before, after)


def test_what_is_needed_in_between_is_the_new_sum(rewrite) -> None:
    """Only what follows the value that is needed stays."""
    before = program(TIMES + PLUS + 'output %g as "z"\n      output %i as "y"')
    after = """
      %c: f32[1, 3] = constant() {array=float32[1, 3](1.0, 0.0, -1.0), dtype="f32", name="c"}
    %v1: f32[2, 3] = constant() {array=float32[2, 3](0.2, 0.75, -2.5, 2.0, 1.0, -3.0), dtype="f32", name="w"}
      %v2: f32[s, 3] = matmul(%x, %v1)
      %v3: f32[3] = constant() {array=float32[3](2.0, 1.0, -4.0), dtype="f32", name="b"}
      %v4: f32[s, 3] = expand(%v3) {shape=[s, 3]}
      %v5: f32[s, 3] = add(%v2, %v4)
      %h: f32[s, 3] = expand(%c) {shape=[s, 3]}
      %i: f32[s, 3] = sub(%v5, %h)
      output %v5 as "z"
      output %i as "y"
    """
    rewrite(folded, before, after)


def test_a_convolution_keeps_its_permutes(rewrite) -> None:
    window = "stride=[1], dilation=[1], expansion=[1], low=[1], high=[0], kernel=[2], groups=1, planes=false"
    weight = "0.1, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0"
    scaled = "0.05, 8.0, -8.0, 1.0, 12.0, -10.0, 0.5, 10.0, -9.0, 1.5, 14.0, -11.0"
    before = f"""
    graph "g"
      symbol s min=1 multiple_of=1
      input %x: f32[1, s, 2]
      %w: f32[3, 2, 2] = constant() {{array=float32[3, 2, 2]({weight}), dtype="f32", name="w"}}
      %a: f32[1, 3, 1] = constant() {{array=float32[1, 3, 1]({FACTOR}), dtype="f32", name="a"}}
      %p: f32[2, 2, 3] = permute(%w) {{axes=[2, 1, 0]}}
      %q: f32[4, 3] = reshape(%p) {{shape=[4, 3]}}
      %y: f32[1, s, 3] = conv(%x, %q) {{{window}}}
      %z: f32[1, 3, s] = permute(%y) {{axes=[0, 2, 1]}}
      %u: f32[3, s] = reshape(%z) {{shape=[3, s]}}
      %r: f32[3, 1] = reshape(%a) {{shape=[3, 1]}}
      %t: f32[3, s] = expand(%r) {{shape=[3, s]}}
      %d: f32[3, s] = div(%u, %t)
      output %d as "y"
    """
    after = f"""
      %v1: f32[4, 3] = constant() {{array=float32[4, 3]({scaled}), dtype="f32", name="w"}}
      %v2: f32[1, s, 3] = conv(%x, %v1) {{{window}}}
      %v3: f32[1, 3, s] = permute(%v2) {{axes=[0, 2, 1]}}
      %v4: f32[3, s] = reshape(%v3) {{shape=[3, s]}}
      output %v4 as "y"
    """
    rewrite(folded, before, after)


OUT = 'output %g as "y"'
NUMBER = """
      %n: f32[] = full() {value=3.0, dtype="f32", shape=[]}
      %f: f32[s, 3] = expand(%n) {shape=[s, 3]}
      %g: f32[s, 3] = mul(%e, %f)
"""
STAY = {
    "one number for all": program(NUMBER + OUT),
    "only a term": program(PLUS.replace("%g", "%e").replace("%i", "%g") + OUT),
    "the product has another use": program(f'{TIMES} {OUT}\n      output %y as "z"'),
    "the weight has another use": program(f'{TIMES} {OUT}\n      output %w as "z"'),
    "integers": program(TIMES + OUT, "1.0, 2.0, 3.0, -4.0, 5.0, 6.0"),
    "numbers of bf16": program(TIMES + OUT, "0.5, 1.25, 1.5, 2.0, 2.5, 3.0"),
    "a factor is infinite": program(TIMES + OUT, factor="2.0, inf, 1.0"),
    "a factor is no number": program(TIMES + OUT, factor="2.0, nan, 1.0"),
    "a weight is no number": program(TIMES + OUT, "0.1, nan, 0.2, 0.3, 0.4, 0.5"),
    "an infinite weight times zero": program(TIMES + OUT, "0.1, inf, 0.2, 0.3, 0.4, 1.0", "0.0, 1.0, 1.0"),
    "beyond f32": program(TIMES + OUT, "1e+30, 0.1, 0.1, 0.1, 0.1, 0.1", "1e+30, 1.0, 1.0"),
    "subnormal": program(TIMES + OUT, "1e-20, 1e-21, 0.1, 0.1, 0.1, 0.1", "1e-20, 1.0, 1.0"),
}  # fmt: skip


@pytest.mark.parametrize("text", STAY.values(), ids=STAY)
def test_what_stays(rewrite, text) -> None:
    rewrite(fold_scales, text, text)


def test_small_weights_beside_a_larger_one_and_columns_of_zeros_fold() -> None:
    """What is lost of a small weight is nothing beside the sum's error by the greatest one."""
    from shapevm.compiler.ir.text import parse

    for weight, factor in (
        ("0.1, 1e-40, 0.1, 0.1, 0.1, 0.1", FACTOR),
        ("0.1, 0.2, 0.0, 0.0, 0.3, 0.4", "0.0, 1e9, 1.0"),
    ):
        graph = parse(program(TIMES + OUT, weight, factor))
        folded(graph)
        assert [node.op for node in graph.nodes() if node.op == "mul"] == []


# Models ---------------------------------------------------------------------------------------------------


class Frozen(nn.Module):
    """A batch norm written out, as detection models have it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(channels) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, deviation = self.running_mean.view(-1, 1, 1), (self.running_var.view(-1, 1, 1) + 1e-5).sqrt()
        return (x - mean) / deviation * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class Rows(nn.Module):
    """A layer of features, whose channels the norm wants before the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 9), nn.BatchNorm1d(9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x).transpose(1, 2))


class Twice(nn.Module):
    """One layer for two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(6, 9, 3), nn.BatchNorm2d(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x) + self.encoder(x.flip(2))


def layer(conv: nn.Module, norm: Callable[[int], nn.Module], channels: int = 9) -> nn.Module:
    return nn.Sequential(conv, norm(channels))


N1, N2, N3 = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "line": (lambda: layer(nn.Conv1d(6, 9, 3), N1), (2, 6, 11)),
    "image": (lambda: layer(nn.Conv2d(6, 9, 3, padding=1, bias=False), N2), (2, 6, 11, 10)),
    "1x1": (lambda: layer(nn.Conv2d(6, 9, 1), N2), (2, 6, 30, 20)),
    "volume": (lambda: layer(nn.Conv3d(6, 9, 2, stride=2), N3), (2, 6, 7, 6, 5)),
    "Winograd": (lambda: layer(nn.Conv2d(6, 9, 3, padding=1), N2), (2, 6, 40, 40)),
    "depthwise": (lambda: layer(nn.Conv2d(18, 18, 3, groups=18), N2, 18), (2, 18, 11, 10)),
    "depthwise volume": (lambda: layer(nn.Conv3d(6, 6, 2, groups=6), N3, 6), (2, 6, 7, 6, 5)),
    "groups": (lambda: layer(nn.Conv2d(6, 9, 3, groups=3), N2), (2, 6, 11, 10)),
    "transposed": (lambda: layer(nn.ConvTranspose2d(6, 9, 3, stride=2), N2), (2, 6, 5, 6)),
    "transposed in groups": (lambda: layer(nn.ConvTranspose1d(6, 9, 3, groups=3), N1), (2, 6, 11)),
    "features": (lambda: layer(nn.Linear(6, 9), N1), (2, 6)),
    "features of rows": (Rows, (2, 7, 6)),
    "no parameters": (lambda: layer(nn.Conv2d(6, 9, 3), lambda n: N2(n, affine=False)), (2, 6, 11, 10)),
    "written out": (lambda: layer(nn.Conv2d(6, 9, 3), Frozen), (2, 6, 11, 10)),
    "one layer twice": (Twice, (2, 6, 11, 10)),
}


def made(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Return a model in evaluation mode with parameters and statistics of many sizes and either sign."""
    torch.manual_seed(seed)
    model = make().eval()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.dim() == 1 and tensor.is_floating_point():
            spread = torch.randn(len(tensor)).mul(2).exp()
            tensor.data = spread if name.endswith("var") else spread * torch.randn(len(tensor)).sign()
    return model


def compiled(
    model: nn.Module, shape: tuple[int, ...], script: bool = False, **given: Any
) -> shapevm.Executable:
    """Return the executable of a model of an input whose first size is any."""
    options = Options(accurate=given.pop("accurate", False))
    x = torch.randn(shape)
    if script:
        return shapevm.compile(torch.jit.script(model), (x,), options=options, **given)
    sizes = ({0: torch.export.Dim("n", min=1, max=99)},)
    return shapevm.compile(model, (x,), dynamic_shapes=sizes, options=options, **given)


def factors(exe: shapevm.Executable) -> list[str]:
    """Return the labels of kernels that multiply, divide or subtract elements."""
    found = [kernel.label for kernel in exe.machine.kernels]
    assert found
    return [text for text in found if not {"mul", "div", "sub"}.isdisjoint(text.split())]


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name != "depthwise volume"]
)  # it is sums of taps
@pytest.mark.parametrize("script", [False, True], ids=["exported", "script"])
def test_which_products_take_their_norms(name, script) -> None:
    make, shape = MODELS[name]
    with compiled(made(make), shape, script, strategy="generic") as exe:
        assert factors(exe) == []
    with compiled(made(make), shape, script, strategy="generic", accurate=True) as exe:
        assert factors(exe) != []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["", "x86-64-v3"])
def test_errors_are_eagers_and_bits_the_same_on_every_tier(name, target) -> None:
    make, shape = MODELS[name]
    model = made(make)
    x = torch.randn(3, *shape[1:])
    with shapevm.settings.scope(target=target):
        results = []
        for strategy in ("generic", "jit"):
            with compiled(model, shape, strategy=strategy) as exe:
                results.append(exe(x))
    assert torch.equal(*results)
    check_errors(model, x, results[0])


def check_errors(model: nn.Module, x: torch.Tensor, found: torch.Tensor) -> None:
    """Check that errors by channel, against f64, are at most twice eager's or those of one rounded sum."""
    with torch.no_grad():
        exact, eager = deepcopy(model).double()(x.double()), model(x)
    axes = [axis for axis in range(exact.dim()) if axis != 1]
    ours, theirs = ((y.double() - exact).abs().amax(axes) for y in (found, eager))
    scale = exact.abs().amax(axes)
    assert (ours <= 2 * theirs + 1e-6 * scale).all(), (ours / scale, theirs / scale)


EXTREMES: dict[str, tuple[str, float]] = {
    "no variance": ("running_var", 0.0),
    "subnormal variance": ("running_var", 5.6e-45),
    "great variance": ("running_var", 1e37),
    "endless variance": ("running_var", float("inf")),
    "variance below zero": ("running_var", -1.0),
    "a variance that is no number": ("running_var", float("nan")),
    "great mean": ("running_mean", 1e30),
    "endless mean": ("running_mean", float("inf")),
    "a mean that is no number": ("running_mean", float("nan")),
    "scale 0": ("weight", 0.0),
    "scale -0": ("weight", -0.0),
    "negative scale": ("weight", -3.0),
    "huge scale": ("weight", 1e36),
    "tiny scale": ("weight", 1e-37),
    "endless scale": ("weight", float("-inf")),
    "a scale that is no number": ("weight", float("nan")),
    "endless term": ("bias", float("inf")),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_channels_with_extreme_statistics_are_eagers(name) -> None:
    """The other channels as well; some are infinite or no numbers in eager too."""
    model = made(lambda: nn.Sequential(nn.Conv2d(6, 9, 3), nn.BatchNorm2d(9)))
    part, value = EXTREMES[name]
    with torch.no_grad():
        getattr(model[1], part)[4] = value
    x = torch.randn(3, 6, 11, 10)
    with compiled(model, (2, 6, 11, 10), strategy="generic") as exe, torch.no_grad():
        found, eager = exe(x), model(x)
    torch.testing.assert_close(found, eager, rtol=1e-4, atol=1e-4, equal_nan=True)
    kept = torch.isfinite(eager).all(0).all(-1).all(-1)
    check_errors(*(_of_channels(model, kept), x, found[:, kept]))


def _of_channels(model: nn.Sequential, kept: torch.Tensor) -> nn.Sequential:
    """Return a model with some of its channels."""
    few = deepcopy(model)
    conv, norm = few
    for part, names in (
        (conv, ("weight", "bias")),
        (norm, ("weight", "bias", "running_mean", "running_var")),
    ):
        for name in names:
            getattr(part, name).data = getattr(part, name).data[kept]
    return few


def test_a_layer_for_two_inputs_has_one_weight() -> None:
    with compiled(made(Twice), (2, 6, 11, 10), strategy="generic") as exe:
        sizes = [np.size(constant.value) for constant in exe.program().constants]
    assert sum(size >= 6 * 9 * 9 for size in sizes) == 1


class Shared(nn.Module):
    """One convolution with a norm for each input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norms = nn.Conv2d(6, 9, 3), nn.ModuleList((nn.BatchNorm2d(9), nn.BatchNorm2d(9)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.norms
        return first(self.conv(x)) + second(self.conv(x.flip(2)))


def test_a_weight_with_several_norms_stays_one() -> None:
    with compiled(made(Shared), (2, 6, 11, 10), strategy="generic") as exe:
        assert " ".join(factors(exe)).split().count("mul") == 2


def test_weights_rounded_on_request_are_those_with_factors() -> None:
    """Scales of columns take the factors, so int8 errors stay as they are."""
    model = made(lambda: nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32)))
    x = torch.randn(5, 64)
    with (
        shapevm.compile(model, (x,), options=Options(weights="int8"), strategy="generic") as exe,
        torch.no_grad(),
    ):
        error = (exe(x) - model(x)).norm(dim=0) / model(x).norm(dim=0)
    assert error.max() < 0.1
