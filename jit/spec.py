"""Kernel specs: what a kernel computes, as data, before any machine code exists.

A spec is a loop nest over symbolic sizes. It is immutable, serialisable (`to_json`; `spec_reader` reads it)
and content-hashed (`spec_hash`). Sizes are ints, or `Dim`s: kernel parameters known only at run time.
The classes are generic in what stands for an unknown size: a `Dim` where nothing else is written, a dimension
expression while the compiler still merges loops (`Nest[sympy.Expr]`).
An *exact* kernel is the same spec with values given for the `Dim`s; both come from the same generator
and give the same bits.

The plain family is `Nest` (pointwise chains, gathers, row reductions); the specs of the others stand in the
folders of their families (`jit.families`).
All share `Buffer` (what the kernel reads and writes) and `Instr` (the scalar body, in SSA form).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, Self

from ..vm.program import Buffer, Dim, Size, Term, Terms, Unknown
from .decode import Part

SPEC_VERSION = 1


@dataclass(frozen=True)
class Index(Generic[Unknown]):
    """One axis position: `scale * (loop or value) + offset`.

    Exactly one of `loop` (index of a domain loop) and `value` (id of an earlier integer Instr: a gather,
    bounds-checked at run time) may be set; neither: the constant `offset`. `offset` may be a Dim.
    """

    loop: int | None = None
    value: int | None = None
    scale: int = 1
    offset: Size[Unknown] = 0

    @property
    def along(self) -> int:
        """The loop, of an index that has one."""
        assert self.loop is not None
        return self.loop


@dataclass(frozen=True)
class Instr(Generic[Unknown]):
    """One scalar step of a body; its id is its position in the tuple.

    op      args               attrs
    load    -                  buffer, index (one Index per buffer axis); result has the buffer's dtype
    store   (value,)           buffer, index; value must already have the buffer's dtype
    const   -                  value (int, float, bool; inf/nan as the strings "inf" "-inf" "nan"), dtype
    iota    -                  loop; dtype i64: the value of that loop's index
    dim     -                  size (a Dim or int); dtype i64
    checked (index,)           size (a Dim or int); dtype i64: an integer from 0 to below it. What is none is
                               an error at run time, as a gather out of range is, and 0 from there on
    acc     -                  the family's input to an epilogue: matmul's sum, attention's scaled score
    cast    (value,)           dtype, PyTorch's conversion rules (float -> int truncates; to bool: != 0)
    select  (cond, a, b)
    any op of `jit.math.table.OPS`   unary / binary / comparison on equal dtypes (comparison results are bool)
    reduce.sum|prod|max|min|any|all  (value,)   over the row loop (the last domain loop); the result is a
                               row value: usable by later instructions everywhere in the row.
                               Order of float sums: fixed by the family, the same for every tier.
                               A sum of floats may have dtype f64: it is not rounded. One of `mul`s adds
                               the products unrounded.
    """

    op: str
    dtype: str
    args: tuple[int, ...] = ()
    buffer: int | None = None
    index: tuple[Index[Unknown], ...] = ()
    value: Any = None
    loop: int | None = None
    size: Size[Unknown] | None = None


Body = tuple[Instr[Unknown], ...]


@dataclass(frozen=True)
class KernelSpec(Generic[Unknown]):
    """What the specs of all families have: `n_dims` run-time sizes, and the buffers."""

    family: ClassVar[str]
    n_dims: int
    buffers: tuple[Buffer[Unknown], ...]

    def numbered(self) -> Self:
        """Return the spec with those of its numbers as `FromSize` that generic code is shared without."""
        return self


@dataclass(frozen=True)
class Nest(KernelSpec[Unknown]):
    """Loops `domain` (outermost first) around `body`.

    Without reduce instructions all loops are alike. With them the last loop is the *row*: reductions run over
    it; a store whose index does not use the row loop writes once per row. The order of a reduction is one of
    the two in `jit.families.nest.reduce`: along the row, or along columns where the loads that depend on
    the row and on most loops lie along another loop (`jit.families.nest.columns.find_columns`, which sees
    nothing but the spec).
    """

    family: ClassVar[str] = "nest"
    domain: tuple[Size[Unknown], ...]
    body: Body[Unknown]


# Serialisation ------------------------------------------------------------------------------------


def _encode(value: Any) -> Any:
    """Return `value` as plain JSON data. A Dim is {"dim": i}; Index and Instr leave out their defaults."""
    if isinstance(value, Dim):
        return {"dim": value.index}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if is_dataclass(value):
        pairs = [(f, getattr(value, f.name)) for f in fields(value)]
        found = {
            f.name: _encode(v)
            for f, v in pairs
            if not isinstance(v, Part)
            and (f.default != v or isinstance(v, bool) != isinstance(f.default, bool))
        }
        for part in (v for _, v in pairs if isinstance(v, Part)):
            found |= _encode(part)
        return found
    return value


@dataclass(frozen=True)
class SpecText:
    """The text that `to_json` wrote of a spec, which nobody has read: that takes the whole table of families.
    It stands for the spec where a kernel is only looked up or handed on."""

    text: str


def to_json(spec: KernelSpec | SpecText) -> str:
    """Return the canonical JSON text of `spec` (equal specs give equal text)."""
    if isinstance(spec, SpecText):
        return spec.text
    data = {"family": spec.family, "version": SPEC_VERSION, **_encode(spec)}
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def bodies(part: Any) -> Iterator[Body]:
    """Yield every body of a spec, or of a part of one."""
    for value in (getattr(part, f.name) for f in fields(part)):
        items = value if isinstance(value, tuple) else (value,) if isinstance(value, Part) else ()
        if items and isinstance(items[0], Instr):
            yield items
        else:
            for item in items:
                yield from bodies(item) if is_dataclass(item) else ()


def map_bodies(part: Any, change: Callable[[Body], Body]) -> Any:
    """Return a spec, or a part of one, with each body as `change` makes it."""
    if isinstance(part, tuple):
        is_body = bool(part) and isinstance(part[0], Instr)
        return change(part) if is_body else tuple(map_bodies(item, change) for item in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, **{f.name: map_bodies(getattr(part, f.name), change) for f in fields(part)})


def family_name(spec: KernelSpec | SpecText) -> str:
    """Return the name under which kernels alike are known: the family, nests with and without rows apart.

    Raises ValueError for a text that is not of a spec.
    """
    if isinstance(spec, SpecText):
        data = json.loads(spec.text)
        if not isinstance(data, dict) or not isinstance(data.get("family"), str):
            raise ValueError("kernel spec: it names no family; export the artifact again")
        ops = [i.get("op") for i in data.get("body", ()) if isinstance(i, dict)]
        has_rows = data["family"] == Nest.family and any(str(op).startswith("reduce.") for op in ops)
        return f"{data['family']}.rows" if has_rows else str(data["family"])
    has_rows = isinstance(spec, Nest) and any(i.op.startswith("reduce.") for i in spec.body)
    return f"{spec.family}.rows" if has_rows else spec.family


def spec_hash(spec: KernelSpec | SpecText) -> str:
    """Return the SHA-256 (hex) of the canonical text: the identity of the computation. Kept with the spec."""
    kept: dict[str, str] = spec.__dict__
    if "_hash" not in kept:
        kept["_hash"] = hashlib.sha256(to_json(spec).encode()).hexdigest()
    return kept["_hash"]


__all__ = [
    "Body", "Buffer", "Dim", "Index", "Instr", "KernelSpec", "Nest", "Part", "Size", "SpecText", "Term",
    "Terms", "Unknown", "bodies", "family_name", "map_bodies", "spec_hash", "to_json",
]  # fmt: skip
