"""Programs with classes, modules, interfaces, futures, and composite operators."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import matrices, program, x


class Box:
    """A class of TorchScript."""

    def __init__(self, value: Tensor, n: int) -> None:
        self.value = value
        self.n = n

    def add(self, other: Tensor) -> None:
        """Add to the content."""
        self.value = self.value + other
        self.n += 1

    def mean(self) -> Tensor:
        """Return the mean of what was added."""
        return self.value / self.n


torch.jit.script(Box)


@matrices
def object_of_a_class(a: Tensor) -> Tensor:
    box = Box(a, 1)
    box.add(a * 2)
    box.add(a - 1)
    return box.mean()


@program((x(4, 3), 3), (x(4, 3), 0), (x(2, 2), 1))
def object_in_a_loop(a: Tensor, n: int) -> Tensor:
    box = Box(a, 1)
    for i in range(n):
        box.add(a * i)
    return box.mean()


@program((x(3), 1), (x(3), -1), (x(5), 4))
def object_in_a_branch(a: Tensor, n: int) -> Tensor:
    box = Box(a, 1)
    if n > 0:
        box.add(a * n)
    return box.mean() + box.n


def _double(a: Tensor) -> Tensor:
    return a * 2


@matrices
def forks_objects(a: Tensor) -> Tensor:
    first = torch.jit.fork(_double, a)
    second = torch.jit.fork(_double, a + 1)
    return torch.jit.wait(first) + torch.jit.wait(second)


def _early(a: Tensor, n: int) -> Tensor:
    if n == 0:
        return a
    if n < 0:
        return -a
    return a * n


@program((x(3), 2), (x(3), 0), (x(4), -3))
def calls_a_function(a: Tensor, n: int) -> Tensor:
    return _early(a, n) + _early(a, n - 1)


@program((x(2, 6),), (x(3, 6),), (x(1, 6),))
def layer_norm(a: Tensor) -> Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(a, [6]))


@program((x(2, 4, 6), 2), (x(1, 3, 6), 3), (x(3, 1, 6), 1))
def attention(a: Tensor, heads: int) -> Tensor:
    b, n, d = a.shape
    q = a.view(b, n, heads, d // heads).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(b, n, d)


@program((x(4, 3), torch.tensor([0, 2])), (x(2, 2), torch.tensor([1])), (x(5, 1), torch.tensor([4, 4, 0])))
def indexes(a: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    return a[where], a.index_select(0, where) * 2


@program((x(6, 2), 2), (x(5, 3), 1), (x(4, 4), 4))
def top_k(a: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, where = torch.topk(a, k, dim=0)
    return values, where


# Composite operators ---------------------------------------------------------------------------------


@program((x(2, 3, 4), x(2, 4, 5)), (x(1, 2, 3), x(1, 3, 1)), (x(3, 1, 2), x(3, 2, 2)))
def einsum(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("bij,bjk->bik", [a, b])


@program((x(2, 3), x(4, 3)), (x(1, 2), x(1, 2)), (x(5, 4), x(2, 4)))
def composites(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cdist(a, b), torch.nn.functional.normalize(a, dim=1)


@program((x(3, 5), x(2, 5)), (x(1, 2), x(1, 2)), (x(4, 3), x(4, 3)))
def tensordot(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return torch.matmul(a, b.t()), torch.nn.functional.cosine_similarity(a[:1], b[:1])
