"""Operators of graph values through the tables of converters that all frontends share, and the tensors and
views that hold what these give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....ir.errors import UnsupportedOp
from ....ir.graph import Value
from ....ir.types import TensorType
from ...importer import find_converter
from ..values.values import List, Tensor, View, is_run_time, is_size
from . import composites, matching
from .decomposed import can_decompose, decomposed

if TYPE_CHECKING:
    from ..importer import ScriptImporter


def run(importer: ScriptImporter, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Append an operator of graph values; sizes that it needs to be equal become so in the contract. Raises
    UnsupportedOp for a number of a call that must be constant."""
    for one, other in matching.pairs(overload, args):
        importer.require_equal(one, other)
    try:
        return _converted_by_table(importer, overload, args, kwargs)
    except (TypeError, ValueError):
        given = [item for x in (*args, *kwargs.values()) for item in (x if isinstance(x, list) else [x])]
        if not any(is_run_time(x) or is_size(x) for x in given):
            raise
        raise UnsupportedOp(
            f"{overload}: a number that only a call tells is given where a constant is needed"
        ) from None


#: Operators that take or give complex numbers.
_COMPLEX = (
    "stft", "istft", "view_as_complex", "view_as_real", "complex", "polar",
    *(f"fft_{kind}fft{axes}" for kind in ("", "i", "r", "ir", "h", "ih") for axes in ("", "2", "n")),
)  # fmt: skip


def _converted_by_table(
    importer: ScriptImporter, overload: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    own = composites.COMPOSITES.get(overload)
    if own is not None:
        return own(importer.builder, *args, **kwargs)
    if find_converter(overload) is None:
        if overload.split(".")[1] in _COMPLEX:
            raise UnsupportedOp(
                f"{overload} computes with complex numbers, which a TorchScript program cannot; compile the "
                "module that it was scripted from, where PyTorch's kernel is called"
            )
        if can_decompose(overload, args):
            return decomposed(importer, overload, args, kwargs)
        importer.require([(overload, importer.builder.source)])
    return importer.call(overload, args, kwargs)


def abstract(importer: ScriptImporter, made: Any) -> Any:
    """Return new tensors for graph values, and lists of them."""
    if isinstance(made, Value) and isinstance(made.type, TensorType):
        return importer.tensors.fresh(made)
    if isinstance(made, tuple | list):
        return List([abstract(importer, each) for each in made])
    return made


def view(
    importer: ScriptImporter, overload: str, x: Tensor, rest: Sequence[Any], kwargs: dict[str, Any]
) -> Tensor:
    """Return the view that an operator makes of a tensor."""
    value = run(importer, overload, [importer.tensors.read(x), *rest], kwargs)
    return importer.tensors.view_of(x, View(overload, tuple(rest), kwargs), value)


def views(
    importer: ScriptImporter, overload: str, x: Any, rest: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Return the view or the list of views that an operator makes of a tensor."""
    made = run(importer, overload, [importer.tensors.read(x), *rest], kwargs)
    if isinstance(made, Value):
        return importer.tensors.view_of(x, View(overload, tuple(rest), kwargs), made)
    return List(
        [
            importer.tensors.view_of(x, View(overload, tuple(rest), kwargs, i), each)
            for i, each in enumerate(made)
        ]
    )
