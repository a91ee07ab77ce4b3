"""Reading artifacts: every byte is checked before it is used."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from .chunks import hash_rows
from .errors import ArtifactError
from .isa import DTYPES, TAGS, isa_hash
from .layout import (
    BY_NAME,
    CHUNK,
    CHUNKED,
    CHUNKED_ALIGN,
    EXPRESSION,
    FORMAT_VERSIONS,
    INT_MAX,
    INT_MIN,
    LIMITS,
    MAGIC,
    NO_KIND,
    NO_SYMBOL,
    PAGE,
    SECTION_ALIGN,
    SECTIONS,
)
from .meta import read_meta
from .objects import Cursor, read_buffers, read_object
from .program import (
    DTYPE_NAMES,
    NUMPY_DTYPES,
    Axis,
    Constant,
    EntryPoint,
    Function,
    Input,
    Kernel,
    KernelObject,
    Output,
    Program,
    Symbol,
    format_key,
)
from .writer import aligned

TAG_NAMES = {code: name for name, code in TAGS.items()}
INPUT_KINDS = ("tensor", "int", "float", "bool", "str", "list")
CONSTANT_TAGS = ("none", "bool", "int", "float", "str", "tensor")
MAX_SPELLED = 1 << 28  # of all records, each of which may name the longest string
COPY_BYTES = 1 << 28  # `read` copies files up to this size
T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """A section's bytes and its number of records."""

    data: memoryview
    count: int


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ArtifactError(sentence)


# The container --------------------------------------------------------------------------------------


def _header(data: memoryview) -> dict[str, Any]:
    size = BY_NAME["header"].size
    _check(len(data) >= size, f"artifact: {len(data)} bytes are fewer than the header's {size}")
    header = BY_NAME["header"].unpack(data)
    _check(header["magic"] == MAGIC, "artifact: the first 8 bytes are not an artifact's")
    version = header["format_version"]
    _check(
        version in FORMAT_VERSIONS,
        f"artifact: format version {version}; this build reads {' and '.join(map(str, FORMAT_VERSIONS))}",
    )
    _check(
        header["isa_hash"] == isa_hash(),
        f"artifact: instruction set {header['isa_hash']:016x}; this build has {isa_hash():016x}; recompile",
    )
    _check(
        header["n_sections"] == len(SECTIONS),
        f"artifact: {header['n_sections']} sections; it must have {len(SECTIONS)}",
    )
    return header


def _check_size(header: Mapping[str, Any], size: int) -> None:
    stated = header["file_size"]
    _check(stated == size, f"artifact: {size} bytes; its header says {stated}")


def stated_size(head: bytes) -> int:
    """Return the file's size that an artifact's first bytes state. Raises ArtifactError for a header that
    cannot be read."""
    return int(_header(memoryview(head))["file_size"])


def _sections(data: memoryview) -> dict[str, Section]:
    header = _header(data)
    _check_size(header, len(data))
    start, row_size = BY_NAME["header"].size, BY_NAME["section"].size
    end = start + row_size * len(SECTIONS)
    _check(end <= len(data), f"artifact: the section table reaches beyond the file's {len(data)} bytes")
    _check(
        hashlib.sha256(data[start:end]).digest() == header["table_sha256"],
        "artifact: the section table was changed",
    )
    sections = {}
    for index, (name, (number, hashed, _)) in enumerate(SECTIONS.items()):
        row = BY_NAME["section"].unpack(data, start + index * row_size)
        offset, size = row["offset"], row["size"]
        _check(
            row["id"] == number and row["reserved"] == 0,
            f"section {name}: id {row['id']} stands in its place",
        )
        wanted = aligned(end, PAGE if name in CHUNKED else SECTION_ALIGN)
        _check(
            offset == wanted and size <= len(data) - offset,
            f"section {name}: {offset} + {size} does not begin at {wanted}, or leaves the file",
        )
        _check(
            name not in CHUNKED or size % CHUNKED_ALIGN == 0,
            f"section {name}: its {size} bytes are not a multiple of {CHUNKED_ALIGN}",
        )
        _check(not any(data[end:offset]), f"section {name}: the gap before it does not hold zeros")
        body = data[offset : offset + size]
        digest = hashlib.sha256(body).digest() if hashed else bytes(32)
        _check(row["sha256"] == digest, f"section {name}: its SHA-256 differs: its bytes were changed")
        sections[name] = Section(body, row["count"])
        end = offset + size
    _check(end == len(data), f"artifact: {len(data) - end} bytes follow the last section")
    return sections


