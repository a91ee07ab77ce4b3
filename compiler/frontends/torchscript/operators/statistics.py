"""Batch normalisation that changes its running statistics, which are arguments of the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..values.values import Tensor
from ..walk import Walk
from .converters import abstract, run

_BY_BATCH = "aten._native_batch_norm_legit.no_stats"
_IN_EVALUATION = "aten._native_batch_norm_legit_no_training.default"
_IN_TRAINING = "aten._native_batch_norm_legit_functional.default"
_WITH_UPDATE = "aten._batch_norm_with_update_functional.default"


def _native(importer: Walk, *args: Any) -> Any:
    """Return (result, mean, rstd), as native_batch_norm."""
    *tensors, mean, variance, training, momentum, eps = (
        args if len(args) > 6 else (*args[:3], *_NO_STATISTICS, *args[3:])
    )
    if mean is None or variance is None:
        return _made(importer, _BY_BATCH, [*tensors, training, momentum, eps]) if training is True else _NO
    if training is False:
        return _made(importer, _IN_EVALUATION, [*tensors, mean, variance, momentum, eps])
    return _updated(importer, _IN_TRAINING, args) if training is True else _NO


def _layer(importer: Walk, *args: Any) -> Any:
    """Return the result alone, as batch_norm in training."""
    is_updated = args[5] is True and args[3] is not None and args[4] is not None
    return _native(importer, *args[:-1])[0] if is_updated else _NO


def _updated(importer: Walk, overload: str, args: Sequence[Any]) -> list[Any]:
    """Return the results of an operator in training and keep its last two, the new statistics."""
    *results, mean, variance = run(importer, overload, _read(importer, args), {})
    for old, new in zip(args[3:5], (mean, variance), strict=True):
        importer.tensors.write(old, new)
    return [abstract(importer, each) for each in results]


def _made(importer: Walk, overload: str, args: Sequence[Any]) -> list[Any]:
    return [abstract(importer, each) for each in run(importer, overload, _read(importer, args), {})]


def _read(importer: Walk, args: Sequence[Any]) -> list[Any]:
    return [importer.tensors.read(x) if isinstance(x, Tensor) else x for x in args]


_NO = NotImplemented
_NO_STATISTICS = (None, None)  # of the overload that takes none
OPERATORS: dict[str, Callable[..., Any]] = {
    "batch_norm": _layer,
    "native_batch_norm": _native,
    "_native_batch_norm_legit": _native,
    "_batch_norm_with_update": lambda importer, *args: _updated(importer, _WITH_UPDATE, args),
}
