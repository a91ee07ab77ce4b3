"""Patterns of quantised tensors in programs: the table, and the matcher.

A quantised tensor is (q - zero) * scale. Most quantisers' operators are imported as `dequantize`
(`compiler.ops.quantize`, `compiler.ops.torchao`); PyTorch decomposes some of them before import
(torch.compile, `run_decompositions`). A new form is a row of PATTERNS.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.graph import Value

#: An operator's name and its operands. An operand is another operator, or a part of the quantised tensor:
#: "q", "scale", "zero".
Pattern = tuple[str, "tuple[Pattern | str, ...]"]

#: The origin and the pattern; the first match is taken.
PATTERNS: tuple[tuple[str, Pattern], ...] = (
    ("quantized_decomposed.*, torchao::dequantize_affine", ("dequantize", ("q", "scale", "zero"))),
    ("the same, symmetric", ("dequantize", ("q", "scale"))),
    ("torchao::dequantize_affine, decomposed", ("mul", (("sub", (("cast", ("q",)), "zero")), "scale"))),
    ("the same, symmetric", ("mul", (("cast", ("q",)), "scale"))),
    ("Int8WeightOnlyConfig: the scale multiplies the product", ("cast", ("q",))),
    ("the same in models in bf16, which has all bytes", ("cast", (("cast", ("q",)),))),
)
BYTES = ("i8", "u8")
FLOATS = ("f32", "f16", "bf16")
LOOKED_THROUGH = {"scale": ("expand",), "zero": ("expand", "cast")}  # around a part


@dataclass(frozen=True)
class Quantised:
    """The parts of a quantised tensor; `scale`: None means 1, `zero`: None means 0."""

    q: Value
    scale: Value | None
    zero: Value | None

    @property
    def factors(self) -> list[Value]:
        """The scale and the zero point, as far as there are any."""
        return [part for part in (self.scale, self.zero) if part is not None]


def quantised(value: Value) -> Quantised | None:
    """Return the parts of the quantised tensor that `value` dequantises, None if no pattern matches."""
    for _, pattern in PATTERNS:
        parts: dict[str, Value] = {}
        if _fits(pattern, value, parts) and _are_parts(parts):
            return Quantised(parts["q"], parts.get("scale"), parts.get("zero"))
    return None


def _fits(pattern: Pattern | str, value: Value, parts: dict[str, Value]) -> bool:
    """Whether a value matches a pattern; puts its parts into `parts`."""
    if isinstance(pattern, str):
        parts[pattern] = _inner(value, LOOKED_THROUGH.get(pattern, ()))
        return True
    op, operands = pattern
    node = value.node
    args = [] if node is None else node.present
    if node is None or node.op != op or len(args) != len(operands) or value.tensor.dtype not in FLOATS:
        return False
    return all(_fits(operand, arg, parts) for operand, arg in zip(operands, args, strict=True))


def _inner(value: Value, looked_through: tuple[str, ...]) -> Value:
    """Return a part without expands and conversions; an axis that an expand adds stays."""
    while value.node is not None and value.node.op in looked_through:
        inner = value.node.arg(0)
        if inner.tensor.rank != value.tensor.rank:
            break
        value = inner
    return value


def _are_parts(parts: dict[str, Value]) -> bool:
    """Whether parts are those of bytes; those of other integers are arithmetic like any other."""
    rank = parts["q"].tensor.rank
    return parts["q"].tensor.dtype in BYTES and all(part.tensor.rank == rank for part in parts.values())
