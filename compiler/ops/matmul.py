"""Matrix products: `matmul`, the composite `linear`, and torch's overloads of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.dims import DimExpr, equal, format_dim
from ..ir.errors import DtypeError, ShapeError
from ..ir.graph import Builder, Node, Value
from ..ir.types import FLOAT_DTYPES, INT_DTYPES, TensorType, Type
from . import build as B
from .declare import Composite, Op, Sample
from .pointwise import add, mul
from .rules import Attrs, Types, check_dtype, equal_shapes, same_dtype, show, tensor, tensors

# The operators ------------------------------------------------------------------------------------


def _infer_matmul(types: Types, attrs: Attrs) -> Sequence[Type]:
    a, b, *scales = tensors("matmul", types, 3 if len(types) == 3 else 2)
    scale = scales[0] if scales else None
    if scale is not None:
        _check_scale(a, b, scale)
        dtype = "f32"
    elif is_of_bytes(a, b):
        dtype = "i32"
    elif (a.dtype, b.dtype) == ("bf16", "bf16"):
        dtype = "f32"
    else:
        dtype = same_dtype("matmul", [a, b])
        check_dtype("matmul", dtype, (*FLOAT_DTYPES, *INT_DTYPES))
    if a.rank < 2 or b.rank < 2 or (b.rank > 2 and not equal_shapes(a.shape[:-2], b.shape[:-2])):
        raise ShapeError(
            f"matmul: arguments have shapes {show(a.shape)} and {show(b.shape)}; they must be [batch.., "
            "M, K] and "
            "[K, N] or [batch.., K, N] with equal batch sizes"
        )
    if not equal(a.shape[-1], b.shape[-2]):
        raise ShapeError(
            f"matmul: K differs, {format_dim(a.shape[-1])} in {show(a.shape)} and "
            f"{format_dim(b.shape[-2])} in {show(b.shape)}"
        )
    return (TensorType(dtype, (*a.shape[:-1], b.shape[-1])),)


def _check_scale(a: TensorType, b: TensorType, scale: TensorType) -> None:
    """Refuse scales that are not those of groups of rows of a matrix of integers."""
    if a.dtype not in ("f32", "u8") or (b.dtype, scale.dtype) != ("i8", "f32"):
        raise DtypeError(
            f"matmul: a, b and scale are {a.dtype}, {b.dtype} and {scale.dtype}; they must be f32 or u8, i8 "
            "and f32"
        )
    k, groups = b.shape[0], scale.shape[0]
    divides = isinstance(k, int) and isinstance(groups, int) and groups > 0 and k % groups == 0
    if b.rank != 2 or scale.rank != 2 or not divides or not equal(b.shape[1], scale.shape[1]):
        raise ShapeError(
            f"matmul: b has shape {show(b.shape)} and scale {show(scale.shape)}; they must be [K, N] and "
            "[groups, N], and groups must divide K"
        )


def is_of_bytes(a: TensorType, b: TensorType) -> bool:
    """Return True for a product of u8 by i8, which is exact in i32 modulo 2^32."""
    return (a.dtype, b.dtype) == ("u8", "i8")


def _matmul(args: Sequence[Any], attrs: Attrs) -> Any:
    a, b, *scales = args
    if scales:
        return np.matmul(a, b * np.repeat(scales[0], len(b) // len(scales[0]), axis=0))
    if (a.dtype, b.dtype) == (np.uint8, np.int8):
        a, b = a.astype(np.int32), b.astype(np.int32)
    return np.matmul(a, b)


def _infer_linear(types: Types, attrs: Attrs) -> Sequence[Type]:
    x, weight = tensor("linear", types, 0), tensor("linear", types, 1)
    bias = tensor("linear", types, 2) if len(types) > 2 and types[2] is not None else None
    dtype = same_dtype("linear", [x, weight, *([bias] if bias else [])])
    check_dtype("linear", dtype, (*FLOAT_DTYPES, *INT_DTYPES))
    if x.rank < 1 or weight.rank != 2 or not equal(x.shape[-1], weight.shape[1]):
        raise ShapeError(
            f"linear: input {show(x.shape)} and weight {show(weight.shape)} must be [.., K] and [N, K]"
        )
    if bias is not None and bias.shape and not equal_shapes(bias.shape, weight.shape[:1]):
        raise ShapeError(f"linear: bias {show(bias.shape)} must be [{format_dim(weight.shape[0])}]")
    return (TensorType(dtype, (*x.shape[:-1], weight.shape[0])),)


def _linear(args: Sequence[Any], attrs: Attrs) -> Any:
    x, weight, bias = args
    result = np.matmul(x, weight.T)
    return result if bias is None else result + bias


def product(b: Builder, x: Value, y: Value) -> Value:
    """x [batch.., M, K] times y [K, N] or [batch.., K, N] in a form for kernels.

    The matmul family is f32's. f16 and bf16 are converted there and back; in other dtypes the product is sums
    of products, of the row family.
    """
    dtype = B.dtype_of(x)
    if dtype == "f32":
        return b.one("matmul", x, y)
    if dtype in ("f16", "bf16"):
        wide = b.one("matmul", B.cast_to(b, x, "f32"), B.cast_to(b, y, "f32"))
        return B.cast_to(b, wide, dtype)
    rank, y_rank = len(B.shape_of(x)), len(B.shape_of(y))
    columns = B.permute(b, y, [*range(y_rank - 2), y_rank - 1, y_rank - 2])
    terms = B.pointwise(b, "mul", B.add_axis(b, x, rank - 1), B.add_axis(b, columns, y_rank - 2))
    return B.reduce(b, "reduce_sum", terms, [rank], keepdim=False)


def _decompose_linear(b: Builder, node: Node) -> Sequence[Value]:
    """x [.., K] becomes rows [M, K], times the transposed weight [K, N], plus the bias.

    f16 and bf16 are rounded once, after the bias.
    """
    x, weight = node.arg(0), node.arg(1)
    bias = node.args[2] if len(node.args) > 2 else None
    shape = B.shape_of(x)
    rows = x if len(shape) > 1 else B.reshape(b, x, (1, *shape))

    def compute(rows: Value, columns: Value, *bias: Value) -> Value:
        result = product(b, rows, columns)
        return B.pointwise(b, "add", result, *bias) if bias else result

    result = B.in_f32(b, compute, rows, B.permute(b, weight, (1, 0)), *([] if bias is None else [bias]))
    return [B.reshape(b, result, (*shape[:-1], B.shape_of(weight)[0]))]


OPS: tuple[Op, ...] = (
    Op(
        "matmul",
        "matmul",
        "matmul(Tensor a, Tensor b, Tensor? scale) -> Tensor",
        "a [batch.., M, K] times b [K, N] or [batch.., K, N]: [batch.., M, N]. bf16 times a constant b in "
        "bf16 is f32; u8 times a constant b in i8 is i32. With a constant scale [groups, N] b is a constant "
        "in i8, each group of whose rows stands for integers times a row of scale.",
        _infer_matmul,
        _matmul,
        samples=(
            Sample(("f32[s0, 5]", "f32[5, 3]"), {}),
            Sample(("f32[2, s0, 4]", "f32[4, 3]"), {}),
            Sample(("f32[2, s0, 4]", "f32[2, 4, s1]"), {}),
            Sample(("f32[1, 1]", "f32[1, 1]"), {}),
            Sample(("f32[s0, 0]", "f32[0, 3]"), {}),
            Sample(("f32[0, 4]", "f32[4, s0]"), {}),
            Sample(("f32[s0, 64]", "i8[64, 3]", "f32[2, 3]"), {}),
            Sample(("u8[s0, 64]", "i8[64, 3]", "f32[2, 3]"), {}),
        ),
        errors=(
            (Sample(("f32[4, 8]", "f32[7, 3]"), {}), "matmul: K differs, 8 in [4, 8] and 7 in [7, 3]"),
            (
                Sample(("f32[4, 8]", "i8[8, 3]", "f32[3, 3]"), {}),
                "matmul: b has shape [8, 3] and scale [3, 3]; they must be [K, N] and [groups, N], and "
                "groups must divide K",
            ),
            (
                Sample(("f32[4, 8]", "f32[8, 3]", "f32[2, 3]"), {}),
                "matmul: a, b and scale are f32, f32 and f32; they must be f32 or u8, i8 and f32",
            ),
        ),
    ),
    Op(
        "linear",
        "composite",
        "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
        "x [.., K] times the transposed weight [N, K], plus bias [N].",
        _infer_linear,
        _linear,
        decompose=_decompose_linear,
        samples=(
            Sample(("f32[s0, 5]", "f32[3, 5]", "f32[3]"), {}),
            Sample(("f32[2, s0, 5]", "f32[3, 5]", ""), {}),
            Sample(("f32[5]", "f32[3, 5]", "f32[3]"), {}),
            Sample(("f32[0, 5]", "f32[1, 5]", "f32[1]"), {}),
        ),
        errors=(
            (
                Sample(("f32[2, 4]", "f32[3, 5]", ""), {}),
                "linear: input [2, 4] and weight [3, 5] must be [.., K] and [N, K]",
            ),
            (
                Sample(("bool[2, 5]", "bool[3, 5]", ""), {}),
                "linear: the dtype is bool; it takes bf16, f16, f32, f64, i16, i32, i64, i8, u8",
            ),
        ),
    ),
)


# torch's overloads --------------------------------------------------------------------------------


def matmul(b: Builder, x: Value, y: Value) -> Value:
    """torch.matmul: vectors get an axis that is dropped again, batch axes broadcast."""
    x_rank, y_rank = len(B.shape_of(x)), len(B.shape_of(y))
    left = B.add_axis(b, x, 0) if x_rank == 1 else x
    right = B.add_axis(b, y, 1) if y_rank == 1 else y
    result = _batched(b, B.of_matching_size(b, "matmul", left, -1, B.shape_of(right)[-2]), right)
    if x_rank == 1:
        result = B.drop_axis(b, result, len(B.shape_of(result)) - 2)
    return B.drop_axis(b, result, len(B.shape_of(result)) - 1) if y_rank == 1 else result


def _batched(b: Builder, x: Value, y: Value) -> Value:
    x_shape, y_shape = B.shape_of(x), B.shape_of(y)
    if len(y_shape) == 2:
        return product(b, x, y)
    for back in range(3, min(len(x_shape), len(y_shape)) + 1):
        if not B.is_one(x_shape[-back]) and not B.is_one(y_shape[-back]):
            y = B.of_matching_size(b, "matmul", y, -back, x_shape[-back])
    y_shape = B.shape_of(y)
    batch = B.broadcast_shape("matmul", [x_shape[:-2], y_shape[:-2]])
    return product(b, B.expand(b, x, (*batch, *x_shape[-2:])), B.expand(b, y, (*batch, *y_shape[-2:])))


def linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x times the transposed weight, plus bias."""
    if len(B.shape_of(weight)) == 1:
        result = matmul(b, x, weight)
        return result if bias is None else add(b, result, bias)
    n, k = B.shape_of(weight)
    x = B.of_matching_size(b, "linear", x, -1, k) if B.shape_of(x) else x
    bias = bias if bias is None or not B.shape_of(bias) else B.of_matching_size(b, "linear", bias, -1, n)
    return b.one("linear", x, weight, bias)


