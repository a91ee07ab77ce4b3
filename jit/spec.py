"""Kernel specs: descriptions of a kernel's computation as data, independent of machine code.

A spec is a loop nest over symbolic sizes. It is immutable, serialisable (`to_json`; `spec_reader` reads it)
and content-hashed (`spec_hash`). Sizes are ints, or `Dim`s: kernel parameters known only at run time.
The classes are generic in the representation of an unknown size: by default a `Dim`, a dimension expression
while the compiler still merges loops (`Nest[sympy.Expr]`). An *exact* kernel is the same spec with values for
the `Dim`s; both come from the same generator and have the same bits.

The plain family is `Nest` (pointwise chains, gathers, row reductions); the specs of the others are in the
folders of their families (`jit.families`). All share `Buffer` (what the kernel reads and writes) and `Instr`
(the scalar body, in SSA form).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import prod
from typing import Any, ClassVar, Generic, Self

from ..vm.program import Buffer, Dim, KernelKey, Size, Term, Terms, Unknown
from ..vm.schema import parse
from .decode import Part, SpecError, refuse

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
    checked (index, given)     size (a Dim or int); dtype i64: an integer from 0 to below it. Any other
                               value is a run-time error that names `given`, and becomes 0
    divisor (value,)           size or None; the value, an integer: 0 is an error at run time, unless size is
                               0 (of loops that the value does not depend on, which may have no turn)
    acc     -                  the family's input to an epilogue: matmul's sum, attention's scaled score
    cast    (value,)           dtype, PyTorch's conversion rules (float -> int truncates; to bool: != 0)
    select  (cond, a, b)
    any op of `jit.math.table.OPS`   unary / binary / comparison on equal dtypes (see its `result`)
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
    """The common part of the specs of all families: `n_dims` run-time sizes, and the buffers."""

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
    the two in `jit.families.nest.reduce`: along the row, or along columns if the loads that depend on the row
    and on most loops are contiguous along another loop (`jit.families.nest.columns.find_columns`, which
    depends only on the spec).
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
    """The unparsed output of `to_json` for a spec: parsing needs the whole table of families. It replaces the
    spec if a kernel is only looked up or passed on."""

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
        data = parse(spec.text)
        if not isinstance(data, dict) or not isinstance(data.get("family"), str):
            raise ValueError("kernel spec: it names no family; export the artifact again")
        body = data.get("body")
        ops = [i.get("op") for i in body if isinstance(i, dict)] if isinstance(body, list) else []
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


# What kernels touch ---------------------------------------------------------------------------------
#
# A family's row states it, and it is proved against the sizes, dtypes and directions that the buffers
# declare. What only the sizes of a launch decide is left to the launch.

#: (loop, scale, offset, axis): see `KernelObject.bounds`.
Bound = tuple[Size, int, Size, Size]


@dataclass(frozen=True)
class BufferAccess:
    """Code reads buffer number `buffer` at `index`, a position for each axis, in loops of the sizes `loops`,
    and writes there if `is_written`.

    `dtypes`: its interpretation of the elements, () for the buffer's. `packed`: it reads by other rules, at
    most this many elements from the buffer's start, described by `what`; then `index` is ().
    """

    buffer: int
    index: tuple[Index, ...]
    loops: tuple[Size, ...]
    dtypes: tuple[str, ...] = ()
    is_written: bool = False
    packed: int | None = None
    what: str = ""


def at_loops(
    buffer: int, loops: Sequence[Size], dtypes: tuple[str, ...] = (), is_written: bool = False
) -> BufferAccess:
    """Return the access of a buffer whose axes are the loops, in their order."""
    index = tuple(Index(loop=i) for i in range(len(loops)))
    return BufferAccess(buffer, index, tuple(loops), dtypes, is_written)


def whole(
    spec: KernelSpec, buffer: int, dtypes: tuple[str, ...] = (), is_written: bool = False
) -> BufferAccess:
    """Return the access of all elements of a buffer, whose sizes the code takes from its shape."""
    return at_loops(buffer, spec.buffers[buffer].shape, dtypes, is_written)


def body_accesses(body: Body, loops: tuple[Size, ...]) -> Iterable[BufferAccess]:
    """Yield the loads and stores of a body over `loops`."""
    for instr in body:
        if instr.op in ("load", "store"):
            assert instr.buffer is not None
            yield BufferAccess(instr.buffer, instr.index, loops, (), instr.op == "store")


def prove(spec: KernelSpec, accesses: Iterable[BufferAccess], dims: KernelKey = None) -> tuple[Bound, ...]:
    """Return the conditions (see `KernelObject.bounds`) that shapes do not decide, each once.

    With `dims` all are decided. Raises SpecError for an access that leaves its buffer, misinterprets its
    elements, or writes a buffer that is not an output.
    """
    found: dict[Bound, None] = {}
    for access in accesses:
        _check_kind(spec, access)
        found |= dict.fromkeys(_open_bounds(spec, access, dims))
    return _outermost(tuple(found))


def _outermost(bounds: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """Return the bounds without those that two others imply: of offsets along one loop (the taps of a
    convolution) the lowest and the highest decide."""
    offsets: dict[tuple[Size, int, Size], list[int]] = {}
    for loop, scale, offset, size in bounds:
        if isinstance(offset, int):
            offsets.setdefault((loop, scale, size), []).append(offset)
    ends = {(*key, end) for key, found in offsets.items() for end in (min(found), max(found))}
    return tuple(b for b in bounds if not isinstance(b[2], int) or (b[0], b[1], b[3], b[2]) in ends)


def _check_kind(spec: KernelSpec, access: BufferAccess) -> None:
    if not 0 <= access.buffer < len(spec.buffers):
        raise refuse("buffers", len(spec.buffers), f"more than {access.buffer} of them")
    where, buffer = f"buffers[{access.buffer}]", spec.buffers[access.buffer]
    if access.dtypes and buffer.dtype not in access.dtypes:
        raise refuse(f"{where}.dtype", buffer.dtype, f"{' or '.join(access.dtypes)}")
    if access.is_written and not buffer.is_output:
        raise refuse(where, "an input", "an output, since the kernel writes it")
    if access.packed is None and len(access.index) != len(buffer.shape):
        raise SpecError(
            f"{spec.family} kernel: buffer {access.buffer} has {len(buffer.shape)} axes, indexed by "
            f"{len(access.index)}; export the artifact again"
        )
    known = [int(size) for size in buffer.shape if isinstance(size, int)]
    is_known = len(known) == len(buffer.shape)
    if access.packed is not None and not (is_known and prod(known) >= access.packed):
        shape = [size if isinstance(size, int) else str(size) for size in buffer.shape]
        raise refuse(f"{where}.shape", shape, f"of at least {access.packed} elements, {access.what}")


def _open_bounds(spec: KernelSpec, access: BufferAccess, dims: KernelKey) -> Iterable[Bound]:
    """Yield those of an access that are not decided; check the others."""
    for axis, (place, size) in enumerate(zip(access.index, spec.buffers[access.buffer].shape, strict=False)):
        if place.value is not None:
            continue  # a gather checks itself
        loop: Size = 1 if place.loop is None else access.loops[place.loop]
        if place.scale == 1 and place.offset == 0 and loop == size:
            continue
        limit = (loop, place.scale, place.offset, size)
        known = tuple(dims[s.index] if dims is not None and isinstance(s, Dim) else s for s in limit)
        if all(isinstance(s, int) for s in known):
            _check_bound(spec, access.buffer, axis, *known)  # type: ignore[arg-type]
        else:
            yield limit


def _check_bound(
    spec: KernelSpec, buffer: int, axis: int, loop: int, scale: int, offset: int, size: int
) -> None:
    for place in (offset, scale * (loop - 1) + offset):
        if loop > 0 and not 0 <= place < size:
            raise SpecError(
                f"{spec.family} kernel: buffer {buffer} is read or written at {place} along axis {axis} "
                f"of size {size}; export the artifact again"
            )


__all__ = [
    "Body", "Bound", "Buffer", "BufferAccess", "Dim", "Index", "Instr", "KernelSpec", "Nest", "Part", "Size",
    "SpecText", "Term", "Terms", "Unknown", "at_loops", "bodies", "body_accesses", "family_name",
    "map_bodies", "prove", "spec_hash", "to_json", "whole",
]  # fmt: skip
