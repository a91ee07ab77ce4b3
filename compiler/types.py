"""Types of graph values: tensors with symbolic shapes, plain values, containers."""

from __future__ import annotations

from dataclasses import dataclass

from ..vm.isa import DTYPES
from .dims import DimExpr, format_dim

FLOAT_DTYPES = ("f64", "f32", "f16", "bf16")
INT_DTYPES = ("i64", "i32", "i16", "i8", "u8")


@dataclass(frozen=True)
class TensorType:
    """A tensor of `dtype` (a name in `vm.isa.DTYPES`) with one dimension per axis; () is 0-d."""

    dtype: str
    shape: tuple[DimExpr, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPES)}")

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(format_dim(d) for d in self.shape)}]"


@dataclass(frozen=True)
class ScalarType:
    """A plain value: `kind` is int, float, bool, str or none. An int's `expr` is its value in size symbols, if it has one."""

    kind: str
    expr: DimExpr | None = None

    def __str__(self) -> str:
        return self.kind if self.expr is None else f"{self.kind}({format_dim(self.expr)})"


@dataclass(frozen=True)
class ListType:
    """A list of any length with equal element types."""

    element: Type

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class TupleType:
    """A tuple with one type per element."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class DictType:
    """A dict from `key` (str or int) to `value`."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"dict<{self.key}, {self.value}>"


@dataclass(frozen=True)
class OptionalType:
    """Either none or an `element`."""

    element: Type

    def __str__(self) -> str:
        return f"optional<{self.element}>"


Type = TensorType | ScalarType | ListType | TupleType | DictType | OptionalType

INT, FLOAT, BOOL, STR, NONE = (ScalarType(kind) for kind in ("int", "float", "bool", "str", "none"))
