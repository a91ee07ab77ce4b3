"""Squeezes that may keep an axis whose size is 1 in a call: no later node depends on the number of axes."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
SQUEEZES = (
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims,
)  # fmt: skip
#: They give the same result for any shape with as many elements.
OF_ALL = (
    aten.sum.default, aten.mean.default, aten.prod.default, aten.max.default, aten.min.default,
    aten.all.default, aten.any.default, aten.argmax.default, aten.argmin.default,
)  # fmt: skip
RESHAPES = (
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
    aten.ravel.default,
)  # fmt: skip


def may_keep_axes(node: torch.fx.Node) -> bool:
    """Return whether `node` is a squeeze whose result is used only as a sequence of elements."""
    return node.target in SQUEEZES and _is_used_as_row(node)


def _is_used_as_row(node: torch.fx.Node) -> bool:
    return all(_takes_row(user, node) for user in node.users)


def _takes_row(user: torch.fx.Node, x: torch.fx.Node) -> bool:
    if user.target in OF_ALL:
        return _names_no_axis(user)
    if user.target in RESHAPES:
        return bool(user.meta["val"].ndim <= 1)
    if torch.Tag.pointwise not in getattr(user.target, "tags", ()):
        return False
    return all(arg is x or not _has_axes(arg) for arg in user.all_input_nodes) and _is_used_as_row(user)


def _names_no_axis(node: torch.fx.Node) -> bool:
    """Return whether a reduction is for all elements (argmax.default has a `dim`)."""
    named: Any = node.args[1:] or [node.kwargs.get("dim")]
    return all(axis is None for axis in named)


def _has_axes(node: torch.fx.Node) -> bool:
    found = node.meta.get("val")
    return not isinstance(found, torch.Tensor) or found.ndim > 0
