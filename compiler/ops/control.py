"""Control flow and calls. Their results have the types of their regions or attributes; `compiler.reference`
and the emitter define their meaning, which is not a function of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.dims import symbol
from ..ir.errors import DtypeError, VerifyError
from ..ir.types import BOOL, STR, ScalarType, TensorType, Type
from .declare import Composite, Infer, Op, Sample
from .rules import Attrs, Types


def _infer_typed(op: str) -> Infer:
    def infer(types: Types, attrs: Attrs) -> Sequence[Type]:
        if "types" not in attrs:
            raise VerifyError(f"{op}: the attribute `types` is missing; it gives the types of the results")
        return tuple(attrs["types"])

    return infer


def _infer_extern(types: Types, attrs: Attrs) -> Sequence[Type]:
    results = _infer_typed("extern")(types, attrs)
    if attrs.get("dps") and (attrs.get("sizes") or not all(isinstance(t, TensorType) for t in results)):
        raise VerifyError("extern: with `dps` all results are tensors whose sizes are known before the call")
    named = [ScalarType("int", symbol(name)) for name, _, _ in attrs.get("sizes", ())]
    return (*named, *results)


def _infer_if(types: Types, attrs: Attrs) -> Sequence[Type]:
    if not types or types[0] != BOOL:
        raise DtypeError(f"if: the condition is {types[0] if types else 'absent'}; it must be a bool")
    raise VerifyError("if: its results have the types of its blocks' results; insert it with Builder.insert")


def _infer_while(types: Types, attrs: Attrs) -> Sequence[Type]:
    if any(t is None for t in types):
        raise DtypeError("while: a carried value is absent; every one must be a value")
    return tuple(t for t in types if t is not None)


def _infer_guard(types: Types, attrs: Attrs) -> Sequence[Type]:
    if not types or types[0] != BOOL:
        raise DtypeError(f"guard: the condition is {types[0] if types else 'absent'}; it must be a bool")
    if len(types) > 1 and list(types[1:]) != [STR]:
        raise DtypeError(f"guard: the message is {types[1] or 'absent'}; it must be a str")
    return ()


def _no_function(op: str) -> Callable[[Sequence[Any], Attrs], Any]:
    def reference(args: Sequence[Any], attrs: Attrs) -> Any:
        raise VerifyError(
            f"{op}: it is not a function of arrays; interpret the graph with compiler.reference"
        )

    return reference


def _control(name: str, schema: str, doc: str, infer: Infer, *samples: Sample) -> Op:
    return Op(name, "control", schema, doc, infer, _no_function(name), samples=samples)


OPS: tuple[Op, ...] = (
    _control(
        "if",
        "if(bool condition; regions then, else) -> results",
        "The results of the block that the condition chooses.",
        _infer_if,
    ),
    _control(
        "while",
        "while(*carried; regions cond, body) -> carried",
        "Runs body on the carried values while cond (one bool result) holds; both blocks take them as "
        "parameters.",
        _infer_while,
    ),
    _control(
        "guard",
        "guard(bool condition, str? text; message) -> ()",
        "Stops with the message, an attribute or an argument, unless the condition holds.",
        _infer_guard,
        Sample(("bool",), {"message": "it must hold"}),
        Sample(("bool", "str"), {}),
    ),
    _control(
        "call",
        "call(*args; function, types) -> results",
        "The results of another graph.",
        _infer_typed("call"),
    ),
    _control(
        "extern",
        "extern(*args; name, types, sizes, effect, dps) -> sizes, results",
        "The results, of `types`, of a function that the host offers under `name`. Each of `sizes` (may be "
        "absent), (symbol, result, axis), makes an int: a result's size that gives the symbol its value. "
        "`effect` false: nothing is lost where the results are not used. `dps`: the function fills tensors "
        "that the program has made.",
        _infer_extern,
    ),
)
COMPOSITES: tuple[Composite, ...] = ()
