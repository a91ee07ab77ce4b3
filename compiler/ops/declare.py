"""Declarations of operators. One `Op` is one operator of the graph IR; one `Composite` is a torch
operator that is written in terms of others when it is imported. Everything else (importers, type inference,
lowering, documentation, generated tests) reads these.

Kinds of `Op`, which decide how `compiler.lower` turns it into kernels:
  pointwise   `scalar` names the op of `jit.math.table.OPS` (or "cast", "select"); arguments have equal,
  already
              broadcast shapes and the dtypes of the rule
  view        an index map, no data moves: reshape permute expand slice
  concat      its arguments one after the other along `axis`
  source      no tensor arguments: constant full iota
  reduce      over the last axis: `scalar` is "reduce.sum" ... ; result keeps the axis with size 1
  gather      rows of a table chosen by an index tensor
  matmul, conv, attention   their kernel family
  standalone  a kernel of its own, whose arguments lie in memory: `compiler.lower.standalone` has its spec
  composite   has `decompose`: rewritten into other ops by the decompose pass before lowering
  value       works on plain values (ints, floats, tuples ...), becomes instructions
  control     if, while, call, extern
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..ir.graph import Builder, Node, Value
from ..ir.types import Type

KINDS = (
    "pointwise",
    "view",
    "concat",
    "source",
    "reduce",
    "gather",
    "matmul",
    "conv",
    "attention",
    "standalone",
    "composite",
    "value",
    "control",
)
Infer = Callable[[Sequence[Type | None], dict[str, Any]], Sequence[Type]]


@dataclass(frozen=True)
class Sample:
    """A test input: types as text ("f32[2,s0]", "" for an absent argument), attrs, how to fill the tensors.

    `fill`: "normal", "positive" (0.1 ..), "unit" (-1 .. 1), "above_one", "index:N" (integers below N).
    """

    args: tuple[str, ...]
    attrs: dict[str, Any]
    fill: str = "normal"


@dataclass(frozen=True)
class Op:
    """One operator of the graph IR.

    `schema` is its signature in PyTorch's notation. `infer(types, attrs)` returns the result types or raises
    `ShapeError`/`DtypeError` with a full sentence. `torch` names overloads whose arguments match the schema
    one to one. `reference(args, attrs)` is the numpy definition on one array or plain value per argument: f16
    and bf16 tensors are float32 arrays, rounded by the caller (`compiler.reference`); dimensions in attrs are
    ints. `decompose(builder, node)` returns the replacing values.
    """

    name: str
    kind: str
    schema: str
    doc: str
    infer: Infer
    reference: Callable[..., Any]
    torch: tuple[str, ...] = ()
    scalar: str = ""
    decompose: Callable[[Builder, Node], Sequence[Value]] | None = None
    samples: tuple[Sample, ...] = ()
    errors: tuple[tuple[Sample, str], ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of its attributes, which the schema has after the arguments: `sort(Tensor x; keep)`."""
        return _attributes(self.schema)


@cache
def _attributes(schema: str) -> tuple[str, ...]:
    inner = schema[schema.index("(") + 1 : schema.index(")")]
    return tuple(name.strip() for name in inner.partition(";")[2].split(",") if name.strip())


@dataclass(frozen=True)
class Composite:
    """torch overloads imported as a few other ops.

    `expand(builder, *args, **kwargs)` gets the overload's arguments in the order of its schema, defaults
    filled in, those after the `*` by name: graph values for tensors; ints or dimension expressions for sizes;
    dtypes by name; lists and numbers unchanged. It returns a Value, a tuple of them, or None if there is no
    result.
    """

    torch: tuple[str, ...]
    expand: Callable[..., Any]
    doc: str = ""
