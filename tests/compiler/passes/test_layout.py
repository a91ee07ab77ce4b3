"""Channels-last values between convolutions: which kernels a network becomes."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.exported_program import import_program
from shapevm.compiler.ir.graph import Node
from shapevm.compiler.passes.pipeline import run
from shapevm.jit.spec import KernelSpec
from torch import nn

from ..ops.test_torch import Function


def kernels(function: Callable[..., torch.Tensor], *shape: int) -> list[tuple[str, str]]:
    """Return (family, label) of the kernels of `function` on a batch of any size."""
    return [(node.attrs["spec"].family, node.attrs["label"]) for node in nodes(function, *shape)]


def specs(function: Callable[..., torch.Tensor], *shape: int) -> list[KernelSpec]:
    """Return the specs of these kernels."""
    return [node.attrs["spec"] for node in nodes(function, *shape)]


def nodes(function: Callable[..., torch.Tensor], *shape: int) -> list[Node]:
    """Return the nodes of these kernels."""
    sizes = ({0: torch.export.Dim("n", min=1, max=99)},)
    graph = import_program(
        export_model(Function(function).eval(), (torch.randn(*shape),), dynamic_shapes=(sizes,))
    )
    run(graph)
    return [node for node in graph.nodes() if node.op == "kernel"]


W3, W1, DEPTHWISE = torch.randn(8, 8, 3, 3), torch.randn(8, 8, 1, 1), torch.randn(8, 1, 3, 3)


def conv(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, W3, padding=1)


def test_a_chain_is_permuted_once_on_the_way_in_and_once_on_the_way_out() -> None:
    found = kernels(lambda x: conv(conv(conv(x).relu()) + 1), 2, 8, 6, 5)
    families = [family for family, _ in found]
    assert families == ["nest", "conv", "conv", "conv", "nest"]
    assert found[0][1] == found[-1][1] == "permute"


def test_an_image_of_few_channels_is_read_as_it_comes() -> None:
    found = kernels(lambda x: F.conv2d((x - 1).abs(), W3[:, :3], stride=2).relu(), 2, 3, 9, 9)
    assert [family for family, _ in found] == ["nest", "conv", "nest"]
    assert "permute" not in found[0][1]
    wide = kernels(lambda x: F.conv2d(x, W3[:, :3], stride=3), 2, 3, 9, 9)  # no kernel reads it so
    assert [label for _, label in wide] == ["permute", "conv", "permute"]


def test_norm_activation_and_shortcut_are_the_convolutions_epilogue() -> None:
    norm = nn.BatchNorm2d(8).eval()
    found = kernels(lambda x: (lambda y: F.relu(norm(conv(y)) + y).mean((2, 3)))(conv(x)), 2, 8, 6, 5)
    assert [family for family, _ in found] == ["nest", "conv", "conv", "nest"]
    assert found[2][1] == "conv mul add add maximum"
    assert "permute" not in found[3][1]


def test_permutes_move_below_slices_concats_pools_and_repeated_pixels() -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        y = conv(x)
        y = torch.cat([y[:, :4], F.max_pool2d(y, 3, 1, 1)[:, 4:]], 1)
        return conv(F.interpolate(y, scale_factor=2.0, mode="nearest")).mean((2, 3))

    assert sum("permute" in label for _, label in kernels(network, 2, 8, 6, 6)) == 1  # of the input


def test_one_that_mixes_channels_only_is_a_matmul() -> None:
    found = kernels(lambda x: F.conv2d(conv(x), W1).relu(), 2, 8, 6, 5)
    assert [family for family, _ in found] == ["nest", "conv", "matmul", "nest"]
    strided = kernels(lambda x: F.conv2d(conv(x), W1, stride=2), 2, 8, 6, 5)
    assert [family for family, _ in strided] == ["nest", "conv", "conv", "nest"]


def test_a_depthwise_one_is_a_kernel_over_two_axes_and_pointwise_over_three() -> None:
    found = kernels(lambda x: F.conv2d(conv(x), DEPTHWISE, groups=8).relu(), 2, 8, 6, 5)
    assert [family for family, _ in found] == ["nest", "conv", "conv", "nest"]
    volume = kernels(lambda x: F.conv3d(x, DEPTHWISE[:, :, None], groups=8).relu(), 2, 8, 4, 6, 5)
    assert "conv" not in [family for family, _ in volume]


def test_graphs_without_convolutions_are_left_alone() -> None:
    found = kernels(lambda x: x.permute(0, 3, 1, 2).exp() + 1, 2, 4, 5, 6)
    assert [family for family, _ in found] == ["nest"]


def test_a_padded_maximum_behind_a_convolution_is_one_kernel() -> None:
    """Elsewhere it is one for each axis: only taps along the last one are no vectors in memory."""
    pool = lambda x: F.max_pool2d(x, 3, 2, 1)  # noqa: E731
    behind = kernels(lambda x: F.conv2d(pool(conv(x)), W1), 2, 8, 7, 9)
    assert [family for family, _ in behind] == ["nest", "conv", "nest", "matmul", "nest"]
    assert [family for family, _ in kernels(pool, 2, 8, 7, 9)] == ["nest", "nest"]
