"""What is told of a model from its modules alone."""

from typing import Any

import pytest
import torch
from shapevm.jit.families.attention.usual import usual_attention
from shapevm.jit.families.conv.usual import usual_convs
from shapevm.jit.families.matmul.usual import usual_products
from shapevm.jit.spec import KernelSpec

from shapevm.usual_kernels import usual_kernels

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
    (torch.nn.Linear(3, 4), []),
    (torch.nn.Conv2d(3, 4, 1), []),
    (torch.nn.Conv2d(8, 8, 3, groups=8), []),
    (torch.nn.Conv2d(3, 4, 3), list(usual_convs())),
    (torch.nn.MultiheadAttention(96, 4), [usual_attention(4, 24, False)]),
    (Heads(num_attention_heads=12, attention_head_size=32), [usual_attention(12, 32, False)]),
    (Heads(n_heads=8, key_value_proj_dim=64, is_causal=True), [usual_attention(8, 64, True)]),
    (Heads(num_heads=4), []),
    (Heads(num_heads=True, attention_head_size=0), []),
    (Heads(num_heads="4", attention_head_size=1 << 20), []),
    (Strange(), []),
    (torch.nn.Linear, []),
    ("model.pt2", []),
]


@pytest.mark.parametrize(("model", "more"), CASES)
def test_modules_tell_what_a_model_needs(model: Any, more: list[KernelSpec]) -> None:
    assert usual_kernels(model) == [DEEP, *more, *OTHERS]


def test_the_first_attention_counts() -> None:
    layers = [torch.nn.Linear(3, 3), *(torch.nn.MultiheadAttention(8 * n, n) for n in (2, 3))]
    assert usual_kernels(torch.nn.Sequential(*layers)) == [DEEP, usual_attention(2, 8, False), *OTHERS]
