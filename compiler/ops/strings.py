"""Functions of strings: one operator, whose table is that of the opcode `text`."""

from __future__ import annotations

from collections.abc import Sequence

from ...vm.isa import STRING_FUNCTIONS
from ...vm.string_functions import call_string_function
from ..ir.errors import DtypeError
from ..ir.types import STR, ListType, ScalarType, TupleType, Type
from .declare import Composite, Op, Sample
from .rules import Attrs, Types, scalar


def _infer(types: Types, attrs: Attrs) -> Sequence[Type]:
    name = attrs["function"]
    if name not in STRING_FUNCTIONS:
        raise DtypeError(f"string: {name!r} is no function of strings")
    row = STRING_FUNCTIONS[name]
    if len(types) != len(row.takes):
        raise DtypeError(f"string {name}: {len(types)} arguments given; it takes {len(row.takes)}")
    for position, (found, tag) in enumerate(zip(types, row.takes, strict=True)):
        if tag == "list" and found != ListType(STR):
            raise DtypeError(f"string {name}: argument {position} is {found}; it must be a list of str")
        if tag == "tuple" and not isinstance(found, TupleType):
            raise DtypeError(f"string {name}: argument {position} is {found}; it must be a tuple")
        if tag not in ("list", "tuple"):
            scalar(f"string {name}", types, position, tag)
    return (ListType(STR) if row.gives == "list" else ScalarType(row.gives),)


OPS: tuple[Op, ...] = (
    Op(
        "string",
        "value",
        "string(*args; function) -> value",
        "What a function of the opcode `text` gives for strings and numbers.",
        _infer,
        lambda args, attrs: call_string_function(attrs["function"], args),
        samples=(
            Sample(("str", "str"), {"function": "strip"}),
            Sample(("str", "str", "int", "int"), {"function": "find"}, "positive"),
            Sample(("str",), {"function": "words"}),
        ),
    ),
)
COMPOSITES: tuple[Composite, ...] = ()
