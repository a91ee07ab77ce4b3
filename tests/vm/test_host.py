"""Calls run under one floating-point mode, whatever the host's is, and give the host's back."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, to_json
from shapevm.vm import artifact, host
from shapevm.vm._runtime import ffi, lib
from shapevm.vm.arrays import NUMPY
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import Error
from shapevm.vm.machine import Machine

from .kernels import HOST_TEXT, code, with_code

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the modes are those of x86-64")

N, AT = Dim(0), (Index(0),)
#: y = (x * z) / 3 + x: products of small numbers are subnormal, quotients and sums are rounded.
NEST = Nest(
    1,
    (Buffer("f32", (N,)), Buffer("f32", (N,)), Buffer("f32", (N,), True)),
    (N,),
    (
        Instr("load", "f32", buffer=0, index=AT),
        Instr("load", "f32", buffer=1, index=AT),
        Instr("mul", "f32", (0, 1)),
        Instr("const", "f32", value=3.0),
        Instr("div", "f32", (2, 3)),
        Instr("add", "f32", (4, 0)),
        Instr("store", "f32", (5,), buffer=2, index=AT),
    ),
)
TEXT = f"""
symbol "n" 1 ..
input "x": f32[s0]
input "z": f32[s0]
output "y"
kernel k0 "scale" (1 dims, f32[n0], f32[n0], out f32[n0]) = {json.dumps(to_json(NEST))}
function "main" (3 params, 1 results)
  alloc r3 f32 (r2)
  kernel k0 (r2) (r0, r1, r3)
  return (r3)
"""
NEAREST, DOWN, UP, ZERO = 0, 1 << 13, 2 << 13, 3 << 13
FTZ, DAZ = 1 << 15, 1 << 6
UNMASKED = 0x1F80  # all traps of the host's: clear these bits
MODES = {
    "flush to zero": FTZ, "subnormals are zeros": DAZ, "both": FTZ | DAZ, "down": DOWN, "up": UP,
    "to zero": ZERO, "all": FTZ | DAZ | UP, "nearest": NEAREST,
}  # fmt: skip


def read() -> tuple[int, int]:
    """Return this thread's mode, without the flags of what was computed."""
    found = ffi.new("svm_float_mode *")
    lib.svm_enter_float_mode(found)
    lib.svm_leave_float_mode(found)
    return found.control & 0xFFC0, found.x87 & 0x0F3F


@contextmanager
def mode(bits: int, traps: int = 0) -> Iterator[None]:
    """Set this thread's mode within the block; the x87 unit rounds alike."""
    before = ffi.new("svm_float_mode *")
    lib.svm_enter_float_mode(before)
    wanted = ffi.new("svm_float_mode *", ((0x1F80 & ~traps) | bits, 0x037F | (bits & ZERO) >> 3))
    lib.svm_leave_float_mode(wanted)
    try:
        yield
    finally:
        lib.svm_enter_float_mode(before)


def inputs(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype("f4") * np.where(rng.random(n) < 0.5, 1e-20, 1.0).astype("f4")
    z = rng.standard_normal(n).astype("f4") * np.where(rng.random(n) < 0.5, 1e-20, 1.0).astype("f4")
    x[::7] = 1e-40  # subnormal inputs
    return x, z


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_bits_do_not_depend_on_the_hosts_mode(n_threads: int) -> None:
    before = host.get_threads()
    x, z = inputs(300_000)
    wanted = (x * z / np.float32(3) + x).view(np.uint32)
    try:
        for bits in MODES.values():
            host.set_threads(1)  # ends the pool's threads: new ones are started in this mode
            host.set_threads(n_threads)
            with mode(bits), Machine.from_bytes(artifact.to_bytes(with_code(assemble(TEXT)))) as m:
                here = read()
                found = [m.call([x, z])[0].view(np.uint32) for _ in range(8)]
                assert read() == here
            assert all(np.array_equal(each, wanted) for each in found), hex(bits)
    finally:
        host.set_threads(before)


def test_the_hosts_traps_do_not_stop_a_kernel() -> None:
    x, z = np.array([np.inf, 1e38, 1e-38], "f4"), np.array([0.0, 1e38, 1e-38], "f4")
    m = Machine.from_bytes(artifact.to_bytes(with_code(assemble(TEXT))))
    for _ in range(3):  # the general call's Python may compute nothing under traps, the quick one does not
        m.call([x, z])
    with mode(NEAREST, UNMASKED):
        m.call([x, z])
    m.close()


def test_compiled_code_does_not_depend_on_the_hosts_mode() -> None:
    wanted = code(NEST)
    for bits in MODES.values():
        with mode(bits):
            assert code(NEST).code == wanted.code


def test_failing_calls_and_host_functions_keep_both_modes() -> None:
    seen: list[tuple[int, int]] = []
    kernels, problem = read_of_kernels(), [False]

    def function(x: np.ndarray[Any, Any]) -> list[Any]:
        seen.append(read())
        if problem[0]:
            raise ValueError("no")
        return [x]

    with Machine.from_bytes(artifact.to_bytes(assemble(HOST_TEXT))) as m, mode(UP | FTZ):
        m.register_extern("host", function, NUMPY)
        here = read()
        m.call([np.zeros(2, "f4")])
        assert read() == here
        problem[0] = True
        with pytest.raises(Error):
            m.call([np.zeros(2, "f4")])
        assert read() == here
        with pytest.raises(Error):
            m.call([np.zeros(3, "f4")])
        assert read() == here
    assert seen == [kernels, kernels]


def read_of_kernels() -> tuple[int, int]:
    with host.float_mode():
        return read()


def test_compiling_gives_the_hosts_mode_back() -> None:
    uses: list[Callable[[], object]] = [lambda: code(NEST), lambda: code(NEST, (-1,))]
    with mode(DOWN | DAZ):
        here = read()
        uses[0]()
        with pytest.raises(ValueError):
            uses[1]()
        assert read() == here
