"""Values of a padded batch as rows, one for each valid token, and the rules by which operators keep rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ir.dims import DimExpr, equal, product
from ...ir.graph import Builder, Node, Value
from ...ops import OPS
from ...ops import build as B
from .masks import EXCLUDES, axis_of, of_pointwise, same_axis, value_at, with_all_valid


class Unpackable(Exception):
    """A node has no rule: the message says why."""


@dataclass(frozen=True)
class Rows:
    """The valid rows of a padded value: `value` [tokens, others..], with the padded value's other axes in
    order.

    batch, length: the padded value's axes of rows and of tokens in a row; equal if they are one axis, merged.
    fill: the padded value's element at padding, if it is known.
    """

    value: Value
    batch: int
    length: int
    fill: Any = None

    def others(self, rank: int) -> list[int]:
        """Return the other axes of the padded value, which has `rank` axes."""
        return [axis for axis in range(rank) if axis not in (self.batch, self.length)]

    def axis(self, axis: int) -> int:
        """Return the axis of `value` that is another axis of the padded value. Raises Unpackable for the axes
        of rows and tokens."""
        if axis in (self.batch, self.length):
            raise Unpackable("it mixes tokens")
        return axis + 1 - (self.batch < axis) - (self.length < axis and self.length != self.batch)


@dataclass(frozen=True)
class Batch:
    """The tokens of a batch. mask: [batch, length]. valid: the same as bool. places: i64[tokens], the valid
    tokens' positions in batch * length. offsets: i64[batch + 1], each row's first token."""

    mask: Value
    valid: Value
    places: Value
    offsets: Value

    @property
    def sizes(self) -> tuple[DimExpr, DimExpr]:
        """The sizes batch and length."""
        batch, length = self.mask.tensor.shape
        return batch, length

    @property
    def count(self) -> DimExpr:
        """The number of valid tokens."""
        return self.places.tensor.shape[0]


class Packer:
    """Rewrites nodes of a padded batch for its valid tokens, in the block of `b`; `outer` appends to what is
    computed before."""

    def __init__(self, b: Builder, outer: Builder, batch: Batch) -> None:
        self.b, self.outer, self.batch = b, outer, batch
        self.rows: dict[Value, Rows] = {}  # by the padded value
        self.whole: dict[Value, Value] = {}  # values that equal the padded program's everywhere
        self.conditions: list[Value] = []  # bool[]: where one is false the padded way is taken
        self.masks: dict[Value, Value | None] = {}  # of attention, for one row of valid tokens

    # From padded to rows and back ------------------------------------------------------------------------

    def packed(self, x: Value, batch: int, length: int) -> Value:
        """Return the valid rows of a value that equals the padded program's everywhere; batch, length: its
        axes of rows and tokens."""
        b, source, shape = self.b, x, x.tensor.shape
        while source.node is not None and source.node.op == "expand" and source not in self.whole:
            source = source.node.arg(0)
        if source.node is not None and source.node.op == "full":
            others = [size for axis, size in enumerate(shape) if axis not in (batch, length)]
            return b.one("full", **{**source.node.attrs, "shape": (self.batch.count, *others)})
        source = self.whole.get(source, source)
        before = (1,) * (len(shape) - source.tensor.rank) + tuple(source.tensor.shape)
        source = B.reshape(b, source, before)
        others = [axis for axis in range(len(shape)) if axis not in (batch, length)]
        own = [axis for axis in dict.fromkeys((batch, length)) if not B.is_one(before[axis])]
        line = B.permute(b, source, [*own, *(a for a in range(len(shape)) if a not in own)])
        rest = [before[axis] for axis in others]
        count = self.batch.count
        if own:
            line = B.reshape(b, line, [product(before[axis] for axis in own), *rest])
            line = b.one("gather", line, self._index(own, batch, length), axis=0)
        else:
            line = B.reshape(b, line, [1, *rest])
        return B.expand(b, line, (count, *(shape[axis] for axis in others)))

    def _index(self, own: Sequence[int], batch: int, length: int) -> Value:
        """Return which position of the axes `own` each valid token reads."""
        places, (_, longest) = self.batch.places, self.batch.sizes
        if batch == length or len(own) == 2:
            if batch > length:
                raise Unpackable("its tokens are in front of its rows")
            return places
        op = "floordiv" if own[0] == batch else "mod"
        return B.pointwise(self.b, op, places, longest)

    def starts(self) -> Value:
        """Return the first token of each row: i64[batch]."""
        return B.take(self.b, self.batch.offsets, 0, 0, self.batch.sizes[0])

    def padded(self, rows: Rows, rank: int) -> Value:
        """Return rows as a padded value of `rank` axes: at padding their `fill`, or 0 if it is not known."""
        b, batch = self.b, self.batch
        n_rows, length = batch.sizes
        at = B.pointwise(b, "add", B.add_axis(b, self.starts(), 1), B.iota(b, length))
        at = B.pointwise(b, "minimum", at, B.pointwise(b, "sub", B.full(b, batch.count, "i64"), 1))
        line = b.one("gather", rows.value, at, axis=0)
        valid = B.reshape(b, batch.valid, (n_rows, length, *[1] * (len(line.tensor.shape) - 2)))
        line = B.where(b, B.expand(b, valid, line.tensor.shape), line, 0 if rows.fill is None else rows.fill)
        if rows.batch == rows.length:
            line = B.reshape(b, line, [product(batch.sizes), *line.tensor.shape[2:]])
        return self.in_order(line, rows, rank)

    def in_order(self, line: Value, rows: Rows, rank: int) -> Value:
        """Return a value whose first axes are those of rows and tokens with its axes in the padded order."""
        order = [*dict.fromkeys((rows.batch, rows.length)), *rows.others(rank)]
        return B.permute(self.b, line, [order.index(axis) for axis in range(rank)])

    # Nodes -----------------------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        """Rewrite a node that has rows, or a value made of rows, among its arguments. Raises Unpackable if it
        has no rule."""
        if not any(arg in self.rows for arg in node.present):
            self._same(node)
            return
        rule = RULES.get(node.op, RULES.get(OPS[node.op].kind if node.op in OPS else ""))
        try:
            if rule is None or len(node.results) != 1:
                raise Unpackable("it has no rule for packed tokens")
            found = rule(self, node)
        except Unpackable:
            if any(self.rows[arg].fill is None for arg in node.present if arg in self.rows):
                raise
            self._same(node)  # padded again: all is known at padding
            return
        if isinstance(found, Rows):
            self.rows[node.result] = found
        else:
            self.whole[node.result] = found

    def _same(self, node: Node) -> None:
        """Apply a node as it is to values that equal the padded program's everywhere."""
        args = [None if arg is None else self.value(arg) for arg in node.args]
        made = self.b.apply(node.op, *args, **node.attrs)
        self.whole.update(zip(node.results, made, strict=True))

    def value(self, x: Value) -> Value:
        """Return what equals a value of the padded program everywhere. Pointwise operators and views are
        applied to padded values again: a sum of products rounds once for both."""
        if x not in self.rows or x in self.whole:
            return self.whole.get(x, x)
        rows, node = self.rows[x], x.node
        if node is not None and rows.fill is not None and OPS[node.op].kind in ("pointwise", "view"):
            self._same(node)
        else:
            self.whole[x] = self.padded(rows, x.tensor.rank)
        return self.whole[x]

    def pair(self, node: Node) -> Rows:
        """Return the rows among a node's arguments, whose axes must be the same."""
        found = [self.rows[arg] for arg in node.present if arg in self.rows]
        if len({(rows.batch, rows.length) for rows in found}) != 1:
            raise Unpackable("its arguments have their tokens along different axes")
        return found[0]

    def of(self, x: Value, like: Rows) -> Value:
        """Return the valid rows of an argument, whose axes are as those of `like`."""
        return self.rows[x].value if x in self.rows else self.packed(x, like.batch, like.length)

    def at_padding(self, x: Value, like: Rows) -> Any:
        """Return an argument's element at padding if it is known, else None."""
        if x in self.rows:
            return self.rows[x].fill
        return None if x in self.whole else value_at(x, self.batch.mask, like.length, False)


