"""Kernel specs of groups. Their sizes and offsets are dimension expressions; `compiler.lower.bind` names
them.

The right operand of a product is not packed here; `compiler.lower.packing` packs constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sympy

from ...jit.families.attention.spec import Attention, Extents, Layout, Segments, Softmax
from ...jit.families.concat.spec import Concat, Piece
from ...jit.families.conv.spec import Conv, Window
from ...jit.families.matmul.spec import Matmul, MatrixProduct
from ...jit.families.matmul.sums import ACCURATE_CHAIN, CHAIN
from ...jit.loops.bodies import find_depends
from ...jit.spec import Body, Buffer, Index, Instr, KernelSpec, Nest
from ..ir.dims import DimExpr, product, simplify
from ..ir.graph import Node, Value
from ..ops import OPS
from .access import Access, Shape, arg_access, shape_of, start_of, through_view
from .group import Group
from .operands import MASKS, base_of, in_memory, operand_access
from .pieces import Box, boxes, inside

Spec = KernelSpec[sympy.Expr]
INDEX_ARGUMENTS = {
    "gather": 1,
    "place": 1,
    "scatter": 1,
}  # of operators whose indices may be out of range
WITHOUT_SEGMENTS = Segments[sympy.Expr]()
SCALED = "scaled"  # the layout of an unpacked integer weight whose scales are the spec's last buffer


def spec_of(group: Group, accurate: bool) -> tuple[Spec, list[Value]]:
    """Return the spec of a group's kernel and the values of its input buffers; `accurate`: see `Graph`."""
    return _SpecBuilder(group, accurate).finish()


def label(group: Group) -> str:
    """Return a short readable name, such as "matmul add mul erf mul", or "gather add by ids" if an input of
    the program is an index."""
    ops = [node.op for node in reversed(group.places) if OPS[node.op].kind not in ("view", "source")]
    ops = ops or [group.root.definition.op]
    return " ".join(ops[:6]) + (" ..." if len(ops) > 6 else "") + by_inputs(reversed(group.places))


def by_inputs(nodes: Iterable[Node]) -> str:
    """Return " by " and the inputs of the program that give the indices of some nodes, or ""."""
    names = dict.fromkeys(name for node in nodes for name in index_inputs(node))
    return f" by {', '.join(names)}" if names else ""


def index_inputs(node: Node) -> list[str]:
    """Return the names of the program's inputs from whose elements a node's index is computed elementwise."""
    position = INDEX_ARGUMENTS.get(node.op)
    pending = [] if position is None else [node.arg(position)]
    seen: set[Value] = set()
    found: list[str] = []
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.node is None:
            found.append(value.name)
        elif value.node.op == "fused":
            pending += value.node.regions[0].results
        elif value.node.op in OPS:
            last = {"view": None, "pointwise": None, "gather": 1}.get(OPS[value.node.op].kind, 0)
            pending += reversed(value.node.present[:last])
    return found


