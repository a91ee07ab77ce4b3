"""Writing artifacts: the sections of a Program, then its weights as a stream."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np

from .chunks import hash_rows
from .files import replacing, write_by_huge_pages, write_parts
from .isa import DTYPES, TAGS, isa_hash
from .layout import (
    BIG_CONSTANT,
    BY_NAME,
    CHUNK,
    CHUNKED,
    CHUNKED_ALIGN,
    EXPRESSION,
    FORMAT_VERSIONS,
    INT_MAX,
    MAGIC,
    NO_KIND,
    NO_SYMBOL,
    PAGE,
    SECTION_ALIGN,
    SECTIONS,
)
from .objects import pack_buffers, pack_object
from .program import Axis, Constant, Function, Input, Kernel, Output, Program, Symbol
from .shares import in_shares

Array = np.ndarray[Any, Any]
PIECE_BYTES = 1 << 22  # of an array that must be copied before it is written
CHUNKS_OF_SHARE = 8  # a thread that writes fewer costs more than it saves


def aligned(offset: int, alignment: int) -> int:
    """Return the smallest multiple of `alignment` that is >= offset."""
    return -(-offset // alignment) * alignment


class Strings:
    """The growing string table. A program's own strings come first, so its code's operands stay valid."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.table = list(strings)
        if not self.table or self.table[0] != "":
            raise ValueError('program: strings[0] must be ""')
        self._index = {text: index for index, text in reversed(list(enumerate(self.table)))}

    def __call__(self, text: str) -> int:
        """Return the index of `text`."""
        if text not in self._index:
            self._index[text] = len(self.table)
            self.table.append(text)
        return self._index[text]

    def pack(self) -> bytes:
        """Return the section. Raises ValueError for a string with a zero character."""
        for text in self.table:
            if "\0" in text:
                raise ValueError(f"string {text!r} holds a zero character, which the format does not")
        data = [text.encode() + b"\0" for text in self.table]
        offsets = np.cumsum([0, *map(len, data)]).astype("<u4")
        return offsets.tobytes() + b"".join(data)


def _symbol(s: Symbol, string: Strings) -> bytes:
    top = INT_MAX if s.max is None else s.max
    return BY_NAME["symbol"].pack(
        name=string(s.name), why=string(s.why), min=s.min, max=top, multiple_of=s.multiple_of
    )


def _axis(axis: Axis, string: Strings) -> bytes:
    symbol = EXPRESSION if axis.expression else NO_SYMBOL if axis.symbol is None else axis.symbol
    return BY_NAME["axis"].pack(
        symbol=symbol, expression=string(axis.expression), scale=axis.scale, offset=axis.offset
    )


def _input(function: int, i: Input, string: Strings) -> bytes:
    row = BY_NAME["input"].pack(
        name=string(i.name), kind=TAGS[i.kind], dtype=DTYPES[i.dtype][0] if i.dtype else 0, rank=len(i.axes),
        symbol=NO_SYMBOL if i.symbol is None else i.symbol, function=function, memory=i.memory,
    )  # fmt: skip
    return row + b"".join(_axis(axis, string) for axis in i.axes)


def _output(o: Output, string: Strings) -> bytes:
    row = BY_NAME["output"].pack(
        name=string(o.name), kind=NO_KIND if o.kind is None else TAGS[o.kind],
        dtype=DTYPES[o.dtype][0] if o.dtype else 0, rank=len(o.axes),
    )  # fmt: skip
    return row + b"".join(_axis(axis, string) for axis in o.axes)


def _scalar(c: Constant, string: Strings) -> int:
    if isinstance(c.value, float):
        return int(struct.unpack("<q", struct.pack("<d", c.value))[0])
    return string(c.value) if isinstance(c.value, str) else int(c.value or 0)


def _constants(constants: tuple[Constant, ...], string: Strings, place: Callable[[Array], int]) -> bytes:
    parts = []
    for c in constants:
        fields: dict[str, Any] = {"tag": TAGS[c.tag], "name": string(c.name)}
        shape: tuple[int, ...] = ()
        if c.dtype is not None:
            shape = c.value.shape
            fields |= {
                "dtype": DTYPES[c.dtype][0],
                "rank": len(shape),
                "offset": place(c.value),
                "size": c.value.nbytes,
            }
        else:
            fields["value"] = _scalar(c, string)
        parts.append(BY_NAME["constant"].pack(**fields) + struct.pack(f"<{len(shape)}q", *shape))
    return b"".join(parts)


def _function(f: Function, string: Strings) -> bytes:
    return BY_NAME["function"].pack(
        name=string(f.name), n_registers=f.n_registers, n_params=f.n_params, n_results=f.n_results,
        n_words=len(f.code), n_lines=len(f.lines),
    )  # fmt: skip


