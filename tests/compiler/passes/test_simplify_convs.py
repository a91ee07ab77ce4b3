"""Convolutions with simpler forms: which kernels they become."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .test_layout import kernels

#: Arguments of a transposed convolution with a kernel of two by three -> the families of its kernels.
TRANSPOSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "stride as kernel": ({"stride": (2, 3)}, ["nest", "matmul", "nest", "nest"]),
    "stride below kernel": ({"stride": (2, 2)}, ["nest", "conv", "nest"]),
    "padded": ({"stride": (2, 3), "padding": (1, 0)}, ["nest", "conv", "nest"]),
    "wider result": ({"stride": (2, 3), "output_padding": (1, 0)}, ["nest", "conv", "nest"]),
    "dilated": ({"stride": (2, 3), "dilation": (2, 1)}, ["nest", "conv", "nest"]),
}


@pytest.mark.parametrize(("given", "wanted"), TRANSPOSED.values(), ids=TRANSPOSED)
def test_a_transposed_convolution_of_blocks_apart_is_a_product(
    given: dict[str, Any], wanted: list[str]
) -> None:
    weight = torch.randn(8, 5, 2, 3)
    found = kernels(lambda x: F.conv_transpose2d(x, weight, **given), 2, 8, 6, 5)
    assert [family for family, _ in found] == wanted