def addmm(b: Builder, x: Value, m1: Value, m2: Value, *, beta: B.Number = 1, alpha: B.Number = 1) -> Value:
    """beta * x + alpha * (m1 @ m2), both factors of the dtype; x is ignored if beta is 0. f16 and
    bf16 are rounded once."""
    alpha, beta = (B.convert_number(factor, B.dtype_of(m1)) for factor in (alpha, beta))

    def compute(x: Value, m1: Value, m2: Value) -> Value:
        result = matmul(b, m1, m2)
        if alpha != 1:
            result = mul(b, result, alpha)
        if beta == 0:
            return result
        return add(b, result, x if beta == 1 else mul(b, x, beta))

    return B.in_f32(b, compute, x, m1, m2)


def addbmm(b: Builder, x: Value, m1: Value, m2: Value, *, beta: B.Number = 1, alpha: B.Number = 1) -> Value:
    """beta * x + alpha * the sum over the batch of m1 @ m2: one product along batch and k."""
    batch, m, k = B.shape_of(m1)
    n = B.shape_of(m2)[2]
    left = B.reshape(b, B.permute(b, m1, [1, 0, 2]), [m, B.product((batch, k))])
    right = B.reshape(b, m2, [B.product((batch, k)), n])
    return addmm(b, x, left, right, beta=beta, alpha=alpha)