def _kernel(k: Kernel, string: Strings) -> bytes:
    row = BY_NAME["kernel"].pack(
        label=string(k.label), source=string(k.source), spec=string(k.spec), n_dims=k.n_dims,
        n_buffers=len(k.buffers), n_objects=len(k.objects),
    )  # fmt: skip
    return row + pack_buffers(k.buffers)


class _Weights:
    """Offsets of tensors in WEIGHTS; memory that occurs twice, as one array or two, is stored once."""

    def __init__(self) -> None:
        self.placed: list[tuple[int, Array]] = []
        self.end = 0
        self._known: dict[tuple[int, ...], int] = {}

    def place(self, array: Array) -> int:
        """Return the offset of an array's data."""
        key = memory_key(array)
        if key in self._known:
            return self._known[key]
        offset = aligned(self.end, PAGE if array.nbytes >= BIG_CONSTANT else SECTION_ALIGN)
        self.placed.append((offset, array))
        self.end = offset + array.nbytes
        self._known[key] = offset
        return offset

    @property
    def size(self) -> int:
        """Bytes of the section, its padding included."""
        return aligned(self.end, CHUNKED_ALIGN)

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        """Yield the section's bytes from `begin` to `end`, multiples of CHUNK or its size, in order."""
        at = begin
        for offset, array in self.placed:
            if offset >= end or offset + array.nbytes <= begin:
                continue
            yield bytes(max(offset - at, 0))
            at = max(offset, at)
            for piece in _pieces(array, at - offset, min(end - offset, array.nbytes)):
                yield from _by_chunk(piece, at)
                at += len(piece)
        yield bytes(end - at)


def _by_chunk(data: memoryview, at: int) -> Iterator[memoryview]:
    """Yield data that begins `at` bytes after the section's start, split at the bounds of chunks: each part
    is written and hashed in place while it is in the caches."""
    begin, end = 0, -at % CHUNK or CHUNK
    while begin < len(data):
        yield data[begin:end]
        begin, end = end, end + CHUNK


def memory_key(array: Array) -> tuple[int, ...]:
    """Return a key that arrays over the same memory share."""
    if array.nbytes and array.flags.c_contiguous:
        return array.ctypes.data, array.nbytes
    return (id(array),)