def _check_chunks(sections: dict[str, Section]) -> None:
    chunks, record = sections["CHUNKS"], BY_NAME["chunk"].size
    found = [(name, row) for name in CHUNKED for row in hash_rows([sections[name].data])]
    _check(
        len(chunks.data) == record * chunks.count and chunks.count == len(found),
        f"section CHUNKS: {chunks.count} records in {len(chunks.data)} bytes; there must be {len(found)}",
    )
    for index, (name, row) in enumerate(found):
        _check(
            chunks.data[index * record : (index + 1) * record] == row,
            f"section {name}: hash {index} of CHUNKS differs: its bytes were changed",
        )


# Sections -------------------------------------------------------------------------------------------


def _strings(section: Section) -> list[str]:
    data, count = section.data, section.count
    n_offsets = 4 * (count + 1)
    _check(
        count >= 1 and n_offsets <= len(data),
        f"section STRINGS: {len(data)} bytes cannot hold {count} strings",
    )
    offsets = struct.unpack_from(f"<{count + 1}I", data)
    bytes_ = bytes(data[n_offsets:])
    _check(
        offsets[0] == 0 and offsets[-1] == len(bytes_), "section STRINGS: the offsets do not span its bytes"
    )
    strings = []
    for index, (begin, end) in enumerate(zip(offsets, offsets[1:], strict=False)):
        _check(begin < end <= len(bytes_), f"string {index}: offsets {begin} .. {end} do not ascend")
        text = bytes_[begin:end]
        _check(text.find(b"\0") == len(text) - 1, f"string {index}: it must hold one zero byte, at its end")
        try:
            strings.append(text[:-1].decode())
        except UnicodeDecodeError:
            raise ArtifactError(f"string {index}: it is not UTF-8") from None
    _check(strings[0] == "", 'string 0 must be ""')
    return strings


