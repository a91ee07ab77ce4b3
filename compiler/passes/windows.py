"""Maxima over windows of an image, in the form of imported max pools: maxima of gathers of it.

Rounding to bytes keeps the order of values, so the bytes of maxima are maxima of bytes: only a quarter of the
memory is read, and the image is never held in f32.
"""

from __future__ import annotations

from ..ir.graph import Builder, Value
from ..ops import build as B
from .fold_affine import with_vector

MOVES = ("gather", "reshape")


def pooled(x: Value) -> Value | None:
    """Return the image of which `x` is the maxima over windows, if it has no other readers; else None."""
    inner, sources = {x}, set()
    pending = [x]
    while pending:
        value = pending.pop()
        for arg in _args(value):
            if arg not in inner:
                inner.add(arg)
                pending.append(arg)
        if not _args(value):
            sources.add(value)
    if len(sources) != 1 or x in sources or x.definition.op != "maximum":
        return None
    nodes = {value.node for value in inner - sources}
    is_alone = all(set(value.users) <= nodes for value in inner - {x})
    return sources.pop() if is_alone else None


def _args(value: Value) -> list[Value]:
    """Return the operands of a value of a pool, [] for its image."""
    node = value.node
    if node is None or node.op not in ("maximum", *MOVES):
        return []
    if node.op in MOVES:
        return [node.arg(0)]
    return [] if with_vector(node)[1] is not None else [node.arg(0), node.arg(1)]


def pool_again(b: Builder, x: Value, image: Value, q: Value) -> Value:
    """Return the computation of `x` from `image`, applied to `q`."""
    made = {image: q}
    pending = [x]
    while pending:
        value = pending[-1]
        missing = [arg for arg in _args(value) if arg not in made] if value not in made else []
        pending += missing
        if missing:
            continue
        pending.pop()
        if value not in made:
            node, args = value.definition, [made[arg] for arg in _args(value)]
            if node.op == "reshape":
                made[value] = B.reshape(b, args[0], B.shape_of(value))
            else:
                made[value] = b.one(node.op, *args, *node.present[len(args) :], **node.attrs)
    return made[x]
