"""Run-time attributes of operators with few values: an axis, a mode or a flag, with a branch for each value.
Numbers such as an eps are in `library`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....ir.errors import DtypeError, ShapeError, UnsupportedOp
from ....ops import build as B
from ..flow.branches import branch
from ..values.scalars import scalar_op, value_of
from ..values.values import Fails, List, is_run_time, is_run_time_list, is_size, kind_of
from ..walk import Walk

#: The values of arguments with few values; except for "reduce", operators that share a name share them.
CHOICES: dict[str, tuple[Any, ...]] = {
    "approximate": ("none", "tanh"),
    "indexing": ("ij", "xy"),
    "interpolation_mode": (0, 1, 2),  # bilinear, nearest, bicubic
    "mode": ("constant", "reflect", "replicate", "circular", 0, 1, 2),  # of padding; of bags (sum, mean, max)
    "ord": ("fro", "nuc"),
    "padding": ("same", "valid"),  # of convolutions
    "padding_mode": (0, 1, 2),  # zeros, border, reflection
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "reduction": (0, 1, 2),  # none, mean, sum
    "rounding_mode": ("trunc", "floor"),
    "side": ("left", "right"),
}
AXES = (
    "dim", "dims", "dim0", "dim1", "axis0", "axis1", "start_dim", "end_dim", "source", "destination",
    "dimension", "dims_self", "dims_other",
)  # fmt: skip


def axis_at(names: Sequence[str], args: Sequence[Any]) -> int | None:
    """Return which argument is a run-time axis, or a list with one."""
    for i, (name, x) in enumerate(zip(names, args, strict=False)):
        if name in AXES and is_told_axis([x]):
            return i
    return None


def is_told_axis(axes: Sequence[Any]) -> bool:
    """Return True if one of these axes or lists of axes is a run-time value."""
    return any(is_run_time(k) for x in axes for k in (x.content if _is_plain_list(x) else [x]))


def _is_plain_list(x: Any) -> bool:
    return isinstance(x, List) and isinstance(x.content, list)


Choice = tuple[int, str, tuple[Any, ...]]  # an argument's position and name, and the values it may have


def choice_at(arguments: Sequence[Any], args: Sequence[Any]) -> Choice | None:
    """Return an argument with a run-time value from a few."""
    for i, (argument, x) in enumerate(zip(arguments, args, strict=False)):
        if not is_run_time(x) and not is_size(x):
            continue
        values = (False, True) if str(argument.type) == "bool" else CHOICES.get(argument.name, ())
        values = tuple(value for value in values if kind_of(value) == kind_of(x))
        if values:
            return i, argument.name, values
    return None


def of_each_choice(
    importer: Walk,
    name: str,
    args: Sequence[Any],
    choice: Choice,
    run: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Import an operator once for each value of an argument; calls choose. Calls with a value for which it
    cannot be imported are refused; if that holds for all values, raises the last one's error."""
    at, argument, values = choice
    b, given = importer.builder, args[at]
    ways: list[tuple[Any, Callable[[], list[Any]]]] = []
    refused: Exception | None = None
    for value in values:
        way = partial(run, [*args[:at], value, *args[at + 1 :]])
        try:
            with importer.trial():
                way()
            ways.append((value, way))
        except (UnsupportedOp, ShapeError, DtypeError) as error:
            refused = error
    if not ways:
        raise refused or UnsupportedOp(f"{name}: no {argument} can be compiled")
    given = value_of(b, given, kind_of(given))
    if len(ways) == 2 and kind_of(given) == "bool":
        return branch(importer, given, [ways[1][1], ways[0][1]], tells_form=True)
    flags = [scalar_op(b, "eq", (given, value)) for value, _ in ways]
    known = flags[0]
    for flag in flags[1:]:
        known = b.one("bool_or", known, flag)
    shown = ", ".join(repr(value) for value, _ in ways)
    b.apply("guard", known, message=f"{name}: {argument} must be one of {shown}")

    def of_one_from(k: int) -> list[Any]:
        if k == len(ways) - 1:
            return ways[k][1]()
        return branch(importer, flags[k], [ways[k][1], lambda: of_one_from(k + 1)])

    return of_one_from(0)


def of_each_axis(
    importer: Walk, name: str, args: Sequence[Any], at: int, run: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Import an operator once for each axis that argument `at` may be; calls choose. Calls with an axis that
    the operator refuses, such as one that another argument also names, are refused."""
    b, given = importer.builder, args[at]
    items = list(given.content) if isinstance(given, List) else [given]
    place = next(i for i, x in enumerate(items) if is_run_time(x))
    of_second = name == "tensordot" and at == 3
    rank = _rank_of(importer, args[1 if of_second else 0]) + (name in ("stack", "unsqueeze", "diag_embed"))
    axis = value_of(b, items[place], "int")
    in_range = b.one(
        "bool_and", b.one("int_le", value_of(b, -rank), axis), b.one("int_lt", axis, b.size(rank))
    )
    b.apply("guard", in_range, message=f"{name}: the axis is out of range; the tensor has {rank} of them")

    def of(k: int) -> list[Any]:
        changed = [*items[:place], k, *items[place + 1 :]]
        try:
            return run([*args[:at], List(changed) if isinstance(given, List) else k, *args[at + 1 :]])
        except ShapeError as error:
            raise Fails(str(error)) from None

    def of_one_from(k: int) -> list[Any]:
        if k >= rank - 1:
            return of(max(k, 0))
        one, other = (b.one("int_eq", axis, value_of(b, number)) for number in (k, k - rank))
        return branch(importer, b.one("bool_or", one, other), [lambda: of(k), lambda: of_one_from(k + 1)])

    return of_one_from(0)


def _rank_of(importer: Walk, x: Any) -> int:
    """Return the rank of a tensor, or of the tensors of a list."""
    if isinstance(x, List):
        if is_run_time_list(x.content):
            return len(x.content.type.element.shape)
        x = x.content[0]
    return len(B.shape_of(importer.tensors.read(x)))
