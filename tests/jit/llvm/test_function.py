"""The LLVM text builder: folding, control flow, and that LLVM accepts what it writes."""

import llvmlite.binding as llvm
import pytest
from shapevm.jit.llvm.abi import PARAMS
from shapevm.jit.llvm.function import Bounded, Function, Value
from shapevm.jit.llvm.target import host_target, target_machine
from shapevm.jit.llvm.values import f32_bits, f64_bits


def parse(f: Function) -> None:
    with (
        llvm.create_context() as context,
        llvm.parse_assembly(f.text() + "attributes #0 = { nounwind }\n", context) as module,
    ):
        module.verify()


def function() -> Function:
    target_machine(host_target())  # initialises LLVM
    return Function("kernel", PARAMS)


def test_integer_arithmetic_folds_ints():
    f = function()
    assert f.add(2, 3) == 5 and f.sub(2, 3) == -1 and f.mul(4, 5) == 20
    assert f.udiv(7, 2) == 3 and f.urem(7, 2) == 1 and f.ceildiv(7, 2) == 4 and f.minimum(3, 2) == 2
    assert f.lines == []


def test_what_is_known_of_a_quotient():
    f = function()
    size = Bounded("i64", "%n", least=8, most=100, multiple=8)
    quotient = f.udiv(size, 4)
    assert (quotient.least, quotient.most, quotient.multiple) == (2, 25, 2)
    assert f.udiv(size, 3).multiple == 1 and f.urem(size, 4) == 0
    product = f.mul(size, 3)
    assert (product.least, product.most, product.multiple) == (24, 300, 24)


def test_neutral_operands_emit_nothing():
    f = function()
    x = f.params[3]
    assert f.add(x, 0) is x and f.add(0, x) is x and f.sub(x, 0) is x
    assert (
        f.mul(x, 1) is x and f.mul(1, x) is x and f.mul(x, 0) == 0 and f.udiv(x, 1) is x and f.urem(x, 1) == 0
    )
    assert f.lines == []


@pytest.mark.parametrize(
    ("end", "step", "is_loop"), [(1, 4, False), (4, 4, False), (5, 4, True), (0, 4, True)]
)
def test_a_loop_of_one_trip_is_none(end: int, step: int, is_loop: bool):
    f = function()
    with f.loop(0, end, step, [Value("i64", "0")]) as loop:
        loop.next(f.i64(f.add(loop.carried[0], f.params[3])))
    f.store(loop.results[0], f.params[2])
    assert ("phi" in f.text()) == is_loop
    parse(f)


def test_loop_carries_values_and_parses():
    f = function()
    with f.loop(f.params[3], f.params[4], 1, [Value("i64", "0")]) as outer:
        with f.loop(0, 10, 2, outer.carried) as inner:
            inner.next(f.i64(f.add(inner.carried[0], inner.index)))
        outer.next(*inner.results)
    with f.when(f.less(0, outer.results[0])):
        f.store(outer.results[0], f.params[2])
    parse(f)


def test_loop_demands_its_carried_values():
    f = function()
    with pytest.raises(AssertionError, match="Loop.next"), f.loop(0, 4, 1, [Value("i64", "0")]):
        pass


def test_call_declares_once():
    f = function()
    for _ in range(2):
        f.minimum(f.params[3], f.params[4])
    assert f.text().count("declare i64 @llvm.smin.i64(i64, i64)") == 1
    parse(f)


@pytest.mark.parametrize(("x", "text"), [(1.0, "0x3FF0000000000000"), (0.1, "0x3FB99999A0000000")])
def test_f32_literals_are_rounded_to_f32(x, text):
    assert f32_bits(x) == text


def test_f64_literal():
    assert f64_bits(0.1) == "0x3FB999999999999A"
