"""THE layout of an artifact's bytes: one `Record` per structure, one row per field.

Everything else is derived from it: the reader and writer of vm/artifact.py, the C structures in
runtime_c/include/isa.gen.h, and the tables of docs/artifact.md. All numbers are little-endian; every field is aligned to
its own size, so the C structures have no padding.
"""

# ruff: noqa: E501 (rows of tables)

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

MAGIC: Final = b"\x89SVM\r\n\x1a\n"
FORMAT_VERSION: Final = 5
#: The versions that this build reads. A program with one entry point that writes no input is written in the
#: first version, which older builds also read.
FORMAT_VERSIONS: Final = (4, FORMAT_VERSION)
SECTION_ALIGN: Final = 64  # offsets of sections, of constants in WEIGHTS and of code in BLOBS
PAGE: Final = 4096  # offsets of the sections BLOBS and WEIGHTS
BIG_CONSTANT: Final = 65536  # bytes from which the writer page-aligns a constant
CHUNK: Final = 1 << 20  # bytes of BLOBS and WEIGHTS per hash in CHUNKS
CHUNKED_ALIGN: Final = 256  # BLOBS and WEIGHTS are padded with zeros to a multiple of it
CHUNKED: Final = ("BLOBS", "WEIGHTS")  # sections whose hashes CHUNKS holds, in that order
NO_SYMBOL: Final = -1
EXPRESSION: Final = -2  # instead of a symbol: an output's size that is described by text only
NO_KIND: Final = -1
NO_MAX: Final = -1  # of a bucket's range
#: The bounds of an unbounded int input: int64 without its least number, which no input has.
INT_MIN: Final = -(2**63) + 1
INT_MAX: Final = 2**63 - 1

#: Limits that the loader enforces, so that hostile files cost little.
LIMITS: Final[dict[str, tuple[int, str]]] = {
    "RANK": (16, "axes of a tensor"),
    "DIMS": (32, "dims of a kernel"),
    "BUFFERS": (64, "buffers of a kernel"),
    "REGISTERS": (1 << 20, "registers of a function"),
    "SYMBOLS": (1024, "symbols of a contract"),
    "INPUTS": (65536, "inputs, and outputs, of a program"),
    "ENTRY_POINTS": (1024, "entry points of a program"),
    "LINES": (1 << 16, "lines of an image that a result moves on by, or needs"),
    "TERMS": (64, "tiles, scratch terms, cost terms, bounds of a code object, each"),
}

#: section -> (id, whether the section table holds its SHA-256, content).
SECTIONS: Final[dict[str, tuple[int, bool, str]]] = {
    "STRINGS": (1, True, "`count` + 1 u32 offsets, then the bytes; see Strings"),
    "SYMBOLS": (2, True, "`count` records `symbol`"),
    "INPUTS": (3, True, "`count` records `input`, each followed by `rank` records `axis`; see Entry points"),
    "OUTPUTS": (4, True, "`count` records `output`, each followed by `rank` records `axis`; see Entry points"),
    "CONSTANTS": (5, True, "`count` records `constant`, each followed by `rank` i64 sizes"),
    "FUNCTIONS": (6, True, "`count` records `function`; function 0 is main"),
    "CODE": (7, True, "`count` u32 words: the functions' instructions, in order, without gaps"),
    "KERNELS": (8, True, "`count` records `kernel`, each followed by its buffers"),
    "OBJECTS": (9, True, "`count` code objects, each a record `object` and what follows it"),
    "BLOBS": (10, False, "machine code; CHUNKS holds its hashes. `count` is 0"),
    "LINES": (11, True, "`count` records `line`"),
    "META": (12, True, "JSON for hosts, as `vm/meta.py` says: other keys, kinds and lengths are refused; C never parses it. `count` is 0"),
    "CHUNKS": (13, True, "`count` records `chunk`: the chunks of BLOBS, then those of WEIGHTS"),
    "WEIGHTS": (14, False, "tensor constants; CHUNKS holds its hashes. `count` is 0"),
}  # fmt: skip

