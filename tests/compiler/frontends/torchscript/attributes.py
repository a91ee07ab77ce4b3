"""Programs with run-time axes, eps, scales, slopes or bounds of operators."""

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
def layer_norm_with_eps(a: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return F.layer_norm(a, [a.size(1)], None, None, eps), F.rms_norm(a, [a.size(1)], None, eps)


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


# Orders, bounds and lengths ---------------------------------------------------------------------------

INF = float("inf")


@program(
    (x(2, 3), 2.0), (x(4, 1), 1.0), (x(3, 3), 3.5), (x(3, 3), INF), (x(3, 3), 0.0), (x(3, 3), -INF),
    (x(3, 3), -1.0),
)  # fmt: skip
def norms_of_an_order(a: Tensor, p: float) -> Tensor:
    return torch.norm(a, p) + a.norm(p, 1).sum() + a.norm(p, [1], True).sum()


@program((x(2, 3), 2.0), (x(4, 1), 1.0), (x(3, 3), 3.5), (x(3, 3), INF), (x(3, 3), 0.0))
def vector_norms_of_an_order(a: Tensor, p: float) -> tuple[Tensor, Tensor]:
    return torch.linalg.vector_norm(a, p, dim=[1]) + torch.linalg.norm(a, p, dim=[1]), F.normalize(a, p, 1)


@program((x(2, 3), 2), (x(4, 1), 1), (x(3, 3), 3))
def norms_of_an_order_in_ints_and_f16(a: Tensor, p: int) -> Tensor:
    return a.norm(p) + torch.norm(a.half(), p, 0).float().sum()


@program(
    (x(2, 3), x(4, 3), 2.0), (x(4, 1), x(2, 1), 1.0), (x(3, 3), x(3, 3) + 1, 3.5),
    (x(3, 3), x(3, 3) + 1, INF), (x(3, 3), x(3, 3) + 1, 0.0), (x(3, 0), x(2, 0), INF),
    (x(1, 3), x(2, 3), -1.0),
)  # fmt: skip
def distances_of_rows(a: Tensor, b: Tensor, p: float) -> Tensor:
    return torch.cdist(a, b, p)


@program((x(2, 3), x(2, 3) + 1, 2.0), (x(4, 1), x(4, 1) + 1, 1.0), (x(3, 3), x(3, 3) + 1, 3.5))
def distances_of_an_order(a: Tensor, b: Tensor, p: float) -> Tensor:
    return torch.dist(a, b, p) + F.pairwise_distance(a, b, p, p / 10).sum()


@program(
    (x(2, 3).sigmoid(), 1e-3), (torch.tensor([[0.0, 1.0, 0.5]]), 0.1), (x(3, 3).sigmoid(), 0.6),
    (x(3, 3).sigmoid(), -1.0),
)  # fmt: skip
def logits_within(a: Tensor, eps: float) -> Tensor:
    return torch.logit(a, eps)


NOT_FINITE = torch.tensor([1.0, float("nan"), INF, -INF, -2.0])


@program(
    (NOT_FINITE, 0.0, 9.0, -9.0), (NOT_FINITE[:2], 3.5, 1.0, 2.0), (NOT_FINITE.flip(0), INF, 1e30, -1e30)
)
def numbers_for_nan_and_inf(a: Tensor, nan: float, up: float, down: float) -> Tensor:
    return torch.nan_to_num(a, nan, up, down) + torch.nan_to_num(a, nan) + torch.nan_to_num(a, posinf=up)


@program((x(2, 3), 1, 0.5), (x(4, 1), 2, 0.1), (x(3, 3), 3, 1.5), (x(1, 2), 0, 2.0))
def numbers_that_torch_computes_with(a: Tensor, n: int, k: float) -> list[Tensor]:
    b = torch.threshold(a, k + 1, n * 2)
    torch.threshold_(b, n, k)
    made = [b, torch.threshold(a, n + 1, k), F.celu(a, n + k), torch.hardshrink(a, n), torch.xlogy(a, n)]
    made += [torch.isin(a.round(), n), torch.special.xlog1py(n, a.abs()), F.smooth_l1_loss(a, b, beta=k)]
    return made


@program((x(2, 3), 0.1, 0.5), (x(4, 1), -1.0, 1.0), (x(3, 3), 0.0, 0.0))
def numbers_of_changes_in_place(a: Tensor, low: float, high: float) -> Tensor:
    b, c, d, e = a * 2, a * 3, a[0] * 1, a * 1
    b.clamp_(low, high)
    c.clamp_(min=low)
    d.mul_(high).add_(low).nan_to_num_(nan=high)
    e.fill_(low)
    e[0] = high
    e.add_(a, alpha=high)
    return b + c + d + e


@program(
    (0.0, 5.0, 0.5), (2.0, 2.5, 0.1), (1.0, -1.0, -0.25), (0.0, 7.3, 3.0), (0.0, 1.0, 0.0), (0.0, 1.0, -1.0)
)
def lines_of_floats(start: float, end: float, step: float) -> tuple[Tensor, Tensor]:
    return torch.arange(start, end, step), torch.arange(end + 5)


@program((1, 9, 2), (9, 1, -2), (0, 5, 1), (0, 5, -1), (0, 5, 0))
def lines_of_ints(start: int, end: int, step: int) -> Tensor:
    return torch.arange(start, end, step) * 2


@program((1, 9.5, 2), (9, 1.5, -2), (0, 5.0, 1))
def lines_of_both(start: int, end: float, step: int) -> tuple[Tensor, Tensor, Tensor]:
    ints = torch.arange(start, end, step, dtype=torch.int64)
    return torch.arange(start, end, step), ints, torch.arange(start, end, step, dtype=torch.float64)


@program((x(4, 3), 0.5, 2.0), (x(4, 3), -1.5, 0.0), (x(2, 3), 1.0, 1.0))
def multiples_of_products(a: Tensor, k: float, m: float) -> Tensor:
    made = torch.addcmul(a, a, a, value=k) + torch.addcdiv(a, a, a + 9, value=m) + torch.rsub(a, k, m)
    column = torch.addmv(a[:, 0], a, a[0], beta=k, alpha=m)
    return made + column.unsqueeze(1) + torch.addr(a, a[:, 0], a[0], beta=k, alpha=m)


@program((x(2, 4, 4), 0.5, 2.0), (x(2, 3, 3), -1.5, 0.0), (x(1, 2, 2), 1.0, 1.0))
def multiples_of_products_in_batches(a: Tensor, k: float, m: float) -> Tensor:
    return torch.baddbmm(a, a, a, beta=k, alpha=m) + torch.addbmm(a[0], a, a, beta=k, alpha=m)


@program((x(4, 3), 0.5, 0.1), (x(4, 3), 1.5, 0.0), (x(2, 3), 1.0, 1.0))
def close_within(a: Tensor, k: float, m: float) -> tuple[Tensor, bool, Tensor]:
    filled = torch.full_like(a, m) + torch.full([1, 3], k)
    return torch.isclose(a, a + 0.2, k, m), torch.allclose(a, a + 0.2, k, m), filled


@program(
    (x(4, 3), x(4, 3) + 1, x(4, 3) * 2, 0.5, 2.0), (x(2, 3), x(2, 3) + 1, x(2, 3) * 2, 1.5, 1.0),
    (x(2, 3), x(2, 3) + 1, x(2, 3) * 2, 1.0, 3.0),
)  # fmt: skip
def margins(a: Tensor, b: Tensor, c: Tensor, k: float, m: float) -> Tensor:
    sign = (c > 0).float() * 2 - 1
    made = F.triplet_margin_loss(a, b, c, k, m) + F.margin_ranking_loss(a, b, sign, k)
    return made + F.hinge_embedding_loss(a, sign, k)


@program((x(4, 3), 2), (x(4, 3), 1), (x(2, 3), 2))
def lengths_of_a_call(a: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    made = torch.repeat_interleave(a, k, 0)
    return a.kthvalue(k, 0)[0], made, F.one_hot(torch.arange(k), k + 1), torch.eye(k)


@program((x(4, 6), 0.25), (x(3, 6), 0.5), (x(2, 6), 1.0), (x(2, 6), 1.5))
def quantiles_of_a_call(a: Tensor, q: float) -> tuple[Tensor, Tensor]:
    return torch.quantile(a, q, dim=0), torch.quantile(a, q, keepdim=True, interpolation="nearest")


@program((x(4, 6), 1), (x(3, 6), 0), (x(2, 6), 2), (x(2, 6), -1))
def turns_by_quarters(a: Tensor, k: int) -> Tensor:
    return torch.rot90(a, k)


@program((x(4, 6), 1, True), (x(3, 6), 0, False), (x(5, 6), 2, True))
def corrected_deviations(a: Tensor, k: int, unbiased: bool) -> tuple[Tensor, Tensor, Tensor]:
    return a.std(0, correction=k), torch.var(a, [1], correction=k), a.std([1], unbiased, True)


# Axes ---------------------------------------------------------------------------------------------------


@program((x(6, 5), 0, 1), (x(6, 5), 1, 2), (x(3, 4), -1, -1), (x(6, 5), 1, 7), (x(6, 5), 2, 0))
def reads_along_an_axis(a: Tensor, dim: int, i: int) -> tuple[Tensor, Tensor]:
    return a.select(dim, i), torch.roll(a, i, dim)


@program((x(4, 5, 3), 0, 1, 2), (x(4, 4, 4), 2, 1, 0), (x(4, 5, 3), 1, -1, 0), (x(4, 5, 3), 1, -2, 0))
def orders_axes(a: Tensor, i: int, j: int, k: int) -> Tensor:
    return a.permute(i, j, k) * 2


@program((x(4, 5, 3), 1, 0, 2), (x(4, 5, 3), -2, -1, -2), (x(4, 5, 3), 0, 2, 1), (x(4, 5, 3), 0, 1, -2))
def diagonals_of_axes(a: Tensor, k: int, i: int, j: int) -> tuple[Tensor, Tensor]:
    return torch.diagonal(a, k, i, j), torch.diag_embed(a[0], k, i, j)


@program((x(4, 5), 1, 0, 1), (x(4, 5), 2, 1, 0), (x(4, 5), -3, 0, -1), (x(4, 5), 4, 1, -1))
def turns_axes(a: Tensor, k: int, i: int, j: int) -> Tensor:
    return torch.rot90(a, k, [i, j])


@program((x(3, 1, 1), 1), (x(3, 1, 1), 2), (x(3, 1, 1), -2), (x(3, 1, 1), 3))
def drops_an_axis(a: Tensor, dim: int) -> Tensor:
    return a.squeeze(dim).sum() + 1


@program((x(4, 5), 1), (x(3, 1), 0), (x(2, 5), -1))
def divides_by_norms_along_an_axis(a: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return F.normalize(a, 2.0, dim), a.amax(dim, True).expand_as(a) - a


@program((x(2, 8, 3), 2, 1e-5), (x(2, 8, 3), 4, 0.1), (x(2, 8, 3), 8, 1.0), (x(2, 8, 3), 3, 1.0))
def groups_of_channels(a: Tensor, groups: int, eps: float) -> Tensor:
    return F.group_norm(a, groups, None, None, eps)


@program((torch.arange(6).reshape(2, 3), x(6, 3), "sum"), (torch.arange(6).reshape(3, 2), x(6, 4), "mean"),
         (torch.arange(6).reshape(1, 6), x(7, 1), "max"),
         (torch.arange(6).reshape(1, 6), x(7, 1), "prod"))  # fmt: skip
def bags_by_name(at: Tensor, rows: Tensor, mode: str) -> Tensor:
    return F.embedding_bag(at, rows, mode=mode)