# Rules ----------------------------------------------------------------------------------------------------


def _pointwise(packer: Packer, node: Node) -> Rows:
    like = packer.pair(node)
    args = [packer.of(arg, like) for arg in node.present]
    fill = of_pointwise(node, [packer.at_padding(arg, like) for arg in node.present])
    return replace(like, value=packer.b.one(node.op, *args, **node.attrs), fill=fill)


def _reshape(packer: Packer, node: Node) -> Rows:
    rows, old, new = packer.rows[node.arg(0)], node.arg(0).tensor.shape, node.attrs["shape"]
    n_rows, length = packer.batch.sizes
    batch = same_axis(old, rows.batch, new)
    if rows.batch == rows.length:
        at = batch if batch is not None else axis_of(new, n_rows, product(old[: rows.batch]))
        axes = (at, at if batch is not None or at is None else at + 1)
        if batch is None and (at is None or at + 1 >= len(new) or not equal(new[at + 1], length)):
            raise Unpackable("it merges tokens with other axes")
    elif batch is None and rows.length == rows.batch + 1:
        at = axis_of(new, product((n_rows, length)), product(old[: rows.batch]))
        axes = (at, at)
    else:
        axes = (batch, same_axis(old, rows.length, new))
    if axes[0] is None or axes[1] is None:
        raise Unpackable("it merges tokens with other axes")
    moved = replace(rows, batch=axes[0], length=axes[1])
    shape = [packer.batch.count, *(new[axis] for axis in moved.others(len(new)))]
    return replace(moved, value=B.reshape(packer.b, rows.value, shape))


