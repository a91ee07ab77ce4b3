"""Kernel specs as text, exact in both directions: `parse_spec(format_spec(spec)) == spec`.

    matmul n_dims=1 batch=[] m=n0 n=384 k=384 a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="panels"
      b0 f32[n0,384]
      b1 f32[24,384,16]
      b2 f32[n0,384] output
      v0 = acc f32
      v1 = const f32 value=0.0
      v2 = maximum f32 v0 v1
      v3 = store f32 v2 b2[i0,i1]

n0 is dims[0], b0 buffers[0], i0 the index of the first loop, v0 the first instruction's value; a prologue's
values are p0, p1 ...
A concat's pieces are `piece [n0,3]`, the sizes of its loops, then its body.
A flag that is off and a number that is 0 or -1, all by default, are left out.
An index is `scale * base + offset`, base a loop or a value (0: neither).

A spec whose sizes have no numbers yet has expressions in their places, an offset's in parentheses:
`b0[i0,2*i1+(length-1)]`. `SizeText` says how they are written and read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import Any

from .decode import flat_fields, flat_values, from_flat
from .families.concat.spec import Concat, Piece
from .families.conv.spec import Window
from .families.table import FAMILIES
from .spec import Body, Buffer, Dim, Index, Instr, KernelSpec, Size


@dataclass(frozen=True)
class SizeText:
    """How a size is written, without spaces, and read."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _parse_size(text: str) -> Size:
    return Dim(int(text[1:])) if text.startswith("n") else int(text)


NUMBERED = SizeText(str, _parse_size)


def format_spec(spec: KernelSpec[Any], sizes: SizeText = NUMBERED) -> str:
    """Return the text of `spec`, several lines without a trailing newline."""
    values = flat_values(spec)
    simple = [
        f"{name}={_FIELDS[kind][0](values[name], sizes)}"
        for name, (row, kind) in flat_fields(type(spec)).items()
        if kind in _FIELDS and not (_may_be_left_out(row) and values[name] == row.default)
    ]
    head = " ".join(simple)
    lines = [f"{spec.family} {head}"]
    lines += [f"  b{i} {_format_buffer(buffer, sizes)}" for i, buffer in enumerate(spec.buffers)]
    for piece in spec.pieces if isinstance(spec, Concat) else ():
        lines += [f"  piece {_format_sizes(piece.domain, sizes)}", *_format_body(piece.body, "v", sizes)]
    for letter, name in _bodies(type(spec)):
        lines += _format_body(values[name], letter, sizes)
    return "\n".join(lines)


def _may_be_left_out(row: Field[Any]) -> bool:
    """Whether a field is a flag that is off, or a number that is 0 or -1, by default."""
    return row.default in (False, 0, -1)


def _format_body(body: Body, letter: str, sizes: SizeText) -> list[str]:
    return [f"  {letter}{i} = {_format_instr(x, letter, sizes)}" for i, x in enumerate(body)]


def parse_spec(text: str, sizes: SizeText = NUMBERED) -> KernelSpec[Any]:
    """Return the spec that `format_spec` wrote. Raises ValueError naming the line that is not understood."""
    lines = [line.strip() for line in text.strip().splitlines()]
    family, *pairs = lines[0].split()
    if family not in FAMILIES:
        raise ValueError(f"kernel spec: family {family!r} is not one of {', '.join(FAMILIES)}")
    kind = FAMILIES[family].spec
    given = dict(pair.split("=", 1) for pair in pairs)
    buffers = tuple(_parse_buffer(line, sizes) for line in lines[1:] if line.startswith("b"))
    values: dict[str, Any] = {}
    for letter, name in _bodies(kind):
        values[name] = tuple(
            _parse_instr(line, letter, sizes) for line in lines[1:] if line.startswith(letter)
        )
    for name, (row, of) in flat_fields(kind).items():
        if name == "buffers":
            values[name] = buffers
        elif name == "pieces":
            values[name] = _parse_pieces(lines[1:], sizes)
        elif name in values or (name not in given and _may_be_left_out(row)):
            continue
        elif name not in given:
            raise ValueError(f"kernel spec: {lines[0]!r} lacks {name}=...")
        else:
            values[name] = _FIELDS[of][1](given[name], sizes)
    spec: KernelSpec[Any] = from_flat(kind, values)
    return spec


def _parse_pieces(lines: list[str], sizes: SizeText) -> tuple[Piece, ...]:
    starts = [i for i, line in enumerate(lines) if line.startswith("piece ")]
    return tuple(
        Piece(
            _parse_sizes(lines[start].removeprefix("piece "), sizes),
            tuple(_parse_instr(line, "v", sizes) for line in lines[start + 1 : end]),
        )
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    )


def _bodies(family: type) -> list[tuple[str, str]]:
    """Return (the letter of its values, its field) of every body, in the order of execution."""
    names = [name for name, (_, kind) in flat_fields(family).items() if kind == tuple[Instr, ...]]
    return sorted(("p" if name == "prologue" else "v", name) for name in names)


# Parts ---------------------------------------------------------------------------------------------


def _format_sizes(items: tuple[Any, ...], sizes: SizeText) -> str:
    return f"[{','.join(map(sizes.write, items))}]"


def _items(text: str) -> list[str]:
    """Split what stands in brackets at its commas, those inside of parentheses left out."""
    parts, depth = [""], 0
    for letter in text.strip()[1:-1]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts] if parts != [""] else []


def _parse_sizes(text: str, sizes: SizeText) -> tuple[Any, ...]:
    return tuple(sizes.read(item) for item in _items(text))


