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