class _Reader:
    """Reads the sections; `strings` comes first, because all others refer to it."""

    def __init__(self, sections: dict[str, Section]) -> None:
        self.sections = sections
        self.strings = _strings(sections["STRINGS"])
        self.weights = sections["WEIGHTS"].data
        self._spelled = 0

    def string(self, cursor: Cursor, index: int) -> str:
        cursor.check(index < len(self.strings), f"string {index} of {len(self.strings)}")
        self._spelled += len(self.strings[index])
        cursor.check(
            self._spelled <= MAX_SPELLED, f"its records spell out more than {MAX_SPELLED} characters"
        )
        return self.strings[index]

    def all(self, name: str, read: Callable[[Cursor], T], limit: str | None = None) -> tuple[T, ...]:
        """Read all records of a section with `read`; they must fill it exactly."""
        section = self.sections[name]
        cursor = Cursor(section.data, f"section {name}")
        cursor.check(
            section.count <= len(section.data),
            f"{section.count} records do not fit into {len(section.data)} bytes",
        )
        if limit:
            cursor.limited(section.count, limit)
        records = tuple(read(cursor) for _ in range(section.count))
        cursor.end()
        return records

    def symbol(self, cursor: Cursor) -> Symbol:
        row = cursor.record("symbol")
        low, high, step = row["min"], row["max"], row["multiple_of"]
        cursor.check(low >= INT_MIN and step >= 1, f"min {low} must be > -2^63 and multiple_of {step} >= 1")
        cursor.check(high >= low, f"max {high} is below min {low}")
        return Symbol(
            self.string(cursor, row["name"]),
            low,
            None if high == INT_MAX else high,
            step,
            self.string(cursor, row["why"]),
        )

    def axis(self, cursor: Cursor, is_output: bool = False) -> Axis:
        row, n_symbols = cursor.record("axis"), self.sections["SYMBOLS"].count
        symbol, scale, offset = row["symbol"], row["scale"], row["offset"]
        expression = self.string(cursor, row["expression"])
        if symbol == EXPRESSION and is_output:
            cursor.check(
                expression != "" and scale == offset == 0, "an output's size is told in no text, or twice"
            )
            return Axis(expression=expression)
        cursor.check(not expression, f"an axis of symbol {symbol} has the text {expression!r}")
        if symbol == NO_SYMBOL:
            cursor.check(
                scale == 0 and offset >= 0,
                f"a fixed axis has scale {scale}, size {offset}; it must be 0, >= 0",
            )
            return Axis.const(offset)
        cursor.check(
            0 <= symbol < n_symbols and scale >= 1, f"symbol {symbol} of {n_symbols}, scale {scale} (>= 1)"
        )
        return Axis.of(symbol, scale, offset)

    def input(self, cursor: Cursor) -> tuple[int, Input]:
        row = cursor.record("input")
        name, kind = self.string(cursor, row["name"]), TAG_NAMES.get(row["kind"], "?")
        cursor.check(kind in INPUT_KINDS, f"input {name!r} has kind {row['kind']}")
        rank, dtype, symbol = cursor.limited(row["rank"], "RANK"), row["dtype"], row["symbol"]
        n_symbols = self.sections["SYMBOLS"].count
        is_bound = symbol != NO_SYMBOL
        cursor.check(
            not is_bound or (kind == "int" and 0 <= symbol < n_symbols),
            f"input {name!r} binds symbol {symbol}",
        )
        function, memory = row["function"], row["memory"]
        cursor.check(memory <= (3 if kind == "tensor" else 0), f"input {name!r}: memory is {memory}")
        if kind == "tensor":
            cursor.check(dtype < len(DTYPE_NAMES), f"input {name!r} has dtype {dtype}")
            axes = tuple(self.axis(cursor) for _ in range(rank))
            flags = bool(memory & 1), bool(memory & 2)
            return function, Input(name, kind, DTYPE_NAMES[dtype], axes, None, *flags)
        cursor.check(
            dtype == 0 and rank == 0,
            f"input {name!r}, a {kind}, has dtype {dtype} and rank {rank}; both must be 0",
        )
        return function, Input(name, kind, symbol=symbol if is_bound else None)

    def output(self, cursor: Cursor) -> Output:
        row = cursor.record("output")
        name, dtype, code = self.string(cursor, row["name"]), row["dtype"], row["kind"]
        rank, kind = cursor.limited(row["rank"], "RANK"), TAG_NAMES.get(code)
        cursor.check(kind is not None or code == NO_KIND, f"output {name!r} has kind {code}")
        if kind == "tensor":
            cursor.check(dtype < len(DTYPE_NAMES), f"output {name!r} has dtype {dtype}")
            return Output(name, kind, DTYPE_NAMES[dtype], tuple(self.axis(cursor, True) for _ in range(rank)))
        cursor.check(dtype == 0 and rank == 0, f"output {name!r} is no tensor: dtype {dtype}, rank {rank}")
        return Output(name, kind)

    def constant(self, cursor: Cursor) -> Constant:
        row = cursor.record("constant")
        tag, name, value = TAG_NAMES.get(row["tag"], "?"), self.string(cursor, row["name"]), row["value"]
        cursor.check(tag in CONSTANT_TAGS, f"constant {name!r} has tag {row['tag']}")
        if tag == "tensor":
            cursor.check(value == 0, f"constant {name!r}, a tensor, has value {value}")
            return self.tensor(cursor, name, row)
        zero = row["dtype"] == row["rank"] == row["offset"] == row["size"] == 0
        cursor.check(zero, f"constant {name!r}, a {tag}, has a tensor's fields")
        cursor.check(
            value in {"none": (0,), "bool": (0, 1)}.get(tag, (value,)), f"constant {name!r}: {tag} {value}"
        )
        if tag == "str":
            cursor.check(value >= 0, f"constant {name!r}: string {value}")
            return Constant(self.string(cursor, value), name=name)
        decoded = {"none": None, "bool": bool(value), "int": value}
        return Constant(
            decoded[tag] if tag in decoded else struct.unpack("<d", struct.pack("<q", value))[0], name=name
        )

    def tensor(self, cursor: Cursor, name: str, row: dict[str, Any]) -> Constant:
        cursor.check(row["dtype"] < len(DTYPE_NAMES), f"constant {name!r} has dtype {row['dtype']}")
        dtype, offset, size = DTYPE_NAMES[row["dtype"]], row["offset"], row["size"]
        shape = tuple(cursor.i64() for _ in range(cursor.limited(row["rank"], "RANK")))
        cursor.check(min(shape, default=0) >= 0, f"constant {name!r} has sizes {list(shape)}")
        strides = (
            math.prod(size for size in shape if size) * DTYPES[dtype][1]
        )  # must also fit around a size of 0
        cursor.check(strides <= 1 << 62, f"constant {name!r} has sizes {list(shape)}, over 2^62 bytes")
        wanted = math.prod(shape) * DTYPES[dtype][1]
        cursor.check(size == wanted, f"constant {name!r}: {size} bytes; {dtype}{list(shape)} has {wanted}")
        cursor.check(
            offset % SECTION_ALIGN == 0,
            f"constant {name!r}: offset {offset} is not a multiple of {SECTION_ALIGN}",
        )
        outside = f"constant {name!r}: {offset} + {size} is outside of WEIGHTS, {len(self.weights)} bytes"
        cursor.check(size <= len(self.weights) and offset <= len(self.weights) - size, outside)
        array = np.frombuffer(self.weights[offset : offset + size], NUMPY_DTYPES[dtype]).reshape(shape)
        array.flags.writeable = False
        return Constant(array, dtype, name)

    def functions(self) -> tuple[Function, ...]:
        rows = self.all("FUNCTIONS", lambda cursor: cursor.record("function"))
        code, lines = self.sections["CODE"], self.sections["LINES"]
        _check(
            len(code.data) == 4 * code.count,
            f"section CODE: {len(code.data)} bytes are not {code.count} words",
        )
        words = memoryview(code.data).cast("I") if len(code.data) else memoryview(b"")
        all_lines = iter(self.all("LINES", lambda cursor: self.line(cursor)))
        n_words, n_lines = sum(row["n_words"] for row in rows), sum(row["n_lines"] for row in rows)
        _check(n_words == code.count, f"section CODE: {code.count} words; the functions have {n_words}")
        _check(n_lines == lines.count, f"section LINES: {lines.count} records; the functions have {n_lines}")
        made, at = [], 0
        for row in rows:
            made.append(self.function(row, tuple(words[at : at + row["n_words"]]), all_lines))
            at += row["n_words"]
        names = {function.name for function in made}
        _check(
            len(names) == len(made) >= 1, f"section FUNCTIONS: {len(made)} functions with {len(names)} names"
        )
        return tuple(made)

    def line(self, cursor: Cursor) -> tuple[int, str]:
        row = cursor.record("line")
        return row["pc"], self.string(cursor, row["source"])

    def function(
        self, row: dict[str, Any], code: tuple[int, ...], lines: Iterator[tuple[int, str]]
    ) -> Function:
        _check(
            row["name"] < len(self.strings), f"section FUNCTIONS: string {row['name']} of {len(self.strings)}"
        )
        name = self.strings[row["name"]]
        bound = LIMITS["REGISTERS"][0]
        _check(
            row["n_registers"] <= bound,
            f"function {name!r}: {row['n_registers']} registers; at most {bound} are allowed",
        )
        _check(row["n_params"] <= row["n_registers"], f"function {name!r}: more parameters than registers")
        _check(row["n_words"] >= 1, f"function {name!r} has no code")
        own = tuple(next(lines) for _ in range(row["n_lines"]))
        ascending = all(a[0] < b[0] for a, b in zip(own, own[1:], strict=False))
        _check(ascending, f"function {name!r}: its lines do not ascend")
        return Function(name, row["n_params"], row["n_results"], row["n_registers"], code, own)

    def kernels(self) -> tuple[Kernel, ...]:
        counts: list[int] = []

        def read(cursor: Cursor) -> Kernel:
            row = cursor.record("kernel")
            counts.append(row["n_objects"])
            n_dims = cursor.limited(row["n_dims"], "DIMS")
            label, source, spec = (self.string(cursor, row[field]) for field in ("label", "source", "spec"))
            return Kernel(spec, n_dims, read_buffers(cursor, row["n_buffers"], n_dims), label, source)

        kernels = self.all("KERNELS", read)
        blobs = self.sections["BLOBS"].data
        objects = self.all("OBJECTS", lambda cursor: read_object(cursor, blobs))
        _check(
            sum(counts) == len(objects),
            f"section OBJECTS: {len(objects)} records; the kernels have {sum(counts)}",
        )
        for _, offset in objects:
            _check(
                offset % SECTION_ALIGN == 0,
                f"section BLOBS: code at {offset} is not at a multiple of {SECTION_ALIGN}",
            )
        made, at = [], 0
        for kernel, count in zip(kernels, counts, strict=True):
            own = tuple(o for o, _ in objects[at : at + count])
            at += count
            check_objects(kernel, own)
            made.append(Kernel(kernel.spec, kernel.n_dims, kernel.buffers, kernel.label, kernel.source, own))
        return tuple(made)


