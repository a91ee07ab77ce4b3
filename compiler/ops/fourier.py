"""Fourier transforms: `fft` and torch's overloads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy

from ...jit.families.fft import reference
from ..ir.dims import DimExpr, floordiv, product, simplify
from ..ir.errors import ShapeError
from ..ir.graph import Builder, Value
from ..ir.types import TensorType, Type
from . import build as B
from .complex import Complex, given
from .conditions import add_guard
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, check_dtype, show, tensor, tensors

BY_ROOT, BY_LENGTH = 1, 2  # of PyTorch's norms; 0: none


def _infer(types: Types, attrs: Attrs) -> Sequence[Type]:
    present = tensors("fft", types[:3], 3)
    if len(types) > 3 and types[3] is not None:
        present.append(tensor("fft", types, 3))
    cosines, sines, x = present[:3]
    if any(given.rank != 3 for given in present):
        raise ShapeError(
            f"fft: x is {show(x.shape)}; it must be rows, their elements and columns, three axes"
        )
    check_dtype("fft", x.dtype, ("f32", "f64"))
    outer, _, columns = x.shape
    return (TensorType(x.dtype, (outer, attrs["kept"], columns)),) * attrs["parts"]


def _reference(args: Sequence[Any], attrs: Attrs) -> Any:
    cosines, sines, real, *imaginary = (arg for arg in args if arg is not None)
    x = real + 1j * (imaginary[0] if imaginary else 0.0)
    found = reference.transform(x, cosines.reshape(-1), sines.reshape(-1))[:, : attrs["kept"]]
    parts = [part.astype(real.dtype) for part in (found.real, found.imag)][: attrs["parts"]]
    return parts if len(parts) > 1 else parts[0]


OPS: tuple[Op, ...] = (
    Op(
        "fft",
        "standalone",
        "fft(Tensor cosines, Tensor sines, Tensor real, Tensor? imaginary; kept, parts) -> (Tensor, Tensor?)",
        "The first `kept` elements of the discrete Fourier transforms along the middle of three axes: the "
        "real parts and, if `parts` is 2, the imaginary parts. Element i of the tables is of the angle "
        "2 pi i / length.",
        _infer,
        _reference,
        samples=(
            Sample(("f64[1, s0, 1]", "f64[1, s0, 1]", "f32[2, s0, 3]"), {"kept": 1, "parts": 2}),
            Sample(
                ("f64[1, 12, 1]", "f64[1, 12, 1]", "f64[2, 12, 3]", "f64[2, 12, 3]"), {"kept": 12, "parts": 1}
            ),
        ),
        errors=(
            (
                Sample(("f64[1, 2, 1]", "f64[1, 2, 1]", "f32[2, 3]"), {"kept": 1, "parts": 1}),
                "fft: x is [2, 3]; it must be rows, their elements and columns, three axes",
            ),
        ),
    ),
)


def tables(b: Builder, length: DimExpr) -> tuple[Value, Value]:
    """Return cos and sin of 2 pi i / length, i below length, as [1, length, 1] of f64. Symmetry makes them
    functions of an angle of at most pi / 4, and quarters of a turn exact."""

    def do(op: str, *args: B.Tensorlike) -> Value:
        return B.pointwise(b, op, *args)

    place = B.iota(b, length, 1, 3)
    back = do("sub", length, place)
    quarters = do("mul", do("minimum", place, back), 4)  # the angle is pi / 2 * quarters / length
    is_left, is_below = do("gt", quarters, length), do("gt", place, back)
    folded = B.where(b, is_left, do("sub", simplify(2 * length), quarters), quarters)
    is_steep = do("gt", do("mul", folded, 2), length)
    least = B.where(b, is_steep, do("sub", length, folded), folded)
    turns = do("div", B.cast_to(b, least, "f64"), B.full(b, length, "f64"))
    angle = do("mul", turns, math.pi / 2)
    cosine, sine = b.one("cos", angle), b.one("sin", angle)
    cosine, sine = B.where(b, is_steep, sine, cosine), B.where(b, is_steep, cosine, sine)
    return B.where(b, is_left, b.one("neg", cosine), cosine), B.where(b, is_below, b.one("neg", sine), sine)


def transform(
    b: Builder, real: Value, imaginary: Value | None, axis: int, kept: DimExpr, parts: int = 2
) -> list[Value]:
    """Return the first `kept` elements of the transforms along an axis: the real parts and, if `parts` is 2,
    the imaginary parts."""
    shape = B.shape_of(real)
    others, length = [i for i in range(len(shape)) if i != axis], shape[axis]
    is_last = axis == len(shape) - 1
    order = [axis, *others] if is_last else list(range(len(shape)))  # columns are next to each other
    outer = 1 if is_last else product(shape[:axis])
    rows = [outer, length, product(shape[i] for i in (others if is_last else range(axis + 1, len(shape))))]
    given = [B.reshape(b, B.permute(b, x, order), rows) for x in (real, imaginary) if x is not None]
    found = b.apply("fft", *tables(b, length), *given, kept=kept, parts=parts)
    made = [kept if i == axis else shape[i] for i in order]
    back = [order.index(i) for i in range(len(shape))]
    return [B.permute(b, B.reshape(b, part, made), back) for part in found]


def _require_points(b: Builder, length: DimExpr) -> None:
    message = f"fft: an axis has {length} elements; a transform needs at least 1"
    add_guard(b, sympy.Ge(sympy.sympify(length), 1), message)


def _scaled(b: Builder, parts: Sequence[Value], length: DimExpr, norm: int) -> list[Value]:
    """Return the results divided by the length of all transforms, or its root."""
    if norm == 0:
        return list(parts)
    dtype = B.dtype_of(parts[0])
    by = B.full(b, length, "f64")
    by = B.cast_to(b, b.one("sqrt", by) if norm == BY_ROOT else by, dtype)
    return [B.pointwise(b, "div", part, by) for part in parts]


def real_to_complex(b: Builder, x: Value, dim: Sequence[int], norm: int, onesided: bool) -> Complex:
    """The transform of real numbers; `onesided`: of the last axis the first half and its middle."""
    shape = B.shape_of(x)
    axes = [B.axis_of("fft", axis, len(shape)) for axis in dim]
    for axis in axes:
        _require_points(b, shape[axis])
    last = shape[axes[-1]]
    kept = simplify(floordiv(sympy.sympify(last), 2) + 1) if onesided else last
    parts = transform(b, x, None, axes[-1], kept)
    for axis in reversed(axes[:-1]):
        parts = transform(b, parts[0], parts[1], axis, shape[axis])
    real, imaginary = _scaled(b, parts, product(shape[axis] for axis in axes), norm)
    return Complex(real, imaginary)


def complex_to_complex(b: Builder, z: Complex, dim: Sequence[int], norm: int, forward: bool) -> Complex:
    """The transform along all axes of `dim`; not `forward`: with angles of the other sign."""
    shape = B.shape_of(given(z).real)
    axes = [B.axis_of("fft", axis, len(shape)) for axis in dim]
    for axis in axes:
        _require_points(b, shape[axis])
    parts = list(z.parts) if forward else [z.imaginary, z.real]  # exchanged parts turn the other way
    for axis in reversed(axes):
        parts = transform(b, parts[0], parts[1], axis, shape[axis])
    parts = _scaled(b, parts, product(shape[axis] for axis in axes), norm)
    return Complex(*(parts if forward else parts[::-1]))


def complex_to_real(b: Builder, z: Complex, dim: Sequence[int], norm: int, last_dim_size: DimExpr) -> Value:
    """The real numbers whose transform begins with z along the last axis of `dim`, of `last_dim_size`
    elements; of the rest each element is conjugate to one in z."""
    *others, axis = (B.axis_of("fft", axis, len(B.shape_of(given(z).real))) for axis in dim)
    _require_points(b, last_dim_size)
    if others:
        z = complex_to_complex(b, z, others, 0, False)
    half = simplify(floordiv(sympy.sympify(last_dim_size), 2) + 1)
    mirrored = simplify(last_dim_size - half)
    real, imaginary = (B.of_size(b, "fft", part, axis, half) for part in z.parts)
    rest = [B.take(b, part, axis, mirrored, mirrored, -1) for part in (real, imaginary)]
    given_real = B.concat(b, [real, rest[0]], axis)
    conjugate = B.concat(b, [b.one("neg", imaginary), rest[1]], axis)
    parts = transform(b, given_real, conjugate, axis, last_dim_size, 1)
    shape = B.shape_of(real)
    (made,) = _scaled(b, parts, product((*(shape[i] for i in others), last_dim_size)), norm)
    return made


ROWS = {"aten._fft_c2c.default": complex_to_complex, "aten._fft_c2r.default": complex_to_real}
COMPOSITES: tuple[Composite, ...] = (Composite(("aten._fft_r2c.default",), real_to_complex),)
