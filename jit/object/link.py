"""The linker: a function of an ELF object -> one position-independent blob without relocations.

An object of LLVM's `emit_object` holds the code, `.rodata*` and a few relocation kinds. The blob is the
function's section followed by the read-only data that it reaches; it runs at any multiple of its alignment.
The ELF structures are read with `struct`: pyelftools takes 0.6 ms for a small kernel's object, `struct` 0.02
ms (tests/jit/object/test_link.py compares the two). References: System V ABI gABI
chapters 4-5; psABI x86-64 4.4; ELF for the Arm 64-bit Architecture (AAELF64) 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, pack_into
from types import MappingProxyType
from typing import NamedTuple

from ..llvm.constant_pool import NUMBER, POOL

SHF_WRITE, SHF_ALLOC, SHF_MERGE = 1, 2, 16
SHT_PROGBITS, SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 1, 2, 4, 8
SHN_UNDEF, STT_SECTION = 0, 3
EM_X86_64, EM_AARCH64 = 62, 183
VECTORS, VECTOR_BYTES = ".rodata", 64  # where x86-64 keeps constants of 64 bytes, of which ELF has no section
ALIGNMENT, PAGE = 64, 4096  # bytes; code that reaches its data by page (ADRP) moves by pages only

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELA = Struct("<QQq")
_I32 = Struct("<i")
_U32 = Struct("<I")


class LinkError(ValueError):
    """An object that cannot become a blob: an undefined symbol, an unknown relocation, writable data."""


class NumberError(LinkError):
    """An instruction that cannot hold a number of the constant pool: it must be loaded."""


@dataclass(frozen=True)
class Section:
    """One ELF section. `entry`: bytes of a constant where it holds constants of one size (SHF_MERGE), else 0;
    `body`: its part of the file, empty for none."""

    name: str
    type: int
    flags: int
    link: int
    info: int
    align: int
    entry: int
    body: memoryview


@dataclass(frozen=True)
class Symbol:
    """One ELF symbol: `value` is an offset in section `section`; `is_section`: it denotes the whole
    section."""

    name: str
    section: int
    value: int
    is_section: bool


@dataclass(frozen=True)
class Blob:
    """Linked code: `code[entry]` is the kernel's first instruction; it runs at any multiple of `alignment`.
    `pool`: the offset of its constant pool (see `jit.llvm.constant_pool`), still zeros; 0 for none.
    `numbers`: (offset, index in the pool, addend) of those that its instructions hold, as i32."""

    code: bytes
    entry: int
    alignment: int = ALIGNMENT
    pool: int = 0
    numbers: tuple[tuple[int, int, int], ...] = ()

    def with_pool(self, values: Sequence[int]) -> bytes:
        """Return the code with its constant pool filled in: i64 each, and its numbers.

        Raises NumberError for a number that does not fit.
        """
        filled = bytearray(self.code)
        if self.pool:
            pack_into(f"<{len(values)}q", filled, self.pool, *values)
        for place, which, addend in self.numbers:
            value = values[which] + addend
            if not 0 <= value < 1 << 31:
                raise NumberError(f"{value} does not fit into an instruction that takes 31 bits")
            _U32.pack_into(filled, place, value)
        return bytes(filled)


def _text(table: memoryview | bytes, start: int) -> str:
    table = bytes(table[start : start + 256])
    return table[: table.index(0)].decode()


def read_sections(elf: bytes) -> tuple[int, list[Section]]:
    """Return the machine and the sections of a little-endian ELF64 object. Raises LinkError if it is none."""
    if len(elf) < _HEADER.size or elf[:6] != b"\x7fELF\x02\x01":
        raise LinkError("the compiler's output is not a little-endian ELF64 object")
    header = _HEADER.unpack_from(elf)
    machine, place, size, count, names_index = header[2], header[6], header[11], header[12], header[13]
    rows = [_SECTION.unpack_from(elf, place + i * size) for i in range(count)]
    view = memoryview(elf)
    names = view[rows[names_index][4] :]
    return machine, [
        Section(
            _text(names, name),
            type,
            flags,
            link,
            info,
            align,
            entry if flags & SHF_MERGE else 0,
            view[start : start + (0 if type == SHT_NOBITS else n)],
        )
        for name, type, flags, _, start, n, link, info, align, entry in rows
    ]


def read_symbols(sections: list[Section]) -> list[Symbol]:
    """Return the object's symbols in table order (section symbols take their section's name)."""
    for table in sections:
        if table.type == SHT_SYMTAB:
            names = sections[table.link].body
            symbols = []
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(table.body):
                of_section = info & 15 == STT_SECTION
                symbols.append(
                    Symbol(
                        sections[section].name if of_section else _text(names, name),
                        section,
                        value,
                        of_section,
                    )
                )
            return symbols
    return []


# Relocations: (blob, place in the blob P, address S + A) -> None -------------------------------------


def _pc32(blob: bytearray, place: int, target: int) -> None:
    """R_X86_64_PC32 and PLT32: the signed 32-bit distance."""
    _I32.pack_into(blob, place, target - place)


def _adr_page(blob: bytearray, place: int, target: int) -> None:
    """R_AARCH64_ADR_PREL_PG_HI21: ADRP, the distance in pages: right where the blob starts at a page."""
    pages = (target >> 12) - (place >> 12)
    word = _U32.unpack_from(blob, place)[0] & 0x9F00001F
    _U32.pack_into(blob, place, word | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _lo12(shift: int) -> Callable[[bytearray, int, int], None]:
    """R_AARCH64_ADD_ABS_LO12_NC, LDSTn_ABS_LO12_NC: the offset in its page, in units of 1 << shift."""

    def apply(blob: bytearray, place: int, target: int) -> None:
        word = _U32.unpack_from(blob, place)[0] & ~(0xFFF << 10)
        _U32.pack_into(blob, place, word | (target & 0xFFF) >> shift << 10)

    return apply


def _branch26(blob: bytearray, place: int, target: int) -> None:
    """R_AARCH64_CALL26 and JUMP26: the distance in instructions."""
    word = _U32.unpack_from(blob, place)[0] & 0xFC000000
    _U32.pack_into(blob, place, word | (target - place >> 2 & 0x3FFFFFF))


RELOCATIONS: dict[tuple[int, int], Callable[[bytearray, int, int], None]] = {
    (EM_X86_64, 2): _pc32,
    (EM_X86_64, 4): _pc32,
    (EM_AARCH64, 261): _pc32,
    (EM_AARCH64, 275): _adr_page,
    (EM_AARCH64, 277): _lo12(0),
    (EM_AARCH64, 278): _lo12(0),
    (EM_AARCH64, 282): _branch26,
    (EM_AARCH64, 283): _branch26,
    (EM_AARCH64, 284): _lo12(1),
    (EM_AARCH64, 285): _lo12(2),
    (EM_AARCH64, 286): _lo12(3),
    (EM_AARCH64, 299): _lo12(4),
}


#: Relocations of 32 bits that take a symbol's value itself.
NUMBERS = ((EM_X86_64, 10), (EM_X86_64, 11))


# Linking ----------------------------------------------------------------------------------------------


class _Relocation(NamedTuple):
    """Where in its section, to which symbol (a number of the symbol table) plus what, by which rule."""

    offset: int
    symbol: int
    addend: int
    kind: int


class Object:
    """One ELF object of LLVM, of one or several functions, each in a separate section.

    Raises LinkError for bytes that are not an ELF64 object, and for one with writable data.
    """

    def __init__(self, elf: bytes) -> None:
        self.machine, self.sections = read_sections(elf)
        self.symbols = read_symbols(self.sections)
        self.relocations: dict[int, list[_Relocation]] = {}
        for section in self.sections:
            _check_writable(section)
            if section.type == SHT_RELA:
                rows = _RELA.iter_unpack(section.body)
                found = [_Relocation(at, info >> 32, plus, info & 0xFFFFFFFF) for at, info, plus in rows]
                self.relocations[section.info] = found

    def link(self, entry: str, parts: Mapping[str, Blob] = MappingProxyType({}), n_pooled: int = 0) -> Blob:
        """Return the blob of the function `entry` and of the constants that it reaches, whatever else the
        object holds. `parts`: linked code of the functions that it calls. `n_pooled`: of its constant pool.

        Raises LinkError naming the symbol, section or relocation that stands against it.
        """
        for symbol in self.symbols:
            if symbol.name == entry and symbol.section != SHN_UNDEF:
                return _Layout(self, symbol, parts, n_pooled).blob()
        raise LinkError(f"the object defines no symbol {entry!r}")

    def piece(self, symbol: Symbol, addend: int) -> range:
        """Return the bytes of its section that a relocation reaches: a constant, or the whole section."""
        section = self.sections[symbol.section]
        n = len(section.body)
        if section.entry and not (symbol.is_section and self.machine == EM_X86_64):
            first = (symbol.value + (addend if symbol.is_section else 0)) // section.entry * section.entry
            return range(first, first + section.entry)
        if self.machine != EM_X86_64 or section.name != VECTORS or n % VECTOR_BYTES:
            return range(n)
        # The offset is the constant's minus 4, minus the bytes of an immediate operand after it: 0, 1 or 4.
        # The section may hold shorter constants too, so the constant may begin at any of these.
        place = symbol.value + addend + 4
        first, last = (max(at, 0) // VECTOR_BYTES * VECTOR_BYTES for at in (place, place + 4))
        return range(first, min(last + VECTOR_BYTES, n))


_POOL_KEY = SHN_UNDEF, 0, 0  # the key of the constant pool among a blob's pieces


class _Layout:
    """A blob as it grows: the code of `start`, the constants in the order in which they are first used (the
    constant pool is one of them), the parts."""

    def __init__(self, object: Object, start: Symbol, parts: Mapping[str, Blob], n_pooled: int) -> None:
        self.object, self.start, self.parts, self.n_pooled = object, start, parts, n_pooled
        self.bytes = bytearray()
        self.alignment = ALIGNMENT  # the greatest of those of all that the blob holds
        self.places: dict[tuple[int, int, int], int] = {}  # of pieces: (section, first byte, end)
        self.waiting: list[tuple[int, _Relocation]] = []  # the place of a relocation's piece in the blob
        self._place(start.section, range(len(object.sections[start.section].body)))

    def blob(self) -> Blob:
        """Return the finished blob."""
        applied, numbers = [], []
        for place, relocation in self.waiting:  # grows while pieces are found
            if (which := self._number(relocation)) is not None:
                numbers.append((place, which, relocation.addend))
                continue
            applied.append((place, relocation, self._target(relocation)))
        entries = self._append_parts()
        for place, relocation, target in applied:
            symbol = self.object.symbols[relocation.symbol]
            to = entries[symbol.name] if target is None else target
            rule = self._rule(relocation)
            rule(self.bytes, place, to + relocation.addend)
            if rule is _adr_page:
                self.alignment = PAGE
        pool = self.places.get(_POOL_KEY, 0)
        return Blob(bytes(self.bytes), self.start.value, self.alignment, pool, tuple(numbers))

    def _number(self, relocation: _Relocation) -> int | None:
        """Return which number of the pool an instruction holds, None for what holds no number."""
        symbol = self.object.symbols[relocation.symbol]
        if symbol.section != SHN_UNDEF or not symbol.name.startswith(NUMBER):
            return None
        which = int(symbol.name.removeprefix(NUMBER))
        if which >= self.n_pooled:
            return None
        if (self.object.machine, relocation.kind) not in NUMBERS:  # LLVM may add to it as to an address
            raise NumberError(f"an instruction takes {symbol.name!r} from its own address on")
        return which

    def _align(self, alignment: int) -> None:
        """Append zeros up to a multiple of `alignment`, a power of two."""
        if alignment > PAGE:
            raise LinkError(f"a kernel's data is to lie at multiples of {alignment} bytes, {PAGE} at most")
        self.alignment = max(self.alignment, alignment)
        self.bytes += bytes(-len(self.bytes) % alignment)

    def _place(self, section: int, piece: range) -> int:
        """Append a piece of a section, if it is new; return its place."""
        key = section, piece.start, piece.stop
        if key not in self.places:
            of = self.object.sections[section]
            self._align(max(of.entry or of.align, 1))
            self.places[key] = len(self.bytes)
            self.bytes += of.body[piece.start : piece.stop]
            for relocation in self.object.relocations.get(section, ()):
                if relocation.offset in piece:
                    self.waiting.append((self.places[key] + relocation.offset - piece.start, relocation))
        return self.places[key]

    def _place_pool(self) -> int:
        """Append the constant pool, if it is not there yet; return its place."""
        if _POOL_KEY not in self.places:
            self._align(8)
            self.places[_POOL_KEY] = len(self.bytes)
            self.bytes += bytes(8 * self.n_pooled)
        return self.places[_POOL_KEY]

    def _target(self, relocation: _Relocation) -> int | None:
        """Return the place of a relocation's symbol in the blob, None for that of a part."""
        symbol = self.object.symbols[relocation.symbol]
        if symbol.name in self.parts:
            return None
        if symbol.name == POOL and self.n_pooled:
            return self._place_pool()
        if symbol.section == SHN_UNDEF or not _is_loaded(self.object.sections[symbol.section]):
            raise LinkError(f"kernel calls {symbol.name!r}, which no blob contains; emit its code inline")
        piece = self.object.piece(symbol, relocation.addend)
        return self._place(symbol.section, piece) + symbol.value - piece.start

    def _append_parts(self) -> dict[str, int]:
        """Append the parts; return the place of each one's entry by name."""
        entries = {}
        for name, part in self.parts.items():
            self._align(part.alignment)
            entries[name] = len(self.bytes) + part.entry
            self.bytes += part.code
        return entries

    def _rule(self, relocation: _Relocation) -> Callable[[bytearray, int, int], None]:
        rule = RELOCATIONS.get((self.object.machine, relocation.kind))
        if rule is None:
            raise LinkError(
                f"relocation {relocation.kind} of machine {self.object.machine} against "
                f"{self.object.symbols[relocation.symbol].name!r} is unknown"
            )
        return rule


def _is_loaded(section: Section) -> bool:
    return bool(section.flags & SHF_ALLOC) and section.type == SHT_PROGBITS


def _check_writable(section: Section) -> None:
    """Refuse data that would have to be writable."""
    is_bss = section.type == SHT_NOBITS
    is_writable = bool(section.flags & SHF_ALLOC) and (is_bss or bool(section.flags & SHF_WRITE))
    if is_writable and (len(section.body) or (is_bss and section.name != ".bss")):
        raise LinkError(f"section {section.name} is writable; a kernel keeps its state in svm_rt")
