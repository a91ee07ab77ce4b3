"""Simulation of tensors that share memory: reading one returns its newest value, writing to one replaces the
value of its memory's owner, and views are recreated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import sympy

from ....ir.dims import simplify
from ....ir.errors import UnsupportedOp
from ....ir.graph import Block, Builder, Value
from ....ir.types import TensorType
from ....ops import build as B
from ....ops.complex import Complex
from ...layout import restored
from .values import Memory, Place, Tensor, View, next_version

#: View -> the operator that puts a new part into the whole.
_PARTS = {
    "aten.slice.Tensor": "aten.slice_scatter.default",
    "aten.select.int": "aten.select_scatter.default",
    "aten.diagonal.default": "aten.diagonal_scatter.default",
}
_RESHAPED = (
    "aten.view.default", "aten.reshape.default", "aten.flatten.using_ints", "aten.unsqueeze.default",
    "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.alias.default",
    "aten.detach.default", "aten.contiguous.default", "aten.unflatten.int", "aten.view_as.default",
)  # fmt: skip
_PERMUTED = (
    "aten.permute.default", "aten.transpose.int", "aten.t.default", "aten.swapaxes.default",
    "aten.swapdims.default", "aten.numpy_T.default", "aten.mT.default",
)  # fmt: skip
#: Views in some layouts of memory, copies in others.
MAYBE_VIEWS = (
    "aten.reshape.default",
    "aten.flatten.using_ints",
    "aten.contiguous.default",
    "aten.unflatten.int",
)
#: Operators whose schema does not say that their results are views of the first argument.
VIEWS = (
    *MAYBE_VIEWS, "aten.chunk.default", "aten.narrow.default", "aten.expand_as.default",
    "aten.view_as.default", "aten.tensor_split.sections", "aten.tensor_split.indices",
    "aten.swapaxes.default", "aten.movedim.int",
    "aten.unsafe_chunk.default", "aten.numpy_T.default", "aten.swapdims.default", "aten.moveaxis.int",
    "aten.split.sizes", "aten.atleast_1d.default", "aten.atleast_2d.default", "aten.atleast_3d.default",
)  # fmt: skip

#: Nodes whose results are row-major, whatever the layout of their arguments.
_IN_ROWS = ("matmul", "linear")

Convert = Callable[[str, Sequence[Any], dict[str, Any]], Any]


class Tensors:
    """Reads and writes the tensors of one program. `is_open(block)`: whether values made in a block may be
    used now; `note(cell)`: called before a cell changes; `convert`: imports an operator."""

    def __init__(
        self,
        builder: Builder,
        convert: Convert,
        is_open: Callable[[Block], bool],
        note: Callable[[Any], None],
    ) -> None:
        self.builder, self._convert, self._is_open, self._note = builder, convert, is_open, note
        self.went_stale: list[Memory] = []  # in this order
        self.given: set[Memory] = set()  # of tensors in lists that calls pass
        self._tangled: set[Memory] = set()  # of lists that may have one tensor twice

    def fresh(self, value: Value | Complex, name: str = "") -> Tensor:
        """Return a tensor with its own memory."""
        return Tensor(Memory(value, name=name))

    def read(self, x: Tensor) -> Value:
        """Return the newest value of `x`. Raises UnsupportedOp if it is unknown."""
        memory = x.memory
        if memory.stale:
            raise UnsupportedOp(memory.stale)
        is_whole = x.parent is None or x.view is None
        if is_whole and x.place is None:
            return memory.content
        if x.known is not None and x.known[0] == memory.version and self._is_open(x.known[1]):
            return x.known[2]
        if x.place is not None:
            value = x.place.read()
            x.known = memory.version, self.builder.block, value
            return value
        assert x.parent is not None and x.view is not None
        view, source = x.view, self.builder.source
        made = self._convert(view.overload, [self.read(x.parent), *view.args], view.kwargs)
        self.builder.source = source
        value = made if view.index is None else made[view.index]
        x.known = memory.version, self.builder.block, value
        return value

    def write(self, x: Tensor, value: Value) -> None:
        """Set the value of `x`, and update everything that `x` is a view of."""
        if not self.given.isdisjoint(_reachable(x.memory)):
            raise UnsupportedOp(
                "a tensor is changed in place that may be an element of an argument, a list of run-time "
                "length; change a copy of it instead, as x.clone() makes"
            )
        self._note(x.memory)
        owner, whole = x, value
        while owner.parent is not None:
            whole, owner = self._whole(owner, whole), owner.parent
        memory = x.memory
        if owner.place is not None:
            if not self._tangled.isdisjoint({memory} | _reachable(memory)):
                raise UnsupportedOp(
                    "a tensor is changed in place that may be in a list twice; change a copy of it instead, "
                    "as x.clone() makes"
                )
            owner.place.write(whole)
        else:
            memory.content = whole
        memory.version = next_version()
        if owner.place is not None:
            owner.known = memory.version, self.builder.block, whole
        if x.parent is not None:
            x.known = memory.version, self.builder.block, value
        where = f" ({self.builder.source})" if self.builder.source else ""
        for other in _reachable(memory):
            if not other.stale:
                self.went_stale.append(other)
            other.stale = (
                f"a tensor is read that may share memory with one that was changed in place{where}; "
                "change a copy of it instead, as x.clone() makes"
            )

    def element(self, memory: Memory, place: Place, value: Value) -> Tensor:
        """Return the tensor at a position of a list or dict with this memory."""
        return Tensor(memory, known=(memory.version, self.builder.block, value), place=place)

    def apart(self, memory: Memory) -> Memory:
        """Return memory for a list with elements of another one, which has `memory`."""
        made = Memory(None)
        self.share(made, memory)
        return made

    def hold(self, holder: Memory, item: Memory) -> None:
        """Note that a list or dict with memory `holder` gets a tensor, which it may have already."""
        if item is holder or item in _reachable(holder):
            self._tangled.add(holder)
        self.share(holder, item)

    def tangle(self, holder: Memory) -> None:
        """Note that a list or dict may have one tensor twice."""
        self._tangled.add(holder)

    def share(self, one: Memory, other: Memory) -> None:
        """Note that two pieces of memory may be the same."""
        if one is not other:
            one.others.add(other)
            other.others.add(one)

    def view_of(self, parent: Tensor, view: View, value: Value) -> Tensor:
        """Return a view, or a tensor that may be one in some layouts of memory."""
        if view.overload in MAYBE_VIEWS and not _is_contiguous(parent):
            made = self.fresh(value)
            self.share(made.memory, parent.memory)
            made.memory.is_in_rows = view.overload == "aten.contiguous.default"
            return made
        owner = copy(parent)  # `replace` may make the tensor another view
        return Tensor(parent.memory, owner, view, (parent.memory.version, self.builder.block, value))

    def replace(self, x: Tensor, view: Tensor) -> None:
        """Replace `x` by a view of it, for all holders."""
        x.memory, x.parent, x.view, x.known = view.memory, view.parent, view.view, view.known

    def _with_part(self, x: Tensor, new: Value, parent: Value) -> Value:
        """Return the parent of one of several parts along an axis with `new` for that part."""
        assert x.view is not None and x.view.index is not None
        view, index, axis = x.view, x.view.index, _axis(x.view, len(B.shape_of(parent)))
        if view.overload.split(".")[1] == "unbind":
            return self._convert(_PARTS["aten.select.int"], [parent, new, axis, index], {})
        parts = self._convert(view.overload, [parent, *view.args], view.kwargs)
        sizes = [B.shape_of(part)[axis] for part in parts[: index + 1]]
        start, end = (simplify(sympy.sympify(sum(each))) for each in (sizes[:-1], sizes))
        return self._convert(_PARTS["aten.slice.Tensor"], [parent, new, axis, start, end, 1], {})

    def _whole(self, x: Tensor, new: Value) -> Value:
        """Return the parent of a view with `new` for the view."""
        assert x.parent is not None and x.view is not None
        view, parent = x.view, self.read(x.parent)
        if view.overload in _PARTS:
            return self._convert(_PARTS[view.overload], [parent, new, *view.args], view.kwargs)
        if view.overload in _RESHAPED:
            return self._convert("aten.reshape.default", [new, list(B.shape_of(parent))], {})
        if view.index is not None:
            return self._with_part(x, new, parent)
        if view.overload == "aten.narrow.default":
            dim, start, length = view.args
            return self._convert(
                _PARTS["aten.slice.Tensor"], [parent, new, dim, start, start + length, 1], {}
            )
        if view.overload == "aten.permute.default":
            rank = len(B.shape_of(parent))
            order = restored([axis % rank for axis in view.args[0]])
            return self._convert(view.overload, [new, order], {})
        if view.overload in _PERMUTED:
            return self._convert(view.overload, [new, *view.args], view.kwargs)
        raise UnsupportedOp(
            f"an in-place change of what {view.overload} gives cannot be compiled; change a copy of it "
            "instead"
        )


#: Splits of one axis -> which.
_SPLIT_AXES = {"hsplit": 1, "vsplit": 0, "dsplit": 2}


def _axis(view: View, rank: int) -> int:
    """Return the axis along which a list of parts is taken of a tensor of some rank."""
    name = view.overload.split(".")[1]
    if name in _SPLIT_AXES:
        return min(_SPLIT_AXES[name], rank - 1)
    return (view.args[0] if view.args else 0) if name == "unbind" else (*view.args, 0)[1]


def _reachable(memory: Memory) -> set[Memory]:
    """Return all memory that may alias this one, transitively."""
    found, pending = {memory}, [memory]
    while pending:
        new = pending.pop().others - found
        found |= new
        pending += new
    return found - {memory}


def decide_rows(x: Tensor) -> list[Value] | None:
    """Return the values that must be row-major for `x` to be so from the start of its memory, None if it may
    lie otherwise: results have the layout of their arguments, except for products and `contiguous`."""
    while x.parent is not None and x.view is not None:
        if x.view.overload == "aten.contiguous.default":
            return []
        if x.view.overload not in _RESHAPED:
            return None
        x = x.parent
    pending, seen, found = [] if x.memory.is_in_rows else [x.memory.content], set(), []
    while pending:
        value = pending.pop()
        node = value.node
        if node is None:
            found.append(value)
        elif node.op == "permute":
            return None
        elif node not in seen and node.op not in _IN_ROWS:
            seen.add(node)
            pending += [arg for arg in node.present if isinstance(arg.type, TensorType)]
    return found


def _is_contiguous(x: Tensor) -> bool:
    """Return True if the elements of `x` are certainly in order: it owns its memory, or is a view of all of
    it."""
    while x.parent is not None and x.view is not None:
        if x.view.overload not in _RESHAPED:
            return False
        x = x.parent
    return True
