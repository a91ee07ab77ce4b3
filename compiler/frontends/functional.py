"""Programs without in-place operators, by renaming: an operator that changes memory makes a new value, which
later nodes use. If it changes memory through a view, such as a slice, the new value of the whole is the old
one with this part replaced; other views of it are recreated.

torch's own method, `ExportedProgram.run_decompositions`, handles every program by retracing it, which takes
half the compilation time of a convolutional network. It is not needed if all operators have a converter.
"""

from __future__ import annotations

import copy
import operator
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.fx.node import map_arg

from ..ir.errors import UnsupportedOp
from .fx_nodes import is_check, is_dtype, is_item, is_operator, overload_of, schema_arguments, source_of
from .importer import find_converter
from .layout import restored
from .nodes import node_argument, operator_of
from .views import is_composite

aten = torch.ops.aten
_RESIZING = (
    "nearest1d", "nearest2d", "nearest3d", "nearest_exact1d", "nearest_exact2d", "nearest_exact3d",
    "linear1d", "bilinear2d", "trilinear3d", "bicubic2d", "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa",
)  # fmt: skip
#: Composites of torch whose results never share memory with their arguments; for others this is unknown.
_FRESH = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear",
    "matmul", "scaled_dot_product_attention", "embedding", "one_hot", "concat", "where",
    "batch_norm", "layer_norm", "group_norm", "rms_norm", "softmax", "log_softmax", "std", "var",
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "adaptive_max_pool1d", "max_pool1d_with_indices", "grid_sampler",
    "_convolution_mode", "_fused_rms_norm", "_pad_packed_sequence", "relu6", "log_sigmoid", "square",
    "isfinite", "max", "min", "true_divide", "argsort", "msort", "repeat_interleave", "diff", "special_ndtr",
    "__and__", "__or__", "__xor__",
    *(f"upsample_{kind}" for kind in _RESIZING), *(f"_upsample_{kind}" for kind in _RESIZING),
)  # fmt: skip
#: Views of parts, with the operator that replaces the part in the whole: their other arguments are the same.
_PARTS = {
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.select.int: aten.select_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
}
#: Views of all elements in their order, and with other axes.
_RESHAPED = (
    aten.view.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.alias.default, aten.detach.default,
)  # fmt: skip
_PERMUTED = (aten.permute.default, aten.transpose.int, aten.t.default)


def functional(program: ExportedProgram) -> ExportedProgram | None:
    """Return `program` with new values for changed ones, or itself if nothing is changed; None if it has
    operators without a converter or changes memory that may be shared."""
    nodes = list(program.graph.nodes)
    if any(node.op not in ("placeholder", "call_function", "output") or is_transform(node) for node in nodes):
        return None
    operators = [node for node in nodes if is_operator(node)]
    if not all(map(is_convertible, operators)):
        return None
    if not any(map(_changes_memory, operators)):
        return program
    renamer = _Renamer()
    if not all(renamer.add(node) for node in nodes):
        return None
    return with_module(program, torch.fx.GraphModule(program.graph_module, renamer.graph))


def with_module(program: ExportedProgram, module: torch.fx.GraphModule) -> ExportedProgram:
    """Return a copy of a program with another module."""
    result = copy.copy(program)
    cast(Any, result)._graph_module = module
    return result


