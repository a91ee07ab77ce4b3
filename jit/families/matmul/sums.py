"""The order of the sums of matrix products and convolutions, for every tier, tile, target and thread.

The products of a sum are added by fused multiply-adds, k rising, in chains from 0. A sum of LONG steps or
more is cut into blocks of BLOCK steps. The totals of GROUP successive blocks are summed in f32, and so are
those of the groups, so errors grow neither with the length of a chain nor with the number of totals. Shorter
sums are cut into blocks of the steps in their spec (`chain`; 0: they are one chain), at most 16 if there are
up to 32 steps.

If the steps are in pieces of a known length (a convolution's channels under each tap), a block is as many
pieces as fit, or an even part of one, so that a piece consists of whole blocks. For weights packed for
Winograd's algorithm (`conv`) a block is 16 channels under all taps. Sums on AMX tiles have different blocks
(`amx`). If groups of steps have scales (`grouped`), a block is such a group, and its sum times the scale is
added by one more fused multiply-add. If A is in limbs (`digits`), each limb has such sums, exact within a
group; if it is in i16 (`shorts`), the sums of each group are exact as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

BLOCK = 128  # steps; for two panels of B 32 KB, which stay in the first-level cache for all row tiles
LONG = 384  # steps from which a sum is cut into such blocks; at 256 that is 1.04 to 1.15 times as slow
GROUP = 64  # blocks
MULTIPLE = 16  # of the steps of a part of a piece
CHAIN, ACCURATE_CHAIN = 32, 16  # steps of a block of a shorter sum
SHORTEST_CHAIN = 16
LEAST_FIELD = 23  # least exponent field of a row's greatest number, so that powers of two are normal numbers
#: A magnitude of exponent field E is below 2^(E - 126): times 2^(SHORT_SHIFT - E) it is below 2^15. ROOM is
#: added to its bits, so that one which rounds to 2^15 counts as the next power of two.
SHORT_SHIFT, SHORT_ROOM = 126 + 15, 1 << 8
SHORT_LEAST = 15  # exponent field that smaller ones count as, so that powers of two are normal numbers
SPREAD = 10  # binary orders that a row in limbs may reach above its mean, which leaves at least 13 bits


def block_of_pieces(piece: int) -> int:
    """Return the steps of a block if steps are in pieces: some pieces, or an even part of one."""
    if piece <= BLOCK:
        return BLOCK // piece * piece
    share = -(-piece // -(-piece // BLOCK))
    return -(-share // MULTIPLE) * MULTIPLE


def block_of_short(k: int, chain: int) -> int:
    """Return the steps of a block of a sum of `k` steps, fewer than LONG; 0: it is one chain."""
    size = chain if k > 2 * SHORTEST_CHAIN else min(chain, SHORTEST_CHAIN)
    return size if k > size else 0


def blocks(k: int, piece: int = 0, chain: int = 0) -> Iterator[range]:
    """Yield the steps of each block of a sum of `k` steps, in pieces of `piece` (0: no pieces)."""
    if k < LONG:
        size = block_of_short(k, chain) or max(k, 1)
        yield from (range(begin, min(begin + size, k)) for begin in range(0, max(k, 1), size))
        return
    size = block_of_pieces(piece) if piece else BLOCK
    stretch = piece if piece > size else k  # the unit that is cut into blocks
    for first in range(0, k, stretch):
        behind = first + stretch
        yield from (range(begin, min(begin + size, behind)) for begin in range(first, behind, size))


def products(a: np.ndarray, b: np.ndarray, piece: int = 0, chain: int = 0) -> np.ndarray:
    """Return a [.., m, k] times b [.., k, n], both f32, in the order of the kernels; slow."""
    ranges = blocks(a.shape[-1], piece, chain)
    chains = [_chain(a[..., r.start : r.stop], b[..., r.start : r.stop, :]) for r in ranges]
    return _total([_total(chains[i : i + GROUP]) for i in range(0, len(chains), GROUP)])


def grouped_products(a: np.ndarray, integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return a [m, k] times integers [k, n] with scales [groups, n], in the order of the kernels; slow."""
    return _scaled(_of_groups(a, integers, scales, lambda x, y: _chain(x, y.astype(np.float32))), scales)