def check_objects(kernel: Kernel, objects: tuple[KernelObject, ...]) -> None:
    """Raise ArtifactError for code objects that do not match the kernel, or duplicates."""
    seen = set()
    for o in objects:
        what = f"kernel {kernel.label!r}: a code object for {o.target}"
        _check(o.spec_hash == kernel.spec_hash, f"{what} belongs to another kernel spec")
        _check(
            o.n_dims == kernel.n_dims and o.buffers == kernel.buffers,
            f"{what} has other dims or buffers than the kernel",
        )
        key = (o.target, o.exact_dims, o.ranges)
        _check(key not in seen, f"{what} and dims {format_key(o.key)} is there twice")
        seen.add(key)


def _entry_points(
    functions: tuple[Function, ...], inputs: tuple[tuple[int, Input], ...], outputs: tuple[Output, ...]
) -> list[EntryPoint]:
    """Return the entry points, main first, whose inputs and outputs are consecutive."""
    named = [function for function, _ in inputs]
    _check(named == sorted(named), "section INPUTS: the functions of its inputs do not ascend")
    made, at, indices, bound = [], 0, list(dict.fromkeys([0, *named])), LIMITS["ENTRY_POINTS"][0]
    _check(len(indices) <= bound, f"section INPUTS: {len(indices)} entry points; at most {bound} are allowed")
    for index in indices:
        _check(index < len(functions), f"section INPUTS: function {index} of {len(functions)}")
        end = len(outputs) if index == indices[-1] else at + functions[index].n_results
        own = tuple(row for function, row in inputs if function == index)
        made.append(EntryPoint(index, own, outputs[at:end]))
        at = end
    return made


