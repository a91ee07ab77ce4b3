"""Instructions on ints, floats and bools, and comparisons."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import DivisionByZero, IntegerOverflow
from .instruction import Instruction
from .reference_checks import check_int64, wrapped
from .reference_frame import Frame
from .string_functions import to_bytes


class Scalars:
    """A method for each of these instructions."""

    def _int(self, r: list[Any], i: Instruction, function: Callable[[int, int], int]) -> None:
        a, b = r[i["a"]], r[i["b"]]
        r[i["d"]] = check_int64(function(a, b), f"{i.op.name} of {a} and {b}")

    def op_add(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Sum."""
        self._int(r, i, operator.add)

    def op_sub(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Difference."""
        self._int(r, i, operator.sub)

    def op_mul(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Product."""
        self._int(r, i, operator.mul)

    def _wrapping(self, r: list[Any], i: Instruction, function: Callable[[int, int], int]) -> None:
        r[i["d"]] = wrapped(function(r[i["a"]], r[i["b"]]))

    def op_wrapping_add(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Sum modulo 2**64."""
        self._wrapping(r, i, operator.add)

    def op_wrapping_sub(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Difference modulo 2**64."""
        self._wrapping(r, i, operator.sub)

    def op_wrapping_mul(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Product modulo 2**64."""
        self._wrapping(r, i, operator.mul)

    def op_floordiv(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Quotient, rounded towards minus infinity."""
        self._nonzero(r, i)
        self._int(r, i, operator.floordiv)

    def op_mod(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Remainder with the sign of the divisor."""
        self._nonzero(r, i)
        self._int(r, i, operator.mod)

    def _nonzero(self, r: list[Any], i: Instruction) -> None:
        a, b = r[i["a"]], r[i["b"]]
        if b == 0:
            raise DivisionByZero(f"{i.op.name} of {a} by 0")

    def op_min(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """The smaller one."""
        self._int(r, i, min)

    def op_max(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """The greater one."""
        self._int(r, i, max)

    def _compare(self, r: list[Any], i: Instruction, function: Callable[[Any, Any], bool]) -> None:
        a, b = (to_bytes(x) if isinstance(x, str) else x for x in (r[i["a"]], r[i["b"]]))
        r[i["d"]] = bool(function(a, b))

    def op_eq(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Equal."""
        self._compare(r, i, operator.eq)

    def op_ne(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Not equal."""
        self._compare(r, i, operator.ne)

    def op_lt(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Less."""
        self._compare(r, i, operator.lt)

    def op_le(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Less or equal."""
        self._compare(r, i, operator.le)

    def op_and(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Both."""
        a, b = r[i["a"]], r[i["b"]]
        r[i["d"]] = a and b

    def op_or(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Either."""
        a, b = r[i["a"]], r[i["b"]]
        r[i["d"]] = a or b

    def op_not(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """The opposite."""
        r[i["d"]] = not r[i["a"]]

    def _float(self, r: list[Any], i: Instruction, function: Callable[[Any, Any], Any]) -> None:
        a, b = np.float64(r[i["a"]]), np.float64(r[i["b"]])
        with np.errstate(all="ignore"):
            r[i["d"]] = float(function(a, b))

    def op_fadd(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Sum."""
        self._float(r, i, operator.add)

    def op_fsub(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Difference."""
        self._float(r, i, operator.sub)

    def op_fmul(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Product."""
        self._float(r, i, operator.mul)

    def op_fdiv(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Quotient; IEEE infinities and NaN instead of errors."""
        self._float(r, i, operator.truediv)

    def op_to_float(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Convert to float."""
        r[i["d"]] = float(r[i["a"]])

    def op_to_int(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Convert to int, truncating."""
        a = r[i["a"]]
        if not math.isfinite(a):
            raise IntegerOverflow(f"to_int of {a} leaves 64 bits")
        r[i["d"]] = check_int64(int(a), f"to_int of {a}")