_CODES: Final = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "char": "s"}
_C_TYPES: Final = {
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "i32": "int32_t", "u64": "uint64_t", "i64": "int64_t", "char": "char",
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """One field: `type` is u32, i32, u64, i64, or u8[n] / char[n] (bytes)."""

    name: str
    type: str
    doc: str

    @property
    def length(self) -> int | None:
        """Number of bytes of an array field, None for a number."""
        return int(self.type.partition("[")[2][:-1]) if "[" in self.type else None

    @property
    def code(self) -> str:
        """The field in `struct`'s notation."""
        return _CODES[self.type] if self.length is None else f"{self.length}s"

    @property
    def c_declaration(self) -> str:
        """The field as a member of a C structure."""
        base = _C_TYPES[self.type.partition("[")[0]]
        return f"{base} {self.name}" if self.length is None else f"{base} {self.name}[{self.length}]"


@dataclass(frozen=True)
class Record:
    """One structure of the file."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    #: The structure for Python's `struct`.
    struct: Struct = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "struct", Struct("<" + "".join(each.code for each in self.fields)))

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.struct.size

    def pack(self, **values: Any) -> bytes:
        """Return the bytes; fields that are not given are zero. Raises struct.error for a value that does not fit."""
        unknown = set(values) - {field.name for field in self.fields}
        assert not unknown, f"{self.name} has no field {unknown}"
        given = (values.get(field.name, 0 if field.length is None else b"") for field in self.fields)
        return self.struct.pack(*given)

    def unpack(self, data: bytes | memoryview, offset: int = 0) -> dict[str, Any]:
        """Return the fields by name. Raises struct.error beyond the data's end."""
        names = (field.name for field in self.fields)
        return dict(zip(names, self.struct.unpack_from(data, offset), strict=True))


def _record(name: str, doc: str, *rows: str) -> Record:
    """Rows are "type name: meaning"."""
    fields = []
    for row in rows:
        declaration, _, text = row.partition(":")
        type_, field_name = declaration.split()
        fields.append(Field(field_name, type_, text.strip()))
    return Record(name, doc, tuple(fields))


RECORDS: Final[tuple[Record, ...]] = (
    _record(
        "header", "The file's first bytes.",
        "u8[8] magic: 89 53 56 4D 0D 0A 1A 0A",
        "u32 format_version: 5 where an input has a `function` or `memory`, else 4",
        "u32 n_sections: 14: every section is there exactly once, in the order of the ids",
        "u64 isa_hash: of the instruction set that the program was written for (`SVM_ISA_HASH`)",
        "u64 file_size: bytes of the whole file",
        "u8[32] table_sha256: of the section table",
    ),
    _record(
        "section", "One row of the section table, which follows the header.",
        "u32 id: see Sections",
        "u32 reserved: 0",
        "u64 offset: from the file's start; a multiple of 64, of 4096 for BLOBS and WEIGHTS",
        "u64 size: bytes; may be 0",
        "u64 count: number of records",
        "u8[32] sha256: of the section's bytes; zeros for BLOBS and WEIGHTS",
    ),
    _record(
        "symbol", "A size, or an int input, that the caller chooses. An axis binds a value >= 0 only.",
        "u32 name: string",
        "u32 why: string: the model's line that wants the bounds, \"\" if unknown",
        "i64 min: smallest value, > -2^63; -2^63 + 1: not bounded",
        "i64 max: greatest value, >= min; 2^63 - 1: not bounded",
        "i64 multiple_of: the value must be a multiple of it, >= 1",
    ),
    _record(
        "input", "A parameter of an entry point. Followed by `rank` axes.",
        "u32 name: string",
        "u32 kind: tag of a tensor, int, float, bool, str or list",
        "u32 dtype: of a tensor, else 0",
        "u32 rank: of a tensor, else 0",
        "i32 symbol: that an int binds (its value is the symbol's), else -1",
        "u16 function: index of the entry point whose parameter it is; ascending, 0: main",
        "u16 memory: of a tensor, 1: calls write to it, in the caller's memory; 2: calls read it as it lies, which must be row by row; 3: both; else 0",
    ),
    _record(
        "axis", "What the size of one axis of an input must be, or of an output is.",
        "i32 symbol: size == scale * value(symbol) + offset; -1: size == offset; -2, of an output: any other size",
        "u32 expression: string: if `symbol` is -2, the size for people, such as `floordiv(n,2)`, not \"\"; else \"\"",
        "i64 scale: >= 1 with a symbol, else 0",
        "i64 offset: >= 0 without a symbol; 0 if that is -2",
    ),
    _record(
        "output", "A result of an entry point, as the compiler declares it. Followed by `rank` axes.",
        "u32 name: string",
        "i32 kind: tag; -1: not declared",
        "u32 dtype: of a tensor, else 0",
        "u32 rank: of a tensor, else 0",
    ),
    _record(
        "constant", "A constant. Followed by `rank` i64 sizes, each >= 0.",
        "u32 tag: none, bool, int, float, str or tensor",
        "u32 dtype: of a tensor, else 0",
        "u32 rank: of a tensor, else 0",
        "u32 name: string, for people",
        "i64 value: bool 0 or 1, int, float as its IEEE bits, str as its string index, else 0",
        "u64 offset: of a tensor's data in WEIGHTS, a multiple of 64, else 0",
        "u64 size: bytes of a tensor's data == product(sizes) * bytes per element, else 0",
    ),
    _record(
        "function", "A function. Its words are the next `n_words` of CODE, its lines the next `n_lines` of LINES.",
        "u32 name: string, unique among the functions",
        "u32 n_registers: registers; r0 .. r(n_params - 1) hold the arguments on entry, the others none",
        "u32 n_params: <= n_registers; an entry point: number of its inputs + number of symbols",
        "u32 n_results: of every `return`; an entry point: number of its outputs",
        "u32 n_words: >= 1",
        "u32 n_lines: may be 0",
    ),
    _record(
        "line", "The source of the instructions from `pc` on, up to the function's next row.",
        "u32 pc: word offset in the function, start of an instruction; ascending",
        "u32 source: string, such as \"model.py:31\"",
    ),
    _record(
        "kernel", "An entry of the kernel table. Followed by `n_buffers` buffers.",
        "u32 label: string, for people",
        "u32 source: string, the model's line, \"\" if unknown",
        "u32 spec: string: the canonical JSON of the kernel spec",
        "u32 n_dims: sizes that a launch passes",
        "u32 n_buffers: tensors that a launch passes",
        "u32 n_objects: its code objects are the next `n_objects` of OBJECTS; may be 0",
    ),
    _record(
        "buffer", "A tensor that a kernel reads or writes. Followed by `rank` records `size`.",
        "u32 dtype: code",
        "u32 is_output: 1: the kernel writes all of it; 0: it only reads",
        "u32 rank: may be 0",
        "u32 reserved: 0",
    ),
    _record(
        "size", "A number in a kernel's metadata.",
        "u32 is_dim: 0: the number is `value`; 1: it is dims[value] of the launch",
        "u32 reserved: 0",
        "i64 value: a size is >= 0 (a bound's offset may be negative)",
    ),
    _record(
        "chunk", "XXH3-128 with seed 0 of 1 MiB of a section, or of what is left at its end.",
        "u64 low: the hash's lower half",
        "u64 high: the hash's upper half",
    ),
    _record(
        "object", "A code object: machine code of one kernel, with all that must be known to call it safely.",
        "u8[32] sha256: of the record from `spec_hash` to its end, followed by the code",
        "u64 code_offset: of the code in BLOBS, a multiple of 64; in a record by itself: 0",
        "u32 record_size: bytes of this structure and all that follows it, code excluded",
        "u32 n_lines: rows `lines`, at most one for each buffer",
        "u8[32] spec_hash: SHA-256 of the kernel's spec string",
        "char[16] target: a row of jit/llvm/target.py, such as x86-64-v3; zero-padded",
        "char[64] schedule: UTF-8, for people; zero-padded, at least one zero",
        "u64 code_size: bytes, >= 1",
        "u64 entry: offset of the entry point in the code, < code_size",
        "u32 guard: 0: for any dims (generic); 1: for given dims only (exact); 2: for ranges of dims (a bucket)",
        "u32 n_dims: the kernel's",
        "u32 n_buffers: the kernel's",
        "u32 n_tiles: rows `tile`: number of tiles == product of ceil(size / divisor); no row: 1 tile",
        "u32 n_scratch: terms: scratch bytes per thread == sum of factor * product(sizes)",
        "u32 n_cost: terms: flops or bytes per tile, same form",
        "u32 n_bounds: rows `bound`",
        "u32 alignment: of the code in memory: a power of two from 64 to 4096, a page where code reaches its data by page",
    ),
    _record(
        "range", "The values of a dim that a bucket is for: min <= value <= max, a multiple of `multiple_of`.",
        "i64 min: >= 0",
        "i64 max: >= min, -1: unbounded",
        "i64 multiple_of: >= 1",
    ),
    _record(
        "tile", "A factor of the number of tiles.",
        "u32 is_dim: as in `size`",
        "u32 reserved: 0",
        "i64 value: as in `size`",
        "i64 divisor: >= 1",
    ),
    _record(
        "lines", "A buffer of images, one behind the other, of which a tile reads or writes some lines only.",
        "u32 buffer: the kernel's, in no other row",
        "u32 tile: the row `tile` that counts lines of results, the same in all rows; rows before it count images, rows behind it parts of the same lines",
        "u32 is_dim: as in `size`, of the lines of an image",
        "u32 reserved: 0",
        "i64 value: as in `size`",
        "i64 stride: from 1 to 2^16: line y of an image's results takes the buffer's lines from y * stride - low on",
        "i64 low: from -2^16 to 2^16",
        "i64 reach: from 1 to 2^16: how many lines, of those that exist. Of an output stride and reach are 1, low 0",
    ),
    _record(
        "term", "factor * product(sizes). Followed by `n_sizes` records `size`.",
        "i64 factor: >= 0",
        "u32 n_sizes: at most 64",
        "u32 reserved: 0",
    ),
)  # fmt: skip

BY_NAME: Final[dict[str, Record]] = {record.name: record for record in RECORDS}

PROSE: Final = """\
# The artifact

An artifact (`.svm`) is one file that contains a compiled program: its contract, bytecode, kernel specs, machine code and
weights. This page is for people who read or write the format. It is generated from `vm/layout.py` (`make regen`).
`vm/artifact.py` reads and writes the format, and `runtime_c/program/load.c` loads it. `docs/opcodes.md` has the
instructions.

## The file

| from byte | content |
| --- | --- |
| 0 | the record `header` |
| 64 | the section table: a record `section` for each section |
| the table's end | the sections, in the order of their ids, none overlapping |

- All numbers are little-endian. Every field is aligned to its own size, and every record's size is a multiple of 4 (of
  8 if it has 8-byte fields or precedes records that have some). So the C structures in `runtime_c/include/isa.gen.h`
  are the bytes.
- "string" is an index into STRINGS. Reserved fields are zero, and readers check that.
- Gaps between sections are zeros. A section of records is exactly as long as its records. WEIGHTS ends at `file_size`.
- Before the first instruction, a reader checks in this order: the header, the hash of the section table, the ranges of
  the sections, the gaps, the hashes of the sections, every record, the code. All arithmetic is checked in 64 bits.

## Hashes

Every byte is hashed or has only one valid value. The header's fields are compared with their required values. The header
has the SHA-256 of the section table, and the table has the SHA-256 of every section except BLOBS and WEIGHTS. The sizes
of those two are multiples of 256, and CHUNKS has an XXH3-128 hash of each 1 MiB of them, which is as fast as memory. It
detects accidents and does not protect against an attacker (`SECURITY.md`). The hashes of WEIGHTS are checked when the
file is loaded or, for large files, in the background (`svm_options.verify`).

## Strings

STRINGS starts with `count` + 1 u32 offsets, relative to the first byte after them. offsets[0] is 0, the offsets ascend
strictly, and the last one is the number of bytes. String i is the bytes from offsets[i] up to offsets[i + 1]. Its last
byte is a zero that is not part of the string; there are no other zero bytes. Strings are valid UTF-8. String 0 is "".

## Entry points

The host calls entry points, whose inputs are checked. Entry points are main, which is function 0, and every other
function named by an input. INPUTS has main's inputs first, then those of each other entry point, in the order of the
functions. OUTPUTS has their results in the same order. They share SYMBOLS. The parameters of an entry point are its
inputs, then the values of all symbols; a symbol that none of its inputs binds is 0. Every symbol occurs in an input of
some entry point. A written input must be a contiguous, aligned tensor, because the program changes it in place.

## Code objects

An object is a record `object`, followed by, in this order:

1. if `guard` is 1: `n_dims` i64, the exact dims, each >= 0; if it is 2: `n_dims` records `range`
2. `n_buffers` buffers (`buffer` and its sizes), equal to the kernel's byte for byte
3. `n_tiles` records `tile`
4. `n_scratch` terms (`term` and its sizes)
5. `n_cost` terms
6. `n_bounds` bounds, 56 bytes each: `size` loop, i64 scale, `size` offset, `size` axis: demands
   0 <= scale * i + offset < axis at i = 0 and i = loop - 1 if loop > 0
7. `n_lines` records `lines`

`record_size` ends there. Objects follow each other in OBJECTS without gaps. Their code is in BLOBS at `code_offset`;
objects with equal code may share it. `svm_install_code` takes a single object: the record with `code_offset` 0, then the
code's bytes.

A kernel has at most one generic object per target, one exact object per target and dims, and one bucket per target and
ranges; buckets may overlap. A launch uses the exact object of its dims, else the first bucket in the file that contains
its dims, else the generic object. All give equal bits. Machine code must run at any address that is a multiple of
`alignment`. It is entered at `entry` with the ABI of `jit/llvm/abi.py`.

## Rules of the verifier

Bytecode is accepted if it keeps all of these rules. Both verifiers (`vm/verify.py`, `runtime_c/program/verify.c`) check
them in this order, instruction by instruction, and report the first violation. The letters are the kinds of operands in
`docs/opcodes.md`. Tags of values are checked at run time.

1. the opcode exists
2. all operands lie inside the function
3. `d`, `s`, `D`, `S`: every register < n_registers
4. `D`: no register twice
5. `t`: a dtype code; `c`: < number of constants; `k`: < number of kernels; `f`: < number of functions; `n`: < number of
   strings; `x`: < number of functions of strings
6. `return`: as many values as the function has results
7. `call`: as many args as the function has parameters, as many results as it has results
8. `kernel`: as many dims and buffers as the kernel has
9. `alloc`, `view`, `expect`: at most 16 sizes; `dim`: 0 <= axis < 16
10. `dict`: an even number of items
11. `call_dps`: no output twice, none that is an argument
12. `text`: as many args as the function takes
13. (after all instructions) every label is the start of an instruction of the same function
14. the last instruction has the flag `ends`
15. every line's pc is the start of an instruction

An instruction reads all its sources before it writes its destinations. A function is *static-flow* if neither it nor any
function that it calls, directly or indirectly, has an instruction with the flag `data`.

## Messages of the contract

Before anything runs, both interpreters check the inputs in order, and the axes of each in order. They report the first
violation. An axis is written as `length`, `2*length`, `2*length+1`, `length-1` or `384`. `WHY` is the symbol's `why` in
brackets, such as ` (model.py:31)`, or empty if that is "".

| code | message |
| --- | --- |
| argument | `the program takes 2 inputs (input_ids, mask), 3 given` |
| kind | `input "x" is a float; the program takes a tensor` |
| dtype | `input "x" is f64; the program takes f32: convert it first` |
| shape | `input "x" has rank 3, sizes [1, 2, 3]; the program takes rank 2: [batch, 384]` |
| shape | `input "x": axis 1 has size 385; it must be 384` |
| shape | `input "x": axis 1 has size 7; it must be 2*length+1 with a whole length >= 0` |
| shape | `input "x": axis 1 has size 600, so length is 600; it must be at most 512 (model.py:31)` |
| shape | `input "x": axis 1 has size 0, so length is 0; it must be at least 1WHY` |
| shape | `input "x": axis 1 has size 9, so length is 9; it must be a multiple of 8WHY` |
| shape | `input "x": axis 1 has size 9, so length is 9; but input "y": axis 0 has size 8, so length is 8WHY` |
| shape | `input "n" is 600, so length is 600; it must be at most 512WHY` (an int that binds; likewise the others) |
| shape | `symbol "length" is bound by no input` (cannot happen in a verified artifact: the loader demands that every symbol occurs) |
"""