def _permute(packer: Packer, node: Node) -> Rows:
    rows, axes = packer.rows[node.arg(0)], list(node.attrs["axes"])
    order = [0, *(rows.axis(axis) for axis in axes if axis not in (rows.batch, rows.length))]
    moved = replace(rows, batch=axes.index(rows.batch), length=axes.index(rows.length))
    return replace(moved, value=B.permute(packer.b, rows.value, order))


def _expand(packer: Packer, node: Node) -> Rows:
    rows, old, new = packer.rows[node.arg(0)], node.arg(0).tensor.shape, node.attrs["shape"]
    more = len(new) - len(old)
    moved = replace(rows, batch=rows.batch + more, length=rows.length + more)
    count, *others = rows.value.tensor.shape
    wanted = [new[axis] for axis in moved.others(len(new))]
    value = B.reshape(packer.b, rows.value, [count, *[1] * (len(wanted) - len(others)), *others])
    return replace(moved, value=B.expand(packer.b, value, (count, *wanted)))


def _slice(packer: Packer, node: Node) -> Rows | Value:
    rows, axis, length = packer.rows[node.arg(0)], node.attrs["axis"], node.attrs["length"]
    if axis == rows.length != rows.batch and node.attrs["start"] == 0 and B.is_one(length):
        return _first_tokens(packer, rows, node)
    attrs = {**node.attrs, "axis": rows.axis(axis)}
    return replace(rows, value=packer.b.one("slice", rows.value, **attrs))


def _first_tokens(packer: Packer, rows: Rows, node: Node) -> Value:
    """Return the first token of each row, which every row has."""
    line = packer.b.one("gather", rows.value, packer.starts(), axis=0)
    return packer.in_order(B.add_axis(packer.b, line, 1), rows, node.result.tensor.rank)


def _reduce(packer: Packer, node: Node) -> Rows:
    rows = packer.rows[node.arg(0)]
    rows.axis(node.arg(0).tensor.rank - 1)
    return replace(rows, value=packer.b.one(node.op, rows.value, **node.attrs), fill=None)


def _concat(packer: Packer, node: Node) -> Rows:
    like = packer.pair(node)
    args = [packer.of(arg, like) for arg in node.present]
    return replace(like, value=packer.b.one("concat", *args, axis=like.axis(node.attrs["axis"])), fill=None)


def _gather(packer: Packer, node: Node) -> Rows | Value:
    b, axis, (table, index) = packer.b, node.attrs["axis"], node.present
    if table not in packer.rows:  # a table's rows, by tokens
        rows = packer.rows[index]
        if axis != 0:
            raise Unpackable("it reads a table along another axis than the first")
        return replace(rows, value=b.one("gather", packer.value(table), rows.value, axis=0), fill=None)
    rows = packer.rows[table]
    if index in packer.rows:
        raise Unpackable("it reads tokens by tokens")
    if axis == rows.batch == rows.length:
        return _tokens_at(packer, rows, node)
    value = b.one("gather", rows.value, packer.value(index), axis=rows.axis(axis))
    more = index.tensor.rank - 1
    batch, length = (at + more * (at > axis) for at in (rows.batch, rows.length))
    return Rows(value, batch, length)


