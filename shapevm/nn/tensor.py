"""A tensor of the graph that is being built, with Python's operators."""

from __future__ import annotations

from typing import Any

from ..compiler.ir.dims import DimExpr
from ..compiler.ir.graph import Value
from .current import current


def call(overload: str, *args: Any, **kwargs: Any) -> Any:
    """Apply the operator that torch calls `overload`, such as "aten.relu.default", to tensors and numbers."""
    return current().call(overload, *args, **kwargs)


class Operand:
    """What Python's operators apply to: tensors, parameters and buffers."""

    shape: tuple[DimExpr, ...]
    dtype: str

    def __add__(self, other: Any) -> Tensor:
        return call("aten.add.Tensor", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return call("aten.add.Tensor", self, other)

    def __sub__(self, other: Any) -> Tensor:
        return call("aten.sub.Tensor", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return call("aten.rsub.Scalar", self, other)

    def __mul__(self, other: Any) -> Tensor:
        return call("aten.mul.Tensor", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return call("aten.mul.Tensor", self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return call("aten.div.Tensor", self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return call("aten.matmul.default", self, other)

    def __neg__(self) -> Tensor:
        return call("aten.neg.default", self)

    def __lt__(self, other: Any) -> Tensor:
        return call("aten.lt.Tensor", self, other)

    def __le__(self, other: Any) -> Tensor:
        return call("aten.le.Tensor", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return call("aten.gt.Tensor", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return call("aten.ge.Tensor", self, other)

    def __getitem__(self, index: Any) -> Tensor:
        """Return x[index]; `index`: ints, slices, None and ..., as of a torch tensor."""
        items = list(index) if isinstance(index, tuple) else [index]
        n_axes = sum(each is not None and each is not Ellipsis for each in items)
        at = items.index(Ellipsis) if Ellipsis in items else len(items)
        items[at : at + 1] = [slice(None)] * (len(self.shape) - n_axes)
        x: Operand = self
        axis = 0
        for each in items:
            if each is None:
                x, axis = call("aten.unsqueeze.default", x, axis), axis + 1
            elif isinstance(each, slice):
                if each != slice(None):
                    x = call("aten.slice.Tensor", x, axis, each.start, each.stop, each.step or 1)
                axis += 1
            else:
                x = call("aten.select.int", x, axis, each)
        return x if isinstance(x, Tensor) else call("aten.alias.default", x)

    def reshape(self, *shape: DimExpr) -> Tensor:
        """Return the tensor in `shape`; one -1 takes the rest."""
        return call("aten.reshape.default", self, list(shape))

    def permute(self, *axes: int) -> Tensor:
        """Return the tensor with its axes in this order."""
        return call("aten.permute.default", self, list(axes))

    def transpose(self, first: int, second: int) -> Tensor:
        """Return the tensor with two axes swapped."""
        return call("aten.transpose.int", self, first, second)

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Return the tensor with axes `start` to `end` as one."""
        return call("aten.flatten.using_ints", self, start, end)

    def to(self, dtype: str) -> Tensor:
        """Return the tensor converted to `dtype`, such as "f32"."""
        return call("aten.to.dtype", self, dtype)


class Tensor(Operand):
    """A handle on a value of the graph. Its sizes are ints, or expressions of the contract's symbols, which
    support arithmetic. `dtype`: such as "f32"."""

    def __init__(self, value: Value) -> None:
        self.value = value
        self.shape, self.dtype = value.tensor.shape, value.tensor.dtype

    def __repr__(self) -> str:
        return f"Tensor({self.value.type})"