def trilinear(
    b: Builder,
    x: Value,
    y: Value,
    z: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """The sum over the axes `sumdim` of x * y * z, which get new axes of size 1 at `expand1` .. `expand3`.
    If PyTorch's result has another size than the terms, because a factor is empty, it is 0."""
    factors = []
    sizes: dict[int, DimExpr] = {}  # by axis: of the last factor that has it
    for factor, axes in ((x, expand1), (y, expand2), (z, expand3)):
        for axis in sorted(axes):
            factor = B.add_axis(b, factor, axis)
        factors.append(factor)
        sizes |= {axis: size for axis, size in enumerate(B.shape_of(factor)) if axis not in axes}

    def compute(*factors: Value) -> Value:
        terms = B.pointwise(b, "mul", B.pointwise(b, "mul", factors[0], factors[1]), factors[2])
        return B.reduce(b, "reduce_sum", terms, sorted(sumdim), False)

    result = B.in_f32(b, compute, *factors)
    wanted = [sizes.get(axis, 0) for axis in range(len(B.shape_of(factors[0]))) if axis not in sumdim]
    differ = any(B.is_known(a - c) and a != c for a, c in zip(B.shape_of(result), wanted, strict=True))
    return B.full(b, 0, B.dtype_of(result), tuple(wanted)) if differ else result


def dot(b: Builder, x: Value, y: Value) -> Value:
    """The scalar product of two vectors."""
    return matmul(b, x, y)


COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default"), matmul),
    Composite(("aten.linear.default",), linear),
    Composite(("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default"), addmm),
    Composite(("aten.addbmm.default",), addbmm),
    Composite(("aten._trilinear.default",), trilinear),
    Composite(("aten.dot.default", "aten.vdot.default"), dot),
)
