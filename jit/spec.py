"""Kernel specs: what a kernel computes, as data, before any machine code exists.

A spec is a loop nest over symbolic sizes. It is immutable, serialisable (`to_json`; `spec_reader` reads it)
and content-hashed (`spec_hash`). `sizes` are ints, or `Dim`s: kernel parameters known only at run time.
An *exact* kernel is the same spec with values given for the `Dim`s; both come from the same generator
and give the same bits.

Families: `Nest` (pointwise chains, row reductions, gathers), `Concat` (several nests that fill one output),
`Matmul`, `Conv`, `Attention`, `Scan` (running sums and the like); those that move elements to places which
depend on data: `Scatter`, `Sort`, `Places` (where a mask holds), `Search` (in sorted rows).
All share `Buffer` (what the kernel reads and writes) and `Instr` (the scalar body, in SSA form).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

SPEC_VERSION = 1


@dataclass(frozen=True, order=True)
class Dim:
    """The run-time parameter `dims[index]` (an int64, >= 0) of a kernel: a size or a slice offset."""

    index: int

    def __str__(self) -> str:
        return f"n{self.index}"


Size = int | Dim
#: A factor times sizes; and the sum of such: bytes of scratch, a tile's cost.
Term = tuple[int, tuple[Size, ...]]
Terms = tuple[Term, ...]


@dataclass(frozen=True)
class Buffer:
    """`buffers[i]` of the kernel ABI: a contiguous row-major array of `dtype` and `shape`; () is 0-d.

    `dtype` is one of f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool (bool: one byte, 0 or 1).
    `is_output`: the kernel writes all of it; otherwise it only reads. Outputs may share memory with an
    input only where the emitter proved every element is read before its place is written.
    """

    dtype: str
    shape: tuple[Size, ...]
    is_output: bool = False


@dataclass(frozen=True)
class Index:
    """One axis position: `scale * (loop or value) + offset`.

    Exactly one of `loop` (index of a domain loop) and `value` (id of an earlier integer Instr: a gather,
    bounds-checked at run time) may be set; neither: the constant `offset`. `offset` may be a Dim.
    """

    loop: int | None = None
    value: int | None = None
    scale: int = 1
    offset: Size = 0


@dataclass(frozen=True)
class Instr:
    """One scalar step of a body; its id is its position in the tuple.

    op      args               attrs
    load    -                  buffer, index (one Index per buffer axis); result has the buffer's dtype
    store   (value,)           buffer, index; value must already have the buffer's dtype
    const   -                  value (int, float, bool; inf/nan as the strings "inf" "-inf" "nan"), dtype
    iota    -                  loop; dtype i64: the value of that loop's index
    dim     -                  size (a Dim or int); dtype i64
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
    index: tuple[Index, ...] = ()
    value: Any = None
    loop: int | None = None
    size: Size | None = None


Body = tuple[Instr, ...]


@dataclass(frozen=True)
class Nest:
    """Loops `domain` (outermost first) around `body`.

    Without reduce instructions all loops are alike. With them the last loop is the *row*: reductions run over
    it; a store whose index does not use the row loop writes once per row. The order of a reduction is one of
    the two in `jit.families.nest.reduce`: along the row, or along columns where the loads that depend on
    the row and on
    most loops lie along another loop (`jit.families.nest.columns.find_columns`, which sees nothing but the
    spec).
    """

    family: ClassVar[str] = "nest"
    n_dims: int
    buffers: tuple[Buffer, ...]
    domain: tuple[Size, ...]
    body: Body


@dataclass(frozen=True)
class Piece:
    """One part of a `Concat`: the loops and the body of a nest over the family's buffers."""

    domain: tuple[Size, ...]
    body: Body