def check_contract(p: Program) -> None:
    """Raise ArtifactError for a contract that does not match its function, or a symbol that no input
    binds."""
    for entry in p.entry_points:
        _check(entry.function < len(p.functions), f"function {entry.function} of {len(p.functions)}")
        function, n_inputs, n_outputs = p.functions[entry.function], len(entry.inputs), len(entry.outputs)
        n, name = n_inputs + len(p.symbols), repr(function.name) if entry.function else "main"
        made = f"{n_inputs} inputs and {len(p.symbols)} symbols make {n}"
        _check(
            function.n_params == n,
            f"{name} has {function.n_params} parameters; {made}",
        )
        _check(
            function.n_results == n_outputs,
            f"{name} has {function.n_results} results for {n_outputs} outputs",
        )
    inputs = [row for entry in p.entry_points for row in entry.inputs]
    bound = {axis.symbol for i in inputs for axis in i.axes} | {i.symbol for i in inputs}
    for index, symbol in enumerate(p.symbols):
        _check(index in bound, f'symbol "{symbol.name}" is bound by no input')


# Entry points ---------------------------------------------------------------------------------------


def from_bytes(data: bytes | memoryview) -> Program:
    """Return the program in `data`, whose memory its weights use. Raises ArtifactError. The code itself is
    not checked: see verify.
    """
    sections = _sections(memoryview(data))
    _check_chunks(sections)
    reader = _Reader(sections)
    functions = reader.functions()
    inputs = reader.all("INPUTS", reader.input, "INPUTS")
    main, *others = _entry_points(functions, inputs, reader.all("OUTPUTS", reader.output, "INPUTS"))
    needs = any(function or row.memory for function, row in inputs)
    version = BY_NAME["header"].unpack(data)["format_version"]
    _check(
        version == FORMAT_VERSIONS[needs],
        f"artifact: format version {version}; its inputs are not of that one",
    )
    program = Program(
        functions=functions,
        constants=reader.all("CONSTANTS", reader.constant),
        kernels=reader.kernels(),
        strings=tuple(reader.strings),
        symbols=reader.all("SYMBOLS", reader.symbol, "SYMBOLS"),
        inputs=main.inputs,
        outputs=main.outputs,
        meta=read_meta(sections["META"].data),
        others=tuple(others),
    )
    check_contract(program)
    return program