def with_selects(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a module that changes memory with each element of an unbind as a select: torch's own functional
    form of an unbind whose elements are changed has the example's sizes. Operators that return their argument
    say so. Return others unchanged. Raises UnsupportedOp if windows of unfold are changed, which torch's form
    does wrongly."""
    nodes = list(module.graph.nodes)
    for node in filter(_changes_memory, nodes):
        _check_no_windows(node)
    if not changes_memory(module):
        return module
    unbinds = {node for node in nodes if node.target is aten.unbind.int and all(map(_is_element, node.users))}
    selves = {node for node in nodes if is_operator(node) and _is_itself(node)}
    if not unbinds and not selves:
        return module
    graph, made = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    for node in nodes:
        if _is_element(node) and node.args[0] in unbinds:
            x, axis = schema_arguments(node.args[0])
            args = (made[x], axis, node.args[1])
            made[node] = graph.create_node("call_function", aten.select.int, args, name=node.name)
            made[node].meta = dict(node.meta)
        elif node in selves:
            whole = (made[node_argument(node)],)
            made[node] = graph.create_node("call_function", aten.alias.default, whole, name=node.name)
            made[node].meta = dict(node.meta)
        elif node not in unbinds:
            made[node] = graph.node_copy(node, made.__getitem__)
    return torch.fx.GraphModule(module, graph)


def changes_memory(module: torch.fx.GraphModule) -> bool:
    """Whether an operator of a module changes its arguments."""
    return any(map(_changes_memory, module.graph.nodes))


def may_share(overload: Any) -> bool:
    """Whether the result of an operator may be its argument, or a view of it, without its schema saying so,
    as a composite of torch may. Converters of other people's operators make new values."""
    space, name = overload._schema.name.split("::")
    has_alias = any(result.alias_info is not None for result in overload._schema.returns)
    return space == "aten" and not has_alias and is_composite(overload) and name not in _FRESH


def _is_element(node: torch.fx.Node) -> bool:
    return node.target is operator.getitem


def _check_no_windows(node: torch.fx.Node) -> None:
    changed = node_argument(node)
    while _is_element(changed) or (is_operator(changed) and _is_view(changed)):
        if changed.target is aten.unfold.default:
            raise UnsupportedOp(
                "unfold: its windows are changed in place, which cannot be compiled; change the tensor",
                source=source_of(node),
            )
        changed = node_argument(changed)


def is_transform(node: torch.fx.Node) -> bool:
    """Return True for a call that begins or ends a transform of functions (vmap, grad), which only torch can
    trace away."""
    return getattr(node.target, "__module__", "") == "torch._functorch.predispatch"


def is_convertible(node: torch.fx.Node) -> bool:
    """Return True for an operator, or the new value that an in-place one makes, that has a converter."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if _changes_memory(node):
        return _keeps_values(node) or new_value_overload(node) is not None
    if node.target._schema.name == "aten::batch_norm" and schema_arguments(node)[5]:
        return False  # it changes its running means
    return is_item(node) or is_check(node) or is_dtype(node) or find_converter(overload_of(node)) is not None


def _changes_memory(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def new_value_overload(node: torch.fx.Node) -> Any:
    """Return the overload that makes the new value of an in-place call, such as aten.add.Tensor of
    aten.add_.Tensor; None if there is none with a converter."""
    schema = operator_of(node)._schema
    space, name = schema.name.split("::")
    packet = getattr(getattr(torch.ops, space), name.removesuffix("_"), None)
    found = getattr(packet, schema.overload_name or "default", None)
    if found is None or not name.endswith("_") or find_converter(str(found)) is None:
        return None
    names = [[argument.name for argument in each.arguments[1:]] for each in (found._schema, schema)]
    return found if names[0] == names[1] else None  # the first one may be `self` or `input`


def _keeps_values(node: torch.fx.Node) -> bool:
    """Return True for in-place operators that change nothing: detach, and dropout in evaluation mode."""
    is_dropout = overload_of(node) == "aten.dropout_.default"
    return overload_of(node) == "aten.detach_.default" or (is_dropout and not schema_arguments(node)[2])


def _is_itself(node: torch.fx.Node) -> bool:
    """Return True for operators that return their argument: dropout in evaluation mode, and casts to the same
    dtype."""
    if node.target is aten.dropout.default:
        return not schema_arguments(node)[2]
    if node.target is aten.type_as.default:
        return _dtype(node_argument(node)) == _dtype(node)
    if node.target is not aten.to.dtype:
        return False
    x, dtype, _, is_copied, order = schema_arguments(node)
    return bool(_dtype(x) == dtype and not is_copied and order is None)


def _dtype(node: torch.fx.Node) -> torch.dtype:
    return node.meta["val"].dtype


def _is_writable(view: torch.fx.Node) -> bool:
    """Return True for views through which `_Renamer` can write."""
    return view.target in (*_PARTS, *_RESHAPED, *_PERMUTED) or _is_itself(view)


def _is_view(node: torch.fx.Node) -> bool:
    """Return True if the result certainly shares memory with the first argument."""
    if not is_operator(node) or _is_itself(node):
        return is_operator(node)
    has_alias = any(result.alias_info is not None for result in operator_of(node)._schema.returns)
    return has_alias and not is_composite(node.target)


def _makes_fresh(node: torch.fx.Node) -> bool:
    """Return True if the results certainly share no memory with anything."""
    if node.op == "output":
        return True
    if not is_operator(node):
        return isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool | torch.SymFloat)
    if node.target is aten.to.dtype and _dtype(node_argument(node)) != _dtype(node):
        return True
    overload: Any = node.target
    has_alias = any(result.alias_info is not None for result in overload._schema.returns)
    is_fresh = not is_composite(overload) or overload._schema.name.removeprefix("aten::") in _FRESH
    return is_fresh and not has_alias


class _Renamer:
    """Copies nodes to `graph`; each use refers to the newest value of its memory."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()
        self._parent: dict[torch.fx.Node, torch.fx.Node] = {}  # the source of a view or an in-place result
        self._made: dict[torch.fx.Node, tuple[int, torch.fx.Node]] = {}  # with the version of its memory
        self._version: dict[torch.fx.Node, int] = {}  # of memory, by the node that made it
        self._viewed: set[torch.fx.Node] = set()  # memory with views
        self._shared: set[torch.fx.Node] = set()  # memory that may have other, unknown views

    def add(self, node: torch.fx.Node) -> bool:
        """Add the next node. Return False if it changes memory that may be shared."""
        if is_operator(node) and _changes_memory(node):
            return self._change(node)
        if _is_view(node) or (node.target is operator.getitem and node.args[0] in self._parent):
            self._parent[node] = node_argument(node)
            self._viewed.add(self._owner(node))
            return True
        is_part = node.target is operator.getitem  # results of a known operator do not overlap
        if not (node.args[0] not in self._shared if is_part else _makes_fresh(node)):
            self._shared |= {node, *map(self._owner, node.all_input_nodes)}
        self._made[node] = 0, self.graph.node_copy(node, self._newest)
        return True

    def _owner(self, node: torch.fx.Node) -> torch.fx.Node:
        """Return the node that made the memory of `node`."""
        while node in self._parent:
            node = self._parent[node]
        return node

    def _newest(self, node: torch.fx.Node) -> torch.fx.Node:
        """Return the newest value of `node`."""
        version = self._version.get(self._owner(node), 0)
        found, made = self._made.get(node, (-1, None))
        if made is None or found != version:
            is_view = not _changes_memory(node)
            made = self.graph.node_copy(node, self._newest) if is_view else self._newest(self._parent[node])
            self._made[node] = version, made
        return made

    def _change(self, node: torch.fx.Node) -> bool:
        """Handle an in-place call."""
        target = node_argument(node)
        if not _keeps_values(node):
            if not self._can_change(node, target):
                return False
            self._write(target, self._new_value(node))
        self._parent[node] = target
        return True

    def _can_change(self, node: torch.fx.Node, target: torch.fx.Node) -> bool:
        moves_axes = torch.Tag.inplace_view in operator_of(node).tags
        owner = self._owner(target)
        if owner in self._shared or (moves_axes and owner in self._viewed):
            return False
        while target in self._parent and (_is_writable(target) or _changes_memory(target)):
            target = self._parent[target]
        return target is owner

    def _write(self, node: torch.fx.Node, new: torch.fx.Node) -> None:
        """Make `new` the newest value of `node`, and update everything that it is a view of."""
        values = {node: new}
        while node in self._parent:
            parent = self._parent[node]
            values[parent] = new = new if _changes_memory(node) else self._whole(node, new)
            node = parent
        version = self._version[node] = self._version.get(node, 0) + 1
        self._made |= {changed: (version, value) for changed, value in values.items()}

    def _whole(self, view: torch.fx.Node, new: torch.fx.Node) -> torch.fx.Node:
        """Append the source of `view` with `new` in its place."""
        if _is_itself(view):
            return new
        parent, target = self._parent[view], operator_of(view)
        rest: list[Any] = list(map_arg(view.args[1:], self._newest))
        if target in _PARTS:
            target, args = _PARTS[target], (self._newest(parent), new, *rest)
        elif target in _RESHAPED:
            target, args = aten.view_as.default, (new, self._newest(parent))
        elif target is aten.permute.default:
            args = (new, restored([axis % len(rest[0]) for axis in rest[0]]))
        else:
            args = (new, *rest)
        made = self.graph.call_function(target, args, map_arg(view.kwargs, self._newest))
        made.meta["val"] = parent.meta["val"]
        return made

    def _new_value(self, node: torch.fx.Node) -> torch.fx.Node:
        """Append the result of an in-place call, in the dtype of its target."""
        made = self.graph.node_copy(node, self._newest)
        made.target = new_value_overload(node)
        del made.meta["val"]  # its dtype may be another one
        found = node.meta["val"]
        new = self.graph.call_function(aten.to.dtype, (made, found.dtype))
        new.meta["val"] = found
        return new
