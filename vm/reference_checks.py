"""Checks of operand values before instructions use them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .codes import DEFAULTS
from .contract import tag_of
from .errors import IntegerOverflow, KindError, LimitExceeded, ShapeError
from .instruction import Instruction
from .isa import Op, Operand, article

INT64 = range(-(1 << 63), 1 << 63)
MAX_BYTES = 1 << 62
MAX_NESTING = DEFAULTS["NESTING"][0]


def check_tag(op: Op, operand: Operand, value: Any, like: Any = None) -> Any:
    """Return a register's value. Raises KindError if the operand's row does not allow it."""
    tag, wanted = tag_of(value), operand.takes if operand.tags else ""
    is_right = not operand.tags or tag in operand.tags
    if operand.like:
        is_right, wanted = tag == tag_of(like), article(tag_of(like))
    if not is_right:
        raise KindError(f"{op.name}: operand {operand.name} is {article(tag)}; it takes {wanted}")
    return value


def check_key(value: Any, *tags: str) -> Any:
    """Return a key. Raises KindError for one of another tag."""
    if tag_of(value) not in tags:
        raise KindError(f"a key is {article(tag_of(value))}; it must be {' or '.join(map(article, tags))}")
    return value


def elements(r: list[Any], i: Instruction, name: str) -> Iterator[Any]:
    """Yield the values of the registers of a list. Raises KindError at the first that its row does not
    allow."""
    operand = i.op.operand(name)
    return (check_tag(i.op, operand, r[register]) for register in i[name])


def wrapped(value: int) -> int:
    """Return the int whose 64 bits are the low ones of `value`."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def check_int64(value: int, what: str) -> int:
    """Return `value`. Raises IntegerOverflow, naming `what`, if it does not fit in 64 bits."""
    if value not in INT64:
        raise IntegerOverflow(f"{what} leaves 64 bits")
    return value


def n_elements(sizes: Sequence[int]) -> int:
    """Return product(sizes). Raises ShapeError for a negative size, or if the product of nonzero sizes
    exceeds 2^62.
    """
    if min(sizes, default=0) < 0:
        raise ShapeError(f"sizes {list(sizes)} must be >= 0")
    if math.prod(size for size in sizes if size) > MAX_BYTES:
        raise ShapeError(f"sizes {list(sizes)} are too many elements")
    return math.prod(sizes)


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, (list, tuple)) else 0


def check_nesting(value: Any) -> Any:
    """Return `value`. Raises LimitExceeded for containers nested deeper than MAX_NESTING."""
    if _depth(value) > MAX_NESTING:
        raise LimitExceeded(f"containers nest deeper than {MAX_NESTING}")
    return value
