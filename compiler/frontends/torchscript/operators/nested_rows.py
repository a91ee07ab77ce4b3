"""Batches of sequences of different lengths, which PyTorch's encoder makes of a padding mask (nested
tensors): the padded batch itself, with the positions that count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....ir.errors import UnsupportedOp
from ..values.values import Memory, Tensor
from ..walk import Walk
from . import library
from .converters import run

_LAYER = "aten._transformer_encoder_layer_fwd.default"
_OF_KEYS = 1  # of torch's kinds of masks


@dataclass(eq=False)
class Rows(Tensor):
    """A padded batch. `kept`: True at positions of the sequences."""

    kept: Any = None


def _are_aligned(importer: Walk, x: Tensor, mask: Tensor) -> Any:
    return library.run(importer, "are_first", [mask])


def _of_mask(importer: Walk, x: Tensor, mask: Tensor, mask_check: bool = True) -> Rows:
    if mask_check:
        raise UnsupportedOp("_nested_tensor_from_mask checks the mask, which cannot be compiled")
    kept = library.run(importer, "first_rows", [mask])
    return Rows(Memory(importer.tensors.read(x)), kept=kept)


def _layer(importer: Walk, x: Any, *rest: Any) -> Any:
    """Return the result of a layer of which no row reads another's padding."""
    if not isinstance(x, Rows):
        return NotImplemented
    if rest[-2:] != (None, None):
        raise UnsupportedOp("a mask of a nested tensor cannot be compiled")
    padding = run(importer, "aten.logical_not.default", [importer.tensors.read(x.kept)], {})
    given = [importer.tensors.read(each) if isinstance(each, Tensor) else each for each in (x, *rest[:-2])]
    return Rows(Memory(run(importer, _LAYER, [*given, padding, _OF_KEYS], {})), kept=x.kept)


def _padded(importer: Walk, x: Any, value: float, size: Any = None) -> Any:
    if not isinstance(x, Rows):
        return NotImplemented
    if size is None:
        raise UnsupportedOp(
            "to_padded_tensor of a length that data decide cannot be compiled; give its output_size"
        )
    return library.run(importer, "shown_rows", [x, x.kept, value])


OPERATORS: dict[str, Callable[..., Any]] = {
    "_nested_tensor_from_mask_left_aligned": _are_aligned,
    "_nested_tensor_from_mask": _of_mask,
    "_transformer_encoder_layer_fwd": _layer,
    "nested_to_padded_tensor": _padded, "to_padded_tensor": _padded,
}  # fmt: skip
