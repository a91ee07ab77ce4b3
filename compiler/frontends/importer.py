"""The common part of all frontends: lookup of converters for torch overloads, collection of unsupported
operators, constants.

A frontend walks its format and calls `Importer.convert` for every operator. Custom operators:

    register_converter("my_ops.scale.default", lambda builder, x, factor: ...)  # see declare.Composite
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...vm.errors import ArgumentError
from ..ir.errors import DtypeError, Error, UnsupportedOp
from ..ir.graph import Builder, Graph, Value, erase
from ..ir.promotion import is_float
from ..ops import COMPLEX, COMPOSITES, OPS
from ..ops import build as B
from ..ops.complex import is_complex, of_parts

Converter = Callable[..., Any]

_REGISTERED: dict[str, Converter] = {}
_ONE_TO_ONE = {overload: op.name for op in OPS.values() for overload in op.torch}


def register_converter(overload: str, convert: Converter) -> None:
    """Import `overload` ("namespace.name.overload") through `convert(builder, *args, **kwargs)`, before any
    of ours."""
    if overload.count(".") < 2:
        raise ValueError(
            f'overload is {overload!r}; it must be written "namespace.name.overload", such as '
            '"aten.add.Tensor"'
        )
    _REGISTERED[overload] = convert


def converter(operator: str) -> Callable[[Converter], Converter]:
    """Register the decorated function as the converter of an operator, "namespace::name" or
    "namespace::name.overload", for every program that is imported from then on.

    The function takes an `ir.Builder` and the operator's arguments: graph values for tensors, numbers,
    strings, lists; sizes are ints or expressions. It appends nodes, most simply through the functions of
    `shapevm.compiler.ops.build`, and returns the result's value, or a tuple of them; their dtypes and shapes
    must be those of the operator's fake kernel. It takes precedence over shapevm's own converters.

    Raises ArgumentError for a name of any other form, and if the value is not a function.
    """
    namespace, _, rest = str(operator).partition("::")
    if not namespace or not rest or rest.count(".") > 1:
        raise ArgumentError(f'operator is {operator!r}; write "namespace::name", such as "mylib::scale"')
    name, _, overload = rest.partition(".")

    def register(convert: Converter) -> Converter:
        if not callable(convert):
            raise ArgumentError(f"converter of {operator}: {convert!r} is no function")
        register_converter(f"{namespace}.{name}.{overload or 'default'}", convert)
        return convert

    return register


def find_converter(overload: str) -> Converter | None:
    """Return the converter of an overload such as "aten.add.Tensor", or None."""
    if overload in _REGISTERED:
        return _REGISTERED[overload]
    if overload in COMPOSITES:
        return COMPOSITES[overload].expand
    if overload in _ONE_TO_ONE:
        op = _ONE_TO_ONE[overload]
        return lambda builder, *args: builder.one(op, *args)
    return COMPLEX.get(overload)


def converter_for(overload: str, args: Iterable[Any]) -> Converter | None:
    """Return the converter of an overload with these arguments, or None."""
    found = find_converter(overload)
    if overload in _REGISTERED or not is_complex([*args]):
        return found
    return COMPLEX.get(overload) or (None if found is None else of_parts(overload, found))


def known_overloads() -> list[str]:
    """Return every overload that can be imported."""
    return sorted({*_REGISTERED, *COMPOSITES, *_ONE_TO_ONE, *COMPLEX})


class Importer:
    """Makes `graph`. Subclasses walk a format: `require` its operators, then `convert` each."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self.builder = Builder(self.graph)

    def require(self, overloads: Iterable[tuple[str, str]]) -> None:
        """Raise UnsupportedOp naming all (overload, model line) that have no converter, with the nearest
        known names."""
        missing: dict[str, list[str]] = {}
        for overload, source in overloads:
            if find_converter(overload) is None and not self.can_convert_unknown(overload):
                missing.setdefault(overload, []).append(source)
        if missing:
            lines = "; ".join(_describe_missing(overload, sources) for overload, sources in missing.items())
            plural = "" if len(missing) == 1 else "s"
            raise UnsupportedOp(
                f"the program uses {len(missing)} operator{plural} that cannot be compiled: {lines}"
            )

    def can_convert_unknown(self, overload: str) -> bool:
        """Return True if `convert_unknown` accepts `overload`."""
        return False

    def convert_unknown(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Import an operator without a converter (for subclasses). Raises UnsupportedOp."""
        raise UnsupportedOp(f"{_describe_missing(overload, [self.builder.source])} cannot be compiled")

    def check_complete(self, overload: str, result: Any) -> None:
        """Raise UnsupportedOp if a converter omitted a used result (for subclasses)."""

    def convert(self, overload: str, args: Sequence[Any], kwargs: dict[str, Any], source: str) -> Any:
        """Append the nodes of `overload` and return its results; errors get the model's line. If its
        converter fails, `convert_unknown` may succeed."""
        self.builder.source = source
        converter = converter_for(overload, [*args, *kwargs.values()])
        n_nodes, generator = len(self.builder.block.nodes), self.builder.generator
        places = dict(self.builder.places)
        try:
            if converter is None:
                return self.convert_unknown(overload, args, kwargs)
            try:
                result = _converted(converter, self.builder, args, kwargs)
                self.check_complete(overload, result)
                return result
            except (UnsupportedOp, DtypeError):
                if not self.can_convert_unknown(overload):
                    raise
                self.builder.generator, self.builder.places = generator, places
                for node in reversed(self.builder.block.nodes[n_nodes:]):
                    erase(self.builder.block, node)
                return self.convert_unknown(overload, args, kwargs)
        except Error as error:
            error.source = error.source or source
            raise

    def constant(self, array: np.ndarray, dtype: str, name: str) -> Value:
        """Append a tensor of the model; integer tensors that are all equal or count up become `full` or
        `iota`."""
        if not is_float(dtype) and array.size > 1:
            found = self._pattern(array, dtype)
            if found is not None:
                return found
        return self.builder.constant(array, dtype, name)

    def _pattern(self, array: np.ndarray, dtype: str) -> Value | None:
        first = array.flat[0]
        if (array == first).all():
            return B.full(self.builder, first.item(), dtype, array.shape)
        if (
            dtype != "bool"
            and array.size == max(array.shape)
            and (np.diff(array.reshape(-1).astype(np.int64)) == 1).all()
        ):
            line = self.builder.one("iota", start=int(first), step=1, length=array.size, dtype=dtype)
            return B.reshape(self.builder, line, array.shape)
        return None


def _converted(converter: Converter, builder: Builder, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return a converter's result. Raises UnsupportedOp if it computes with a run-time value."""
    try:
        return converter(builder, *args, **kwargs)
    except (TypeError, AttributeError) as error:
        if not any(map(B.is_run_time_number, (*args, *kwargs.values()))):
            raise
        raise UnsupportedOp("a number that is read from a tensor must be a constant here") from error


def _describe_missing(overload: str, sources: Sequence[str]) -> str:
    places = ", ".join(dict.fromkeys(source for source in sources if source))
    near = difflib.get_close_matches(overload, known_overloads(), n=2, cutoff=0.7)
    return (
        overload
        + (f" ({places})" if places else "")
        + (f" [nearest known: {', '.join(near)}]" if near else "")
    )
