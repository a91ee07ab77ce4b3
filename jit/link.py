"""The linker: one ELF object of one kernel -> one position-independent blob without relocations.

An object of LLVM's `emit_object` holds `.text`, `.rodata*` and a few relocation kinds. The blob is `.text`
followed by the read-only data, each at its alignment; it runs wherever a page boundary puts it. The ELF
structures are read with `struct`: pyelftools takes 0.6 ms for a small kernel's object, `struct` 0.02 ms
(tests/jit/test_link.py reads the same objects with pyelftools and compares). References: System V ABI gABI
chapters 4-5; psABI x86-64 4.4; ELF for the Arm 64-bit Architecture (AAELF64) 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from types import MappingProxyType

SHF_ALLOC, SHF_WRITE = 2, 1
SHT_PROGBITS, SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 1, 2, 4, 8
SHN_UNDEF, STT_SECTION = 0, 3
EM_X86_64, EM_AARCH64 = 62, 183
CODE_ALIGN, PAGE = 64, 4096  # bytes; code that reaches its data by page (ADRP) moves by pages only

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELA = Struct("<QQq")
_I32 = Struct("<i")
_U32 = Struct("<I")


class LinkError(ValueError):
    """An object that cannot become a blob: an undefined symbol, an unknown relocation, writable data."""


@dataclass(frozen=True)
class Section:
    """One ELF section; `body` is its part of the file, empty for none."""

    name: str
    type: int
    flags: int
    link: int
    info: int
    align: int
    body: memoryview


@dataclass(frozen=True)
class Symbol:
    """One ELF symbol: `value` is an offset in section `section`."""

    name: str
    section: int
    value: int


@dataclass(frozen=True)
class Blob:
    """Linked code: `code[entry]` is the kernel's first instruction; it runs at any multiple of `align`."""

    code: bytes
    entry: int
    align: int = CODE_ALIGN


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
            view[start : start + (0 if type == SHT_NOBITS else n)],
        )
        for name, type, flags, _, start, n, link, info, align, _ in rows
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
                    Symbol(sections[section].name if of_section else _text(names, name), section, value)
                )
            return symbols
    return []


# Relocations: (blob, place in the blob P, address S + A) -> None -------------------------------------


def _pc32(blob: bytearray, place: int, target: int) -> None:
    """R_X86_64_PC32 and PLT32: the signed 32-bit distance."""
    _I32.pack_into(blob, place, target - place)


def _adr_page(blob: bytearray, place: int, target: int) -> None:
    """R_AARCH64_ADR_PREL_PG_HI21: ADRP, the distance in 4 KiB pages (the blob starts at a page)."""
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


# Linking ----------------------------------------------------------------------------------------------


def _lay_out(sections: list[Section]) -> tuple[bytearray, dict[int, int]]:
    """Return the blob (code first) and the offset in it of each section that is loaded."""
    loaded = [i for i, s in enumerate(sections) if s.flags & SHF_ALLOC and _is_kept(s)]
    loaded.sort(key=lambda i: sections[i].name != ".text")
    blob, places = bytearray(), {}
    for i in loaded:
        align = max(sections[i].align, 1)
        blob += bytes(-len(blob) % align)
        places[i] = len(blob)
        blob += sections[i].body
    return blob, places


def _is_kept(section: Section) -> bool:
    """Whether the section belongs in the blob; raises LinkError for data that would have to be writable."""
    if section.type == SHT_NOBITS or section.flags & SHF_WRITE:
        if len(section.body) or section.type == SHT_NOBITS and section.name != ".bss":
            raise LinkError(f"section {section.name} is writable; a kernel keeps its state in svm_rt")
        return False
    return section.type == SHT_PROGBITS and not section.name.startswith((".eh_frame", ".note", ".comment"))


def _append(blob: bytearray, parts: Mapping[str, Blob]) -> dict[str, int]:
    """Append linked parts; return the place of each one's entry by name."""
    entries = {}
    for name, part in parts.items():
        blob += bytes(-len(blob) % part.align)
        entries[name] = len(blob) + part.entry
        blob += part.code
    return entries


def link(elf: bytes, entry: str, parts: Mapping[str, Blob] = MappingProxyType({})) -> Blob:
    """Return the blob of one object, whose entry point is the symbol `entry`.

    `parts`: linked code of the functions that the object calls but does not define.
    Raises LinkError naming the symbol, section or relocation that stands against it.
    """
    machine, sections = read_sections(elf)
    symbols = read_symbols(sections)
    blob, places = _lay_out(sections)
    entries = _append(blob, parts)
    for table in sections:
        if table.type == SHT_RELA and table.info in places:
            base = places[table.info]
            for offset, info, addend in _RELA.iter_unpack(table.body):
                symbol = symbols[info >> 32]
                defined = symbol.section in places
                if not defined and symbol.name not in entries:
                    raise LinkError(
                        f"kernel calls {symbol.name!r}, which no blob contains; emit its code inline"
                    )
                apply = RELOCATIONS.get((machine, info & 0xFFFFFFFF))
                if apply is None:
                    raise LinkError(
                        f"relocation {info & 0xFFFFFFFF} of machine {machine} against {symbol.name!r} "
                        "is unknown"
                    )
                to = places[symbol.section] + symbol.value if defined else entries[symbol.name]
                apply(blob, base + offset, to + addend)
    for symbol in symbols:
        if symbol.name == entry and symbol.section in places:
            align = PAGE if machine == EM_AARCH64 and len(places) > 1 else CODE_ALIGN
            return Blob(bytes(blob), places[symbol.section] + symbol.value, align)
    raise LinkError(f"the object defines no symbol {entry!r}")
