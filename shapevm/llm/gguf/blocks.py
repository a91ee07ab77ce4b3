"""The formats of GGUF's tensors: blocks of small integers with scales, as `nn.Quantised` in which products
read the same values.

A number is its integer times the scale of its group, less the minimum of its group if the format has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jit.evaluation import bf16_to_f32
from ...nn.quantised import Quantised

Array = np.ndarray[Any, Any]
#: Of blocks u8 [n, bytes]: the integers i8 [n, elements], and the scales and minimums f32 [n, groups].
Parts = tuple[Array, Array, "Array | None"]
SUPER = 256  # elements of a block whose scales are integers too


@dataclass(frozen=True)
class Format:
    """A block of `elements` numbers in `n_bytes`. `parts`: how it is read; None: its numbers are stored as
    `dtype`, "bf16" as its bits."""

    name: str
    elements: int
    n_bytes: int
    parts: Callable[[Array], Parts] | None = None
    dtype: str = ""


def array_of(format: Format, data: Array, shape: tuple[int, ...]) -> Array | Quantised:
    """Return the tensor of `shape` whose bytes are `data`; bf16 as f32, which holds it."""
    if format.parts is None:
        if format.dtype == "bf16":
            return bf16_to_f32(data.view("<u2")).reshape(shape)
        return data.view(np.dtype(format.dtype).newbyteorder("<")).reshape(shape)
    if not data.size:
        return np.zeros(shape, np.float32)
    integers, scales, minimums = format.parts(data.reshape(-1, format.n_bytes))
    *rows, width = shape
    groups = (*rows, width * scales.size // integers.size)
    if minimums is not None:
        integers, scales, minimums = _with_zeros(integers, scales, minimums)
        minimums = minimums.reshape(groups)
    return Quantised(integers.reshape(shape), scales.reshape(groups), minimums)


def _with_zeros(integers: Array, scales: Array, minimums: Array) -> tuple[Array, Array, Array]:
    """Return integers, scales and zero points of integers * scales - minimums. A group whose scale is 0 has
    its minimum as the scale, which is then exact."""
    is_flat = (scales == 0) & (minimums != 0)
    factors = np.where(is_flat, minimums, np.where(scales == 0, np.float32(1), scales))
    zeros = (minimums.astype(np.float64) / factors).astype(np.float32)
    groups = integers.reshape(*scales.shape, -1)
    kept = np.where((scales == 0)[..., None], np.int8(0), groups)
    return kept.reshape(integers.shape), factors, zeros


# Blocks of 32 with one scale --------------------------------------------------------------------------


def _half(blocks: Array, at: int) -> Array:
    """Return the f16 at byte `at` of each block in f32, [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(data: Array, beside: int) -> Array:
    """Return the low halves of each `beside` bytes, then their high halves, [n, 2 * bytes]."""
    parts = data.reshape(len(data), -1, beside)
    return np.concatenate([parts & 15, parts >> 4], axis=-1).reshape(len(data), -1)


def _simple(bits: int, has_minimum: bool) -> Callable[[Array], Parts]:
    """Return how blocks of 32 integers of 4, 5 or 8 bits are read."""

    def parts(blocks: Array) -> Parts:
        begin = 4 if has_minimum else 2
        scale, minimum = _half(blocks, 0), -_half(blocks, 2) if has_minimum else None
        if bits == 8:
            return blocks[:, begin:].view(np.int8), scale, minimum
        fifth = blocks[:, begin : begin + 4] if bits == 5 else None
        numbers = _nibbles(blocks[:, begin if fifth is None else begin + 4 :], 16)
        if fifth is not None:
            numbers = numbers | np.unpackbits(fifth, axis=-1, bitorder="little") << 4
        middle = 0 if has_minimum else 1 << bits - 1
        return (numbers.astype(np.int8) - np.int8(middle)), scale, minimum

    return parts


# Blocks of 256, whose scales are integers -------------------------------------------------------------


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """Return the eight scales and the eight minimums of 6 bits in 12 bytes, in f32."""
    low, high, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (rest & 15) | (low >> 2 & 48)], axis=-1)
    minimums = np.concatenate([high & 63, (rest >> 4) | (high >> 2 & 48)], axis=-1)
    return scales.astype(np.float32), minimums.astype(np.float32)


def _four_or_five(has_fifth: bool) -> Callable[[Array], Parts]:
    """Return how Q4_K and Q5_K are read: eight groups with scales and minimums."""

    def parts(blocks: Array) -> Parts:
        scales, minimums = _six_bits(blocks[:, 4:16])
        begin = 48 if has_fifth else 16
        numbers = _nibbles(blocks[:, begin:], 32)
        if has_fifth:
            bits = np.unpackbits(blocks[:, 16:48, None], axis=-1, bitorder="little")
            numbers = numbers | bits.swapaxes(1, 2).reshape(len(blocks), SUPER) << 4
        return numbers.astype(np.int8), _half(blocks, 0) * scales, _half(blocks, 2) * minimums

    return parts


def _pairs(data: Array) -> Array:
    """Return the four pairs of bits of each 32 bytes, the lowest first, [n, 4 * bytes]."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return (data.reshape(len(data), -1, 1, 32) >> shifts & 3).reshape(len(data), -1)


def _two(blocks: Array) -> Parts:
    """Q2_K: 16 groups, whose scales and minimums have 4 bits."""
    scales = blocks[:, :16]
    scale, minimum = _half(blocks, 80), _half(blocks, 82)
    return _pairs(blocks[:, 16:80]).astype(np.int8), scale * (scales & 15), minimum * (scales >> 4)


def _three(blocks: Array) -> Parts:
    """Q3_K: 16 groups, whose scales have 6 bits; a mask has the highest bit of each integer."""
    mask = np.unpackbits(blocks[:, :32, None], axis=-1, bitorder="little").swapaxes(1, 2)
    low, high = _nibbles(blocks[:, 96:104], 8), blocks[:, 104:108]
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    highest = (high[:, None] >> shifts & 3).reshape(-1, 16)
    scales = (low | highest << 4).astype(np.int8) - np.int8(32)
    numbers = _pairs(blocks[:, 32:96]) | mask.reshape(-1, SUPER) << 2
    return numbers.astype(np.int8) - np.int8(4), _half(blocks, 108) * scales, None


def _six(blocks: Array) -> Parts:
    """Q6_K: 16 groups, whose scales have 8 bits."""
    numbers = _nibbles(blocks[:, :128], 64) | _pairs(blocks[:, 128:192]) << 4
    scales = blocks[:, 192:208].view(np.int8)
    return numbers.astype(np.int8) - np.int8(32), _half(blocks, 208) * scales, None


#: By the number of a tensor's type in a file.
FORMATS: Mapping[int, Format] = {
    0: Format("F32", 1, 4, dtype="f4"),
    1: Format("F16", 1, 2, dtype="f2"),
    30: Format("BF16", 1, 2, dtype="bf16"),
    2: Format("Q4_0", 32, 18, _simple(4, False)),
    3: Format("Q4_1", 32, 20, _simple(4, True)),
    6: Format("Q5_0", 32, 22, _simple(5, False)),
    7: Format("Q5_1", 32, 24, _simple(5, True)),
    8: Format("Q8_0", 32, 34, _simple(8, False)),
    10: Format("Q2_K", SUPER, 84, _two),
    11: Format("Q3_K", SUPER, 110, _three),
    12: Format("Q4_K", SUPER, 144, _four_or_five(False)),
    13: Format("Q5_K", SUPER, 176, _four_or_five(True)),
    14: Format("Q6_K", SUPER, 210, _six),
}