@dataclass(frozen=True)
class Concat:
    """Nests (`pieces`) that write the one output buffer together, each element in exactly one of them.

    Each piece means what a `Nest` of its domain and body does. A piece may be empty (a loop of size 0).
    """

    family: ClassVar[str] = "concat"
    n_dims: int
    buffers: tuple[Buffer, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Matmul:
    """acc[batch.., i, j] = sum over k of A[.., i, k] * B[.., k, j], by fused multiply-add from 0, k rising.

    Then `epilogue` (domain: batch.., m, n; `acc` is its input; stores the results).
    `a`, `b`: positions in `buffers`; `a_index`/`b_index` give one Index per axis of the buffer over the loops
    batch.. (0..len(batch)-1), m (len(batch)), n (len(batch)+1), k (len(batch)+2).
    `b_layout`: "rows": b is read in place, its n axis must be last (stride 1);
    "panels": b is a constant packed by `jit.families.matmul.matmul.pack_panels` as [ceil(N/PANEL), K,
    PANEL] zero-padded in the last panel; then `b_index` is () and there is no batch over b.
    A's k axis must be last (stride 1).
    `prologue`: if not empty, A[.., i, k] is its last instruction's value (f32). Its loops are those above;
    nothing in it may depend on n; no stores, `acc` or reductions. It is computed on the way in, a block of
    rows at a time. Then `a` is -1 and `a_index` ().
    a is f32; b is f32 or, in panels, bf16 or f16 that is widened when read; accumulation in f32.
    """

    family: ClassVar[str] = "matmul"
    n_dims: int
    buffers: tuple[Buffer, ...]
    batch: tuple[Size, ...]
    m: Size
    n: Size
    k: Size
    a: int
    a_index: tuple[Index, ...]
    b: int
    b_index: tuple[Index, ...]
    b_layout: str
    epilogue: Body
    prologue: Body = ()


@dataclass(frozen=True)
class Window:
    """How a convolution's rows lie in its image [N, X.., C], one entry per spatial axis.

    Row r of A belongs to image r // product(out) and, row-major, to position o of the axes `out`. Its k runs
    over the taps t of `kernel`, row-major, and the channels of a group within each: the element at position
    o * stride + t * dilation - low, or 0 outside. With `expansion` e > 1 the image's elements lie e apart,
    with zeros between (a transposed convolution). Columns n are of group n // (N / groups).
    """

    out: tuple[Size, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    expansion: tuple[int, ...]
    low: tuple[int, ...]
    groups: int = 1


@dataclass(frozen=True)
class Conv(Matmul):
    """A matmul whose A[.., i, k] is a patch of the image `buffers[a]`, as `window` says; `a_index` is ().

    The loops batch.., m together are the images and output positions, row-major; n the output channels, k
    taps and channels of one group. "panels": each group's columns are packed by themselves. "winograd":
    packed by `jit.families.conv.winograd.pack`, for 3 x 3 taps and C in multiples of 16; the sums are
    another algorithm's, unless images are small.
    `planes`: the image is [N, C, X..] instead, for few channels (`jit.families.conv.planes`).
    """

    family: ClassVar[str] = "conv"
    window: Window = field(kw_only=True)
    planes: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Attention:
    """out[b.., i, :] = softmax over j of body(scale * q[b.., i, :] . k[b.., j, :]) times v[b.., j, :].

    `batch`: the loops that head and batch make, e.g. (B, H).
    Loops: batch.., i (len(batch)), j (len(batch)+1).
    `q_index`, `k_index`, `v_index`, `out_index`: one Index per axis of that buffer; the head dimension is
    loop len(batch)+2 and must be the last axis (stride 1) of each buffer. Any axis order otherwise
    ([B, L, H, D] in place).
    `body`: domain (batch.., i, j), `acc` (f32) is the scaled score; its last instruction's value is the
    masked score (add a bias, select -inf ...); no stores. An empty body is the identity.
    A row whose scores are all -inf gives NaN where PyTorch's softmax does (safe_softmax=True: 0, as SDPA).
    """

    family: ClassVar[str] = "attention"
    n_dims: int
    buffers: tuple[Buffer, ...]
    batch: tuple[Size, ...]
    q_len: Size
    k_len: Size
    head_dim: Size
    v_dim: Size
    q: int
    k: int
    v: int
    out: int
    q_index: tuple[Index, ...]
    k_index: tuple[Index, ...]
    v_index: tuple[Index, ...]
    out_index: tuple[Index, ...]
    scale: float
    safe_softmax: bool
    body: Body


@dataclass(frozen=True)
class Scatter:
    """out = base; then out[.., index, ..] = combine(out[.., index, ..], source) at each place of `updates`.

    Buffers: base, index (i64 or i32), source, out; all of out's rank. `updates`: the loops, one for each axis
    of out; each axis of index and source has its loop's size, or 1: it is the same all along. Loop a is the
    place along axis a of out, but for `axis`, where index says the place (checked at run time). Each axis of
    base has out's size or 1. `mode`: a key of `SCATTER_MODES`. Updates of one place come in the order of the
    loop `axis`, each rounded to the dtype.
    """

    family: ClassVar[str] = "scatter"
    n_dims: int
    buffers: tuple[Buffer, ...]
    updates: tuple[Size, ...]
    axis: int
    mode: str


#: How an update changes its place -> the operation on (old, new) of `jit.math.table.OPS`; "": new replaces
#: old.
SCATTER_MODES: dict[str, str] = {
    "set": "", "sum": "add", "prod": "mul", "min": "minimum", "max": "maximum", "any": "or", "all": "and",
}  # fmt: skip


@dataclass(frozen=True)
class Sort:
    """The first `keep` elements of every row in a stable order, a NaN above all others and -0 equal to 0.

    Buffers: x [rows, length]; values [rows, keep] of x's dtype and their places in the row, indices [rows,
    keep] (i64), both outputs. `keep` is at most `length`. `descending`: greatest first.
    """

    family: ClassVar[str] = "sort"
    n_dims: int
    buffers: tuple[Buffer, ...]
    rows: Size
    length: Size
    keep: Size
    descending: bool


@dataclass(frozen=True)
class Places:
    """The places where a mask holds, in order: the first `count`; where there are fewer, the rest are -1.

    Buffers: the mask [length] (bool), the places [count] (i64).
    """

    family: ClassVar[str] = "places"
    n_dims: int
    buffers: tuple[Buffer, ...]
    length: Size
    count: Size


@dataclass(frozen=True)
class Search:
    """How many elements of a row that goes up come before each value; with `right`, or are equal to it.

    Buffers: rows [rows, length], or [1, length], the same for all; values [rows, count] of the same dtype;
    places [rows, count] (i64). A NaN comes after every element.
    """

    family: ClassVar[str] = "search"
    n_dims: int
    buffers: tuple[Buffer, ...]
    rows: Size
    length: Size
    count: Size
    right: bool


@dataclass(frozen=True)
class Scan:
    """out[r, i, c] = what `op` makes of x[r, 0 .. i, c]: a running sum, product, extremum ...

    Buffers: x, out and, for max and min, the latest place of the extremum (i64), all [rows, length, columns].
    `op`: a key of `jit.families.moves.scan.RULES` (sum, prod, max, min, logsumexp). A row is scanned by
    vectors where `columns` is the int 1, else position by position (see `jit.families.moves.scan`).
    """

    family: ClassVar[str] = "scan"
    n_dims: int
    buffers: tuple[Buffer, ...]
    rows: Size
    length: Size
    columns: Size
    op: str


KernelSpec = Nest | Concat | Scan | Matmul | Attention | Scatter | Sort | Places | Search
FAMILIES: dict[str, type] = {
    family.family: family
    for family in (Nest, Concat, Scan, Matmul, Conv, Attention, Scatter, Sort, Places, Search)
}


# Serialisation ------------------------------------------------------------------------------------


def _encode(value: Any) -> Any:
    """Return `value` as plain JSON data. A Dim is {"dim": i}; Index and Instr leave out their defaults."""
    if isinstance(value, Dim):
        return {"dim": value.index}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if is_dataclass(value):
        pairs = [(f, getattr(value, f.name)) for f in fields(value)]
        return {
            f.name: _encode(v)
            for f, v in pairs
            if f.default != v or isinstance(v, bool) != isinstance(f.default, bool)
        }
    return value


def to_json(spec: KernelSpec) -> str:
    """Return the canonical JSON text of `spec` (equal specs give equal text)."""
    data = {"family": spec.family, "version": SPEC_VERSION, **_encode(spec)}
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def family_name(spec: KernelSpec) -> str:
    """Return the name under which kernels alike are known: the family, nests with and without rows apart."""
    has_rows = isinstance(spec, Nest) and any(i.op.startswith("reduce.") for i in spec.body)
    return f"{spec.family}.rows" if has_rows else spec.family


def spec_hash(spec: KernelSpec) -> str:
    """Return the SHA-256 (hex) of the canonical text: the identity of the computation. Kept with the spec."""
    kept: dict[str, str] = spec.__dict__
    if "_hash" not in kept:
        kept["_hash"] = hashlib.sha256(to_json(spec).encode()).hexdigest()
    return kept["_hash"]