def read(path: str | os.PathLike[str]) -> Program:
    """Return the program in a file. Files up to COPY_BYTES are read whole; the weights of a larger one are
    mapped, so it must not be truncated while they are used. Raises ArtifactError, OSError.
    """
    with open(path, "rb", buffering=0) as file:
        size = _checked_size(file.fileno(), path)
        if size > COPY_BYTES:
            return from_bytes(np.memmap(file, np.uint8, "r").data)
        memory = np.empty(size + PAGE, np.uint8)
        start = -memory.ctypes.data % PAGE
        data = memory[start : start + size]
        if file.readinto(data.data) != size:
            raise ArtifactError(f"artifact: {os.fspath(path)} was changed while it was read")
    data.flags.writeable = False
    return from_bytes(data.data)


def read_constants(path: str | os.PathLike[str], name: str) -> tuple[Constant, ...]:
    """Return copies of the tensors of that name in a file. Nothing else is read of its weights. The file must
    not be truncated meanwhile. Raises ArtifactError, OSError.
    """
    with open(path, "rb", buffering=0) as file:
        _checked_size(file.fileno(), path)
        sections = _sections(np.memmap(file, np.uint8, "r").data)
    found = []
    reader = _Reader(sections)
    for constant in reader.all("CONSTANTS", reader.constant):
        if constant.name == name and isinstance(constant.value, np.ndarray):
            _check_chunks_of(sections, constant.value)
            found.append(replace(constant, value=constant.value.copy()))
    return tuple(found)


def _check_chunks_of(sections: dict[str, Section], array: np.ndarray[Any, Any]) -> None:
    """Check the chunks of WEIGHTS that hold an array's bytes."""
    weights, record = sections["WEIGHTS"].data, BY_NAME["chunk"].size
    offset = array.ctypes.data - np.frombuffer(weights, np.uint8).ctypes.data
    first, end = offset // CHUNK, -(-(offset + array.nbytes) // CHUNK)
    at = record * (-(-len(sections["BLOBS"].data) // CHUNK) + first)
    rows = b"".join(hash_rows([weights[first * CHUNK : end * CHUNK]]))
    _check(
        sections["CHUNKS"].data[at : at + len(rows)] == rows,
        f"section WEIGHTS: hashes {first} .. {end} of CHUNKS differ: its bytes were changed",
    )


def _checked_size(file: int, path: str | os.PathLike[str]) -> int:
    """Return the size of an artifact that is open, as its header says it, too."""
    size = os.fstat(file).st_size
    if size == 0:
        raise ArtifactError(f"artifact: {os.fspath(path)} is empty")
    _check_size(_header(memoryview(os.pread(file, PAGE, 0))), size)
    return size
