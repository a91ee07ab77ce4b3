"""Programs whose calls tell an operator's axis, eps, scale, slope or bounds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .programs import program, x


@program((x(2, 3), 0), (x(4, 1), 1), (x(3, 3), -1), (x(3, 3), -2), (x(2, 2), 2))
def sums_over_an_axis(a: Tensor, k: int) -> Tensor:
    return a.sum(k)


@program((x(2, 3, 4), 0), (x(2, 3, 4), 1), (x(1, 1, 5), -1))
def softmax_over_an_axis(a: Tensor, k: int) -> Tensor:
    return torch.softmax(a, k) + a.mean(dim=[k], keepdim=True)


@program((x(4, 3), 1), (x(4, 3), 0), (x(2, 3), -2))
def sums_up_to_here(a: Tensor, k: int) -> Tensor:
    return torch.cumsum(a, k) * 2


@program((x(4, 3), 1), (x(4, 3), 0), (x(2, 3), -2))
def exchanges_axes(a: Tensor, k: int) -> Tensor:
    return a.transpose(0, k).contiguous() + 1


@program((x(4, 3), 1), (x(4, 3), 0), (x(2, 3), -1))
def joins_along_an_axis(a: Tensor, k: int) -> Tensor:
    return torch.cat([a, a * 2], k)


@program((x(4, 3), 1), (x(4, 3), 0), (x(2, 3), 2))
def stacks_along_an_axis(a: Tensor, k: int) -> Tensor:
    return torch.stack([a, -a], k)


@program((x(4, 3), 1), (x(4, 3), 0), (x(2, 3), -1))
def greatest_along_an_axis(a: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, places = a.max(k)
    return values, places


@program((x(4, 3), 1), (x(4, 3), 0), (x(2, 5), -1))
def size_of_an_axis(a: Tensor, k: int) -> int:
    return a.size(k) * 10


@program((x(4), 1), (x(4), -2), (x(3), 7))
def rolls_by(a: Tensor, n: int) -> Tensor:
    return torch.roll(a, n, 0)


@program((x(4, 3), 1e-5), (x(2, 3), 0.5), (x(1, 7), 1e-2))
def layer_norm_with_eps(a: Tensor, eps: float) -> Tensor:
    return F.layer_norm(a, [a.size(1)], None, None, eps)


@program((x(2, 4, 3), x(4), 1e-5), (x(1, 4, 5), x(4), 0.5), (x(3, 4, 1), x(4), 1e-2))
def batch_norm_with_eps(a: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.batch_norm(a, weight, weight.abs(), weight, None, False, 0.1, eps)


@program((x(1, 2, 3, 4), 0.1), (x(2, 2, 5, 4), 2.0), (x(1, 1, 1, 4), 1.0))
def attention_with_a_scale(a: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(a, a, a, scale=scale)


@program((x(4, 3), 0.5), (x(2, 3), 0.1), (x(1, 7), 2.0))
def activations_with_numbers(a: Tensor, k: float) -> Tensor:
    made = F.leaky_relu(a, k) + F.elu(a, k) + F.celu(a, k) + F.softplus(a, k, 20.0)
    return made + F.threshold(a, k, k + 1) + F.hardtanh(a, -k, k)


@program((x(4, 3), -0.5, 0.5), (x(2, 3), 0.0, 0.1), (x(1, 7), -2.0, 2.0))
def bounds_of_a_call(a: Tensor, low: float, high: float) -> Tensor:
    return torch.clamp(a, low, high) + a.clamp(min=low) + torch.clamp_max(a, high)


@program((x(3, 3), 0.5), (x(2, 2), -1.0), (x(1, 1), 2.0))
def multiples_of_a_call(a: Tensor, k: float) -> Tensor:
    made = torch.add(a, a, alpha=k) + torch.sub(a, a * 2, alpha=k) + torch.lerp(a, a * 3, k)
    return made + torch.addmm(a, a, a, beta=k, alpha=k + 1)


# Modes and flags -------------------------------------------------------------------------------------


@program(
    (x(2, 3, 4), "reflect"), (x(2, 3, 4), "constant"), (x(1, 2, 5), "replicate"), (x(2, 3, 4), "circular"),
    (x(2, 3, 4), "none of these"), (x(2, 3, 2), "reflect"),
)  # fmt: skip
def pads_in_a_mode(a: Tensor, mode: str) -> Tensor:
    return F.pad(a, [1, 2], mode=mode)


@program((x(3, 4), x(3, 4), "trunc"), (x(3, 4), x(3, 4), "floor"), (x(1, 2), x(1, 2), "up"))
def divides_in_a_mode(a: Tensor, b: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    return torch.div(a, b, rounding_mode=mode), torch.div(a * 4, 2.0, rounding_mode=mode)


@program((x(3, 4), x(3, 4), "mean"), (x(3, 4), x(3, 4), "sum"), (x(2, 2), x(2, 2), "none"))
def a_loss_by_name(a: Tensor, b: Tensor, how: str) -> Tensor:
    return F.mse_loss(a, b, reduction=how).sum() + F.l1_loss(a, b, reduction=how).mean()


@program((x(3, 4), "tanh"), (x(3, 4), "none"), (x(3, 4), "sigmoid"))
def gelu_by_name(a: Tensor, approximate: str) -> Tensor:
    return F.gelu(a, approximate=approximate)


@program(
    (x(6), torch.tensor([0, 1, 0, 2, 2, 2]), "sum"), (x(6), torch.tensor([0, 1, 0, 2, 2, 2]), "amax"),
    (x(3), torch.tensor([1, 1, 1]), "mean"), (x(3), torch.tensor([1, 2, 0]), "prod"),
    (x(3), torch.tensor([1, 2, 0]), "amin"), (x(3), torch.tensor([1, 2, 0]), "median"),
)  # fmt: skip
def scatters_by_name(a: Tensor, index: Tensor, how: str) -> Tensor:
    return torch.zeros(3).scatter_reduce(0, index, a, reduce=how)


@program((x(4, 3), True), (x(4, 3), False), (x(1, 5), True))
def a_flag_of_an_operator(a: Tensor, flag: bool) -> tuple[Tensor, Tensor]:
    ordered = torch.sort(a, dim=0, descending=flag)[0]
    return ordered, a.topk(1, dim=1, largest=flag)[0]


@program((x(4, 3), True), (x(4, 3), False), (x(2, 5), True))
def keeps_an_axis_or_not(a: Tensor, keeps: bool) -> Tensor:
    total = a.sum(1, keepdim=keeps)
    if not keeps:
        total = total.unsqueeze(1)
    return a / total


@program((torch.arange(5.0), x(4), "left"), (torch.arange(5.0), x(4) * 3, "right"), (x(1), x(2), "left"))
def searches_a_side(line: Tensor, a: Tensor, side: str) -> Tensor:
    return torch.searchsorted(line, a, side=side)


@program((x(3), x(2), "ij"), (x(3), x(2), "xy"), (x(4), x(1), "yx"))
def a_grid_by_name(a: Tensor, b: Tensor, indexing: str) -> Tensor:
    rows, columns = torch.meshgrid([a, b], indexing=indexing)
    return (rows * columns).reshape(-1)


@program((x(1, 2, 4, 4), "bilinear"), (x(1, 2, 4, 4), "nearest"), (x(2, 1, 3, 5), "bicubic"))
def samples_by_name(a: Tensor, mode: str) -> Tensor:
    ones = torch.linspace(-1.0, 1.0, 4)
    grid = torch.stack([ones.expand(4, 4), ones.unsqueeze(1).expand(4, 4)], 2).expand(a.size(0), 4, 4, 2)
    return F.grid_sample(a, grid * 0.7, mode=mode, padding_mode="border", align_corners=False)


@program((x(4, 4), 0), (x(4, 4), 1), (x(4, 4), -1), (x(3, 5), -2), (x(3, 5), 7))
def triangles(a: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return torch.triu(a, k), a.tril(diagonal=k)
