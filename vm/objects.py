"""Serialisation of kernel metadata and code objects: one form for artifacts and for code installed at run
time.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

from .codes import codes
from .errors import ArtifactError
from .isa import DTYPES
from .layout import BY_NAME, LIMITS, NO_MAX, PAGE, SECTION_ALIGN
from .program import DTYPE_NAMES, Buffer, Dim, KernelObject, Lines, MachineCode, Size, SizeRange, Terms, Work

_GUARDS = codes("guard")
GENERIC, EXACT, BUCKET = _GUARDS["generic"], _GUARDS["exact"], _GUARDS["bucket"]  # of the field guard
HASHED_FROM = 48  # offset of the field spec_hash: the hash covers the record from there on, and the code
_I64 = struct.Struct("<q")


class Cursor:
    """Reads records one after another out of `data`; all errors are ArtifactErrors that name `what`."""

    def __init__(self, data: bytes | memoryview, what: str) -> None:
        self.data, self.what, self.at = memoryview(data), what, 0

    def fail(self, sentence: str) -> ArtifactError:
        """Return the error about the bytes before the cursor."""
        return ArtifactError(f"{self.what}, byte {self.at}: {sentence}")

    def check(self, holds: bool, sentence: str) -> None:
        """Raise ArtifactError with the message unless `holds`."""
        if not holds:
            raise self.fail(sentence)

    def record(self, name: str) -> dict[str, Any]:
        """Return the next record `name`. Raises ArtifactError beyond the end, or for reserved bytes that are
        not 0.
        """
        record = BY_NAME[name]
        self.check(
            record.size <= len(self.data) - self.at,
            f"record {name} reaches beyond the {len(self.data)} bytes",
        )
        fields = record.unpack(self.data, self.at)
        self.at += record.size
        self.check(
            not fields.get("reserved"),
            f"record {name}: reserved bytes must be 0",
        )
        return fields

    def i64(self) -> int:
        """Return the next i64. Raises ArtifactError beyond the end."""
        self.check(len(self.data) - self.at >= _I64.size, f"an i64 reaches beyond the {len(self.data)} bytes")
        self.at += _I64.size
        return int(_I64.unpack_from(self.data, self.at - _I64.size)[0])

    def limited(self, count: int, limit: str) -> int:
        """Return `count`. Raises ArtifactError when it is over the limit of that name."""
        bound, what = LIMITS[limit]
        self.check(count <= bound, f"{count} {what}: at most {bound} are allowed")
        return count

    def end(self) -> None:
        """Raise ArtifactError unless all bytes were read."""
        self.check(self.at == len(self.data), f"{len(self.data) - self.at} bytes follow the last record")


# Sizes and buffers ----------------------------------------------------------------------------------


def pack_size(size: Size) -> bytes:
    """Return the record `size`."""
    return BY_NAME["size"].pack(**_size_fields(size))


def _size_fields(size: Size) -> dict[str, int]:
    if isinstance(size, Dim):
        return {"is_dim": 1, "value": size.index}
    return {"is_dim": 0, "value": size}


def _check_size(cursor: Cursor, is_dim: int, value: int, n_dims: int, signed: bool) -> Size:
    cursor.check(is_dim in (0, 1), f"is_dim is {is_dim}; it must be 0 or 1")
    if is_dim:
        cursor.check(0 <= value < n_dims, f"dim {value} of a kernel with {n_dims} dims")
    else:
        cursor.check(signed or value >= 0, f"a size is {value}; it must be >= 0")
    return Dim(value) if is_dim else value


def read_size(cursor: Cursor, n_dims: int, signed: bool = False) -> Size:
    """Return the next record `size`, checked."""
    fields = cursor.record("size")
    return _check_size(cursor, fields["is_dim"], fields["value"], n_dims, signed)


def pack_buffers(buffers: tuple[Buffer, ...]) -> bytes:
    """Return the records `buffer`, each with its sizes."""
    parts = []
    for buffer in buffers:
        code = DTYPES[buffer.dtype][0]
        parts.append(
            BY_NAME["buffer"].pack(dtype=code, is_output=int(buffer.is_output), rank=len(buffer.shape))
        )
        parts += map(pack_size, buffer.shape)
    return b"".join(parts)


def read_buffers(cursor: Cursor, n_buffers: int, n_dims: int) -> tuple[Buffer, ...]:
    """Return the next `n_buffers` buffers, checked."""
    buffers = []
    for _ in range(cursor.limited(n_buffers, "BUFFERS")):
        fields = cursor.record("buffer")
        dtype, is_output = fields["dtype"], fields["is_output"]
        cursor.check(dtype < len(DTYPE_NAMES), f"dtype {dtype} is unknown")
        cursor.check(is_output in (0, 1), f"is_output is {is_output}; it must be 0 or 1")
        shape = tuple(read_size(cursor, n_dims) for _ in range(cursor.limited(fields["rank"], "RANK")))
        buffers.append(Buffer(DTYPE_NAMES[dtype], shape, bool(is_output)))
    return tuple(buffers)


def _pack_terms(terms: Terms) -> bytes:
    parts = []
    for factor, sizes in terms:
        parts.append(BY_NAME["term"].pack(factor=factor, n_sizes=len(sizes)))
        parts += map(pack_size, sizes)
    return b"".join(parts)


def _read_terms(cursor: Cursor, n_terms: int, n_dims: int) -> Terms:
    terms = []
    for _ in range(cursor.limited(n_terms, "TERMS")):
        fields = cursor.record("term")
        cursor.check(fields["factor"] >= 0, f"a factor is {fields['factor']}; it must be >= 0")
        sizes = tuple(read_size(cursor, n_dims) for _ in range(cursor.limited(fields["n_sizes"], "TERMS")))
        terms.append((fields["factor"], sizes))
    return tuple(terms)


# Code objects ---------------------------------------------------------------------------------------


def _body(o: KernelObject) -> bytes:
    """Return the bytes that follow the structure `object`."""
    parts = [_I64.pack(dim) for dim in o.exact_dims or ()]
    for r in o.ranges or ():
        top = NO_MAX if r.max is None else r.max
        parts.append(BY_NAME["range"].pack(min=r.min, max=top, multiple_of=r.multiple_of))
    parts.append(pack_buffers(o.buffers))
    for size, divisor in o.work.tiles:
        parts.append(BY_NAME["tile"].pack(**_size_fields(size), divisor=divisor))
    parts += [_pack_terms(o.work.scratch), _pack_terms(o.work.cost)]
    for loop, scale, offset, axis in o.bounds:
        parts.append(pack_size(loop) + _I64.pack(scale) + pack_size(offset) + pack_size(axis))
    for row in o.work.lines:
        fields = row._asdict()
        parts.append(BY_NAME["lines"].pack(**_size_fields(fields.pop("height")), **fields))
    return b"".join(parts)


def _guard(o: KernelObject) -> int:
    assert o.exact_dims is None or o.ranges is None, "a code object is exact or a bucket"
    return EXACT if o.exact_dims is not None else BUCKET if o.ranges is not None else GENERIC


def pack_object(o: KernelObject, code_offset: int = 0) -> bytes:
    """Return the record of a code object without its code, hash included. Raises ValueError for texts that
    are too long.
    """
    target, schedule = o.target.encode(), o.schedule.encode()
    if len(target) > 16 or len(schedule) > 63:
        raise ValueError(
            f"code object: target {o.target!r} and schedule {o.schedule!r} have at most 16 and 63 bytes"
        )
    body = _body(o)
    structure = BY_NAME["object"].pack(
        code_offset=code_offset, record_size=BY_NAME["object"].size + len(body),
        spec_hash=bytes.fromhex(o.spec_hash), target=target, schedule=schedule,
        code_size=len(o.code.data), entry=o.code.entry, guard=_guard(o),
        n_dims=o.n_dims, n_buffers=len(o.buffers), n_tiles=len(o.work.tiles), n_scratch=len(o.work.scratch),
        n_cost=len(o.work.cost), n_bounds=len(o.bounds),
        n_lines=len(o.work.lines), alignment=o.code.alignment,
    )  # fmt: skip
    digest = hashlib.sha256(structure[HASHED_FROM:])
    digest.update(body)
    digest.update(o.code.data)
    return digest.digest() + structure[32:] + body


def serialise_object(o: KernelObject) -> bytes:
    """Return a single code object: its record, then its code, in the form of `svm_install_code`."""
    return pack_object(o) + o.code.data


def _text(cursor: Cursor, data: bytes, field: str) -> str:
    text, _, rest = data.partition(b"\0")
    cursor.check(not rest.strip(b"\0"), f"{field} is not padded with zeros")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise cursor.fail(f"{field} is not UTF-8") from None


def read_object(cursor: Cursor, blobs: bytes | memoryview) -> tuple[KernelObject, int]:
    """Return the next code object, its code taken from `blobs`, and its code_offset. Checks everything, the
    hash included.
    """
    start = cursor.at
    fields = cursor.record("object")
    n_dims = cursor.limited(fields["n_dims"], "DIMS")
    exact, ranges = _read_guard(cursor, fields["guard"], n_dims)
    buffers = read_buffers(cursor, fields["n_buffers"], n_dims)
    tiles = tuple(_read_tile(cursor, n_dims) for _ in range(cursor.limited(fields["n_tiles"], "TERMS")))
    scratch = _read_terms(cursor, fields["n_scratch"], n_dims)
    cost = _read_terms(cursor, fields["n_cost"], n_dims)
    bounds = tuple(_read_bound(cursor, n_dims) for _ in range(cursor.limited(fields["n_bounds"], "TERMS")))
    lines = _read_lines(cursor, fields["n_lines"], n_dims, buffers, len(tiles))
    size = cursor.at - start
    cursor.check(
        fields["record_size"] == size,
        f"the code object has {size} bytes; its record_size is {fields['record_size']}",
    )
    code = _code_of(cursor, fields, blobs)
    _check_hash(cursor, fields["sha256"], cursor.data[start + HASHED_FROM : cursor.at], code)
    target = _text(cursor, fields["target"], "target")
    schedule = _text(cursor, fields["schedule"], "schedule")
    cursor.check(len(schedule.encode()) < 64, "schedule is not zero-terminated")
    made = KernelObject(
        fields["spec_hash"].hex(), target, n_dims, buffers, Work(tiles, scratch, cost, lines), bounds,
        MachineCode(code, fields["entry"], fields["alignment"]), exact, schedule, ranges,
    )  # fmt: skip
    return made, fields["code_offset"]


def _read_lines(
    cursor: Cursor, n_rows: int, n_dims: int, buffers: tuple[Buffer, ...], n_tiles: int
) -> tuple[Lines, ...]:
    """Return the rows of buffers that tiles read line by line."""
    found: dict[int, Lines] = {}
    for _ in range(cursor.limited(n_rows, "BUFFERS")):
        fields = cursor.record("lines")
        height = _check_size(cursor, fields.pop("is_dim"), fields.pop("value"), n_dims, signed=False)
        row = Lines(height=height, **{name: fields[name] for name in fields if name in Lines._fields})
        cursor.check(row.buffer < len(buffers) and row.buffer not in found, "lines: the buffer")
        found[row.buffer] = row
        cursor.check(row.tile < n_tiles and row.tile == next(iter(found.values())).tile, "lines: the tile")
        most = LIMITS["LINES"][0]
        is_fit = 1 <= row.stride <= most and -most <= row.low <= most and 1 <= row.reach <= most
        is_own = (row.stride, row.low, row.reach) == (1, 0, 1) or not buffers[row.buffer].is_output
        cursor.check(is_fit and is_own, "lines: stride, low or reach")
    return tuple(found.values())


def _read_guard(
    cursor: Cursor, guard: int, n_dims: int
) -> tuple[tuple[int, ...] | None, tuple[SizeRange, ...] | None]:
    """Return the sizes of an exact kernel, and the ranges of a bucket's kernel."""
    cursor.check(guard in (GENERIC, EXACT, BUCKET), f"guard is {guard}; it must be 0, 1 or 2")
    exact = tuple(cursor.i64() for _ in range(n_dims)) if guard == EXACT else None
    cursor.check(min(exact or (0,)) >= 0, f"exact dims {exact} must be >= 0")
    return exact, tuple(_read_range(cursor) for _ in range(n_dims)) if guard == BUCKET else None


