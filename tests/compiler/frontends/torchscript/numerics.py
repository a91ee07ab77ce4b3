"""Differences, integrals, special functions, histograms and pairs, with run-time numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .programs import program, x

INF = float("inf")
_POSITIVE = x(6).abs() + 0.1


@program(
    (x(4, 9), 1, 1), (x(4, 9), 2, 0), (x(4, 7), 0, -1), (x(1, 3), 5, 1), (x(0, 3), 1, 0), (x(2, 2), -1, 0)
)
def differences(a: Tensor, n: int, dim: int) -> Tensor:
    return torch.diff(a, n, dim)


@program((x(3, 4), x(3, 1), 1), (x(1, 4), x(1, 2), 3), (x(2, 1), x(2, 1), 0))
def differences_of_more(a: Tensor, b: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return torch.diff(a, n, 1, b, b), torch.diff(a > 0, n, 1)


@program((x(4, 5), 0.5, 1), (x(1, 5), 2.0, 0), (x(3, 1), -1.0, -1), (x(3, 0), 1.0, 1))
def areas(a: Tensor, dx: float, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.trapz(a, dx=dx, dim=dim), torch.trapezoid(a, dx=dx), torch.cumulative_trapezoid(a, dx=dx)


@program((x(4, 5), 0.5, 1), (x(3, 7), 2.0, 0), (x(5, 3), -3.0, -1), (x(1, 5), 1.0, 0))
def slopes(a: Tensor, h: float, dim: int) -> tuple[list[Tensor], Tensor]:
    return torch.gradient(a, spacing=h, dim=[dim, 1 - dim % 2]), torch.gradient(a, dim=[dim])[0]


@program((x(4, 5), 1), (x(3, 3), 2), (x(7, 4), 2), (x(3, 2), 2), (x(3, 3), 3))
def slopes_of_an_order(a: Tensor, order: int) -> list[Tensor]:
    made = torch.gradient(a, spacing=0.5, edge_order=order)
    lines = [torch.arange(a.size(0)).float() ** 2, torch.arange(a.size(1)).exp()]
    return made + torch.gradient(a, spacing=lines, edge_order=order)


@program((x(4), 3, True), (x(4), 5, False), (x(3), 1, True), (x(3), 0, False), (x(3), -1, False))
def powers_in_rows(a: Tensor, n: int, increasing: bool) -> tuple[Tensor, Tensor, Tensor]:
    return torch.vander(a, n, increasing), torch.vander(torch.arange(a.size(0))), torch.linalg.vander(a)


@program((_POSITIVE, 1), (_POSITIVE, 0), (_POSITIVE, 3), (_POSITIVE, 2), (_POSITIVE, -1))
def derivatives_of_gamma(a: Tensor, n: int) -> Tensor:
    return torch.polygamma(n, a)


@program((_POSITIVE + 5, 1), (_POSITIVE + 5, 2), (_POSITIVE + 5, 7), (_POSITIVE, 0))
def gammas_of_several(a: Tensor, p: int) -> Tensor:
    return torch.mvlgamma(a, p)


@program((x(4, 5), 2.0, 0, 1.0), (x(4, 3), 1.0, 1, 0.5), (x(4, 5), INF, -1, 0.3), (x(2, 2), 0.0, 0, 1.0),
         (x(2, 2), 2.0, 0, -1.0))  # fmt: skip
def norms_that_are_bounded(a: Tensor, p: float, dim: int, most: float) -> Tensor:
    return torch.renorm(a, p, dim, most)


@program((x(40), 5, -1.0, 1.0), (x(7), 10, -2.0, 2.0), (x(31), 7, 0.0, 0.0), (x(0), 3, 0.0, 0.0),
         (x(4), 0, 0.0, 1.0), (x(4), 2, 1.0, 0.0))  # fmt: skip
def counts_of_bins(a: Tensor, n: int, low: float, high: float) -> Tensor:
    return torch.histc(a, n, low, high)


@program((x(40), 5), (x(7), 10), (x(31), 1), (x(5), 0))
def counts_between_edges(a: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    counts, edges = torch.histogram(a, n)
    return counts, edges, torch.histogram(a, n, density=True)[0]


@program((x(4, 5), 2.0), (x(7, 3), 1.0), (x(2, 3), INF), (x(1, 3), 3.0), (x(3, 2), 0.0), (x(2, 2), -1.0))
def distances_of_all_pairs(a: Tensor, p: float) -> tuple[Tensor, Tensor]:
    return torch.pdist(a, p), F.pdist(a)


@program((x(4, 5), x(4, 5), [0], [0]), (x(4, 5), x(3, 5), [1], [1]), (x(4, 3), x(2, 4), [-2], [1]))
def sums_of_products(a: Tensor, b: Tensor, of_a: list[int], of_b: list[int]) -> Tensor:
    return torch.tensordot(a, b, (of_a, of_b))


@program((x(12).abs(), 0.5), (x(7).abs(), 2.0), (x(1).abs(), 0.0))
def functions_with_a_number(a: Tensor, p: float) -> list[Tensor]:
    made = [torch.xlogy(p, a), torch.xlogy(a, p), torch.special.xlog1py(p, a), torch.special.xlog1py(a, p)]
    made += [torch.special.zeta(a + 2, p + 1), torch.special.zeta(p + 2, a + 1), torch.copysign(a, -p)]
    made += [torch.float_power(a, p), torch.float_power(p, a), torch.xlogy(2, torch.arange(3))]
    return made


@program((x(6, 5), 0, torch.tensor([1]), 2.0), (x(3, 4), 1, torch.tensor([3]), 1.5),
         (x(2, 2), -1, torch.tensor([0]), -3.0), (x(2, 2), 0, torch.tensor([5]), 1.0))  # fmt: skip
def puts_and_adds(a: Tensor, dim: int, at: Tensor, value: float) -> tuple[Tensor, Tensor]:
    places = torch.zeros_like(a.narrow(dim, 0, 1)).to(torch.int64) + at
    return a.scatter(dim, places, value), a.index_add(dim, at, a.narrow(dim, 0, 1), alpha=value)


@program((x(4, 5), 1.0), (x(3, 2), INF), (x(2, 7), -1.0), (x(1, 1), -INF))
def norms_of_matrices(a: Tensor, p: float) -> tuple[Tensor, Tensor]:
    return torch.linalg.matrix_norm(a, p), torch.linalg.matrix_norm(a.unsqueeze(0), p, keepdim=True)


@program((x(4, 5), 1), (x(3, 4), 0), (x(7, 3), 2))
def means_beside_deviations(a: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    one, two = torch.var_mean(a, [1], correction=k)
    three, four = torch.std_mean(a, [0], correction=k, keepdim=True)
    return one, two, three, four


@program((torch.tensor([0, 2, 1]), 3), (torch.tensor([0, 2]), -1), (torch.tensor([0, 2, 1]), 5),
         (torch.tensor([0, 2, 1]), 2), (torch.tensor([0, 2, 1]), -2))  # fmt: skip
def classes_of_a_number(a: Tensor, n: int) -> Tensor:
    return F.one_hot(a, n)


_LOGS, _LABELS = x(5, 2, 4).log_softmax(2), torch.tensor([[1, 2], [3, 1]])


@program((_LOGS, _LABELS, [5, 5], [2, 2], 0), (_LOGS, _LABELS[:, :1], [5, 3], [1, 0], 0),
         (_LOGS[:3], torch.tensor([[1, 1], [2, 2]]), [3, 1], [2, 2], 3),
         (_LOGS, _LABELS, [5, 5], [2, 2], 4))  # fmt: skip
def losses_of_sequences(
    logs: Tensor, labels: Tensor, steps: list[int], lengths: list[int], blank: int
) -> tuple[Tensor, Tensor, Tensor]:
    n, m = torch.tensor(steps), torch.tensor(lengths)
    one = F.ctc_loss(logs, labels, n, m, blank, "none")
    return one, F.ctc_loss(logs, labels, n, m, blank), F.ctc_loss(logs, labels, n, m, blank, "sum", True)


@program((_LOGS, torch.tensor([1, 2, 3]), [2, 1]), (_LOGS, torch.tensor([1, 2, 3]), [0, 3]),
         (_LOGS, torch.tensor([3, 3]), [1, 1]))  # fmt: skip
def losses_of_labels_behind_each_other(logs: Tensor, labels: Tensor, lengths: list[int]) -> Tensor:
    return F.ctc_loss(logs, labels, torch.tensor([5, 5]), torch.tensor(lengths), reduction="none")


@program((x(3, 4), True, True, 1e-8), (x(3, 4).abs() + 1, False, False, 0.1), (x(1, 5), True, False, 0.5),
         (x(2, 2).abs(), False, True, 0.5))  # fmt: skip
def losses_of_counts(a: Tensor, is_log: bool, full: bool, eps: float) -> Tensor:
    return F.poisson_nll_loss(a, a.abs() * 3, is_log, full, eps=eps)


@program((5, 3), (-7, 40), (1 << 62, 9), (0, 0))
def hashed(a: int, n: int) -> int:
    h = -3750763034362895579
    for i in range(n):
        h = (h ^ (a + i)) * 1099511628211 - i
    return h


@program((1, 5), (7, 30), (-(1 << 63), 2), (-(1 << 63), 0))
def random_numbers(seed: int, n: int) -> tuple[Tensor, int, int]:
    found: list[int] = []
    for _ in range(n):
        seed = seed * 6364136223846793005 + 1442695040888963407
        found.append((seed >> 33) & 255)
    return torch.tensor(found), -seed, abs(seed)


@program((torch.arange(4),), (torch.arange(7) * (1 << 60),), (torch.arange(0),))
def sums_beyond_64_bits(a: Tensor) -> tuple[Tensor, int]:
    k = 9223372036854775807
    total = 17
    for i in range(a.size(0)):
        total = total * 31415926535 + int(a[i])
    return a + (k + 2) + k * 3, total


@program((x(3, 7),), (x(2, 5),), (x(4, 2),))
def covariances(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    counts = torch.arange(x.size(1)) + 1
    shares = torch.exp(x[0])
    return (
        torch.cov(x),
        torch.cov(x, correction=0, fweights=counts, aweights=shares),
        torch.corrcoef(x),
        torch.corrcoef(x[0]),
    )


@program((x(7), torch.arange(6).reshape(2, 3)), (x(2), torch.arange(8).reshape(2, 4) * 3),
         (x(31), torch.arange(15).reshape(3, 5) % 4))  # fmt: skip
def covariances_of_a_line_and_of_ints(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.cov(x), torch.cov(n), torch.cov(x, correction=2, aweights=torch.exp(x))
