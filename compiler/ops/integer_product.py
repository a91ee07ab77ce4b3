"""Products of bytes by a constant: the form for kernels, and torch's `_int_mm`.

Kernels multiply u8 by i8. Rows of i8 are offset by 128, and its contribution to each column is subtracted.
Steps are padded to whole fours with zeros.
"""

from __future__ import annotations

import numpy as np

from ..ir.graph import Builder, Value
from ..ir.rounding import RoundedWeight
from . import build as B
from .declare import Composite
from .matmul import matmul

STEP = 4  # bytes that kernels multiply together
SHIFT = 128
MAX_STEPS = ((1 << 31) - 1) // (255 * 128)  # of a sum that i32 holds for any bytes
MAX_STEPS_F32 = (1 << 24) // (255 * 255)  # of a sum of products of nine bits that f32 holds


def is_short_enough(steps: int) -> bool:
    """Return True where sums of `steps` products of bytes are exact in i32."""
    return steps <= MAX_STEPS


def integer_product(b: Builder, x: Value, weight: np.ndarray, name: str, zero: Value | None = None) -> Value:
    """Return (x - zero) @ weight in i32, modulo 2^32: x [.., M, K] in u8 or i8, a weight [K, N] in i8.

    `zero`: the zero points of x's rows, [.., M, 1], or sizes of 1.
    """
    x, zero = as_u8(b, x, zero)
    left = -weight.shape[0] % STEP
    if left:
        weight = np.pad(weight, ((0, left), (0, 0)))
        x = B.pad(b, x, [*((0, 0) for _ in B.shape_of(x)[:-1]), (0, left)])
    result = b.one("matmul", x, b.constant(np.ascontiguousarray(weight), "i8", name))
    if zero is None:
        return result
    columns = b.constant(weight.sum(0, dtype=np.int32), "i32", f"{name}.sums")
    return B.pointwise(b, "sub", result, B.pointwise(b, "mul", B.cast_to(b, zero, "i32"), columns))


def as_u8(b: Builder, x: Value, zero: Value | None) -> tuple[Value, Value | None]:
    """Return bytes in u8 and their zero point in i32: those of i8 and their zero point are offset by
    SHIFT."""
    if B.dtype_of(x) == "u8":
        return x, zero
    before = B.full(b, 0, "i32") if zero is None else B.cast_to(b, zero, "i32")
    moved = B.cast_to(b, B.pointwise(b, "add", B.cast_to(b, x, "i32"), SHIFT), "u8")
    return moved, B.pointwise(b, "add", before, SHIFT)


def constant_matrix(value: Value) -> tuple[np.ndarray, str] | None:
    """Return the array and the name of a constant matrix, perhaps permuted; else None."""
    node = value.node
    if node is None:
        return None
    if node.op == "constant":
        return node.attrs["array"], str(node.attrs["name"])
    found = constant_matrix(node.arg(0)) if node.op == "permute" else None
    return None if found is None else (found[0].transpose(node.attrs["axes"]), found[1])


def int_mm(
    b: Builder, x: Value, y: Value, x_zero: Value | None = None, y_zero: np.ndarray | Value | None = None
) -> Value:
    """(x - x_zero) [.., M, K] times (y - y_zero) [.., K, N] of bytes in i32. `x_zero`: one, or one for each
    row, [.., M, 1]; `y_zero`: one, or one for each column, [.., 1, N]."""
    found = constant_matrix(y)
    if found is None or found[0].ndim != 2 or isinstance(y_zero, Value):
        zero = (
            y_zero if y_zero is None or isinstance(y_zero, Value) else b.constant(y_zero, B.dtype_of(y), "")
        )
        return _general(b, _without(b, x, x_zero), _without(b, y, zero))
    (array, name), zeros = found, np.zeros(1, np.int32) if y_zero is None else y_zero.astype(np.int32)
    if array.dtype == np.uint8:
        array, zeros = (array ^ SHIFT).view(np.int8), zeros - SHIFT
    x = B.of_size(b, "matmul", x, len(B.shape_of(x)) - 1, len(array))
    shape = tuple(map(int, array.shape))
    b.graph.rounding.weights[name] = RoundedWeight(name, shape, "u8 x int8", array.size, 0.0)
    result = integer_product(b, x, array, name, x_zero)
    if not zeros.any():
        return result
    sums = B.reduce(b, "reduce_sum", _without(b, x, x_zero), [len(B.shape_of(x)) - 1], True)
    return B.pointwise(
        b, "sub", result, B.pointwise(b, "mul", sums, b.constant(zeros, "i32", f"{name}.zeros"))
    )


def _without(b: Builder, x: Value, zero: Value | None) -> Value:
    """x - zero in i32."""
    wide = B.cast_to(b, x, "i32")
    return wide if zero is None else B.pointwise(b, "sub", wide, B.cast_to(b, zero, "i32"))


def _general(b: Builder, x: Value, y: Value) -> Value:
    """The product of integers of at most nine bits, in i32; in f32 where that is exact."""
    steps = B.shape_of(x)[-1]
    if isinstance(steps, int) and steps <= MAX_STEPS_F32:
        return B.cast_to(b, matmul(b, B.cast_to(b, x, "f32"), B.cast_to(b, y, "f32")), "i32")
    return matmul(b, x, y)


OPS = ()
COMPOSITES: tuple[Composite, ...] = (Composite(("aten._int_mm.default",), int_mm),)
