"""THE table of scalar operations that a body's Instr may name, with their vector code and their definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .llvm import Function, Value


@dataclass(frozen=True)
class MathOp:
    """One operation on `arity` operands of one dtype.

    `result`: "same" (as the operands) or "bool". `dtypes`: the dtypes that it takes. `generate(f, dtype, args)`:
    its code on vectors. `reference`: the same on numpy arrays (f16 and bf16 as float32, rounded afterwards).
    `ulp`: its largest error for f32 and f64 in units of the last place (0.5: correctly rounded; 0: exact).
    """

    name: str
    arity: int
    result: str
    dtypes: frozenset[str]
    generate: Callable[[Function, str, Sequence[Value]], Value]
    reference: Callable[..., Any]
    ulp: float


OPS: dict[str, MathOp] = {}


def apply(f: Function, name: str, dtype: str, *args: Value) -> Value:
    """Emit OPS[name] on vectors of any number of lanes, operands of `dtype`; f16 and bf16 round once.

    Raises ValueError for an unknown operation, a dtype that it does not take, or a wrong number of operands.
    """
    raise NotImplementedError
