"""Fourier transforms; a complex tensor has its parts along the last axis."""

from __future__ import annotations

from typing import Any

import sympy

from ....ir.dims import DimExpr, equal, floordiv, simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ops import build as B
from ....ops.complex import Complex, view_as_real
from ....ops.fourier import BY_LENGTH, complex_to_complex, complex_to_real, real_to_complex
from ..rows import Call, row

AXIS_AS_INPUT = 20  # the version from which the axis is an input


def _parts(call: Call) -> list[Value]:
    """Return the real and, if there is one, the imaginary part of input 0, in f32 or f64."""
    b, x = call.b, call.value(0)
    x = x if B.dtype_of(x) == "f64" else B.cast_to(b, x, "f32")
    last, count = len(B.shape_of(x)) - 1, B.shape_of(x)[-1]
    if count not in (1, 2):
        raise UnsupportedOp(f"{call.op}: the last axis has {count} elements; it must have 1 or 2, the parts")
    return [B.drop_axis(b, B.take(b, x, last, i, 1), last) for i in range(int(count))]


def _of_length(call: Call, x: Value, axis: int, length: DimExpr) -> Value:
    """Return x with zeros after its end, or cut, along an axis."""
    amounts: list[Any] = [(0, 0)] * len(B.shape_of(x))
    amounts[axis] = (0, simplify(length - B.shape_of(x)[axis]))
    return x if equal(length, B.shape_of(x)[axis]) else B.pad(call.b, x, amounts)


def _transformed(call: Call, parts: list[Value], axis: int, onesided: bool, inverse: bool = False) -> Value:
    """Return the complex transform along an axis."""
    b = call.b
    if len(parts) == 1 and not inverse:
        return view_as_real(b, real_to_complex(b, parts[0], [axis], 0, onesided))
    if onesided:
        raise UnsupportedOp(f"{call.op}: onesided=1 needs real numbers; use onesided=0 for complex ones")
    zeros = B.full(b, 0, B.dtype_of(parts[0]), B.shape_of(parts[0]))
    number = Complex(parts[0], parts[1] if len(parts) > 1 else zeros)
    return view_as_real(b, complex_to_complex(b, number, [axis], BY_LENGTH if inverse else 0, not inverse))


@row("DFT")
def _dft(call: Call) -> Value:
    b, parts = call.b, _parts(call)
    rank = len(B.shape_of(parts[0])) + 1
    given = call.ints(2, "axis", [-2]) if call.version >= AXIS_AS_INPUT else [call.attr("axis", 1)]
    axis = B.axis_of(call.op, (given or [-2])[0], rank)
    onesided, inverse = bool(call.attr("onesided", 0)), bool(call.attr("inverse", 0))
    size, is_half = B.shape_of(parts[0])[axis], onesided and inverse
    length = call.size(1) if call.has(1) else simplify(2 * (size - 1)) if is_half else size
    kept = simplify(floordiv(sympy.sympify(length), 2) + 1) if is_half else length
    parts = [_of_length(call, part, axis, kept) for part in parts]
    if not is_half:
        made = _transformed(call, parts, axis, onesided, inverse)
    elif len(parts) == 1:
        raise UnsupportedOp("DFT: the inverse with onesided=1 needs complex numbers")
    else:
        found = complex_to_real(b, Complex(*parts), [axis], BY_LENGTH, length)
        made = B.add_axis(b, found, rank - 1)
    return B.cast_to(b, made, call.dtype(0))


@row("STFT")
def _stft(call: Call) -> Value:
    """The transforms of windows of a signal."""
    b, parts, step = call.b, _parts(call), int(call.numbers(1).reshape(-1)[0])
    size = B.shape_of(parts[0])[1]
    length = call.size(3) if call.has(3) else call.shape(2)[0] if call.has(2) else size
    if step < 1 or not isinstance(length, int):
        raise UnsupportedOp(f"STFT: frames of {length} every {step}; they must be constants of at least 1")
    count = simplify(floordiv(sympy.sympify(size - length), step) + 1)
    count = B.positive_part(b, count)
    frames = [B.windows(b, part, 1, length, step, count) for part in parts]
    if call.has(2):
        window = B.cast_to(b, B.of_size(b, call.op, call.value(2), 0, length), B.dtype_of(frames[0]))
        frames = [B.pointwise(b, "mul", each, window) for each in frames]
    made = _transformed(call, frames, 2, bool(call.attr("onesided", 1)))
    return B.cast_to(b, made, call.dtype(0))
