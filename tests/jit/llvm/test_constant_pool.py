"""Numbers of a kernel's sizes: kernels that differ in nothing else share one compilation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapevm.jit import compiler
from shapevm.jit.compiler import compile_kernel, kernel_text
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.constant_pool import LONGEST_ORIGIN, FromSize
from shapevm.jit.llvm.target import TARGETS
from shapevm.jit.reference import evaluate

from ..nests import bias_add


@given(st.integers(-50, 50), st.integers(-50, 50))
def test_arithmetic_is_that_of_integers(a, b):
    size = FromSize(a, "n0")
    for name in ("add", "sub", "mul", *(("floordiv", "mod") if b else ())):
        for made, value in (
            (getattr(size, f"__{name}__")(b), getattr(a, f"__{name}__")(b)),
            (getattr(size, f"__r{name}__")(b) if a else 0, getattr(a, f"__r{name}__")(b) if a else 0),
        ):
            assert made == value and hash(made) == hash(value)
    assert -size == -a and size / 4 == a / 4 and size == a and f"{size}" == str(a)


def test_a_number_says_how_it_was_made():
    size = FromSize(37, "n0")
    assert (-(-(size * 384) // 16)).origin == "-(-(n0*384)//16)"
    assert (2 + size % 16).origin == "(2+(n0%16))"
    long = size
    for _ in range(LONGEST_ORIGIN):
        long = long + 1
    assert type(long) is int and long == 37 + LONGEST_ORIGIN  # a number as any other


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_that_differ_in_numbers_are_compiled_once(target, monkeypatch):
    monkeypatch.setattr(compiler, "_PARTS", compiler.Parts())
    first = compile_kernel(bias_add(), (5, 37), target)
    second = compile_kernel(bias_add(), (7, 53), target)
    assert first.timings.emit > 0 and second.timings.emit == 0
    assert len(first.code.data) == len(second.code.data) and first.code != second.code
    monkeypatch.setattr(compiler, "_PARTS", compiler.Parts())
    assert compile_kernel(bias_add(), (7, 53), target).code == second.code


@pytest.mark.parametrize("dims", [(5, 37), (1000, 69), (1, 37), (2, 21), (0, 37), (3, 53)])
def test_each_has_numbers_of_its_own(dims):
    spec = bias_add()
    rng = np.random.default_rng(0)
    x, bias = rng.random(dims, "f"), rng.random(dims[1], "f")
    buffers = [x, bias, np.zeros(dims, "f")]
    expected = [buffer.copy() for buffer in buffers]
    evaluate(spec, dims, expected)
    Kernel(compile_kernel(spec, dims)).run(buffers, dims)
    np.testing.assert_array_equal(buffers[2], expected[2])


def test_the_text_for_people_has_their_values():
    text, _ = kernel_text(bias_add(), (5, 37), "x86-64-v3")
    assert "; pool[0] = " in text and " = 37\n" in text
    assert "@pool" not in kernel_text(bias_add(), None, "x86-64-v3")[0]