_OFFSET = r"(n\d+|-?\d+|\(.*\))"
_INDEX = re.compile(rf"(?:(-?\d+)\*)?([ivp]\d+|0(?=\+))(?:\+{_OFFSET})?|{_OFFSET}")


def _format_index(index: Index[Any], letter: str, sizes: SizeText) -> str:
    offset = str(index.offset) if isinstance(index.offset, int | Dim) else f"({sizes.write(index.offset)})"
    base = f"i{index.loop}" if index.loop is not None else ""
    base = f"{letter}{index.value}" if index.value is not None else base
    if not base and index.scale == 1:
        return offset
    scaled = f"{index.scale}*{base or 0}" if index.scale != 1 else base
    return f"{scaled}+{offset}" if index.offset != 0 or not base else scaled


def _parse_index(text: str, sizes: SizeText) -> Index[Any]:
    match = _INDEX.fullmatch(text)
    if match is None:
        raise ValueError(f"kernel spec: index {text!r} is not of the form 2*i0+3, v1+n0 or 3")
    scale, base, offset, constant = match.groups()
    if constant is not None:
        return Index(offset=_parse_offset(constant, sizes))
    kind = {"i": "loop", "v": "value", "p": "value", "0": ""}[base[0]]
    which = {kind: int(base[1:])} if kind else {}
    return Index(**which, scale=int(scale or 1), offset=_parse_offset(offset or "0", sizes))


def _parse_offset(text: str, sizes: SizeText) -> Any:
    return sizes.read(text[1:-1]) if text.startswith("(") else _parse_size(text)


def _format_indices(indices: tuple[Index[Any], ...], letter: str, sizes: SizeText) -> str:
    return f"[{','.join(_format_index(index, letter, sizes) for index in indices)}]"


def _parse_indices(text: str, sizes: SizeText) -> tuple[Index[Any], ...]:
    return tuple(_parse_index(item, sizes) for item in _items(text))


def _format_buffer(buffer: Buffer[Any], sizes: SizeText) -> str:
    return f"{buffer.dtype}{_format_sizes(buffer.shape, sizes)}{' output' if buffer.is_output else ''}"


def _parse_buffer(line: str, sizes: SizeText) -> Buffer[Any]:
    match = re.fullmatch(r"b\d+ (\w+)(\[.*\])( output)?", line)
    if match is None:
        raise ValueError(f"kernel spec: {line!r} is not a buffer, such as b0 f32[n0,384] output")
    return Buffer(match[1], _parse_sizes(match[2], sizes), match[3] is not None)


def _format_instr(instr: Instr[Any], letter: str, sizes: SizeText) -> str:
    parts = [instr.op, instr.dtype, *(f"{letter}{arg}" for arg in instr.args)]
    if instr.buffer is not None:
        parts.append(f"b{instr.buffer}{_format_indices(instr.index, letter, sizes)}")
    if instr.value is not None:
        parts.append(f"value={json.dumps(instr.value)}")
    if instr.loop is not None:
        parts.append(f"i{instr.loop}")
    if instr.size is not None:
        parts.append(f"size={sizes.write(instr.size)}")
    return " ".join(parts)


def _parse_instr(line: str, letter: str, sizes: SizeText) -> Instr[Any]:
    op, dtype, *parts = line.split(" = ", 1)[1].split()
    values: dict[str, Any] = {}
    args = []
    for part in parts:
        if re.fullmatch(rf"{letter}\d+", part):
            args.append(int(part[1:]))
        elif re.fullmatch(r"i\d+", part):
            values["loop"] = int(part[1:])
        elif part.startswith("b") and "[" in part:
            buffer, _, index = part.partition("[")
            values |= {"buffer": int(buffer[1:]), "index": _parse_indices("[" + index, sizes)}
        elif part.startswith("value="):
            values["value"] = json.loads(part[6:])
        elif part.startswith("size="):
            values["size"] = sizes.read(part[5:])
        else:
            raise ValueError(f"kernel spec: {part!r} in {line!r} is not understood")
    return Instr(op, dtype, tuple(args), **values)


def _format_window(window: Window[Any], sizes: SizeText) -> str:
    """Return the fields of `window` in their order, those of an axis in brackets."""
    parts = (getattr(window, f.name) for f in fields(Window))
    return ";".join(_format_sizes(part, sizes) if isinstance(part, tuple) else str(part) for part in parts)


def _parse_window(text: str, sizes: SizeText) -> Window[Any]:
    *axes, groups = text.split(";")
    each: list[Any] = [_parse_sizes(part, sizes) for part in axes]
    return Window(*each, int(groups))  # type: ignore[call-arg]


def _plain(write: Callable[[Any], str], read: Callable[[str], Any]) -> _Form:
    """Return the format and parse of a field that has no sizes."""
    return lambda value, sizes: write(value), lambda text, sizes: read(text)


_Form = tuple[Callable[[Any, SizeText], str], Callable[[str, SizeText], Any]]
_JSON = _plain(json.dumps, json.loads)
#: Annotation of a spec's field -> (format, parse).
_FIELDS: dict[Any, _Form] = {
    int: _plain(str, int),
    Size: (lambda size, sizes: sizes.write(size), lambda text, sizes: sizes.read(text)),
    tuple[Size, ...]: (_format_sizes, _parse_sizes),
    tuple[Index, ...]: (lambda indices, sizes: _format_indices(indices, "v", sizes), _parse_indices),
    str: _JSON,
    float: _JSON,
    bool: _JSON,
    Window: (_format_window, _parse_window),
}
