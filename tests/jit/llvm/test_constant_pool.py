"""Numbers of a kernel's sizes: kernels that differ in nothing else share one compilation."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapevm.jit import compiler
from shapevm.jit.compiler import compile_kernel, kernel_text
from shapevm.jit.execute import Kernel
from shapevm.jit.families.matmul.schedules import PANEL
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.families.matmul.usual import usual_products
from shapevm.jit.llvm.constant_pool import LONGEST_ORIGIN, WRITTEN_BELOW, FromSize
from shapevm.jit.llvm.target import TARGETS, runs_here
from shapevm.jit.object.link import Blob, LinkError, NumberError
from shapevm.jit.reference import evaluate
from shapevm.jit.text import parse_spec

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


def _product(columns: int) -> Matmul:
    """Return a usual product with other columns."""
    a, b, out = usual_products()[0].buffers
    out = replace(out, shape=(out.shape[0], columns))
    b = replace(b, shape=(-(-columns // PANEL), *b.shape[1:]))
    return replace(usual_products()[0], buffers=(a, b, out)).with_product(n=columns)


@pytest.mark.parametrize("target", TARGETS)
def test_generic_products_of_x86_64_have_numbers_in_their_instructions(target):
    text, _ = kernel_text(_product(512), None, target)
    assert ("@number0" in text) == target.startswith("x86-64") == ("ptr @pool" not in text)
    code, other = (compile_kernel(_product(columns), None, target).code for columns in (512, 768))
    assert len(code.data) == len(other.data) and code != other


def test_numbers_that_no_instruction_holds_are_loaded():
    columns = WRITTEN_BELOW // PANEL * PANEL
    text, _ = kernel_text(_product(columns), None, "x86-64-v4")
    assert "ptr @pool" in text and "@number" in text
    assert struct.pack("<q", columns) in compile_kernel(_product(columns), None, "x86-64-v4").code.data


def test_a_number_that_does_not_fit_is_refused():
    blob = Blob(bytes(8), 0, numbers=((2, 0, 5),))
    assert blob.with_pool([37]) == b"\0\0" + struct.pack("<I", 42) + b"\0\0"
    with pytest.raises(LinkError, match="2147483652 does not fit"):
        blob.with_pool([(1 << 31) - 1])


DEPTHWISE = """conv n_dims=0 batch=[] m=1 n=64 k=9 a=0 a_index=[] b=1 b_index=[i2,i1] b_layout="rows" \
window=[1,1];[3,3];[2,2];[1,1];[1,1];[1,1];64
  b0 f32[1,2,2,64]
  b1 f32[9,64]
  b2 f32[1,64] output
  v0 = acc f32
  v1 = store f32 v0 b2[i0,i1]
"""


@pytest.mark.parametrize("target", [name for name in TARGETS if name.startswith("x86-64")])
def test_a_number_that_llvm_adds_to_as_to_an_address_is_loaded(target, monkeypatch):
    """height + 1 becomes an address from the instruction on, which code that moves cannot hold."""
    refused = []

    def made(*given, is_patched=True, made=compiler._made):
        try:
            return made(*given, is_patched=is_patched)
        except NumberError as error:
            refused.append(str(error))
            raise

    monkeypatch.setattr(compiler, "_made", made)
    spec = parse_spec(DEPTHWISE)
    code = compile_kernel(spec, None, target)
    assert len(refused) == 1 and "takes 'number" in refused[0]
    if runs_here(target):
        image, weight = np.arange(256, dtype=np.float32), np.ones((9, 64), np.float32)
        out = np.zeros((1, 64), np.float32)
        Kernel(code).run([image.reshape(1, 2, 2, 64), weight, out], ())
        assert np.array_equal(out[0], image.reshape(4, 64).sum(0))
