"""Complex tensors: pairs of real ones, which no dtype of the machine is for.

An operator on complex elements follows one of three rules. `PARTWISE` operators move elements or are linear:
the real operator does the same to both parts. `PRODUCTS` are linear in each of two arguments. `ROWS` are
written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..ir.errors import DtypeError, UnsupportedOp
from ..ir.graph import Builder, Value
from ..ir.types import Type
from . import build as B
from .declare import Composite, Op

DTYPES = {"c64": "f32", "c128": "f64"}  # of the parts


@dataclass(frozen=True)
class Complex:
    """A complex tensor: its real and its imaginary parts, of one shape."""

    real: Value
    imaginary: Value

    @property
    def parts(self) -> tuple[Value, Value]:
        """Both parts."""
        return self.real, self.imaginary

    @property
    def type(self) -> Type:
        """The type of each part."""
        return self.real.type


def as_output(value: Value | Complex) -> Value:
    """Return a program's result. Raises DtypeError for a complex one."""
    if isinstance(value, Complex):
        raise DtypeError("an output is complex, which cannot be compiled: return torch.view_as_real of it")
    return value


Operand: TypeAlias = Complex | B.Tensorlike | complex
Converter: TypeAlias = Callable[..., Any]


def is_complex(value: Any) -> bool:
    """Whether an argument is complex, has a complex part, or names a complex dtype."""
    if isinstance(value, list | tuple):
        return any(map(is_complex, value))
    return isinstance(value, Complex | complex) or (isinstance(value, str) and value in DTYPES)


def dtype_of(x: Value | Complex) -> str:
    """Return the dtype of a tensor, real or complex."""
    found = B.dtype_of(x)
    return next(name for name in DTYPES if DTYPES[name] == found) if isinstance(x, Complex) else found


def real_of(x: Any) -> Any:
    """Return the real part of an argument, or of each one in a list."""
    if isinstance(x, list | tuple):
        return [real_of(item) for item in x]
    return x.real if isinstance(x, Complex | complex) else x


def imaginary_of(b: Builder, x: Any) -> Any:
    """Return the imaginary part of an argument, or of each one in a list: 0 of a real one."""
    if isinstance(x, list | tuple):
        return [imaginary_of(b, item) for item in x]
    if isinstance(x, Complex):
        return x.imaginary
    if isinstance(x, Value):
        x = B.tensor_of(b, x)
        return B.full(b, 0, B.dtype_of(x), B.shape_of(x))
    return x.imag if isinstance(x, complex) else 0.0


def given(x: Any) -> Complex:
    """Return an argument that must be complex. Raises DtypeError for another one."""
    if not isinstance(x, Complex):
        raise DtypeError("a real tensor is given where a complex one is needed")
    return x


# The two rules for operators that exist for real elements --------------------------------------------------

#: Operators that the real ones do part by part: the positions of the arguments that have elements. All other
#: arguments are the same for both parts.
_PARTWISE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "alias.default", "clone.default", "detach.default", "contiguous.default",
            "lift_fresh_copy.default", "view.default", "_unsafe_view.default", "reshape.default",
            "permute.default", "transpose.int", "t.default", "mT.default", "numpy_T.default",
            "flatten.using_ints", "unflatten.int", "unsqueeze.default", "squeeze.default", "squeeze.dim",
            "squeeze.dims", "expand.default", "repeat.default", "movedim.int", "movedim.intlist",
            "select.int", "slice.Tensor", "narrow.default", "split.Tensor", "split_with_sizes.default",
            "chunk.default", "unbind.int", "flip.default", "diagonal.default", "unfold.default",
            "cat.default", "stack.default", "roll.default", "index.Tensor", "index_select.default",
            "gather.default", "embedding.default", "tril.default", "triu.default", "neg.default",
            "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default",
            "zeros_like.default", "empty_like.default", "new_zeros.default", "new_empty.default",
            "zero.default", "diag_embed.default", "repeat_interleave.self_int", "as_strided.default",
            "reflection_pad1d.default", "reflection_pad2d.default", "replication_pad1d.default",
        ),
        (0,),
    ),
    **dict.fromkeys(("zeros.default", "empty.memory_format"), ()),
    **dict.fromkeys(
        (
            "copy.default", "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar",
            "rsub.Tensor", "slice_scatter.default", "select_scatter.default", "fill.Scalar", "fill.Tensor",
            "full_like.default",
        ),
        (0, 1),
    ),
    **dict.fromkeys(
        ("constant_pad_nd.default", "masked_fill.Scalar", "masked_fill.Tensor", "index_put.default"), (0, 2)
    ),
    **dict.fromkeys(("scatter.src", "scatter_add.default", "index_add.default"), (0, 3)),
    "new_full.default": (0, 2),
    "full.default": (1,),
    "scalar_tensor.default": (0,),
    **dict.fromkeys(("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"), (1, 2)),
}  # fmt: skip
#: Operators that are linear in each of their first two arguments.
_PRODUCTS = (
    "mul.Tensor", "mul.Scalar", "mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default",
)  # fmt: skip
PARTWISE = {f"aten.{name}": positions for name, positions in _PARTWISE.items()}
PRODUCTS = frozenset(f"aten.{name}" for name in _PRODUCTS)