def _code_of(cursor: Cursor, fields: Mapping[str, Any], blobs: bytes | memoryview) -> bytes:
    """Return the code of the record `object` after checks of its position, entry point and alignment."""
    offset, size, entry, alignment = (
        fields[name] for name in ("code_offset", "code_size", "entry", "alignment")
    )
    is_inside = 1 <= size <= len(blobs) and offset <= len(blobs) - size
    cursor.check(is_inside, f"code {offset} + {size} is outside of BLOBS")
    cursor.check(entry < size, f"entry {entry} is outside of the code's {size} bytes")
    is_alignment = SECTION_ALIGN <= alignment <= PAGE and alignment & (alignment - 1) == 0
    cursor.check(is_alignment, f"alignment is {alignment}; it must be a power of two from 64 to 4096")
    return bytes(blobs[offset : offset + size])


def _check_hash(cursor: Cursor, wanted: bytes, metadata: memoryview, code: bytes) -> None:
    digest = hashlib.sha256(metadata)
    digest.update(code)
    cursor.check(digest.digest() == wanted, "the code object's SHA-256 differs: its bytes were changed")


def parse_object(data: bytes) -> KernelObject:
    """Parse the output of `serialise_object`. Raises ArtifactError for anything else."""
    fields = (
        BY_NAME["object"].unpack(data)
        if len(data) >= BY_NAME["object"].size
        else {"record_size": len(data) + 1}
    )
    size = fields["record_size"]
    if not BY_NAME["object"].size <= size <= len(data) or fields["code_offset"] != 0:
        raise ArtifactError(
            f"code object: {len(data)} bytes cannot hold a record of {size} bytes with code_offset 0"
        )
    cursor, code = Cursor(memoryview(data)[:size], "code object"), memoryview(data)[size:]
    made, _ = read_object(cursor, code)
    cursor.end()
    cursor.check(
        len(code) == len(made.code.data),
        f"{len(code)} bytes of code follow; the record says {len(made.code.data)}",
    )
    return made


def _read_range(cursor: Cursor) -> SizeRange:
    fields = cursor.record("range")
    low, top, step = fields["min"], fields["max"], fields["multiple_of"]
    cursor.check(
        low >= 0 and (top == NO_MAX or top >= low) and step >= 1,
        f"a range from {low} to {top} of multiples of {step}",
    )
    return SizeRange(low, None if top == NO_MAX else top, step)


def _read_tile(cursor: Cursor, n_dims: int) -> tuple[Size, int]:
    fields = cursor.record("tile")
    size = _check_size(cursor, fields["is_dim"], fields["value"], n_dims, signed=False)
    cursor.check(fields["divisor"] >= 1, f"a tile's divisor is {fields['divisor']}; it must be >= 1")
    return size, fields["divisor"]


def _read_bound(cursor: Cursor, n_dims: int) -> tuple[Size, int, Size, Size]:
    loop, scale = read_size(cursor, n_dims), cursor.i64()
    return loop, scale, read_size(cursor, n_dims, signed=True), read_size(cursor, n_dims)
