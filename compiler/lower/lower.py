"""Lowering: every fused group becomes one `kernel` node that holds a kernel spec.

A spec is built with dimension expressions where it will have sizes, so that adjacent loops can be merged;
`bind` then names the distinct non-constant expressions `Dim(0), Dim(1), ...`, and the node's `dims` attribute
gives their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import sympy

from ...jit.families.attention.spec import Attention
from ...jit.families.concat.spec import Concat, Piece
from ...jit.families.conv.spec import Conv, Window
from ...jit.families.matmul.spec import Matmul
from ...jit.families.matmul.sums import ACCURATE_CHAIN, CHAIN
from ...jit.spec import Body, Buffer, Dim, Index, Instr, KernelSpec, Nest
from ...vm.layout import LIMITS
from ..ir.dims import DimExpr, simplify
from ..ir.graph import Block, Builder, Graph, Node, Value
from ..ops import OPS
from .access import Access, Shape, shape_of, through_view
from .collapse import collapse, exchange
from .fuse import Fusion, Group, fuse
from .operands import base_of, in_memory, operand_access
from .packing import Packed, b_layout, pack
from .pieces import Box, arg_access, boxes, inside, start_of
from .standalone import SPECS

#: A group of fewer nodes has no more buffers and dims than a kernel may have.
SMALL_GROUP = 12


def lower(graph: Graph) -> None:
    """Replace every kernel node of `graph` by `kernel` nodes; dead nodes are left for `dce`."""
    packed: Packed = {}
    fits = partial(fits_in_kernel, accurate=graph.accurate)
    for fusion in [fuse(block, fits) for block in graph.blocks()]:
        _lower_block(graph, fusion, packed)


def fits_in_kernel(group: Group, accurate: bool) -> bool:
    """Return True where a kernel may have as many buffers and dims as `group` needs."""
    if len(group.places) < SMALL_GROUP:
        return True
    spec, dims = bind(GroupLowering(group, lambda value, node: value, accurate).finish()[0])
    return len(dims) <= LIMITS["DIMS"][0] and len(spec.buffers) <= LIMITS["BUFFERS"][0]


def _lower_block(graph: Graph, fusion: Fusion, packed: Packed) -> None:
    block = fusion.block
    for node in list(block.nodes):
        if node.op in SPECS:
            _lower_standalone(graph, block, node)
            continue
        group = fusion.groups.get(node.results[0]) if len(node.results) == 1 else None
        if group is not None:
            _lower_group(graph, block, group, packed)


def _lower_group(graph: Graph, block: Block, group: Group, packed: Packed) -> None:
    root = group.root
    position = block.nodes.index(root.definition)
    builder = Builder(graph, block, position)
    builder.source = root.definition.source
    lowering = GroupLowering(group, lambda value, node: pack(builder, value, node, packed), graph.accurate)
    spec, values = lowering.finish()
    node = Node("kernel", values, {**_launches(spec, graph), "label": label(group)})
    (result,) = builder.insert(node, [root.type], hint="k")
    graph.replace(root, result)


def _launches(spec: KernelSpec[sympy.Expr], graph: Graph) -> dict[str, Any]:
    """Return the attributes of a kernel node that say what it launches: see `launches`."""
    chosen, other = exchange(spec, graph.symbols)
    bound, dims = bind(chosen)
    attrs: dict[str, Any] = {"spec": bound, "dims": dims}
    if isinstance(chosen, Matmul) and other is not None:
        attrs["exchanged"] = (*bind(other), chosen.m, other.m)
    return attrs


def _lower_standalone(graph: Graph, block: Block, node: Node) -> None:
    builder = Builder(graph, block, block.nodes.index(node))
    builder.source = node.source
    spec, dims = bind(SPECS[node.op](node))
    values = [base_of(arg) for arg in node.present]
    kernel = Node("kernel", values, {"spec": spec, "dims": dims, "label": node.op})
    results = builder.insert(kernel, [result.type for result in node.results], hint="k")
    for old, new in zip(node.results, results, strict=True):
        graph.replace(old, new)


def label(group: Group) -> str:
    """Return a short name for people, such as "matmul add mul erf mul"."""
    ops = [node.op for node in reversed(group.places) if OPS[node.op].kind not in ("view", "source")]
    ops = ops or [group.root.definition.op]
    return " ".join(ops[:6]) + (" ..." if len(ops) > 6 else "")


class GroupLowering:
    """Builds the spec of one group. Sizes and offsets are dimension expressions until `bind`."""

    def __init__(self, group: Group, pack: Callable[[Value, Node], Value], accurate: bool) -> None:
        self.group = group
        self.pack = pack
        self.accurate = accurate
        self.instrs: list[Instr[sympy.Expr]] = []
        self.buffers: list[Buffer[sympy.Expr]] = []
        self.values: list[Value] = []  # of the input buffers, in order
        self._ids: dict[tuple[Value, Access], int] = {}
        self._box: Box = {}
        self._places: dict[tuple[Value, Shape], int] = {}

    def finish(self) -> tuple[KernelSpec[sympy.Expr], list[Value]]:
        """Return (spec, whose sizes are dimension expressions still, input buffers)."""
        contraction = self.group.contraction
        make: dict[str, Callable[[Node], KernelSpec[sympy.Expr]]] = {
            "matmul": self._matmul,
            "conv": self._conv,
            "attention": self._attention,
        }
        spec = make[contraction.op](contraction) if contraction else self._nest()
        return collapse(spec), self.values

    # families

    def _nest(self) -> Nest[sympy.Expr] | Concat[sympy.Expr]:
        if self.group.cuts:
            return self._concat()
        self._store(self.value(self.group.root, self.group.access))
        domain = tuple(self.group.domain) or (1,)
        return Nest(0, tuple(self.buffers), domain, tuple(self.instrs))

    def _concat(self) -> Concat[sympy.Expr]:
        out = self._output()
        pieces = tuple(self._piece(box, out) for box in boxes(self.group))
        return Concat(0, tuple(self.buffers), pieces)

    def _piece(self, box: Box, out: int) -> Piece[sympy.Expr]:
        self._box, self.instrs, self._ids = box, [], {}
        cuts, domain = self.group.cuts, list(self.group.domain)
        for loop, part in box.items():
            domain[loop] = cuts[loop][part]
        access = inside(self.group.access, {loop: start_of(cuts[loop], part) for loop, part in box.items()})
        value = self.value(self.group.root, access)
        self._emit("store", self.buffers[out].dtype, (value,), buffer=out, index=access)
        return Piece(tuple(domain), tuple(self.instrs))

    def _matmul(self, node: Node) -> Matmul[sympy.Expr]:
        k = shape_of(node.arg(0))[-1]
        a, a_index, prologue = self._left(node)
        product = self._product(node, k)
        chain = ACCURATE_CHAIN if self.accurate else CHAIN
        if product["b_layout"] == "quads":
            chain = 0
        return Matmul(**product, a=a, a_index=a_index, prologue=prologue, chain=chain)

    def _conv(self, node: Node) -> Conv[sympy.Expr]:
        image, weight = node.present
        a = self._buffer(base_of(image), shape_of(image))
        shared = self._product(node, shape_of(weight)[0])
        return Conv(**shared, a=a, a_index=(), window=_window(node), planes=node.attrs["planes"])

    def _product(self, node: Node, k: DimExpr) -> dict[str, Any]:
        """Return the fields that a matmul and a conv share, a's left out."""
        *batch, m, n = shape_of(node.result)
        b_value = node.arg(1)
        layout = b_layout(node, self.accurate)
        if layout != "rows":
            packed = self.pack(b_value, node)
            b, b_index = self._buffer(packed, shape_of(packed)), Access()
        else:
            b, b_index = self._operand(node, 1)
        self._store(self.value(self.group.root, self.group.access))
        sizes = {"batch": tuple(batch), "m": m, "n": n, "k": k}
        operand = {"b": b, "b_index": b_index, "b_layout": layout}
        return {
            "n_dims": 0, "buffers": tuple(self.buffers), **sizes, **operand, "epilogue": tuple(self.instrs),
        }  # fmt: skip

    def _left(self, node: Node) -> tuple[int, Access, Body[sympy.Expr]]:
        """Return (a, a_index, prologue) of a matmul."""
        if not self.group.prologue:
            return *self._operand(node, 0), ()
        last = self.value(node.arg(0), operand_access(node, 0))
        prologue = tuple(self.instrs)
        assert last == len(prologue) - 1
        self.instrs, self._ids = [], {}
        return -1, (), prologue

    def _attention(self, node: Node) -> Attention[sympy.Expr]:
        *batch, q_len, v_dim = shape_of(node.result)
        k_len, head_dim = shape_of(node.arg(1))[-2:]
        (q, q_index), (k, k_index), (v, v_index) = (self._operand(node, i) for i in range(3))
        self._mask(node)
        out = self._output()
        return Attention(
            n_dims=0,
            buffers=tuple(self.buffers),
            batch=tuple(batch),
            q_len=q_len,
            k_len=k_len,
            head_dim=head_dim,
            v_dim=v_dim,
            q=q,
            k=k,
            v=v,
            out=out,
            q_index=q_index,
            k_index=k_index,
            v_index=v_index,
            out_index=self.group.access,
            scale=node.attrs["scale"],
            safe_softmax=True,
            body=tuple(self.instrs),
        )

    def _mask(self, node: Node) -> None:
        """Emit the body that masks a score, when there is a mask."""
        if len(node.args) < 4 or node.args[3] is None:
            return
        mask = node.args[3]
        score = self._emit("acc", "f32")
        value = self.value(mask, operand_access(node, 3))
        if mask.tensor.dtype == "bool":
            lowest = self._emit("const", "f32", value="-inf")
            self._emit("select", "f32", (value, score, lowest))
        else:
            self._emit("add", "f32", (score, value))

    def _operand(self, node: Node, position: int) -> tuple[int, Access]:
        value, shape, access = in_memory(node.arg(position), operand_access(node, position))
        return self._buffer(value, shape), access

    # bodies

    def value(self, value: Value, access: Access) -> int:
        """Return the id of the instruction that computes or loads `value` at `access`."""
        pending = [(value, access)]
        while pending:
            key = pending[-1]
            needs = self._needs(*key)
            missing = next((need for need in needs if need not in self._ids), None)
            if missing is None:
                self._ids[key] = self._compute(*key, tuple(self._ids[need] for need in needs))
                pending.pop()
            else:
                pending.append(missing)
        return self._ids[value, access]

    def _needs(self, value: Value, access: Access) -> list[tuple[Value, Access]]:
        """Return what must be computed before `value` at `access`; nothing for what is known or loaded."""
        node = value.node
        if node is None or node not in self.group.places or (value, access) in self._ids:
            return []
        args = node.present
        match OPS[node.op].kind:
            case "pointwise":
                return [(arg, access) for arg in args]
            case "view":
                moved = through_view(node, access)
                return [] if moved is None else [(args[0], moved)]
            case "concat":
                part = self._box[access[node.attrs["axis"]].along]
                return [(args[part], arg_access(node, part, access))]
            case "reduce":
                return [(args[0], (*access[:-1], Index(loop=len(self.group.domain) - 1)))]
            case "gather":
                axis, rank = node.attrs["axis"], len(shape_of(args[1]))
                return [(args[1], access[axis : axis + rank])]
        return []

    def _compute(self, value: Value, access: Access, ids: tuple[int, ...]) -> int:
        """Emit what computes or loads `value` at `access` of what it needs; return its id."""
        if (value, access) in self._ids:
            return self._ids[value, access]
        node, dtype = value.node, _dtype(value)
        if node is None or node not in self.group.places:
            return self._load(value, access)
        match OPS[node.op].kind:
            case "pointwise":
                return self._emit(OPS[node.op].scalar, dtype, ids)
            case "view" | "concat":
                return ids[0] if ids else self._load(value, access)
            case "reduce":
                if node.op == "reduce_squares":
                    ids = (self._emit("mul", _dtype(node.arg(0)), (*ids, *ids)),)
                return self._emit(OPS[node.op].scalar, dtype, ids)
            case "gather":
                return self._gather(node, ids[0], access)
            case "source":
                return self._source(node, dtype, access)
            case "matmul" | "conv" | "attention":
                return self._emit("acc", dtype)
        raise AssertionError(f"{node.op} cannot be computed in a kernel")

    def _gather(self, node: Node, index: int, access: Access) -> int:
        table, places = node.present
        axis, rank = node.attrs["axis"], len(shape_of(places))
        where = (*access[:axis], Index(value=index), *access[axis + rank :])
        base, shape, moved = in_memory(table, where)
        return self._emit("load", _dtype(base), buffer=self._buffer(base, shape), index=moved)

    def _source(self, node: Node, dtype: str, access: Access) -> int:
        if node.op == "full":
            return self._constant(node.attrs["value"], dtype)
        (index,) = access
        start, step = node.attrs["start"], node.attrs["step"]
        if isinstance(start, float) or isinstance(step, float):
            position = self._emit("cast", dtype, (self._position(index),))
            scaled = self._emit("mul", dtype, (position, self._constant(step, dtype)))
            return self._emit("add", dtype, (scaled, self._constant(start, dtype)))
        scale, offset = simplify(index.scale * step), simplify(index.offset * step + start)
        position = (
            self._emit("iota", "i64", loop=index.loop) if index.loop is not None else self._constant(0, "i64")
        )
        if scale != 1:
            position = self._emit("mul", "i64", (position, self._constant(scale, "i64")))
        if offset != 0:
            position = self._emit("add", "i64", (position, self._constant(offset, "i64")))
        return position if dtype == "i64" else self._emit("cast", dtype, (position,))

    def _position(self, index: Index[sympy.Expr]) -> int:
        if index.loop is None:
            return self._constant(index.offset, "i64")
        position = self._emit("iota", "i64", loop=index.loop)
        if index.scale != 1:
            position = self._emit("mul", "i64", (position, self._constant(index.scale, "i64")))
        if index.offset != 0:
            position = self._emit("add", "i64", (position, self._constant(index.offset, "i64")))
        return position

    def _constant(self, value: Any, dtype: str) -> int:
        """A number, or a dimension expression, in every element."""
        if isinstance(value, sympy.Expr):
            size = self._emit("dim", "i64", size=value)
            return size if dtype == "i64" else self._emit("cast", dtype, (size,))
        if isinstance(value, float) and not np.isfinite(value):
            value = "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"
        return self._emit("const", dtype, value=value)

    def _load(self, value: Value, access: Access) -> int:
        base, shape = base_of(value), shape_of(value)
        node = base.node
        if (
            node is not None
            and node.op == "constant"
            and node.attrs["array"].size == 1
            and _dtype(base) != "bf16"
        ):
            return self._constant(node.attrs["array"].reshape(()).item(), _dtype(base))
        return self._emit("load", _dtype(base), buffer=self._buffer(base, shape), index=access)

    def _emit(self, op: str, dtype: str, args: Sequence[int] = (), **attrs: Any) -> int:
        self.instrs.append(Instr(op, dtype, tuple(args), **attrs))
        return len(self.instrs) - 1

    def _buffer(self, value: Value, shape: Shape) -> int:
        """Return the buffer that reads `value` under `shape`."""
        key = (value, shape)
        if key not in self._places:
            self._places[key] = len(self.buffers)
            self.buffers.append(Buffer(_dtype(value), shape))
            self.values.append(value)
        return self._places[key]

    def _output(self) -> int:
        root = self.group.root
        self.buffers.append(Buffer(_dtype(root), shape_of(root), is_output=True))
        return len(self.buffers) - 1

    def _store(self, value: int) -> None:
        out = self._output()
        self._emit("store", self.buffers[out].dtype, (value,), buffer=out, index=self.group.access)