def of_parts(overload: str, real: Converter) -> Converter | None:
    """Return the converter of complex arguments that follows from `real`, that of real ones; None if neither
    rule is for the overload."""
    if overload in PARTWISE:
        return lambda b, *args, **named: _part_by_part(b, real, PARTWISE[overload], args, named)
    return (lambda b, x, y: _product(b, real, x, y)) if overload in PRODUCTS else None


def _part_by_part(
    b: Builder, real: Converter, positions: Sequence[int], args: Sequence[Any], named: dict[str, Any]
) -> Any:
    others = [arg for i, arg in enumerate(args) if i not in positions]
    if any(isinstance(arg, Complex | complex) for arg in (*others, *named.values())):
        raise UnsupportedOp("a complex number is given where only a real one can be compiled")
    named = {
        name: DTYPES.get(value, value) if isinstance(value, str) else value for name, value in named.items()
    }
    found = []
    for part in (real_of, lambda x: imaginary_of(b, x)):
        parts = [part(arg) if i in positions else DTYPES.get(str(arg), arg) for i, arg in enumerate(args)]
        found.append(real(b, *parts, **named))
    return _joined(*found)


def _joined(real: Any, imaginary: Any) -> Any:
    if isinstance(real, list | tuple):
        return tuple(_joined(*pair) for pair in zip(real, imaginary, strict=True))
    return Complex(real, imaginary)


def _product(b: Builder, real: Converter, x: Operand, y: Operand) -> Complex:
    a, c = real_of(x), real_of(y)
    bi, d = imaginary_of(b, x), imaginary_of(b, y)
    return Complex(
        B.pointwise(b, "sub", real(b, a, c), real(b, bi, d)),
        B.pointwise(b, "add", real(b, a, d), real(b, bi, c)),
    )


# Rows ------------------------------------------------------------------------------------------------------


def view_as_real(b: Builder, z: Complex) -> Value:
    """Both parts, in a new last axis."""
    parts = [B.add_axis(b, part, len(B.shape_of(part))) for part in given(z).parts]
    return B.concat(b, parts, len(B.shape_of(parts[0])) - 1)


def view_as_complex(b: Builder, x: Value) -> Complex:
    """The numbers whose parts are in the last axis, of size 2."""
    axis = len(B.shape_of(x)) - 1
    x = B.of_size(b, "view_as_complex", x, axis, 2)
    real, imaginary = (B.drop_axis(b, B.take(b, x, axis, part, 1), axis) for part in range(2))
    return Complex(real, imaginary)


def make(b: Builder, real: Value, imaginary: Value) -> Complex:
    """The numbers of these parts."""
    first, second = B.broadcast(b, "complex", [real, imaginary])
    return Complex(first, second)


def polar(b: Builder, length: Value, angle: Value) -> Complex:
    """The numbers of these magnitudes and angles."""
    cosine, sine = (B.pointwise(b, "mul", length, b.one(op, angle)) for op in ("cos", "sin"))
    return Complex(cosine, sine)


def conj(b: Builder, z: Complex) -> Complex:
    """z with imaginary parts of the other sign."""
    return Complex(given(z).real, b.one("neg", z.imaginary))


def absolute(b: Builder, z: Complex) -> Value:
    """The magnitudes."""
    return b.one("hypot", *given(z).parts)


def angle(b: Builder, z: Complex) -> Value:
    """The angles, from -pi to pi."""
    return b.one("atan2", given(z).imaginary, z.real)