def _tokens_at(packer: Packer, rows: Rows, node: Node) -> Value:
    """Return tokens at given positions of batch * length, which must be valid: else the padded way is
    taken."""
    b, outer, batch, index = packer.b, packer.outer, packer.batch, node.arg(1)
    if index in packer.whole:
        raise Unpackable("it chooses tokens by what it computes of tokens")
    n_rows, length = batch.sizes
    line = B.reshape(outer, batch.valid, [product((n_rows, length))])
    flat = B.reshape(outer, index, [product(index.tensor.shape)])
    chosen = outer.one("gather", line, flat, axis=0)
    packer.conditions.append(B.reduce(outer, "reduce_all", chosen, [0], False))
    starts = b.one("gather", batch.offsets, B.pointwise(b, "floordiv", index, length), axis=0)
    at = B.pointwise(b, "add", starts, B.pointwise(b, "mod", index, length))
    return b.one("gather", rows.value, at, axis=rows.batch)


def _matmul(packer: Packer, node: Node) -> Rows:
    left, right, *scale = node.present
    if left not in packer.rows or any(arg in packer.rows for arg in (right, *scale)):
        raise Unpackable("it multiplies tokens by tokens")
    rows = packer.rows[left]
    if right.tensor.rank != 2 or rows.batch == left.tensor.rank - 1 or rows.length == left.tensor.rank - 1:
        raise Unpackable("it multiplies tokens by tokens")
    args = [rows.value, *map(packer.value, (right, *scale))]
    return replace(rows, value=packer.b.one("matmul", *args, **node.attrs), fill=None)


def _attention(packer: Packer, node: Node) -> Rows:
    """Attention of each row's tokens among themselves: the mask must exclude padding and nothing else, or
    what it excludes by position."""
    rank = node.arg(0).tensor.rank
    if any(arg not in packer.rows for arg in node.args[:3]):
        raise Unpackable("its queries, keys and values are not all of the same tokens")
    axes = {(packer.rows[arg].batch, packer.rows[arg].length) for arg in node.present[:3]}
    if len(axes) != 1 or (like := packer.rows[node.arg(0)]).length != rank - 2 or like.batch >= rank - 2:
        raise Unpackable("its tokens are along unusual axes")
    mask = node.args[3] if len(node.args) > 3 else None
    if mask is None or mask in packer.rows or mask in packer.whole:
        raise Unpackable("its mask does not exclude padding")
    if mask not in packer.masks:
        packer.masks[mask] = _of_one_row(packer, mask, like.batch)
    of_row = packer.masks[mask]
    if of_row is not None and of_row.tensor.dtype == "bool" and not node.attrs["safe"]:
        raise Unpackable("its mask may exclude all keys of a token")
    q, k, v = (packer.rows[arg].value for arg in node.present[:3])
    value = packer.b.one(
        "segment_attention", q, k, v, packer.batch.offsets, of_row,
        scale=node.attrs["scale"], longest=packer.batch.sizes[1],
    )  # fmt: skip
    return replace(like, value=value, fill=None)


def _of_one_row(packer: Packer, mask: Value, batch: int) -> Value | None:
    """Return a mask for the tokens of a row, None if it keeps all. A mask that is added stays one: a sum
    with 0 rounds in another order than none."""
    rank, dtype = mask.tensor.rank, mask.tensor.dtype
    at_valid, at_padding = (value_at(mask, packer.batch.mask, rank - 1, valid) for valid in (True, False))
    if at_padding is None or (at_padding if dtype == "bool" else at_padding > EXCLUDES):
        raise Unpackable("its mask is not known to exclude padding")
    shape = [size for axis, size in enumerate(mask.tensor.shape) if axis != batch]
    if at_valid is not None and dtype == "bool" and at_valid:
        return None
    if at_valid is not None:
        return B.expand(packer.b, B.full(packer.b, at_valid.item(), dtype, (1,) * len(shape)), shape)
    return B.reshape(packer.b, with_all_valid(packer.b, mask, packer.batch.mask), shape)


#: By operator, or by kind: the rows, or the whole value, of a node with rows among its arguments.
RULES: dict[str, Callable[[Packer, Node], Rows | Value]] = {
    "pointwise": _pointwise,
    "reduce": _reduce,
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "concat": _concat,
    "gather": _gather,
    "matmul": _matmul,
    "attention": _attention,
}