def _window(node: Node) -> Window[sympy.Expr]:
    """Return the window of a conv; taps that go backwards start at the last one."""
    attrs = node.attrs
    low = tuple(
        low + min(dilation, 0) * (kernel - 1)
        for low, dilation, kernel in zip(attrs["low"], attrs["dilation"], attrs["kernel"], strict=True)
    )
    axes = {name: attrs[name] for name in ("kernel", "stride", "dilation", "expansion", "groups")}
    return Window(out=shape_of(node.result)[1:-1], low=low, **axes)


def _dtype(value: Value) -> str:
    return value.tensor.dtype


def bind(spec: KernelSpec[sympy.Expr]) -> tuple[KernelSpec, tuple[DimExpr, ...]]:
    """Return the spec with Dims for its distinct expressions, and these expressions in the order of the
    Dims."""
    dims: dict[DimExpr, Dim] = {}

    def visit(item: Any) -> Any:
        if isinstance(item, sympy.Expr):
            item = simplify(item)
            return item if isinstance(item, int) else dims.setdefault(item, Dim(len(dims)))
        if isinstance(item, Index) and item.scale < 0 and isinstance(item.offset, sympy.Expr):
            item = replace(item, offset=sympy.Max(item.offset, 0))  # below 0 for empty loops only
        if isinstance(item, Instr) and isinstance(item.size, sympy.Expr):
            item = replace(item, size=sympy.Max(item.size, 0))  # the same
        if isinstance(item, tuple):
            return tuple(visit(part) for part in item)
        if is_dataclass(item) and not isinstance(item, type):
            changed = {f.name: visit(getattr(item, f.name)) for f in fields(item)}
            return replace(item, **changed)
        return item

    bound = visit(spec)
    return replace(bound, n_dims=len(dims)), tuple(dims)


__all__ = ["Body", "GroupLowering", "bind", "label", "lower"]
