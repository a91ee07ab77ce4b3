"""Conversions among dtypes, in registers and between registers and memory: PyTorch's rules on an x86 CPU.

Float to integer truncates; a value out of range, or NaN, gives the result of an x86 CPU's conversion (the
smallest i32 / i64, of which narrower types keep the low bits): PyTorch leaves these undefined. u8 goes
through i64 for f64 and i32 otherwise, so that -1.0 is 255. Integer to integer keeps the low bits. To bool: x
!= 0, so NaN is true. f16 and bf16 are reached through f32, from f64 and i64 too.
"""

from __future__ import annotations

from .dtypes import DTYPES
from .vector import Vec, select


def round_to(x: Vec, dtype: str) -> Vec:
    """Round float registers to what f16 or bf16 can represent; other dtypes are unchanged."""
    if dtype == "f16":
        return x.convert("fptrunc", "half").convert("fpext", "float")
    if dtype == "bf16":
        return _from_bf16(_to_bf16(x))
    return x


def _to_bf16(x: Vec) -> Vec:
    """The bits of the nearest bf16, ties to even, as i16; a NaN is 0x7FC0."""
    bits = x.bits()
    even = bits.binary("lshr", 16) & 1
    rounded = (bits + even + 0x7FFF).binary("lshr", 16)
    return select(x.isnan(), 0x7FC0, rounded).convert("trunc", "i16")


def _from_bf16(x: Vec) -> Vec:
    return (x.convert("zext", "i32") << 16).floats()


def from_memory(x: Vec, dtype: str) -> Vec:
    """A loaded vector (elements of DTYPES[dtype].memory) as registers."""
    if dtype == "f16":
        return x.convert("fpext", "float")
    if dtype == "bf16":
        return _from_bf16(x)
    return x.ne(0) if dtype == "bool" else x


def widened(x: Vec, dtype: str) -> Vec:
    """A loaded vector of `dtype` as f32 registers."""
    return cast(from_memory(x, dtype), dtype, "f32")


def to_memory(x: Vec, dtype: str) -> Vec:
    """Registers as the vector to store."""
    if dtype == "f16":
        return x.convert("fptrunc", "half")
    if dtype == "bf16":
        return _to_bf16(x)
    return x.convert("zext", "i8") if dtype == "bool" else x


def cast(x: Vec, source: str, target: str) -> Vec:
    """Convert registers of dtype `source` to dtype `target`."""
    if source == target:
        return x
    a, b = DTYPES[source], DTYPES[target]
    if target == "bool":
        return x.ne(0)
    if a.kind == "float":
        if b.kind == "float":
            return round_to(_resize(x, b.register, "fpext", "fptrunc"), target)
        return _float_to_int(x, source, target)
    if b.kind == "float":
        opcode = "sitofp" if a.kind == "int" else "uitofp"
        return round_to(x.convert(opcode, b.register), target)
    return _resize(x, b.register, "sext" if a.kind == "int" else "zext", "trunc")


def saturated(x: Vec) -> Vec:
    """Convert f32 clamped to 0 .. 255 to u8 like `cast`: a NaN is 0. Each clamp is one x86 instruction, which
    returns its second operand if the first is NaN."""
    above = select(x.gt(0.0), x, 0.0)
    return cast(select(above.lt(255.0), above, 255.0), "f32", "u8")


_WIDTH = {"double": 64, "float": 32, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 1}


def _resize(x: Vec, element: str, widen: str, narrow: str) -> Vec:
    if x.element == element:
        return x
    return x.convert(widen if _WIDTH[element] > _WIDTH[x.element] else narrow, element)


def _float_to_int(x: Vec, source: str, target: str) -> Vec:
    through = "i64" if target == "i64" or (source, target) == ("f64", "u8") else "i32"
    found = x.convert("fptosi", through)
    if x.f.saturates:  # then values out of range give the nearest integer
        end = 2.0 ** (_WIDTH[through] - 1)
        found = select(x.ge(-end) & x.lt(end), found, -int(end))
    return _resize(found, DTYPES[target].register, "sext", "trunc")