def _of_groups(
    a: np.ndarray,
    integers: np.ndarray,
    scales: np.ndarray,
    multiply: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Iterator[np.ndarray]:
    """Yield the sums of each group of steps."""
    steps = len(integers) // len(scales)
    for i in range(len(scales)):
        of_group = slice(i * steps, (i + 1) * steps)
        yield multiply(a[:, of_group], integers[of_group])


def _scaled(sums: Iterable[np.ndarray], scales: np.ndarray) -> np.ndarray:
    """Return the total of the sums of groups times their scales."""
    totals: list[np.ndarray] = []
    for i, (found, scale) in enumerate(zip(sums, scales, strict=True)):
        if i % GROUP == 0:
            totals.append(np.full(found.shape, -0.0, np.float32))
        totals[-1] = (found.astype(np.float64) * scale + totals[-1]).astype(np.float32)
    return _total(totals)


def digit_products(a: np.ndarray, integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Like `grouped_products`, by the limbs of a (see `digits`), in the order of the kernels."""
    has_digits = np.isfinite(a).all(-1, keepdims=True) & _is_even(a) & _has_size(a)
    digits, factor = _digits(np.where(has_digits, a, np.float32(0)))
    sums = [_of_groups(x.astype(np.float64), integers, scales, np.matmul) for x in digits]  # exact
    total = _scaled((_joined(*of_group) for of_group in zip(*sums, strict=True)), scales)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = integers.astype(np.float32) * np.repeat(scales, len(integers) // len(scales), 0)
        return np.where(has_digits, total * factor, _chain(a, wide))


def short_products(a: np.ndarray, integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Like `grouped_products`, with each group of a's steps rounded to i16 (see `shorts`), in the order of
    the kernels."""
    numbers, factors = _shorts(a, len(integers) // len(scales))
    flat = numbers.reshape(a.shape).astype(np.float64)
    exact = _of_groups(flat, integers, scales, np.matmul)
    sums = (x.astype(np.float32) * factors[:, i] for i, x in enumerate(exact))
    return _scaled(sums, scales)


def in_shorts(a: np.ndarray, steps: int) -> np.ndarray:
    """Return a [.., k], with each group of `steps` steps rounded to i16, in f64."""
    numbers, factors = _shorts(a.reshape(int(np.prod(a.shape[:-1])), a.shape[-1]), steps)
    return (numbers * factors.astype(np.float64)).reshape(a.shape)


def _shorts(a: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers [m, groups, steps] of a [m, k], and the factors [m, groups, 1] of their sums."""
    groups = a.reshape(len(a), a.shape[-1] // steps, steps)
    bits = np.abs(groups).view(np.int32).max(-1, keepdims=True, initial=0)
    fields = ((bits + SHORT_ROOM).view(np.uint32) >> 23).astype(np.int32)
    exponents = SHORT_SHIFT - np.maximum(fields, SHORT_LEAST)
    is_finite = np.isfinite(groups).all(-1, keepdims=True)
    finite = np.where(is_finite, groups, np.float32(0))
    numbers = np.rint(finite * np.ldexp(np.float32(1), exponents)).astype(np.int64)
    return numbers, np.where(is_finite, np.ldexp(np.float32(1), -exponents), np.float32(np.nan))


def _is_even(a: np.ndarray) -> np.ndarray:
    """Return whether the greatest magnitude of each row leaves its other numbers enough bits: see SPREAD."""
    fields = (a.view(np.int32) >> 23 & 255).astype(np.int64)
    counts = np.count_nonzero(fields, -1, keepdims=True)
    return (fields.max(-1, keepdims=True, initial=0) - SPREAD) * counts <= fields.sum(-1, keepdims=True)


def _joined(low: np.ndarray, middle: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return a group's sums from those of its limbs."""
    lower = (middle * 256 + low).astype(np.float32)
    return (high * 65536 + lower).astype(np.float32)


def _fields(a: np.ndarray) -> np.ndarray:
    """Return the exponent field of the greatest magnitude of each row, or the next one if it is close."""
    greatest = np.abs(a).max(-1, keepdims=True, initial=0).view(np.int32)
    fields: np.ndarray = (greatest + (1 << 17)) >> 23
    return fields


def _has_size(a: np.ndarray) -> np.ndarray:
    """Return whether the numbers of each row are large enough, or zeros: see LEAST_FIELD."""
    return (_fields(a) >= LEAST_FIELD) | ~a.any(-1, keepdims=True)


def _digits(a: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the limbs of rows of finite numbers, the lowest first, and the power of two by which their
    products are multiplied."""
    exponents = 149 - np.maximum(_fields(a), LEAST_FIELD)
    numbers, found = np.rint(a * np.ldexp(np.float32(1), exponents)).astype(np.int32), []
    for _ in range(3):
        found.append(numbers.astype(np.int8))
        numbers = (numbers + 128) >> 8
    return found, np.ldexp(np.float32(1), -exponents)


def _chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sums by fused multiply-adds from 0. A product of two f32 is exact in f64; the sum is rounded
    to f64 and to f32, which differs from a single rounding only in rare ties."""
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        product = a[..., :, k, None].astype(np.float64) * b[..., k, None, :]
        total = (product + total).astype(np.float32)
    return total


def _total(parts: list[np.ndarray]) -> np.ndarray:
    """Return the sum of `parts` in order, in f32."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