def divide(b: Builder, x: Operand, y: Operand) -> Complex:
    """x / y, with y scaled so that its squares neither overflow nor vanish."""
    dtype = B.common_dtype(real_of(x), imaginary_of(b, x), real_of(y), imaginary_of(b, y))

    def do(op: str, *args: B.Tensorlike) -> Value:
        return B.pointwise(b, op, *args, dtype=dtype)

    (a, e), (c, d) = ((real_of(z), imaginary_of(b, z)) for z in (x, y))
    scale = do("maximum", do("abs", c), do("abs", d))
    p, q = do("div", c, scale), do("div", d, scale)
    size = do("add", do("mul", c, p), do("mul", d, q))
    real = do("add", do("mul", a, p), do("mul", e, q))
    imaginary = do("sub", do("mul", e, p), do("mul", a, q))
    return Complex(do("div", real, size), do("div", imaginary, size))


def reciprocal(b: Builder, z: Complex) -> Complex:
    """1 / z."""
    return divide(b, 1.0, given(z))


def exp(b: Builder, z: Complex) -> Complex:
    """e to the power of z."""
    return polar(b, b.one("exp", given(z).real), z.imaginary)


def log(b: Builder, z: Complex) -> Complex:
    """The natural logarithm with an angle from -pi to pi."""
    return Complex(b.one("log", absolute(b, z)), angle(b, z))


def power(b: Builder, z: Complex, exponent: Any) -> Complex:
    """z to the power of a small whole number."""
    if not isinstance(exponent, int | float) or exponent not in (1, 2, 3, 4):
        raise UnsupportedOp(f"pow: a complex number to the power of {exponent} cannot be compiled")
    result: Operand = given(z)
    for _ in range(int(exponent) - 1):
        result = _product(b, lambda b, x, y: B.pointwise(b, "mul", x, y), result, z)
    return given(result)


def cast(b: Builder, x: Operand, dtype: str | None = None, *_: Any, **__: Any) -> Complex | Value:
    """x in another dtype: the real parts alone for a real one, zeros beside them for a complex one."""
    part = DTYPES.get(str(dtype))
    if dtype is None:
        return given(x)
    if part is None:
        return B.cast_to(b, B.tensor_of(b, real_of(x)), dtype)
    real, imaginary = (B.tensor_of(b, value, part) for value in (real_of(x), imaginary_of(b, x)))
    return Complex(real, imaginary)


def copy(b: Builder, x: Operand, *, dtype: str | None = None, **_: Any) -> Complex | Value:
    """x as `dtype`, if given."""
    return cast(b, x, dtype)


def _all_of(op: str, joined: str) -> Converter:
    def compare(b: Builder, x: Operand, y: Operand) -> Value:
        real = B.pointwise(b, op, real_of(x), real_of(y))
        return B.pointwise(b, joined, real, B.pointwise(b, op, imaginary_of(b, x), imaginary_of(b, y)))

    return compare


def _test(op: str, joined: str) -> Converter:
    return lambda b, z: B.pointwise(b, joined, *(b.one(op, part) for part in given(z).parts))


_ROWS: dict[str, Converter] = {
    "view_as_real.default": view_as_real,
    "_conj.default": conj,
    "conj.default": conj,
    "_conj_physical.default": conj,
    "conj_physical.default": conj,
    "resolve_conj.default": lambda b, z: given(z),
    "real.default": lambda b, z: given(z).real,
    "imag.default": lambda b, z: given(z).imaginary,
    "abs.default": absolute,
    "angle.default": angle,
    "div.Tensor": divide,
    "div.Scalar": divide,
    "reciprocal.default": reciprocal,
    "exp.default": exp,
    "log.default": log,
    "pow.Tensor_Scalar": power,
    "_to_copy.default": copy,
    "to.dtype": cast,
    **{f"eq.{kind}": _all_of("eq", "and") for kind in ("Tensor", "Scalar")},
    **{f"ne.{kind}": _all_of("ne", "or") for kind in ("Tensor", "Scalar")},
    "isnan.default": _test("isnan", "or"),
    "isinf.default": _test("isinf", "or"),
    "isfinite.default": _test("isfinite", "and"),
}
ROWS = {f"aten.{name}": row for name, row in _ROWS.items()}
ROWS["prims.convert_element_type.default"] = cast

OPS: tuple[Op, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten.view_as_complex.default",), view_as_complex),
    Composite(("aten.complex.default",), make),
    Composite(("aten.polar.default",), polar),
)
