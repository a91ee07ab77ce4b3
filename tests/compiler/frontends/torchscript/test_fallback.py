"""Operators without a kernel, or that a converter refuses, are called in PyTorch where options allow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import shapevm

from .programs import x


def posterior(a: Tensor) -> Tensor:
    return torch.linalg.cholesky(a @ a.mT + 3 * torch.eye(a.size(-1)))


def exponential(a: Tensor) -> Tensor:
    return torch.matrix_exp(a * 0.1) + 1


def eigenvalues(a: Tensor) -> Tensor:
    return torch.linalg.eigh(a + a.mT)[0]


def distinct_rows(a: Tensor) -> Tensor:
    return torch.unique(a.round(), dim=0) * 2


FUNCTIONS = [posterior, exponential, eigenvalues]


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_operators_without_a_kernel(function: Callable[..., Any], how: str) -> None:
    example = x(2, 3, 3)
    program = torch.jit.script(function) if how == "script" else torch.jit.trace(function, (example,))
    with shapevm.compile(program, args=(example,)) as exe:
        assert "calls PyTorch" in str(exe)
        for shape in ((2, 3, 3), (5, 3, 3), (1, 7, 7), (0, 3, 3)):
            if how == "trace" and function is posterior and shape[1] != 3:
                continue  # the trace has the size of torch.eye
            assert_close(exe(x(*shape)), function(x(*shape)), rtol=1e-5, atol=1e-5)
    for options in (shapevm.Options(fallback="error"), shapevm.Options(bits="portable")):
        with pytest.raises(shapevm.UnsupportedOp, match="cannot be compiled: aten"):
            shapevm.compile(program, args=(example,), options=options)


def test_operators_whose_converter_refuses_its_arguments() -> None:
    program = torch.jit.trace(distinct_rows, (x(4, 2),))
    with shapevm.compile(program, args=(x(4, 2),)) as exe:
        for shape in ((4, 2), (30, 2), (1, 3), (0, 3)):
            assert_close(exe(x(*shape)), distinct_rows(x(*shape)))


def test_what_can_be_compiled_is_not_called() -> None:
    program = torch.jit.script(softmax_and_einsum)
    with shapevm.compile(program, args=(x(2, 3),)) as exe:
        assert "PyTorch" not in str(exe)


def softmax_and_einsum(a: Tensor) -> Tensor:
    return torch.softmax(a, -1) + torch.einsum("ij,kj->ik", a, a).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes_of_operators_that_pytorch_computes(dtype: torch.dtype) -> None:
    example = x(2, 3, 3)
    program = torch.jit.trace(lambda a: torch.randn_like(a, dtype=dtype), (example,), check_trace=False)
    with shapevm.compile(program, args=(example,)) as exe:
        assert "calls PyTorch" in str(exe)
        assert exe(example).dtype == dtype and exe(example).shape == example.shape


def drawn_in_place(a: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(a).normal_(1.0, 2.0) + a, torch.zeros_like(a).bernoulli_(0.3)


def test_numbers_drawn_in_place() -> None:
    program = torch.jit.script(drawn_in_place)
    with shapevm.compile(program, args=(x(4, 3),)) as exe:
        for shape in ((4, 3), (1, 5), (0, 2)):
            given = x(*shape)
            torch.manual_seed(5)
            wanted = program(given)
            torch.manual_seed(5)
            assert_close(exe(given), wanted)


def least_squares(a: Tensor) -> Tensor:
    return torch.linalg.lstsq(a, a)[0]


def test_results_whose_sizes_data_decide_are_refused_with_a_sentence() -> None:
    program = torch.jit.trace(least_squares, (x(4, 3),))
    with pytest.raises(
        shapevm.UnsupportedOp, match="linalg_lstsq.*the sizes of its results.*depend on the data"
    ):
        shapevm.compile(program, args=(x(4, 3),))


def test_an_operator_of_ones_own_needs_a_fake_kernel() -> None:
    library = torch.library.Library("shapevm_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda a: a * 2, "CPU")
    program = torch.jit.trace(lambda a: torch.ops.shapevm_tests.twice(a) + 1, (x(3),), check_trace=False)
    with pytest.raises(
        shapevm.errors.UnsupportedOp, match="twice.* any size, .* torch.library.register_fake"
    ):
        shapevm.compile(program, args=(x(3),))
    torch.library.register_fake("shapevm_tests::twice", torch.empty_like, lib=library)
    with shapevm.compile(program, args=(x(3),)) as exe:
        assert torch.equal(exe(torch.arange(5.0)), torch.arange(5.0) * 2 + 1)
