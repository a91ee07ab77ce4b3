"""The table of operators, and a node as its row sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx

from ...ir.dims import SIGNED, DimExpr, symbol
from ...ir.errors import UnsupportedOp
from ...ir.graph import Block, Builder, Value
from ...ops import build as B
from ..importer import find_converter
from .known import Known, known

Operand: TypeAlias = "Known | Value"
Run: TypeAlias = "Callable[[Call], Any]"
MAX_COUNT = 1 << 12
MAX_READ = 64  # elements of a tensor that are read as sizes when the program runs

#: The function of every operator by (domain, name); ai.onnx is "".
ROWS: dict[tuple[str, str], Run] = {}


def row(*names: str, domain: str = "") -> Callable[[Run], Run]:
    """Register the decorated function as that of the operators `names`. It takes a `Call` and returns its
    result: a value, a known tensor, or a tuple of them, as many as the operator has results at most; None
    where the standard's definition by other operators does."""

    def register(run: Run) -> Run:
        for name in names:
            ROWS[domain, name] = run
        return run

    return register


class Scope(Protocol):
    """What a row may do besides appending nodes: import graphs that are attributes."""

    builder: Builder

    def value(self, x: Operand) -> Value:
        """Return the graph's value of an operand."""
        ...

    def array(self, tensor: onnx.TensorProto) -> Known:
        """Return a tensor that is an attribute."""
        ...

    def graph(self, graph: onnx.GraphProto, arguments: Sequence[Operand]) -> list[Operand]:
        """Import the nodes of a graph into the current block; return its results."""
        ...

    def block(
        self, params: list[Value], run: Callable[[], list[Operand]], dtypes: Sequence[str | None] = ()
    ) -> Block:
        """Return the block that `run` fills, with its results."""
        ...

    def add_generator(self, seed: int) -> None:
        """Give the program a generator of random numbers, if it has none."""
        ...


@dataclass(frozen=True)
class Call:
    """One node. `version`: that of its domain's operators."""

    op: str
    domain: str
    version: int
    scope: Scope
    inputs: Sequence[Operand | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    n_outputs: int = 1

    @property
    def b(self) -> Builder:
        """The builder."""
        return self.scope.builder

    def has(self, i: int) -> bool:
        """Whether input `i` is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> Operand:
        """Return input `i`. Raises UnsupportedOp if it is missing."""
        found = self.inputs[i] if i < len(self.inputs) else None
        if found is None:
            raise UnsupportedOp(f"{self.op}: input {i} is missing")
        return found

    def value(self, i: int) -> Value:
        """Return input `i` as a value of the graph."""
        return self.scope.value(self.input(i))

    def maybe(self, i: int) -> Value | None:
        """Return input `i` as a value of the graph, or None."""
        return self.value(i) if self.has(i) else None

    def values(self) -> list[Value]:
        """Return all inputs that are given."""
        return [self.scope.value(x) for x in self.inputs if x is not None]

    def numbers(self, i: int, default: Any = None) -> np.ndarray:
        """Return the elements of input `i`, which are known numbers. Raises UnsupportedOp for others."""
        if not self.has(i):
            return np.asarray(default)
        found = self.input(i)
        if not isinstance(found, Known) or found.is_symbolic:
            raise UnsupportedOp(f"{self.op}: input {i} is computed by the model; it must be a constant here")
        return found.items

    def ints(self, i: int, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """Return known ints: of input `i`, else of the attribute `name`."""
        if self.has(i):
            return [int(each) for each in self.numbers(i).reshape(-1)]
        found = self.attr(name)
        if found is None:
            return None if default is None else list(default)
        return [found] if isinstance(found, int) else list(found)

    def dims(self, i: int, is_signed: bool = False) -> list[DimExpr]:
        """Return the elements of input `i` as sizes; those of a tensor that the model computes are read when
        the program runs, and must be at least 0 unless `is_signed`."""
        found = self.input(i)
        if isinstance(found, Known):
            return found.dims
        return self.elements(found, f"input {i}", is_signed)

    def elements(self, x: Value, what: str, is_signed: bool = False) -> list[DimExpr]:
        """Return the elements of a tensor that the model computes as sizes; `what`: its name."""
        b, shape = self.b, B.shape_of(x)
        size = shape[0] if shape else 1
        if not isinstance(size, int) or size > MAX_READ or len(shape) > 1:
            raise UnsupportedOp(
                f"{self.op}: {what} has the shape {shape}; a list of a known length is needed"
            )
        line = B.reshape(b, B.cast_to(b, x, "i64"), [size])
        return [self._read(line, at, is_signed) for at in range(size)]

    def _read(self, line: Value, at: int, is_signed: bool) -> DimExpr:
        """Read an element of a tensor of one axis as an int with a name."""
        b = self.b
        dim = symbol(b.graph.new_name(SIGNED if is_signed else "u"))
        found = b.one("item", B.take(b, line, 0, at, 1), symbol=str(dim))
        if not is_signed:
            message = f"{self.op}: {dim}, a value that the model computes, must be at least 0"
            b.apply("guard", b.one("int_le", b.one("size", dim=0), found), message=message)
        return dim

    def size(self, i: int) -> DimExpr:
        """Return the only element of input `i` as a size."""
        (found,) = self.dims(i)
        return found

    def read(self, x: Value) -> DimExpr:
        """Return the only element of an int tensor, which must be at least 0, as a size."""
        return self._read(B.reshape(self.b, x, [1]), 0, False)

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute; strings as str."""
        found = self.attributes.get(name, default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found

    def count(self, name: str, default: int) -> int:
        """Return an attribute by which work is repeated. Raises UnsupportedOp beyond a limit."""
        found = self.attr(name, default)
        if not 0 < found <= MAX_COUNT:
            raise UnsupportedOp(
                f"{self.op}: {name} is {found}; it must be at least 1 and at most {MAX_COUNT}"
            )
        return int(found)

    def apply(self, op: str, inputs: Sequence[Operand | None], **changes: Any) -> Any:
        """Append what an operator of the standard means for these inputs; `changes`: fields of the call."""
        return ROWS["", op](replace(self, op=op, domain="", inputs=inputs, **changes))

    def aten(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Append what PyTorch's operator `name`, such as "softmax.int", means."""
        convert = find_converter(f"aten.{name}" if "." in name else f"aten.{name}.default")
        assert convert is not None, name
        return convert(self.b, *args, **kwargs)

    def shape(self, i: int) -> list[DimExpr]:
        """Return the shape of input `i`."""
        return shape_of(self.input(i))

    def dtype(self, i: int) -> str:
        """Return the dtype of input `i`."""
        found = self.input(i)
        return found.dtype if isinstance(found, Known) else B.dtype_of(found)

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """Return the axis that an attribute names, counted from the front."""
        found = self.attr(name, default)
        if not isinstance(found, int):
            raise UnsupportedOp(f"{self.op}: the attribute {name} is missing")
        return B.axis_of(self.op, found, rank)


def shape_of(x: Operand) -> list[DimExpr]:
    """Return the shape of an operand."""
    return list(x.items.shape if isinstance(x, Known) else B.shape_of(x))


def of_dims(dims: Sequence[DimExpr]) -> Known:
    """Return sizes as a known tensor of one axis."""
    return known(np.array(list(dims), object).reshape(len(dims)), "i64")