class _SpecBuilder:
    """Builds the spec of one group."""

    def __init__(self, group: Group, accurate: bool) -> None:
        self.group = group
        self.accurate = accurate
        self.instrs: list[Instr[sympy.Expr]] = []
        self.buffers: list[Buffer[sympy.Expr]] = []
        self.values: list[Value] = []  # of the input buffers, in order
        self._ids: dict[tuple[Value, Access], int] = {}
        self._box: Box = {}
        self._places: dict[tuple[Value, Shape], int] = {}

    def finish(self) -> tuple[Spec, list[Value]]:
        """Return (spec, input buffers)."""
        contraction = self.group.contraction
        make: dict[str, Callable[[Node], Spec]] = {
            "matmul": self._matmul,
            "conv": self._conv,
            "attention": self._attention,
            "segment_attention": self._segment_attention,
        }
        return (make[contraction.op](contraction) if contraction else self._nest()), self.values

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
        chain = ACCURATE_CHAIN if self.accurate else CHAIN
        product = self._product(node, k, a=a, a_index=a_index, prologue=prologue, chain=chain)
        return Matmul(0, tuple(self.buffers), product)

    def _conv(self, node: Node) -> Conv[sympy.Expr]:
        image, weight = node.present
        a = self._buffer(base_of(image), shape_of(image))
        product = self._product(node, shape_of(weight)[0], a=a, a_index=())
        return Conv(0, tuple(self.buffers), product, window_of(node), node.attrs["planes"])

    def _product(self, node: Node, k: DimExpr, **lhs: Any) -> MatrixProduct[sympy.Expr]:
        """Return the product of a matmul or conv; `lhs`: its fields that describe A."""
        *batch, m, n = shape_of(node.result)
        b, b_index = self._rhs(node)
        self._store(self.value(self.group.root, self.group.access))
        sizes: dict[str, Any] = {"batch": tuple(batch), "m": m, "n": n, "k": k}
        scales = node.args[2] if node.op == "matmul" and len(node.args) > 2 else None
        if scales is not None:
            self._new_buffer(scales, shape_of(scales))  # the last one: `pack` removes it
        layout = "rows" if scales is None else SCALED
        return MatrixProduct(
            **sizes, b=b, b_index=b_index, b_layout=layout, epilogue=tuple(self.instrs), **lhs
        )

    def _rhs(self, node: Node) -> tuple[int, Access]:
        """Return (b, b_index); a constant has a separate buffer, because `pack` may change its layout."""
        weight = node.arg(1)
        if weight.node is None or weight.node.op != "constant":
            return self._operand(node, 1)
        return self._new_buffer(weight, shape_of(weight)), operand_access(node, 1)

    def _left(self, node: Node) -> tuple[int, Access, Body[sympy.Expr]]:
        """Return (a, a_index, prologue) of a matmul."""
        if not self.group.prologue:
            return *self._operand(node, 0), ()
        last = self.value(_unrounded(node.arg(0)), operand_access(node, 0))
        prologue = tuple(self.instrs)
        assert last == len(prologue) - 1
        self.instrs, self._ids = [], {}
        return -1, (), prologue

    def _attention(self, node: Node) -> Attention[sympy.Expr]:
        *batch, q_len, v_dim = shape_of(node.result)
        k_len, head_dim = shape_of(node.arg(1))[-2:]
        return self._attended(node, Extents(tuple(batch), q_len, k_len, head_dim, v_dim))

    def _segment_attention(self, node: Node) -> Attention[sympy.Expr]:
        tokens, *heads, v_dim = shape_of(node.result)
        offsets, longest = node.arg(3), node.attrs["longest"]
        segments = simplify(sympy.Max(shape_of(offsets)[0] - 1, 1))  # 1 if there is none: to clear the result
        extents = Extents((segments, *heads), longest, longest, shape_of(node.arg(0))[-1], v_dim)
        place = self._buffer(base_of(offsets), shape_of(offsets))
        return self._attended(node, extents, Segments(place, tokens))

    def _attended(
        self, node: Node, extents: Extents[sympy.Expr], segments: Segments[sympy.Expr] = WITHOUT_SEGMENTS
    ) -> Attention[sympy.Expr]:
        (q, q_index), (k, k_index), (v, v_index) = (self._operand(node, i) for i in range(3))
        self._mask(node)
        out = self._output()
        layout = Layout(q, k, v, out, q_index, k_index, v_index, self.group.access)
        is_safe = node.attrs.get("safe", True)  # attention within segments always is
        softmax = Softmax(node.attrs["scale"], is_safe, body=tuple(self.instrs))
        return Attention(0, tuple(self.buffers), extents, layout, softmax, segments)

    def _mask(self, node: Node) -> None:
        """Emit the body that masks a score, if there is a mask."""
        position = MASKS[node.op]
        mask = node.args[position] if position < len(node.args) else None
        if mask is None:
            return
        score = self._emit("acc", "f32")
        value = self.value(mask, operand_access(node, position))
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
        """Return the values to compute before `value` at `access`; none if it is known or loaded."""
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
        """Emit the computation or load of `value` at `access` from its operands; return its id."""
        if (value, access) in self._ids:
            return self._ids[value, access]
        node, dtype = value.node, _dtype(value)
        if node is None or node not in self.group.places:
            return self._load(value, access)
        match OPS[node.op].kind:
            case "pointwise" if node.op == "divisor":
                return self._emit("divisor", dtype, ids, size=self._repeats(ids[0]))
            case "pointwise":
                return self._emit(OPS[node.op].scalar, dtype, ids, size=node.attrs.get("size"))
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

    def _repeats(self, instr: int) -> DimExpr | None:
        """Return how often loops on which an instruction does not depend repeat it; None: unknown, at least
        once."""
        n_loops = len(self.group.domain)
        row_loop = n_loops - 1 if self.group.row else None
        own = find_depends(tuple(self.instrs), row_loop)[instr]
        count = product(self.group.domain[loop] for loop in set(range(n_loops)) - own)
        return None if isinstance(count, int) and count > 0 else count

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
        """A number or a dimension expression, the same in every element."""
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
            self._places[key] = self._new_buffer(value, shape)
        return self._places[key]

    def _new_buffer(self, value: Value, shape: Shape) -> int:
        self.buffers.append(Buffer(_dtype(value), shape))
        self.values.append(value)
        return len(self.buffers) - 1

    def _output(self) -> int:
        root = self.group.root
        self.buffers.append(Buffer(_dtype(root), shape_of(root), is_output=True))
        return len(self.buffers) - 1

    def _store(self, value: int) -> None:
        out = self._output()
        self._emit("store", self.buffers[out].dtype, (value,), buffer=out, index=self.group.access)


def _unrounded(x: Value) -> Value:
    """Return the value before a final rounding to bf16, which kernels do when they store rows; else `x`."""
    if x.node is None or x.node.op != "cast" or x.tensor.dtype != "bf16":
        return x
    before = x.node.arg(0)
    return before if before.tensor.dtype == "f32" else x


def window_of(node: Node) -> Window[sympy.Expr]:
    """Return the window of a conv; reversed taps start at the last one."""
    attrs = node.attrs
    low = tuple(
        low + min(dilation, 0) * (kernel - 1)
        for low, dilation, kernel in zip(attrs["low"], attrs["dilation"], attrs["kernel"], strict=True)
    )
    axes = {name: attrs[name] for name in ("kernel", "stride", "dilation", "expansion", "groups")}
    return Window(out=shape_of(node.result)[1:-1], low=low, **axes)


def _dtype(value: Value) -> str:
    return value.tensor.dtype
