"""Packed sequences: the rows of sequences of different lengths, time by time, and recurrent layers over them.
Sequences are in order of their lengths, the longest first; `batch_sizes` is the number of sequences at each
time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sympy

from ..ir.dims import DimExpr, format_dim
from ..ir.errors import ShapeError
from ..ir.graph import Builder, Value
from . import build as B
from .conditions import add_guard
from .declare import Composite, Op
from .gather import gather, holding
from .recurrent import Packing, layers
from .rules import show


def pack(b: Builder, x: Value, lengths: Value, batch_first: bool) -> tuple[Value, Value]:
    """The rows of padded sequences time by time, and their number at each time."""
    if len(B.shape_of(x)) < 2 or len(B.shape_of(lengths)) != 1:
        raise ShapeError(
            f"pack_padded_sequence: the sequences are {show(B.shape_of(x))} and the lengths "
            f"{show(B.shape_of(lengths))}; they must have at least two axes, and one"
        )
    x = _exchanged(b, x) if batch_first else x
    steps, batch, *rest = B.shape_of(x)
    lengths = B.cast_to(b, B.of_size(b, "pack_padded_sequence", lengths, 0, batch), "i64")
    _require_lengths(b, lengths, steps)
    active = B.pointwise(b, "lt", B.iota(b, steps, 0, 2), B.reshape(b, lengths, [1, batch]))
    rows = gather(b, B.reshape(b, x, [steps * batch, *rest]), holding(b, active), 0)
    longest = B.size_of(b, B.take(b, lengths, 0, 0, 1))
    return rows, B.take(b, _counts(b, active, 1), 0, 0, longest)


def _require_lengths(b: Builder, lengths: Value, steps: DimExpr) -> None:
    """Append guards that the lengths do not increase, from at most the number of times to at least 1."""
    (batch,) = B.shape_of(lengths)
    add_guard(b, sympy.Ge(sympy.sympify(batch), 1), "pack_padded_sequence: there must be a sequence")
    after = B.concat(b, [B.take(b, lengths, 0, 1, batch - 1), B.full(b, 1, "i64", (1,))], 0)
    goes_down = B.pointwise(b, "ge", lengths, after)
    fits = B.pointwise(b, "le", lengths, B.full(b, steps, "i64"))
    holds = B.reduce(b, "reduce_all", B.pointwise(b, "and", goes_down, fits), [0], False)
    b.apply(
        "guard",
        b.one("item", holds),
        message=f"pack_padded_sequence: the lengths must go down, from {format_dim(steps)} at most to 1 at "
        "least; give enforce_sorted=False where they do not go down",
    )


def _counts(b: Builder, active: Value, axis: int) -> Value:
    return B.reduce(b, "reduce_sum", B.cast_to(b, active, "i64"), [axis], False)


def _exchanged(b: Builder, x: Value) -> Value:
    return B.permute(b, x, [1, 0, *range(2, len(B.shape_of(x)))])


def _places(b: Builder, batch_sizes: Value, batch: DimExpr) -> tuple[Value, Value]:
    """Return the index of each row of [steps, batch] among the packed ones, and which rows exist; the index
    of others is 0."""
    (steps,) = B.shape_of(batch_sizes)
    ends = B.reshape(b, b.one("scan", B.reshape(b, batch_sizes, [1, steps, 1]), function="sum"), [steps, 1])
    sizes = B.reshape(b, batch_sizes, [steps, 1])
    sequence = B.iota(b, batch, 1, 2)
    active = B.pointwise(b, "lt", sequence, sizes)
    place = B.pointwise(b, "add", B.pointwise(b, "sub", ends, sizes), sequence)
    return B.where(b, active, place, 0), active


def pad(
    b: Builder, rows: Value, batch_sizes: Value, batch_first: bool, value: float, total_length: DimExpr
) -> tuple[Value, Value]:
    """Packed sequences as padded ones, and their lengths."""
    batch = B.size_of(b, B.take(b, batch_sizes, 0, 0, 1))
    (steps,) = B.shape_of(batch_sizes)
    places, active = _places(b, batch_sizes, batch)
    made = gather(b, rows, places, 0)
    rest = B.shape_of(made)[2:]
    made = B.where(
        b,
        B.reshape(b, active, [steps, batch, *[1] * len(rest)]),
        made,
        B.full(b, value, B.dtype_of(rows)),
    )
    if not isinstance(total_length, int) or total_length > 0:
        message = "pad_packed_sequence: total_length must be at least the longest length"
        add_guard(b, sympy.Ge(sympy.sympify(total_length), sympy.sympify(steps)), message)
        missing = B.size_of(b, B.pointwise(b, "maximum", B.full(b, total_length - steps, "i64"), 0))
        made = B.pad(b, made, [(0, missing), *[(0, 0)] * (1 + len(rest))], value)
        made = B.of_size(b, "pad_packed_sequence", made, 0, total_length)
    return _exchanged(b, made) if batch_first else made, _counts(b, active, 0)


def _layers(
    name: str,
    b: Builder,
    rows: Value,
    batch_sizes: Value,
    hx: Value | Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    n_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Value, ...]:
    """Recurrent layers over packed sequences: a sequence that has ended keeps its state."""
    states = [hx] if isinstance(hx, Value) else list(hx)
    places, active = _places(b, batch_sizes, B.shape_of(states[0])[1])
    held = holding(b, active)

    def collect(x: Value) -> Value:
        steps, batch, width = B.shape_of(x)
        found = gather(b, B.reshape(b, x, [steps * batch, width]), held, 0)
        return B.of_size(b, name, found, 0, B.shape_of(rows)[0])

    packing = Packing(active, lambda x: gather(b, x, places, 0), collect)
    settings = (has_biases, n_layers, dropout, train, bidirectional, False)
    return layers(name, b, rows, states, params, *settings, packing=packing)


def _padded_to(
    b: Builder,
    rows: Value,
    batch_sizes: Value,
    batch: DimExpr,
    batch_first: bool,
    value: float,
    total_length: DimExpr,
) -> tuple[Value, Value]:
    """shapevm::pad_packed: `pad` for a known number of sequences and of times."""
    made, lengths = pad(b, rows, batch_sizes, batch_first, value, total_length)
    axis, name = 0 if batch_first else 1, "pad_packed_sequence"
    return B.of_size(b, name, made, axis, batch), B.of_size(b, name, lengths, 0, batch)


def _layers_of_kind(
    b: Builder,
    kind: str,
    rows: Value,
    batch_sizes: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    n_layers: int,
    bidirectional: bool,
) -> tuple[Value, ...]:
    """shapevm::packed_layers."""
    hx = states if kind == "lstm" else states[0]
    return _layers(
        f"aten.{kind}.input",
        b,
        rows,
        batch_sizes,
        hx,
        params,
        has_biases,
        n_layers,
        0.0,
        False,
        bidirectional,
    )


def _of(name: str) -> Callable[..., Any]:
    return partial(_layers, f"aten.{name}.input")


OPS: tuple[Op, ...] = ()
COMPOSITES: tuple[Composite, ...] = (
    Composite(("aten._pack_padded_sequence.default",), pack),
    Composite(("aten._pad_packed_sequence.default",), pad),
    Composite(("shapevm.pack_padded.default",), pack),
    Composite(("shapevm.pad_packed.default",), _padded_to),
    Composite(("shapevm.packed_layers.default",), _layers_of_kind),
    *(Composite((f"aten.{name}.data",), _of(name)) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
)