def _pieces(array: Array, begin: int, end: int) -> Iterator[memoryview]:
    """Yield an array's bytes from `begin` to `end`; if it is not contiguous, in copies of a few MB."""
    if begin >= end:
        return
    if array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8).data[begin:end]
        return
    row = array.nbytes // len(array)
    step = max(1, PIECE_BYTES // row)
    for start in range(begin // row, -(-end // row), step):
        copied = np.ascontiguousarray(array[start : start + step])
        first = start * row
        yield copied.reshape(-1).view(np.uint8).data[max(begin - first, 0) : end - first]


def _objects(kernels: tuple[Kernel, ...]) -> tuple[bytes, bytes]:
    """Return the sections OBJECTS and BLOBS."""
    records, blobs = [], bytearray()
    for kernel in kernels:
        for o in kernel.objects:
            blobs += bytes(-len(blobs) % SECTION_ALIGN)
            records.append(pack_object(o, len(blobs)))
            blobs += o.code.data
    return b"".join(records), bytes(blobs) + bytes(-len(blobs) % CHUNKED_ALIGN)


@dataclass
class _Section:
    data: bytes  # b"" for WEIGHTS, which is streamed
    count: int
    size: int
    offset: int = 0


def _records(p: Program, string: Strings, place: Callable[[Array], int]) -> dict[str, tuple[bytes, int]]:
    """Return the sections that refer to strings, with their numbers of records."""
    lines = [(pc, string(source)) for f in p.functions for pc, source in f.lines]
    inputs = [(entry.function, row) for entry in p.entry_points for row in entry.inputs]
    outputs = [row for entry in p.entry_points for row in entry.outputs]
    return {
        "SYMBOLS": (b"".join(_symbol(s, string) for s in p.symbols), len(p.symbols)),
        "INPUTS": (b"".join(_input(*row, string) for row in inputs), len(inputs)),
        "OUTPUTS": (b"".join(_output(row, string) for row in outputs), len(outputs)),
        "CONSTANTS": (_constants(p.constants, string, place), len(p.constants)),
        "FUNCTIONS": (b"".join(_function(f, string) for f in p.functions), len(p.functions)),
        "KERNELS": (b"".join(_kernel(k, string) for k in p.kernels), len(p.kernels)),
        "LINES": (b"".join(BY_NAME["line"].pack(pc=pc, source=source) for pc, source in lines), len(lines)),
    }


def string_order(p: Program) -> list[str]:
    """Return the string table that the program would have without its own strings."""
    string = Strings([""])
    _records(p, string, lambda array: 0)
    return string.table


def _sections(p: Program, weights: _Weights) -> dict[str, _Section]:
    string = Strings(p.strings)
    code = (
        np.concatenate([np.asarray(f.code, "<u4") for f in p.functions])
        if p.functions
        else np.empty(0, "<u4")
    )
    objects, blobs = _objects(p.kernels)
    meta = json.dumps(dict(p.meta), ensure_ascii=False, separators=(",", ":")).encode()
    made = _records(p, string, weights.place) | {
        "CODE": (code.tobytes(), len(code)),
        "OBJECTS": (objects, sum(len(k.objects) for k in p.kernels)),
        "BLOBS": (blobs, 0),
        "META": (meta, 0),
        "WEIGHTS": (b"", 0),
    }
    sizes = {name: len(data) for name, (data, _) in made.items()} | {"WEIGHTS": weights.size}
    n_chunks = sum(-(-sizes[name] // CHUNK) for name in CHUNKED)
    made["CHUNKS"] = (b"", n_chunks)  # hashes, which are not known yet
    made["STRINGS"] = (string.pack(), len(string.table))
    sizes |= {"CHUNKS": n_chunks * BY_NAME["chunk"].size, "STRINGS": len(made["STRINGS"][0])}
    return _placed({name: _Section(*made[name], sizes[name]) for name in SECTIONS})


def _placed(sections: dict[str, _Section]) -> dict[str, _Section]:
    """Give every section its offset in the file."""
    end = BY_NAME["header"].size + BY_NAME["section"].size * len(sections)
    for name, section in sections.items():
        section.offset = aligned(end, PAGE if name in CHUNKED else SECTION_ALIGN)
        end = section.offset + section.size
    return sections


def _version(p: Program) -> int:
    """Return the first format version that supports the program."""
    return FORMAT_VERSIONS[bool(p.others) or any(row.memory for row in p.inputs)]


def _head(p: Program, sections: Mapping[str, _Section]) -> bytes:
    """Return the header and the table of sections."""
    rows = []
    for name, section in sections.items():
        number, hashed, _ = SECTIONS[name]
        digest = hashlib.sha256(section.data).digest() if hashed else bytes(32)
        rows.append(
            BY_NAME["section"].pack(
                id=number, offset=section.offset, size=section.size, count=section.count, sha256=digest
            )
        )
    table, last = b"".join(rows), sections["WEIGHTS"]
    header = BY_NAME["header"].pack(
        magic=MAGIC, format_version=_version(p), n_sections=len(sections), isa_hash=isa_hash(),
        file_size=last.offset + last.size,
        table_sha256=hashlib.sha256(table).digest(),
    )  # fmt: skip
    return header + table


def _write_weights(weights: _Weights, file: IO[bytes], at: int) -> list[bytes]:
    """Write the weights where their section begins, and return their hashes. The CPUs divide an
    operating-system file among them, because allocating its pages takes longer than copying."""
    try:
        descriptor = file.fileno()
    except OSError:  # a file in memory
        file.seek(at)
        pieces = weights.pieces(0, weights.size)
        return list(hash_rows(write_by_huge_pages(pieces, lambda parts, at: file.write(b"".join(parts)), at)))
    shares: dict[int, list[bytes]] = {}

    def write_chunks(first: int, last: int) -> None:
        begin, end = first * CHUNK, min(last * CHUNK, weights.size)
        write = partial(write_parts, descriptor)
        pieces = write_by_huge_pages(weights.pieces(begin, end), write, at + begin)
        shares[first] = list(hash_rows(pieces))

    in_shares(-(-weights.size // CHUNK), write_chunks, CHUNKS_OF_SHARE)
    return [row for first in sorted(shares) for row in shares[first]]


def write_to(program: Program, file: IO[bytes]) -> None:
    """Write the artifact into a file at position 0, and leave the position at the artifact's end. Weights are
    read once, hashed as they are written, and their hashes, which come before them, last; a pipe needs these
    first, so they are read twice. Raises ValueError for a program that the format cannot hold.
    """
    weights = _Weights()
    sections = _sections(program, weights)
    is_file = file.seekable()
    code_hashes = hash_rows([sections["BLOBS"].data])
    if is_file:
        weight_hashes = _write_weights(weights, file, sections["WEIGHTS"].offset)
        file.seek(0)
    else:
        weight_hashes = list(hash_rows(weights.pieces(0, weights.size)))
    sections["CHUNKS"].data = b"".join([*code_hashes, *weight_hashes])
    head = _head(program, sections)
    file.write(head)
    at = len(head)
    for section in sections.values():
        file.write(bytes(section.offset - at) + section.data)
        at = section.offset + len(section.data)
    if is_file:
        file.seek(sections["WEIGHTS"].offset + weights.size)
        return
    for piece in weights.pieces(0, weights.size):
        file.write(piece)


def write(program: Program, path: str | os.PathLike[str]) -> None:
    """Write the artifact to `path`, which is replaced at the end in one step: readers never see half of
    it."""
    with replacing(path) as file:
        write_to(program, file)
